//! Reads of many processes, most of which are out of memory.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use aos_abi::process::SpawnSpec;
use aos_abi::{Body, Pid, Timestamp};
use aos_kernel::Kernel;
use aos_kernel::table::{Page, PageStore, decode};

use crate::rig::plain;

/// Pages, and how many were read one by one.
#[derive(Clone, Default)]
struct Pages(Rc<RefCell<BTreeMap<Pid, Vec<u8>>>>, Rc<Cell<usize>>);

impl PageStore for Pages {
    fn load(&mut self, pid: Pid) -> Result<Option<Page>, String> {
        self.1.set(self.1.get() + 1);
        Ok(self.0.borrow().get(&pid).cloned().map(Page::Stored))
    }
}

fn spawned(name: &str) -> Body {
    Body::Spawned(Box::new(SpawnSpec { name: Some(name.to_owned()), ..plain(Pid(2)) }))
}

/// `aos ps` at 100,000 processes left all of them in memory.
#[test]
fn a_list_of_all_leaves_memory_as_it_was() {
    let pages = Pages::default();
    let mut kernel = Kernel::new(pages.clone());
    for n in 0..50 {
        let pid = kernel.next_pid();
        let _ = kernel.apply(Timestamp(1), pid, spawned(&format!("old-{n}")));
    }
    pages.0.borrow_mut().extend(kernel.checkpoint().pages);
    kernel.evict(kernel.lsn().next());
    assert_eq!(kernel.resident(), 0);
    let new = kernel.next_pid();
    let _ = kernel.apply(Timestamp(2), new, spawned("new"));
    assert_eq!(kernel.resident(), 1);

    // One by one, where nobody has read them before.
    let saved: Vec<Pid> = pages.0.borrow().keys().copied().collect();
    let pids = kernel.next_pids(Pid::SYSTEM, &saved, 1000);
    assert_eq!((pids.len(), pids.last()), (51, Some(&new)));
    pages.1.set(0);
    let listed = kernel.glance(Vec::new(), |kernel| kernel.list(pids.iter().copied(), true, None));
    assert_eq!((listed.len(), kernel.resident(), pages.1.get()), (51, 1, 50));

    // With pages that were read before, of which one is older than what is in memory: an agent without a model stops.
    let _ = kernel.apply(
        Timestamp(3),
        Pid(2),
        Body::Input { text: "hi".into(), eof: false, from_pid: Pid::INIT, untrusted: false },
    );
    let read = pages.0.borrow().values().map(|page| decode(page).unwrap()).collect();
    pages.1.set(0);
    let listed = kernel.glance(read, |kernel| kernel.list(pids.iter().copied(), true, None));
    assert_eq!((listed.len(), kernel.resident(), pages.1.get()), (51, 2, 0));
    assert_eq!(listed[0].state, aos_abi::process::State::Stopped, "{:?}", listed[0]);
    assert_eq!(listed[1].state, aos_abi::process::State::Blocked, "{:?}", listed[1]);

    // A piece ends where it is full, wherever its processes are.
    assert_eq!(kernel.next_pids(Pid(3), &saved[2..12], 10), saved[2..12]);
    assert_eq!(kernel.next_pids(Pid(50), &[Pid(51)], 10), [Pid(51), new]);
}
