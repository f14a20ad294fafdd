//! What differs between two folders: what a dry run would have changed.
//!
//! Start at [`Difference::between`]. What always holds: no link is followed, the order is that of the paths, and the diff
//! is bounded; what is not shown in it is in the list.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use aos_abi::api::LinkView;
use aos_drivers::fs::{Differences, SHOWN_BYTES_MAX};
use serde::Serialize;

/// Most paths that are listed: more than some commands of 200,000 each leave, so that none is pushed out of sight.
const PATHS_MAX: usize = 1_000_000;

/// What differs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Each path with what happened to it, sorted.
    pub changes: Vec<Changed>,
    /// Paths beyond those that are listed.
    pub more: usize,
    /// The same as a unified diff, as far as it is text.
    pub diff: String,
}

/// One path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// Relative to the folder.
    pub path: String,
    /// `created`, `modified` or `deleted`.
    pub kind: &'static str,
    /// Where its permissions change: those before and after, in octal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<[String; 2]>,
    /// Where it leads, where it is a link by then, or was one and is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkView>,
}

/// Files that a person had put into the second folder before anything was changed there: their paths and bytes.
pub type Brought = BTreeMap<PathBuf, Vec<u8>>;

impl Difference {
    /// From one folder to another, but for what a person had brought into the other one.
    ///
    /// # Errors
    /// Where one of them cannot be read.
    pub fn between(before: &Path, after: &Path, brought: &Brought) -> io::Result<Difference> {
        let (old, new) = (entries(before)?, entries(after)?);
        let (mut found, mut diffs) = (Difference::default(), Differences::default());
        let paths: std::collections::BTreeSet<&PathBuf> = old.keys().chain(new.keys()).collect();
        for path in paths {
            let (was, is) = (old.get(path), new.get(path));
            let own = brought.get(path).filter(|_| is.is_some());
            let kind = match (was, is) {
                _ if own.is_some_and(|own| holds(&after.join(path), is, own)) => continue,
                _ if own.is_some() => "modified",
                (None, _) => "created",
                (_, None) => "deleted",
                (Some(was), Some(is)) if same(&before.join(path), was, &after.join(path), is) => continue,
                _ => "modified",
            };
            if found.changes.len() == PATHS_MAX {
                found.more += 1;
                continue;
            }
            let modes = was.zip(is).map(|(was, is)| [was, is].map(mode)).filter(|[was, is]| was != is);
            let (at, meta) = if is.is_some() { (after, is) } else { (before, was) };
            let target = meta.filter(|meta| meta.is_symlink()).and_then(|_| std::fs::read_link(at.join(path)).ok());
            let link = target.map(|to| leads(before, path, &to));
            found.changes.push(Changed { path: path.to_string_lossy().into_owned(), kind, modes, link });
            if !diffs.is_full() {
                let bytes = |folder: &Path, meta: Option<&Metadata>| bytes(&folder.join(path), meta);
                let first = own.cloned().or_else(|| bytes(before, was));
                diffs.add(&path.to_string_lossy(), first, bytes(after, is));
            }
        }
        found.diff = diffs.into_text();
        Ok(found)
    }
}

/// Where a link at `path` in `folder` leads. Only its words are looked at: links on the way are told by themselves.
pub(crate) fn leads(folder: &Path, path: &Path, to: &Path) -> LinkView {
    let whole = folder.join(path.parent().unwrap_or(Path::new(""))).join(to);
    let mut plain = PathBuf::new();
    for part in whole.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    LinkView { to: to.to_string_lossy().into_owned(), out: !plain.starts_with(folder) }
}

/// Everything below a folder.
fn entries(root: &Path) -> io::Result<BTreeMap<PathBuf, Metadata>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let (path, meta) = (folder.join(entry.file_name()), entry.metadata()?);
            if meta.is_dir() {
                folders.push(path.clone());
            }
            found.insert(path, meta);
        }
    }
    Ok(found)
}

fn mode(meta: &Metadata) -> String {
    format!("{:03o}", meta.permissions().mode() & 0o7777)
}

fn same(old: &Path, was: &Metadata, new: &Path, is: &Metadata) -> bool {
    if was.file_type() != is.file_type() {
        return false;
    }
    if was.is_symlink() {
        return std::fs::read_link(old).ok() == std::fs::read_link(new).ok();
    }
    let modes = was.permissions().mode() == is.permissions().mode();
    // Pipes and the like are not copied; a folder is told by what is in it.
    modes && (!was.is_file() || (was.len() == is.len() && same_bytes(old, new).unwrap_or(false)))
}

