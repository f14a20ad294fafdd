//! Drafts: a file written beside its place under a name of its own, then put there in one step.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::error::Error;

/// How a draft's name starts. Listings, searches and watches leave such names out.
const PREFIX: &str = ".aos-draft-";
/// Names tried before giving up; a taken name out of 2^64 means something else is wrong.
const NAMES_MAX: usize = 8;

/// A file that is not yet at its place; removed again if it never gets there.
#[derive(Debug)]
pub(crate) struct Draft<'f> {
    folder: &'f OwnedFd,
    name: String,
    placed: bool,
}

impl<'f> Draft<'f> {
    /// Whether a name is a draft's: one that a crash left behind, or one being written. Since it is not shown, neither
    /// calls nor commands make anything of such a name.
    pub(crate) fn is_name(name: &str) -> bool {
        name.starts_with(PREFIX)
    }

    /// Whether a path holds such a name.
    pub(crate) fn is_in(path: &str) -> bool {
        path.split('/').any(Draft::is_name)
    }

    /// Writes `content` into `folder`, durably, with the owner and permission bits of `like`, or the usual ones for a new file.
    pub(crate) fn write(
        folder: &'f OwnedFd,
        content: &[u8],
        like: Option<&Stat>,
        path: &str,
    ) -> Result<Draft<'f>, Error> {
        // Set-id bits are not for us to give to new content; the kernel drops them at a write too.
        let bits = like.map_or(0o666, |stat| stat.st_mode & 0o777);
        let (name, file) = Self::open(folder, Mode::from_raw_mode(bits)).map_err(Error::system(path))?;
        let draft = Draft { folder, name, placed: false };
        let mut file = File::from(file);
        if let Some(stat) = like {
            let made = rustix::fs::fstat(&file).map_err(Error::system(path))?;
            if (made.st_uid, made.st_gid) != (stat.st_uid, stat.st_gid) {
                // Only root may give a file away; anybody else keeps it, as with every editor.
                let (uid, gid) = (rustix::fs::Uid::from_raw(stat.st_uid), rustix::fs::Gid::from_raw(stat.st_gid));
                let _ = rustix::fs::fchown(&file, Some(uid), Some(gid));
            }
            rustix::fs::fchmod(&file, Mode::from_raw_mode(bits)).map_err(Error::system(path))?;
        }
        file.write_all(content).map_err(Error::io(path))?;
        file.sync_all().map_err(Error::io(path))?;
        Ok(draft)
    }

    fn open(folder: &OwnedFd, mode: Mode) -> Result<(String, OwnedFd), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut tries = 0;
        loop {
            let name = format!("{PREFIX}{:016x}", fastrand::u64(..));
            match rustix::fs::openat(folder, &name, flags, mode) {
                Ok(file) => return Ok((name, file)),
                Err(Errno::EXIST | Errno::INTR) if tries < NAMES_MAX => tries += 1,
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Puts it over whatever file or link has the name. A link is replaced, never written through.
    pub(crate) fn replace(mut self, name: &str, path: &str) -> Result<(), Error> {
        rustix::fs::renameat(self.folder, &self.name, self.folder, name).map_err(Error::system(path))?;
        self.placed = true;
        rustix::fs::fsync(self.folder).map_err(Error::system(path))
    }

    /// Puts it where nothing is.
    pub(crate) fn create(mut self, name: &str, path: &str) -> Result<(), Error> {
        match rustix::fs::renameat_with(self.folder, &self.name, self.folder, name, RenameFlags::NOREPLACE) {
            Ok(()) => self.placed = true,
            // A file system without that flag has `link`, which never replaces; the draft's name goes when it drops.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(self.folder, &self.name, self.folder, name, AtFlags::empty())
                    .map_err(Error::system(path))?;
            }
            Err(errno) => return Err(Error::system(path)(errno)),
        }
        rustix::fs::fsync(self.folder).map_err(Error::system(path))
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.placed {
            // Nothing can be done about a failure here; the name is left out of listings.
            let _ = rustix::fs::unlinkat(self.folder, &self.name, AtFlags::empty());
        }
    }
}
