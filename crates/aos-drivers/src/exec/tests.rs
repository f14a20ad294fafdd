//! The command driver on a sandbox that only pretends: what it is asked for, and what is made of its outcomes. Real
//! commands are run in the tests of `aos-sandbox`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aos_abi::{CallError, Code, Syscall};
use aos_sandbox::{
    Cancel, Captured, Change, ChangeKind, End, Error, Helper, Isolation, Isolator, LeftOut, LeftOutKind, Limits,
    Network, Outcome, Programs, Spec, Usage,
};
use serde_json::{Value, json};

use super::{Bounds, Driver, Ran, Scene};

/// Writes down what it is asked for, leaves a file in the layer and answers with what it was given.
struct Pretender {
    end: Result<End, &'static str>,
    stdout: Captured,
    left_out: Vec<LeftOut>,
    asked: Mutex<Vec<Spec>>,
}

impl Isolator for Pretender {
    fn run(&self, spec: &Spec, _: &Cancel) -> Result<Outcome, Error> {
        self.asked.lock().unwrap().push(spec.clone());
        if let Some(layer) = &spec.layer {
            std::fs::write(layer.dir().join("upper/new.txt"), "made").unwrap();
        }
        Ok(Outcome {
            end: self.end.map_err(|reason| Error::Helper { reason: reason.into(), source: None })?,
            stdout: self.stdout.clone(),
            stderr: Captured::default(),
            changed: vec![Change { path: "new.txt".into(), kind: ChangeKind::Created }],
            changed_truncated: false,
            left_out: self.left_out.clone(),
            usage: Usage::default(),
        })
    }
}

/// May read and change whatever lies below one of these folders; `.` is everything.
#[derive(Debug)]
struct Below(&'static [&'static str]);

impl Bounds for Below {
    fn reads_all(&self, folder: &str) -> bool {
        self.0.iter().any(|granted| *granted == "." || std::path::Path::new(folder).starts_with(granted))
    }

    fn allows(&self, call: &Syscall) -> Result<(), CallError> {
        let args = call.args();
        match self.reads_all(args["path"].as_str().unwrap()) {
            true => Ok(()),
            false => Err(CallError::new(Code::Perm, format!("no rule covers {}", call.name())).hint("a grant")),
        }
    }
}

/// May read everything but the home of a daemon.
#[derive(Debug)]
struct NoHome;

impl Bounds for NoHome {
    fn reads_all(&self, _: &str) -> bool {
        true
    }

    fn allows(&self, call: &Syscall) -> Result<(), CallError> {
        match call.args()["path"].as_str().unwrap().eq_ignore_ascii_case(".aos") {
            true => Err(CallError::new(Code::Perm, "the floor")),
            false => Ok(()),
        }
    }
}

struct Room {
    home: tempfile::TempDir,
    pretender: Arc<Pretender>,
}

impl Room {
    fn new(end: Result<End, &'static str>, stdout: Captured) -> Room {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("work")).unwrap();
        Room { home, pretender: Arc::new(Pretender { end, stdout, left_out: vec![], asked: Mutex::default() }) }
    }

    fn leaving_out(self, left_out: impl IntoIterator<Item = (String, LeftOutKind)>) -> Room {
        let left_out = left_out.into_iter().map(|(path, kind)| LeftOut { path: path.into(), kind }).collect();
        let Pretender { end, stdout, .. } = Arc::into_inner(self.pretender).unwrap();
        Room { pretender: Arc::new(Pretender { end, stdout, left_out, asked: Mutex::default() }), ..self }
    }

    fn work(&self) -> PathBuf {
        self.home.path().join("work")
    }

    fn call(&self, args: Value) -> Ran {
        self.call_within(Below(&["."]), args)
    }

    fn call_within(&self, bounds: Below, args: Value) -> Ran {
        self.perform(bounds, args, true)
    }

