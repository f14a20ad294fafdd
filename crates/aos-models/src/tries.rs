//! Whether a server may be asked again within one inference.
//!
//! Start at [`Tries`]. What always holds: where requests per minute are counted, one inference is one request.
//! Deliberately absent: when it helps to ask again, which is `retry`'s.

use aos_abi::Pid;

/// Requests that one inference may make of its server beyond the first.
#[derive(Clone, Debug, Default)]
pub struct Tries(Option<Pid>);

impl Tries {
    /// As many as help, since nobody counts them.
    #[must_use]
    pub fn uncounted() -> Tries {
        Tries::default()
    }

    /// None: this process asks anew, and waits until the minute has room.
    #[must_use]
    pub fn none(pid: Pid) -> Tries {
        Tries(Some(pid))
    }

    /// Whether another request may go out.
    #[must_use]
    pub fn may(&self) -> bool {
        self.0.is_none()
    }

    /// Who asks anew.
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.0
    }
}
