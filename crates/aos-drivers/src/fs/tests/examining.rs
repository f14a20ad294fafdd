//! What an approval binds: the files that a call names, and any change to them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use aos_abi::Syscall;
use serde_json::{Value, json};

use super::Room;
use crate::fs::{Seen, drift, examine};

fn see(room: &Room, name: &str, args: &Value) -> Seen {
    examine(&room.place(), &Syscall::parse(name, &args.to_string()).unwrap())
}

fn run(room: &Room, cmd: &str) -> Seen {
    see(room, "EXEC_CMD", &json!({ "cmd": cmd }))
}

fn named(seen: &Seen) -> Vec<(&str, &str)> {
    seen.files.iter().map(|file| (file.path.as_str(), file.is.as_str())).collect()
}

#[test]
fn a_command_binds_what_it_names_in_the_workspace_however_it_is_quoted() {
    let room = Room::new();
    for path in ["go.sh", "sub/data.csv", "with space", "conf"] {
        room.put(path, path);
    }
    let seen = run(
        &room,
        "sh ./go.sh --c=conf 'with space' \"sub/data.csv\"|tee /workspace/sub>none; cat ../work-evil/secret",
    );
    assert_eq!(
        named(&seen),
        [("go.sh", "file"), ("conf", "file"), ("sub/data.csv", "file"), ("sub", "folder"), ("with space", "file")]
    );
    assert_eq!(seen.unbound, None);
    assert_eq!(named(&run(&room, "git status .")), [], "where it runs is no argument");
    for line in ["sh g\\o.sh", "sh \"g\"o.sh", "sh go'.'sh", "sh 'go'\".sh\""] {
        let seen = run(&room, line);
        assert_eq!(named(&seen), [("go.sh", "file")], "{line}");
        assert!(seen.unbound.is_some_and(|what| what.contains("puts together")), "{line}");
    }
    assert_eq!(
        seen,
        run(
            &room,
            "sh ./go.sh --c=conf 'with space' \"sub/data.csv\"|tee /workspace/sub>none; cat ../work-evil/secret"
        )
    );
}

/// A yes to `sh s.?h` was one to whatever it matched when it ran, and the question named no file.
#[test]
fn what_the_shell_works_out_is_said_not_to_be_bound() {
    let room = Room::new();
    room.put("s.sh", "x");
    for line in ["sh s.?h", "sh *", "sh [s].sh", "f=s; sh $f.sh", "sh \"$f\"", "sh `cat list`", "sh $(cat list)"] {
        let unbound = run(&room, line).unbound.unwrap_or_default();
        assert!(unbound.contains("works out from patterns or variables"), "{line}: {unbound}");
    }
    for line in ["sh s.sh", "grep 'a*[b]$' s.sh", "sed \"s/a*/b/\" s.sh"] {
        assert_eq!(run(&room, line).unbound, None, "{line}");
    }
}

#[test]
fn a_command_binds_what_stands_beside_an_option_or_a_sign() {
    let room = Room::new();
    for path in ["prog.awk", "evil.mk", "sub/a.tar", "lib/x", "list", "deep/er/y", "tests/z", "odd\u{1}name"] {
        room.put(path, path);
    }
    room.link("deep/er", "link");
    for (line, bound) in [
        ("awk -fprog.awk data; make -kfevil.mk", vec!["prog.awk", "evil.mk"]),
        ("tar -xzvfsub/a.tar -Clib", vec!["sub/a.tar", "lib"]),
        ("cc -Wl,-Tlist -I./lib -f/workspace/evil.mk", vec!["list", "lib", "evil.mk"]),
        ("curl -d@list -T\"evil.mk\" x; nix build list#part", vec!["evil.mk", "list"]),
        ("gcc @list", vec!["list"]),
        ("sh sub/../evil.mk link/../er/y lib/../../work-evil/secret", vec!["evil.mk", "deep/er/y"]),
        ("cargo test --tests", vec![]),
    ] {
        let paths = |seen: Seen| seen.files.into_iter().map(|file| file.path).collect::<Vec<_>>();
        assert_eq!(paths(run(&room, line)), bound, "{line}");
    }
    assert_eq!(run(&room, "sh 'odd\u{1}name'").unbound.unwrap(), "the content of `odd\\u{1}name`");
    let unbound = |line: &str| run(&room, line).unbound.unwrap_or_default();
    assert_eq!(unbound(&format!("make -{}fevil.mk", "k".repeat(4_000))), "");
    assert_eq!(unbound(&format!("make -{}fevil.mk", "k".repeat(1 << 20))), "");
    let many = format!("make -{} -{}fevil.mk", "k".repeat(5_000), "l".repeat(5_000));
    assert_eq!(unbound(&many), "parts of words beyond the first 4096");
    for nth in 0..64 {
        room.put(&format!("f{nth}"), "");
    }
    let all: String = (0..64).map(|nth| format!(" f{nth}")).collect();
    assert_eq!(unbound(&format!("cat{all} -x")), "");
    assert_eq!(unbound(&format!("cat{all} -xlist")), "files beyond the first 64");
}