    fn perform(&self, bounds: Below, args: Value, shell: bool) -> Ran {
        let scene = Scene {
            workspace: self.work(),
            layer: Some(self.home.path().join("layer")),
            bounds: Arc::new(bounds),
            note: Value::Null,
            mounts: vec![],
            env: [("A".into(), "overridden".into()), ("B".into(), "kept".into())].into(),
            programs: Programs::Only(vec!["/bin/sh".into()]),
            shell,
            limits: Limits { wall: Duration::from_secs(10), ..Limits::default() },
            network: Network::None,
            proxy: None,
            isolation: Isolation::Full,
            helper: Helper::default(),
        };
        let call = Syscall::parse("EXEC_CMD", &args.to_string()).unwrap();
        Driver::new(self.pretender.clone()).perform(call, scene, &Cancel::new().unwrap())
    }
}

fn printed(bytes: &[u8], dropped: u64) -> Captured {
    Captured { bytes: bytes.to_vec(), dropped }
}

#[test]
fn a_command_is_asked_for_as_the_scene_says() {
    let room = Room::new(Ok(End::Exited(3)), printed(b"hi\n", 0));
    let args = json!({ "cmd": "cat; exit 3", "stdin": "in", "env": { "A": "1" }, "timeout_s": 2.5 });
    let ran = room.call(args);
    assert_eq!(ran.answer.unwrap(), json!({ "stdout": "hi\n", "stderr": "", "exit_code": 3, "changed": ["new.txt"] }));
    let asked = room.pretender.asked.lock().unwrap();
    let spec = &asked[0];
    assert_eq!(spec.argv, ["sh", "-c", "cat; exit 3"]);
    assert_eq!((spec.stdin.as_slice(), spec.workspace.clone()), (&b"in"[..], room.work()));
    assert_eq!(
        spec.env.iter().map(|(k, v)| (k.to_str().unwrap(), v.to_str().unwrap())).collect::<Vec<_>>(),
        [("A", "1"), ("B", "kept")]
    );
    assert_eq!(spec.limits.wall, Duration::from_millis(2500));
    assert_eq!(spec.programs, Programs::Only(vec!["/bin/sh".into()]));
    assert_eq!((spec.isolation.clone(), spec.network), (Isolation::Full, Network::None));
}

#[test]
fn without_a_shell_the_words_are_the_program_and_its_arguments() {
    let room = Room::new(Ok(End::Exited(0)), printed(b"", 0));
    let _ = room.perform(Below(&["."]), json!({ "cmd": " git  log -n 1" }), false);
    assert_eq!(room.pretender.asked.lock().unwrap()[0].argv, ["git", "log", "-n", "1"]);
}

#[test]
fn what_may_not_be_executed_is_told_with_the_way_out() {
    let hint =
        |code| Room::new(Ok(End::Exited(code)), printed(b"", 0)).call(json!({ "cmd": "./s.sh" })).answer.unwrap();
    let told = hint(126);
    let told = told["hint"].as_str().unwrap();
    assert!(told.contains("sh s.sh") && told.contains("`./**`"), "{told}");
    assert!(hint(1)["hint"].is_null() && hint(127)["hint"].is_null());
}

/// A command that could not change what belongs to somebody else was answered with the system's words alone.
#[test]
fn what_belongs_to_others_is_told_where_the_command_was_told_in_other_words() {
    let words = b"sh: 1: cannot create x/f: Value too large for defined data type\n";
    let hint_within = |bounds: Below, said: &[u8], others: bool| {
        let room = Room::new(Ok(End::Exited(0)), printed(said, 0));
        std::fs::create_dir(room.work().join("x")).unwrap();
        if others {
            // So large a number that root's commands have none for it.
            std::os::unix::fs::chown(room.work().join("x"), None, Some(4_000_000_000)).unwrap();
        }
        let answer = room.call_within(bounds, json!({ "cmd": "echo >> x/f" })).answer.unwrap();
        answer["hint"].as_str().map(str::to_owned)
    };
    let hint = |said: &[u8], others: bool| hint_within(Below(&["."]), said, others);
    assert_eq!(hint(words, false), None);
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can give files to a group that it is not in");
        return;
    }
    let told = hint(words, true).unwrap();
    for part in ["`x` belongs to another group (4000000000)", "File calls can", "a person can give it to"] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(hint(b"sh: 1: cannot create x/f: Permission denied\n", true), None);
    assert_eq!(hint_within(Below(&["new.txt"]), words, true), None, "its name is not the agent's to know");
}

