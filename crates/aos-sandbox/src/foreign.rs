//! What of a folder belongs to somebody whom commands cannot stand in for, so that they cannot change it.
//!
//! Start at [`foreign`]. An ordinary user can give a command one user and one group, its own: what an overlay would have to
//! take over for anybody else, it does not, and says `EOVERFLOW`. Nothing outside sees that answer, so whoever suspects it
//! looks here.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::identity::Identity;
use crate::walk::Walk;

/// How much of a folder is looked through: a tenth of a second.
const LOOKED_AT_MAX: usize = 20_000;

/// What the C library says for `EOVERFLOW`, as the command sees it.
pub const TOO_LARGE: &str = "Value too large for defined data type";

/// Something that no command can change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// Where it is in the folder; empty for the folder itself.
    pub path: PathBuf,
    /// Its user and group.
    pub owner: (u32, u32),
    /// Whether it is the user that is another, not only the group.
    pub user: bool,
}

/// The first in the order of names, among the first 20,000 files and folders, of those that `seen` says may be named; the
/// folder itself only where nothing in it is, since much can be done in one that is another's.
pub fn foreign(folder: &Path, seen: impl Fn(&Path) -> bool) -> Option<Foreign> {
    let identity = Identity::choose();
    let mut found = Walk::of(&folder.canonicalize().ok()?).ok()?.take(LOOKED_AT_MAX).filter_map(|(path, met)| {
        let owner = met.ok().map(|met| (met.meta.uid(), met.meta.gid()))?;
        (!identity.covers(owner) && seen(&path)).then(|| Foreign { path, owner, user: !identity.covers_user(owner.0) })
    });
    let first = found.next()?;
    if first.path.as_os_str().is_empty() { found.next().or(Some(first)) } else { Some(first) }
}

impl Foreign {
    /// What a person can do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        match (self.user, Identity::choose()) {
            (_, Identity::Translated) => "give it to a user and a group with smaller numbers".into(),
            (true, Identity::Own { .. }) => "give it to the daemon's user (chown)".into(),
            (false, Identity::Own { .. }) => {
                let group = group(self.owner.1).unwrap_or_else(|| self.owner.1.to_string());
                format!(
                    "give it the daemon's group (chgrp), or start the daemon in its group: `sg {group} -c 'aos up'`"
                )
            }
        }
    }
}

/// Whose it is, and what that means.
impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.as_os_str().is_empty() { Path::new(".") } else { &self.path };
        let path = path.to_string_lossy().escape_debug().collect::<String>();
        let (uid, gid) = self.owner;
        let whose = match self.user {
            true => format!("another user ({uid})"),
            false => format!("another group ({})", group(gid).unwrap_or_else(|| gid.to_string())),
        };
        write!(
            f,
            "`{path}` belongs to {whose} than the daemon's, and commands cannot change such files, give them other \
             permissions, or make anything in such folders: they are told \"{TOO_LARGE}\""
        )
    }
}

/// The name of a group, where it is one of this host's own.
fn group(gid: u32) -> Option<String> {
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    let named = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(gid)).then(|| name.to_owned())
    };
    groups.lines().find_map(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_their_names_and_others_their_numbers() {
        assert_eq!(group(0).as_deref(), Some("root"));
        assert_eq!(group(u32::MAX - 7), None);
        let it = Foreign { path: "a\nb".into(), owner: (0, 0), user: false };
        assert!(it.to_string().starts_with("`a\\nb` belongs to another group (root) than the daemon's"), "{it}");
        assert!(Foreign { user: true, ..it }.to_string().contains("another user (0)"));
    }

    #[test]
    fn what_is_found_is_the_first_that_commands_cannot_take_over() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(foreign(folder.path(), |_| true), None);
        if rustix::process::geteuid().is_root() && Identity::choose() == Identity::Translated {
            // Numbers for which there are none left inside.
            let owner = (7, 4_000_000_000);
            for name in ["b", "c"] {
                std::os::unix::fs::chown(folder.path().join(name), Some(owner.0), Some(owner.1)).unwrap();
            }
            assert_eq!(foreign(folder.path(), |_| true), Some(Foreign { path: "b".into(), owner, user: false }));
            let unseen = foreign(folder.path(), |path| path != Path::new("b"));
            assert_eq!(unseen, Some(Foreign { path: "c".into(), owner, user: false }));
            std::os::unix::fs::chown(folder.path(), Some(owner.1), None).unwrap();
            assert_eq!(foreign(folder.path(), |_| true), Some(Foreign { path: "b".into(), owner, user: false }));
            for name in ["b", "c"] {
                std::fs::remove_file(folder.path().join(name)).unwrap();
            }
            assert_eq!(
                foreign(folder.path(), |_| true),
                Some(Foreign { path: "".into(), owner: (owner.1, 0), user: true })
            );
        }
    }
}
