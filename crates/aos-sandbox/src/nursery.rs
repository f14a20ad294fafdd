//! The daemon's side of helpers: a nurse, who keeps helpers ready and gives each run a new one.
//!
//! Start at [`Nursery::hand_over`]. The nurse is started by the first run and ended when nobody holds the
//! [`Helper`](crate::Helper) any more, or when this process ends, because her socket closes then. Always true: a helper
//! serves one run and ends with it; which one takes a run is nobody's choice, since whoever is ready reads the next
//! packet. Nothing is said to a nurse herself.

use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
};

use crate::error::Error;

/// How many descriptors go with a run: control, task, and the command's three streams.
pub(crate) const FDS: usize = 5;

/// How long a run waits for room in a nurse's socket, which holds some hundred runs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a nurse is, once there is one.
#[derive(Debug, Default)]
pub(crate) struct Nursery(Mutex<Option<Nurse>>);

/// A started nurse.
#[derive(Debug)]
struct Nurse {
    child: Child,
    socket: Arc<OwnedFd>,
}

impl Nursery {
    /// Gives a run to the next helper that is ready, of the nurse who is this program.
    pub(crate) fn hand_over(&self, program: &Path, args: &[OsString], fds: [BorrowedFd<'_>; FDS]) -> Result<(), Error> {
        // A nurse who has died in the meantime is replaced once.
        let sent = match send(&*self.socket(program, args)?, &fds) {
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                self.dismiss();
                send(&*self.socket(program, args)?, &fds)
            }
            sent => sent,
        };
        sent.map_err(|errno| Error::Helper { reason: "did not take its task".into(), source: Some(errno.into()) })
    }

    /// Ends the nurse, with whoever she keeps ready; the next run starts another.
    pub(crate) fn dismiss(&self) {
        self.nurse().take();
    }

    fn nurse(&self) -> MutexGuard<'_, Option<Nurse>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The nurse's socket; she is started if there is none.
    fn socket(&self, program: &Path, args: &[OsString]) -> Result<Arc<OwnedFd>, Error> {
        let mut nurse = self.nurse();
        if let Some(nurse) = &*nurse {
            return Ok(Arc::clone(&nurse.socket));
        }
        let started = Nurse::start(program, args).map_err(|source| Error::Helper {
            reason: format!("{} cannot be started", program.display()),
            source: Some(source),
        })?;
        Ok(Arc::clone(&nurse.insert(started).socket))
    }
}

impl Nurse {
    fn start(program: &Path, args: &[OsString]) -> io::Result<Self> {
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
        // The socket takes the place of standard input, so that no descriptor has to be inherited by number.
        let child = Command::new(program)
            .args(args)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Nurse { child, socket: Arc::new(socket) })
    }
}

impl Drop for Nurse {
    fn drop(&mut self) {
        // The helpers that have a run finish it; those that have none die with her.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send(socket: &OwnedFd, fds: &[BorrowedFd<'_>; FDS]) -> Result<(), Errno> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(fds));
    sendmsg(socket, &[io::IoSlice::new(b"run")], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}
