//! The file system a command sees: a root of its own with the system read-only, the workspace, and little else.
//!
//! Start at [`Root::begin`], which builds what every command sees before it is known which one comes, then
//! [`Root::finish`], which adds what this one is granted (`sources`).
//!
//! Always true: nothing of the host is visible that is not named here or in the job; everything is `nosuid`, all but
//! the six devices and the command's own terminals `nodev`, and everything but the workspace, `/tmp`, `/dev/shm` and
//! granted mounts read-only.

mod shown;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags};

use crate::WORKSPACE;
use crate::companions::{self, Code, LOADERS};
use crate::error::Feature;
use crate::identity::{INSIDE, set_attr};
use crate::job::{Failure, FailureKind, Job, Step, Walls};
use crate::landlock::{Right, Ruleset};
use crate::sources::{Source, Sources, tree};
use crate::spec::{Access, Network};

/// Folders of the system at the top; on most distributions all but `usr` are links into it.
const SYSTEM: &[&str] = &["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// What of `/usr` programs need beside programs, when only granted ones may be seen.
const LIBRARIES: &[&str] =
    &["lib", "lib32", "lib64", "libx32", "libexec", "share", "local/lib", "local/libexec", "local/share"];
/// What compilers read; nothing in there is executed.
const HEADERS: &[&str] = &["include", "local/include"];

/// Settings of the system that programs do not work without. No secrets, no names of people, no network.
const SETTINGS: &[&str] = &[
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "pki/tls/certs",
    "ca-certificates",
    "localtime",
    "timezone",
    "mime.types",
    "protocols",
    "services",
    "terminfo",
    "inputrc",
    "bash.bashrc",
    "profile",
    "fonts",
    "magic",
    "os-release",
    "locale.alias",
    "locale.conf",
    "shells",
    // Where Debian keeps what a Java does not start without.
    "java-8-openjdk",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "java-25-openjdk",
];

/// Further settings for a command that uses the host's network.
const SETTINGS_OF_NETWORK: &[&str] = &["resolv.conf", "gai.conf", "host.conf"];

/// Who is asked for names where rules decide what is reached: the daemon, at [`NAMES_ADDRESS`](crate::NAMES_ADDRESS).
const RESOLVER: &str = "nameserver 127.0.0.1\n";

/// Devices that hold nothing and control nothing. `tty` stands for the terminal of whoever opens it, and a command has none
/// but one that it has made: its session is its own.
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];

/// Where the terminals are that a command makes.
const TERMINALS: &str = "/dev/pts";

/// The most of them at once. Each takes memory of the kernel's, and one of the numbers that all sandboxes of a host share
/// (`kernel.pty.max`, of which 1024 are not for them).
const TERMINALS_MAX: &str = "64";

/// What there is to be mounted on in every root.
const FOLDERS: &[&str] = &["proc", "usr", "tmp", "dev/shm", "workspace"];

/// What a command can write without a disk beneath it.
pub(crate) const ON_MEMORY: [&str; 2] = ["/tmp", "/dev/shm"];

/// The size of `/dev/shm` unless the memory limit is less; what container engines give.
const SHARED_MAX: u64 = 64 << 20;

/// Files in a private folder: each takes memory of the kernel's beside its content.
const INODES_MAX: &str = "65536";

/// Where the root is while it is built: a folder that every host has, and below which nothing is that a command is
/// shown.
const BUILT_AT: &str = "/proc";

/// The largest setting that is copied, far above any of them.
const SETTING_MAX: u64 = 1 << 20;

/// What of the host is copied into a root when it is begun, as it was then: a copy of something else is out of date.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen(Vec<Option<[i64; 7]>>);

impl Seen {
    /// What is there now.
    pub(crate) fn now() -> Self {
        Seen::below(Path::new("/etc"))
    }

    fn below(folder: &Path) -> Self {
        let of = |name: &&str| {
            let meta = std::fs::symlink_metadata(folder.join(name)).ok()?;
            let (device, inode) = (meta.dev().cast_signed(), meta.ino().cast_signed());
            let modified = (meta.mtime(), meta.mtime_nsec());
            Some([device, inode, meta.size().cast_signed(), modified.0, modified.1, meta.ctime(), meta.ctime_nsec()])
        };
        Seen(SETTINGS.iter().map(of).collect())
    }
}

