//! Mounts: where on this machine the folders are that the policy's `mounts` name.
//!
//! Start at [`Mounts::host`]. What always holds: the daemon's own files are mounted nowhere, neither by their folder nor by
//! one above or below it; a path is taken as it is written, since the driver that opens it follows no symbolic link.

use std::path::{Path, PathBuf};

use aos_drivers::fs;
use aos_policy::settings::Mount;
use aos_policy::{Fault, Policy};

use crate::env::Env;
use crate::home::Home;

/// What is known of this machine.
#[derive(Clone, Debug)]
pub struct Mounts {
    /// The home folder of the daemon's user, which `~` stands for.
    person: Option<PathBuf>,
    /// The folders of the daemon's own files.
    closed: Vec<PathBuf>,
}

/// Why a folder is not mounted, whatever the policy says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `~` stands for nothing.
    #[error("`{host}` is below a home folder, and the daemon's user has none")]
    Nowhere {
        /// As it is written.
        host: String,
    },
    /// It is, holds or lies in the daemon's home.
    #[error("`{host}` would show the daemon's own files in {closed}")]
    Closed {
        /// As it is written.
        host: String,
        /// The daemon's folder.
        closed: PathBuf,
    },
}

impl Error {
    /// The way out.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Error::Nowhere { .. } => "write the whole path".into(),
            Error::Closed { .. } => "name a folder that neither holds nor lies in the home of aos".into(),
        }
    }
}

impl Mounts {
    /// With what this home and this environment say.
    #[must_use]
    pub fn new(home: &Home, env: &Env) -> Mounts {
        // Both are the daemon's own and trusted, links included; what is compared is where they lead.
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let person = env.path("HOME").map(|path| real(Path::new(path))).filter(|path| path.is_absolute());
        Mounts { person, closed: home.real_paths().into_iter().chain(home.roots()).collect() }
    }

    /// The home folder of whose the daemon is.
    #[must_use]
    pub fn person(&self) -> Option<&Path> {
        self.person.as_deref()
    }

    /// Where the folder of a mount is.
    ///
    /// # Errors
    /// Why it may not be mounted. Whether it is there is another matter.
    pub fn host(&self, mount: &Mount) -> Result<PathBuf, Error> {
        let host = mount.host.clone();
        let path = match (mount.host.strip_prefix("~/"), &self.person) {
            (Some(below), Some(person)) => person.join(below),
            (Some(_), None) => return Err(Error::Nowhere { host }),
            (None, _) => PathBuf::from(&mount.host),
        };
        // In one spelling: components leave out doubled and closing slashes.
        let path: PathBuf = path.components().collect();
        match self.closed.iter().find(|closed| closed.starts_with(&path) || path.starts_with(closed)) {
            Some(closed) => Err(Error::Closed { host, closed: closed.clone() }),
            None => Ok(path),
        }
    }

    /// What the drivers are given of some mounts. One that may not be is left out: then nothing is there.
    pub fn placed<'m>(&self, mounts: impl IntoIterator<Item = &'m Mount>) -> Vec<fs::Mount> {
        let one = |mount: &Mount| Some(fs::Mount { at: mount.at.clone(), host: self.host(mount).ok()? });
        mounts.into_iter().filter_map(one).collect()
    }

    /// The faults of a policy's mounts, for which the whole file is refused.
    #[must_use]
    pub fn faults(&self, policy: &Policy) -> Vec<Fault> {
        policy.mount_faults(|mount| self.host(mount).err().map(|error| (error.to_string(), error.hint())))
    }

    /// The mounts whose folder cannot be read now, each with the way out. The policy holds all the same.
    #[must_use]
    pub fn missing(&self, policy: &Policy) -> Vec<(String, String)> {
        let mounts = policy.roles().flat_map(|role| policy.mounts_of(role));
        let look = |mount: &Mount| {
            let place = fs::Mount { at: mount.at.clone(), host: self.host(mount).ok()? };
            let error = place.check().err()?;
            let hint = format!(
                "make {} a folder, named by its real path, or change {} in policy.yaml",
                place.host.display(),
                mount.rule
            );
            Some((format!("line {}: {}: {}", mount.line, place.host.display(), error.message), hint))
        };
        mounts.filter_map(look).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_never_mounted_nor_what_holds_it_or_lies_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (person, home) = (root.join("ann"), root.join("ann/state/aos"));
        std::fs::create_dir_all(&home).unwrap();
        std::os::unix::fs::symlink(&home, root.join("by-another-name")).unwrap();
        let person = person.to_str().unwrap();
        let env = Env::from([("HOME", person)]);
        // Told by a link, the home is where that leads.
        for named in [home.clone(), root.join("by-another-name")] {
            let mounts = Mounts::new(&Home::at(&named).unwrap(), &env);
            let said = |host: &str| {
                let text = format!(
                    "version: 1\ndefault_role: r\nroles:\n  r:\n    mounts: [{{host: '{host}', at: a, ops: [read]}}]\n"
                );
                let policy = Policy::parse(&text).unwrap();
                let faults = mounts.faults(&policy);
                faults.first().map(ToString::to_string)
            };
            let root = root.to_str().unwrap();
            for closed in [
                "~/state",
                "~/state/aos",
                "~/state/aos/",
                "~/state//aos/run",
                "~/state/aos/workspaces/1",
                &format!("{root}/ann"),
                &format!("{root}/ann/state/aos/policy.yaml"),
            ] {
                let fault = said(closed).unwrap_or_else(|| panic!("{closed} was taken"));
                assert!(
                    fault.starts_with("line 5, column 21: ") && fault.contains("the daemon's own files"),
                    "{fault}"
                );
            }
            for open in ["~/handbook", "~/state/aos-evil", "~/statement", &format!("{root}/bob")] {
                assert_eq!(said(open), None, "{open}");
            }
        }
        let homeless = Mounts::new(&Home::at(&home).unwrap(), &Env::default());
        let policy =
            Policy::parse("version: 1\ndefault_role: r\nroles:\n  r:\n    mounts: [{host: ~/a, at: a, ops: [read]}]\n");
        assert!(homeless.faults(&policy.unwrap())[0].message.contains("has none"));
    }
}
