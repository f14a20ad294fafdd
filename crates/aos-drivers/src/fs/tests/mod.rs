//! The file driver as a caller meets it: whole calls on real folders.

mod examining;
mod home;
mod inside;
mod labelled;
mod listing;
mod mounted;
mod reading;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use aos_abi::{CallError, Code, Syscall};
use serde_json::{Value, json};

use super::{Done, Driver, Keeping, Mount, Place};

/// A workspace called `work` with a neighbour called `work-evil`, as the prefix mistake wants them.
pub(super) struct Room {
    home: tempfile::TempDir,
    driver: Driver,
    keeps: bool,
    calls: AtomicU32,
}

impl Room {
    pub(super) fn new() -> Room {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("work")).unwrap();
        std::fs::create_dir(home.path().join("work-evil")).unwrap();
        std::fs::write(home.path().join("work-evil/secret"), "evil").unwrap();
        std::fs::create_dir(home.path().join("layers")).unwrap();
        Room { home, driver: Driver::new(), keeps: true, calls: AtomicU32::new(0) }
    }

    pub(super) fn work(&self) -> PathBuf {
        self.home.path().join("work")
    }

    /// The workspace, and the host's folder `book` at `handbook` where there is one.
    pub(super) fn place(&self) -> Place {
        let host = self.home.path().canonicalize().unwrap().join("book");
        let mounts = host.exists().then(|| Mount { at: "handbook".into(), host });
        Place { root: self.work(), mounts: mounts.into_iter().collect() }
    }

    pub(super) fn outside(&self) -> PathBuf {
        self.home.path().join("work-evil")
    }

    pub(super) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.work().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(super) fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.work().join(path)).unwrap()
    }

    pub(super) fn link(&self, to: impl AsRef<Path>, at: &str) {
        std::os::unix::fs::symlink(to, self.work().join(at)).unwrap();
    }

    pub(super) fn call(&self, name: &str, args: Value) -> Result<Value, CallError> {
        self.done(name, args).answer
    }

    /// A call that is asked to stop where this says so.
    pub(super) fn call_until(&self, name: &str, args: Value, stop: &dyn Fn() -> bool) -> Result<Value, CallError> {
        let call = Syscall::parse(name, &args.to_string()).unwrap();
        self.driver.perform(&call, &self.place(), None, stop).answer
    }

    /// A call whose change is kept, in a layer of its own; or made at once, in a room that says so.
    pub(super) fn done(&self, name: &str, args: Value) -> Done {
        let call = Syscall::parse(name, &args.to_string()).unwrap();
        let nth = self.calls.fetch_add(1, Ordering::Relaxed);
        let layer = self.home.path().join(format!("layers/{nth}"));
        let keeping = self.keeps.then_some(Keeping { layer, note: json!(nth) });
        self.driver.perform(&call, &self.place(), keeping, &|| false)
    }

    /// A room where changes are made at once.
    pub(super) fn without_layers() -> Room {
        Room { keeps: false, ..Room::new() }
    }

    pub(super) fn code(&self, name: &str, args: Value) -> Code {
        self.call(name, args).unwrap_err().code
    }

    /// The names in the workspace, drafts included.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.work())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// Every call, aimed at one path.
pub(super) fn every_call(path: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("FS_READ", json!({ "path": path })),
        ("FS_WRITE", json!({ "path": path, "content": "x" })),
        ("FS_WRITE", json!({ "path": path, "content": "x", "mode": "append" })),
        ("FS_WRITE", json!({ "path": path, "content": "x", "mode": "create" })),
        ("FS_EDIT", json!({ "path": path, "edits": [{ "old": "evil", "new": "x" }] })),
        ("FS_LIST", json!({ "path": path })),
        ("FS_SEARCH", json!({ "path": path, "pattern": "evil" })),
        ("FS_DELETE", json!({ "path": path })),
        ("FS_MOVE", json!({ "from": path, "to": "taken" })),
        ("FS_MOVE", json!({ "from": "mine", "to": path })),
    ]
}
