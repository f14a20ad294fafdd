//! Layers behind all walls: what a command changes goes to one, and from there into the workspace or nowhere.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use aos_sandbox::{Change, ChangeKind, Committed, End, Error, Feature, Isolation, Layer, Programs, probe};
use serde_json::Value;

use super::rig::{Rig, Room, go, helper, skipped};
use super::{PYTHON, rig};

/// A layer beside the rig's workspace; its folder goes away with the first value.
fn layered(rig: &Rig) -> (Room, Layer) {
    let folder = Room::new();
    for (name, text) in [("same", "same"), ("edited", "old"), ("gone", "gone"), ("d/kept", "kept"), ("e/x", "x")] {
        let path = rig.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("it can be made");
        std::fs::write(path, text).expect("it can be written");
    }
    let layer = Layer::create(folder.path().join("layer")).expect("it can be made");
    (folder, layer)
}

/// Every path below a folder with its kind, mode, owner and content.
fn listing(root: &std::path::Path) -> Vec<String> {
    let script = "find . -printf '%P %y %m %U %G %l ' -type f -exec cat {} \\; -printf '\\n' | sort";
    let out = Command::new("sh").args(["-c", script]).current_dir(root).output().expect("find starts");
    String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect()
}

const EDITS: &str = "echo new > edited; rm gone; mkdir -p n/m; echo made > n/m/f; ln -s /etc/passwd n/link;
    rm -r e; mkdir e; echo y > e/y; echo more >> d/kept; chmod 700 d; rm same; mkdir same; echo deep > same/file";

#[test]
fn a_layer_takes_the_changes_until_they_are_committed() {
    let Some(rig) = rig() else { return };
    let (_folder, layer) = layered(&rig);
    let before = listing(&rig.path());
    let mut spec = rig.spec(&["sh", "-c", EDITS]);
    spec.layer = Some(layer.clone());
    let out = go(&spec).expect("the shell starts");
    assert!(out.success(), "{out:?}");
    assert_eq!(listing(&rig.path()), before, "the workspace is as it was");
    use ChangeKind::{Created, Deleted, Modified};
    let expected = [
        ("d", Modified),
        ("d/kept", Modified),
        ("e/x", Deleted),
        ("e/y", Created),
        ("edited", Modified),
        ("gone", Deleted),
        ("n", Created),
        ("n/link", Created),
        ("n/m", Created),
        ("n/m/f", Created),
        ("same", Modified),
        ("same/file", Created),
    ];
    let expected: Vec<Change> = expected.map(|(path, kind)| Change { path: path.into(), kind }).into();
    assert_eq!(out.changed, expected);
    // The next command over the same layer goes on where this one ended.
    spec.argv = ["sh", "-c", "cat edited n/m/f; ls e; test ! -e gone; rm e/y n/m/f"].map(Into::into).into();
    let out = go(&spec).expect("the shell starts");
    assert_eq!((out.stdout.text().as_ref(), out.success()), ("new\nmade\ny\n", true), "{out:?}");
    spec.argv = ["sh", "-c", "echo y > e/y; echo made > n/m/f"].map(Into::into).into();
    assert_eq!(go(&spec).expect("the shell starts").changed, expected);
    // The same edits made directly are the measure of a commit.
    let direct = Rig::new(Isolation::Full);
    let _unused = layered(&direct);
    assert!(direct.sh(EDITS).success());
    let committed = layer.commit(&rig.path(), None, Value::Null).expect("it commits");
    assert_eq!(listing(&rig.path()), listing(&direct.path()));
    assert_eq!(committed.changes(), expected);
    let names = "import os; print([(p, a) for p, ds, fs in os.walk('.') for n in ds + fs for a in os.listxattr(p + '/' + n, follow_symlinks=False)])";
    let out = Command::new(PYTHON).args(["-c", names]).current_dir(rig.path()).output().expect("python starts");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "[]\n", "nothing tells that there was an overlay");
    // A daemon that started again finds the commit and can still undo it.
    let dir = spec.layer.expect("it was set").dir().to_owned();
    let found = Committed::load(&dir).expect("it can be read").expect("it is there");
    assert_eq!(found, committed);
    let undone = found.undo(Value::Null).expect("nothing is in the way");
    assert_eq!(listing(&rig.path()), before);
    let redone = undone.redo(Value::Null).expect("nothing is in the way");
    assert_eq!(listing(&rig.path()), listing(&direct.path()));
    redone.undo(Value::Null).expect("nothing is in the way").forget().expect("it can be deleted");
    assert_eq!(listing(&rig.path()), before);
    assert!(!dir.exists());
}

