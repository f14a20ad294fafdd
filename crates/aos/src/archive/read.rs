//! Reading an archive: every byte compared with its list, and unpacked on the way where that is wanted.
//!
//! Start at [`check`]. The archive is not trusted: paths are plain names below the folders of a home, links are made after
//! everything else, so that nothing is written through one, a further name is one of a file of this archive, and rights beyond those of a usual file are dropped.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufReader, Read, Seek as _, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use aos_journal::chain::hex;
use sha2::{Digest as _, Sha256};
use tar::{Archive, Entry, EntryType};

use super::restore::Staging;
use super::{Error, FORMAT, HOLES_BYTES_MAX, Held, LeftOut, MANIFEST, MANIFEST_BYTES_MAX, Manifest, Progress, Whole};
use crate::home::KEPT;

/// Whether an archive is whole: its list, and every byte as the list says.
///
/// # Errors
/// [`Error::Foreign`], [`Error::Damaged`], [`Error::TooNew`], [`Error::Io`].
pub fn check(archive: &Path, progress: Progress<'_>) -> Result<Whole, Error> {
    Ok(read(archive, None, progress)?.0)
}

/// The same, unpacked into folders that are empty, but for what has too long a path there; what is there after an
/// error is not to be used.
pub(super) fn read(
    archive: &Path,
    into: Option<&Staging>,
    progress: Progress<'_>,
) -> Result<(Whole, Vec<LeftOut>), Error> {
    let file = File::open(archive).map_err(Error::io("read", archive))?;
    let mut reading = Reading::new(archive, into);
    let mut tar = Archive::new(BufReader::with_capacity(1 << 18, Hashed { file, hash: Sha256::new() }));
    let entries = tar.entries().map_err(|error| reading.foreign(error))?;
    let mut manifest = None;
    for entry in entries {
        let first = reading.held.is_empty();
        let entry = entry.map_err(|error| if first { reading.foreign(error) } else { reading.damaged(error) })?;
        let name = entry.path().map_err(|error| reading.damaged(error))?.into_owned();
        if name == Path::new(MANIFEST) {
            manifest = Some(reading.manifest(entry)?);
            break;
        }
        reading.entry(&name, entry)?;
        progress(if into.is_some() { "unpacking" } else { "checking" }, reading.bytes);
    }
    let manifest =
        manifest.ok_or_else(|| reading.damaged("its list of contents is missing: it was cut off somewhere"))?;
    reading.compare(&manifest)?;
    reading.finish()?;
    let mut rest = tar.into_inner().into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(Error::io("read", archive))?;
    Ok((Whole { manifest, sha256: hex(&rest.hash.finalize().into()) }, reading.left_out))
}

/// A file and the hash of what was read of it: of the very bytes that were unpacked, whatever becomes of the file.
struct Hashed {
    file: File,
    hash: Sha256,
}

impl Read for Hashed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read(into)?;
        self.hash.update(&into[..got]);
        Ok(got)
    }
}

struct Reading<'r> {
    archive: &'r Path,
    into: Option<&'r Staging>,
    held: Vec<Held>,
    /// Folders with the rights that they get at the end: a read-only one could not be filled.
    folders: Vec<(PathBuf, u32)>,
    /// Links by their names, and where they lead.
    links: Vec<(PathBuf, PathBuf)>,
    /// Files, of which what comes later may be a further name.
    files: HashSet<PathBuf>,
    left_out: Vec<LeftOut>,
    /// The last folder that was left out, with what is in it.
    without: Option<PathBuf>,
    bytes: u64,
    holes: u64,
}

impl<'r> Reading<'r> {
    fn new(archive: &'r Path, into: Option<&'r Staging>) -> Self {
        let (held, folders, links, files, left_out) = Default::default();
        Reading { archive, into, held, folders, links, files, left_out, without: None, bytes: 0, holes: 0 }
    }

