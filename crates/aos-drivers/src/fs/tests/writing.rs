//! `FS_WRITE`, `FS_EDIT`, `FS_DELETE` and `FS_MOVE`.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use aos_abi::Code;
use serde_json::json;

use super::Room;

#[test]
fn a_write_replaces_appends_or_creates() {
    let room = Room::new();
    let write = |content: &str, mode: &str| {
        room.call("FS_WRITE", json!({ "path": "new/deep/a.txt", "content": content, "mode": mode }))
    };
    assert_eq!(write("one", "replace").unwrap(), json!({ "bytes": 3 }));
    assert_eq!(write("é", "append").unwrap(), json!({ "bytes": 2 }));
    assert_eq!(room.text("new/deep/a.txt"), "oneé");
    assert_eq!(write("x", "create").unwrap_err().code, Code::Exist);
    assert_eq!(room.text("new/deep/a.txt"), "oneé");
    write("two", "replace").unwrap();
    assert_eq!(room.text("new/deep/a.txt"), "two");
    room.call("FS_WRITE", json!({ "path": "fresh", "content": "1", "mode": "create" })).unwrap();
    room.call("FS_WRITE", json!({ "path": "log", "content": "1", "mode": "append" })).unwrap();
    assert_eq!((room.text("fresh"), room.text("log")), ("1".into(), "1".into()));
    assert_eq!(room.names(), ["fresh", "log", "new"], "no draft is left");
}

#[test]
fn a_folder_in_the_place_or_a_file_in_the_way_is_refused() {
    let room = Room::new();
    room.put("dir/a", "a");
    assert_eq!(room.code("FS_WRITE", json!({ "path": "dir", "content": "x" })), Code::IsDir);
    assert_eq!(room.code("FS_WRITE", json!({ "path": "dir", "content": "x", "mode": "append" })), Code::IsDir);
    assert_eq!(room.code("FS_WRITE", json!({ "path": "dir/", "content": "x" })), Code::Inval);
    assert_eq!(room.code("FS_WRITE", json!({ "path": "dir/a/b", "content": "x" })), Code::NotDir);
    assert_eq!(room.code("FS_WRITE", json!({ "path": "", "content": "x" })), Code::Perm);
    assert_eq!(room.names(), ["dir"], "no draft is left");
}

#[test]
fn what_no_listing_shows_is_not_made() {
    for room in [Room::new(), Room::without_layers()] {
        room.put("a.txt", "a");
        room.put("docs/.aos-draft-left", "left by a stop");
        for path in [".aos-draft-0123", ".aos-draft-away-x/b.sh", "new/./.aos-draft-", "docs/.aos-draft-left"] {
            assert_eq!(room.code("FS_WRITE", json!({ "path": path, "content": "x" })), Code::Inval, "{path}");
            assert_eq!(room.code("FS_MOVE", json!({ "from": "a.txt", "to": path })), Code::Inval, "{path}");
        }
        assert_eq!(room.names(), ["a.txt", "docs"], "nothing was made");
        // What is there all the same can be looked at and got rid of.
        assert_eq!(
            room.call("FS_READ", json!({ "path": "docs/.aos-draft-left" })).unwrap()["content"],
            "left by a stop"
        );
        room.call("FS_MOVE", json!({ "from": "docs/.aos-draft-left", "to": "b" })).unwrap();
        room.call("FS_WRITE", json!({ "path": "x.aos-draft-1", "content": "a name like others" })).unwrap();
    }
}

#[test]
fn permission_bits_survive_a_replacement() {
    let room = Room::new();
    room.put("run.sh", "old");
    let file = room.work().join("run.sh");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o4751)).unwrap();
    room.call("FS_WRITE", json!({ "path": "run.sh", "content": "new" })).unwrap();
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o751, "kept, but no set-id bit for new content");
}

/// Readers see one content or the other, never a part, never nothing.
#[test]
fn a_reader_never_sees_half_a_file() {
    let room = Room::new();
    let contents = ["a".repeat(200_000), "b".repeat(150_000)];
    room.put("file", &contents[0]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = [0_u32; 2];
            while !done.load(Ordering::Relaxed) || seen.contains(&0) {
                let text = room.call("FS_READ", json!({ "path": "file" })).unwrap()["content"].to_string();
                let text = text.trim_matches('"');
                match contents.iter().position(|content| content == text) {
                    Some(which) => seen[which] += 1,
                    None => panic!("half a file: {} bytes", text.len()),
                }
            }
        });
        for round in 0..100 {
            room.call("FS_WRITE", json!({ "path": "file", "content": contents[round % 2] })).unwrap();
        }
        // Both must have been seen; write on until they were.
        let mut round = 0;
        while !reader.is_finished() {
            done.store(true, Ordering::Relaxed);
            room.call("FS_WRITE", json!({ "path": "file", "content": contents[round % 2] })).unwrap();
            round += 1;
        }
    });
}

