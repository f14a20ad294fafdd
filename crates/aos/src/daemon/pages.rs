//! Pages of idle processes, read back from the journal's store.
//!
//! What always holds: a page whose bytes are not those that were written is made again from the entries, which are the
//! truth; where those do not reach back to the first one the daemon ends, and says which page it was.

use aos_abi::Pid;
use aos_journal::{Error, PageReader, Place, Reader};
use aos_kernel::table::{Page, PageStore};
use tokio::sync::mpsc::UnboundedSender;

/// The journal's pages, as the kernel asks for them.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) pages: PageReader,
    pub(crate) entries: Reader,
    /// Told why no page can be had: the kernel ends then.
    pub(crate) failed: UnboundedSender<Error>,
}

impl PageStore for Pages {
    fn load(&mut self, pid: Pid) -> Result<Option<Page>, String> {
        let error = match self.pages.load(pid) {
            Ok(page) => return Ok(page.map(Page::Stored)),
            Err(error) => error,
        };
        if matches!(error, Error::Corrupt { at: Place::Page(_), .. }) {
            tracing::warn!("{error}: it is made again from the entries, which may take a while");
            match super::restore::page(&self.entries, pid) {
                Ok(page) => return Ok(page.map(Page::Mended)),
                Err(why) => tracing::error!("it cannot be made again: {why}"),
            }
        }
        let why = error.to_string();
        // Nobody hears it where the daemon ends already.
        let _ = self.failed.send(error);
        Err(why)
    }
}