    /// Where something is unpacked.
    fn place(&self, name: &Path) -> Option<PathBuf> {
        self.into.map(|into| into.place(name))
    }

    /// What was made, unless its path is longer here than the operating system takes: then it is left out, since the rest
    /// is of use without it. The home may have had a shorter path, or an agent made one as long as can be.
    fn unless_too_long<T>(&mut self, name: &Path, made: io::Result<T>) -> io::Result<Option<T>> {
        match made {
            Err(error) if error.kind() == io::ErrorKind::InvalidFilename => {
                if !self.without.as_ref().is_some_and(|folder| name.starts_with(folder)) {
                    let why = "its path, or its first one, is too long here".to_owned();
                    self.left_out.push(LeftOut { path: name.to_string_lossy().into_owned(), why });
                }
                Ok(None)
            }
            made => made.map(Some),
        }
    }

    fn foreign(&self, why: impl ToString) -> Error {
        Error::Foreign { path: self.archive.to_owned(), why: why.to_string() }
    }

    fn damaged(&self, why: impl ToString) -> Error {
        Error::Damaged { path: self.archive.to_owned(), why: why.to_string() }
    }

    fn entry(&mut self, name: &Path, entry: Entry<'_, impl Read>) -> Result<(), Error> {
        self.look_at(name)?;
        let header = entry.header();
        let (what, mode) = (header.entry_type(), header.mode().unwrap_or(0o600) & 0o777);
        let bytes = entry.size();
        let mut held = Held { path: name.to_string_lossy().into_owned(), mode, bytes, sha256: None, link: None };
        match what {
            EntryType::Directory => {
                if let Some(folder) = self.place(name) {
                    let made = DirBuilder::new().mode(0o700).create(&folder);
                    match self.unless_too_long(name, made).map_err(Error::io("make the folder", &folder))? {
                        Some(()) => self.folders.push((folder, mode)),
                        None => self.without = Some(name.to_owned()),
                    }
                }
            }
            // The journal or the policy would be elsewhere, such as where an agent may write.
            EntryType::Symlink | EntryType::Link if !super::may_have_names(name) => {
                return Err(self.damaged(format!("`{}` is a link", name.display())));
            }
            EntryType::Symlink => {
                let target = entry.link_name().ok().flatten().map(|target| target.into_owned()).unwrap_or_default();
                held.link = Some(target.to_string_lossy().into_owned());
                self.links.push((name.to_owned(), target));
            }
            EntryType::Link => {
                let first = entry.link_name().ok().flatten().map(|first| first.into_owned()).unwrap_or_default();
                if !self.files.contains(&first) {
                    return Err(self.damaged(format!("`{}` is no name of anything before it", name.display())));
                }
                held.link = Some(first.to_string_lossy().into_owned());
                if let (Some(first), Some(place)) = (self.place(&first), self.place(name)) {
                    let named = fs::hard_link(&first, &place).or_else(|error| match error.kind() {
                        io::ErrorKind::AlreadyExists => Err(error),
                        // Of a file system that has no further names.
                        _ => fs::copy(&first, &place).map(drop),
                    });
                    self.unless_too_long(name, named).map_err(Error::io("write", &place))?;
                }
            }
            EntryType::Regular | EntryType::GNUSparse => {
                held.sha256 = Some(self.content(name, entry, mode)?);
                if super::may_have_names(name) {
                    self.files.insert(name.to_owned());
                }
            }
            other => return Err(self.damaged(format!("`{}` is of a kind {other:?}", name.display()))),
        }
        self.held.push(held);
        Ok(())
    }

