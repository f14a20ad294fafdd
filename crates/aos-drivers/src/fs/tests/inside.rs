//! Nothing outside the workspace is read, changed or made, by whatever path, link or race.

use std::sync::atomic::{AtomicBool, Ordering};

use aos_abi::Code;
use serde_json::json;

use super::{Room, every_call};

#[test]
fn absolute_paths_and_dots_leave_nothing_to_any_call() {
    let room = Room::new();
    room.put("mine", "mine");
    let absolute = room.outside().join("secret").display().to_string();
    for path in ["/etc/passwd", "../work-evil/secret", "a/../../work-evil/secret", "..", &absolute] {
        for (name, args) in every_call(path) {
            assert_eq!(room.code(name, args), Code::Perm, "{name} {path}");
        }
    }
    assert_eq!(room.names(), ["mine"]);
    assert_eq!(std::fs::read_to_string(room.outside().join("secret")).unwrap(), "evil");
}

#[test]
fn a_link_to_the_outside_is_followed_by_no_call() {
    let room = Room::new();
    room.put("mine", "mine");
    room.link("/etc/passwd", "passwd");
    room.link(room.outside(), "evil");
    room.link("../work-evil", "relative");
    for path in ["evil/secret", "relative/secret", "evil/new", "relative/deep/new"] {
        for (name, args) in every_call(path) {
            assert_eq!(room.code(name, args), Code::Perm, "{name} {path}");
        }
    }
    for (name, args) in every_call("passwd").into_iter().take(7) {
        let error = room.call(name, args.clone()).unwrap_err();
        let expected = if args["mode"] == "create" { Code::Exist } else { Code::Perm };
        assert_eq!(error.code, expected, "{name} {args}: {error}");
    }
    let error = room.call("FS_READ", json!({ "path": "passwd" })).unwrap_err();
    assert_eq!(error.message, "`passwd` is outside the workspace: a symbolic link in it leads out of the workspace");
    assert_eq!(std::fs::read_dir(room.outside()).unwrap().count(), 1, "nothing was made outside");
    assert_eq!(std::fs::read_to_string(room.outside().join("secret")).unwrap(), "evil");
}

#[test]
fn a_link_that_stays_inside_is_named_and_not_followed() {
    let room = Room::new();
    room.put("contracts/a.md", "terms");
    room.link("contracts", "notes");
    let error = room.call("FS_READ", json!({ "path": "notes/a.md" })).unwrap_err();
    assert_eq!(error.code, Code::Perm);
    assert_eq!(
        error.hint.as_deref(),
        Some("links are not followed; it leads to `contracts/a.md`, call again with that path")
    );
    assert_eq!(error.partial, Some(json!({ "leads_to": "contracts/a.md" })), "for the kernel, which knows its labels");
    let error = room.call("FS_WRITE", json!({ "path": "notes/b.md", "content": "x" })).unwrap_err();
    assert_eq!(
        error.hint.as_deref(),
        Some("links are not followed; it leads to `contracts`, call again with that path")
    );
    assert!(!room.work().join("contracts/b.md").exists());
}

#[test]
fn deleting_and_moving_a_link_leaves_what_it_leads_to() {
    let room = Room::new();
    room.link(room.outside(), "evil");
    room.call("FS_MOVE", json!({ "from": "evil", "to": "deep/evil" })).unwrap();
    room.call("FS_DELETE", json!({ "path": "deep" })).unwrap();
    assert_eq!(room.names(), Vec::<String>::new());
    assert_eq!(std::fs::read_to_string(room.outside().join("secret")).unwrap(), "evil");
}

