//! Pages of idle processes, read back from the journal's store.

use aos_abi::Pid;
use aos_journal::PageReader;
use aos_kernel::table::PageStore;

/// The journal's pages, as the kernel asks for them.
#[derive(Debug)]
pub(crate) struct Pages(pub(crate) PageReader);

impl PageStore for Pages {
    fn load(&mut self, pid: Pid) -> Result<Option<Vec<u8>>, String> {
        self.0.load(pid).map_err(|error| error.to_string())
    }
}
