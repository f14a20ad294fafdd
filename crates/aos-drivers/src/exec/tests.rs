//! The command driver on a sandbox that only pretends: what it is asked for, and what is made of its outcomes. Real
//! commands are run in the tests of `aos-sandbox`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aos_abi::{Code, Syscall};
use aos_sandbox::{
    Cancel, Captured, Change, ChangeKind, End, Error, Helper, Isolation, Isolator, Limits, Network, Outcome, Programs,
    Spec, Usage,
};
use serde_json::{Value, json};

use super::{Changes, Driver, Keep, Ran, Scene};

/// Writes down what it is asked for, leaves a file in the layer and answers with what it was given.
struct Pretender {
    end: Result<End, &'static str>,
    stdout: Captured,
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
            usage: Usage::default(),
        })
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
        Room { home, pretender: Arc::new(Pretender { end, stdout, asked: Mutex::default() }) }
    }

    fn work(&self) -> PathBuf {
        self.home.path().join("work")
    }

    fn call(&self, keep: Keep, args: Value) -> Ran {
        let scene = Scene {
            workspace: self.work(),
            layer: Some(self.home.path().join("layer")),
            keep,
            note: Value::Null,
            mounts: vec![],
            env: [("A".into(), "overridden".into()), ("B".into(), "kept".into())].into(),
            programs: Programs::Only(vec!["/bin/sh".into()]),
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
    let ran = room.call(Keep::Commit, args);
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
fn the_scene_bounds_the_calls_own_deadline() {
    let room = Room::new(Ok(End::Exited(0)), Captured::default());
    for (timeout, wall) in [(json!(3600), 10), (json!(null), 10), (json!(4), 4)] {
        let _ = room.call(Keep::Commit, json!({ "cmd": "true", "timeout_s": timeout }));
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
        assert_eq!(room.call(Keep::Commit, args.clone()).answer.unwrap_err().code, Code::Inval, "{args}");
    }
    assert_eq!(room.pretender.asked.lock().unwrap().len(), asked, "nothing of these ran");
}

#[test]
fn changes_reach_the_workspace_and_can_be_taken_back() {
    let room = Room::new(Ok(End::Exited(0)), Captured::default());
    let ran = room.call(Keep::Commit, json!({ "cmd": "true" }));
    assert_eq!(std::fs::read_to_string(room.work().join("new.txt")).unwrap(), "made");
    let Changes::Committed(committed) = ran.changes else { panic!("{:?}", ran.changes) };
    let _ = committed.undo(Value::Null).unwrap();
    assert!(!room.work().join("new.txt").exists());
}

#[test]
fn a_dry_run_leaves_the_workspace_alone() {
    let room = Room::new(Ok(End::Exited(0)), Captured::default());
    let ran = room.call(Keep::Hold, json!({ "cmd": "true" }));
    assert!(!room.work().join("new.txt").exists());
    let Changes::Held(layer) = ran.changes else { panic!("{:?}", ran.changes) };
    assert_eq!(layer.changes(&room.work()).unwrap().len(), 1);
}

#[test]
fn a_deadline_returns_what_was_printed_and_keeps_what_was_done() {
    let room = Room::new(Ok(End::TimedOut), printed(b"half", 0));
    let ran = room.call(Keep::Commit, json!({ "cmd": "sleep 9", "timeout_s": 1 }));
    let error = ran.answer.unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::TimedOut, "the command ran past 1 s and was killed with all it had started")
    );
    assert_eq!(error.partial, Some(json!({ "stdout": "half", "stderr": "", "changed": ["new.txt"] })));
    assert!(matches!(ran.changes, Changes::Committed(_)));
}

#[test]
fn what_was_stopped_or_wrote_too_much_leaves_nothing() {
    for (end, code) in [(End::Cancelled, Code::Intr), (End::OutOfDisk, Code::NoSpc)] {
        let room = Room::new(Ok(end), Captured::default());
        let ran = room.call(Keep::Commit, json!({ "cmd": "true" }));
        assert_eq!(ran.answer.unwrap_err().code, code);
        assert!(!room.work().join("new.txt").exists() && !room.home.path().join("layer").exists(), "{end:?}");
    }
    let room = Room::new(Err("vanished"), Captured::default());
    let error = room.call(Keep::Commit, json!({ "cmd": "true" })).answer.unwrap_err();
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
        let result = room.call(Keep::Commit, json!({ "cmd": "true" })).answer.unwrap();
        for (name, value) in shown.as_object().unwrap() {
            assert_eq!(&result[name], value, "{result}");
        }
        assert_eq!((&result["exit_code"], &result["signal"]), (&json!(137), &json!(9)));
    }
}
