//! How a command is shown the workspace and what is mounted for it to read: through overlays, and small files as copies.
//!
//! Start at [`Root::layered`] for the workspace, at [`Root::veiled`] for a folder and at [`Root::copied`] for a file. What always
//! holds: what an overlay or a copy is made of is mounted nowhere any more when the command begins. Deliberately absent: the
//! system's programs, and what is mounted to be written to; they are the host's own.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags};

use super::{BUILT_AT, Root, SETTING_MAX, fresh, narrow};
use crate::error::Feature;
use crate::job::{Failure, Step};
use crate::sources;

impl Root {
    /// The workspace with a layer over it: an overlay that is mounted nowhere yet. What it is made of does not stay
    /// visible; the overlay holds on to it. The folders on which something of the host is mounted later lie at the very
    /// bottom, so that they are there and are no change of the workspace.
    pub(super) fn layered(&self, workspace: OwnedFd, layer: OwnedFd, mounts: &[PathBuf]) -> Result<OwnedFd, Failure> {
        narrow(&workspace, libc::AT_RECURSIVE, libc::MOUNT_ATTR_RDONLY)?;
        let mut parts = vec![(workspace, ".workspace"), (layer, ".layer")];
        if !mounts.is_empty() {
            let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
            parts.push((fresh("tmpfs", &[("mode", "755")], attributes).step("make places for mounts")?, ".mounts"));
        }
        for (tree, name) in &parts {
            self.folder(Path::new(name))?;
            self.attach(tree, Path::new(name))?;
        }
        for mount in mounts {
            self.folder(&Path::new(".mounts").join(mount))?;
        }
        let place = |name: &str| format!("{BUILT_AT}/{name}");
        let lower = match mounts {
            [] => place(".workspace"),
            _ => [place(".workspace"), place(".mounts")].join(":"),
        };
        let layers = [("lowerdir", lower), ("upperdir", place(".layer/upper")), ("workdir", place(".layer/work"))];
        let overlay = overlay(&layers).needs(Feature::Overlay)?;
        self.hide(&parts)?;
        Ok(overlay)
    }

    /// A folder of the host as an overlay over nothing: its files are the host's, but a socket, a pipe or a device in it
    /// is one that nobody outside has. Reading only does not keep a command from talking to who listens at a socket.
    pub(super) fn veiled(&self, tree: OwnedFd, at: &Path) -> Result<OwnedFd, Failure> {
        narrow(&tree, libc::AT_RECURSIVE, libc::MOUNT_ATTR_RDONLY)?;
        let nothing = fresh("tmpfs", &[("mode", "755")], MountAttrFlags::MOUNT_ATTR_RDONLY);
        let parts = [(tree, ".shown"), (nothing.step("make a place for mounts")?, ".nothing")];
        for (tree, name) in &parts {
            self.folder(Path::new(name))?;
            self.attach(tree, Path::new(name))?;
        }
        let lower = format!("{BUILT_AT}/.shown:{BUILT_AT}/.nothing");
        let overlay = overlay(&[("lowerdir", lower)]).map_err(|errno| {
            let why = "no overlay goes over it, for its file system or for what is mounted below it";
            Failure::step(format!("show {} without the sockets in it: {why}", at.display()), errno)
        })?;
        self.hide(&parts)?;
        Ok(overlay)
    }

    /// A file of the host as a copy on memory: `/proc/self/mountinfo` says of what is mounted where the host has it, which for
    /// the daemon's own is its home. Larger ones are mounted themselves, and so is what may not be read.
    pub(super) fn copied(&self, tree: OwnedFd) -> Result<OwnedFd, Failure> {
        let meta = rustix::fs::fstat(&tree).step("look at a mount")?;
        let read = || -> io::Result<Vec<u8>> {
            let held = format!("self/fd/{}", tree.as_raw_fd());
            let file = rustix::fs::openat(&self.proc, held, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            let mut content = Vec::new();
            io::Read::read_to_end(&mut io::Read::take(std::fs::File::from(file), SETTING_MAX + 1), &mut content)?;
            Ok(content)
        };
        let Some(content) = read().ok().filter(|content| content.len() as u64 <= SETTING_MAX) else { return Ok(tree) };
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let room = (content.len() as u64 + 4096).to_string();
        let made = fresh("tmpfs", &[("size", &room), ("mode", "755")], attributes).step("make a place for a file")?;
        let (place, name) = (".copied", "file");
        self.folder(Path::new(place))?;
        self.attach(&made, Path::new(place))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&made, name, flags, Mode::from_raw_mode(0o600)).step("copy a file")?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(meta.st_mode & 0o777)).step("copy a file")?;
        io::Write::write_all(&mut std::fs::File::from(file), &content)
            .map_err(|error| Failure::step("copy a file", error))?;
        let copy = sources::tree(Path::new(&format!("{BUILT_AT}/{place}/{name}")))?;
        self.hide(&[(made, place)])?;
        Ok(copy)
    }

    /// Takes away what an overlay was made of; the overlay keeps it.
    fn hide(&self, parts: &[(OwnedFd, &str)]) -> Result<(), Failure> {
        for (_, name) in parts {
            rustix::mount::unmount(format!("{BUILT_AT}/{name}"), UnmountFlags::DETACH).step("hide the layers")?;
            rustix::fs::unlinkat(&self.fd, *name, rustix::fs::AtFlags::REMOVEDIR).step("hide the layers")?;
        }
        Ok(())
    }
}

/// An overlay of these layers, mounted nowhere yet.
fn overlay(layers: &[(&str, String)]) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    // Trusted attributes are not for users; these are (overlayfs.rst, "User xattr").
    rustix::mount::fsconfig_set_flag(&context, "userxattr")?;
    for (key, value) in layers {
        rustix::mount::fsconfig_set_string(&context, *key, value.as_str())?;
    }
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}