#[test]
fn creating_has_one_winner() {
    let room = Room::new();
    let winners: usize = std::thread::scope(|scope| {
        let tries: Vec<_> = (0..8)
            .map(|nth| {
                let room = &room;
                scope.spawn(move || {
                    let args = json!({ "path": "lock", "content": nth.to_string(), "mode": "create" });
                    room.call("FS_WRITE", args).is_ok()
                })
            })
            .collect();
        tries.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
    });
    assert_eq!(winners, 1);
}

#[test]
fn edits_made_at_once_are_all_kept() {
    let room = Room::new();
    room.put("list", (0..8).map(|nth| format!("<{nth}>\n")).collect::<String>());
    std::thread::scope(|scope| {
        for nth in 0..8 {
            let room = &room;
            scope.spawn(move || {
                let edits = json!([{ "old": format!("<{nth}>"), "new": format!("[{nth}]") }]);
                room.call("FS_EDIT", json!({ "path": "list", "edits": edits })).unwrap();
            });
        }
    });
    assert_eq!(room.text("list"), (0..8).map(|nth| format!("[{nth}]\n")).collect::<String>());
}

#[test]
fn an_edit_shows_what_it_changed() {
    let room = Room::new();
    room.put("a.txt", "one\ntwo\nthree\n");
    let edits = json!([{ "old": "two\n", "new": "2\n" }, { "old": "2\nthree", "new": "2\n3" }]);
    let result = room.call("FS_EDIT", json!({ "path": "a.txt", "edits": edits })).unwrap();
    assert_eq!(result["diff"], "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n-three\n+2\n+3\n");
    assert_eq!(room.text("a.txt"), "one\n2\n3\n");
}

#[test]
fn an_edit_that_does_not_fit_exactly_once_changes_nothing() {
    let room = Room::new();
    room.put("a.txt", "x y x");
    let edit = |old: &str| {
        let edits = json!([{ "old": "y", "new": "z" }, { "old": old, "new": "w" }]);
        room.call("FS_EDIT", json!({ "path": "a.txt", "edits": edits })).unwrap_err()
    };
    let error = edit("x");
    assert_eq!(error.code, Code::Inval);
    assert_eq!(error.message, "edits[1]: its `old` text occurs 2 times in `a.txt`, it must occur exactly once");
    assert!(edit("y").message.contains("occurs 0 times"), "the first edit took it away");
    assert!(edit("").message.contains("is empty"));
    assert_eq!(room.code("FS_EDIT", json!({ "path": "a.txt", "edits": [] })), Code::Inval);
    assert_eq!(room.text("a.txt"), "x y x");
    room.put("bytes", [b'a', 0xff]);
    let args = json!({ "path": "bytes", "edits": [{ "old": "a", "new": "b" }] });
    assert!(room.call("FS_EDIT", args).unwrap_err().message.contains("not UTF-8"));
    assert_eq!(room.code("FS_EDIT", json!({ "path": "no", "edits": [{ "old": "a", "new": "b" }] })), Code::NoEnt);
}

#[test]
fn edits_that_make_a_file_grow_without_end_are_refused() {
    let room = Room::new();
    room.put("a.txt", format!("{}s", "x".repeat(3 << 20)));
    let edits = json!([{ "old": "s", "new": "y".repeat(2 << 20) }]);
    let error = room.call("FS_EDIT", json!({ "path": "a.txt", "edits": edits })).unwrap_err();
    assert_eq!(error.message, "`a.txt` has 5242880 bytes, the most for this call is 4194304");
    assert!(room.text("a.txt").ends_with("xs"));
}

#[test]
fn files_and_folders_are_deleted() {
    let room = Room::new();
    room.put("a/b/c.txt", "x");
    room.put("a/d.txt", "x");
    room.put("keep", "x");
    for nth in 0..1500 {
        room.put(&format!("a/many/{nth}"), "");
    }
    assert_eq!(room.call("FS_DELETE", json!({ "path": "a/d.txt" })).unwrap(), json!({}));
    assert_eq!(room.code("FS_DELETE", json!({ "path": "a/d.txt" })), Code::NoEnt);
    room.call("FS_DELETE", json!({ "path": "a/" })).unwrap();
    assert_eq!(room.names(), ["keep"]);
    for path in ["", ".", "./"] {
        assert_eq!(room.code("FS_DELETE", json!({ "path": path })), Code::Perm, "the workspace itself stays");
    }
}

#[test]
fn moving_overwrites_nothing() {
    let room = Room::new();
    room.put("a", "a");
    room.put("b", "b");
    room.put("dir/in", "x");
    assert_eq!(room.code("FS_MOVE", json!({ "from": "a", "to": "b" })), Code::Exist);
    assert_eq!(room.code("FS_MOVE", json!({ "from": "dir", "to": "b" })), Code::Exist);
    assert_eq!(room.code("FS_MOVE", json!({ "from": "none", "to": "x/y" })), Code::NoEnt);
    assert!(!room.work().join("x").exists(), "no folder is made for nothing");
    assert_eq!(room.code("FS_MOVE", json!({ "from": "dir", "to": "dir/sub/dir" })), Code::Inval);
    assert_eq!(room.code("FS_MOVE", json!({ "from": "dir", "to": "b/dir" })), Code::NotDir);
    room.call("FS_MOVE", json!({ "from": "a", "to": "archive/2026/a" })).unwrap();
    room.call("FS_MOVE", json!({ "from": "dir", "to": "dir-2" })).unwrap();
    assert_eq!(
        (room.text("archive/2026/a"), room.text("b"), room.text("dir-2/in")),
        ("a".into(), "b".into(), "x".into())
    );
}

