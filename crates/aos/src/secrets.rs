//! Secrets: where the values are that the policy's `secrets` name.
//!
//! Start at [`Secrets::value`]. A value is the text of `secrets/NAME` in the home, readable by its owner alone, else the
//! variable NAME of the daemon's environment. It is read when it is used, so that a new one holds at once. What always
//! holds: an error never shows a value; a file that others can read is refused, not passed over.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use aos_abi::{CallError, Code};

use crate::env::Env;

/// Largest file that is read, in bytes; no header may be larger.
const BYTES_MAX: u64 = 8 << 10;

/// Where values are looked for.
#[derive(Clone, Debug)]
pub struct Secrets {
    folder: PathBuf,
    env: Env,
}

/// Why there is no value.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither the file nor the variable is there.
    #[error("the secret {name} has no value")]
    Missing {
        /// Of which.
        name: String,
        /// Where the file would be.
        path: PathBuf,
    },
    /// The name could lead elsewhere.
    #[error("`{name}` is no name of a secret: letters, digits and `_`")]
    Name {
        /// As it is written.
        name: String,
    },
    /// Others can read or change it, or it is no plain file of this user.
    #[error("the secret {path} is open to others (mode {mode:03o}) or no file of this user")]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It cannot be read.
    #[error("the secret {path} cannot be read: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
}

impl Error {
    /// The way out.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Error::Missing { name, path } => format!(
                "(umask 077; cat > {}) takes it from the terminal; or export {name} before the daemon starts",
                path.display()
            ),
            Error::Name { .. } => "write a name such as `GITHUB_TOKEN` in policy.yaml".into(),
            Error::Open { path, .. } => {
                format!("chmod 600 {}, and replace the secret where others may have read it", path.display())
            }
            Error::Io { path, .. } => format!("check the owner and the permissions of {}", path.display()),
        }
    }
}

impl Secrets {
    /// Values from this folder, and from this environment where the folder has none.
    #[must_use]
    pub fn new(folder: PathBuf, env: Env) -> Secrets {
        Secrets { folder, env }
    }

    /// The value of this name.
    ///
    /// # Errors
    /// [`Error`].
    pub fn value(&self, name: &str) -> Result<String, Error> {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(Error::Name { name: name.to_owned() });
        }
        let path = self.folder.join(name);
        match read(&path) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let value = self.env.text(name).map(str::to_owned);
                value.ok_or_else(|| Error::Missing { name: name.to_owned(), path })
            }
            read => read,
        }
    }

    /// Those that a role may have put in, as the network drivers take them.
    pub(crate) fn of_role(&self, role: Option<&aos_policy::Role>) -> Vec<aos_drivers::net::Secret> {
        let secrets = role.map(|role| role.secrets.as_slice()).unwrap_or_default();
        let as_driven = |secret: &aos_policy::settings::Secret| {
            // Which file it is, is a person's business; the agent learns that there is nothing.
            let told = |error: Error| {
                tracing::warn!(%error, "a secret cannot be put in");
                CallError::new(Code::Io, format!("the secret {} cannot be put in", secret.name))
                    .hint("this is for a person to mend: aos doctor")
            };
            let value = self.value(&secret.name).map_err(told);
            aos_drivers::net::Secret::new(&secret.name, &secret.host, secret.port, &secret.header, value)
        };
        secrets.iter().map(as_driven).collect()
    }
}

fn read(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    // Neither a link nor a pipe that keeps its reader waiting.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    let mode = meta.mode() & 0o777;
    if mode & 0o077 != 0 || !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::Open { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_file_goes_before_the_environment_and_is_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let secrets =
            Secrets::new(dir.path().to_owned(), Env::from([("A", "from the environment"), ("B", "of B itself")]));
        let file = dir.path().join("A");
        fs::write(&file, "from the file\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let error = secrets.value("A").unwrap_err();
        assert!(matches!(error, Error::Open { mode: 0o640, .. }), "{error}");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(secrets.value("A").unwrap(), "from the file\n");
        assert_eq!(secrets.value("B").unwrap(), "of B itself");
        std::os::unix::fs::symlink(&file, dir.path().join("C")).unwrap();
        assert!(matches!(secrets.value("C"), Err(Error::Io { .. })), "a link is not followed");
        assert!(matches!(secrets.value("D"), Err(Error::Missing { .. })));
        for name in ["", "../A", "a/b", ".."] {
            assert!(matches!(secrets.value(name), Err(Error::Name { .. })), "{name}");
        }
    }
}