/// What Landlock has to allow for the root that [`Root::finish`] made.
pub(crate) fn rules(walls: &Walls, companions: &[PathBuf]) -> Result<Ruleset, Failure> {
    let ruleset = Ruleset::new()?;
    let changed = |executable: bool| if executable { Right::All } else { Right::Write };
    match &walls.programs {
        None => ruleset.allow(Path::new("/"), Right::Execute)?,
        Some(programs) => {
            ruleset.allow(Path::new("/"), Right::Read)?;
            // Libraries are not executed but mapped, which this right is not about.
            for loader in LOADERS.iter().map(Path::new).filter(|loader| loader.exists()) {
                ruleset.allow(loader, Right::Execute)?;
            }
            for program in programs.iter().map(Path::new).chain(companions.iter().map(PathBuf::as_path)) {
                ruleset.allow(program, Right::Execute)?;
            }
        }
    }
    for folder in ON_MEMORY.into_iter().chain([WORKSPACE]) {
        ruleset.allow(Path::new(folder), changed(walls.own))?;
    }
    let devices = DEVICES.iter().map(|device| Path::new("/dev").join(device)).filter(|device| device.exists());
    for device in devices.chain(Some(PathBuf::from(TERMINALS)).filter(|terminals| terminals.exists())) {
        ruleset.allow(&device, Right::Device)?;
    }
    for (_, at, access, _) in &walls.mounts {
        if *access == Access::Write {
            ruleset.allow(Path::new(at), changed(walls.programs.is_none()))?;
        }
    }
    Ok(ruleset)
}

/// A new file system with these options, mounted nowhere yet.
fn fresh(kind: &str, options: &[(&str, &str)], attributes: MountAttrFlags) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(&context, *key, *value)?;
    }
    rustix::mount::fsconfig_create(&context)?;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// The view of the sandbox's own processes. It is read-only as a whole: kernel settings in it would be the host's.
pub(crate) fn proc() -> Result<OwnedFd, Failure> {
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fresh("proc", &[], attributes).needs(Feature::Proc)
}

/// The new root while it is being built.
pub(crate) struct Root {
    fd: OwnedFd,
    proc: OwnedFd,
}

impl Root {
    /// In the first process: begins a root with what all of them have. The host's is still there beside it, and follows
    /// what the host mounts and unmounts; what is held of it here does not.
    pub(crate) fn begin() -> Result<Self, Failure> {
        // Before the new root hides the host's, without which there is none to be had.
        let root = Root { proc: proc()?, fd: Self::empty()? };
        root.settings(SETTINGS)?;
        root.accounts()?;
        root.devices()?;
        for folder in FOLDERS {
            root.folder(Path::new(folder))?;
        }
        root.attach(&root.proc, Path::new("proc"))?;
        Ok(root)
    }

    /// Adds what this command is granted and moves into it. Afterwards nothing of the host's root is reachable. Returns
    /// what granted programs execute beside themselves: folders, and programs.
    pub(crate) fn finish(self, sources: Sources, job: &Job, walls: &Walls) -> Result<Vec<PathBuf>, Failure> {
        let privately = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", privately).step("separate the mounts from the host's")?;
        let companions = match &walls.programs {
            None => self.system().map(|()| Vec::new())?,
            Some(programs) => self.programs(programs)?,
        };
        match walls.network {
            Network::None => {}
            Network::Host => self.settings(SETTINGS_OF_NETWORK)?,
            Network::Proxy => self.file(Path::new("etc/resolv.conf"), RESOLVER.as_bytes())?,
        }
        let (executable, own) = (walls.programs.is_none(), walls.own);
        // Both are on memory, which is dearer than disk.
        self.scratch("tmp", job.limits.disk.min(job.limits.memory), own)?;
        self.scratch("dev/shm", job.limits.memory.min(SHARED_MAX), own)?;
        let workspace = match sources.layer {
            Some(layer) => {
                let below = |source: &Source| source.at.strip_prefix(WORKSPACE).ok().map(Path::to_owned);
                let mounts: Vec<PathBuf> = sources.mounts.iter().filter_map(below).collect();
                self.layered(sources.workspace, layer, &mounts)?
            }
            None => sources.workspace,
        };
        self.place(Source { tree: workspace, at: WORKSPACE.into(), folder: true, writable: true }, own)?;
        for source in sources.mounts {
            let tree = match (source.folder, source.writable) {
                (true, false) => self.veiled(source.tree, &source.at)?,
                (false, false) => self.copied(source.tree)?,
                // A writable one is the host's folder itself, with all that is in it.
                (_, true) => source.tree,
            };
            self.place(Source { tree, ..source }, executable)?;
        }
        self.enter()?;
        Ok(companions)
    }