/// Whether a file holds just these bytes.
fn holds(path: &Path, meta: Option<&Metadata>, bytes: &[u8]) -> bool {
    let as_long = meta.is_some_and(|meta| meta.is_file() && meta.len() == bytes.len() as u64);
    as_long && std::fs::read(path).is_ok_and(|read| read == bytes)
}

fn same_bytes(old: &Path, new: &Path) -> io::Result<bool> {
    let (mut old, mut new) = (std::fs::File::open(old)?, std::fs::File::open(new)?);
    let (mut a, mut b) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let length = old.read(&mut a)?;
        if length == 0 {
            return Ok(new.read(&mut b)? == 0);
        }
        new.read_exact(&mut b[..length])?;
        if a[..length] != b[..length] {
            return Ok(false);
        }
    }
}

/// A small file's bytes; of nothing none; `None` for what is not shown.
fn bytes(path: &Path, meta: Option<&Metadata>) -> Option<Vec<u8>> {
    match meta {
        None => Some(Vec::new()),
        Some(meta) if meta.is_file() && meta.len() <= SHOWN_BYTES_MAX => std::fs::read(path).ok(),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_changed_and_deleted_is_told() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for root in [&a, &b] {
            std::fs::create_dir(root.path().join("d")).unwrap();
            std::fs::write(root.path().join("d/same"), "same").unwrap();
            std::fs::write(root.path().join("edited"), "one\n").unwrap();
            std::os::unix::fs::symlink("/nowhere", root.path().join("link")).unwrap();
        }
        assert_eq!(Difference::between(a.path(), b.path(), &Brought::new()).unwrap(), Difference::default());
        std::fs::write(b.path().join("edited"), "two\n").unwrap();
        std::fs::write(b.path().join("new"), "n\n").unwrap();
        std::fs::remove_file(b.path().join("d/same")).unwrap();
        let found = Difference::between(a.path(), b.path(), &Brought::new()).unwrap();
        let told: Vec<_> = found.changes.iter().map(|change| (change.path.as_str(), change.kind)).collect();
        assert_eq!(told, [("d/same", "deleted"), ("edited", "modified"), ("new", "created")]);
        assert!(found.diff.contains("-one\n+two\n") && found.diff.contains("+n\n"), "{}", found.diff);
    }

    #[test]
    fn what_becomes_executable_is_told() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (root, modes) in [(&a, [0o644, 0o755, 0o644]), (&b, [0o755, 0o4755, 0o644])] {
            for (name, mode) in ["run", "same", "edited"].into_iter().zip(modes) {
                let path = root.path().join(name);
                std::fs::write(&path, if name == "edited" { root.path().to_str().unwrap() } else { "text\n" }).unwrap();
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            }
        }
        let found = Difference::between(a.path(), b.path(), &Brought::new()).unwrap();
        let told: Vec<_> = found.changes.iter().map(|one| (one.path.as_str(), one.kind, one.modes.clone())).collect();
        let modes = |was: &str, is: &str| Some([was.to_owned(), is.to_owned()]);
        let (run, same) = (modes("644", "755"), modes("755", "4755"));
        assert_eq!(told, [("edited", "modified", None), ("run", "modified", run), ("same", "modified", same)]);
    }

    /// A link to a key of the person's was told as a file.
    #[test]
    fn where_links_lead_is_told() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let link = |root: &Path, to: &str, path: &str| std::os::unix::fs::symlink(to, root.join(path)).unwrap();
        std::fs::create_dir(b.path().join("d")).unwrap();
        let own = a.path().join("d/x").to_str().unwrap().to_owned();
        for (path, to) in [
            ("d/above", "../../outside"),
            ("d/beside", "../x/../y"),
            ("d/key", "/etc/passwd"),
            ("d/own", &own),
            ("turned", "new"),
        ] {
            link(b.path(), to, path);
        }
        link(a.path(), "/etc", "gone");
        std::fs::write(a.path().join("turned"), "a file").unwrap();
        let found = Difference::between(a.path(), b.path(), &Brought::new()).unwrap();
        let told: Vec<_> = found.changes.iter().map(|one| (&*one.path, one.link.clone())).collect();
        let leads = |to: &str, out: bool| Some(LinkView { to: to.to_owned(), out });
        assert_eq!(
            told,
            [
                ("d", None),
                ("d/above", leads("../../outside", true)),
                ("d/beside", leads("../x/../y", false)),
                ("d/key", leads("/etc/passwd", true)),
                ("d/own", leads(&own, false)),
                ("gone", leads("/etc", true)),
                ("turned", leads("new", false)),
            ]
        );
    }
}
