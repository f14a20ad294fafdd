//! Whom the command is to the host.
//!
//! Start at [`Identity::choose`]. Inside it is always user and group 1000. Outside:
//! - under a daemon that runs as an ordinary user it is that user, whose files are the workspace's;
//! - under one that runs as root it is a user who owns nothing at all, and the workspace is mounted so that its owner's
//!   files appear as that user's (an id-mapped mount, `mount_setattr(2)`). So what a command writes belongs to the
//!   workspace's owner, yet the command never has root's claim on a file or root's exemption from a limit. Other users
//!   and groups are to the command what they are to the workspace's owner: others. They have ids of their own inside, since
//!   an overlay takes over no file of somebody who has none, and a file in a folder of theirs could not be made.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;
use rustix::process::{Gid, Pid, Uid};

use crate::error::Feature;
use crate::job::{Failure, FailureKind, Step};

/// User and group of the command as it sees itself.
pub(crate) const INSIDE: u32 = 1000;

/// The user and group that a root daemon's commands are outside: far above what distributions and container tools hand
/// out, and below the 2^31 that some programs cannot pass.
const NOBODYS: u32 = 0x5a05_0000;

/// Where outside those others are whose files lie in a translated mount: ids that no process of the sandbox ever has. Inside
/// each has its own number, unless that is [`INSIDE`].
const OTHERS: u32 = 1 << 31;

/// How many there are. The last number of all, 2^32 - 1, stands for no user.
const OTHERS_COUNT: u32 = OTHERS - (1 << 16);

/// How many owners' namespaces are kept for later commands; more than there are people on most hosts.
const OWNERS_MAX: usize = 16;

/// Whom commands are outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    /// The daemon's own user and group.
    Own {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
    },
    /// A user that owns nothing, by way of translated mounts.
    Translated,
}

impl Identity {
    /// The weakest identity that this process can give.
    pub(crate) fn choose() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        // Root of a container may not have that user to give; then its own root is no root of the host either.
        let maps = ["/proc/self/uid_map", "/proc/self/gid_map"];
        let all =
            |map: &str| contains(map, NOBODYS) && contains(map, OTHERS) && contains(map, OTHERS + (OTHERS_COUNT - 1));
        if uid == 0 && maps.iter().all(|map| std::fs::read_to_string(map).is_ok_and(|map| all(&map))) {
            Identity::Translated
        } else {
            Identity::Own { uid, gid }
        }
    }

    /// Tells the kernel who is who in `child`'s new user namespace.
    pub(crate) fn map(self, child: Pid) -> Result<(), Failure> {
        match self {
            Identity::Own { uid, gid } => write_maps(child, &[(INSIDE, uid, 1)], &[(INSIDE, gid, 1)]),
            Identity::Translated => {
                let map = translated(INSIDE);
                write_maps(child, &map, &map)
            }
        }
    }

    /// Makes a stream of a command its own, so that it can be opened by its name (`/dev/stderr`), which asks for the rights
    /// of whoever made it. A process that is given it needs none.
    pub(crate) fn give(self, stream: &OwnedFd) -> Result<(), Failure> {
        match self {
            Identity::Own { .. } => Ok(()),
            Identity::Translated => {
                let (user, group) = (Uid::from_raw(NOBODYS), Gid::from_raw(NOBODYS));
                rustix::fs::fchown(stream, Some(user), Some(group)).step("give the command its streams")
            }
        }
    }

    /// Whether a command can be given files of this user and group to change, as far as their permissions go.
    pub(crate) fn covers(self, owner: (u32, u32)) -> bool {
        let group = match self {
            Identity::Own { gid, .. } => owner.1 == gid,
            Identity::Translated => owner.1 < OTHERS_COUNT,
        };
        group && self.covers_user(owner.0)
    }

    /// The same of a user alone.
    pub(crate) fn covers_user(self, user: u32) -> bool {
        match self {
            Identity::Own { uid, .. } => user == uid,
            Identity::Translated => user < OTHERS_COUNT,
        }
    }
}

