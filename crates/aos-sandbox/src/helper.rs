//! The helpers: fresh, single-threaded processes between the daemon and the commands. Each builds the walls of one
//! command, keeps its deadline and buries its tree.
//!
//! Start at [`helper_main`], the nurse: a program with an empty environment that forks helpers, keeps some ready, and
//! does nothing else. A helper prepares what every command needs, takes one run from the socket that all of them share,
//! and ends with it. Always true: the nurse reads no task, so no helper begins with anything of a command's; a helper
//! holds nothing of the daemon's but the control socket and the command's streams; when the control socket closes, the
//! tree dies; when the nurse dies, helpers without a run die too, and those with one finish it.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use seccompiler::BpfProgram;

use crate::exec::{IGNORED, Launch, default_signals, failure_of};
use crate::identity::{Translator, clone};
use crate::job::{Failure, Job, Report, STARTED, Step, Task};
use crate::network::DOORS_MAX;
use crate::nursery::FDS;
use crate::outcome::{End, Usage};
use crate::spec::Network;
use crate::supervise::{Watch, Woke, end_of};
use crate::walls::{Prepared, Streams};
use crate::{probe, seccomp, tree};

/// How many helpers may be getting ready at once while runs wait. One is kept when none do.
const SPARES_MAX: usize = 4;

/// How long after a run was taken the nurse makes the next helper, unless that run is over or another waits for it: the
/// kernel makes and takes away namespaces one after the other, and a grace period of its own lasts until the making is
/// over, so a sandbox that is made while a command starts doubles what that start takes.
const REST: Duration = Duration::from_millis(5);

/// How long the nurse waits when the host has no room for another process.
const FULL: Duration = Duration::from_millis(50);

/// What a helper says to its nurse when it has taken a run: its process, and the workspace's user and group.
type Taken = [u8; 12];

/// Stands for a workspace's owner where there is none to translate.
const NO_OWNER: (u32, u32) = (u32::MAX, u32::MAX);

/// The nurse's whole life. A program that embeds this crate calls it first thing in `main` when its first argument is
/// [`HELPER_SUBCOMMAND`](crate::HELPER_SUBCOMMAND).
///
/// Standard input has to be the socket that [`run`](crate::run) made; anything else ends with exit code 2.
pub fn helper_main() -> ! {
    match take_requests().and_then(nurse) {
        Ok(None) => std::process::exit(0),
        Ok(Some(newborn)) => newborn.live(),
        Err(failure) => {
            eprintln!("the sandbox helper is started by the sandbox, not by hand: {failure:?}");
            std::process::exit(2)
        }
    }
}

/// Moves the socket from standard input to a descriptor that no program inherits.
fn take_requests() -> Result<OwnedFd, Failure> {
    let requests = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).step("keep the socket")?;
    rustix::net::sockopt::socket_type(&requests).step("use the socket")?;
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty());
    rustix::stdio::dup2_stdin(null.step("open /dev/null")?).step("let go of the socket")?;
    Ok(requests)
}

