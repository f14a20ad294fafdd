//! The helper: a fresh, single-threaded program between the daemon and the command. It builds the walls, keeps the
//! deadline and buries the tree.
//!
//! Start at [`helper_main`]. Always true: it holds nothing of the daemon's but the control socket and the command's
//! streams; when the control socket closes, the tree dies.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};

use crate::exec::{Launch, above_stdio, failure_of};
use crate::job::{Failure, Job, Report, Step, Task};
use crate::outcome::{End, Usage};
use crate::supervise::{Watch, Woke, end_of};
use crate::{probe, tree, walls};

/// The helper's whole life. A program that embeds this crate calls it first thing in `main` when its first argument is
/// [`HELPER_SUBCOMMAND`](crate::HELPER_SUBCOMMAND).
///
/// Standard input has to be the control socket that [`run`](crate::run) made; anything else ends with exit code 2.
pub fn helper_main() -> ! {
    let control = match take_control() {
        Ok(control) => control,
        Err(failure) => {
            eprintln!("the sandbox helper is started by the sandbox, not by hand: {failure:?}");
            std::process::exit(2)
        }
    };
    let report = match serve(control.as_fd()) {
        Ok(report) => report,
        Err(failure) => Report::Failed(failure),
    };
    // If nobody listens any more there is nobody to tell.
    let packet = serde_json::to_vec(&report).unwrap_or_default();
    let _ = rustix::net::send(&control, &packet, SendFlags::NOSIGNAL);
    std::process::exit(0)
}

/// Moves the control socket from standard input to a descriptor that no program inherits.
fn take_control() -> Result<OwnedFd, Failure> {
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).step("keep the control socket")?;
    rustix::net::sockopt::socket_type(&control).step("use the control socket")?;
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty());
    rustix::stdio::dup2_stdin(null.step("open /dev/null")?).step("let go of the control socket")?;
    Ok(control)
}

/// Takes the task and does it; a command's tree is dead when this returns.
fn serve(control: BorrowedFd<'_>) -> Result<Report, Failure> {
    // A session of its own: signals meant for the daemon's terminal must not end the watchman.
    let _ = rustix::process::setsid();
    ignore_requests_to_end();
    let (task, stdin) = receive(control)?;
    let job = match task {
        Task::Probe(state) => return Ok(Report::Probed(probe::try_all(state.as_ref()))),
        Task::Run(job) => job,
    };
    let watch = Watch::new().step("watch for children")?;
    let started = Instant::now();
    let end = match &job.walls {
        None => unsandboxed(&job, stdin, &watch, control),
        Some(walls) => walls::isolated(&job, walls, stdin, &watch, control),
    };
    if let Some(home) = &job.home {
        let _ = std::fs::remove_dir_all(home);
    }
    let (cpu, memory_max) = used();
    Ok(Report::Ended(end?, Usage { wall: started.elapsed(), cpu, memory_max }))
}

/// Ignores what service managers and terminals send to every process they find: a helper that ended before its tree
/// would leave the tree behind. The daemon gets the same signal and closes the control socket. The command does not
/// inherit this.
fn ignore_requests_to_end() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: installs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Reads the task and the descriptor that comes with it.
fn receive(control: BorrowedFd<'_>) -> Result<(Task, OwnedFd), Failure> {
    let mut packet = [0; 16];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [std::io::IoSliceMut::new(&mut packet)];
    rustix::net::recvmsg(control, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).step("receive the task")?;
    let mut fds = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
        _ => Vec::new(),
    });
    let (Some(file), Some(stdin)) = (fds.next(), fds.next()) else {
        return Err(Failure::step("receive the task", rustix::io::Errno::PROTO));
    };
    let mut text = Vec::new();
    let mut file = std::fs::File::from(file);
    std::io::Seek::rewind(&mut file).step("read the task")?;
    file.read_to_end(&mut text).step("read the task")?;
    let task = serde_json::from_slice(&text).map_err(std::io::Error::from).step("understand the task")?;
    Ok((task, above_stdio(stdin).step("keep the command's input")?))
}

/// Runs the job on the bare host, as a tree that dies as one.
fn unsandboxed(job: &Job, stdin: OwnedFd, watch: &Watch, control: BorrowedFd<'_>) -> Result<End, Failure> {
    // Whoever loses its parent becomes our child, also after setsid and a second fork.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).step("adopt the command's orphans")?;
    // The kernel holds all of the user's threads against this limit, so what is there already is added. It does not
    // limit root, whose threads need not be counted.
    let owner = rustix::process::geteuid();
    let there = if owner.is_root() { 0 } else { tree::threads_of(owner.as_raw()) };
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