#[test]
fn the_scene_bounds_the_calls_own_deadline() {
    let room = Room::new(Ok(End::Exited(0)), Captured::default());
    for (timeout, wall) in [(json!(3600), 10), (json!(null), 10), (json!(4), 4)] {
        let _ = room.call(json!({ "cmd": "true", "timeout_s": timeout }));
        assert_eq!(room.pretender.asked.lock().unwrap().last().unwrap().limits.wall, Duration::from_secs(wall));
    }
    let asked = room.pretender.asked.lock().unwrap().len();
    for args in [
        json!({ "cmd": "true", "timeout_s": 0 }),
        json!({ "cmd": "true", "timeout_s": -1 }),
        json!({ "cmd": "true", "timeout_s": 3601 }),
        json!({ "cmd": "true", "env": { "A=B": "x" } }),
        json!({ "cmd": "true", "env": { "": "x" } }),
        json!({ "cmd": "true", "env": { "A": "x\u{0}y" } }),
    ] {
        assert_eq!(room.call(args.clone()).answer.unwrap_err().code, Code::Inval, "{args}");
    }
    assert_eq!(room.pretender.asked.lock().unwrap().len(), asked, "nothing of these ran");
}

#[test]
fn changes_reach_the_workspace_and_can_be_taken_back() {
    let room = Room::new(Ok(End::Exited(0)), Captured::default());
    let ran = room.call(json!({ "cmd": "true" }));
    assert_eq!(std::fs::read_to_string(room.work().join("new.txt")).unwrap(), "made");
    let committed = ran.committed.unwrap();
    let _ = committed.undo(Value::Null).unwrap();
    assert!(!room.work().join("new.txt").exists());
}

#[test]
fn what_may_not_be_changed_is_kept_out_with_all_the_rest_and_said() {
    let room = Room::new(Ok(End::Exited(0)), printed(b"done", 0));
    let ran = room.call_within(Below(&["notes"]), json!({ "cmd": "true" }));
    let error = ran.answer.unwrap_err();
    assert_eq!(error.code, Code::Perm);
    assert!(error.message.contains("`new.txt`: no rule covers FS_WRITE"), "{error}");
    assert!(error.hint.unwrap().contains("a grant"));
    let said = json!({ "stdout": "done", "stderr": "", "exit_code": 0, "not_kept": ["new.txt"] });
    assert_eq!(error.partial, Some(said));
    assert!(ran.committed.is_none());
    assert!(!room.work().join("new.txt").exists() && !room.home.path().join("layer").exists());
}

/// Pipes, sockets and set-id bits went without a word.
#[test]
fn what_of_it_is_not_kept_is_named() {
    use LeftOutKind::{Device, Pipe, SetId, Socket};
    let room = || Room::new(Ok(End::Exited(0)), Captured::default());
    let answer = |room: &Room, bounds| room.call_within(bounds, json!({ "cmd": "true" })).answer;
    let one_each = [("d", Device), ("p", Pipe), ("run/s", Socket), ("tool", SetId)].map(|(p, k)| (p.to_owned(), k));
    let told = answer(&room().leaving_out(one_each.clone()), Below(&["."])).unwrap();
    assert_eq!(told["left_out"], json!(["d: a device", "p: a pipe", "run/s: a socket", "tool: its set-id bits"]));
    assert_eq!((&told["left_out_more"], &told["changed"]), (&Value::Null, &json!(["new.txt"])));
    let told = answer(&room().leaving_out((0..25).map(|nth| (format!("p{nth:02}"), Pipe))), Below(&["."])).unwrap();
    assert_eq!((&told["left_out"][9], &told["left_out_more"]), (&json!("p09: a pipe"), &json!(15)));
    let partial = answer(&room().leaving_out(one_each), Below(&["notes"])).unwrap_err().partial.unwrap();
    assert_eq!((&partial["left_out"], &partial["not_kept"]), (&Value::Null, &json!(["new.txt"])), "nothing is kept");
}

