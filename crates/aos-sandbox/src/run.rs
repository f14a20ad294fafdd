//! The daemon's side of a run: prepares the job, starts the helper, feeds and drains the command, gathers the outcome.
//!
//! Start at [`run`]. Always true: the helper's control socket lives exactly as long as the run; when it closes, for
//! whatever reason, the helper kills the tree. So a daemon that crashes leaves nothing behind.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown, SocketFlags, SocketType,
};
use rustix::process::Signal;

use crate::PORTS_MAX;
use crate::below::LEVELS_MAX;
use crate::cancel::Cancel;
use crate::capture::{Feed, Sink};
use crate::changes::Snapshot;
use crate::disk::{DiskWatch, Found};
use crate::error::{Error, Feature};
use crate::job::{Job, Report, STARTED, Task, Walls};
use crate::network::DOORS_MAX;
use crate::outcome::{Captured, End, Outcome, Usage};
use crate::probe::results_of;
use crate::sources::held;
use crate::spec::{Doors, Helper, Inode, Isolation, Mount, Network, Programs, Spec};

/// How long after its deadline a helper may take to kill the tree and report before it is killed itself.
const GRACE: Duration = Duration::from_secs(15);

/// The largest report packet; reports are a few hundred bytes.
const REPORT_MAX: usize = 4 << 10;

/// Something that can run a command within walls. This host's kernel is the first; containers and small virtual
/// machines fit behind the same door.
pub trait Isolator: Send + Sync {
    /// Runs one command to its end. Blocks.
    ///
    /// # Errors
    /// See [`Error`]; a command that ran and failed is an [`Outcome`].
    fn run(&self, spec: &Spec, cancel: &Cancel) -> Result<Outcome, Error>;
}

/// The isolator made of this host's own kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThisHost;

impl Isolator for ThisHost {
    fn run(&self, spec: &Spec, cancel: &Cancel) -> Result<Outcome, Error> {
        run(spec, cancel)
    }
}

/// Runs one command to its end on this host. Blocks the calling thread for as long, so async callers use a blocking
/// one; `cancel` ends it early.
///
/// # Errors
/// See [`Error`]. A command that ran and failed, was killed or cancelled, is an [`Outcome`].
pub fn run(spec: &Spec, cancel: &Cancel) -> Result<Outcome, Error> {
    check(spec)?;
    let workspace = spec.workspace.canonicalize().map_err(|source| path_error(&spec.workspace, source))?;
    if !workspace.is_dir() {
        return Err(path_error(&workspace, io::Error::from_raw_os_error(libc::ENOTDIR)));
    }
    // Without walls the command gets a home that is its own and goes away with it, never the daemon's.
    let home = match spec.isolation {
        Isolation::Full => None,
        Isolation::Unsandboxed(_) => {
            let made = tempfile::Builder::new().prefix("aos-home-").tempdir();
            Some(made.map_err(|source| setup_error("make a home for the command", source))?)
        }
    };
    let job = Job {
        argv: spec.argv.clone(),
        env: environment(spec, home.as_ref().map(tempfile::TempDir::path)),
        workspace: workspace.clone().into(),
        home: home.as_ref().map(|home| home.path().into()),
        limits: spec.limits.clone(),
        walls: walls(spec)?,
    };
    // With a layer the workspace below it does not change.
    let written = match &spec.layer {
        Some(layer) => {
            layer.prepare(&workspace)?;
            layer.upper()
        }
        None => workspace.clone(),
    };
    let before = spec.layer.is_none().then(|| Snapshot::take(&workspace));
    let mut disk = DiskWatch::new(&written, spec.layer.as_ref().map(|_| &*workspace), spec.limits.disk);
    let ran = Helped::start(&spec.helper, &Task::Run(Box::new(job)))?.finish(spec, cancel, &mut disk)?;
    let mut end = ran.end;
    let mut left_out = Vec::new();
    let (changed, changed_truncated) = match &spec.layer {
        Some(layer) => match disk.at_last() {
            Found::Deep => return Err(Error::Deep { levels: LEVELS_MAX }),
            Found::TooMuch => {
                // Nobody could look through all of it.
                end = End::OutOfDisk;
                (Vec::new(), true)
            }
            Found::Enough => {
                let (changed, left) = layer.brought(&workspace)?;
                left_out = left;
                (changed, false)
            }
        },
        None => before.map(|before| before.compare(&Snapshot::take(&workspace))).unwrap_or_default(),
    };
    Ok(Outcome { end, stdout: ran.stdout, stderr: ran.stderr, changed, changed_truncated, left_out, usage: ran.usage })
}