/// What lay there could not be deleted or moved any more, nor backed up.
#[test]
fn nothing_is_moved_to_where_it_could_not_be_reached() {
    let room = Room::new();
    let deep = |top: &str| format!("{top}{}", format!("/{}", "x".repeat(200)).repeat(11));
    room.put(&format!("{}/f", deep("to")), "x");
    room.put(&format!("{}/f", deep("from")), "x");
    assert_eq!(room.code("FS_MOVE", json!({ "from": "from", "to": format!("{}/from", deep("to")) })), Code::Inval);
    room.call("FS_MOVE", json!({ "from": "from", "to": format!("to/{}/from", "x".repeat(200)) })).unwrap();
    room.call("FS_DELETE", json!({ "path": "to" })).unwrap();
}

/// Two folders that could be looked through made one that could not, and its deletion could not be taken back.
#[test]
fn nothing_is_moved_to_where_folders_are_too_many_inside_one_another() {
    let room = Room::new();
    let deep = |levels: usize| vec!["a"; levels].join("/");
    room.put(&format!("one/{}/x", deep(180)), "");
    room.put(&format!("two/{}/x", deep(69)), "");
    let to = |above: usize| json!({ "from": "two", "to": format!("one/{}/two", deep(above)) });
    assert_eq!(room.code("FS_MOVE", to(186)), Code::Inval);
    room.call("FS_MOVE", to(185)).unwrap();
    // A folder that is not there yet counts as well.
    room.put("file", "");
    assert_eq!(room.code("FS_MOVE", json!({ "from": "file", "to": format!("{}/file", deep(257)) })), Code::Inval);
}

#[test]
fn every_change_is_kept_and_can_be_undone() {
    let room = Room::new();
    room.put("d/a", "one\n");
    room.put("d/b", "two");
    let done = |name: &str, args: serde_json::Value| {
        let done = room.done(name, args);
        done.answer.unwrap();
        done.committed.expect("it changed something")
    };
    let mut kept = vec![
        done("FS_WRITE", json!({ "path": "d/a", "content": "uno\n" })),
        done("FS_WRITE", json!({ "path": "d/a", "content": "due\n", "mode": "append" })),
        done("FS_WRITE", json!({ "path": "new/deep/f", "content": "f", "mode": "create" })),
        done("FS_EDIT", json!({ "path": "d/b", "edits": [{ "old": "two", "new": "2" }] })),
        done("FS_MOVE", json!({ "from": "d/b", "to": "other/place" })),
        done("FS_DELETE", json!({ "path": "d" })),
    ];
    assert_eq!(room.names(), ["new", "other"]);
    assert_eq!(room.text("other/place"), "2");
    while let Some(committed) = kept.pop() {
        committed.undo(serde_json::Value::Null).unwrap().forget().unwrap();
    }
    assert_eq!(room.names(), ["d"]);
    assert_eq!((room.text("d/a"), room.text("d/b")), ("one\n".into(), "two".into()));
}

#[test]
fn a_call_that_fails_or_only_reads_keeps_nothing() {
    let room = Room::new();
    room.put("a", "a");
    for (name, args) in [
        ("FS_READ", json!({ "path": "a" })),
        ("FS_WRITE", json!({ "path": "a", "content": "x", "mode": "create" })),
        ("FS_WRITE", json!({ "path": "a/b", "content": "x" })),
        ("FS_DELETE", json!({ "path": "missing" })),
        ("FS_MOVE", json!({ "from": "a", "to": "a" })),
    ] {
        assert!(room.done(name, args.clone()).committed.is_none(), "{name} {args}");
    }
    assert_eq!(std::fs::read_dir(room.work().with_file_name("layers")).unwrap().count(), 0);
    assert_eq!(room.text("a"), "a");
}

#[test]
fn without_a_layer_changes_are_made_at_once() {
    let room = Room::without_layers();
    let call = |name: &str, args: serde_json::Value| {
        let done = room.done(name, args);
        assert!(done.committed.is_none());
        done.answer.unwrap();
    };
    call("FS_WRITE", json!({ "path": "d/a", "content": "one" }));
    call("FS_WRITE", json!({ "path": "d/a", "content": "!", "mode": "append" }));
    call("FS_WRITE", json!({ "path": "d/new", "content": "", "mode": "create" }));
    call("FS_EDIT", json!({ "path": "d/a", "edits": [{ "old": "one", "new": "two" }] }));
    call("FS_MOVE", json!({ "from": "d/a", "to": "e/b" }));
    call("FS_DELETE", json!({ "path": "d" }));
    assert_eq!((room.names(), room.text("e/b")), (vec!["e".to_owned()], "two!".to_owned()));
}