#[test]
fn what_is_hidden_is_neither_seen_nor_changed() {
    let Some(rig) = rig() else { return };
    let (_folder, layer) = layered(&rig);
    let layer = layer.hiding(["d/kept", "gone", "e"].map(Into::into));
    let before = listing(&rig.path());
    let look = "find . -mindepth 1 | sort; cat d/kept gone e/x 2>/dev/null; ln d/kept mine 2>/dev/null; touch d/new;
        mv d/kept moved 2>/dev/null; echo again > gone; rm gone; stat -c %a d";
    let mut spec = rig.spec(&["sh", "-c", look]);
    spec.layer = Some(layer.clone());
    let out = go(&spec).expect("the shell starts");
    let mode = std::os::unix::fs::PermissionsExt::mode(&rig.path().join("d").metadata().expect("there").permissions());
    assert_eq!(out.stdout.text(), format!("./d\n./edited\n./same\n{:o}\n", mode & 0o777), "{out:?}");
    assert_eq!(out.changed, [Change { path: "d/new".into(), kind: ChangeKind::Created }]);
    let committed = layer.clone().commit(&rig.path(), None, Value::Null).expect("it commits");
    assert_eq!(std::fs::read_to_string(rig.path().join("d/kept")).expect("it is there"), "kept");
    committed.undo(Value::Null).expect("nothing is in the way").forget().expect("it can be deleted");
    assert_eq!(listing(&rig.path()), before);
    // Something else of a hidden name is a change, and so is taking away the folder around it.
    let layer = Layer::create(layer.dir()).expect("it can be made").hiding(["d/kept", "gone"].map(Into::into));
    spec.argv = ["sh", "-c", "echo mine > gone; rm -r d"].map(Into::into).into();
    spec.layer = Some(layer.clone());
    let changed = go(&spec).expect("the shell starts").changed;
    let change = |path: &str, kind| Change { path: path.into(), kind };
    assert_eq!(changed, [change("d", ChangeKind::Deleted), change("gone", ChangeKind::Modified)]);
}

#[test]
fn a_folder_made_where_one_is_hidden_takes_nothing_away() {
    let Some(rig) = rig() else { return };
    let (_folder, layer) = layered(&rig);
    let layer = layer.hiding(["e".into()]);
    let before = listing(&rig.path());
    let mut spec = rig.spec(&["sh", "-c", "mkdir e && rmdir e && mkdir e && echo z > e/z"]);
    spec.layer = Some(layer.clone());
    let out = go(&spec).expect("the shell starts");
    assert!(out.success() && out.changed.iter().all(|change| change.kind != ChangeKind::Deleted), "{out:?}");
    let committed = layer.commit(&rig.path(), None, Value::Null).expect("it commits");
    for (name, held) in [("e/x", "x"), ("e/z", "z")] {
        assert_eq!(std::fs::read_to_string(rig.path().join(name)).expect("it is there").trim(), held);
    }
    committed.undo(Value::Null).expect("nothing is in the way").forget().expect("it can be deleted");
    assert_eq!(listing(&rig.path()), before);
}

/// They came out writable: the daemon had opened them while it counted what was in them.
#[test]
fn a_command_makes_no_folder_writable_unasked() {
    let Some(rig) = rig() else { return };
    let (_folder, layer) = layered(&rig);
    let mode = |path: &str| rig.path().join(path).metadata().expect("it is there").mode() & 0o777;
    let lock = |mode| {
        std::fs::set_permissions(rig.path().join("d"), std::os::unix::fs::PermissionsExt::from_mode(mode))
            .expect("ours");
    };
    lock(0o555);
    // Longer than it takes until it is looked at.
    let script = "echo new > d/kept; mkdir mine; echo x > mine/x; chmod 555 mine; sleep 0.6; stat -c %a d mine";
    let mut spec = rig.spec(&["sh", "-c", script]);
    spec.layer = Some(layer.clone());
    let out = go(&spec).expect("the shell starts");
    assert_eq!(out.stdout.text(), "555\n555\n", "{out:?}");
    let change = |path: &str, kind| Change { path: path.into(), kind };
    let changed = [("d/kept", ChangeKind::Modified), ("mine", ChangeKind::Created), ("mine/x", ChangeKind::Created)];
    assert_eq!(out.changed, changed.map(|(path, kind)| change(path, kind)));
    let committed = layer.commit(&rig.path(), None, Value::Null).expect("it commits");
    assert_eq!((mode("d"), mode("mine"), committed.changes()), (0o555, 0o555, out.changed));
    assert_eq!(std::fs::read_to_string(rig.path().join("d/kept")).expect("it is there"), "new\n");
    committed.undo(Value::Null).expect("nothing is in the way").forget().expect("it can be deleted");
    assert_eq!((mode("d"), rig.path().join("mine").exists()), (0o555, false));
    lock(0o755);
}

