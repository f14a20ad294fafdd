//! Why a file call failed, and what the agent is told.

use aos_abi::{CallError, Code};
use rustix::io::Errno;

/// Why a file call failed. Each variant is one thing an agent can do differently.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Use a path below the workspace.
    #[error("`{path}` is outside the workspace: {why}")]
    Outside { path: String, why: &'static str },
    /// Use another name.
    #[error("`{path}` {why}")]
    Name { path: String, why: &'static str },
    /// Name something below the workspace.
    #[error("this cannot be done to the workspace itself")]
    Root,
    /// Write it somewhere else.
    #[error("`{path}` is in a mounted folder, which can only be read")]
    Mounted { path: String },
    /// Have a person look at the folder.
    #[error("the folder that the policy mounts at `{at}` cannot be opened: {}", mount_words(*errno))]
    Mount { at: String, errno: Errno },
    /// Use the path that the link leads to.
    #[error("`{path}` is or goes through a symbolic link")]
    Link { path: String, leads: Option<String> },
    /// Use a regular file.
    #[error("`{path}` is {kind}, not a regular file")]
    Kind { path: String, kind: &'static str },
    /// Replace it instead of appending to it.
    #[error("`{path}` has {names} names (hard links), so appending would change a file somewhere else")]
    HardLinked { path: String, names: u64 },
    /// Work on it in pieces, or by a command.
    #[error("`{path}` has {size} bytes, the most for this call is {max}")]
    TooLarge { path: String, size: u64, max: u64 },
    /// Work on it by a command.
    #[error("`{path}` is not UTF-8 text (first fault at byte {at})")]
    NotText { path: String, at: usize },
    /// Mend the edit: `count` is how often its old text occurs.
    #[error("edits[{nth}]: its `old` text occurs {count} times in `{path}`, it must occur exactly once")]
    Occurs { path: String, nth: usize, count: usize },
    /// Mend the edit.
    #[error("edits[{nth}]: its `old` text is empty")]
    EmptyOld { nth: usize },
    /// Send at least one edit.
    #[error("there are no edits")]
    NoEdits,
    /// Read it again and try again.
    #[error("`{path}` was changed by somebody else in the meantime")]
    Changed { path: String },
    /// Mend the pattern.
    #[error("at `{at}`: bad {what}: {why}")]
    Pattern { what: &'static str, at: &'static str, why: String },
    /// Move it to somewhere else.
    #[error("`{path}` cannot be moved into itself")]
    IntoItself { path: String },
    /// Leave that folder where it is.
    #[error("`{path}` holds `{home}`, and the daemon's own files are closed to agents")]
    Home { path: String, home: String },
    /// Only a part was added.
    #[error("only {written} of {bytes} bytes were appended to `{path}`: {source}")]
    Short { path: String, written: u64, bytes: usize, source: std::io::Error },
    /// A symbolic link has taken the place of the workspace, or of a folder above it.
    #[error("the workspace `{path}` is not where it was: there is a symbolic link in its path")]
    Replaced { path: String },
    /// Leave the workspace alone until it is at rest.
    #[error(
        "the change of `{path}` stopped half-way and could not be taken back ({why}); that is tried again before anything \
             else changes there, and at the next start"
    )]
    Halted { path: String, why: String },
    /// Whatever the operating system says.
    #[error("{}", words(path, *errno))]
    System { path: String, errno: Errno },
}

impl Error {
    /// An operating system's refusal, about a path.
    pub(crate) fn system(path: &str) -> impl Fn(Errno) -> Error {
        let path = if path.is_empty() { ".".to_owned() } else { path.to_owned() };
        move |errno| Error::System { path: path.clone(), errno }
    }