    /// An empty root on memory, placed where nobody looks: it has to be mounted somewhere to become a root.
    fn empty() -> Result<OwnedFd, Failure> {
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let options = [("size", "8m"), ("mode", "755")];
        let fd = fresh("tmpfs", &options, attributes).step("make a root file system")?;
        rustix::mount::move_mount(&fd, "", CWD, BUILT_AT, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .step("mount the root file system")?;
        Ok(fd)
    }

    /// Makes a folder and those above it.
    fn folder(&self, path: &Path) -> Result<(), Failure> {
        let path = relative(path);
        if path.as_os_str().is_empty() || self.find(path).is_ok() {
            return Ok(());
        }
        let mut above = PathBuf::new();
        for part in path.components().filter(|part| matches!(part, std::path::Component::Normal(_))) {
            let parent = self.find(&above)?;
            match rustix::fs::mkdirat(&parent, part.as_os_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(misplaced(path, errno)),
            }
            above.push(part);
        }
        Ok(())
    }

    /// Makes an empty file if there is none, as a place for a mount.
    fn file(&self, path: &Path, content: &[u8]) -> Result<(), Failure> {
        self.folder(path.parent().unwrap_or(Path::new("")))?;
        let parent = self.find(path.parent().unwrap_or(Path::new("")))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let name = path.file_name().unwrap_or_default();
        match rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644)) {
            Ok(file) => io::Write::write_all(&mut std::fs::File::from(file), content)
                .map_err(|error| Failure::step(format!("write {}", path.display()), error)),
            Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(misplaced(path, errno)),
        }
    }

    fn link(&self, target: &OsStr, path: &Path) -> Result<(), Failure> {
        self.folder(path.parent().unwrap_or(Path::new("")))?;
        match rustix::fs::symlinkat(target, &self.fd, path) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(misplaced(path, errno)),
        }
    }

    /// Opens a path inside. A workspace may contain any link, so none is followed.
    fn find(&self, path: &Path) -> Result<OwnedFd, Failure> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.fd, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
            .map_err(|errno| misplaced(path, errno))
    }

    /// Mounts `tree` on a place that exists.
    fn attach(&self, tree: &OwnedFd, at: &Path) -> Result<(), Failure> {
        let place = self.find(at)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(tree, "", &place, "", flags).map_err(|errno| misplaced(at, errno))
    }

    /// Makes a place, mounts a source on it and takes away what it must not have.
    fn place(&self, source: Source, executable: bool) -> Result<(), Failure> {
        let mut attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
        if !source.writable {
            attributes |= libc::MOUNT_ATTR_RDONLY;
        }
        // Nothing is executed or mapped as code where only granted programs may run.
        if !executable {
            attributes |= libc::MOUNT_ATTR_NOEXEC;
        }
        if source.folder {
            self.folder(&source.at)?
        } else {
            self.file(&source.at, b"")?
        }
        narrow(&source.tree, libc::AT_RECURSIVE, attributes)?;
        self.attach(&source.tree, relative(&source.at))
    }

    /// Shows a folder or file of the host at the same place, read-only.
    fn show(&self, path: &Path, real: &Path, folder: bool, executable: bool) -> Result<(), Failure> {
        let source = Source { tree: tree(real)?, at: path.to_owned(), folder, writable: false };
        self.place(source, executable)
    }

    /// Shows all programs and libraries.
    fn system(&self) -> Result<(), Failure> {
        for name in SYSTEM {
            let host = Path::new("/").join(name);
            match std::fs::symlink_metadata(&host) {
                Ok(meta) if meta.is_symlink() => self.copy_link(&host)?,
                Ok(meta) if meta.is_dir() => self.show(&host, &host, true, true)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Shows libraries, and of programs the granted ones and those they start. Returns what these execute beside
    /// themselves.
    fn programs(&self, programs: &[std::ffi::OsString]) -> Result<Vec<PathBuf>, Failure> {
        self.folder(Path::new("usr/bin"))?;
        let found = |program: &std::ffi::OsString| -> Result<(PathBuf, PathBuf), Failure> {
            let unusable = |error: io::Error| Failure::new(FailureKind::Path(program.clone()), error);
            let program = Path::new(program);
            // `/bin/sh` is `/usr/bin/sh` where `/bin` is a link, and the file behind it may be `dash`.
            let folder = program.parent().unwrap_or(Path::new("/")).canonicalize().map_err(unusable)?;
            Ok((folder.join(program.file_name().unwrap_or_default()), program.canonicalize().map_err(unusable)?))
        };
        let mut programs = programs.iter().map(found).collect::<Result<Vec<_>, _>>()?;
        let started = companions::started(&programs);
        programs.extend_from_slice(&started);
        let mut companions = companions::of(&programs);
        for folder in LIBRARIES.iter().chain(HEADERS).map(|name| Path::new("/usr").join(name)) {
            if std::fs::symlink_metadata(&folder).is_ok_and(|meta| meta.is_dir()) {
                self.libraries(&folder, &companions)?;
            }
        }
        for name in SYSTEM.iter().filter(|name| **name != "usr") {
            let host = Path::new("/").join(name);
            match std::fs::symlink_metadata(&host) {
                Ok(meta) if meta.is_symlink() => self.copy_link(&host)?,
                Ok(meta) if meta.is_dir() && name.starts_with("lib") => self.show(&host, &host, true, true)?,
                _ => {}
            }
        }
        // What has its home elsewhere.
        let apart = |folder: &Path| !LIBRARIES.iter().any(|name| folder.starts_with(Path::new("/usr").join(name)));
        for folder in companions.iter().filter(|folder| apart(folder)) {
            self.show(folder, folder, true, true)?;
        }
        let within = |path: &Path| companions.iter().any(|folder| path.starts_with(folder));
        let mut shown = BTreeSet::new();
        for (place, real) in &programs {
            // Many find what belongs to them by where they lie, links followed: a Java its libraries, a script its modules.
            let elsewhere = place.parent() != real.parent();
            let linked = elsewhere && SYSTEM.iter().any(|name| real.starts_with(Path::new("/").join(name)));
            let at = if linked { real } else { place };
            if !within(at) && shown.insert(at) {
                self.show(at, real, false, true)?;
            }
            if linked && !within(place) {
                self.link(real.as_os_str(), relative(place))?;
            }
        }
        companions.extend(started.into_iter().map(|(place, _)| place));
        Ok(companions)
    }

    /// Shows a folder of the system, in which only libraries and companions can be mapped as code.
    fn libraries(&self, folder: &Path, companions: &[PathBuf]) -> Result<(), Failure> {
        let Code::Of(mut parts) = companions::code(folder) else { return self.show(folder, folder, true, true) };
        self.show(folder, folder, true, false)?;
        parts.extend(companions.iter().filter(|companion| companion.starts_with(folder)).cloned());
        parts.sort_unstable();
        parts.dedup();
        for part in parts {
            self.show(&part, &part, part.is_dir(), true)?;
        }
        Ok(())
    }

    fn copy_link(&self, host: &Path) -> Result<(), Failure> {
        let target = std::fs::read_link(host).map_err(|error| Failure::new(FailureKind::Path(host.into()), error))?;
        self.link(target.as_os_str(), relative(host))
    }

    /// Copies settings that are files or links and shows those that are folders. What this user may not read is left
    /// out: it was not meant for everybody.
    fn settings(&self, names: &[&str]) -> Result<(), Failure> {
        for name in names {
            let host = Path::new("/etc").join(name);
            match std::fs::symlink_metadata(&host) {
                Ok(meta) if meta.is_symlink() && host.is_absolute() && *name != "resolv.conf" => {
                    self.copy_link(&host)?
                }
                Ok(meta) if meta.is_dir() => self.show(&host, &host, true, true)?,
                Ok(meta) if meta.len() <= SETTING_MAX => {
                    if let Ok(content) = std::fs::read(&host) {
                        self.file(relative(&host), &content)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The one user there is, and the names of the loopback.
    fn accounts(&self) -> Result<(), Failure> {
        let passwd = format!(
            "agent:x:{INSIDE}:{INSIDE}:agent:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
        );
        let group = format!("agent:x:{INSIDE}:\nnogroup:x:65534:\n");
        self.file(Path::new("etc/passwd"), passwd.as_bytes())?;
        self.file(Path::new("etc/group"), group.as_bytes())?;
        self.file(Path::new("etc/hosts"), b"127.0.0.1 localhost sandbox\n::1 localhost\n")?;
        self.file(Path::new("etc/nsswitch.conf"), b"passwd: files\ngroup: files\nhosts: files dns\n")
    }

    /// `/dev` with what programs expect and no terminal of the host's.
    fn devices(&self) -> Result<(), Failure> {
        for name in DEVICES {
            let host = Path::new("/dev").join(name);
            let device = match tree(&host) {
                // Some containers have none.
                Err(_) if *name == "tty" => continue,
                device => device?,
            };
            self.file(relative(&host), b"")?;
            let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
            narrow(&device, 0, attributes)?;
            self.attach(&device, relative(&host))?;
        }
        let links = [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")];
        for (name, end) in links {
            self.link(OsStr::new(&format!("/proc/self/fd{end}")), &Path::new("dev").join(name))?;
        }
        self.terminals()
    }

    /// A place for terminals that the command makes, which has none of anybody else's (devpts is always a new one). A kernel
    /// that gives none to user namespaces makes for a command without them.
    fn terminals(&self) -> Result<(), Failure> {
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let options = [("ptmxmode", "666"), ("mode", "620"), ("max", TERMINALS_MAX)];
        let Ok(made) = fresh("devpts", &options, attributes) else { return Ok(()) };
        self.folder(Path::new(TERMINALS))?;
        self.attach(&made, relative(Path::new(TERMINALS)))?;
        self.link(OsStr::new("pts/ptmx"), Path::new("dev/ptmx"))
    }

    /// A private folder on memory of a limited size, for everybody inside.
    fn scratch(&self, at: &str, size: u64, executable: bool) -> Result<(), Failure> {
        let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        if !executable {
            attributes |= MountAttrFlags::MOUNT_ATTR_NOEXEC;
        }
        // A size of 0 would mean no limit (tmpfs(5)).
        let size = size.max(4096).to_string();
        let made = fresh("tmpfs", &[("size", &size), ("mode", "1777"), ("nr_inodes", INODES_MAX)], attributes)
            .step("make a private folder")?;
        self.folder(Path::new(at))?;
        self.attach(&made, Path::new(at))
    }

    /// Makes this the root and lets go of the host's.
    fn enter(self) -> Result<(), Failure> {
        rustix::process::fchdir(&self.fd).step("enter the new root")?;
        // Both names are the same folder: the old root ends up on top of the new one and is taken off (pivot_root(2)).
        rustix::process::pivot_root(".", ".").step("change the root")?;
        rustix::mount::unmount(".", UnmountFlags::DETACH).step("let go of the host's files")?;
        narrow(&self.fd, 0, libc::MOUNT_ATTR_RDONLY)?;
        rustix::process::chdir("/").step("enter the new root")
    }
}

/// Adds restrictions to a mount, of which none is ever taken away, and lets nothing that the host mounts later into it.
fn narrow(mount: &OwnedFd, flags: i32, attributes: u64) -> Result<(), Failure> {
    let attr = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    set_attr(mount, libc::AT_EMPTY_PATH | flags, &attr).step("restrict a mount")
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn misplaced(path: &Path, errno: Errno) -> Failure {
    Failure::step(format!("make {} inside", path.display()), errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_was_written_made_or_deleted_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(folder.path().join("protocols"), text).unwrap();
        let mut last = Seen::below(folder.path());
        assert_eq!(last, Seen::below(folder.path()));
        for change in
            [&|| write("one"), &|| write("two"), &|| std::fs::remove_file(folder.path().join("protocols")).unwrap()]
                as [&dyn Fn(); 3]
        {
            // Times have the grain of the kernel's clock.
            std::thread::sleep(std::time::Duration::from_millis(20));
            change();
            let now = Seen::below(folder.path());
            assert_ne!(last, now);
            last = now;
        }
    }
}