#[test]
fn an_undo_that_would_lose_something_does_nothing() {
    let Some(rig) = rig() else { return };
    let (_folder, layer) = layered(&rig);
    let mut spec = rig.spec(&["sh", "-c", EDITS]);
    spec.layer = Some(layer.clone());
    assert!(go(&spec).expect("the shell starts").success());
    let committed = layer.commit(&rig.path(), None, Value::Null).expect("it commits");
    std::fs::write(rig.path().join("edited"), "edited again").expect("it can be written");
    let after = listing(&rig.path());
    match committed.clone().undo(Value::Null) {
        Err(Error::Conflict { paths }) => assert_eq!(paths, [std::path::PathBuf::from("edited")]),
        other => panic!("{other:?}"),
    }
    assert_eq!(listing(&rig.path()), after);
    committed.forget().expect("it can be deleted");
    assert!(!spec.layer.expect("it was set").dir().exists());
}

#[test]
fn a_discarded_layer_leaves_nothing() {
    let Some(rig) = rig() else { return };
    let (folder, layer) = layered(&rig);
    let before = listing(&rig.path());
    let mut spec = rig.spec(&["sh", "-c", "mkdir -p a/b; echo x > a/b/c; chmod 000 a; echo y > edited"]);
    spec.layer = Some(layer.clone());
    assert!(go(&spec).expect("the shell starts").success());
    layer.discard().expect("it can be deleted");
    assert_eq!(listing(&rig.path()), before);
    assert_eq!(folder.path().read_dir().expect("it is there").count(), 0);
}

/// What a daemon could not delete stayed in its home for ever, as large as a command liked; and looking through it ended
/// the daemon by its stack.
#[test]
fn folders_without_end_are_refused_and_nothing_of_them_stays() {
    let Some(rig) = rig() else { return };
    let (folder, layer) = layered(&rig);
    let before = listing(&rig.path());
    let program = "import os\nopen('edited', 'w').write('new')\nfor n in range(2600):\n os.mkdir('a'); os.chdir('a')\n \
        if n % 50 == 0: os.mkdir('l'); os.mkdir('l/in'); os.chmod('l', 0)\nopen('bottom', 'w').write('x' * 9000)\nos.chmod('.', 0)";
    let mut spec = rig.spec(&[PYTHON, "-c", program]);
    spec.layer = Some(layer.clone());
    match go(&spec) {
        Err(Error::Deep { levels }) => assert_eq!(levels, 256),
        other => panic!("{other:?}"),
    }
    layer.discard().expect("it can be deleted");
    assert_eq!(listing(&rig.path()), before);
    assert_eq!(folder.path().read_dir().expect("it is there").count(), 0);
}

