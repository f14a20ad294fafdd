//! What of a workspace rules label.

use aos_policy::{Labels, Policy};

use super::Room;
use crate::fs::{Mount, Place, labelled};

fn found(place: &Place) -> String {
    let rules =
        "{path: 'mail/**', ops: [read], label: untrusted.file}, {path: 'a/*/*.key', ops: [read], label: secret}";
    let policy = Policy::parse(&format!("version: 1\ndefault_role: r\nroles:\n  r: {{fs: [{rules}]}}\n")).unwrap();
    let all = policy.labels_of_files("r", ".");
    assert_eq!(all.to_string(), "untrusted.file, secret");
    assert_eq!(labelled(place, Labels::NONE, |_, _| panic!("nothing is to be looked for")), Labels::NONE);
    labelled(place, all, |path, is_folder| policy.labels_of_entry("r", path, is_folder)).to_string()
}

#[test]
fn a_rule_labels_where_something_it_is_about_lies_there() {
    let room = Room::new();
    let place = Place::new(room.work());
    assert_eq!(found(&place), "");
    room.put("notes/mail", "");
    std::fs::create_dir(room.work().join("mail")).unwrap();
    assert_eq!(found(&place), "", "a folder without anything");
    std::fs::create_dir(room.work().join("mail/urgent")).unwrap();
    assert_eq!(found(&place), "untrusted.file", "whoever writes mail names its folders");
    room.put("a/b/my.key", "");
    assert_eq!(found(&place), "untrusted.file, secret");
}

#[test]
fn what_is_mounted_is_looked_at_and_what_is_not_looked_at_counts() {
    let room = Room::new();
    let host = tempfile::tempdir().unwrap();
    std::fs::write(host.path().join("1.txt"), "").unwrap();
    let mounts = vec![Mount { at: "mail".into(), host: host.path().canonicalize().unwrap() }];
    assert_eq!(found(&Place { root: room.work(), mounts }), "untrusted.file");
    for nth in 0..10_000 {
        std::fs::write(room.work().join(format!("{nth}")), "").unwrap();
    }
    assert_eq!(found(&Place::new(room.work())), "untrusted.file, secret", "there are too many");
    assert_eq!(found(&Place::new(host.path().join("gone"))), "untrusted.file, secret");
}
