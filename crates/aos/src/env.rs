//! The environment as a value, so that nothing below `main` reads the process's own and tests need not change it.
//!
//! Start at [`Env::of_process`]. Variables whose value is not UTF-8 are kept for paths and absent for text.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// A copy of an environment.
#[derive(Clone, Debug, Default)]
pub struct Env(BTreeMap<String, OsString>);

impl Env {
    /// The environment of this program, as it is now.
    #[must_use]
    pub fn of_process() -> Env {
        Env(std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect())
    }

    /// A variable as text; `None` where it is unset, empty or not UTF-8.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(|value| value.to_str()).filter(|value| !value.is_empty())
    }

    /// A variable as a path; `None` where it is unset or empty.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<&OsStr> {
        self.0.get(name).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// The names of the variables that hold text.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Env {
    fn from(pairs: [(&str, &str); N]) -> Self {
        Env(pairs.into_iter().map(|(name, value)| (name.to_owned(), OsString::from(value))).collect())
    }
}
