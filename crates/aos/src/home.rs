//! The home: the folder that holds everything of one AOS. Two homes are two independent systems.
//!
//! Start at [`Home::find`], which only looks, and [`Home::create`], which makes the folders. What always holds: folders
//! are 0700 and secrets 0600 from the moment they exist; no path below comes from anything but the flag and the environment.
//! Who else may read and write it is looked at in `private`. Absent here: what stands in the files (see [`crate::config`]).

mod holder;
mod private;

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use aos_abi::EffectId;

pub use holder::Holder;

use crate::env::Env;

/// Longest path of a Unix socket, in bytes: `sun_path` of unix(7) less its end mark.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Where everything of one AOS is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    config: PathBuf,
    data: PathBuf,
    state: PathBuf,
}

/// What of a home cannot be made again, in the order in which a backup copies it: the journal first, so that whatever it
/// speaks of is there when the rest is copied. What a later version keeps belongs into this list. Absent: local
/// weights, which can be fetched again, logs, `run/`, whose token is made anew, and `secrets/`, which must not travel.
pub const KEPT: &[(&str, Kind)] = &[
    ("journal.db", Kind::Journal),
    ("memory", Kind::Databases),
    ("workspaces", Kind::Files),
    ("undo", Kind::Changes),
    ("apps", Kind::Files),
    ("policy.yaml", Kind::Files),
    ("aos.toml", Kind::Files),
];

/// Something of a home that cannot be made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name, which is also its name in a backup.
    pub name: &'static str,
    /// Where it is; it may be missing.
    pub place: PathBuf,
    /// How it is copied.
    pub kind: Kind,
}

/// How something of a home is copied while a daemon runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As the journal.
    Journal,
    /// A folder with databases (`*.db`), which are copied as such, and other files.
    Databases,
    /// A file, or a folder of files, as they lie.
    Files,
    /// A folder of changes, of which only those below [`AT_REST`] are copied: one that is under way would be brought to its
    /// end by whoever opens the copy, in folders that go on without it.
    Changes,
}

/// Where changes to files that are at rest are, below [`Home::undo`].
pub const AT_REST: &str = "kept";

/// The changes to files in [`Home::undo`], or in a folder in it, by their effects.
///
/// # Errors
/// Where the folder cannot be listed; one that is missing holds none.
pub fn changes_in(dir: &Path) -> io::Result<Vec<(EffectId, PathBuf)>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let named = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        found.extend(named.map(|effect| (effect, path)));
    }
    Ok(found)
}

/// Why there is no home to work in.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither `--home` nor `AOS_HOME` nor `HOME` says where.
    #[error("no home folder is known")]
    Nowhere,
    /// The path of its socket does not fit into the operating system's limit.
    #[error("the path {path} is too long for a socket: {bytes} bytes, the most is {SOCKET_PATH_BYTES_MAX}")]
    TooLong {
        /// The socket.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// The operating system said no.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Others could change what the daemon trusts.
    #[error("{path} (mode {mode:o}, user {uid}) can be written by others than its user")]
    Shared {
        /// What.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// Whose it is.
        uid: u32,
    },
    /// A file or folder of the home is another user's.
    #[error("{path} belongs to another user, {user} (uid {uid}), who can change it")]
    Strange {
        /// What.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
        /// Its user's name, or `#` and the number of one without.
        user: String,
    },
    /// The home is another user's.
    #[error("{path} belongs to another user, {user} (uid {uid})")]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
        /// The same as `sudo` takes it: a name, or `#` and the number of one without.
        user: String,
    },
    /// What is to be the home is a file or a device.
    #[error("{path} is no folder")]
    NoFolder {
        /// What it is to be.
        path: PathBuf,
    },
    /// The home, or a folder of it, cannot be written: a file system mounted read-only, or permissions.
    #[error("the home cannot be written, and nothing was changed: {path}: {source}")]
    Unwritable {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The token file does not hold a token.
    #[error("{path} does not hold a token of 64 hex digits")]
    BadToken {
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    /// The way out.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Error::Nowhere => "say where with --home DIR, or set AOS_HOME".into(),
            Error::TooLong { .. } => "use a shorter path with --home DIR, or set AOS_HOME".into(),
            Error::Io { source, .. }
                if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
            {
                "make room on the disk and start again: everything acknowledged is there".into()
            }
            Error::Io { path, .. } => format!("check the owner and the permissions of {}", path.display()),
            Error::NoFolder { .. } => "say another place with --home DIR, or set AOS_HOME".into(),
            Error::Unwritable { path, .. } => {
                format!("make {} writable for you, or say another place with --home DIR", path.display())
            }
            Error::Shared { path, .. } => {
                format!("make it yours alone: chown $USER {0}; chmod go-w {0}", path.display())
            }
            Error::Strange { path, .. } => format!("make it yours: chown $USER {}", path.display()),
            Error::Foreign { user, .. } => {
                let user = if user.starts_with('#') { format!("'{user}'") } else { user.clone() };
                format!("say another place with --home DIR; or, where that one is meant: sudo -u {user} aos …")
            }
            Error::BadToken { path } => format!("remove {}; a new one is made", path.display()),
        }
    }
}