/// Refuses what could only fail later and less clearly.
fn check(spec: &Spec) -> Result<(), Error> {
    let refuse = |reason: String| Err(Error::Spec { reason });
    if spec.argv.first().is_none_or(|program| program.is_empty()) {
        return refuse("it names no program".into());
    }
    let has_nul = |text: &OsStr| text.as_bytes().contains(&0);
    if spec.argv.iter().any(|arg| has_nul(arg)) {
        return refuse("an argument contains a NUL byte".into());
    }
    for (name, value) in &spec.env {
        if name.is_empty() || name.as_bytes().contains(&b'=') || has_nul(name) || has_nul(value) {
            return refuse(format!("the environment variable {name:?} is malformed"));
        }
    }
    if spec.network == Network::Proxy && spec.proxy.is_none() {
        return refuse("nobody serves its proxy".into());
    }
    if spec.proxy.as_ref().is_some_and(|proxy| proxy.ports.len() > PORTS_MAX) {
        return refuse(format!("it is let through at more than {PORTS_MAX} ports"));
    }
    let layered = spec.layer.is_some() || !spec.mounts.is_empty();
    if matches!(spec.isolation, Isolation::Unsandboxed(_)) && layered {
        return refuse("mounts and layers need isolation".into());
    }
    let plain = |path: &Path| path.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
    if let Some(paths) = spec.programs.granted()
        && let Some(path) = paths.iter().find(|path| !path.is_absolute() || !plain(path))
    {
        return refuse(format!("the granted program {} is no absolute path", path.display()));
    }
    for mount in &spec.mounts {
        let plain = plain(&mount.at);
        let reserved = ["/proc", "/dev", "/sys"].iter().any(|root| mount.at.starts_with(root));
        if !mount.at.is_absolute() || !plain || reserved || mount.at == Path::new("/") || has_nul(mount.at.as_os_str())
        {
            return refuse(format!("nothing can be mounted at {}", mount.at.display()));
        }
    }
    Ok(())
}

/// The whole environment of the command; nothing of the daemon's own is in it.
fn environment(spec: &Spec, home: Option<&Path>) -> Vec<(OsString, OsString)> {
    let home = home.map_or_else(|| OsString::from("/tmp"), |home| home.as_os_str().to_owned());
    let mut env = spec.env.clone();
    let mut default = |name: &str, value: &OsStr| {
        env.entry(name.into()).or_insert_with(|| value.to_owned());
    };
    default("PATH", OsStr::new(crate::PATH));
    default("LANG", OsStr::new("C.UTF-8"));
    default("HOME", &home);
    default("TMPDIR", &home);
    if spec.isolation == Isolation::Full {
        if spec.network == Network::Proxy {
            let proxy = format!("http://{}", crate::PROXY_ADDRESS);
            for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
                default(name, OsStr::new(&proxy));
            }
        }
        default("USER", OsStr::new("agent"));
        default("LOGNAME", OsStr::new("agent"));
    }
    env.into_iter().collect()
}

