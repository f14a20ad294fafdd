//! The second no: Landlock lets the command touch only what it was shown, even where a mount were wrong.
//!
//! Start at [`Ruleset::new`]. Uses the newest interface the kernel has and never one below
//! [`LANDLOCK_ABI_MIN`](crate::LANDLOCK_ABI_MIN). The numbers are those of `linux/landlock.h`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::LANDLOCK_ABI_MIN;
use crate::error::Feature;
use crate::job::{Failure, FailureKind, Step};

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_BLOCK: u64 = 1 << 11;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
/// The rights that concern a file itself; only these may be granted on something that is not a folder.
const ON_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
/// No connecting to abstract sockets and no signals out of the sandbox (ABI 6).
const SCOPES: u64 = 0b11;

/// What may be done below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// Look.
    Read,
    /// Look and execute.
    Execute,
    /// Look and change.
    Write,
    /// Look, change and execute.
    All,
    /// Read from, write to and control a device.
    Device,
}

impl Right {
    fn bits(self) -> u64 {
        let read = READ_FILE | READ_DIR;
        // All that there is by the newest interface, but for making device nodes.
        let change = ((IOCTL_DEV << 1) - 1) & !(MAKE_CHAR | MAKE_BLOCK | EXECUTE | IOCTL_DEV);
        match self {
            Right::Read => read,
            Right::Execute => read | EXECUTE,
            Right::Write => read | change,
            Right::All => read | change | EXECUTE,
            Right::Device => READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV,
        }
    }
}

#[repr(C)]
struct RulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneathAttr {
    allowed_access: u64,
    parent_fd: i32,
}

/// The kernel's Landlock version.
pub(crate) fn abi() -> io::Result<i32> {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the kernel reads no memory and returns a number.
    let abi =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<RulesetAttr>(), 0usize, VERSION) };
    if abi < 0 { Err(io::Error::last_os_error()) } else { Ok(abi as i32) }
}

/// The rights and the scopes that a kernel of this version keeps, all of which are used; without those of
/// [`LANDLOCK_ABI_MIN`] there is no wall.
fn handled_by(abi: i32) -> Result<(u64, u64), Failure> {
    if abi < LANDLOCK_ABI_MIN {
        let missing = FailureKind::Missing(Feature::Landlock);
        return Err(Failure::new(missing, io::Error::from_raw_os_error(libc::ENOSYS)));
    }
    let handled = if abi >= 5 { (IOCTL_DEV << 1) - 1 } else { (TRUNCATE << 1) - 1 };
    Ok((handled, if abi >= 6 { SCOPES } else { 0 }))
}

/// Everything is denied that no rule allows.
pub(crate) struct Ruleset {
    fd: OwnedFd,
    handled: u64,
}

impl Ruleset {
    /// A ruleset that handles all rights this kernel knows.
    pub(crate) fn new() -> Result<Self, Failure> {
        let (handled, scoped) = handled_by(abi().needs(Feature::Landlock)?)?;
        Self::handling(handled, scoped)
    }

