//! Running a command inside: the helper's part, and the first process of the sandbox.
//!
//! Start at [`Prepared::new`], which makes what every sandbox has before it is known which command it is for, and go on
//! with [`Prepared::run`]. Always true: the first process is process 1 of a process namespace, so when it dies, for
//! whatever reason, the kernel kills everything inside before anybody learns of it. It dies when the helper does. A
//! sandbox that was prepared serves one command.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};
use seccompiler::BpfProgram;

use crate::error::Feature;
use crate::exec::{Launch, failure_of};
use crate::identity::{INSIDE, Identity, Translator, clone};
use crate::job::{Failure, FailureKind, Job, Step, Task, Walls};
use crate::outcome::End;
use crate::root::{ON_MEMORY, Root, Seen, rules};
use crate::sources::Sources;
use crate::spec::Network;
use crate::supervise::{Watch, Woke, end_of};
use crate::{WORKSPACE, network, privileges, seccomp, tree};

/// How often the tree's memory is looked at.
const INSPECTION: Duration = Duration::from_millis(100);

/// The most descriptors that go in one message (`SCM_MAX_FD`, unix(7)).
const FDS_MAX: usize = 253;

/// What a run came with: its task, and the command's streams.
pub(crate) struct Streams {
    /// A sealed file with a [`Task`].
    pub(crate) task: OwnedFd,
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Streams {
    /// Reads the task. The file's own position is not moved, since others read it too.
    pub(crate) fn task(&self) -> Result<Task, Failure> {
        let size = rustix::fs::fstat(&self.task).step("read the task")?.st_size;
        let mut text = vec![0; usize::try_from(size).unwrap_or(0)];
        let mut filled = 0;
        while filled < text.len() {
            match rustix::io::pread(&self.task, &mut text[filled..], filled as u64).step("read the task")? {
                0 => break,
                length => filled += length,
            }
        }
        serde_json::from_slice(&text[..filled]).map_err(io::Error::from).step("understand the task")
    }

    /// Makes standard output and error of this process the command's.
    pub(crate) fn connect(&self) -> Result<(), Failure> {
        rustix::stdio::dup2_stdout(&self.stdout).step("connect standard output")?;
        rustix::stdio::dup2_stderr(&self.stderr).step("connect standard error")
    }
}

/// A sandbox in which nothing has run yet, and nothing is seen of any workspace.
pub(crate) struct Prepared {
    first: Pid,
    /// Carries the orders; as long as it is open the helper lives.
    orders: OwnedFd,
    /// Yields a [`Verdict`] when the first process has ended by itself.
    verdict: OwnedFd,
    identity: Identity,
    network: Network,
    seen: Seen,
    /// Holds the sandbox's mounts until all inside is dead.
    mounts: Option<OwnedFd>,
}

/// What the first process tells the helper.
type Verdict = Result<End, Failure>;

impl Prepared {
    /// Starts the first process and has it build what all sandboxes with such a network have in common.
    pub(crate) fn new(filter: &Result<BpfProgram, Failure>, network: Network) -> Result<Self, Failure> {
        let filter = filter.as_ref().map_err(Failure::clone)?;
        let identity = Identity::choose();
        if identity == Identity::Translated {
            // Root's further groups must not come along; an ordinary user cannot leave its own.
            rustix::thread::set_thread_groups(&[]).step("leave root's groups")?;
        }
        let seen = Seen::now();
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (orders, theirs) = pair.step("open a socket")?;
        let (verdict, verdict_theirs) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("open a pipe")?;
        let Some(first) = clone(namespaces(network)).map_err(not_cloned)? else {
            close_all_but([&theirs, &verdict_theirs]);
            let end: Verdict = first_process(filter, network, &theirs);
            let packet = serde_json::to_vec(&end).unwrap_or_default();
            let _ = rustix::io::write(&verdict_theirs, &packet);
            // SAFETY: ends the process without running anything of its parent's.
            unsafe { libc::_exit(0) }
        };
        // While it still is the helper's own process, which may be looked into.
        let mounts = rustix::fs::open(
            format!("/proc/{}/ns/mnt", first.as_raw_nonzero()),
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let mounts = mounts.step("hold the sandbox's mounts")?;
        let prepared = Prepared { first, orders, verdict, identity, network, seen, mounts: Some(mounts) };
        identity.map(first)?;
        // From here on the first process is who it is to be.
        rustix::net::send(&prepared.orders, b".", SendFlags::NOSIGNAL).step("start the first process")?;
        Ok(prepared)
    }

    /// This one, or one made now where it does not suit or the system has changed since.
    pub(crate) fn fit(self, filter: &Result<BpfProgram, Failure>, network: Network) -> Result<Self, Failure> {
        let own = |network| network != Network::Host;
        if own(self.network) == own(network) && self.seen == Seen::now() {
            return Ok(self);
        }
        self.end(false);
        Prepared::new(filter, network)
    }

    /// Runs the job and returns when all inside is dead.
    pub(crate) fn run(
        mut self,
        job: &Job,
        walls: &Walls,
        streams: &Streams,
        translator: &mut Translator,
        watch: &Watch,
        control: BorrowedFd<'_>,
    ) -> Result<End, Failure> {
        let deadline = Instant::now().checked_add(job.limits.wall);
        let sources = match self.identity {
            Identity::Own { .. } => None,
            Identity::Translated => Some(Sources::open_translated(job, walls, translator)?),
        };
        for stream in [&streams.stdin, &streams.stdout, &streams.stderr] {
            self.identity.give(stream)?;
        }
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("close the helper's memory")?;
        // Taking mounts away takes the kernel longer than a command's end, and nobody needs to wait for it: when all inside
        // is dead they are closed by the helper's own end. A layer's overlay is not kept: the layer is read after this.
        if walls.layer.is_none() {
            let _until_the_end = self.mounts.take().map(OwnedFd::into_raw_fd);
        }
        let ordered = self.order(streams, control, sources.as_ref());
        drop(sources);
        // Where the first process has failed already, it has said why.
        let woke = match ordered {
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {
                watch.wait(self.first, control, deadline, None).step("wait for the sandbox")
            }
            Err(errno) => Err(Failure::step("tell the first process what to run", errno)),
        };
        let text = self.end(matches!(woke, Ok(Woke::Ended(_))));
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

    /// Hands the first process all that the command is made of.
    fn order(&self, streams: &Streams, control: BorrowedFd<'_>, sources: Option<&Sources>) -> Result<(), Errno> {
        let Streams { task, stdin, stdout, stderr } = streams;
        let mut fds = vec![task.as_fd(), stdin.as_fd(), stdout.as_fd(), stderr.as_fd(), control];
        fds.extend(sources.into_iter().flat_map(Sources::fds));
        let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if fds.len() > FDS_MAX || !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(Errno::TOOBIG);
        }
        let parts = [io::IoSlice::new(b"run")];
        rustix::net::sendmsg(&self.orders, &parts, &mut ancillary, SendFlags::NOSIGNAL).map(drop)
    }

    /// Ends the first process unless it has been reaped, and returns what it said last.
    pub(crate) fn end(self, reaped: bool) -> Vec<u8> {
        let mut text = Vec::new();
        // The socket for orders stays open meanwhile: when it closes, the first process says that it was stopped.
        let Prepared { first, orders: _orders, verdict, .. } = self;
        // Once it is reaped its number may be another's.
        if !reaped {
            let _ = rustix::process::kill_process(first, Signal::KILL);
            // Returns when every process inside is dead (pid_namespaces(7)).
            let _ = rustix::process::waitpid(Some(first), WaitOptions::empty());
        }
        let _ = io::Read::read_to_end(&mut std::fs::File::from(verdict), &mut text);
        text
    }
}

/// Closes what the first process has of its parent's, but for the standard streams, which lead nowhere, and these two.
fn close_all_but(keep: [&OwnedFd; 2]) {
    let mut keep = keep.map(|fd| fd.as_raw_fd().cast_unsigned());
    keep.sort_unstable();
    let [low, high] = keep;
    for (from, to) in [(3, low - 1), (low + 1, high - 1), (high + 1, u32::MAX)] {
        if from <= to {
            // SAFETY: nothing in this process uses the others any more; it ends without dropping their owners.
            unsafe { libc::close_range(from, to, 0) };
        }
    }
}

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

/// The life of process 1: builds what it can, waits for its orders, finishes the root, starts the command, reaps, and
/// says how it ended.
fn first_process(filter: &BpfProgram, network: Network, orders: &OwnedFd) -> Result<End, Failure> {
    let ready = rustix::io::retry_on_intr(|| rustix::io::read(orders, &mut [0u8; 1]));
    if ready.step("wait for the helper")? == 0 {
        // The helper failed and says so itself.
        return Ok(End::Cancelled);
    }
    // The helper's watch is the helper's; SIGCHLD of this process needs one of its own.
    let watch = Watch::new().step("watch for children")?;
    become_inside()?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("tie the sandbox to its helper")?;
    let root = Root::begin()?;
    rustix::system::sethostname(b"sandbox").step("name the sandbox")?;
    if network != Network::Host {
        network::raise_loopback().step("raise the loopback")?;
    }
    privileges::bound()?;

    let Some((streams, control, trees)) = take_orders(orders).step("receive the orders")? else {
        return Ok(End::Cancelled);
    };
    let Task::Run(job) = streams.task()? else { return Err(Failure::step("understand the task", Errno::PROTO)) };
    let Some(walls) = &job.walls else { return Err(Failure::step("understand the task", Errno::PROTO)) };
    streams.connect()?;
    let sources = match trees.is_empty() {
        true => Sources::open(&job, walls)?,
        false => Sources::received(trees, walls)?,
    };
    let companions = root.finish(sources, &job, walls)?;
    if walls.network == Network::Proxy {
        network::offer_doors(control.as_fd(), walls)?;
    }
    let workdir = WORKSPACE.into();
    // This process is counted too.
    let pids = job.limits.pids.saturating_add(1);
    let launch = Launch { job: &job, stdin: &streams.stdin, workdir: &workdir, pids };
    let (command, failure) = launch.fork(|| {
        rules(walls, &companions)?.restrict_self()?;
        privileges::drop_all()?;
        seccomp::apply(filter)
    })?;
    privileges::drop_all()?;
    if let Some(failure) = failure_of(failure) {
        return Err(failure);
    }
    let mut over = || exceeds(job.limits.memory);
    let woke = watch.wait(command, orders.as_fd(), None, Some((INSPECTION, &mut over)));
    Ok(match woke.step("wait for the command")? {
        Woke::Ended(status) => end_of(status),
        Woke::Inspected => End::OutOfMemory,
        Woke::Stopped | Woke::Deadline => End::Cancelled,
    })
}

/// Waits for what to run, with the control socket and the trees that take more rights than are here; nothing when the
/// helper is gone.
fn take_orders(orders: &OwnedFd) -> Result<Option<(Streams, OwnedFd, Vec<OwnedFd>)>, Errno> {
    let mut packet = [0; 16];
    let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [io::IoSliceMut::new(&mut packet)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::net::recvmsg(orders, &mut parts, &mut ancillary, flags))?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            fds.extend(more);
        }
    }
    let mut fds = fds.into_iter();
    let (Some(task), Some(stdin), Some(stdout), Some(stderr), Some(control)) =
        (fds.next(), fds.next(), fds.next(), fds.next(), fds.next())
    else {
        return Ok(None);
    };
    Ok(Some((Streams { task, stdin, stdout, stderr }, control, fds.collect())))
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

/// Whether all inside but this process hold more memory than `limit` bytes: resident in processes, in their page tables,
/// in the swap, or in the folders that are on memory. An error where this process cannot look, which ends the run: nobody
/// may gain by blinding it.
///
/// The plain sum counts shared pages once per process, so it only says when the true one is worth its price. What a
/// process maps of a file on memory is counted twice.
fn exceeds(limit: u64) -> io::Result<bool> {
    let page = rustix::param::page_size() as u64;
    let mut folders = 0;
    for folder in ON_MEMORY {
        let of = rustix::fs::statfs(folder)?;
        folders += (of.f_blocks - of.f_bfree) * of.f_bsize.unsigned_abs();
    }
    let processes = tree::processes()?;
    let inside = || processes.iter().map(|(process, _)| process).filter(|process| process.pid != 1);
    let beside = |process: &tree::Process| tree::beside_pages(process.shown_by);
    if folders + inside().map(|process| process.resident * page + beside(process)).sum::<u64>() <= limit {
        return Ok(false);
    }
    // A process that hides its share, or ends meanwhile, is counted with what the plain sum saw.
    let share = |process: &tree::Process| tree::proportional(process.shown_by).unwrap_or(process.resident * page);
    let distinct = tree::distinct_memory(inside());
    Ok(folders + distinct.into_iter().map(|process| share(process) + beside(process)).sum::<u64>() > limit)
}
