//! What a call needs before it may happen, read off the simulation's own policies by hand.
//!
//! Start at [`needed`]. It is the answer that a person would give who reads `setup`, without the policy's engine and without
//! a word of the kernel. Where that would take labels or grants it says less than the policy does, never more.

use aos_abi::Syscall;
use aos_abi::syscall::{Handler, Risk};

use crate::setup::{self, Rules};

/// What every call that a mind proposes has somewhere in its arguments, with a number that no other has.
pub(crate) const PROPOSED: &str = "proposed-";
/// The same for calls that are wanted once, and must not be done twice whatever they are called on their way.
pub(crate) const ONCE: &str = "once-";

/// How the addresses begin that no policy grants.
pub(crate) const DENIED_URL: &str = "https://other.example.net/a";

/// What must have happened before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing that can be told from here.
    Nothing,
    /// A window has ended without a no, or a yes.
    Window,
    /// A yes.
    Yes,
    /// It must not happen.
    Never,
}

/// What this policy needs for a call of a driver.
pub(crate) fn needed(policy: &str, call: &Syscall) -> Need {
    let rules = setup::rules(policy);
    let named: Vec<&str> = match call {
        // The lenient one asks about what is read there, too.
        Syscall::FsRead(args) if matches!(rules, Rules::Lenient) => vec![&args.path],
        Syscall::FsList(args) if matches!(rules, Rules::Lenient) => args.path.as_deref().into_iter().collect(),
        Syscall::FsWrite(args) => vec![&args.path],
        Syscall::FsEdit(args) => vec![&args.path],
        Syscall::FsDelete(args) => vec![&args.path],
        Syscall::FsMove(args) => vec![&args.from, &args.to],
        _ => Vec::new(),
    };
    let any_in = |folder: &str| named.iter().any(|path| path.starts_with(folder));
    let deletes = matches!(call, Syscall::FsDelete(_) | Syscall::FsMove(_));
    let spec = call.name().spec();
    match rules {
        Rules::Broken => Need::Never,
        Rules::Strict if deletes || spec.handler != Handler::Files => Need::Never,
        Rules::Strict if spec.risk != Risk::Read && !any_in("asks/") => Need::Never,
        Rules::Shipped if spec.handler == Handler::Net => Need::Never,
        Rules::Lenient if matches!(call, Syscall::NetFetch(fetch) if fetch.url.starts_with(DENIED_URL)) => Need::Never,
        _ if proposed(call) => Need::Yes,
        Rules::Strict | Rules::Lenient if any_in("asks/") => Need::Yes,
        Rules::Lenient if any_in("holds/") => Need::Window,
        Rules::Strict | Rules::Lenient | Rules::Shipped => Need::Nothing,
    }
}

/// Whether a person may lift that this policy denies a call: where it wants a grant and nothing else.
pub(crate) fn lifts(policy: &str, call: &Syscall) -> bool {
    match setup::rules(policy) {
        Rules::Broken => false,
        // It names no programs that a command could run.
        Rules::Strict => call.name().spec().handler != Handler::Exec,
        Rules::Lenient | Rules::Shipped => true,
    }
}

/// Whether a mind proposed it, and did not make it.
fn proposed(call: &Syscall) -> bool {
    mark(call).is_some_and(|mark| mark.starts_with(PROPOSED))
}

/// What tells this call from every other, where it has such a mark.
pub(crate) fn mark(call: &Syscall) -> Option<String> {
    let text = call.args().to_string();
    let start = text.find(PROPOSED).or_else(|| text.find(ONCE))?;
    let mark = text[start..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-');
    Some(mark.collect())
}

/// Whether an approval of it binds files.
pub(crate) fn binds(call: &Syscall) -> bool {
    use aos_abi::Name::{ExecCmd, FsDelete, FsEdit, FsMove, FsRead, FsWrite};
    matches!(call.name(), FsRead | FsWrite | FsEdit | FsDelete | FsMove | ExecCmd)
}

/// Whether a yes that stands, given to one call, is one to another: to the same place by the same name, or where there is no
/// one place, to the very same.
pub(crate) fn covers(given: &Syscall, call: &Syscall) -> bool {
    let place = |call: &Syscall| match call {
        Syscall::FsRead(args) => Some(args.path.clone()),
        Syscall::FsWrite(args) => Some(args.path.clone()),
        Syscall::FsEdit(args) => Some(args.path.clone()),
        Syscall::FsDelete(args) => Some(args.path.clone()),
        _ => None,
    };
    given.name() == call.name() && (given == call || place(given).is_some() && place(given) == place(call))
}
