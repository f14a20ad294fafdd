//! What the tests share: a workspace, a command in it, and the question whether a process is alive.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its own part")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use aos_sandbox::{Cancel, Error, Helper, Isolation, Outcome, Spec, UnsandboxedConsent, probe, run};

/// A deadline no healthy command reaches, so that a slow machine fails no test.
pub const LONG: Duration = Duration::from_secs(120);

/// Where a helper is that every user can run, in a run as another user: the folder it was built in may be one's own.
pub const HELPER: &str = "AOS_TEST_SANDBOX_HELPER";

/// Where this is `required`, a test that the host cannot take fails instead of passing unseen.
pub const SANDBOX: &str = "AOS_TEST_SANDBOX";

/// Says that something was not tried.
pub fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
    let required = std::env::var_os(SANDBOX).is_some_and(|value| value == "required");
    assert!(!required, "{why}, and {SANDBOX} says that it is required");
}

/// A workspace behind walls, or nothing where the host cannot do it, said aloud.
pub fn walled() -> Option<Rig> {
    let rig = Rig::new(Isolation::Full);
    let report = probe(&helper(), rig.workspace.path()).expect("the helper starts");
    for finding in report.missing() {
        skipped(&format!("no {}: {:?}; {}", finding.feature, finding.state, finding.feature.remedy()));
    }
    report.can_isolate().then_some(rig)
}

/// The helper that was built beside the tests.
pub fn helper() -> Helper {
    let built = || PathBuf::from(env!("CARGO_BIN_EXE_aos-sandbox-helper"));
    Helper::new(std::env::var_os(HELPER).map_or_else(built, PathBuf::from), [])
}

/// Runs the whole of this test program once more as a user without any rights, but for the test that asks for it.
pub fn again_as_an_ordinary_user(but: &str) {
    again(&["--clear-groups"], &["--skip", but]);
}

/// Runs one test once more, as such a user who is also in another group.
pub fn again_in_a_further_group(group: u32, test: &str) {
    again(&["--groups", &group.to_string()], &["--exact", test, "--nocapture"]);
}

fn again(groups: &[&str], tests: &[&str]) {
    let elsewhere = tempfile::tempdir().expect("there is room");
    std::fs::set_permissions(elsewhere.path(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let rooms = elsewhere.path().join("rooms");
    std::fs::create_dir(&rooms).expect("there is room");
    std::fs::set_permissions(&rooms, std::fs::Permissions::from_mode(0o1777)).expect("it is ours");
    let (me, helper) = (elsewhere.path().join("this-test"), elsewhere.path().join("helper"));
    std::fs::copy(std::env::current_exe().expect("it runs"), &me).expect("there is room");
    std::fs::copy(env!("CARGO_BIN_EXE_aos-sandbox-helper"), &helper).expect("there is room");
    let status = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--inh-caps=-all"])
        .args(groups)
        .arg("--")
        .arg(me)
        .args(tests)
        .env("TMPDIR", &rooms)
        .env(HELPER, &helper)
        .current_dir("/")
        .status()
        .expect("setpriv starts");
    assert!(status.success());
    let left: Vec<_> = std::fs::read_dir(&rooms).expect("it is ours").flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "the tests leave {left:?}");
}

/// A temporary folder for layers. What overlayfs leaves in one is closed to an ordinary user, whose folder it is all the same.
pub struct Room(tempfile::TempDir);

impl Room {
    pub fn new() -> Room {
        Room(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = aos_sandbox::delete(self.0.path());
    }
}

/// No walls, as a person's configuration would say it.
pub fn unsandboxed() -> Isolation {
    Isolation::Unsandboxed(UnsandboxedConsent::from_words(UnsandboxedConsent::WORDS).expect("the words themselves"))
}

/// A temporary workspace and the walls of the commands that run in it.
pub struct Rig {
    pub workspace: tempfile::TempDir,
    pub isolation: Isolation,
}

impl Rig {
    pub fn new(isolation: Isolation) -> Self {
        Rig { workspace: tempfile::tempdir().expect("a temporary folder"), isolation }
    }

    pub fn path(&self) -> PathBuf {
        self.workspace.path().canonicalize().expect("the workspace is there")
    }

    pub fn spec(&self, argv: &[&str]) -> Spec {
        let mut spec = Spec::new(argv, self.workspace.path(), self.isolation.clone());
        spec.limits.wall = LONG;
        spec.helper = helper();
        spec
    }

    pub fn sh(&self, script: &str) -> Outcome {
        go(&self.spec(&["sh", "-c", script])).expect("the shell starts")
    }

    /// The pids that the command wrote, one per line, to a file in its workspace.
    pub fn pids(&self, file: &str) -> Vec<i32> {
        let text = std::fs::read_to_string(self.workspace.path().join(file)).expect("the command wrote its pids");
        text.split_ascii_whitespace().map(|pid| pid.parse().expect("a pid")).collect()
    }
}

/// Runs with nobody to cancel it.
pub fn go(spec: &Spec) -> Result<Outcome, Error> {
    run(spec, &Cancel::new().expect("a descriptor is free"))
}

pub fn alive(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