#[test]
fn magic_links_lead_nowhere() {
    let room = Room::new();
    room.link("/proc/self/root/etc", "etc");
    room.link("/proc/self/cwd", "cwd");
    room.link("/proc/self/fd/0", "fd");
    for path in ["etc/passwd", "cwd/Cargo.toml", "fd"] {
        assert_eq!(room.code("FS_READ", json!({ "path": path })), Code::Perm, "{path}");
    }
    // A workspace that itself holds magic links: the process's own folder in /proc.
    let call = aos_abi::Syscall::parse("FS_READ", r#"{"path":"root/etc/passwd"}"#).unwrap();
    let error =
        super::Driver::new().perform(&call, &super::Place::new("/proc/self"), None, &|| false).answer.unwrap_err();
    assert_eq!(error.code, Code::Perm, "{error}");
}

#[test]
fn pipes_and_devices_are_refused_without_waiting() {
    let room = Room::new();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, room.work().join("pipe"), fifo, mode, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(room.work().join("socket")).unwrap();
    for path in ["pipe", "socket"] {
        for (name, args) in every_call(path).into_iter().take(5) {
            let expected = if args["mode"] == "create" { Code::Exist } else { Code::Perm };
            assert_eq!(room.code(name, args), expected, "{name} {path}");
        }
        assert!(room.work().join(path).exists());
    }
    let call = aos_abi::Syscall::parse("FS_READ", r#"{"path":"null"}"#).unwrap();
    let error = super::Driver::new().perform(&call, &super::Place::new("/dev"), None, &|| false).answer.unwrap_err();
    assert_eq!(error.message, "`null` is a device, not a regular file");
}

#[test]
fn a_hard_link_is_broken_by_a_replacement_and_never_written_through() {
    let room = Room::new();
    let secret = room.outside().join("secret");
    std::fs::hard_link(&secret, room.work().join("hard")).unwrap();
    let error = room.call("FS_WRITE", json!({ "path": "hard", "content": "x", "mode": "append" })).unwrap_err();
    assert_eq!(error.code, Code::Perm);
    room.call("FS_EDIT", json!({ "path": "hard", "edits": [{ "old": "evil", "new": "good" }] })).unwrap();
    room.call("FS_WRITE", json!({ "path": "hard", "content": "!", "mode": "append" })).unwrap();
    assert_eq!(room.text("hard"), "good!");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "evil");
}

/// A thread swaps a folder with a link to the outside, as fast as it can, while every changing call goes through it.
/// Each round needs both sides to have met at least once, so the test proves that the race took place.
#[test]
fn a_folder_swapped_for_a_link_while_calls_run_leads_nothing_out() {
    let room = Room::new();
    std::fs::create_dir(room.work().join("real")).unwrap();
    room.link(room.outside(), "link");
    std::fs::create_dir(room.work().join("dir")).unwrap();
    let done = AtomicBool::new(false);
    let (mut went, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let work = rustix::fs::open(
                room.work(),
                rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::PATH,
                rustix::fs::Mode::empty(),
            )
            .unwrap();
            while !done.load(Ordering::Relaxed) {
                let swap = rustix::fs::RenameFlags::EXCHANGE;
                // A commit that replaces one of them has it out of the folder for a moment.
                match rustix::fs::renameat_with(&work, "dir", &work, "link", swap) {
                    Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                    Err(other) => panic!("the swap fails: {other}"),
                }
            }
        });
        let mut round = 0;
        while round < 50 || went == 0 || refused == 0 {
            round += 1;
            for (name, args) in [
                ("FS_WRITE", json!({ "path": "dir/new", "content": "x" })),
                ("FS_WRITE", json!({ "path": "dir/secret", "content": "x" })),
                ("FS_WRITE", json!({ "path": "dir/secret", "content": "x", "mode": "append" })),
                ("FS_WRITE", json!({ "path": format!("dir/deep{round}/new"), "content": "x" })),
                ("FS_READ", json!({ "path": "dir/secret" })),
                ("FS_DELETE", json!({ "path": "dir/secret" })),
            ] {
                match room.call(name, args) {
                    Ok(result) => {
                        assert_ne!(result["content"], "evil", "read the outside");
                        went += 1;
                    }
                    Err(_) => refused += 1,
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let outside: Vec<_> = std::fs::read_dir(room.outside()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(outside, ["secret"], "{went} went, {refused} refused");
    assert_eq!(std::fs::read_to_string(room.outside().join("secret")).unwrap(), "evil");
}