#[test]
fn any_change_to_what_was_shown_is_seen() {
    let room = Room::new();
    room.put("go.sh", "echo one\n");
    room.put("sub/deep/x", "1");
    room.link("go.sh", "link.sh");
    let at = room.work();
    let changes: [(&str, &dyn Fn()); 8] = [
        ("content", &|| room.put("go.sh", "echo two\n")),
        ("mode", &|| std::fs::set_permissions(at.join("go.sh"), Permissions::from_mode(0o755)).unwrap()),
        ("what a link leads to", &|| room.put("go.sh", "echo 333\n")),
        ("deep in a folder", &|| room.put("sub/deep/x", "2")),
        ("new in a folder", &|| room.put("sub/deep/y", "2")),
        ("gone", &|| std::fs::remove_file(at.join("go.sh")).unwrap()),
        ("another kind", &|| std::fs::create_dir(at.join("go.sh")).unwrap()),
        ("now there", &|| room.put("later.sh", "evil")),
    ];
    for (what, change) in changes {
        let before = run(&room, "sh go.sh link.sh sub later.sh");
        assert_eq!(drift(&before.files, &run(&room, "sh go.sh link.sh sub later.sh").files), None, "{what}");
        change();
        let drifted = drift(&before.files, &run(&room, "sh go.sh link.sh sub later.sh").files);
        assert!(drifted.is_some(), "{what}: {before:?}");
    }
}

#[test]
fn a_change_to_a_file_is_shown_as_it_would_be() {
    let room = Room::new();
    room.put("a", "one\ntwo\n");
    let diff = |name: &str, args: Value| see(&room, name, &args).diff;
    let edits = json!({ "path": "a", "edits": [{ "old": "two", "new": "2" }] });
    assert_eq!(diff("FS_EDIT", edits), "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n");
    assert!(diff("FS_WRITE", json!({ "path": "a", "content": "x\n", "mode": "append" })).ends_with(" two\n+x\n"));
    assert!(diff("FS_WRITE", json!({ "path": "new", "content": "x\n" })).ends_with("+x\n"));
    assert!(diff("FS_DELETE", json!({ "path": "a" })).contains("-one\n-two\n"));
    assert_eq!(diff("FS_EDIT", json!({ "path": "a", "edits": [{ "old": "none", "new": "2" }] })), "");
    assert_eq!(room.text("a"), "one\ntwo\n", "only looked at");
}

#[test]
fn a_change_is_shown_whole_or_not_at_all() {
    let room = Room::new();
    let long = "a dull line of no interest\n".repeat(20_000);
    let olds: [&[u8]; 6] = [b"", b"one\ntwo\n", b"no end", b"caf\xe9\n", b"\x7fELF\0", long.as_bytes()];
    let contents =
        ["", "one\n", "evil", "two\r\nevil\n", "one\revil\n", &format!("{long}evil\n"), &format!("evil\n{long}two")];
    for old in olds {
        room.put("a", old);
        let was: Vec<&str> = std::str::from_utf8(old).unwrap_or_default().split_inclusive('\n').collect();
        for (content, mode) in contents.iter().flat_map(|content| [(*content, "replace"), (*content, "append")]) {
            let diff = see(&room, "FS_WRITE", &json!({ "path": "a", "content": content, "mode": mode })).diff;
            let is_new = |line: &&str| !was.contains(line);
            let end = was.last().filter(|line| !line.ends_with('\n')).unwrap_or(&"");
            let shown = |line: &str| diff.contains(&format!("\n+{line}")) || diff.contains(&format!("\n+{end}{line}"));
            let shows = content.split_inclusive('\n').filter(is_new).all(shown);
            assert!(diff.is_empty() || shows, "{mode} {} to {}", content.len(), old.len());
            assert!(!diff.contains("and more") && !diff.contains("no text"), "{mode}");
        }
    }
    room.put("a", &long[..200 << 10]);
    let all = json!([{ "old": &long[..200 << 10], "new": "other\n".repeat(20_000) }]);
    assert!(see(&room, "FS_EDIT", &json!({ "path": "a", "edits": all })).diff.is_empty());
    assert!(see(&room, "FS_WRITE", &json!({ "path": "a", "content": "evil" })).diff.contains("\n+evil"));
}

#[test]
fn nothing_outside_is_looked_at() {
    let room = Room::new();
    room.link(room.outside().join("secret"), "out");
    room.link("../work-evil", "evil");
    assert_eq!(named(&run(&room, "cat out evil/secret")), []);
    let read = see(&room, "FS_READ", &json!({ "path": "evil/secret" }));
    assert_eq!(named(&read), [("evil/secret", "nothing")]);
    assert_eq!(see(&room, "FS_WRITE", &json!({ "path": "out", "content": "x" })).files[0].is, "link");
    assert!(see(&room, "FS_WRITE", &json!({ "path": "../work-evil/secret", "content": "x" })).files.is_empty());
    let moved = see(&room, "FS_MOVE", &json!({ "from": "out", "to": "there" }));
    assert_eq!(named(&moved), [("out", "link"), ("there", "nothing")]);
}
