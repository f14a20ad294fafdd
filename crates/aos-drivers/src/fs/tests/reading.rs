//! `FS_READ`: pieces, text and bytes.

use aos_abi::{Code, limits};
use serde_json::json;

use super::Room;

#[test]
fn a_file_is_read_whole_and_in_pieces() {
    let room = Room::new();
    room.put("notes/a.txt", "hello world");
    let whole = room.call("FS_READ", json!({ "path": "./notes//a.txt" })).unwrap();
    assert_eq!(whole, json!({ "content": "hello world", "size": 11, "truncated": false }));
    let piece = room.call("FS_READ", json!({ "path": "notes/a.txt", "offset": 2, "limit": 3 })).unwrap();
    assert_eq!(piece, json!({ "content": "llo", "size": 11, "truncated": true, "next_offset": 5 }));
    let beyond = room.call("FS_READ", json!({ "path": "notes/a.txt", "offset": 99 })).unwrap();
    assert_eq!(beyond, json!({ "content": "", "size": 11, "truncated": false }));
    let last = room.call("FS_READ", json!({ "path": "notes/a.txt", "offset": u64::MAX, "limit": u64::MAX })).unwrap();
    assert_eq!(last["content"], "");
}

/// Going on at `next_offset` yields every byte once, whatever the piece size and the characters.
#[test]
fn characters_are_not_cut_and_no_byte_is_lost() {
    use base64::Engine as _;
    let room = Room::new();
    let mixed =
        [&b"na\xc3\xafve \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x8e\x89 "[..], &[0xff, 0x00, 0xc3], "ende é".as_bytes()]
            .concat();
    room.put("mixed", &mixed);
    for limit in 1..=mixed.len() {
        let (mut offset, mut got) = (0, Vec::new());
        loop {
            let piece = room.call("FS_READ", json!({ "path": "mixed", "offset": offset, "limit": limit })).unwrap();
            let content = piece["content"].as_str().unwrap();
            if piece["encoding"] == "base64" {
                got.extend(base64::engine::general_purpose::STANDARD.decode(content).unwrap());
            } else {
                got.extend(content.as_bytes());
            }
            if piece["truncated"] == false {
                break;
            }
            let next = piece["next_offset"].as_u64().unwrap();
            assert!(next > offset, "limit {limit} makes no progress at {offset}");
            offset = next;
        }
        assert_eq!(got, mixed, "limit {limit}");
    }
    room.put("text", "日本語");
    let piece = room.call("FS_READ", json!({ "path": "text", "limit": 7 })).unwrap();
    assert_eq!(piece, json!({ "content": "日本", "size": 9, "truncated": true, "next_offset": 6 }));
}

#[test]
fn a_big_file_costs_one_piece() {
    let room = Room::new();
    let file = std::fs::File::create(room.work().join("big")).unwrap();
    file.set_len(1 << 40).unwrap();
    let piece = room.call("FS_READ", json!({ "path": "big", "limit": u64::MAX })).unwrap();
    assert_eq!(piece["content"].as_str().unwrap().len(), limits::FS_READ_BYTES_MAX);
    assert_eq!(piece["size"], 1_u64 << 40);
    assert_eq!(piece["truncated"], true);
}

#[test]
fn what_cannot_be_read_says_why() {
    let room = Room::new();
    room.put("a/b.txt", "");
    assert_eq!(room.code("FS_READ", json!({ "path": "missing" })), Code::NoEnt);
    assert_eq!(room.code("FS_READ", json!({ "path": "a" })), Code::IsDir);
    assert_eq!(room.code("FS_READ", json!({ "path": "" })), Code::IsDir);
    assert_eq!(room.code("FS_READ", json!({ "path": "a/b.txt/c" })), Code::NotDir);
    assert_eq!(room.code("FS_READ", json!({ "path": "a/b.txt/" })), Code::Inval);
    assert_eq!(room.code("FS_READ", json!({ "path": "a\u{0}b" })), Code::Inval);
    let error = room.call("FS_READ", json!({ "path": "missing" })).unwrap_err();
    assert_eq!(
        (error.message.as_str(), error.hint.as_deref()),
        ("no file or folder `missing`", Some("FS_LIST shows what there is"))
    );
}

/// An image comes whole and says what it is, so that it can be shown; anything that only begins like one does not.
#[test]
fn an_image_comes_whole_and_named() {
    let room = Room::new();
    let png = [&b"\x89PNG\r\n\x1a\n"[..], &[0xff; 400 << 10]].concat();
    room.put("a.png", &png);
    let whole = room.call("FS_READ", json!({ "path": "a.png" })).unwrap();
    assert_eq!(
        (&whole["media_type"], &whole["encoding"], &whole["truncated"]),
        (&json!("image/png"), &json!("base64"), &json!(false))
    );
    assert_eq!(whole["content"].as_str().unwrap().len(), png.len().div_ceil(3) * 4);
    for (name, bytes, media_type) in [
        ("b", &b"\xff\xd8\xff\xe0\0\x10"[..], json!("image/jpeg")),
        ("c", &b"GIF89a\xff\0"[..], json!("image/gif")),
        ("d", &b"RIFF\xff\xff\0\0WEBPVP8 "[..], json!("image/webp")),
        ("e", &b"GIF89a is how a GIF begins"[..], json!(null)),
        ("f", &b"\x89PNG"[..], json!(null)),
    ] {
        room.put(name, bytes);
        let read = room.call("FS_READ", json!({ "path": name })).unwrap();
        assert_eq!(read["media_type"], media_type, "{name}");
    }
    // A piece is a piece, and what is too large for a model is bytes like any other.
    let piece = room.call("FS_READ", json!({ "path": "a.png", "limit": 100 })).unwrap();
    assert_eq!(piece["media_type"], json!(null));
    room.put("large.png", [&png[..], &vec![0xff; limits::IMAGE_BYTES_MAX]].concat());
    let large = room.call("FS_READ", json!({ "path": "large.png" })).unwrap();
    assert_eq!((&large["media_type"], &large["truncated"]), (&json!(null), &json!(true)));
}