    /// The same for the standard library's errors.
    pub(crate) fn io(path: &str) -> impl Fn(std::io::Error) -> Error {
        let system = Error::system(path);
        move |error| system(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// A path as it may be shown: control characters escaped, at most 200 characters.
    pub(crate) fn shown(path: &str) -> String {
        let mut shown: String = path.chars().take(200).flat_map(char::escape_debug).collect();
        if path.chars().nth(200).is_some() {
            shown.push('…');
        }
        shown
    }

    fn code(&self) -> Code {
        match self {
            Error::Outside { .. } | Error::Root | Error::Link { .. } | Error::Kind { .. } => Code::Perm,
            Error::Mounted { .. } | Error::Home { .. } => Code::Perm,
            Error::Mount { errno, .. } => code_of(*errno),
            Error::HardLinked { .. } | Error::Replaced { .. } => Code::Perm,
            Error::Name { .. } | Error::TooLarge { .. } | Error::NotText { .. } | Error::Occurs { .. } => Code::Inval,
            Error::EmptyOld { .. } | Error::NoEdits | Error::Pattern { .. } | Error::IntoItself { .. } => Code::Inval,
            Error::Changed { .. } => Code::Again,
            Error::Short { source, .. } => code_of(Errno::from_io_error(source).unwrap_or(Errno::IO)),
            Error::Halted { .. } => Code::Io,
            Error::System { errno, .. } => code_of(*errno),
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Error::Outside { .. } | Error::Root => {
                "paths are relative to the workspace, such as `notes/today.md`".into()
            }
            Error::Link { leads: Some(path), .. } => {
                format!("links are not followed; it leads to `{path}`, call again with that path")
            }
            Error::Link { leads: None, .. } => {
                "links are not followed; FS_LIST shows them, FS_DELETE removes the link itself".into()
            }
            Error::Mounted { .. } => "write it under another name in the workspace".into(),
            Error::Home { .. } => "leave that folder where it is; what is beside it can be moved and deleted".into(),
            Error::Replaced { .. } => {
                "this takes a person, who puts the folder back in its place, or starts an agent on its real path".into()
            }
            Error::Mount { .. } => "this takes a person: `aos doctor` names the folder of the host".into(),
            Error::Kind { .. } => "only regular files can be read and written".into(),
            Error::HardLinked { .. } => "FS_WRITE with mode `replace` gives the name a file of its own".into(),
            Error::TooLarge { .. } | Error::NotText { .. } => "EXEC_CMD can work on it with a command".into(),
            Error::Occurs { count: 0, .. } => {
                "read the file again and copy the text exactly, white space included".into()
            }
            Error::Occurs { .. } => "add lines before or after until the text is unique".into(),
            Error::Changed { .. } => "read it again, then edit what is there now".into(),
            Error::System { errno: Errno::ISDIR, .. } => "FS_LIST lists folders".into(),
            Error::System { errno: Errno::NOENT, .. } => "FS_LIST shows what there is".into(),
            Error::System { errno: Errno::EXIST | Errno::NOTEMPTY, .. } => {
                "choose another name, or delete what is there first".into()
            }
            Error::System { errno: Errno::ACCESS | Errno::PERM, .. } => {
                "leave it as it is, and write under another name; only a person can give leave".into()
            }
            Error::Halted { .. } => "look at the file before doing it again".into(),
            Error::System { errno: Errno::XDEV, .. } => "copy it with FS_READ and FS_WRITE, then delete it".into(),
            Error::Name { .. }
            | Error::EmptyOld { .. }
            | Error::NoEdits
            | Error::Pattern { .. }
            | Error::IntoItself { .. }
            | Error::Short { .. }
            | Error::System { .. } => return None,
        })
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> CallError {
        let mut told = CallError::new(error.code(), error.to_string());
        told.hint = error.hint();
        // By itself, too: the kernel knows what the rules say of that file, whose name somebody else chose.
        if let Error::Link { leads: Some(path), .. } = &error {
            told.partial = Some(serde_json::json!({ "leads_to": path }));
        }
        told
    }
}

/// The contract's code for an operating system's error number.
fn code_of(errno: Errno) -> Code {
    match errno {
        Errno::NOENT => Code::NoEnt,
        Errno::EXIST | Errno::NOTEMPTY => Code::Exist,
        Errno::NOTDIR => Code::NotDir,
        Errno::ISDIR => Code::IsDir,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Code::NoSpc,
        Errno::PERM | Errno::ACCESS | Errno::ROFS | Errno::LOOP | Errno::XDEV | Errno::BUSY => Code::Perm,
        Errno::INVAL | Errno::NAMETOOLONG => Code::Inval,
        Errno::MFILE | Errno::NFILE | Errno::AGAIN => Code::Again,
        _ => Code::Io,
    }
}

/// Without the host's path, which is none of an agent's business.
fn mount_words(errno: Errno) -> String {
    match errno {
        Errno::NOENT => "it is not there".to_owned(),
        Errno::LOOP => "its path goes through a symbolic link".to_owned(),
        Errno::NOTDIR => "it is no folder".to_owned(),
        other => std::io::Error::from(other).to_string().to_lowercase(),
    }
}

fn words(path: &str, errno: Errno) -> String {
    match errno {
        Errno::NOENT => format!("no file or folder `{path}`"),
        Errno::EXIST => format!("`{path}` exists already"),
        Errno::NOTEMPTY => format!("`{path}` is a folder that is not empty"),
        Errno::NOTDIR => format!("a part of `{path}` is no folder"),
        Errno::ISDIR => format!("`{path}` is a folder"),
        Errno::NOSPC | Errno::DQUOT => format!("no space is left for `{path}`"),
        Errno::ACCESS | Errno::PERM => format!("the operating system does not permit this on `{path}`"),
        Errno::ROFS => format!("`{path}` is on a file system that is read-only"),
        Errno::NAMETOOLONG => format!("`{path}` is too long a name"),
        Errno::XDEV => format!("`{path}` is on another file system"),
        other => format!("`{path}`: {}", std::io::Error::from(other).to_string().to_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_become_the_codes_of_the_contract() {
        let code = |errno| CallError::from(Error::System { path: "a".into(), errno }).code;
        assert_eq!(
            [Errno::NOENT, Errno::EXIST, Errno::NOTDIR, Errno::ISDIR, Errno::NOSPC, Errno::DQUOT].map(code),
            [Code::NoEnt, Code::Exist, Code::NotDir, Code::IsDir, Code::NoSpc, Code::NoSpc]
        );
        assert_eq!(
            [Errno::ACCESS, Errno::PERM, Errno::ROFS, Errno::IO, Errno::NODEV].map(code),
            [Code::Perm, Code::Perm, Code::Perm, Code::Io, Code::Io]
        );
    }

    #[test]
    fn messages_show_no_control_characters() {
        assert_eq!(Error::shown("a\u{1b}[2J\n"), "a\\u{1b}[2J\\n");
        assert_eq!(Error::shown(&"x".repeat(300)).chars().count(), 201);
    }
}