/// Resolves what the walls are built from; links are followed here, once, and nowhere else: what is opened later by a path
/// is opened through none, and is what it was here.
fn walls(spec: &Spec) -> Result<Option<Walls>, Error> {
    if spec.isolation != Isolation::Full {
        return Ok(None);
    }
    let mount = |mount: &Mount| {
        let failed = |source| path_error(&mount.host, source);
        let (host, is) = match mount.is {
            Some(is) => (mount.host.clone(), is),
            None => {
                let host = mount.host.canonicalize().map_err(failed)?;
                let held = held(&host).map_err(|errno| failed(errno.into()))?;
                (host, Inode::of(held).map_err(failed)?)
            }
        };
        Ok((host.into(), mount.at.clone().into(), mount.access, is))
    };
    Ok(Some(Walls {
        mounts: spec.mounts.iter().map(mount).collect::<Result<_, Error>>()?,
        programs: spec.programs.granted().map(|paths| paths.iter().map(|path| path.clone().into()).collect()),
        own: !matches!(spec.programs, Programs::Only(_)),
        layer: spec.layer.as_ref().map(|layer| layer.dir().into()),
        network: spec.network,
        through: spec.proxy.as_ref().map(|proxy| (proxy.ports.clone(), proxy.addresses.clone())).unwrap_or_default(),
    }))
}

/// What a run yields before the workspace is compared.
struct Ran {
    end: End,
    usage: Usage,
    stdout: Captured,
    stderr: Captured,
}

/// A helper that has been given its task, and our ends of its pipes.
pub(crate) struct Helped {
    helper: Helper,
    control: OwnedFd,
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Helped {
    /// Hands a task to a helper, as a sealed memory file.
    pub(crate) fn start(helper: &Helper, task: &Task) -> Result<Self, Error> {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let unopened = |errno: Errno| setup_error("open the pipes of the command", errno.into());
        let (stdin_theirs, stdin) = pipe().map_err(unopened)?;
        let (stdout, stdout_theirs) = pipe().map_err(unopened)?;
        let (stderr, stderr_theirs) = pipe().map_err(unopened)?;
        let (control, control_theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(unopened)?;
        for fd in [&stdin, &stdout, &stderr, &control] {
            rustix::io::ioctl_fionbio(fd, true).map_err(unopened)?;
        }
        let written = || -> io::Result<std::fs::File> {
            let file = rustix::fs::memfd_create("task", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            let mut file = std::fs::File::from(file);
            io::Write::write_all(&mut file, &serde_json::to_vec(task)?)?;
            rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK)?;
            Ok(file)
        };
        let task = written().map_err(|source| setup_error("write the helper's task", source))?;
        let theirs = [&control_theirs, &task.into(), &stdin_theirs, &stdout_theirs, &stderr_theirs];
        helper.hand_over(theirs.map(AsFd::as_fd))?;
        // From here on dropping `control` is what ends the helper.
        Ok(Helped { helper: helper.clone(), control, stdin, stdout, stderr })
    }

    /// Waits for the answer to [`Task::Probe`].
    pub(crate) fn probed(self) -> Result<Vec<(Feature, i32)>, Error> {
        let mut reports = Reports::default();
        let until = Instant::now() + GRACE;
        while !reports.ended && Instant::now() < until {
            let mut slots = [PollFd::new(&self.control, PollFlags::IN)];
            let _ = poll(&mut slots, Timespec::try_from(GRACE).ok().as_ref());
            reports.read(&self.control);
        }
        if !reports.ended {
            reports.kill(&self.helper);
        }
        results_of(reports.last)
    }

    /// Feeds and drains the command until the helper has reported and is gone.
    fn finish(self, spec: &Spec, cancel: &Cancel, disk: &mut DiskWatch<'_>) -> Result<Ran, Error> {
        let Helped { helper, control, stdin, stdout, stderr } = self;
        let mut feed = Feed::new(stdin, &spec.stdin);
        let mut stdout = Sink::new(stdout, spec.limits.output);
        let mut stderr = Sink::new(stderr, spec.limits.output);
        let mut reports = Reports::default();
        // Set once the helper has been told to stop: to how the run will be said to have ended.
        let mut stopped = None;
        let mut give_up = Instant::now().checked_add(spec.limits.wall.saturating_add(GRACE));
        // A report says that the tree is dead; the helper has nothing to do after it but to end.
        while !reports.ended && reports.last.is_none() {
            let left = give_up.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                reports.kill(&helper);
                return Err(Error::Helper { reason: "did not end in time and was killed".into(), source: None });
            }
            let mut slots = vec![PollFd::new(&control, PollFlags::IN)];
            if stopped.is_none() {
                slots.push(PollFd::from_borrowed_fd(cancel.as_fd(), PollFlags::IN));
            }
            slots.extend([&stdout, &stderr].into_iter().filter_map(Sink::slot));
            slots.extend(feed.slot());
            let pause = if stopped.is_none() { Some(disk.pause()) } else { None };
            let timeout = left.into_iter().chain(pause).min().and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut slots, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(setup_error("wait for the command", errno.into())),
            }
            // Nothing here blocks, so each is simply tried; that is cheaper to read than to track who was ready.
            let stop = match stopped {
                Some(_) => None,
                None if cancel.is_cancelled() => Some(End::Cancelled),
                None => disk.exceeded(reports.process.as_ref()).then_some(End::OutOfDisk),
            };
            if stop.is_some() {
                stopped = stop;
                give_up = Instant::now().checked_add(GRACE);
                // The helper reads end of file and kills the tree.
                let _ = rustix::net::shutdown(&control, Shutdown::Write);
            }
            feed.pump();
            stdout.pump();
            stderr.pump();
            reports.read(&control);
            if let (Some(doors), Some(server)) = (reports.doors.take(), &spec.proxy) {
                server.take(doors);
            }
        }
        // Every writer is dead, so what is in the pipes now is all there will be.
        match reports.last {
            Some(Report::Ended(end, usage)) => {
                let end = stopped.filter(|_| end == End::Cancelled).unwrap_or(end);
                Ok(Ran { end, usage, stdout: stdout.finish(), stderr: stderr.finish() })
            }
            Some(Report::Failed(failure)) => Err(failure.into()),
            Some(Report::Probed(_)) | None => {
                let said = stderr.finish();
                Err(Error::Helper { reason: format!("ended without a report: {}", said.text().trim()), source: None })
            }
        }
    }
}

