//! Moving files and folders between a workspace and a layer, also where they are on different file systems.
//!
//! Start at [`Way`]. What always holds: a move that was cut off can be made again and comes to the same; a copy gets its name
//! only when it is whole; no link is followed; what is found under a name that such a move uses is this commit's own, since
//! nobody else can have told the name before; nothing in the workspace is replaced that is not kept. On one file system a move
//! is one rename.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::below::{LEVELS_MAX, delete};
use crate::content::Copies;
use crate::durable::sync_folder;
use crate::failpoint::{Done, done};
use crate::image::Image;
use crate::layer::Layer;

/// How the names begin that things have on their way out of a workspace's folder, and into it. Listings, searches and
/// watches leave such names out.
const AWAY: &str = ".aos-draft-away-";
const INTO: &str = ".aos-draft-into-";

/// Whether something is called as things are on their way. Nobody else makes such names.
pub(crate) fn is_passing(name: &OsStr) -> bool {
    [AWAY, INTO].iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()))
}

/// One turn of a commit, as far as moving things is concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way<'c> {
    pub(crate) layer: &'c Layer,
    /// A secret of this turn, which is in its record; `None` where the record is of the time before there was one.
    pub(crate) nonce: Option<&'c str>,
}

/// A new secret of which names are made.
pub(crate) fn nonce() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(crate::image::hex(&bytes))
}

