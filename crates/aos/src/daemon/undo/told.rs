//! What is told of a change: each path with what it was and is, and which come first where not all are told.
//!
//! Start at [`changed`]. What always holds: whoever names many files cannot push out of sight what runs later; how many paths
//! are left out is told, and all of them are in the record beside what is kept, which `aos undo --dry-run` shows whole.

use aos_abi::entry::{Changed, FileChange, FileImage};
use aos_abi::limits;
use aos_sandbox::{Altered, ChangeKind, Committed, Image, Kind};

use super::Note;

/// Names that build tools, test runners, editors and hosts run or read orders from when a person does something ordinary.
const RUN_BY_TOOLS: &[&str] = &[
    "build",
    "build.gradle",
    "build.gradle.kts",
    "build.rs",
    "build.xml",
    "build.zig",
    "cargo.toml",
    "cmakelists.txt",
    "compose.yaml",
    "compose.yml",
    "composer.json",
    "configure",
    "conftest.py",
    "docker-compose.yml",
    "dockerfile",
    "gemfile",
    "gnumakefile",
    "gruntfile.js",
    "gulpfile.js",
    "jenkinsfile",
    "justfile",
    "makefile",
    "meson.build",
    "noxfile.py",
    "package.json",
    "pom.xml",
    "procfile",
    "pyproject.toml",
    "rakefile",
    "setup.cfg",
    "setup.py",
    "sitecustomize.py",
    "tox.ini",
    "usercustomize.py",
    "vagrantfile",
    "webpack.config.js",
    "workspace",
    "taskfile.yml",
];

/// A change as it is journaled.
pub(super) fn changed(committed: &Committed, note: &Note) -> Changed {
    let mut altered = committed.altered();
    if committed.turn() % 2 == 1 {
        altered = altered.into_iter().map(reversed).collect();
    }
    let (changes, more) = first(altered, limits::CHANGED_PATHS_MAX);
    Changed {
        effect: note.effect,
        turn: committed.turn(),
        call_id: note.call_id.clone(),
        name: note.name,
        args: note.args.clone(),
        rule: note.rule.clone(),
        changes,
        more,
        undo_ms: Some(note.undo_ms),
        lost: None,
        undoes: note.undoes.clone(),
        restores: note.restores.clone(),
    }
}

/// The first `most` of what changed, as far as they fit, and how many more there are; both sorted by path. What runs later
/// is chosen first, then what replaces or deletes something, then what is new.
fn first(mut altered: Vec<Altered>, most: usize) -> (Vec<FileChange>, u64) {
    let all = altered.len();
    altered.sort_by_cached_key(|one| (!runs_later(one), one.before.is_none()));
    let mut left = limits::CHANGED_BYTES_MAX;
    let fits = |change: &FileChange| {
        let bytes = aos_context::json_bytes(change);
        let fits = bytes <= left;
        left = left.saturating_sub(bytes);
        fits
    };
    let mut told: Vec<FileChange> = altered.iter().take(most).map(file_change).take_while(fits).collect();
    told.sort_by(|a, b| a.path.cmp(&b.path));
    let more = (all - told.len()) as u64;
    (told, more)
}

/// Whether a path is one by which something may run that nobody looks at: executable, in a hidden folder or hidden itself
/// (hooks, settings, profiles), a link, or of a name that tools run.
fn runs_later(altered: &Altered) -> bool {
    let hidden = altered.path.iter().any(|part| part.as_encoded_bytes().starts_with(b"."));
    let name = altered.path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let kind = |image: &Image| image.kind == Kind::Link || (image.kind == Kind::File && image.mode & 0o111 != 0);
    hidden || altered.after.as_ref().is_some_and(kind) || RUN_BY_TOOLS.contains(&name.as_str())
}

/// The same change, the other way round.
pub(super) fn reversed(altered: Altered) -> Altered {
    let kind = match altered.kind {
        ChangeKind::Created => ChangeKind::Deleted,
        ChangeKind::Deleted => ChangeKind::Created,
        ChangeKind::Modified => ChangeKind::Modified,
    };
    Altered { path: altered.path, kind, before: altered.after, after: altered.before }
}

pub(super) fn file_change(altered: &Altered) -> FileChange {
    let kind = match altered.kind {
        ChangeKind::Created => "created",
        ChangeKind::Modified => "modified",
        ChangeKind::Deleted => "deleted",
    };
    FileChange {
        path: altered.path.to_string_lossy().into_owned(),
        kind: kind.to_owned(),
        before: altered.before.as_ref().map(file_image),
        after: altered.after.as_ref().map(file_image),
    }
}

fn file_image(image: &Image) -> FileImage {
    let is = match image.kind {
        Kind::File => "file",
        Kind::Folder => "folder",
        Kind::Link => "link",
        Kind::Other => "other",
    };
    let mode = format!("{:o}", image.mode);
    FileImage { is: is.to_owned(), mode, bytes: image.size, sha256: image.sha256.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand files whose names sort first hid a hook from the journal and from whoever looked.
    #[test]
    fn many_files_hide_nothing_that_runs_later() {
        let (home, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let layer = aos_sandbox::Layer::create(home.path().join("layer")).unwrap();
        let write = |path: &str, mode: u32| {
            let like = aos_sandbox::Like { mode, owner: (0, 0) };
            layer.write(work.path(), path.as_ref(), b"x", Some(like)).unwrap();
        };
        std::fs::write(work.path().join("replaced"), "mine").unwrap();
        write("replaced", 0o644);
        (0..1_200).for_each(|nth| write(&format!("!{nth:04}"), 0o644));
        let planted = [".git/hooks/pre-commit", "src/Makefile", "tools/run"];
        planted.iter().for_each(|path| write(path, if *path == "tools/run" { 0o755 } else { 0o644 }));
        let altered = layer.commit(work.path(), None, serde_json::Value::Null).unwrap().altered();
        let all = altered.len();
        let (told, more) = first(altered.clone(), limits::CHANGED_PATHS_MAX);
        assert_eq!((told.len(), more), (limits::CHANGED_PATHS_MAX, (all - limits::CHANGED_PATHS_MAX) as u64));
        let paths: Vec<&str> = told.iter().map(|change| change.path.as_str()).collect();
        for path in planted.iter().chain(&["replaced"]) {
            assert!(paths.contains(path), "{path}");
        }
        assert!(paths.is_sorted());
        assert_eq!(first(altered, usize::MAX).0.len(), all);
    }

    /// A thousand paths of 4 KiB, each byte of which JSON writes with six, made an entry that no client could read.
    #[test]
    fn long_paths_make_no_entry_that_is_too_long() {
        let altered = |nth: usize| Altered {
            path: format!("{nth:04}{}", "\u{1}".repeat(4_000)).into(),
            kind: ChangeKind::Created,
            before: None,
            after: None,
        };
        let (told, more) = first((0..1_000).map(altered).collect(), limits::CHANGED_PATHS_MAX);
        assert!(aos_context::json_bytes(&told) <= limits::CHANGED_BYTES_MAX + told.len() + 2);
        assert_eq!((told.len(), more), (21, 979));
    }
}