/// Keeps a helper ready, and more of them while runs are waiting, until the daemon is gone. Returns in the helpers too.
fn nurse(requests: OwnedFd) -> Result<Option<Newborn>, Failure> {
    // A session of its own: signals meant for the daemon's terminal must not end the watchmen.
    let _ = rustix::process::setsid();
    default_signals();
    ignore_requests_to_end();
    let watch = Watch::new().step("watch for children")?;
    let (taken, taken_theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("open a pipe")?;
    let filter = seccomp::filter();
    let nurse = rustix::process::getpid();
    let at_once = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(SPARES_MAX));
    let mut translator = Translator::default();
    let mut spares: BTreeSet<i32> = BTreeSet::new();
    let mut waiting = false;
    let mut rested = Instant::now();
    loop {
        let rest = rested.saturating_duration_since(Instant::now());
        if (spares.is_empty() && rest.is_zero()) || (waiting && spares.len() < at_once) {
            match clone(0) {
                Ok(Some(spare)) => drop(spares.insert(spare.as_raw_nonzero().get())),
                Ok(None) => return Ok(Some(Newborn { requests, taken: taken_theirs, nurse, filter, translator })),
                // Runs go on waiting, until their own deadline.
                Err(_) => std::thread::sleep(FULL),
            }
        }
        // A run that comes while a helper is ready is that helper's.
        let look = spares.is_empty() || (waiting && spares.len() < at_once);
        let more = if look { PollFlags::IN } else { PollFlags::empty() };
        let mut slots = [
            PollFd::new(&requests, more | PollFlags::RDHUP),
            PollFd::new(&taken, PollFlags::IN),
            PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN),
        ];
        let until = if spares.is_empty() { Timespec::try_from(rest).ok() } else { None };
        match poll(&mut slots, until.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Failure::step("wait for helpers", errno)),
        }
        let [asked, took, ended] = slots.map(|slot| slot.revents());
        if asked.intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR) {
            return Ok(None);
        }
        waiting = asked.contains(PollFlags::IN);
        let mut record: Taken = [0; 12];
        // Shorter than PIPE_BUF, so it is whole (pipe(7)).
        if took.contains(PollFlags::IN) && rustix::io::read(&taken, &mut record) == Ok(record.len()) {
            let [pid, uid, gid] = unpack(record);
            spares.remove(&pid.cast_signed());
            rested = Instant::now() + REST;
            // The next command of the same owner finds it made.
            if (uid, gid) != NO_OWNER && translator.has_room() {
                let _ = translator.namespace((uid, gid));
            }
        }
        if ended.contains(PollFlags::IN) {
            watch.drain();
            while let Ok(Some((pid, _))) = rustix::process::wait(WaitOptions::NOHANG) {
                spares.remove(&pid.as_raw_nonzero().get());
                // A run is over: nothing is in the way any more.
                rested = Instant::now();
            }
        }
    }
}

/// Ignores what service managers and terminals send to every process they find: a helper that ended before its tree
/// would leave the tree behind. The daemon gets the same signal and closes its sockets. Commands do not inherit this.
fn ignore_requests_to_end() {
    for signal in IGNORED {
        // SAFETY: installs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

fn pack(numbers: [u32; 3]) -> Taken {
    let mut record = [0; 12];
    record.chunks_mut(4).zip(numbers).for_each(|(to, number)| to.copy_from_slice(&number.to_ne_bytes()));
    record
}

fn unpack(record: Taken) -> [u32; 3] {
    [0, 4, 8].map(|at| u32::from_ne_bytes(std::array::from_fn(|byte| record[at + byte])))
}

/// A helper that the nurse has just forked, with what it has of hers.
struct Newborn {
    requests: OwnedFd,
    taken: OwnedFd,
    nurse: Pid,
    filter: Result<BpfProgram, Failure>,
    translator: Translator,
}

impl Newborn {
    /// A helper's whole life: it gets ready, takes one run, does it, and ends.
    fn live(self) -> ! {
        // Without a nurse nobody would notice that a helper who never gets ready is all there is.
        let tied = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        if tied.is_err() || rustix::process::getppid() != Some(self.nurse) {
            std::process::exit(0);
        }
        let walls = Prepared::new(&self.filter, Network::None);
        let Some([control, task, stdin, stdout, stderr]) = receive(&self.requests) else { std::process::exit(0) };
        let _ = rustix::process::set_parent_process_death_signal(None);
        let streams = Streams { task, stdin, stdout, stderr };
        let report = self.serve(control.as_fd(), streams, walls).unwrap_or_else(Report::Failed);
        // If nobody listens any more there is nobody to tell.
        let packet = serde_json::to_vec(&report).unwrap_or_default();
        let _ = rustix::net::send(&control, &packet, SendFlags::NOSIGNAL);
        // Whoever listens may have been woken on this processor, and need not wait until all of this is taken apart.
        rustix::thread::sched_yield();
        std::process::exit(0)
    }

    /// Does the task; a command's tree is dead when this returns.
    fn serve(
        self,
        control: BorrowedFd<'_>,
        streams: Streams,
        walls: Result<Prepared, Failure>,
    ) -> Result<Report, Failure> {
        let Newborn { requests, taken, filter, mut translator, .. } = self;
        drop(requests);
        let task = announce(control).and_then(|()| streams.task());
        let owner = match &task {
            Ok(Task::Run(job)) if job.walls.is_some() => std::fs::metadata(&job.workspace).ok(),
            Ok(_) | Err(_) => None,
        };
        let (uid, gid) = owner.map_or(NO_OWNER, |meta| (meta.uid(), meta.gid()));
        let me = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
        let _ = rustix::io::write(&taken, &pack([me, uid, gid]));
        drop(taken);
        let job = match task? {
            Task::Probe(state) => {
                let _ = walls.map(|walls| walls.end(false));
                return Ok(Report::Probed(probe::try_all(state.as_ref())));
            }
            Task::Run(job) => job,
        };
        streams.connect()?;
        let watch = Watch::new().step("watch for children")?;
        let started = Instant::now();
        let end = match &job.walls {
            None => {
                let _ = walls.map(|walls| walls.end(false));
                unsandboxed(&job, &streams.stdin, &watch, control)
            }
            Some(of) => walls
                .and_then(|walls| walls.fit(&filter, of.network))
                .and_then(|walls| walls.run(&job, of, &streams, &mut translator, &watch, control)),
        };
        if let Some(home) = &job.home {
            let _ = std::fs::remove_dir_all(home);
        }
        let (cpu, memory_max) = used();
        Ok(Report::Ended(end?, Usage { wall: started.elapsed(), cpu, memory_max }))
    }
}

/// Takes the next run and the descriptors that come with it; nothing when the daemon is gone.
fn receive(requests: &OwnedFd) -> Option<[OwnedFd; FDS]> {
    let mut packet = [0; 16];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [std::io::IoSliceMut::new(&mut packet)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::net::recvmsg(requests, &mut parts, &mut ancillary, flags)).ok()?;
    let mut fds = Vec::with_capacity(FDS);
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            fds.extend(more);
        }
    }
    fds.try_into().ok()
}

