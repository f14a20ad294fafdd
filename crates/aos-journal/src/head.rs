//! The head file: how far the journal was, kept beside it, so that a journal that is gone, cut or exchanged is noticed.
//!
//! One line, `aos-journal-head 2 LSN HASH PID CHECK\n`, always of the same length and overwritten in place after every
//! commit. It names the highest pid of any entry, so that a pid is not given again where the entries that gave it are lost;
//! heads of before, `aos-journal-head 1 LSN HASH CHECK\n`, are read too. It is not synced then: a killed daemon loses nothing of it, and after a power failure it may be behind the
//! journal but never ahead of it. A line that was torn fails its check and counts as unreadable, which is a remark and
//! no error, because the journal itself is whole.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use aos_abi::{Lsn, Pid};
use sha2::{Digest, Sha256};

use crate::Error;
use crate::chain::{Hash, hex, unhex};

/// What the head file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The last entry that was durable.
    pub(crate) lsn: Lsn,
    /// Its hash.
    pub(crate) hash: Hash,
    /// The highest pid that the home has had an entry of, one that is lost included.
    pub(crate) pid: Pid,
}

/// What was found where the head file belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No file: a new home, or a journal that was brought without it.
    Nothing,
    /// A file that does not read as a head.
    Unreadable,
    /// A head.
    Head(Head),
}

impl Found {
    /// The highest pid that it names, where it does.
    pub(crate) fn pid(self) -> Pid {
        match self {
            Found::Head(head) => head.pid,
            Found::Nothing | Found::Unreadable => Pid::SYSTEM,
        }
    }
}

impl Head {
    fn line(self) -> String {
        let text = format!("aos-journal-head 2 {:020} {} {:020}", self.lsn.0, hex(&self.hash), self.pid.0);
        let check = check(&text);
        format!("{text} {check}\n")
    }

    fn parse(line: &str) -> Option<Head> {
        let (text, found) = line.strip_suffix('\n')?.rsplit_once(' ')?;
        (check(text) == found).then_some(())?;
        let (lsn, hash, pid) = match *text.split(' ').collect::<Vec<_>>() {
            ["aos-journal-head", "1", lsn, hash] => (lsn, hash, Pid::SYSTEM),
            ["aos-journal-head", "2", lsn, hash, pid] => (lsn, hash, Pid(pid.parse().ok()?)),
            _ => return None,
        };
        Some(Head { lsn: Lsn(lsn.parse().ok()?), hash: unhex(hash)?, pid })
    }

    /// Reads the file at `path`.
    pub(crate) fn read(path: &Path) -> Result<Found, Error> {
        match std::fs::read(path) {
            Ok(bytes) => {
                Ok(std::str::from_utf8(&bytes).ok().and_then(Head::parse).map_or(Found::Unreadable, Found::Head))
            }
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
            Err(source) => Err(Error::io("read", path, source)),
        }
    }
}

fn check(text: &str) -> String {
    let hash: Hash = Sha256::digest(text).into();
    hex(&hash).split_off(48)
}

/// The open head file.
#[derive(Debug)]
pub(crate) struct HeadFile(File);

impl HeadFile {
    /// Opens the file and writes `head` durably, unless it was found to hold that already: a sync is the dearest part
    /// of a start.
    pub(crate) fn open(path: &Path, head: Head, found: Found) -> Result<HeadFile, Error> {
        let fail = |source| Error::io("write", path, source);
        let file = crate::private::options().open(path).map_err(fail)?;
        if found == Found::Head(head) {
            return Ok(HeadFile(file));
        }
        let line = head.line();
        file.write_all_at(line.as_bytes(), 0).map_err(fail)?;
        file.set_len(line.len() as u64).map_err(fail)?;
        file.sync_all().map_err(fail)?;
        Ok(HeadFile(file))
    }

    /// Overwrites it; about two microseconds.
    pub(crate) fn write(&self, head: Head) -> io::Result<()> {
        self.0.write_all_at(head.line().as_bytes(), 0)
    }

    /// Makes what was written durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_and_notices_any_changed_byte() {
        let head = Head { lsn: Lsn(41), hash: [7; 32], pid: Pid(12) };
        let line = head.line();
        assert_eq!(Head::parse(&line), Some(head));
        for at in 0..line.len() {
            let mut bytes = line.clone().into_bytes();
            bytes[at] ^= 1;
            assert_eq!(std::str::from_utf8(&bytes).ok().and_then(Head::parse), None, "byte {at}");
        }
    }

    #[test]
    fn a_head_of_before_is_read_and_written_anew() {
        let text = format!("aos-journal-head 1 {:020} {}", 41, hex(&[7; 32]));
        let head = Head::parse(&format!("{text} {}\n", check(&text)));
        assert_eq!(head, Some(Head { lsn: Lsn(41), hash: [7; 32], pid: Pid::SYSTEM }));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.head");
        std::fs::write(&path, format!("{text} {}\n", check(&text))).unwrap();
        let later = Head { pid: Pid(9), ..head.unwrap() };
        HeadFile::open(&path, later, Found::Head(head.unwrap())).unwrap();
        assert_eq!(Head::read(&path).unwrap(), Found::Head(later));
    }
}
