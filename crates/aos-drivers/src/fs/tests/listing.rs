//! `FS_LIST` and `FS_SEARCH`: order, bounds, patterns.

use aos_abi::{Code, limits};
use serde_json::{Value, json};

use super::Room;

fn paths(result: &Value, list: &str) -> Vec<String> {
    result[list].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
}

fn sample() -> Room {
    let room = Room::new();
    for path in ["b.md", "a.txt", "docs/x.md", "docs/deep/y.md", "docs-2/z.txt", "docs/.aos-draft-0123"] {
        room.put(path, format!("in {path}\n"));
    }
    room.link("docs", "link");
    room
}

#[test]
fn a_listing_is_sorted_and_follows_no_link() {
    let room = sample();
    let list = |args| paths(&room.call("FS_LIST", args).unwrap(), "entries");
    assert_eq!(list(json!({})), ["a.txt", "b.md", "docs", "docs-2", "link"]);
    assert_eq!(list(json!({ "path": "docs/" })), ["docs/deep", "docs/x.md"]);
    assert_eq!(
        list(json!({ "depth": 9 })),
        ["a.txt", "b.md", "docs", "docs/deep", "docs/deep/y.md", "docs/x.md", "docs-2", "docs-2/z.txt", "link"]
    );
    assert_eq!(list(json!({ "glob": "*.md" })), ["b.md"]);
    assert_eq!(list(json!({ "glob": "*.md", "depth": 2 })), ["b.md", "docs/x.md"]);
    assert_eq!(list(json!({ "glob": "**/*.md" })), ["b.md", "docs/deep/y.md", "docs/x.md"]);
    assert_eq!(list(json!({ "path": "docs", "glob": "deep/*" })), ["docs/deep/y.md"]);
    let entries = room.call("FS_LIST", json!({})).unwrap();
    let kinds: Vec<&str> = entries["entries"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["file", "file", "folder", "folder", "link"]);
    assert_eq!(entries["entries"][0]["size"], 9);
    let mtime: aos_abi::Timestamp = entries["entries"][0]["mtime"].as_str().unwrap().parse().unwrap();
    let meta = std::fs::metadata(room.work().join("a.txt")).unwrap().modified().unwrap();
    let millis = meta.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    assert_eq!(u128::try_from(mtime.0).unwrap(), millis);
    assert_eq!(room.code("FS_LIST", json!({ "path": "a.txt" })), Code::NotDir);
    assert_eq!(room.code("FS_LIST", json!({ "path": "none" })), Code::NoEnt);
    assert_eq!(room.code("FS_LIST", json!({ "glob": "a[" })), Code::Inval);
}

#[test]
fn a_long_listing_is_cut_at_its_sorted_beginning() {
    let room = Room::new();
    for nth in 0..limits::LISTING_MAX + 5 {
        room.put(&format!("{nth:05}"), "hit");
    }
    let listed = room.call("FS_LIST", json!({})).unwrap();
    assert_eq!(listed["truncated"], true);
    assert_eq!(paths(&listed, "entries").len(), limits::LISTING_MAX);
    assert_eq!(paths(&listed, "entries")[limits::LISTING_MAX - 1], format!("{:05}", limits::LISTING_MAX - 1));
    let found = room.call("FS_SEARCH", json!({ "pattern": "hit" })).unwrap();
    assert_eq!((paths(&found, "matches").len(), &found["truncated"]), (limits::LISTING_MAX, &json!(true)));
    let found = room.call("FS_SEARCH", json!({ "pattern": "hit", "glob": "0000?" })).unwrap();
    assert_eq!((paths(&found, "matches").len(), &found["truncated"]), (10, &json!(false)));
}

#[test]
fn a_search_finds_lines() {
    let room = sample();
    room.put("a.txt", "first\r\nsecond TODO\n\nTODO last");
    let found = room.call("FS_SEARCH", json!({ "pattern": "TODO$|^TODO" })).unwrap();
    assert_eq!(
        found,
        json!({ "matches": [
            { "path": "a.txt", "line": 2, "text": "second TODO" },
            { "path": "a.txt", "line": 4, "text": "TODO last" },
        ], "truncated": false })
    );
    let found = room.call("FS_SEARCH", json!({ "pattern": "in docs", "path": "docs", "glob": "*.md" })).unwrap();
    assert_eq!(paths(&found, "matches"), ["docs/deep/y.md", "docs/x.md"], "each once: no link is followed");
    let found = room.call("FS_SEARCH", json!({ "pattern": "^$", "path": "a.txt" })).unwrap();
    assert_eq!(found["matches"], json!([{ "path": "a.txt", "line": 3, "text": "" }]));
    assert_eq!(room.code("FS_SEARCH", json!({ "pattern": "(" })), Code::Inval);
    assert_eq!(room.code("FS_SEARCH", json!({ "pattern": "a{1000}{1000}{1000}" })), Code::Inval);
    assert_eq!(room.code("FS_SEARCH", json!({ "pattern": "a", "path": "none" })), Code::NoEnt);
}

