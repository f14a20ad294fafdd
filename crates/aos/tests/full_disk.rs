//! A disk that is really full, under a daemon at work.
//!
//! Start at [`a_full_disk_is_told_and_loses_nothing_acknowledged`]: it mounts a small file system in memory, in a
//! namespace of its own, and runs [`child_works_on_a_small_disk`] there. Where a machine allows no such namespace it says
//! so and does nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use rig::{Rig, any, assert_told, call, echo, say, until, write};

/// Room that is left when the trouble begins, in bytes.
const LEFT: u64 = 600 << 10;
/// What each input holds, in bytes: a few dozen of them are more than there is room for.
const INPUT: usize = 16 << 10;

#[test]
fn a_full_disk_is_told_and_loses_nothing_acknowledged() {
    let probe = Command::new("unshare").args(["--user", "--map-root-user", "--mount", "true"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return rig::skipped("this machine allows no mount namespace");
    }
    let disk = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
        .arg(r#"mount -t tmpfs -o size=12m tmpfs "$TMPDIR" && exec "$0" "$@""#)
        .arg(std::env::current_exe().unwrap())
        .args(["child_works_on_a_small_disk", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env("TMPDIR", disk.path())
        .env("AOS_SMALL_DISK", disk.path())
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("filled and mended"), "{out}\n{err}");
}

/// Takes all but [`LEFT`] of the room.
fn fill(disk: &Path) {
    let there = rustix::fs::statvfs(disk).unwrap();
    let ballast = there.f_bavail * there.f_frsize - LEFT;
    fs::write(disk.join("ballast"), vec![0; usize::try_from(ballast).unwrap()]).unwrap();
}

#[test]
#[ignore = "the test above runs it on a small disk"]
fn child_works_on_a_small_disk() {
    let Some(disk) = std::env::var_os("AOS_SMALL_DISK") else { return };
    let disk = Path::new(&disk);
    let again = call("FS_READ", json!({ "path": "result:1" }));
    let tries = any("try it", vec![write("a.txt", "x"), again, say("told")]);
    let register = call("SYS_REGISTER_WEBHOOK", json!({ "path": "hooks/orders" }));
    let takes = any("take orders", vec![register, say("ready")]);
    let rig = Rig::new(vec![tries, takes, echo(), any("", vec![say("ready")])]);
    let taker = rig.spawn(&["take orders"]);
    rig.until_idle(taker);
    let pid = rig.spawn(&["--name", "keeper", "keep what you are told"]);
    rig.until_idle(pid);
    // It is asked for nothing meanwhile: what fills the disk is what is sent to it, while it is held.
    assert_eq!(rig.aos(&["pause", &pid.to_string()]).code, 0);
    let key = rig.json(&["models", "key", "editor"])["key"].as_str().unwrap().to_owned();
    fill(disk);

    // What is left is the daemon's, and agents end before it: a result that is read again is journaled too.
    let tried = rig.aos(&["run", "try it"]);
    assert_eq!((tried.code, rig.daemons().len()), (0, 1), "{tried:?}");
    let results = rig.journal().into_iter().filter(|entry| entry["type"] == "result" && entry["pid"] != taker);
    let codes: Vec<_> = results.map(|entry| entry["error"]["code"].clone()).collect();
    assert_eq!(codes, ["ENOSPC", "ENOSPC"]);

    // So do programs and webhooks, whose requests are journaled.
    // The daemon's own entries may come meanwhile.
    let of_outside = || {
        let kinds = ["asked", "refused", "served", "webhook"];
        rig.journal().iter().filter(|entry| kinds.iter().any(|kind| entry["type"] == *kind)).count()
    };
    let (before, bearer) = (of_outside(), format!("Bearer {key}"));
    let request = json!({ "model": "small", "messages": [{ "role": "user", "content": "try it" }] }).to_string();
    let refused = rig.tcp("POST", "/v1/chat/completions", &[("Authorization", &bearer)], Some(&request));
    assert!(refused.status == 507 && refused.text().contains("the disk is nearly full"), "{refused:?}");
    let refused = rig.tcp("POST", "/hooks/hooks/orders", &[], Some("an order"));
    assert!(refused.status == 503 && !refused.text().contains("MiB"), "{refused:?}");
    assert_eq!(of_outside(), before);

    let send = |nth: usize| {
        let text = format!("<input {nth}>{}", "x".repeat(INPUT));
        rig.try_http("POST", &format!("/v1/processes/{pid}/stdin"), Some(&json!({ "text": text })))
    };
    let mut acknowledged = 0;
    let refusal = loop {
        match send(acknowledged) {
            Ok(answer) if answer.status < 300 => acknowledged += 1,
            Ok(answer) => break Some(answer),
            Err(_) => break None,
        }
        assert!(acknowledged < 200, "the disk was never full");
    };
    // Whoever was sent away was told so, where the answer still got through.
    if let Some(answer) = refusal {
        assert!(answer.status == 507 && answer.text().contains("no room on the disk"), "{answer:?}");
    }
    until("the daemon to stop", || rig.daemons().is_empty().then_some(()));
    assert!(acknowledged > 3, "{acknowledged} inputs were taken");
    let log = rig.log();
    assert!(log.contains("no room on the disk"), "{log}");

    // Without room it does not start, and says what is safe and what to do.
    assert_told(&rig.aos(&["ps"]), 3, &["make room on the disk", "everything acknowledged is there"]);

    fs::remove_file(disk.join("ballast")).unwrap();
    rig.up();
    let kept = rig.entries(pid, "input");
    for nth in 0..acknowledged {
        let mark = format!("<input {nth}>");
        let times = kept.iter().filter(|entry| entry["text"].as_str().is_some_and(|text| text.starts_with(&mark)));
        assert_eq!(times.count(), 1, "{mark} of {acknowledged} acknowledged ones");
    }
    assert!(kept.len() <= acknowledged + 1, "{} of {acknowledged}", kept.len());
    assert_eq!(rig.aos(&["audit", "verify"]).code, 0);
    assert_eq!(rig.aos(&["resume", &pid.to_string()]).code, 0);
    rig.until_idle(pid);
    let shown = rig.requests_with("<input 0>");
    assert!(!shown.is_empty(), "the agent is shown what it was sent");
    println!("\nfilled and mended after {acknowledged} inputs");
}

/// What fills a disk slowly is the log.
#[test]
fn the_log_of_a_running_daemon_is_begun_anew() {
    let rig = Rig::new(vec![any("", vec![say("done")])]);
    rig.up();
    rig.stop();
    // A little less than is too much, so that it is the daemon who comes past it.
    let log = rig.file("logs/daemon.log");
    fs::File::options().write(true).open(&log).unwrap().set_len((16 << 20) - 8).unwrap();
    rig.up();
    until("the log to be begun anew", || rig.file("logs/daemon.log.1").exists().then_some(()));
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    for daemon in rig.daemons() {
        let held = fs::read_dir(format!("/proc/{}/fd", daemon.as_raw_nonzero())).unwrap().flatten();
        let held: Vec<_> = held.filter_map(|one| fs::read_link(one.path()).ok()).collect();
        assert!(held.contains(&log) && !held.contains(&rig.file("logs/daemon.log.1")), "{held:?}");
    }
    rig.stop();
    assert!(fs::metadata(&log).unwrap().len() < 1 << 20);
    assert!(fs::metadata(rig.file("logs/daemon.log.1")).unwrap().len() >= 16 << 20);
}
