//! Capabilities: all of them in the sandbox's own user namespace while it is built, none afterwards.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::job::{Failure, Step};

/// `SECBIT_NOROOT`, `SECBIT_NO_SETUID_FIXUP` and `SECBIT_NO_CAP_AMBIENT_RAISE`, each with its lock (`capabilities(7)`):
/// no user id and no execution ever brings capabilities back.
const SECURE_BITS: libc::c_ulong = 0b1100_1111;

/// Makes effective what this process is permitted.
pub(crate) fn raise() -> Result<(), Failure> {
    let sets = rustix::thread::capabilities(None).step("read capabilities")?;
    let raised = CapabilitySets { effective: sets.permitted, ..sets };
    rustix::thread::set_capabilities(None, raised).step("raise capabilities")
}

/// Sees to it that no execution of this process or of those it starts brings a capability back, for good.
pub(crate) fn bound() -> Result<(), Failure> {
    rustix::thread::clear_ambient_capability_set().step("clear ambient capabilities")?;
    // Until the kernel knows no such capability; there are some forty.
    for capability in 0..64 {
        // SAFETY: takes numbers only.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability as libc::c_ulong, 0, 0, 0) } != 0 {
            match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EINVAL) => break,
                error => return Err(Failure::step("drop capabilities", error)),
            }
        }
    }
    // SAFETY: takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_SECUREBITS, SECURE_BITS, 0, 0, 0) } != 0 {
        return Err(Failure::step("lock capabilities", io::Error::last_os_error()));
    }
    Ok(())
}

/// Gives up all capabilities for good, after [`bound`].
pub(crate) fn drop_all() -> Result<(), Failure> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).step("drop capabilities")
}