    fn handling(handled: u64, scoped: u64) -> Result<Self, Failure> {
        // A command has a network of its own, from which nothing leads out, and its programs may talk in it.
        let attr = RulesetAttr { handled_access_fs: handled, handled_access_net: 0, scoped };
        // An older kernel takes the larger structure as long as what it does not know is zero.
        let size = std::mem::size_of::<RulesetAttr>();
        // SAFETY: the kernel reads `size` bytes of `attr`; the descriptor it returns is ours alone.
        let fd = unsafe {
            let fd = libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attr, size, 0u32);
            if fd < 0 {
                return Err(io::Error::last_os_error()).needs(Feature::Landlock);
            }
            OwnedFd::from_raw_fd(fd as i32)
        };
        Ok(Ruleset { fd, handled })
    }

    /// Allows something at and below a path that exists.
    pub(crate) fn allow(&self, path: &Path, right: Right) -> Result<(), Failure> {
        let step = || format!("allow the command {}", path.display());
        let failed = |errno: rustix::io::Errno| Failure::step(step(), errno);
        let target = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        let kind = rustix::fs::fstat(&target).map_err(failed)?.st_mode;
        let folder = rustix::fs::FileType::from_raw_mode(kind).is_dir();
        let allowed = right.bits() & self.handled & if folder { u64::MAX } else { ON_FILES };
        let attr = PathBeneathAttr { allowed_access: allowed, parent_fd: target.as_raw_fd() };
        const PATH_BENEATH: u32 = 1;
        // SAFETY: the kernel reads one attribute; both descriptors are open.
        let result = unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, self.fd.as_raw_fd(), PATH_BENEATH, &raw const attr, 0u32)
        };
        if result == 0 { Ok(()) } else { Err(Failure::step(step(), io::Error::last_os_error())) }
    }

    /// Puts this process and all it will start under the rules, for good. Needs `no_new_privs`.
    pub(crate) fn restrict_self(self) -> Result<(), Failure> {
        // SAFETY: takes two numbers.
        let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.fd.as_raw_fd(), 0u32) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()).needs(Feature::Landlock) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_kernel_that_keeps_no_truncation_is_refused_and_a_newer_one_is_used_whole() {
        for abi in [-1, 0, 1, 2] {
            let refused: Error = handled_by(abi).unwrap_err().into();
            assert!(matches!(&refused, Error::Missing { feature: Feature::Landlock, .. }), "ABI {abi}: {refused}");
            assert!(refused.to_string().contains("Landlock"), "ABI {abi}: {refused}");
        }
        assert_eq!(LANDLOCK_ABI_MIN, 3);
        let kept = |abi| handled_by(abi).unwrap();
        assert_eq!(kept(3), (0x7fff, 0), "all up to truncation");
        assert_eq!(kept(4), kept(3), "what is new in it is about the network");
        assert_eq!(kept(5), (0xffff, 0), "control of devices too");
        assert_eq!(kept(6), (0xffff, 0b11), "and no way to processes outside");
        assert_eq!(kept(99), kept(6));
    }

    /// What becomes of a file outside the granted folder whose owner truncates it by its path, and of one inside. Landlock
    /// holds for the thread that asks for it, so each has one of its own.
    fn truncated(handled: u64) -> (io::Result<()>, io::Result<()>) {
        let [granted, outside] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let file = |folder: &tempfile::TempDir| folder.path().join("file");
        for folder in [&granted, &outside] {
            std::fs::write(file(folder), "content").unwrap();
        }
        let cut = |folder: &tempfile::TempDir| {
            let path = std::ffi::CString::new(file(folder).into_os_string().into_encoded_bytes()).unwrap();
            // SAFETY: the path is a string that ends with a zero byte and lives as long as the call.
            match unsafe { libc::truncate(path.as_ptr(), 0) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        let said = std::thread::scope(|scope| {
            let under = || {
                rustix::thread::set_no_new_privs(true).unwrap();
                let ruleset = Ruleset::handling(handled, 0).map_err(Error::from).unwrap();
                ruleset.allow(Path::new("/"), Right::Read).map_err(Error::from).unwrap();
                ruleset.allow(granted.path(), Right::Write).map_err(Error::from).unwrap();
                ruleset.restrict_self().map_err(Error::from).unwrap();
                (cut(&outside), cut(&granted))
            };
            scope.spawn(under).join().unwrap()
        });
        let left = std::fs::read_to_string(file(&outside)).unwrap();
        assert_eq!(left.is_empty(), said.0.is_ok(), "what is said is what was done");
        said
    }

    /// The suite of escapes tries it on mounts that are read-only anyhow, where another wall says no first.
    #[test]
    fn a_file_that_may_only_be_read_is_not_truncated_although_its_mount_can_be_written() {
        if abi().is_ok_and(|abi| abi >= LANDLOCK_ABI_MIN) {
            let (outside, granted) = truncated(handled_by(LANDLOCK_ABI_MIN).unwrap().0);
            assert_eq!(outside.unwrap_err().raw_os_error(), Some(libc::EACCES));
            granted.unwrap();
            // By the rights of ABI 2 it would have been: that is why it is too old.
            let (outside, granted) = truncated(TRUNCATE - 1);
            outside.unwrap();
            granted.unwrap();
        } else {
            eprintln!("SKIPPED: this kernel has no Landlock of ABI {LANDLOCK_ABI_MIN}");
        }
    }
}
