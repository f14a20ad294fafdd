//! Writing an archive, also while the daemon runs.
//!
//! Start at [`write`]. The journal is copied first and whatever it speaks of after it, so that nothing is missing. A file
//! that changes while it is read is taken as a power cut at that moment would leave it, and nothing is taken from elsewhere,
//! whatever agents do meanwhile. Holes are not written out, and what has several names is written once.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use aos_abi::Timestamp;
use aos_journal::{Reader, copy_database};
use aos_sandbox::{Met, Same, Walk};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

use super::content::Content;
use super::list::List;
use super::{
    Error, FORMAT, HOLES_BYTES_MAX, Held, LeftOut, MANIFEST, Manifest, PATH_BYTES_MAX, Progress, Whole, folder_of,
};
use crate::home::{AT_REST, Home, Kind};

/// The name under which the target of a link stands that is too long for its own header.
const LONG_LINK: &[u8] = b"././@LongLink";

/// Writes everything of a home that cannot be made again to `to`, 0600, and reads it back before it gets that name.
/// `at` is the time that is written into it. Whether agents see that place is another matter, see [`super::look`].
///
/// # Errors
/// Every kind of [`Error`] that is about writing; then there is nothing at `to`.
pub fn write(home: &Home, to: &Path, at: Timestamp, progress: Progress<'_>) -> Result<Whole, Error> {
    if fs::symlink_metadata(to).is_ok() {
        return Err(Error::Exists(to.to_owned()));
    }
    if !home.journal_file().exists() {
        return Err(Error::Empty(home.root().to_owned()));
    }
    let mut name = std::ffi::OsString::from(".");
    name.push(to.file_name().unwrap_or_default());
    name.push(".aos-draft");
    let draft = Draft::new(folder_of(to).join(name))?;
    let archive = draft.0.join("archive");
    Writing::begin(&draft, &archive, &mut *progress)?.all(home, at)?;
    let whole = super::read::check(&archive, progress)?;
    put(&archive, to)?;
    let folder = folder_of(to);
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io("sync", folder))?;
    Ok(whole)
}

/// Gives it its name, unless something has come there meanwhile.
fn put(archive: &Path, to: &Path) -> Result<(), Error> {
    let named = match renameat_with(CWD, archive, CWD, to, RenameFlags::NOREPLACE) {
        // Of a file system that cannot say so.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match fs::symlink_metadata(to) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => fs::rename(archive, to),
        },
        named => named.map_err(io::Error::from),
    };
    match named {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Error::Exists(to.to_owned())),
        named => named.map_err(Error::io("write", to)),
    }
}

/// A private folder for what is not finished; gone with this value. One that a killed program left is removed first.
struct Draft(PathBuf);

impl Draft {
    fn new(path: PathBuf) -> Result<Draft, Error> {
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io("remove", &path)(error)),
            _ => {}
        }
        DirBuilder::new().mode(0o700).create(&path).map_err(Error::io("make the folder", &path))?;
        Ok(Draft(path))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next backup to the same name.
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Writing<'w, 'p> {
    tar: Builder<BufWriter<File>>,
    /// Where the archive is, for errors.
    archive: &'w Path,
    /// Device and number of the folder of drafts, which may lie in what is copied.
    own: (u64, u64),
    draft: &'w Draft,
    list: List,
    /// Files with several names, by the first that was taken.
    names: HashMap<Same, PathBuf>,
    bytes: u64,
    progress: Progress<'p>,
}

impl<'w, 'p> Writing<'w, 'p> {
    fn begin(draft: &'w Draft, archive: &'w Path, progress: Progress<'p>) -> Result<Self, Error> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(archive);
        let own = fs::metadata(&draft.0).map_err(Error::io("look at", &draft.0))?;
        Ok(Writing {
            tar: Builder::new(BufWriter::new(file.map_err(Error::io("write", archive))?)),
            archive,
            own: (own.dev(), own.ino()),
            draft,
            list: List::new(),
            names: HashMap::new(),
            bytes: 0,
            progress,
        })
    }

