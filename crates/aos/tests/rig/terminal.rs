//! A terminal with the program at it: what is typed there, and all that it showed.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{Running, until};

/// A terminal of 24 lines and 100 columns.
pub(crate) struct Terminal {
    keys: File,
    /// The side of the program.
    pub(crate) side: File,
    screen: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    pub(crate) fn new() -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let side = OpenOptions::new().read(true).write(true).open(name).unwrap();
        let size = rustix::termios::Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&side, size).unwrap();
        let keys = File::from(ours);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut reader, shown) = (keys.try_clone().unwrap(), Arc::clone(&screen));
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Terminal { keys, side, screen, reader }
    }

    /// Starts a command whose keyboard and errors are here. Its standard output goes where it goes already.
    #[track_caller]
    pub(crate) fn start(&self, mut command: Command) -> Running {
        command.stdin(self.side.try_clone().unwrap()).stderr(self.side.try_clone().unwrap());
        Running::new(command)
    }

    /// Types this.
    #[track_caller]
    pub(crate) fn keys(&self, text: &str) {
        (&self.keys).write_all(text.as_bytes()).unwrap();
    }

    /// All that was shown so far.
    pub(crate) fn shown(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    /// All that was shown, once the program has ended.
    #[track_caller]
    pub(crate) fn all(self) -> String {
        // A terminal whose last user is gone has an end.
        drop(self.side);
        self.reader.join().unwrap();
        self.screen.lock().unwrap().clone()
    }

    /// Waits until this was shown.
    #[track_caller]
    pub(crate) fn see(&self, text: &str) {
        until(&format!("`{text}` on {:?}", self.shown()), || self.shown().contains(text).then_some(()));
    }
}