/// Each of these put as much as it liked on the host's disk. They sleep rather than end, so that only the limit ends them.
#[test]
fn nothing_on_the_disk_escapes_its_limit() {
    let Some(rig) = rig() else { return };
    let ways = [
        ("many files", "for n in range(40): open(str(n), 'wb').write(b'x' * (1 << 20))"),
        (
            "deleted but open",
            "held = []\nfor n in range(40):\n held.append(open('f', 'wb', 0)); os.unlink('f'); held[-1].write(b'x' * (1 << 20))",
        ),
        (
            "a thread's own descriptors",
            "import threading\ndef f():\n held = []\n for n in range(40):\n  held.append(open('f', 'wb', 0)); os.unlink('f'); \
             held[-1].write(b'x' * (1 << 20))\n time.sleep(1000)\nthreading.Thread(target=f).start()",
        ),
        (
            "a locked folder",
            "os.mkdir('shut'); os.chmod('shut', 0o300)\nfor n in range(40): open(f'shut/{n}', 'wb').write(b'x' * (1 << 20))",
        ),
        (
            "a reserved file",
            "f = open('f', 'wb'); os.posix_fallocate(f.fileno(), 0, 3 << 20)\nfor n in range(5):\n f = open(str(n), 'wb'); os.posix_fallocate(f.fileno(), 0, 3 << 20)",
        ),
    ];
    for (way, program) in ways {
        for end in ["time.sleep(1000)", "sys.exit(0)"] {
            let (_folder, layer) = layered(&rig);
            let program = format!("import os, sys, time\n{program}\n{end}");
            let mut spec = rig.spec(&[PYTHON, "-c", &program]);
            spec.limits.disk = 4 << 20;
            spec.layer = Some(layer.clone());
            let out = go(&spec).expect("python starts");
            let gone = end.starts_with("sys") && (way.contains("open") || way.contains("thread"));
            assert!(gone || out.end == End::OutOfDisk, "{way}, then {end}: {out:?}");
            layer.discard().expect("it can be deleted");
        }
    }
    let (_folder, layer) = layered(&rig);
    let mut spec =
        rig.spec(&["sh", "-c", "head -c 3000000 /dev/zero > f; sleep 0.6; rm f; head -c 3000000 /dev/zero > g"]);
    spec.limits.disk = 4 << 20;
    spec.layer = Some(layer.clone());
    assert!(go(&spec).expect("it starts").success(), "what is deleted and closed is gone");
}

/// A workspace on memory, as `/tmp` is on many systems; the layers of the tests are beside it on the disk.
fn on_memory() -> Option<Rig> {
    let mut rig = rig()?;
    let elsewhere = tempfile::tempdir_in("/dev/shm").ok()?;
    let device = |folder: &Path| std::fs::metadata(folder).map(|meta| meta.dev()).ok();
    if device(elsewhere.path()) == device(&std::env::temp_dir()) {
        skipped("no second file system at /dev/shm");
        return None;
    }
    rig.workspace = elsewhere;
    Some(rig)
}

/// Both cost nothing by the blocks of a layer, and the copy to another file system wrote all of it.
#[test]
fn holes_and_further_names_fill_no_other_disk() {
    let Some(rig) = on_memory() else { return };
    let run = |script: &str| {
        let (folder, layer) = layered(&rig);
        let mut spec = rig.spec(&["sh", "-c", script]);
        spec.limits.disk = 4 << 20;
        spec.layer = Some(layer.clone());
        (folder, layer, go(&spec).expect("the shell starts").end)
    };
    let (_folder, layer, end) = run("for i in 1 2 3 4; do truncate -s 3M f$i; done; echo end >> f1");
    assert_eq!(end, End::Exited(0));
    let committed = layer.commit(&rig.path(), None, Value::Null).expect("it can be put in place");
    let copied = |name: &str| std::fs::metadata(rig.path().join(name)).expect("it is there");
    assert_eq!(copied("f1").len(), (3 << 20) + 4);
    assert!(["f1", "f2", "f3", "f4"].iter().all(|name| copied(name).blocks() < 1000), "holes stay holes");
    committed.undo(Value::Null).expect("nobody changed them");
    for script in [
        "for i in $(seq 30); do truncate -s 3M f$i; done",
        "head -c 1000000 /dev/zero > f; for i in $(seq 9); do ln f f$i; done",
    ] {
        let (_folder, layer, end) = run(script);
        assert_eq!(end, End::OutOfDisk, "{script}");
        layer.discard().expect("it can be deleted");
    }
    let Some(rig) = self::rig() else { return };
    let (_folder, layer) = layered(&rig);
    let mut spec = rig.spec(&["sh", "-c", "head -c 1000000 /dev/zero > f; for i in $(seq 9); do ln f f$i; done"]);
    (spec.limits.disk, spec.layer) = (4 << 20, Some(layer));
    assert!(go(&spec).expect("the shell starts").success(), "on one file system they are moved as they are");
}