/// What the helper has reported so far.
#[derive(Default)]
struct Reports {
    /// The last packet that could be read.
    last: Option<Report>,
    /// Whether the helper has closed its end, which it does by exiting.
    ended: bool,
    /// The helper's process, so that it can be killed; it says so first of all.
    process: Option<OwnedFd>,
    /// The doors of the command's network, when they have come and nobody has taken them.
    doors: Option<Doors>,
}

impl Reports {
    /// Ends a helper that does not end: itself if it ever began, or else whoever should have given the task to one.
    fn kill(&self, helper: &Helper) {
        match &self.process {
            Some(process) => drop(rustix::process::pidfd_send_signal(process, Signal::KILL)),
            None => helper.dismiss(),
        }
    }

    /// Takes what is there.
    fn read(&mut self, control: &OwnedFd) {
        let mut packet = [0; REPORT_MAX];
        loop {
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DOORS_MAX))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [io::IoSliceMut::new(&mut packet)];
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            match rustix::net::recvmsg(control, &mut parts, &mut ancillary, flags).map(|message| message.bytes) {
                Ok(0) => self.ended = true,
                Ok(length) => {
                    for message in ancillary.drain() {
                        if let RecvAncillaryMessage::ScmRights(mut fds) = message {
                            match &packet[..length] {
                                STARTED => self.process = fds.next(),
                                _ => self.doors = doors(&mut fds),
                            }
                        }
                    }
                    if let Ok(report) = serde_json::from_slice(&packet[..length]) {
                        self.last = Some(report);
                    }
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Err(_) => self.ended = true,
            }
            return;
        }
    }
}

/// The doors, in the order in which they are sent.
fn doors(fds: &mut dyn Iterator<Item = OwnedFd>) -> Option<Doors> {
    let (proxy, by_packet, by_connection) = (fds.next()?.into(), fds.next()?.into(), fds.next()?.into());
    Some(Doors { proxy, names: (by_packet, by_connection), through: fds.map(Into::into).collect() })
}

fn path_error(path: &Path, source: io::Error) -> Error {
    Error::Path { path: path.to_owned(), source }
}

fn setup_error(step: &str, source: io::Error) -> Error {
    Error::Setup { step: step.into(), source }
}
