//! The daemon's log: lines on standard error, with personal data covered by the name of its kind.
//!
//! Start at [`Covered`], which the subscriber writes to; [`open`] is the file that both outputs of a daemon in the
//! background are, and [`keep_short`] has it begun anew. What always holds: what `personal_data` of the policy names is
//! found in no line that is written once that policy holds; a line that cannot be looked at is not written; of the file
//! no more is kept than twice [`BYTES_MAX`] and a line.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use aos_personal::Detector;

/// What is looked for; nothing before there is a policy, when nothing of a process is known yet.
static DETECTOR: RwLock<Option<Arc<Detector>>> = RwLock::new(None);

/// Looks for this from the next line on.
pub(crate) fn look_for(detector: &Arc<Detector>) {
    *DETECTOR.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(detector));
}

/// The size from which on the file is begun anew, in bytes.
const BYTES_MAX: u64 = 16 << 20;

/// The file that both outputs are, and its size; none where it is somebody else's.
static FILE: Mutex<Option<(PathBuf, u64)>> = Mutex::new(None);

/// Opens the log to write on in it. One that is long enough already becomes `….1`, in the place of the one before.
///
/// # Errors
/// Where it cannot be opened.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path).is_ok_and(|log| log.len() >= BYTES_MAX) {
        std::fs::rename(path, path.with_extension("log.1"))?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Standard output and standard error are the log at `path`: from now on it is begun anew whenever it is long enough.
pub(crate) fn keep_short(path: PathBuf) {
    let size = std::fs::metadata(&path).map_or(0, |log| log.len());
    *FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some((path, size));
}

/// So many bytes were written. Where the log cannot be begun anew it goes on as it is.
fn wrote(bytes: usize) {
    let mut file = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((path, size)) = &mut *file else { return };
    *size += bytes as u64;
    if *size >= BYTES_MAX {
        let anew = open(path).and_then(|anew| {
            // Whichever still held the old file would keep it on the disk when that is replaced.
            rustix::stdio::dup2_stderr(&anew)?;
            rustix::stdio::dup2_stdout(&anew)?;
            Ok(anew.metadata()?.len())
        });
        *size = anew.unwrap_or(0);
    }
}

/// Standard error, covered. Whoever writes to it writes whole lines.
pub(crate) struct Covered;

impl Write for Covered {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let detector = DETECTOR.read().unwrap_or_else(PoisonError::into_inner).clone();
        match detector {
            Some(detector) => io::stderr().write_all(covered(&detector, line).as_bytes())?,
            None => io::stderr().write_all(line)?,
        }
        wrote(line.len());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn covered<'l>(detector: &Detector, line: &'l [u8]) -> Cow<'l, str> {
    let text = String::from_utf8_lossy(line);
    let Ok(found) = detector.find(&text) else {
        return "(a line that could not be looked at for personal data)\n".into();
    };
    if found.is_empty() {
        return text;
    }
    let mut shown = String::with_capacity(text.len());
    let mut done = 0;
    for piece in found {
        shown.push_str(&text[done..piece.start]);
        shown.push_str(&format!("[{}]", piece.class));
        done = piece.end;
    }
    shown.push_str(&text[done..]);
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_is_begun_anew_and_one_older_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daemon.log");
        open(&path).unwrap().write_all(b"short\n").unwrap();
        open(&path).unwrap().write_all(b"goes on\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "short\ngoes on\n");
        for _ in 0..2 {
            open(&path).unwrap().set_len(BYTES_MAX).unwrap();
            open(&path).unwrap().write_all(b"anew\n").unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "anew\n");
        assert_eq!(std::fs::metadata(folder.path().join("daemon.log.1")).unwrap().len(), BYTES_MAX);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_line_is_written_without_what_the_policy_names() {
        let detector = Detector::of(["email", "card"]);
        let shown = |line: &str| covered(&detector, line.as_bytes()).into_owned();
        let line = "2026-11-22T09:57:15.401573Z  WARN aos: refused: card 4111 1111 1111 1111 of jane@example.com\n";
        assert_eq!(shown(line), "2026-11-22T09:57:15.401573Z  WARN aos: refused: card [card] of [email]\n");
        let plain = "2026-11-22T09:57:15.401573Z  INFO aos::daemon: ready listen=127.0.0.1:42475 home=/tmp/h pid=7\n";
        assert_eq!(covered(&Detector::all(), plain.as_bytes()), plain);
        let mut failing = Detector::of(["email"]);
        failing.add("mark", "Q").unwrap();
        let line = format!("refused: {} jane@example.com\n", "Q".repeat(5000));
        assert_eq!(covered(&failing, line.as_bytes()), "(a line that could not be looked at for personal data)\n");
    }
}