/// Whether an id is in a map's range of ids inside (`user_namespaces(7)`).
fn contains(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(first)), Some(_), Some(Ok(count))) => (first..first + count).contains(&u64::from(id)),
            _ => false,
        }
    })
}

/// The first id inside, the first outside, and how many (`user_namespaces(7)`).
type Range = (u32, u32, u32);

/// Ids such that `own` is [`NOBODYS`] outside and everybody else of [`OTHERS`]. Whoever is [`INSIDE`] without being `own` has
/// `own`'s number among them, since inside that one is taken. Five ranges at most: more take the kernel longer to search.
fn translated(own: u32) -> Vec<Range> {
    let mut map = vec![(own, NOBODYS, 1)];
    let mut singles = [own, INSIDE];
    singles.sort_unstable();
    let mut from = 0;
    for single in singles {
        let until = single.min(OTHERS_COUNT);
        if from < until {
            map.push((from, OTHERS + from, until - from));
        }
        from = until.saturating_add(1).max(from);
    }
    if from < OTHERS_COUNT {
        map.push((from, OTHERS + from, OTHERS_COUNT - from));
    }
    if own != INSIDE && own < OTHERS_COUNT {
        map.push((INSIDE, OTHERS + own, 1));
    }
    map
}

fn write_maps(child: Pid, users: &[Range], groups: &[Range]) -> Result<(), Failure> {
    let folder = format!("/proc/{}", child.as_raw_nonzero());
    let write = |file: &str, text: String| std::fs::write(format!("{folder}/{file}"), text);
    let lines =
        |map: &[Range]| map.iter().map(|(inside, outside, count)| format!("{inside} {outside} {count}\n")).collect();
    // Without this an ordinary user may not map groups: leaving a group could widen access.
    write("setgroups", "deny".into()).needs(Feature::UserNamespaces)?;
    write("gid_map", lines(groups)).needs(Feature::UserNamespaces)?;
    write("uid_map", lines(users)).needs(Feature::UserNamespaces)
}

/// Makes mounts on which an owner's files appear as [`Identity::Translated`]'s.
#[derive(Default)]
pub(crate) struct Translator {
    /// A user namespace per owner; only its map is used.
    namespaces: BTreeMap<(u32, u32), OwnedFd>,
}

impl Translator {
    /// Whether it may be kept with another owner in it.
    pub(crate) fn has_room(&self) -> bool {
        self.namespaces.len() < OWNERS_MAX
    }

    /// A detached copy of the mount of what is held, with its owner translated; `path` is what it is called.
    pub(crate) fn tree(&mut self, path: &Path, held: OwnedFd) -> Result<OwnedFd, Failure> {
        let unusable = |error: io::Error| Failure::new(FailureKind::Path(path.into()), error);
        let stat = rustix::fs::fstat(&held).map_err(|errno| unusable(errno.into()))?;
        let namespace = self.namespace((stat.st_uid, stat.st_gid))?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = rustix::mount::open_tree(&held, "", flags).map_err(|errno| match errno {
            // Root of a container that may not mount: it is not the path that is at fault.
            Errno::PERM => Failure::new(FailureKind::Missing(Feature::IdmappedMounts), errno),
            _ => unusable(errno.into()),
        })?;
        let attr = libc::mount_attr {
            attr_set: libc::MOUNT_ATTR_IDMAP,
            attr_clr: 0,
            propagation: 0,
            userns_fd: namespace as u64,
        };
        set_attr(&tree, libc::AT_EMPTY_PATH, &attr).needs(Feature::IdmappedMounts)?;
        Ok(tree)
    }

