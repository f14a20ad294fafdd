//! Running a command inside: the helper's part, and the first process of the sandbox.
//!
//! Start at [`isolated`]. Always true: the first process is process 1 of a process namespace, so when it dies, for
//! whatever reason, the kernel kills everything inside before anybody learns of it. It dies when the helper does.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{DumpableBehavior, Signal, WaitOptions};

use crate::error::Feature;
use crate::exec::{Launch, failure_of};
use crate::identity::{INSIDE, Identity, clone};
use crate::job::{Failure, FailureKind, Job, Step, Walls};
use crate::outcome::End;
use crate::root::{Sources, rules};
use crate::spec::Network;
use crate::supervise::{Watch, Woke, end_of};
use crate::{PROXY_ADDRESS, WORKSPACE};
use crate::{privileges, seccomp, tree};

/// How often the tree's memory is looked at.
const INSPECTION: Duration = Duration::from_millis(100);

/// Runs the job within walls and returns when all inside is dead.
pub(crate) fn isolated(
    job: &Job,
    walls: &Walls,
    stdin: OwnedFd,
    watch: &Watch,
    control: BorrowedFd<'_>,
) -> Result<End, Failure> {
    let deadline = Instant::now().checked_add(job.limits.wall);
    let identity = Identity::choose();
    let sources = match identity {
        Identity::Own { .. } => None,
        Identity::Translated => {
            // Root's further groups must not come along; an ordinary user cannot leave its own.
            rustix::thread::set_thread_groups(&[]).step("leave root's groups")?;
            Some(Sources::open_translated(job, walls)?)
        }
    };
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("open a pipe");
    let (lifeline, ours) = pipe()?;
    let (verdict, verdict_theirs) = pipe()?;
    let Some(first) = clone(namespaces(walls.network)).map_err(not_cloned)? else {
        drop((ours, verdict));
        let end: Verdict = first_process(job, walls, sources, stdin, lifeline, control);
        let packet = serde_json::to_vec(&end).unwrap_or_default();
        let _ = rustix::io::write(&verdict_theirs, &packet);
        // SAFETY: ends the process without running anything of its parent's.
        unsafe { libc::_exit(0) }
    };
    drop((lifeline, verdict_theirs, stdin, sources));
    let woke = identity.map(first).and_then(|()| {
        // One byte says that the maps are written; from then on the open pipe says that the helper lives.
        rustix::io::write(&ours, b".").step("start the first process")?;
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("close the helper's memory")?;
        watch.wait(first, control, deadline, None).step("wait for the sandbox")
    });
    // Once it is reaped its number may be another's.
    if !matches!(woke, Ok(Woke::Ended(_))) {
        let _ = rustix::process::kill_process(first, Signal::KILL);
        // Returns when every process inside is dead (pid_namespaces(7)).
        let _ = rustix::process::waitpid(Some(first), WaitOptions::empty());
    }
    let mut text = Vec::new();
    let _ = io::Read::read_to_end(&mut std::fs::File::from(verdict), &mut text);
    let woke = woke?;
    if let Ok(verdict) = serde_json::from_slice::<Verdict>(&text) {
        return verdict;
    }
    Ok(match woke {
        Woke::Deadline => End::TimedOut,
        Woke::Stopped | Woke::Inspected => End::Cancelled,
        // Only the kernel kills the first process from outside, and only for memory.
        Woke::Ended(_) => End::OutOfMemory,
    })
}

/// What the first process tells the helper.
type Verdict = Result<End, Failure>;

/// Tells a host that has too much to do from one that has no namespaces.
fn not_cloned(error: io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOMEM) => Failure::step("start one more process", error),
        _ => Failure::new(FailureKind::Missing(Feature::UserNamespaces), error),
    }
}

/// The namespaces of a sandbox.
pub(crate) fn namespaces(network: Network) -> libc::c_int {
    let network = match network {
        Network::None | Network::Proxy => libc::CLONE_NEWNET,
        Network::Host => 0,
    };
    libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP
        | network
}

