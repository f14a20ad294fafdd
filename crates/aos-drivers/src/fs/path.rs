//! Paths as agents write them, parsed: relative to the workspace, without `..`, in one spelling.

use super::draft::Draft;
use super::error::Error;

/// Longest path, in bytes: `PATH_MAX` of Linux less its closing zero.
pub(super) const PATH_BYTES_MAX: usize = 4095;
/// Longest name of one file or folder, in bytes: `NAME_MAX` of Linux.
const NAME_BYTES_MAX: usize = 255;

/// A path beneath the workspace: no empty, `.` or `..` component, no control character. Empty is the workspace itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beneath {
    path: String,
    names_folder: bool,
}

impl Beneath {
    /// Reads a path; `./a//b/` is `a/b`, and `.` or nothing is the workspace itself.
    ///
    /// # Errors
    /// `EPERM` where it would leave the workspace, `EINVAL` where no file can have that name.
    pub(crate) fn parse(text: &str) -> Result<Beneath, Error> {
        let bad = |why| Error::Name { path: Error::shown(text), why };
        if text.contains(char::is_control) {
            return Err(bad("holds a control character"));
        }
        if text.len() > PATH_BYTES_MAX {
            return Err(bad("is longer than 4095 bytes"));
        }
        if text.starts_with('/') {
            return Err(Error::Outside { path: Error::shown(text), why: "it is absolute" });
        }
        let mut path = String::with_capacity(text.len());
        for name in text.split('/') {
            match name {
                "" | "." => continue,
                ".." => return Err(Error::Outside { path: Error::shown(text), why: "it holds `..`" }),
                name if name.len() > NAME_BYTES_MAX => return Err(bad("has a name longer than 255 bytes")),
                name => {
                    if !path.is_empty() {
                        path.push('/');
                    }
                    path.push_str(name);
                }
            }
        }
        Ok(Beneath { names_folder: text.ends_with('/'), path })
    }

    /// The path; empty for the workspace itself.
    pub(crate) fn as_str(&self) -> &str {
        &self.path
    }

    /// The path as the kernel wants it: `.` for the workspace itself.
    pub(crate) fn for_kernel(&self) -> &str {
        if self.path.is_empty() { "." } else { &self.path }
    }

    /// The folder above and the last name.
    ///
    /// # Errors
    /// `EPERM` for the workspace itself, which has neither.
    pub(crate) fn split(&self) -> Result<(&str, &str), Error> {
        match self.path.rsplit_once('/') {
            Some((folder, name)) => Ok((folder, name)),
            None if self.path.is_empty() => Err(Error::Root),
            None => Ok(("", &self.path)),
        }
    }

    /// The same path, where it can name a file.
    ///
    /// # Errors
    /// `EINVAL` where it ends in a slash.
    pub(crate) fn of_file(self) -> Result<Beneath, Error> {
        if self.names_folder && !self.path.is_empty() {
            return Err(Error::Name { path: format!("{}/", self.path), why: "ends in `/`, so it names a folder" });
        }
        Ok(self)
    }

    /// The same path, where something may be made there.
    ///
    /// # Errors
    /// `EINVAL` where no listing would show it.
    pub(crate) fn of_new(self) -> Result<Beneath, Error> {
        if Draft::is_in(&self.path) {
            let why = "holds a name that files have only while they are written, and that no listing shows";
            return Err(Error::Name { path: self.path, why });
        }
        Ok(self)
    }

    /// The path of something in this folder.
    pub(crate) fn join(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aos_abi::{CallError, Code};

    fn code(text: &str) -> Code {
        CallError::from(Beneath::parse(text).unwrap_err()).code
    }

    #[test]
    fn one_spelling_for_one_path() {
        for text in ["a/b", "./a/b", "a//b", "a/./b/", "././a///b"] {
            assert_eq!(Beneath::parse(text).unwrap().as_str(), "a/b", "{text}");
        }
        for text in ["", ".", "./", "././."] {
            assert_eq!(Beneath::parse(text).unwrap().as_str(), "", "{text}");
        }
        assert_eq!(Beneath::parse("a..b/...").unwrap().as_str(), "a..b/...", "dots inside a name are a name");
    }

    #[test]
    fn what_would_leave_is_refused_as_not_permitted() {
        for text in ["/etc/passwd", "//etc", "..", "../work-evil", "a/../../b", "a/..", "./.."] {
            assert_eq!(code(text), Code::Perm, "{text}");
        }
    }

    #[test]
    fn what_no_file_can_be_called_is_refused_as_invalid() {
        for text in ["a\0b", "a\nb", "a\u{1b}[2J", "\u{85}", "\u{7f}", &"x".repeat(256), &"x/".repeat(2048)] {
            assert_eq!(code(text), Code::Inval, "{text:?}");
        }
    }
}
