//! Mounts: what their rules give, what they take away, and who sees them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use aos_policy::{Grants, Labels, Policy, Subject, diff};

use rig::{file, grants, line, role, subject};

const MOUNTED: &str = "{fs: [{path: '**', ops: [read, write, delete]}], mounts: [{host: /srv/handbook, at: handbook, ops: [read]}], exec: {shell: true, programs: [sh]}, calls: [SPAWN_AGENT]}";

#[test]
fn what_is_mounted_is_read_and_neither_changed_nor_moved_whatever_the_files_around_it_may() {
    let policy = role(MOUNTED);
    let allowed = [
        r#"FS_READ {"path":"handbook/a/b"}"#,
        r#"FS_LIST {"path":"handbook"}"#,
        r#"FS_SEARCH {"pattern":"x","path":"handbook"}"#,
        r#"FS_SEARCH {"pattern":"x"}"#,
        r#"FS_WATCH {"path":"handbook"}"#,
    ];
    for text in allowed {
        assert!(line(&policy, text).starts_with("allow"), "{text}: {}", line(&policy, text));
    }
    assert_eq!(line(&policy, allowed[0]), "allow · role r: mounts[0] handbook/**");
    for text in [
        r#"FS_WRITE {"path":"handbook/a","content":""}"#,
        r#"FS_EDIT {"path":"handbook/a","edits":[{"old":"a","new":"b"}]}"#,
        r#"FS_DELETE {"path":"handbook/a"}"#,
        r#"FS_DELETE {"path":"handbook"}"#,
        r#"FS_DELETE {"path":"."}"#,
        r#"FS_MOVE {"from":"handbook","to":"mine"}"#,
        r#"FS_MOVE {"from":"a","to":"handbook/a"}"#,
        r#"FS_MOVE {"from":"a","to":"handbook"}"#,
    ] {
        assert_eq!(line(&policy, text), "deny · role r: mounts[0] handbook/**", "{text}");
    }
    // Names that only begin alike are other files.
    assert!(line(&policy, r#"FS_WRITE {"path":"handbook-evil/a","content":""}"#).starts_with("allow"));
    assert!(line(&policy, r#"FS_READ {"path":"handbook/../../etc/passwd"}"#).starts_with("deny · floor"));
}

/// What a rule about labels keeps from FS_READ no command is shown.
#[test]
fn what_labels_close_is_not_all_read() {
    let with = |rule: &str| {
        let text = "version: 1\ndefault_role: r\nroles:\n  r: {fs: [{path: '**', ops: [read]}]}\nlabels:\n  - ";
        file(&format!("{text}{rule}\n"))
    };
    let reads = |policy: &Policy, labels| policy.reads_all(&Subject { labels, ..subject(&[]) }, ".");
    for verdict in ["deny", "ask"] {
        let policy = with(&format!("{{when: untrusted, calls: [FS_READ], verdict: {verdict}}}"));
        assert!(reads(&policy, Labels::NONE) && !reads(&policy, Labels::WEB), "{verdict}");
    }
    let other = with("{when: untrusted, calls: [FS_WRITE], verdict: deny}");
    assert!(reads(&other, Labels::WEB));
}

#[test]
fn commands_are_shown_a_mount_only_where_all_of_it_may_be_read_without_a_question() {
    let seen = |policy: &Policy, chain: &[Grants]| policy.mounts(&subject(chain)).len();
    let policy = role(MOUNTED);
    assert_eq!(seen(&policy, &[]), 1);
    for (texts, count) in [
        (&["EXEC_CMD", "FS_READ handbook/**"][..], 1),
        (&["EXEC_CMD", "FS_*"], 1),
        (&["EXEC_CMD"], 0),
        (&["EXEC_CMD", "FS_READ src/**"], 0),
        (&["EXEC_CMD", "FS_READ handbook/public/**"], 0),
        (&["EXEC_CMD", "FS_WRITE handbook/**"], 0),
        (&[], 0),
    ] {
        assert_eq!(seen(&policy, &[grants(texts)]), count, "{texts:?}");
        // An ancestor's grants bind as well.
        assert_eq!(seen(&policy, &[grants(&["FS_*", "EXEC_CMD"]), grants(texts)]), count, "{texts:?}");
    }
    for rule in ["{path: handbook/private/**, ops: [read], verdict: ask}", "{path: '**', ops: [read], verdict: deny}"] {
        let stricter = role(&MOUNTED.replace("fs: [", &format!("fs: [{rule}, ")));
        assert_eq!(seen(&stricter, &[]), 0, "{rule}");
    }
}

#[test]
fn a_child_may_read_no_more_of_a_mount_than_its_parent_and_an_example_shows_it() {
    let policy = role("{mounts: [{host: /srv/handbook, at: handbook, ops: [read]}], calls: [SPAWN_AGENT]}");
    let check = |chain: &[Grants], child: &str| {
        let child = grants(&[child]);
        policy.check_child(&subject(chain), child.as_slice()).map_err(|exceeds| exceeds.example)
    };
    assert_eq!(check(&[], "FS_READ handbook/**"), Ok(()));
    assert_eq!(check(&[], "FS_READ handbook/a/*"), Ok(()));
    assert_eq!(check(&[], "FS_READ **"), Err("FS_READ x".to_owned()));
    assert!(check(&[], "FS_READ handbook-evil/**").unwrap_err().starts_with("FS_READ handbook-evil"));
    assert!(check(&[], "FS_WRITE handbook/**").unwrap_err().starts_with("FS_WRITE handbook"));
    let parent = [grants(&["SPAWN_AGENT", "FS_READ handbook/public/**"])];
    assert_eq!(check(&parent, "FS_READ handbook/public/a"), Ok(()));
    assert_eq!(check(&parent, "FS_READ handbook/**"), Err("FS_READ handbook/x".to_owned()));
}

#[test]
fn a_difference_says_whose_files_come_and_go() {
    let with = |host: &str| role(&MOUNTED.replace("/srv/handbook", host));
    let none = role(
        "{fs: [{path: '**', ops: [read, write, delete]}], exec: {shell: true, programs: [sh]}, calls: [SPAWN_AGENT]}",
    );
    let told = |old: &Policy, new: &Policy| -> Vec<String> {
        diff::diff(old, new).iter().map(ToString::to_string).filter(|line| line.contains(" of /")).collect()
    };
    assert_eq!(
        told(&none, &with("/srv/a")),
        ["+ r: FS_READ handbook/** of /srv/a was deny (not mounted), is allow (role r: mounts[0])"]
    );
    assert_eq!(
        told(&with("/srv/a"), &with("/srv/b")),
        [
            "- r: FS_READ handbook/** of /srv/a was allow (role r: mounts[0]), is deny (not mounted)",
            "+ r: FS_READ handbook/** of /srv/b was deny (not mounted), is allow (role r: mounts[0])",
        ]
    );
    assert_eq!(told(&with("/srv/a"), &with("/srv/a")), Vec::<String>::new());
    // What cannot be changed any more is said as well.
    let closed = diff::diff(&none, &with("/srv/a"));
    assert!(
        closed.iter().any(|change| change.example.starts_with("FS_WRITE handbook") && !change.loosens()),
        "{closed:?}"
    );
}

#[test]
fn what_only_the_machine_knows_of_a_mount_is_a_fault_at_its_place() {
    let policy = file(
        "version: 1\ndefault_role: r\nroles:\n  r:\n    mounts:\n      - {host: /a, at: a, ops: [read]}\n      - {host: /b, at: b, ops: [read]}\n",
    );
    let faults = policy.mount_faults(|mount| (mount.host == "/b").then(|| ("no".to_owned(), "out".to_owned())));
    assert_eq!(faults.iter().map(ToString::to_string).collect::<Vec<_>>(), ["line 7, column 16: no"]);
}
