//! Workspaces in which not everything is of one user and one group.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
use std::path::Path;

use aos_sandbox::{Foreign, Layer, Like, Outcome, TOO_LARGE, foreign};
use serde_json::Value;

use super::rig::{self, Rig, Room, go, walled};

/// A group that every distribution has and nobody's first one is (`tty`).
const OTHER: u32 = 5;

fn owner(path: &Path) -> (u32, u32) {
    let meta = path.symlink_metadata().expect("it is there");
    (meta.uid(), meta.gid())
}

/// A file or, with a mode that says so, a folder.
fn make(path: &Path, mode: u32, (uid, gid): (u32, u32)) {
    match mode & 0o2000 {
        0 => std::fs::write(path, "old\n").expect("it can be made"),
        _ => std::fs::create_dir(path).expect("it can be made"),
    }
    chown(path, Some(uid), Some(gid)).expect("this user may");
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("it is ours");
}

/// Runs a script over a layer and commits that.
fn kept(rig: &Rig, script: &str) -> Outcome {
    let folder = Room::new();
    let layer = Layer::create(folder.path().join("layer")).expect("it can be made");
    let mut spec = rig.spec(&["sh", "-c", script]);
    spec.layer = Some(layer.clone());
    let out = go(&spec).expect("the shell starts");
    let _ = layer.commit(&rig.path(), None, Value::Null).expect("it commits");
    out
}

/// Every file of another user or group was refused: as read-only where it lay open to all, and where its folder was the
/// command's own with \"Value too large\" for what is done to it. What was made in such a folder got another group.
#[test]
fn under_root_others_are_others_and_no_hindrance() {
    let Some(rig) = walled() else { return };
    if !rustix::process::geteuid().is_root() {
        return; // Only root can give files away.
    }
    let at = |name: &str| rig.path().join(name);
    // Inside, the command has the number that one of the others has outside.
    for (uid, gid) in [(1234, 2345), (0, 0)] {
        let rig = walled().expect("it was there a moment ago");
        let at = |name: &str| rig.path().join(name);
        make(&at("sub"), 0o2775, (uid, OTHER));
        make(&at("sub/own"), 0o644, (uid, OTHER));
        make(&at("open"), 0o666, (33, gid));
        make(&at("closed"), 0o644, (1000, 1000));
        make(&at("secret"), 0o600, (33, 33));
        make(&at("moves"), 0o644, (1000, OTHER));
        chown(rig.path(), Some(uid), Some(gid)).expect("root may");
        let script = "set -x; echo new >> sub/own; chmod 640 sub/own; echo new > sub/new; mkdir sub/d; echo new > sub/d/new; \
            echo new >> open; mv moves moved; ! echo new 2> /dev/null >> closed; ! cat secret 2> /dev/null; \
            ! chown 1000:5 sub/new 2> /dev/null; ! chmod 666 closed 2> /dev/null; stat -c '%u:%g' . sub/own open closed";
        let out = kept(&rig, &format!("set -e; {script}"));
        let named =
            if uid == 1234 { "1000:1000\n1000:5\n33:1000\n1234:2345\n" } else { "1000:1000\n1000:5\n33:1000\n0:0\n" };
        assert!(out.success() && out.stdout.text() == named, "{uid}: {out:?}");
        let owners = ["sub/own", "sub/new", "sub/d", "sub/d/new", "open", "closed", "moved", "secret"]
            .map(|name| owner(&at(name)));
        let others = (uid, OTHER);
        assert_eq!(owners, [others, others, others, others, (33, gid), (1000, 1000), (1000, OTHER), (33, 33)]);
        let text = |name: &str| std::fs::read_to_string(at(name)).expect("it is there");
        assert_eq!([text("sub/own"), text("open"), text("closed")], ["old\nnew\n", "old\nnew\n", "old\n"]);
        assert_eq!(at("sub/d").metadata().expect("it was made").mode() & 0o7777, 0o2755);
        assert_eq!(foreign(&rig.path(), |_| true), None);
    }
    // Without a layer too.
    chown(rig.path(), Some(1234), Some(2345)).expect("root may");
    make(&at("open"), 0o664, (1234, OTHER));
    assert!(rig.sh("echo new >> open").success());
    assert_eq!(owner(&at("open")), (1234, OTHER));
}

/// The command's own group is the only one that an ordinary user can give it. It was not said what stands in the way, and
/// what was made in a folder that hands its group on did not get it.
#[test]
fn under_an_ordinary_user_another_group_is_told_and_is_handed_on() {
    const NAME: &str = "owners::under_an_ordinary_user_another_group_is_told_and_is_handed_on";
    if rustix::process::geteuid().is_root() {
        return if walled().is_some() {
            rig::again_in_a_further_group(OTHER, NAME)
        };
    }
    let Some(rig) = walled() else { return };
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if !rustix::process::getgroups().is_ok_and(|groups| groups.iter().any(|group| group.as_raw() == OTHER)) {
        eprintln!("not tried: this user is in no other group");
        return;
    }
    let at = |name: &str| rig.path().join(name);
    chown(rig.path(), None, Some(OTHER)).expect("this user may");
    std::fs::set_permissions(rig.path(), PermissionsExt::from_mode(0o2775)).expect("it is ours");
    make(&at("f"), 0o664, (uid, OTHER));
    make(&at("mine"), 0o664, (uid, gid));
    let out = kept(
        &rig,
        "echo new >> mine; echo new > new; mkdir d; echo new > d/new; mkdir e; chmod g-s e; echo new > e/new; ln -s f l; \
         echo new > t; mv t mine2; cat f; echo new >> f",
    );
    // Reading is no matter of groups.
    assert_eq!(out.stdout.text(), "old\n", "{out:?}");
    assert!(out.stderr.text().contains(TOO_LARGE), "{out:?}");
    let groups = ["new", "d", "d/new", "l", "mine2", "mine", "e/new"].map(|name| owner(&at(name)).1);
    assert_eq!(groups, [OTHER, OTHER, OTHER, OTHER, OTHER, gid, gid]);
    let found = foreign(&rig.path(), |_| true).expect("there is something");
    assert_eq!(found, Foreign { path: "d".into(), owner: (uid, OTHER), user: false });
    assert!(found.remedy().contains("`sg tty -c 'aos up'`"), "{found:?}");
    // What the daemon itself writes, it writes in the file's own group.
    let folder = Room::new();
    let layer = Layer::create(folder.path().join("layer")).expect("it can be made");
    let like = Like { mode: 0o664, owner: (uid, OTHER) };
    layer.write(&rig.path(), "f".as_ref(), b"written", Some(like)).expect("it can be written");
    layer.write(&rig.path(), "d/made".as_ref(), b"written", None).expect("it can be written");
    let _ = layer.commit(&rig.path(), None, Value::Null).expect("it commits");
    assert_eq!((owner(&at("f")).1, owner(&at("d/made")).1), (OTHER, OTHER));
    assert_eq!(std::fs::read_to_string(at("f")).expect("it is there"), "written");
}
