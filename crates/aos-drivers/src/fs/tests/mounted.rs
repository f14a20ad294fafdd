//! A folder of the host in the workspace: read as if it were there, never changed, never left.

use aos_abi::Code;
use serde_json::json;

use super::{Mount, Place, Room, every_call};

/// A room whose workspace has the host's folder `book` at `handbook`.
fn room() -> Room {
    let room = Room::new();
    let book = room.outside().with_file_name("book");
    std::fs::create_dir_all(book.join("deep")).unwrap();
    std::fs::write(book.join("a.txt"), "chapter one\n").unwrap();
    std::fs::write(book.join("deep/b.txt"), "chapter two\n").unwrap();
    std::os::unix::fs::symlink(room.outside(), book.join("out")).unwrap();
    std::os::unix::fs::symlink("../work-evil/secret", book.join("secret")).unwrap();
    std::os::unix::fs::symlink("a.txt", book.join("inner")).unwrap();
    room.put("own.txt", "chapter of one's own\n");
    room
}

#[test]
fn what_is_mounted_is_read_listed_and_searched_as_if_it_were_in_the_workspace() {
    let room = room();
    assert_eq!(room.call("FS_READ", json!({"path": "handbook/a.txt"})).unwrap()["content"], "chapter one\n");
    let listed = |args| -> Vec<String> {
        let entries = room.call("FS_LIST", args).unwrap()["entries"].clone();
        entries.as_array().unwrap().iter().map(|e| format!("{} {}", e["kind"], e["path"]).replace('"', "")).collect()
    };
    assert_eq!(listed(json!({})), ["folder handbook", "file own.txt"]);
    assert_eq!(
        listed(json!({"path": "./handbook/"})),
        [
            "file handbook/a.txt",
            "folder handbook/deep",
            "link handbook/inner",
            "link handbook/out",
            "link handbook/secret"
        ]
    );
    assert_eq!(listed(json!({"glob": "**/b.txt"})), ["file handbook/deep/b.txt"]);
    let found = room.call("FS_SEARCH", json!({"pattern": "chapter"})).unwrap();
    let paths: Vec<&str> =
        found["matches"].as_array().unwrap().iter().map(|found| found["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["handbook/a.txt", "handbook/deep/b.txt", "own.txt"]);
}

#[test]
fn it_stands_in_the_place_of_what_has_its_name() {
    let room = room();
    room.put("handbook/a.txt", "of the workspace\n");
    assert_eq!(room.call("FS_READ", json!({"path": "handbook/a.txt"})).unwrap()["content"], "chapter one\n");
    let found = room.call("FS_SEARCH", json!({"pattern": "of the workspace"})).unwrap();
    assert_eq!(found["matches"], json!([]));
    // A name that only begins like it is the workspace's.
    room.put("handbook-evil/a.txt", "evil");
    assert_eq!(room.call("FS_READ", json!({"path": "handbook-evil/a.txt"})).unwrap()["content"], "evil");
}

#[test]
fn nothing_in_it_is_changed_by_any_call() {
    for room in [room(), Room { keeps: false, ..room() }] {
        room.put("mine", "one's own\n");
        for path in ["handbook", "handbook/a.txt", "handbook/new/file", "handbook/deep"] {
            for (name, args) in every_call(path) {
                if ["FS_READ", "FS_LIST", "FS_SEARCH"].contains(&name) {
                    continue;
                }
                let error = room.call(name, args.clone()).unwrap_err();
                assert_eq!(error.code, Code::Perm, "{name} {args}: {error}");
                assert!(error.message.contains("can only be read"), "{name} {args}: {error}");
            }
        }
        let book = room.outside().with_file_name("book");
        assert_eq!(std::fs::read_to_string(book.join("a.txt")).unwrap(), "chapter one\n");
        assert_eq!(std::fs::read_dir(&book).unwrap().count(), 5);
        assert_eq!(room.names(), ["mine", "own.txt"], "and nothing was made in the workspace under its name");
    }
}

#[test]
fn nothing_leads_out_of_it() {
    let room = room();
    for path in ["handbook/..", "handbook/../../work-evil/secret", "handbook/deep/../../own.txt", "handbook/out/secret"]
    {
        let error = room.call("FS_READ", json!({"path": path})).unwrap_err();
        assert_eq!(error.code, Code::Perm, "{path}: {error}");
    }
    let error = room.call("FS_READ", json!({"path": "handbook/secret"})).unwrap_err();
    assert_eq!(
        error.message,
        "`handbook/secret` is outside the workspace: a symbolic link in it leads out of the workspace"
    );
    let error = room.call("FS_READ", json!({"path": "handbook/inner"})).unwrap_err();
    assert_eq!(
        error.hint.unwrap(),
        "links are not followed; it leads to `handbook/a.txt`, call again with that path",
        "in the workspace's own terms"
    );
    let found = room.call("FS_SEARCH", json!({"pattern": "evil", "path": "handbook"})).unwrap();
    assert_eq!(found["matches"], json!([]));
}

#[test]
fn a_folder_that_is_gone_or_was_led_elsewhere_is_a_clear_error_and_no_other_folder() {
    let room = room();
    let book = room.outside().with_file_name("book");
    std::fs::rename(&book, book.with_file_name("moved")).unwrap();
    let place = Place { mounts: vec![Mount { at: "handbook".into(), host: book.clone() }], ..room.place() };
    let read = |path: &str| {
        let call = aos_abi::Syscall::parse("FS_READ", &json!({ "path": path }).to_string()).unwrap();
        room.driver.perform(&call, &place, None, &|| false).answer
    };
    let error = read("handbook/a.txt").unwrap_err();
    assert_eq!(error.code, Code::NoEnt);
    assert_eq!(error.message, "the folder that the policy mounts at `handbook` cannot be opened: it is not there");
    assert_eq!(read("own.txt").unwrap()["content"], "chapter of one's own\n", "the rest goes on");
    let list = aos_abi::Syscall::parse("FS_LIST", "{}").unwrap();
    let listed = room.driver.perform(&list, &place, None, &|| false).answer.unwrap();
    assert_eq!(listed["unreadable"], json!(["handbook"]));
    // Whoever can write beside it puts a link in its place.
    std::os::unix::fs::symlink(room.outside(), &book).unwrap();
    let error = read("handbook/secret").unwrap_err();
    assert!(error.message.ends_with("its path goes through a symbolic link"), "{error}");
    assert!(!error.message.contains(book.to_str().unwrap()), "where it is on the host is not told: {error}");
}

#[test]
fn an_approval_binds_what_is_in_a_mount_too() {
    let room = room();
    let look = |name: &str, args: serde_json::Value| {
        super::super::examine(&room.place(), &aos_abi::Syscall::parse(name, &args.to_string()).unwrap()).files
    };
    let read = look("FS_READ", json!({"path": "handbook/a.txt"}));
    assert_eq!((read[0].is.as_str(), read[0].bytes), ("file", 12));
    let command = look("EXEC_CMD", json!({"cmd": "sh handbook/a.txt"}));
    assert_eq!(command, read);
    std::fs::write(room.outside().with_file_name("book").join("a.txt"), "another").unwrap();
    assert!(super::super::drift(&read, &look("FS_READ", json!({"path": "handbook/a.txt"}))).is_some());
}