    fn all(mut self, home: &Home, at: Timestamp) -> Result<(), Error> {
        let (mut last_lsn, mut entries) = Default::default();
        for kept in home.kept() {
            let name = Path::new(kept.name);
            match kept.kind {
                Kind::Journal => {
                    (self.progress)("copying the journal", 0);
                    let copy = self.draft.0.join("journal.db");
                    let report = Reader::open(&kept.place)?.backup(&copy)?;
                    (last_lsn, entries) = (report.last, report.entries);
                    self.take_copy(&copy, name)?;
                }
                Kind::Databases | Kind::Files | Kind::Changes => {
                    // A link of a person to another disk, or to where they keep their configuration, is followed.
                    let place = kept.place.canonicalize().unwrap_or(kept.place);
                    self.tree(&place, name, kept.kind)?;
                }
            }
        }
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let Writing { mut tar, archive, list, .. } = self;
        let (held, left_out) = list.end();
        let manifest = Manifest { format: FORMAT, version, at, last_lsn, entries, left_out, held };
        let text = serde_json::to_vec(&manifest).expect("a list is plain data with string keys");
        let mut header = header(EntryType::Regular, 0o600, 0);
        header.set_size(text.len() as u64);
        let wrote = Error::io("write", archive);
        let finished = tar.append_data(&mut header, MANIFEST, text.as_slice()).and_then(|()| tar.into_inner());
        finished
            .and_then(|mut buffered| buffered.flush().map(|()| buffered))
            .and_then(|buffered| buffered.get_ref().sync_all())
            .map_err(wrote)
    }