/// The life of process 1: builds the root, starts the command, reaps, and says how it ended.
fn first_process(
    job: &Job,
    walls: &Walls,
    sources: Option<Sources>,
    stdin: OwnedFd,
    lifeline: OwnedFd,
    control: BorrowedFd<'_>,
) -> Result<End, Failure> {
    let ready = rustix::io::retry_on_intr(|| rustix::io::read(&lifeline, &mut [0u8; 1]));
    if ready.step("wait for the helper")? == 0 {
        // The helper failed and says so itself.
        return Ok(End::Cancelled);
    }
    // The helper's watch is the helper's; SIGCHLD of this process needs one of its own.
    let watch = Watch::new().step("watch for children")?;
    become_inside()?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("tie the sandbox to its helper")?;
    let sources = match sources {
        Some(sources) => sources,
        None => Sources::open(job, walls)?,
    };
    sources.build(job, walls)?;
    rustix::system::sethostname(b"sandbox").step("name the sandbox")?;
    if walls.network != Network::Host {
        raise_loopback().step("raise the loopback")?;
    }
    if walls.network == Network::Proxy {
        offer_listener(control).step("offer the proxy's listener")?;
    }
    let filter = seccomp::filter()?;
    let workdir = WORKSPACE.into();
    // This process is counted too.
    let launch = Launch { job, stdin, workdir: &workdir, pids: job.limits.pids.saturating_add(1) };
    let (command, failure) = launch.fork(|| {
        rules(walls)?.restrict_self()?;
        privileges::drop_all()?;
        seccomp::apply(&filter)
    })?;
    privileges::drop_all()?;
    if let Some(failure) = failure_of(failure) {
        return Err(failure);
    }
    let mut over = || exceeds(job.limits.memory);
    let woke = watch.wait(command, lifeline.as_fd(), None, Some((INSPECTION, &mut over)));
    Ok(match woke.step("wait for the command")? {
        Woke::Ended(status) => end_of(status),
        Woke::Inspected => End::OutOfMemory,
        Woke::Stopped | Woke::Deadline => End::Cancelled,
    })
}

/// Becomes the user that the maps speak of, keeping the capabilities in this namespace that building takes.
pub(crate) fn become_inside() -> Result<(), Failure> {
    let (uid, gid) = (rustix::process::Uid::from_raw(INSIDE), rustix::process::Gid::from_raw(INSIDE));
    rustix::thread::set_keep_capabilities(true).step("keep capabilities")?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).step("become the sandbox's group")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).step("become the sandbox's user")?;
    privileges::raise()?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("close the first process's memory")
}

/// Whether all inside but this process hold more resident memory than `limit` bytes.
///
/// The plain sum counts shared pages once per process, so it only says when the true one is worth its price.
fn exceeds(limit: u64) -> bool {
    let page = rustix::param::page_size() as u64;
    let inside = || tree::processes().map(|(process, _)| process).filter(|process| process.pid != 1);
    let sum: u64 = inside().map(|process| process.resident * page).sum();
    // A process that hides its share, or ends meanwhile, is counted with what the plain sum saw.
    let share = |process: tree::Process| tree::proportional(process.pid).unwrap_or(process.resident * page);
    sum > limit && inside().map(share).sum::<u64>() > limit
}

/// Listens in this network and gives the listener to the daemon, which thereby has a door that opens into the sandbox.
fn offer_listener(control: BorrowedFd<'_>) -> io::Result<()> {
    let listener = std::net::TcpListener::bind(PROXY_ADDRESS)?;
    let fds = [listener.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(control, &[io::IoSlice::new(b"listener")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Sets the loopback interface up, as `ip link set lo up` does (`netdevice(7)`).
fn raise_loopback() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: an all-zero ifreq is valid; the name stays NUL-terminated because only two bytes of it are written; both
    // requests read and write one ifreq.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) != 0 {
            return Err(io::Error::last_os_error());
        }
        request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