#[test]
fn a_command_makes_nothing_that_no_listing_shows() {
    let room = Room::new(Ok(End::Exited(0)), Captured::default());
    let layer = aos_sandbox::Layer::create(room.home.path().join("layer")).unwrap();
    let judged = |path: &str, kind| {
        let changes = [Change { path: path.into(), kind }];
        super::bounds::judge(&Below(&["."]), &room.work(), &layer, &changes)
    };
    for path in [".aos-draft-away-0123", "docs/.aos-draft-1", ".aos-draft-1/run.sh"] {
        let error = judged(path, ChangeKind::Created).unwrap_err();
        assert!(error.code == Code::Perm && error.message.contains(path) && error.hint.is_some(), "{error}");
        // What is there already may go.
        judged(path, ChangeKind::Deleted).unwrap();
    }
    judged("aos-draft-1", ChangeKind::Created).unwrap();
}

#[test]
fn a_command_takes_no_daemons_own_files_away() {
    let room = Room::new(Ok(End::Exited(0)), Captured::default());
    let layer = aos_sandbox::Layer::create(room.home.path().join("layer")).unwrap();
    for path in ["sub/deep/.AOS/run", "other/deep"] {
        std::fs::create_dir_all(room.work().join(path)).unwrap();
    }
    for path in ["sub", "other"] {
        std::fs::write(layer.dir().join("upper").join(path), "a file now").unwrap();
    }
    for (path, kind) in [
        ("sub", ChangeKind::Deleted),
        ("sub/deep", ChangeKind::Deleted),
        ("sub", ChangeKind::Modified),
        ("other", ChangeKind::Deleted),
        ("other", ChangeKind::Modified),
        ("gone", ChangeKind::Deleted),
    ] {
        let changes = [Change { path: path.into(), kind }];
        match super::bounds::judge(&Below(&["."]), &room.work(), &layer, &changes) {
            Ok(()) => assert!(!path.starts_with("sub"), "{path} {kind:?}"),
            Err(error) => {
                assert!(path.starts_with("sub") && error.code == Code::Perm, "{path}: {error}");
                assert!(error.message.contains("sub/deep/.AOS"), "{error}");
            }
        }
    }
}