#[test]
fn what_was_not_searched_is_said() {
    let room = Room::new();
    room.put("image.png", b"\x89PNG\0hit");
    room.put("latin.txt", b"caf\xe9 hit");
    let mut big = vec![b'x'; 9 << 20];
    big[..3].copy_from_slice(b"hit");
    room.put("one-line", &big);
    let found = room.call("FS_SEARCH", json!({ "pattern": "hit" })).unwrap();
    assert_eq!(paths(&found, "matches"), ["latin.txt", "one-line"]);
    assert_eq!(found["matches"][0]["text"], "caf\u{fffd} hit");
    assert!(found["matches"][1]["text"].as_str().unwrap().len() < 500, "a long line is cut");
    assert_eq!(
        found["left_out"],
        json!([
            { "path": "image.png", "why": "binary" },
            { "path": "one-line", "why": format!("searched only up to byte {}", 8 << 20) },
        ])
    );
}

/// The pattern that makes backtracking engines run for ever.
#[test]
fn a_hostile_pattern_takes_linear_time() {
    let room = Room::new();
    room.put("a", format!("{}!", "a".repeat(100_000)));
    let found = room.call("FS_SEARCH", json!({ "pattern": "^(a+)+$" })).unwrap();
    assert_eq!(found["matches"], json!([]));
}

/// A program of thousands of states, walked for every byte, takes hours for what a folder may hold, so that it is asked
/// within a line whether to go on.
#[test]
fn a_long_line_is_matched_in_pieces() {
    const PIECE: usize = 32 << 10;
    let room = Room::new();
    let large = |pattern: &str| format!("{pattern}|[01]*1[01]{{9000}}[a-z]");
    let x = |bytes: usize| "x".repeat(bytes);
    room.put("cut", format!("{}hit{}", x(PIECE - 2), x(PIECE)));
    room.put("far", format!("{}hit", x(1 << 20)));
    let found = room.call("FS_SEARCH", json!({ "pattern": large("hit") })).unwrap();
    assert_eq!((paths(&found, "matches"), &found["truncated"]), (vec!["cut".into(), "far".into()], &json!(false)));
    assert_eq!(found["left_out"], Value::Null);
    for pattern in ["x$", "^hit", r"x\bx", r"x\b"] {
        let found = room.call("FS_SEARCH", json!({ "pattern": large(pattern), "path": "far" })).unwrap();
        assert_eq!(found["matches"], json!([]), "{pattern}: a piece is no line");
        let why = "in line 1 no match of more than 16384 bytes is seen";
        assert_eq!(found["left_out"], json!([{ "path": "far", "why": why }]));
    }
    let looks = std::cell::Cell::new(0);
    let stop = || {
        looks.set(looks.get() + 1);
        looks.get() > 3
    };
    let found = room.call_until("FS_SEARCH", json!({ "pattern": large("hit"), "path": "far" }), &stop).unwrap();
    let why = "searched only up to line 1, byte 32768: the search took too long";
    assert_eq!((&found["truncated"], &found["left_out"]), (&json!(true), &json!([{ "path": "far", "why": why }])));
}

#[test]
fn a_search_that_is_to_stop_says_how_far_it_came() {
    let room = Room::new();
    room.put("a", "hit\nhit\nhit\n");
    room.put("b", "hit\n");
    let looks = std::cell::Cell::new(0);
    let stop = || {
        looks.set(looks.get() + 1);
        looks.get() > 3
    };
    let found = room.call_until("FS_SEARCH", json!({ "pattern": "hit" }), &stop).unwrap();
    assert_eq!((paths(&found, "matches").len(), &found["truncated"]), (2, &json!(true)));
    let why = "searched only up to line 3, byte 0: the search took too long";
    assert_eq!(found["left_out"], json!([{ "path": "a", "why": why }]));
}