impl Home {
    /// Where the home is: `flag`, else `AOS_HOME`, else `~/.aos` if it is there, else the `XDG_*` folders where any of
    /// them is set, else `~/.aos`. Nothing is made.
    ///
    /// `XDG_RUNTIME_DIR` is not used: sessions by cron, sudo or SSH have none or another one, and would not find the daemon.
    ///
    /// # Errors
    /// [`Error::Nowhere`] and [`Error::TooLong`].
    pub fn find(flag: Option<&Path>, env: &Env) -> Result<Home, Error> {
        if let Some(root) = flag.or_else(|| env.path("AOS_HOME").map(Path::new)) {
            return Home::at(root);
        }
        let person = env.path("HOME").map(PathBuf::from).ok_or(Error::Nowhere)?;
        let dot = person.join(".aos");
        // The XDG specification has relative paths ignored.
        let xdg = |name: &str| env.path(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let (config, data, state) = (xdg("XDG_CONFIG_HOME"), xdg("XDG_DATA_HOME"), xdg("XDG_STATE_HOME"));
        if dot.exists() || (config.is_none() && data.is_none() && state.is_none()) {
            return Home::at(&dot);
        }
        let place = |given: Option<PathBuf>, default: &str| given.unwrap_or_else(|| person.join(default)).join("aos");
        Home {
            config: place(config, ".config"),
            data: place(data, ".local/share"),
            state: place(state, ".local/state"),
        }
        .checked()
    }

    /// The home whose everything is in one folder; made absolute against the working directory.
    ///
    /// # Errors
    /// [`Error::TooLong`], and [`Error::Io`] where there is no working directory.
    pub fn at(root: &Path) -> Result<Home, Error> {
        let root = std::path::absolute(root).map_err(|source| Error::Io {
            doing: "resolve",
            path: root.to_owned(),
            source,
        })?;
        Home { config: root.clone(), data: root.clone(), state: root }.checked()
    }

    fn checked(self) -> Result<Home, Error> {
        let path = self.socket();
        let bytes = path.as_os_str().len();
        if bytes > SOCKET_PATH_BYTES_MAX { Err(Error::TooLong { path, bytes }) } else { Ok(self) }
    }

    /// The folder to show people: with XDG the one of the data.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.data
    }
    /// `aos.toml`.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.config.join("aos.toml")
    }
    /// `policy.yaml`.
    #[must_use]
    pub fn policy_file(&self) -> PathBuf {
        self.config.join("policy.yaml")
    }
    /// `journal.db`.
    #[must_use]
    pub fn journal_file(&self) -> PathBuf {
        self.data.join("journal.db")
    }
    /// `journal.lock`, which is locked by whoever has the journal to itself.
    #[must_use]
    pub fn journal_lock(&self) -> PathBuf {
        self.journal_file().with_extension("lock")
    }
    /// Whether somebody has the journal to itself: a daemon that answers no more may have a last checkpoint to write, and
    /// whoever restores a copy or starts the next one must not meet it.
    #[must_use]
    pub fn holds_journal(&self) -> bool {
        fs::File::open(self.journal_lock()).is_ok_and(|lock| lock.try_lock_shared().is_err())
    }
    /// `workspaces/`, a folder for each process below.
    #[must_use]
    pub fn workspaces(&self) -> PathBuf {
        self.data.join("workspaces")
    }
    /// `undo/`, a folder for each change that can be taken back.
    #[must_use]
    pub fn undo(&self) -> PathBuf {
        self.data.join("undo")
    }

    /// The folders that hold it all; one, unless XDG says otherwise. No agent may ever see into them, but for workspaces.
    #[must_use]
    pub fn roots(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.config.clone(), self.data.clone(), self.state.clone()];
        folders.dedup();
        folders
    }
    /// Where all of it is: also what a link in the home leads to, such as a `policy.yaml` among a person's dotfiles, or
    /// weights on another disk.
    #[must_use]
    pub fn real_paths(&self) -> Vec<PathBuf> {
        let files = [self.config_file(), self.policy_file(), self.journal_file()];
        let paths = self.folders().into_iter().chain(files).map(|path| path.canonicalize().unwrap_or(path));
        // Models that make vectors have a folder of their own below.
        paths.chain(led_to(&self.memory(), 1)).chain(led_to(&self.models(), 1)).collect()
    }
    /// `memory/`.
    #[must_use]
    pub fn memory(&self) -> PathBuf {
        self.data.join("memory")
    }
    /// `memory/memory.db`, what was remembered.
    #[must_use]
    pub fn memory_file(&self) -> PathBuf {
        self.memory().join("memory.db")
    }
    /// `models/`, local weights.
    #[must_use]
    pub fn models(&self) -> PathBuf {
        self.data.join("models")
    }
    /// `apps/`.
    #[must_use]
    pub fn apps(&self) -> PathBuf {
        self.data.join("apps")
    }
    /// `secrets/`, a file for each secret that `policy.yaml` names. Not in backups.
    #[must_use]
    pub fn secrets(&self) -> PathBuf {
        self.config.join("secrets")
    }
    /// `run/`: what matters only while the daemon runs, and the token.
    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.state.join("run")
    }
    /// `logs/`.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.state.join("logs")
    }
    /// `run/aos.sock`, where the daemon listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.run().join("aos.sock")
    }
    /// `run/token`, the bearer token of the HTTP interface.
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        self.run().join("token")
    }
    /// `run/drift`, what the running daemon found changed when it started, a line each.
    #[must_use]
    pub fn drift_file(&self) -> PathBuf {
        self.run().join("drift")
    }
    /// `run/proven`, up to where the journal was proven, and how its file lay there then.
    #[must_use]
    pub fn proven_file(&self) -> PathBuf {
        self.run().join("proven")
    }
    /// `run/listen`, the address at which the running daemon serves HTTP.
    #[must_use]
    pub fn listen_file(&self) -> PathBuf {
        self.run().join("listen")
    }
    /// `run/start.lock`, held locked by the one client that starts the daemon.
    #[must_use]
    pub fn start_lock(&self) -> PathBuf {
        self.run().join("start.lock")
    }
    /// `logs/daemon.log`.
    #[must_use]
    pub fn daemon_log(&self) -> PathBuf {
        self.logs().join("daemon.log")
    }

    /// [`KEPT`], each with its place.
    #[must_use]
    pub fn kept(&self) -> Vec<Kept> {
        let place = |name: &str| match name {
            "aos.toml" => self.config_file(),
            "policy.yaml" => self.policy_file(),
            of_data => self.data.join(of_data),
        };
        KEPT.iter().map(|(name, kind)| Kept { name, place: place(name), kind: *kind }).collect()
    }

    /// The flags that make another `aos` use this home; none with XDG, which the environment says.
    #[must_use]
    pub fn as_arguments(&self) -> Vec<(&'static str, PathBuf)> {
        let one = self.config == self.data && self.data == self.state;
        if one { vec![("--home", self.data.clone())] } else { Vec::new() }
    }

    /// Every folder of the home; those that exist keep their permissions.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        let mut all = vec![self.config.clone(), self.data.clone(), self.state.clone()];
        all.extend([
            self.workspaces(),
            self.undo(),
            self.memory(),
            self.models(),
            self.apps(),
            self.secrets(),
            self.run(),
            self.logs(),
        ]);
        all.dedup();
        all
    }

    /// Whether it has no `aos.toml` yet.
    #[must_use]
    pub fn is_new(&self) -> bool {
        !self.config_file().exists()
    }

    /// Makes the folders that are missing, 0700, and makes those so that are there, empty and one's own. A folder that
    /// holds something keeps its permissions, since it may be more than a home; `aos doctor` says what others can read.
    ///
    /// # Errors
    /// [`Error::Io`], and as [`Home::check_private`].
    pub fn create(&self) -> Result<(), Error> {
        self.make(&[])
    }

    /// The same, but of what is [`Home::lost`], which stays missing until the daemon has told of it.
    ///
    /// # Errors
    /// As [`Home::create`].
    pub fn prepare(&self) -> Result<(), Error> {
        self.make(&self.lost())
    }

    /// The folders that cannot be made again and are missing, though the home has a journal: whoever has that had them.
    #[must_use]
    pub fn lost(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.memory(), self.workspaces(), self.undo()];
        folders.retain(|folder| self.journal_file().exists() && fs::symlink_metadata(folder).is_err());
        folders
    }

    fn make(&self, but: &[PathBuf]) -> Result<(), Error> {
        self.make_private()?;
        for path in self.folders().into_iter().filter(|path| !but.contains(path)) {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(|source| Error::Io { doing: "make the folder", path, source })?;
        }
        // What another user made meanwhile counts as there.
        self.check_private()
    }

    /// Writes a file of the home, 0600, whole or not at all.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_private(path: &Path, text: &str) -> Result<(), Error> {
        let failed = |source| Error::Io { doing: "write", path: path.to_owned(), source };
        let draft = draft(path, text).map_err(failed)?;
        fs::rename(&draft, path).map_err(failed)
    }

    /// The token of the HTTP interface; made from 32 random bytes, in hex, where there is none yet.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::BadToken`].
    pub fn token(&self) -> Result<String, Error> {
        let path = self.token_file();
        if let Some(token) = kept_token(&path)? {
            return Ok(token);
        }
        let mut bytes = [0u8; 32];
        getrandom::fill(&mut bytes).map_err(|error| Error::Io {
            doing: "draw random bytes for",
            path: path.clone(),
            source: io::Error::other(error),
        })?;
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let failed = |source| Error::Io { doing: "write", path: path.clone(), source };
        let draft = draft(&path, &format!("{token}\n")).map_err(failed)?;
        // Of several first commands at once one makes it, and the others take that one: a rename would put theirs
        // in the place of what a daemon has read already.
        let linked = fs::hard_link(&draft, &path);
        let _ = fs::remove_file(&draft);
        match linked {
            Ok(()) => Ok(token),
            // What is there and cannot be read is a link to nothing.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                kept_token(&path)?.ok_or(Error::BadToken { path })
            }
            Err(error) => Err(failed(error)),
        }
    }
}