impl Way<'_> {
    /// What something of that name is called on its way: no two on their way through one folder have the same, and only
    /// who knows the nonce can tell it. A command that is shown one while it is there learns nothing of the others.
    fn passing(&self, prefix: &str, name: &OsStr, more: &str) -> String {
        match self.nonce {
            Some(nonce) => {
                let own = [nonce.as_bytes(), name.as_bytes(), more.as_bytes()].concat();
                format!("{prefix}{}", &crate::image::digest(&own)[..32])
            }
            // Where it was cut off then, what it moved is under this name and no other.
            None => format!("{prefix}{}", &crate::image::digest(name.as_bytes())[..16]),
        }
    }

    /// What it is called on its way out to a place of the layer: another for what is being kept than for what is being taken
    /// back, since whoever turns round must know which of the two it finds.
    fn away(&self, name: &OsStr, to: &Path) -> String {
        self.passing(AWAY, name, if to.starts_with(self.layer.upper()) { "/upper" } else { "" })
    }

    fn into(&self, name: &OsStr) -> String {
        self.passing(INTO, name, "")
    }

    /// Where something is that is on its way from or to a place of the layer. Never beside what a command wrote, which may
    /// have any name: what belongs to the upper folder goes where the commit keeps what it replaced. That is all of one
    /// length, so this is nothing's name there.
    fn own(&self, place: &Path, mark: &str) -> PathBuf {
        match (place.strip_prefix(self.layer.upper()), self.nonce) {
            (Ok(path), Some(_)) => beside(&self.layer.old_of(path), &format!("upper.{mark}")),
            // It is a folder of the layer's own that it is in; or it was begun when there was no such rule.
            _ => beside(place, mark),
        }
    }

    /// Where what goes in by a copy is until the copy is whole.
    fn leaving(&self, from: &Path) -> PathBuf {
        self.own(from, "leaving")
    }

    /// And then, until the copy is in place.
    fn placing(&self, from: &Path) -> PathBuf {
        self.own(from, "placing")
    }

    /// Whether a place of the layer holds something, also where it was on its way in when something ended that.
    pub(crate) fn keeps(&self, place: &Path) -> bool {
        there(place) || there(&self.leaving(place)) || there(&self.placing(place))
    }

    /// Whether what a place of the layer holds is to go to `name` in a folder still.
    pub(crate) fn is_ahead(&self, place: &Path, folder: &OwnedFd, name: &OsStr) -> bool {
        let copied = || there(&self.placing(place)) && there_in(folder, self.into(name).as_ref());
        there(place) || there(&self.leaving(place)) || copied()
    }

    /// Whether what had the name in a folder is half-way out to a place of the layer.
    pub(crate) fn is_half_out(&self, folder: &OwnedFd, name: &OsStr, to: &Path) -> bool {
        self.nonce.is_some() && !there(to) && there_in(folder, self.away(name, to).as_ref())
    }

    /// Whether what has a name in a folder is what a place of the layer holds: the same file, or one and its copy.
    pub(crate) fn is_at(&self, place: &Path, folder: &OwnedFd, name: &OsStr) -> bool {
        let here = within(folder, name);
        [place.to_owned(), self.leaving(place), self.placing(place)].iter().any(|held| same(held, &here))
    }

    /// Takes back a move out that the other direction began and something ended.
    pub(crate) fn call_out_back(&self, folder: &OwnedFd, name: &OsStr, to: &Path) -> Result<(), Errno> {
        let away = self.away(name, to);
        // Before there was a nonce, nothing was turned round.
        if self.nonce.is_none() || !there_in(folder, away.as_ref()) {
            return Ok(());
        }
        if there(to) {
            return drop_left(folder, &away, name, to);
        }
        rename(folder, &*away, folder, name, RenameFlags::NOREPLACE)
    }

    /// The same of a move in, or ends it where only the end was missing.
    pub(crate) fn call_in_back(&self, folder: &OwnedFd, name: &OsStr, from: &Path) -> Result<(), Errno> {
        let (leaving, placing, into) = (self.leaving(from), self.placing(from), self.into(name));
        if self.nonce.is_none() || there(from) {
            return Ok(());
        }
        let copied = there_in(folder, into.as_ref());
        let held = if there(&leaving) { leaving } else { placing };
        if !there(&held) {
            return Ok(());
        }
        if held.ends_with(self.placing(from)) && !copied {
            return self.placed(folder, &held);
        }
        delete(&within(folder, into.as_ref())).map_err(errno)?;
        rustix::fs::renameat(CWD, &held, CWD, from)
    }

    /// Takes back that a copy of what a place of the layer holds had changed places with what has the name, where a cut came
    /// before anybody looked what came out.
    pub(crate) fn change_back(&self, folder: &OwnedFd, name: &OsStr, from: &Path) -> Result<(), Errno> {
        let (placing, into) = (self.placing(from), within(folder, self.into(name).as_ref()));
        let changed = there(&placing) && there(&into);
        if changed && is_copy(&placing, &within(folder, name)) && !is_copy(&placing, &into) {
            return rename(CWD, &into, folder, name, RenameFlags::EXCHANGE);
        }
        Ok(())
    }

    /// Where something can be looked at that is to go, or has gone, from a name in a folder to a place of the layer, as long
    /// as it is itself and no copy.
    pub(crate) fn original(&self, folder: &OwnedFd, name: &OsStr, to: &Path) -> Option<PathBuf> {
        if there(to) {
            // Of what was copied a part may be deleted.
            return is_near(folder, to).then(|| to.to_owned());
        }
        let away = self.away(name, to);
        if there_in(folder, away.as_ref()) {
            return Some(within(folder, away.as_ref()));
        }
        there_in(folder, name).then(|| within(folder, name))
    }

    /// Whether what has a name in a folder is what it is said to be there, and not what is held at a place of the layer, which
    /// may look like it.
    pub(crate) fn rests(&self, image: &Image, folder: &OwnedFd, name: &OsStr, held: &Path) -> bool {
        let here = within(folder, name);
        image.stands_at(&here) && (image.is_inode(&here) || !self.is_at(held, folder, name))
    }

    /// Deletes what a place of the layer holds, and what of it was on its way in: what it was to replace rests.
    pub(crate) fn drop_held(&self, place: &Path, folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        let into = within(folder, self.into(name).as_ref());
        let held = [place.to_owned(), self.leaving(place), self.placing(place), into];
        held.iter().try_for_each(|held| delete(held)).map_err(errno)
    }

    /// Makes a folder, which gets its name when it has its permissions and its owner. One that has the name stays as it is: it is
    /// somebody else's, or an interruption came after this. Where it is only `lent` leave for its path, it is remembered.
    pub(crate) fn make_folder(
        &self,
        folder: &OwnedFd,
        name: &OsStr,
        mode: u32,
        (uid, gid): (u32, u32),
        lent: Option<&Path>,
    ) -> Result<(), Errno> {
        self.unmake_folder(folder, name)?;
        if is_folder_in(folder, name) == Some(true) {
            return Ok(());
        }
        let into = self.into(name);
        rustix::fs::mkdirat(folder, &*into, Mode::from_raw_mode(0o700))?;
        crate::failpoint::pass();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(folder, &*into, flags, Mode::empty())?;
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
            rustix::fs::fchown(&made, Some(uid), Some(gid))?;
        }
        rustix::fs::fchmod(&made, Mode::from_raw_mode(mode))?;
        if let Some(path) = lent {
            self.mark_made(path, &made)?;
        }
        match rename(folder, &*into, folder, name, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {
                self.unmake_folder(folder, name)?;
                if is_folder_in(folder, name) == Some(true) { Ok(()) } else { Err(Errno::EXIST) }
            }
            done => done,
        }
    }

    /// Where it is remembered which folder was made for a path.
    fn mark_of(&self, path: &Path) -> PathBuf {
        beside(&self.layer.old_of(path), "made")
    }

    /// Remembers which folder was made for a path of the workspace, until that goes; and it lasts before the folder has its
    /// name, which may be on another file system.
    fn mark_made(&self, path: &Path, made: &OwnedFd) -> Result<(), Errno> {
        let mark = self.mark_of(path);
        make_parent(&mark)?;
        let stat = rustix::fs::fstat(made)?;
        let mut file = std::fs::File::create(&mark).map_err(errno)?;
        write!(file, "{} {}", stat.st_dev, stat.st_ino).and_then(|()| file.sync_all()).map_err(errno)?;
        let above = mark.parent().unwrap_or(Path::new("/"));
        let opened = rustix::fs::open(above, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        sync_folder(&opened)?;
        done(Done::Synced(&mark));
        Ok(())
    }

    /// Forgets it: the folder is gone, and the next one of somebody else's may be given its number.
    pub(crate) fn forget_made(&self, path: &Path) -> Result<(), Errno> {
        match rustix::fs::unlinkat(CWD, self.mark_of(path), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Whether the folder of this name is the one that was made for a path, and not one of somebody else's.
    pub(crate) fn has_made(&self, path: &Path, folder: &OwnedFd, name: &OsStr) -> bool {
        let mark = std::fs::read_to_string(self.mark_of(path));
        let here = inode(&within(folder, name)).map(|(device, number)| format!("{device} {number}"));
        here.is_some() && mark.ok() == here
    }

    /// Takes a folder away that was made and has no name yet.
    pub(crate) fn unmake_folder(&self, folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        match rustix::fs::unlinkat(folder, &*self.into(name), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Moves `name` out of a folder to the path `to`, unless that has been done or there is nothing. What is to be `seen`
    /// there is looked at when nobody can reach it by its name any more: where it is something else, or somebody has worked
    /// in it, it goes back and the answer is `EXIST`.
    pub(crate) fn take_away(
        &self,
        folder: &OwnedFd,
        name: &OsStr,
        to: &Path,
        seen: Option<&Image>,
    ) -> Result<(), Errno> {
        let away = self.away(name, to);
        let is_seen = |path: &Path| seen.is_none_or(|seen| seen.stands_whole_at(path));
        let back = |from: &dyn Fn() -> Result<(), Errno>| from().and(Err(Errno::EXIST));
        let by_name = || rename(CWD, to, folder, name, RenameFlags::NOREPLACE);
        if !there(to) {
            if !there_in(folder, name) && !there_in(folder, away.as_ref()) {
                return Ok(());
            }
            make_parent(to)?;
            if !there_in(folder, away.as_ref()) {
                match rename(folder, name, CWD, to, RenameFlags::empty()) {
                    Ok(()) => {
                        crate::failpoint::pass();
                        return if is_seen(to) { Ok(()) } else { back(&by_name) };
                    }
                    Err(Errno::NOENT) => return Ok(()),
                    Err(Errno::XDEV) => {}
                    Err(errno) => return Err(errno),
                }
                // In one step out of sight; then as long as it takes.
                rustix::fs::renameat(folder, name, folder, &away)?;
            }
            crate::failpoint::pass();
            let part = self.own(to, "part");
            delete(&part).map_err(errno)?;
            if let Err(error) = copy(&within(folder, away.as_ref()), &part) {
                let _ = delete(&part);
                rename(folder, &*away, folder, name, RenameFlags::NOREPLACE)?;
                return Err(errno(error));
            }
            if !is_seen(&within(folder, away.as_ref())) {
                let _ = delete(&part);
                return back(&|| rename(folder, &*away, folder, name, RenameFlags::NOREPLACE));
            }
            named(&part, to)?;
        } else if is_near(folder, to) && !is_seen(to) {
            return back(&by_name);
        }
        crate::failpoint::pass();
        if there_in(folder, away.as_ref()) { drop_left(folder, &away, name, to) } else { Ok(()) }
    }

    /// Keeps what has a name in a folder at the path `to`, unless that has been done or there is nothing. A file or link stays
    /// where it is, so that nobody finds it missing before it is replaced; a folder, which nothing can replace, is moved, if it
    /// is as it was `seen`.
    pub(crate) fn set_aside(
        &self,
        folder: &OwnedFd,
        name: &OsStr,
        to: &Path,
        seen: Option<&Image>,
    ) -> Result<(), Errno> {
        if there(to) || is_folder_in(folder, name) != Some(false) {
            return self.take_away(folder, name, to, seen);
        }
        make_parent(to)?;
        match rustix::fs::linkat(folder, name, CWD, to, AtFlags::empty()) {
            Ok(()) => Ok(()),
            // Another file system, one without hard links, or a file of somebody else's (`fs.protected_hardlinks`).
            Err(_) => {
                let part = self.own(to, "part");
                delete(&part).map_err(errno)?;
                copy(&within(folder, name), &part).map_err(errno)?;
                crate::failpoint::pass();
                named(&part, to)
            }
        }
    }

    /// Moves what is at `from` to `name` in a folder, unless there is nothing any more. It replaces only a file that is kept
    /// at `kept` and as it was `seen`, or that it is itself; where anything else has the name, that stays and the answer is `EXIST`.
    pub(crate) fn put_in_place(
        &self,
        from: &Path,
        folder: &OwnedFd,
        name: &OsStr,
        kept: Option<&Path>,
        seen: Option<&Image>,
    ) -> Result<(), Errno> {
        let (leaving, placing) = (self.leaving(from), self.placing(from));
        let into = self.into(name);
        if let Some(kept) = kept {
            self.look_at_draft(from, folder, name, kept)?;
        }
        if !there(&placing) {
            if !there(&leaving) {
                match replace(from, folder, name, kept, seen) {
                    Err(Errno::NOENT) if !there(from) => return Ok(()),
                    Err(Errno::XDEV) => {}
                    done => return done,
                }
                // From here on it counts as placed, so that what has the name is never taken for what was there before.
                rustix::fs::renameat(CWD, from, CWD, &leaving)?;
            }
            crate::failpoint::pass();
            let copied = within(folder, into.as_ref());
            delete(&copied).map_err(errno)?;
            if let Err(error) = copy(&leaving, &copied) {
                // Nobody else knows the name to delete it by.
                let _ = delete(&copied);
                return Err(errno(error));
            }
            // The copy's name must outlast the word that it is whole.
            sync_folder(folder)?;
            crate::failpoint::pass();
            rustix::fs::renameat(CWD, &leaving, CWD, &placing)?;
        }
        crate::failpoint::pass();
        // Where it is gone, a cut came after this.
        if there_in(folder, into.as_ref()) {
            let (copied, here) = (within(folder, into.as_ref()), within(folder, name));
            let kept = kept.filter(|kept| same(kept, &here)).or(Some(&*placing).filter(|_| same(&placing, &here)));
            // What is kept is a copy, so no other name of what goes, to which somebody could have written.
            replace(&copied, folder, name, kept, None)?;
            done(Done::Copied(&within(folder, name)));
        }
        crate::failpoint::pass();
        self.placed(folder, &placing)
    }

    /// Looks at what has the name of a whole copy on its way in. Where a cut came when that had changed places with what is
    /// `kept`, and somebody took the copy away since, it is what was replaced: the copy is made once more. What is neither, as
    /// somebody saved it in that moment, gets its name again, and the answer is `EXIST`.
    fn look_at_draft(&self, from: &Path, folder: &OwnedFd, name: &OsStr, kept: &Path) -> Result<(), Errno> {
        let (leaving, placing, into) = (self.leaving(from), self.placing(from), self.into(name));
        let copied = within(folder, into.as_ref());
        if !there(&placing) || !there(&copied) || is_copy(&placing, &copied) {
            return Ok(());
        }
        if is_copy(kept, &copied) {
            return rustix::fs::renameat(CWD, &placing, CWD, &leaving);
        }
        let content = |path: &Path| Image::of(path).map(|image| image.sha256);
        // Folders never change places, and some file systems keep neither modes nor times.
        if content(&placing) == content(&copied) {
            return Ok(());
        }
        rename(folder, &*into, folder, name, RenameFlags::NOREPLACE)?;
        rustix::fs::renameat(CWD, &placing, CWD, from).and(Err(Errno::EXIST))
    }

    /// Ends a move in whose copy is in place.
    fn placed(&self, folder: &OwnedFd, placing: &Path) -> Result<(), Errno> {
        sync_folder(folder)?;
        done(Done::Synced(&within(folder, OsStr::new("."))));
        done(Done::Deleting(placing));
        delete(placing).map_err(errno)
    }
}

/// Moves a file, a link or a folder to a name on the same file system. What has the name must be kept at `kept` already, and
/// is looked at when nobody can change it any more: the two change places, and back where it is something else.
fn replace(
    from: &Path,
    folder: &OwnedFd,
    name: &OsStr,
    kept: Option<&Path>,
    seen: Option<&Image>,
) -> Result<(), Errno> {
    let here = within(folder, name);
    // It is in place, and this is another name of it.
    if is_one(from, &here) {
        return rustix::fs::unlinkat(CWD, from, AtFlags::empty());
    }
    let own = inode(from);
    let to = |flags| rename(CWD, from, folder, name, flags);
    let kept = match (to(RenameFlags::NOREPLACE), kept) {
        (Err(Errno::EXIST), Some(kept)) if same(kept, &here) => kept,
        (done, _) => return done,
    };
    crate::failpoint::pass();
    match to(RenameFlags::EXCHANGE) {
        Ok(()) => {}
        Err(Errno::NOENT) if there(from) => return to(RenameFlags::NOREPLACE),
        Err(errno) if is_unknown(errno) => return to(RenameFlags::empty()),
        Err(errno) => return Err(errno),
    }
    crate::failpoint::pass();
    end_exchange(from, folder, name, own, kept, seen)
}

/// Looks at what came out when what was at `from`, the file `own`, and what has the name changed places: it goes if it is kept at
/// `kept`, as it was `seen`, and else the two change places again. Where somebody has saved once more meanwhile, that keeps the
/// name, and the answer is `EBUSY`: what they had saved before is in the layer.
pub(crate) fn end_exchange(
    from: &Path,
    folder: &OwnedFd,
    name: &OsStr,
    own: Option<(u64, u64)>,
    kept: &Path,
    seen: Option<&Image>,
) -> Result<(), Errno> {
    // What is kept may be another name of it, to which somebody has written.
    if same(kept, from) && seen.is_none_or(|seen| seen.stands_at(from)) {
        return rustix::fs::unlinkat(CWD, from, AtFlags::empty());
    }
    if inode(&within(folder, name)) != own {
        return Err(Errno::BUSY);
    }
    rename(CWD, from, folder, name, RenameFlags::EXCHANGE)?;
    if inode(from) == own {
        return Err(Errno::EXIST);
    }
    rename(CWD, from, folder, name, RenameFlags::EXCHANGE)?;
    Err(Errno::BUSY)
}

/// By which device and number a file is told from all others; `None` where nothing is.
pub(crate) fn inode(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Deletes what is left of what was copied to a place of the layer. Where somebody has saved something in it since, which is in no
/// copy, it gets its name again with all that is left.
fn drop_left(folder: &OwnedFd, away: &str, name: &OsStr, to: &Path) -> Result<(), Errno> {
    let left = within(folder, away.as_ref());
    if !is_copied(&left, to, 0) {
        return rename(folder, away, folder, name, RenameFlags::NOREPLACE);
    }
    done(Done::Deleting(&left));
    delete(&left).map_err(errno)
}

/// Whether each file and link at a path, or below it, has its copy. What cannot be looked into was not copied either, and nothing
/// was begun then.
fn is_copied(left: &Path, to: &Path, level: usize) -> bool {
    let Ok(meta) = std::fs::symlink_metadata(left) else { return true };
    if !meta.is_dir() {
        return same(left, to) || !(meta.is_file() || meta.is_symlink());
    }
    let inside = std::fs::read_dir(left).into_iter().flatten().flatten();
    level > LEVELS_MAX
        || inside.map(|entry| entry.file_name()).all(|name| is_copied(&left.join(&name), &to.join(&name), level + 1))
}

/// Whether a file system knows of no such renames, as some networks' do not.
fn is_unknown(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Renames. A folder that its owner may not write to cannot get another parent, whose name is in it: it is lent the leave,
/// and has its permissions again when it is there. Where a cut comes between, [`set_mode`] gives them back.
pub(crate) fn rename(
    from: impl AsFd,
    name: impl Arg + Copy,
    to: impl AsFd,
    new: impl Arg + Copy,
    flags: RenameFlags,
) -> Result<(), Errno> {
    let refused = match rustix::fs::renameat_with(&from, name, &to, new, flags) {
        Err(errno @ Errno::ACCESS) => errno,
        Err(errno) if is_unknown(errno) && flags == RenameFlags::NOREPLACE => {
            return match rustix::fs::statat(&to, new, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                Err(_) => rename(from, name, to, new, RenameFlags::empty()),
            };
        }
        done => return done,
    };
    let named = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::openat(&from, name, named, Mode::empty()) else { return Err(refused) };
    let mode = rustix::fs::fstat(&folder)?.st_mode & 0o7777;
    let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let change = |mode: u32| rustix::fs::chmod(&*path, Mode::from_raw_mode(mode));
    if mode & 0o200 != 0 || change(mode | 0o200).is_err() {
        return Err(refused);
    }
    crate::failpoint::pass();
    let done = rustix::fs::renameat_with(&from, name, &to, new, flags);
    crate::failpoint::pass();
    change(mode)?;
    done
}

/// Gives a folder its permissions, also one that nobody may open.
pub(crate) fn set_mode(parent: &OwnedFd, name: &OsStr, mode: u32) -> Result<(), Errno> {
    let named = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(parent, name, named, Mode::empty())?;
    if rustix::fs::fstat(&folder)?.st_mode & 0o7777 == mode {
        return Ok(());
    }
    rustix::fs::chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), Mode::from_raw_mode(mode))
}

/// Whether two paths are names of one file.
pub(crate) fn is_one(one: &Path, other: &Path) -> bool {
    inode(one).is_some_and(|one| inode(other) == Some(one))
}

/// Whether two paths lead to one file, or to a file and its copy, which has its times, as far as its file system counts them,
/// and its permissions without set-id bits.
pub(crate) fn same(one: &Path, other: &Path) -> bool {
    if is_one(one, other) {
        return true;
    }
    let (Ok(one), Ok(other)) = (std::fs::symlink_metadata(one), std::fs::symlink_metadata(other)) else { return false };
    let looks = |meta: &std::fs::Metadata| (meta.mode() & !0o6000, meta.len(), meta.mtime());
    let nanos = (one.mtime_nsec(), other.mtime_nsec());
    !one.is_dir() && looks(&one) == looks(&other) && (nanos.0 == nanos.1 || nanos.0 == 0 || nanos.1 == 0)
}

/// Whether two files are not only [`same`] by what is known of them, which two can be that were written in one moment, but
/// by what is in them.
fn is_copy(one: &Path, other: &Path) -> bool {
    let content = |path| Image::of(path).map(|image| image.sha256);
    same(one, other) && content(one) == content(other)
}

/// Gives a copy its name, and that lasts: what it was made from, on a file system of its own, is going to go.
fn named(part: &Path, to: &Path) -> Result<(), Errno> {
    rustix::fs::renameat(CWD, part, CWD, to)?;
    done(Done::Copied(to));
    let folder = to.parent().unwrap_or(Path::new("/"));
    let opened = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    sync_folder(&opened)?;
    done(Done::Synced(folder));
    Ok(())
}

/// Whether anything has this path, a link included.
pub(crate) fn there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// Whether anything has this name in a folder.
pub(crate) fn there_in(folder: &OwnedFd, name: &OsStr) -> bool {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Whether what has this name in a folder is a folder; `None` where nothing has.
pub(crate) fn is_folder_in(folder: &OwnedFd, name: &OsStr) -> Option<bool> {
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
}

/// Whether a path is on the file system of a folder, so that what is there was moved and not copied.
pub(crate) fn is_near(folder: &OwnedFd, path: &Path) -> bool {
    let folder = rustix::fs::fstat(folder).map(|stat| stat.st_dev).ok();
    folder.is_some() && folder == std::fs::symlink_metadata(path).ok().map(|meta| meta.dev())
}

/// Makes the folders above a path of the daemon's own.
pub(crate) fn make_parent(path: &Path) -> Result<(), Errno> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).map_err(errno)
}

/// An operating system's error by its number.
pub(crate) fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Copies a file, a link or a folder with all in it: bytes (no holes), names of one file, modes, times, attributes and, as far as one may, owners; set-id
/// bits only with the owner whose they are. Pipes, sockets and devices are left out; folders that are too many inside one
/// another are refused, and so is what has attributes that the other file system does not take.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    copy_level(from, to, 0, &mut Copies::default())
}

fn copy_level(from: &Path, to: &Path, level: usize, copies: &mut Copies) -> io::Result<()> {
    if level > LEVELS_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    let meta = std::fs::symlink_metadata(from)?;
    let kind = meta.file_type();
    if kind.is_symlink() {
        std::os::unix::fs::symlink(std::fs::read_link(from)?, to)?;
    } else if kind.is_dir() {
        std::fs::create_dir(to)?;
        for entry in std::fs::read_dir(from)? {
            let name = entry?.file_name();
            copy_level(&from.join(&name), &to.join(&name), level + 1, copies)?;
        }
    } else if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
        return Ok(());
    } else {
        copies.file(from, to)?;
    }
    // Its mode may be one with which it cannot be opened any more.
    let opened = if kind.is_symlink() { None } else { Some(std::fs::File::open(to)?) };
    let (uid, gid) = (rustix::fs::Uid::from_raw(meta.uid()), rustix::fs::Gid::from_raw(meta.gid()));
    // Only root may give files away; anybody else keeps what it copied.
    let _ = rustix::fs::chownat(CWD, to, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
    let time = |seconds: i64, nanos: i64| rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = rustix::fs::Timestamps {
        last_access: time(meta.atime(), meta.atime_nsec()),
        last_modification: time(meta.mtime(), meta.mtime_nsec()),
    };
    if let Some(opened) = &opened {
        // Whoever gives it attributes writes to it.
        opened.set_permissions(PermissionsExt::from_mode(0o700))?;
        copy_attributes(from, to)?;
        let now = opened.metadata()?;
        let bits = if (now.uid(), now.gid()) == (meta.uid(), meta.gid()) { 0o7777 } else { 0o1777 };
        opened.set_permissions(PermissionsExt::from_mode(meta.mode() & bits))?;
    }
    rustix::fs::utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    opened.map_or(Ok(()), |opened| opened.sync_all())
}

/// Gives a file or folder the extended attributes of another, its access list among them; not those of overlayfs, and not the
/// labels that a host gives files by itself.
fn copy_attributes(from: &Path, to: &Path) -> Result<(), Errno> {
    let mut names = vec![0u8; 64 << 10];
    let length = match rustix::fs::llistxattr(from, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        length => length?,
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let label = name.starts_with(b"security.") && name != b"security.capability";
        if label || [&b"user.overlay."[..], b"trusted.overlay."].iter().any(|marks| name.starts_with(marks)) {
            continue;
        }
        let mut value = vec![0u8; 64 << 10];
        let length = rustix::fs::lgetxattr(from, name, &mut value[..])?;
        rustix::fs::lsetxattr(to, name, &value[..length], rustix::fs::XattrFlags::empty())?;
    }
    Ok(())
}

/// A name beside a path, for what is on its way and not whole.
fn beside(path: &Path, mark: &str) -> PathBuf {
    let mut name = path.as_os_str().as_bytes().to_vec();
    // Long names have no room for more: the mark goes to a name of its own in the same folder, made of the name's digest.
    let own = path.file_name().map_or(0, OsStr::len);
    if own + mark.len() + 1 > 255 {
        let digest = crate::image::digest(path.file_name().unwrap_or_default().as_bytes());
        return path.with_file_name(format!(".{digest}.{mark}"));
    }
    name.push(b'.');
    name.extend_from_slice(mark.as_bytes());
    PathBuf::from(OsStr::from_bytes(&name))
}

/// A path by which the standard library reaches a name in an open folder.
pub(crate) fn within(folder: &OwnedFd, name: &OsStr) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hole was written out, and a file as often as it had names.
    #[test]
    fn a_copy_takes_no_more_of_the_disk_than_what_it_is_of() {
        let room = tempfile::tempdir().unwrap();
        let at = |path: &str| room.path().join(path);
        std::fs::create_dir_all(at("from/deep")).unwrap();
        std::fs::File::create(at("from/hole")).unwrap().set_len(64 << 20).unwrap();
        std::fs::write(at("from/one"), "of several").unwrap();
        std::fs::set_permissions(at("from/one"), PermissionsExt::from_mode(0o4400)).unwrap();
        std::fs::hard_link(at("from/one"), at("from/deep/name")).unwrap();
        copy(&at("from"), &at("to")).unwrap();
        let meta = |path: &str| std::fs::metadata(at(path)).unwrap();
        assert_eq!((meta("to/hole").len(), meta("to/hole").blocks() < 2000), (64 << 20, true));
        assert_eq!((meta("to/one").ino(), meta("to/one").nlink()), (meta("to/deep/name").ino(), 2));
        assert_eq!((meta("to/one").mode() & 0o7777, meta("to/one").mtime()), (0o4400, meta("from/one").mtime()));
    }
}