    /// The namespace that translates this owner; it lives as long as the translator.
    pub(crate) fn namespace(&mut self, owner: (u32, u32)) -> Result<i32, Failure> {
        if let Some(fd) = self.namespaces.get(&owner) {
            return Ok(fd.as_raw_fd());
        }
        let (wait, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("open a pipe")?;
        let Some(child) = clone(libc::CLONE_NEWUSER).needs(Feature::UserNamespaces)? else {
            // Nothing to do but to exist until the namespace has been opened.
            drop(go);
            let _ = rustix::io::read(&wait, &mut [0]);
            // SAFETY: ends the process without running anything of its parent's.
            unsafe { libc::_exit(0) }
        };
        let opened = write_maps(child, &translated(owner.0), &translated(owner.1)).and_then(|()| {
            let path = format!("/proc/{}/ns/user", child.as_raw_nonzero());
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
            rustix::fs::open(path, flags, rustix::fs::Mode::empty()).step("open a user namespace")
        });
        drop(go);
        let _ = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
        let fd = self.namespaces.entry(owner).or_insert(opened?);
        Ok(fd.as_raw_fd())
    }
}

/// Forks into new namespaces: the child's pid, or `None` in the child.
pub(crate) fn clone(flags: libc::c_int) -> io::Result<Option<Pid>> {
    // SAFETY: without CLONE_VM and with no stack this is a fork. The calling process has one thread, so no lock is held
    // by a thread that the child lacks.
    let raw = unsafe { libc::syscall(libc::SYS_clone, flags as u64 | libc::SIGCHLD as u64, 0u64, 0u64, 0u64, 0u64) };
    if raw < 0 { Err(io::Error::last_os_error()) } else { Ok(Pid::from_raw(raw as i32)) }
}

/// `mount_setattr(2)` on a mount that is held by a descriptor.
pub(crate) fn set_attr(mount: impl AsFd, flags: i32, attr: &libc::mount_attr) -> io::Result<()> {
    let (fd, size) = (mount.as_fd().as_raw_fd(), std::mem::size_of::<libc::mount_attr>());
    // SAFETY: the path is NUL-terminated and the kernel reads `size` bytes of `attr`.
    let result =
        unsafe { libc::syscall(libc::SYS_mount_setattr, fd, c"".as_ptr(), flags, std::ptr::from_ref(attr), size) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_contains_what_is_inside_its_ranges() {
        assert!(contains("         0          0 4294967295\n", NOBODYS));
        assert!(!contains("0 100000 65536\n", NOBODYS));
        assert!(contains("0 100000 1\n5 7 10\n", 14));
        assert!(!contains("0 100000 1\n5 7 10\n", 15));
        assert!(!contains("", 0));
    }

    /// Whom a map makes of somebody.
    fn of(map: &[Range], id: u32) -> Option<u32> {
        let found: Vec<u32> = map
            .iter()
            .filter(|(first, _, count)| (*first..first + count).contains(&id))
            .map(|(first, outside, _)| outside + (id - first))
            .collect();
        assert!(found.len() < 2, "{id} is in two ranges of {map:?}");
        found.first().copied()
    }

    #[test]
    fn everybody_is_somebody_of_their_own_and_nobody_is_the_owner_but_the_owner() {
        let last = OTHERS_COUNT - 1;
        for own in [0, 1, 999, INSIDE, 1001, 1234, 65534, NOBODYS, last, OTHERS_COUNT, u32::MAX - 1] {
            let map = translated(own);
            assert!(map.len() <= 5, "{map:?}");
            let ids = [0, 1, 5, 999, INSIDE, 1001, 1234, 65534, NOBODYS, last];
            let mut outside = std::collections::BTreeSet::new();
            for id in ids.into_iter().filter(|id| *id != own) {
                match of(&map, id) {
                    Some(to) => assert!(to >= OTHERS && outside.insert(to), "{own}: {id} is {to}"),
                    // There is no number left for them.
                    None => assert!(id == INSIDE && own >= OTHERS_COUNT, "{own}: {id}"),
                }
            }
            assert_eq!(of(&map, own), Some(NOBODYS), "{own}");
        }
        // What the command sees of others: their own numbers, and of whoever has its own number the owner's.
        let (inside, mount) = (translated(INSIDE), translated(0));
        assert_eq!(of(&mount, 33), of(&inside, 33));
        assert_eq!(of(&mount, INSIDE), of(&inside, 0));
        assert!(Identity::Translated.covers((5, last)) && !Identity::Translated.covers((5, OTHERS_COUNT)));
        assert!(Identity::Own { uid: 7, gid: 8 }.covers((7, 8)) && !Identity::Own { uid: 7, gid: 8 }.covers((7, 9)));
    }
}
