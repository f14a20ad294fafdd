//! Starts the daemon where none runs, and waits until it answers.
//!
//! Start at [`start`]. What always holds: of several clients that start at once one starts the daemon and the others
//! wait for it; a socket left behind by a daemon that died is no obstacle; where it does not come up, its own last
//! error is shown; nothing is said to a daemon of another user.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

use super::Error;
use crate::home::Home;

/// By which that library (candle) is told on how many cores it computes.
const MODEL_THREADS: &str = "CANDLE_NUM_THREADS";
/// How long the daemon may take to come up.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked for meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A connection to the daemon; `None` where none listens: no socket, or one that a dead daemon left behind.
pub(super) async fn connect(home: &Home) -> Result<Option<UnixStream>, Error> {
    let socket = home.socket();
    match UnixStream::connect(&socket).await {
        Ok(stream) => match stream.peer_cred().and_then(|peer| ours(peer.uid(), rustix::process::geteuid().as_raw())) {
            Ok(()) => Ok(Some(stream)),
            Err(source) => Err(Error::Closed { socket, source }),
        },
        Err(error) if nobody_listens(error.kind()) => Ok(None),
        Err(source) => Err(Error::Closed { socket, source }),
    }
}

/// Whether an attempt to connect ended because no daemon is there. One that dies resets who waits to be accepted.
fn nobody_listens(error: io::ErrorKind) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};
    matches!(error, NotFound | ConnectionRefused | ConnectionReset)
}

/// Whether a daemon of that user may be believed.
fn ours(listener: u32, us: u32) -> io::Result<()> {
    if listener == us || listener == 0 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("who listens there is the user {listener}, not you")))
}

/// What the daemon that was just started found changed, a line each.
pub(super) fn drift(home: &Home) -> Vec<String> {
    fs::read_to_string(home.drift_file()).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Starts `program up --foreground` for this home in a session of its own, and connects to it; whether it was this one that
/// was started.
pub(super) async fn start(home: &Home, program: &Path) -> Result<(UnixStream, bool), Error> {
    let log = home.daemon_log();
    let failed = |reason: String| Error::NotStarted { reason, hint: None, log: log.clone() };
    let usable = home.check_private().and_then(|()| home.check_writable()).and_then(|()| home.prepare());
    usable.map_err(|error| Error::NotStarted {
        reason: error.to_string(),
        hint: Some(error.hint()),
        log: log.clone(),
    })?;
    let until = Instant::now() + READY_WITHIN;
    let lock = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(home.start_lock());
    let lock = lock.map_err(|error| failed(format!("cannot open its lock: {error}")))?;
    // Whoever holds the lock starts it; the others find it running when they get their turn.
    while rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        if let Some(stream) = connect(home).await? {
            return Ok((stream, false));
        }
        if Instant::now() >= until {
            return Err(failed("another client has been starting it for too long".into()));
        }
        sleep(LOOK_EVERY).await;
    }
    if let Some(stream) = connect(home).await? {
        return Ok((stream, false));
    }
    let (mut daemon, from) = launch(home, program).map_err(|error| failed(format!("cannot run it: {error}")))?;
    loop {
        if let Some(stream) = connect(home).await? {
            return Ok((stream, true));
        }
        let ended = daemon.try_wait().map_err(|error| failed(error.to_string()))?;
        if let Some(status) = ended {
            return Err(last_error(&log, from, &format!("it ended at once, {status}")));
        }
        if Instant::now() >= until {
            let waited = format!("it has not answered for {} s; it may still be starting", READY_WITHIN.as_secs());
            return Err(last_error(&log, from, &waited));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Runs the program; it, and how long the log was before.
fn launch(home: &Home, program: &Path) -> io::Result<(Child, u64)> {
    // What a shell has opened is not held for as long as the daemon runs: a lock would never be given back.
    aos_sandbox::close_others_on_exec()?;
    let log = crate::log::open(&home.daemon_log())?;
    let from = log.metadata()?.len();
    let mut command = Command::new(program);
    command.args(["up", "--foreground", "--detached"]);
    for (flag, value) in home.as_arguments() {
        command.arg(flag).arg(value);
    }
    // The library that computes for models waits for its threads by spinning: with one for every core, each task of
    // another program makes all of them wait.
    if std::env::var_os(MODEL_THREADS).is_none() {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        command.env(MODEL_THREADS, (cores - 1).max(1).to_string());
    }
    let child = command.current_dir("/").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
    Ok((child, from))
}

/// The last error that was written to the log after its first `from` bytes, or `otherwise` where there is none.
fn last_error(log: &Path, from: u64, otherwise: &str) -> Error {
    let text = read_from(log, from).unwrap_or_default();
    let (reason, hint) = error_in(&text).unwrap_or_else(|| (otherwise.to_owned(), None));
    Error::NotStarted { reason, hint, log: log.to_owned() }
}

fn read_from(log: &Path, from: u64) -> io::Result<String> {
    /// Enough for every error; a daemon that logs more than this while it starts is cut.
    const BYTES_MAX: u64 = 1 << 20;
    let mut file = fs::File::open(log)?;
    // A shorter one was begun anew meanwhile.
    let from = if file.metadata()?.len() < from { 0 } else { from };
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last block `error: …`, `  why: …`, `  try: …` of a text: what with why, and the way out.
fn error_in(text: &str) -> Option<(String, Option<String>)> {
    let block =
        &text[text.rfind("\nerror: ").map(|at| at + 1).or_else(|| text.starts_with("error: ").then_some(0))?..];
    let mut lines = block.lines();
    let mut reason = lines.next()?.strip_prefix("error: ")?.to_owned();
    let mut hint = None;
    for line in lines {
        if let Some(why) = line.strip_prefix("  why: ") {
            reason = format!("{reason}: {why}");
        } else if let Some(way) = line.strip_prefix("  try: ") {
            hint = Some(way.to_owned());
        }
    }
    Some((reason, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_dies_while_one_connects_is_no_daemon() {
        for none in [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused, io::ErrorKind::ConnectionReset] {
            assert!(nobody_listens(none), "{none}");
        }
        assert!(!nobody_listens(io::ErrorKind::PermissionDenied));
    }

    #[test]
    fn a_daemon_of_another_user_is_not_spoken_to() {
        assert!(ours(1000, 1000).is_ok() && ours(0, 1000).is_ok() && ours(0, 0).is_ok());
        assert!(ours(1001, 1000).unwrap_err().to_string().contains("the user 1001, not you"));
        assert!(ours(1000, 0).is_err(), "root does not do what a user's program tells it either");
    }

    #[test]
    fn a_log_that_was_begun_anew_is_read_from_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("daemon.log");
        fs::write(&log, "error: old\nerror: the port is taken\n").unwrap();
        assert_eq!(read_from(&log, 11).unwrap(), "error: the port is taken\n");
        assert_eq!(read_from(&log, 1 << 24).unwrap(), "error: old\nerror: the port is taken\n");
    }

    #[test]
    fn the_last_error_of_the_log_is_found() {
        let text = "starting\nerror: old\nmore\nerror: the journal is locked\n  why: pid 3 has it\n  try: aos down\n";
        assert_eq!(error_in(text), Some(("the journal is locked: pid 3 has it".into(), Some("aos down".into()))));
        assert_eq!(error_in("error: at once\n"), Some(("at once".into(), None)));
        assert_eq!(error_in("no error: here\n"), None);
    }
}