    /// Everything below a place, folders before what is in them. What vanishes meanwhile was taken away by a prune; a link
    /// that an agent puts in the place of something is a link, and what was behind it is gone.
    fn tree(&mut self, place: &Path, name: &Path, kind: Kind) -> Result<(), Error> {
        let walk = match Walk::of(place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                self.leave_out(name, error.to_string());
                return Ok(());
            }
            Ok(walk) => walk,
        };
        // A folder that is not taken, nor what is in it.
        let mut without: Option<PathBuf> = None;
        for (path, met) in walk {
            if kind == Kind::Changes && path.components().next().is_some_and(|first| first.as_os_str() != AT_REST) {
                continue;
            }
            if without.as_ref().is_some_and(|folder| path.starts_with(folder)) {
                continue;
            }
            let below = |top: &Path| if path.as_os_str().is_empty() { top.to_owned() } else { top.join(&path) };
            let (place, name) = (below(place), below(name));
            let met = match met {
                // An agent can make paths that are longer than the kernel takes.
                Err(error) => {
                    self.leave_out(&name, error.to_string());
                    continue;
                }
                Ok(met) => met,
            };
            if met.meta.is_dir() && (met.meta.dev(), met.meta.ino()) == self.own {
                without = Some(path);
                continue;
            }
            let bytes = name.as_os_str().len();
            if bytes > PATH_BYTES_MAX {
                let inside = if met.meta.is_dir() { ", and what is in it" } else { "" };
                self.leave_out(&name, format!("its path is too long, {bytes} bytes of {PATH_BYTES_MAX}{inside}"));
                without = Some(path);
                continue;
            }
            self.met(&met, &place, &name, kind)?;
        }
        Ok(())
    }

    fn met(&mut self, met: &Met, place: &Path, name: &Path, kind: Kind) -> Result<(), Error> {
        let meta = &met.meta;
        let ends = |end: &str| kind == Kind::Databases && name.to_string_lossy().ends_with(end);
        if meta.is_dir() {
            let held = held(name, meta.mode(), 0, None);
            if self.list.fits(&held) {
                let mut header = header(EntryType::Directory, meta.mode(), meta.mtime());
                self.tar.append_data(&mut header, name, io::empty()).map_err(Error::io("write", self.archive))?;
                self.list.hold(held);
            }
        } else if meta.is_symlink() {
            match met.link() {
                Ok(target) => {
                    let held = held(name, 0o777, 0, Some(&target));
                    if self.list.fits(&held) {
                        self.link(name, &target, meta.mtime()).map_err(Error::io("write", self.archive))?;
                        self.list.hold(held);
                    }
                }
                Err(error) => self.leave_out(name, error.to_string()),
            }
        } else if !meta.is_file() {
            self.leave_out(name, "it is neither a file, a folder nor a link".into());
        } else if ends(".db") {
            // By its path, as databases are opened: the daemon alone writes in their folder.
            let copy = self.draft.0.join("copy.db");
            match copy_database(place, &copy) {
                // What is sound is saved all the same.
                Err(aos_journal::Error::Corrupt { detail, .. }) => {
                    let _ = fs::remove_file(&copy);
                    self.leave_out(name, format!("it is damaged: {detail}"));
                }
                copied => {
                    copied?;
                    self.take_copy(&copy, name)?;
                }
            }
        } else if !ends(".db-wal") && !ends(".db-shm") {
            match met.file() {
                Ok(file) => self.take(file, meta, name)?,
                Err(error) => self.leave_out(name, error.to_string()),
            }
        }
        Ok(())
    }

    /// Takes a file of the draft's, and removes it.
    fn take_copy(&mut self, copy: &Path, name: &Path) -> Result<(), Error> {
        let opened = File::open(copy).and_then(|file| file.metadata().map(|metadata| (file, metadata)));
        let (file, metadata) = opened.map_err(Error::io("read", copy))?;
        self.take(file, &metadata, name)?;
        fs::remove_file(copy).map_err(Error::io("remove", copy))
    }

    fn take(&mut self, file: File, metadata: &Metadata, name: &Path) -> Result<(), Error> {
        let same = Same::of(metadata).filter(|_| super::may_have_names(name));
        if let Some(first) = same.and_then(|same| self.names.get(&same)) {
            let held = held(name, metadata.mode(), 0, Some(first));
            if self.list.fits(&held) {
                let mut header = header(EntryType::Link, metadata.mode(), metadata.mtime());
                self.tar.append_link(&mut header, name, first).map_err(Error::io("write", self.archive))?;
                self.list.hold(held);
            }
            return Ok(());
        }
        if self.content(file, metadata, name)? {
            self.names.extend(same.map(|same| (same, name.to_owned())));
        }
        Ok(())
    }

    /// Writes a link with its target letter by letter, which the library would put in order (`a//b`, `/`) and so change. One
    /// that is too long for the header goes before it, in GNU's way.
    fn link(&mut self, name: &Path, target: &Path, mtime: i64) -> io::Result<()> {
        let target = target.as_os_str().as_bytes();
        let mut of = header(EntryType::Symlink, 0o777, mtime);
        if of.set_link_name_literal(target).is_err() {
            let mut long = header(EntryType::GNULongLink, 0o644, 0);
            long.as_old_mut().name[..LONG_LINK.len()].copy_from_slice(LONG_LINK);
            long.set_size(target.len() as u64 + 1);
            long.set_cksum();
            self.tar.append(&long, target.chain(&[0][..]))?;
        }
        self.tar.append_data(&mut of, name, io::empty())
    }

    /// Writes a file's bytes, unless there is hardly anything but holes in too many of them, or no room in the list; whether it
    /// did.
    fn content(&mut self, file: File, metadata: &Metadata, name: &Path) -> Result<bool, Error> {
        let length = metadata.len();
        let mut content = Content::of(file, length);
        let holes = length - content.written();
        if !self.list.takes_holes(name, holes) {
            let most = HOLES_BYTES_MAX;
            let why = format!(
                "its holes are {holes} bytes; of {most} in a backup, half of what is left is for one workspace"
            );
            self.leave_out(name, why);
            return Ok(false);
        }
        // Every hash is as long as this one.
        let mut held = Held { sha256: Some("0".repeat(64)), ..held(name, metadata.mode(), length, None) };
        if !self.list.fits(&held) {
            return Ok(false);
        }
        let mut header = header(EntryType::Regular, metadata.mode(), metadata.mtime());
        header.set_size(content.written());
        let map = if holes > 0 { content.map(&mut header) } else { Vec::new() };
        let data = map.as_slice().chain(&mut content);
        self.tar.append_data(&mut header, name, data).map_err(Error::io("write", self.archive))?;
        self.bytes += length;
        (self.progress)("writing", self.bytes);
        held.sha256 = Some(content.hash());
        self.list.hold(held);
        Ok(true)
    }

    fn leave_out(&mut self, name: &Path, why: String) {
        self.list.leave_out(LeftOut { path: name.to_string_lossy().into_owned(), why });
    }
}

/// Something as the list has it, still without a hash.
fn held(name: &Path, mode: u32, bytes: u64, link: Option<&Path>) -> Held {
    let shown = |path: &Path| path.to_string_lossy().into_owned();
    Held { path: shown(name), mode: mode & 0o777, bytes, sha256: None, link: link.map(shown) }
}

fn header(what: EntryType, mode: u32, mtime: i64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(what);
    header.set_mode(mode & 0o777);
    header.set_mtime(u64::try_from(mtime).unwrap_or(0));
    header.set_size(0);
    header
}
