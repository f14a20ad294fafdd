//! A daemon's own files in a workspace: seen by no call, and moved and deleted by none.

use aos_abi::Code;
use serde_json::json;

use super::Room;

const HOMES: [&str; 4] = [".aos", "sub/.AOS", "deep/er/.Aos", "odd\u{e9}/x/.aos"];

fn fill(room: &Room) {
    for home in HOMES {
        room.put(&format!("{home}/run/token"), "key");
        room.put(&format!("{home}/../beside"), "key");
    }
    room.put("plain/.aosx/.aos-notes", "key");
    room.put("file/.aos", "key");
    room.link("sub", "link");
}

#[test]
fn what_is_a_daemons_own_is_neither_listed_nor_searched() {
    let room = Room::new();
    fill(&room);
    let listed = room.call("FS_LIST", json!({ "depth": 9 })).unwrap();
    let listed: Vec<&str> = listed["entries"].as_array().unwrap().iter().map(|e| e["path"].as_str().unwrap()).collect();
    let closed = |path: &&str| path.split('/').any(aos_policy::is_home);
    assert!(!listed.iter().any(closed) && listed.contains(&"plain/.aosx/.aos-notes"), "{listed:?}");
    for args in [
        json!({ "pattern": "key" }),
        json!({ "pattern": "key", "path": "sub" }),
        json!({ "pattern": "key", "glob": "**/token" }),
        json!({ "pattern": "key", "glob": ".aos/run/token" }),
    ] {
        let found = room.call("FS_SEARCH", args.clone()).unwrap();
        let found: Vec<&str> =
            found["matches"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
        assert!(!found.iter().any(closed), "{args}: {found:?}");
        assert_eq!(found.contains(&"sub/beside"), args["glob"].is_null(), "{args}");
    }
}

#[test]
fn no_folder_that_holds_a_daemons_own_is_moved_or_deleted() {
    for room in [Room::new(), Room::without_layers()] {
        fill(&room);
        for folder in ["sub", "deep", "deep/er", "odd\u{e9}", "file"] {
            for (call, args) in [
                ("FS_DELETE", json!({ "path": folder })),
                ("FS_MOVE", json!({ "from": folder, "to": "taken" })),
                ("FS_MOVE", json!({ "from": folder, "to": "new/taken" })),
            ] {
                let error = room.call(call, args).unwrap_err();
                assert_eq!(error.code, Code::Perm, "{folder}: {error}");
                assert!(error.message.contains("the daemon's own") && error.hint.is_some(), "{error}");
            }
        }
        assert!(HOMES.iter().all(|home| room.text(&format!("{home}/run/token")) == "key"));
        assert!(!room.names().iter().any(|name| name == "new" || name == "taken"));
        for (call, args) in [
            ("FS_DELETE", json!({ "path": "sub/beside" })),
            ("FS_DELETE", json!({ "path": "link" })),
            ("FS_MOVE", json!({ "from": "deep/er/beside", "to": "elsewhere" })),
            ("FS_MOVE", json!({ "from": "plain", "to": "deep/plain" })),
            ("FS_DELETE", json!({ "path": "deep/plain" })),
        ] {
            room.call(call, args.clone()).unwrap_or_else(|error| panic!("{args}: {error}"));
        }
    }
}

#[test]
fn a_folder_of_many_is_looked_through_whole() {
    let room = Room::new();
    for nth in 0..300 {
        room.put(&format!("many/{nth:03}/{}", "n".repeat(200)), "");
    }
    room.put("many/150/x/y/.aos/journal.db", "");
    assert_eq!(room.code("FS_DELETE", json!({ "path": "many" })), Code::Perm);
    std::fs::remove_dir_all(room.work().join("many/150/x/y/.aos")).unwrap();
    room.call("FS_DELETE", json!({ "path": "many" })).unwrap();
}