    /// Reads a file to its end, and unpacks it where that is wanted; its hash, in hex.
    fn content(&mut self, name: &Path, mut entry: Entry<'_, impl Read>, mode: u32) -> Result<String, Error> {
        let holes = entry.size().saturating_sub(entry.header().entry_size().unwrap_or(0));
        self.holes = self.holes.saturating_add(holes);
        if self.holes > HOLES_BYTES_MAX {
            return Err(self.damaged(format!("with `{}` its holes are more than are ever written", name.display())));
        }
        let mut file = None;
        if let Some(path) = self.place(name) {
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            let made = self.unless_too_long(name, made).map_err(Error::io("write", &path))?;
            file = made.map(|made| (path, made));
        }
        let mut hash = Sha256::new();
        let mut piece = vec![0; 1 << 16];
        loop {
            let got = entry.read(&mut piece).map_err(|error| self.damaged(error))?;
            if got == 0 {
                break;
            }
            hash.update(&piece[..got]);
            if let Some((path, file)) = &mut file {
                let wrote = match holes > 0 && piece[..got].iter().all(|byte| *byte == 0) {
                    true => file.seek_relative(got as i64),
                    false => file.write_all(&piece[..got]),
                };
                wrote.map_err(Error::io("write", path))?;
            }
            self.bytes += got as u64;
        }
        if let Some((path, file)) = file {
            let ended = file.set_len(entry.size()).and_then(|()| file.set_permissions(Permissions::from_mode(mode)));
            ended.map_err(Error::io("write", &path))?;
        }
        Ok(hex(&hash.finalize().into()))
    }

    /// Plain names only, and the journal first: so a file of anything else is known at once.
    fn look_at(&self, name: &Path) -> Result<(), Error> {
        if self.held.is_empty() && name != Path::new("journal.db") {
            return Err(self.foreign(format!("it begins with `{}`", name.display())));
        }
        let plain = name.components().all(|part| matches!(part, Component::Normal(_)));
        let first = name.components().next().map(|part| part.as_os_str().to_owned()).unwrap_or_default();
        if plain && KEPT.iter().any(|(known, _)| first == *known) {
            return Ok(());
        }
        Err(self.damaged(format!("`{}` belongs into no home", name.display())))
    }

    fn manifest(&self, entry: Entry<'_, impl Read>) -> Result<Manifest, Error> {
        /// What every form has.
        #[derive(serde::Deserialize)]
        struct Form {
            format: u32,
        }
        let mut text = Vec::new();
        entry.take(MANIFEST_BYTES_MAX as u64).read_to_end(&mut text).map_err(|error| self.damaged(error))?;
        let unreadable = |error: serde_json::Error| self.damaged(format!("its list of contents: {error}"));
        let Form { format } = serde_json::from_slice(&text).map_err(unreadable)?;
        if !(1..=FORMAT).contains(&format) {
            return Err(Error::TooNew { path: self.archive.to_owned(), found: format });
        }
        serde_json::from_slice(&text).map_err(unreadable)
    }

    fn compare(&self, manifest: &Manifest) -> Result<(), Error> {
        for (found, listed) in self.held.iter().zip(&manifest.held) {
            if found != listed {
                return Err(self.damaged(format!("`{}` is not what was written", listed.path)));
            }
        }
        match self.held.len().cmp(&manifest.held.len()) {
            std::cmp::Ordering::Equal => Ok(()),
            _ => {
                Err(self.damaged(format!("it holds {} of {} files and folders", self.held.len(), manifest.held.len())))
            }
        }
    }

    fn finish(&mut self) -> Result<(), Error> {
        for (name, target) in std::mem::take(&mut self.links) {
            let Some(link) = self.place(&name) else { continue };
            let made = symlink(target, &link);
            self.unless_too_long(&name, made).map_err(Error::io("make the link", &link))?;
        }
        for (folder, mode) in self.folders.iter().rev() {
            fs::set_permissions(folder, Permissions::from_mode(*mode)).map_err(Error::io("change", folder))?;
        }
        for folder in self.into.into_iter().flat_map(Staging::folders) {
            // Once for all of them, instead of a wait for the disk at each.
            let synced = File::open(folder).and_then(|folder| Ok(rustix::fs::syncfs(folder)?));
            synced.map_err(Error::io("sync", folder))?;
        }
        Ok(())
    }
}