#[test]
fn what_may_not_be_read_is_hidden_as_high_up_as_can_be() {
    let room = Room::new(Ok(End::Exited(0)), Captured::default());
    for path in ["notes/a", "docs/open/b", "docs/shut/c", "docs/d", "private/deep/e", "empty/f"] {
        std::fs::create_dir_all(room.work().join(path).parent().unwrap()).unwrap();
        std::fs::write(room.work().join(path), path).unwrap();
    }
    std::fs::remove_file(room.work().join("empty/f")).unwrap();
    let hidden = |bounds: Below| {
        let mut found = super::bounds::hidden(&bounds, &room.work()).unwrap();
        found.sort();
        found.into_iter().map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(hidden(Below(&["notes", "docs/open"])), ["docs/d", "docs/shut", "empty", "private"]);
    assert_eq!(hidden(Below(&[])), ["docs", "empty", "notes", "private"]);
    assert!(hidden(Below(&["."])).is_empty());
    // All of it, but for what is a daemon's own.
    std::fs::create_dir_all(room.work().join(".AOS/secrets")).unwrap();
    assert_eq!(super::bounds::hidden(&NoHome, &room.work()).unwrap(), [PathBuf::from(".AOS")]);
    // A workspace that cannot be looked through shows nothing.
    let gone = super::bounds::hidden(&Below(&["notes"]), &room.work().join("gone")).unwrap_err();
    assert_eq!(gone.code, Code::Perm);
}

#[test]
fn each_change_is_the_call_that_would_make_it() {
    use aos_sandbox::Layer;
    let home = tempfile::tempdir().unwrap();
    let (work, layer) = (home.path().join("work"), Layer::create(home.path().join("layer")).unwrap());
    std::fs::create_dir_all(work.join("docs/old")).unwrap();
    for folder in ["docs", "docs/new", "docs/new/deep"] {
        std::fs::create_dir(layer.dir().join("upper").join(folder)).unwrap();
    }
    let asked = |path: &str, kind: ChangeKind, more: &[&str]| {
        let mut changes = vec![Change { path: path.into(), kind }];
        changes.extend(more.iter().map(|path| Change { path: path.into(), kind: ChangeKind::Created }));
        let asked = Asked::default();
        super::bounds::judge(&asked, &work, &layer, &changes).unwrap();
        asked.0.into_inner().unwrap()
    };
    assert_eq!(asked("docs/f", ChangeKind::Created, &[]), ["FS_WRITE docs/f"]);
    assert_eq!(asked("docs/f", ChangeKind::Modified, &[]), ["FS_WRITE docs/f"]);
    assert_eq!(asked("docs/f", ChangeKind::Deleted, &[]), ["FS_DELETE docs/f"]);
    assert_eq!(asked("docs/new", ChangeKind::Created, &[]), ["FS_WRITE docs/new"], "an empty folder");
    assert_eq!(asked("docs/new", ChangeKind::Created, &["docs/new/f"]), ["FS_WRITE docs/new/f"]);
    assert_eq!(asked("docs", ChangeKind::Modified, &[]), ["FS_WRITE docs"], "its mode");
    assert_eq!(asked("docs/old", ChangeKind::Modified, &[]), ["FS_DELETE docs/old", "FS_WRITE docs/old"], "a file now");
}

/// Allows everything, and remembers what it was asked.
#[derive(Debug, Default)]
struct Asked(Mutex<Vec<String>>);

impl Bounds for Asked {
    fn reads_all(&self, _: &str) -> bool {
        true
    }

    fn allows(&self, call: &Syscall) -> Result<(), CallError> {
        let args = call.args();
        self.0.lock().unwrap().push(format!("{} {}", call.name(), args["path"].as_str().unwrap()));
        Ok(())
    }
}

#[test]
fn a_deadline_returns_what_was_printed_and_keeps_what_was_done() {
    let room = Room::new(Ok(End::TimedOut), printed(b"half", 0));
    let ran = room.call(json!({ "cmd": "sleep 9", "timeout_s": 1 }));
    let error = ran.answer.unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::TimedOut, "the command ran past 1 s and was killed with all it had started")
    );
    assert_eq!(error.partial, Some(json!({ "stdout": "half", "stderr": "", "changed": ["new.txt"] })));
    assert!(ran.committed.is_some());
}

#[test]
fn what_was_stopped_or_wrote_too_much_leaves_nothing() {
    for (end, code) in [(End::Cancelled, Code::Intr), (End::OutOfDisk, Code::NoSpc)] {
        let room = Room::new(Ok(end), Captured::default());
        let ran = room.call(json!({ "cmd": "true" }));
        let error = ran.answer.unwrap_err();
        assert_eq!((error.code, &error.partial.unwrap()["not_kept"]), (code, &json!(["new.txt"])));
        assert!(!room.work().join("new.txt").exists() && !room.home.path().join("layer").exists(), "{end:?}");
    }
    let room = Room::new(Err("vanished"), Captured::default());
    let error = room.call(json!({ "cmd": "true" })).answer.unwrap_err();
    assert_eq!(error.code, Code::Intr, "whether it ran is unknown: {error}");
    assert!(!room.home.path().join("layer").exists());
}

#[test]
fn output_is_text_as_far_as_it_can_be() {
    for (stdout, shown) in [
        (printed("日本".as_bytes(), 0), json!({ "stdout": "日本" })),
        (printed(&"日本".as_bytes()[..5], 9), json!({ "stdout": "日", "stdout_dropped": 9 })),
        (printed(b"log \xff end", 0), json!({ "stdout": "log \u{fffd} end" })),
        (printed(b"\x7fELF\0", 0), json!({ "stdout": "f0VMRgA=", "stdout_encoding": "base64" })),
    ] {
        let room = Room::new(Ok(End::Signaled(9)), stdout);
        let result = room.call(json!({ "cmd": "true" })).answer.unwrap();
        for (name, value) in shown.as_object().unwrap() {
            assert_eq!(&result[name], value, "{result}");
        }
        assert_eq!((&result["exit_code"], &result["signal"]), (&json!(137), &json!(9)));
    }
}