/// `cc` is wherever Rust is built, since that links with it; a machine that only runs these tests may have none.
#[test]
fn a_compiler_works_and_what_it_makes_is_part_of_the_layer() {
    let Some(rig) = rig() else { return };
    if !["/usr/bin/cc", "/bin/cc"].iter().any(|path| Path::new(path).exists()) {
        skipped("no cc on this host, so whether a compiler works inside was not tried");
        return;
    }
    let program = "#include <stdio.h>\nint main(int n, char **v) { return printf(\"%s: %d\\n\", v[1], 6 * 7) < 0; }\n";
    std::fs::write(rig.path().join("made.c"), program).expect("it can be written");
    let folder = Room::new();
    let layer = Layer::create(folder.path().join("layer")).expect("it can be made");
    let mut spec = rig.spec(&["sh", "-c", "cc -O1 -Wall -Werror -o made made.c && ./made inside"]);
    spec.layer = Some(layer.clone());
    let out = go(&spec).expect("the shell starts");
    assert_eq!((out.stdout.text().as_ref(), out.success()), ("inside: 42\n", true), "{out:?}");
    assert_eq!(out.changed, [Change { path: "made".into(), kind: ChangeKind::Created }]);
    let made = rig.path().join("made");
    assert!(!made.exists(), "it is in the layer alone");
    // The next command over the same layer runs it, and after the commit it is a program like any other.
    spec.argv = ["./made", "again"].map(Into::into).into();
    assert_eq!(go(&spec).expect("it starts").stdout.text(), "again: 42\n");
    layer.commit(&rig.path(), None, Value::Null).expect("it commits");
    let out = Command::new(&made).arg("outside").output().expect("it runs on the host too");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "outside: 42\n");
}

#[test]
fn a_compiler_that_is_granted_finds_its_headers_and_its_parts() {
    let Some(rig) = rig() else { return };
    let granted = ["/usr/bin/sh", "/usr/bin/cc"];
    if !granted.iter().all(|path| Path::new(path).exists()) {
        skipped("no cc on this host, so whether a compiler works inside was not tried");
        return;
    }
    std::fs::write(rig.path().join("made.c"), "#include <stdio.h>\nint main(void) { return puts(\"x\") < 0; }\n")
        .expect("it can be written");
    let mut spec = rig.spec(&["sh", "-c", "cc -Wall -Werror -o made made.c && echo built && ./made"]);
    spec.programs = Programs::Only(granted.map(Into::into).into());
    let out = go(&spec).expect("the shell starts");
    assert_eq!(out.stdout.text(), "built\n", "{out:?}");
    assert!(out.stderr.text().contains("ermission denied"), "what it makes is not granted: {out:?}");
}

/// Not a test: what the next one runs in a folder that is an overlay itself, as in many containers.
#[test]
#[ignore = "played by another test"]
fn on_a_file_system_that_takes_no_layer() {
    let rig = Rig::new(Isolation::Full);
    let report = probe(&helper(), rig.workspace.path()).expect("the helper starts");
    let missing: Vec<_> = report.missing().collect();
    assert!(!report.can_isolate() && missing.len() == 1, "{missing:?}");
    assert!(matches!(missing[0].feature, Feature::Overlay | Feature::IdmappedMounts), "{missing:?}");
    let mut spec = rig.spec(&["sh", "-c", "echo > ran"]);
    spec.layer = Some(Layer::create(rig.path().join("../layer")).expect("it can be made"));
    assert!(matches!(go(&spec), Err(Error::Missing { feature, .. }) if feature == missing[0].feature));
    assert!(!rig.path().join("ran").exists(), "nothing may be written past the layer instead");
}

#[test]
fn a_file_system_that_takes_no_layer_is_told_before_anything_runs() {
    if !rustix::process::geteuid().is_root() || rig().is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let me = std::env::current_exe().expect("it runs");
    let script = "cd \"$1\" && mkdir l u w m && mount -t overlay overlay -o lowerdir=l,upperdir=u,workdir=w m && \
        export TMPDIR=\"$1/m\" && exec \"$0\" --exact layers::on_a_file_system_that_takes_no_layer --ignored";
    let mut unshare = Command::new("unshare");
    let status = unshare.args(["-m", "sh", "-c", script]).arg(me).arg(folder.path()).status().expect("unshare starts");
    assert!(status.success());
}