/// Tells the daemon which process serves its run.
fn announce(control: BorrowedFd<'_>) -> Result<(), Failure> {
    let process = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty());
    send_fds(control, STARTED, &[process.step("open the helper's process")?.as_fd()]).step("answer the daemon")
}

/// Sends descriptors under a name.
pub(crate) fn send_fds(control: BorrowedFd<'_>, name: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DOORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOBIG);
    }
    rustix::net::sendmsg(control, &[std::io::IoSlice::new(name)], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

/// Runs the job on the bare host, as a tree that dies as one.
fn unsandboxed(job: &Job, stdin: &OwnedFd, watch: &Watch, control: BorrowedFd<'_>) -> Result<End, Failure> {
    // Whoever loses its parent becomes our child, also after setsid and a second fork.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).step("adopt the command's orphans")?;
    // The kernel holds all of the user's threads against this limit, so what is there already is added. It does not
    // limit root, whose threads need not be counted.
    let owner = rustix::process::geteuid();
    let there = match owner.is_root() {
        true => 0,
        false => tree::threads_of(owner.as_raw()).step("count this user's threads")?,
    };
    let pids = job.limits.pids.saturating_add(there);
    let deadline = Instant::now().checked_add(job.limits.wall);
    let launch = Launch { job, stdin, workdir: &job.workspace, pids };
    let (child, failure) = launch.fork(|| Ok(()))?;
    let failure = failure_of(failure);
    let woke = watch.wait(child, control, deadline, None);
    tree::kill_descendants();
    if let Some(failure) = failure {
        return Err(failure);
    }
    Ok(match woke.step("wait for the command")? {
        Woke::Ended(status) => end_of(status),
        Woke::Deadline => End::TimedOut,
        Woke::Stopped | Woke::Inspected => End::Cancelled,
    })
}

/// Processor time of all children that were reaped, and the largest resident memory of one of them in bytes.
fn used() -> (Duration, u64) {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is zeroed, which is a valid rusage, and the kernel writes at most one.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    (time(usage.ru_utime) + time(usage.ru_stime), usage.ru_maxrss.unsigned_abs() * 1024)
}