/// The token in a file; `None` where there is no file.
fn kept_token(path: &Path) -> Result<Option<String>, Error> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Io { doing: "read", path: path.to_owned(), source }),
    };
    let token = text.trim();
    let good = token.len() == 64 && token.bytes().all(|byte| byte.is_ascii_hexdigit());
    if good { Ok(Some(token.to_owned())) } else { Err(Error::BadToken { path: path.to_owned() }) }
}

/// A whole file beside `path`, 0600, under a name that no other command and no other thread uses.
fn draft(path: &Path, text: &str) -> io::Result<PathBuf> {
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    let mut draft = path.to_owned();
    draft.add_extension(format!("new-{}-{}", std::process::id(), DRAFTS.fetch_add(1, Ordering::Relaxed)));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all())?;
    Ok(draft)
}

/// What links in a folder lead to, and those in folders below it down to some depth.
fn led_to(folder: &Path, depth: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_symlink() => found.extend(entry.path().canonicalize()),
            Ok(kind) if kind.is_dir() && depth > 0 => found.extend(led_to(&entry.path(), depth - 1)),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn find(env: &Env) -> Home {
        Home::find(None, env).unwrap()
    }

    #[test]
    fn the_flag_goes_before_the_variable_before_the_default() {
        let env = Env::from([("HOME", "/h"), ("AOS_HOME", "/a")]);
        assert_eq!(Home::find(Some(Path::new("/f")), &env).unwrap().root(), Path::new("/f"));
        assert_eq!(find(&env).root(), Path::new("/a"));
        assert_eq!(find(&Env::from([("HOME", "/h")])).root(), Path::new("/h/.aos"));
        assert!(matches!(Home::find(None, &Env::default()), Err(Error::Nowhere)));
    }

    #[test]
    fn xdg_is_honoured_only_where_there_is_no_dot_aos() {
        let person = tempfile::tempdir().unwrap();
        let home = person.path().to_str().unwrap();
        let env = Env::from([("HOME", home), ("XDG_CONFIG_HOME", "/c"), ("XDG_STATE_HOME", "relative")]);
        let found = find(&env);
        assert_eq!(found.config_file(), Path::new("/c/aos/aos.toml"));
        assert_eq!(found.journal_file(), person.path().join(".local/share/aos/journal.db"));
        assert_eq!(found.socket(), person.path().join(".local/state/aos/run/aos.sock"));
        fs::create_dir(person.path().join(".aos")).unwrap();
        assert_eq!(find(&env).root(), person.path().join(".aos"));
    }

    #[test]
    fn folders_are_private_and_the_token_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(&dir.path().join("home")).unwrap();
        assert!(home.is_new());
        home.create().unwrap();
        let token = home.token().unwrap();
        assert_eq!(token.len(), 64);
        assert_eq!(home.token().unwrap(), token);
        assert_eq!(home.exposed(), vec![]);
        fs::set_permissions(home.token_file(), fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(home.exposed(), vec![(home.token_file(), 0o644)]);
        fs::write(home.token_file(), "short").unwrap();
        assert!(matches!(home.token(), Err(Error::BadToken { .. })));
    }

    #[test]
    fn a_token_that_others_could_read_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(&dir.path().join("home")).unwrap();
        home.create().unwrap();
        let token = home.token().unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set(&home.token_file(), 0o644);
        set(home.root(), 0o755);
        home.discard_exposed_token().unwrap();
        assert_eq!(home.token().unwrap(), token, "the folder closes it off");
        set(&home.run(), 0o755);
        home.discard_exposed_token().unwrap();
        assert_ne!(home.token().unwrap(), token);
        let anew = home.token().unwrap();
        home.discard_exposed_token().unwrap();
        assert_eq!(home.token().unwrap(), anew);
    }

    #[test]
    fn a_token_that_links_to_nothing_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        home.create().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, home.token_file()).unwrap();
        let error = home.token().unwrap_err();
        assert!(matches!(error, Error::BadToken { .. }), "{error}");
        assert_eq!(fs::read_dir(home.run()).unwrap().count(), 1, "no draft is left");
        let token = "ab".repeat(32);
        fs::write(&elsewhere, &token).unwrap();
        assert_eq!(home.token().unwrap(), token);
    }

    #[test]
    fn two_that_make_the_token_at_once_have_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        home.create().unwrap();
        for _ in 0..20 {
            let start = std::sync::Barrier::new(8);
            let made: Vec<String> = std::thread::scope(|scope| {
                let makers: Vec<_> = (0..8)
                    .map(|_| {
                        scope.spawn(|| {
                            start.wait();
                            home.token().unwrap()
                        })
                    })
                    .collect();
                makers.into_iter().map(|maker| maker.join().unwrap()).collect()
            });
            assert!(made.iter().all(|token| *token == home.token().unwrap()), "{made:?}");
            assert_eq!(fs::read_dir(home.run()).unwrap().count(), 1, "no draft is left");
            fs::remove_file(home.token_file()).unwrap();
        }
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_said_at_once() {
        let error = Home::at(Path::new(&format!("/{}", "x".repeat(100)))).unwrap_err();
        assert!(matches!(error, Error::TooLong { bytes: 114, .. }), "{error}");
    }
}
