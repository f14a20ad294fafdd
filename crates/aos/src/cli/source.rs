//! Files and pipes that a person names, to be read whole.
//!
//! Start at [`open`] and [`nothing_comes`]. What always holds: nobody waits for a pipe into which nothing writes. How much is
//! read is for whoever reads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Opens it for reading, a pipe also where nobody has it open for writing.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let file = File::from(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?);
    // A writer that is there may be slower than its reader.
    rustix::fs::fcntl_setfl(&file, rustix::fs::fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Why what was read is not what was meant: no byte came of a pipe.
pub(super) fn nothing_comes(file: &File, bytes: &[u8]) -> Option<&'static str> {
    let is_pipe = || file.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
    (bytes.is_empty() && is_pipe()).then_some("nothing comes of this pipe")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::run::file_args;

    #[test]
    fn a_file_that_is_sent_along_is_no_pipe_without_a_writer() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        let told = file_args(std::slice::from_ref(&pipe)).unwrap_err();
        assert!(told.why.iter().any(|why| why == "nothing comes of this pipe"), "{told:?}");
        let empty = dir.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        assert_eq!(file_args(&[empty]).unwrap().len(), 1, "a file may be empty");
    }
}
