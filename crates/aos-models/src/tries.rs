//! How often a server may be asked again within one inference, where its requests per minute are counted.
//!
//! Start at [`Tries`]. What always holds: whoever counts has counted a request before it goes out, and is told when it does.
//! Deliberately absent: when it helps to ask again, which is `retry`'s.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use aos_abi::Pid;

/// Requests that one inference may make of its server beyond the first.
#[derive(Clone, Default)]
pub struct Tries(Option<Arc<Counted>>);

struct Counted {
    pid: Pid,
    left: AtomicU32,
    told: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Tries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.0.as_ref().map(|counted| counted.left.load(Ordering::Relaxed));
        f.debug_tuple("Tries").field(&left).finish()
    }
}

impl Tries {
    /// As many as help, since nobody counts them.
    #[must_use]
    pub fn uncounted() -> Tries {
        Tries::default()
    }

    /// So many, for this process; `told` is called before each goes out.
    #[must_use]
    pub fn counted(pid: Pid, left: u32, told: impl Fn() + Send + Sync + 'static) -> Tries {
        Tries(Some(Arc::new(Counted { pid, left: AtomicU32::new(left), told: Box::new(told) })))
    }

    /// Takes one, which then goes out; `false` where there is none left.
    #[must_use]
    pub fn take(&self) -> bool {
        let Some(counted) = &self.0 else { return true };
        let took = counted.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if took {
            (counted.told)();
        }
        took
    }

    /// Whose they are, where they are counted.
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.0.as_ref().map(|counted| counted.pid)
    }
}
