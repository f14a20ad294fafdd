//! What people do in a workspace between and beneath commits, and that none of it is lost.

use super::*;
use crate::failpoint::meanwhile;

/// It said "undone", brought nothing back, and could not be undone any more.
#[test]
fn what_has_no_folder_to_come_back_to_is_not_undone() {
    for place in places() {
        let moved = |room: &Room| {
            room.layer().relocate(room.work.path(), Path::new("d/one"), Path::new("moved"), Value::Null).unwrap()
        };
        let removed = |room: &Room| room.layer().remove(room.work.path(), Path::new("d/one"), Value::Null).unwrap();
        for (work, named) in [(removed as fn(&Room) -> Committed, "d/one"), (moved, "moved")] {
            let room = Room::new(place);
            let before = room.listing();
            let committed = work(&room);
            std::fs::rename(room.at("d"), room.at("elsewhere")).unwrap();
            for kind in ["nothing", "a file"] {
                let Err(Error::Conflict { paths }) = committed.clone().undo(Value::Null) else { panic!("{kind}") };
                assert_eq!(paths, [PathBuf::from(named)], "{place:?} {kind}");
                if kind == "nothing" {
                    std::fs::write(room.at("d"), "a file").unwrap();
                }
            }
            std::fs::remove_file(room.at("d")).unwrap();
            std::fs::rename(room.at("elsewhere"), room.at("d")).unwrap();
            committed.undo(Value::Null).unwrap();
            assert_eq!(room.listing(), before, "{place:?}");
        }
    }
}

/// Where somebody took the folder away while a commit was under way that failed, the originals went with its layer.
#[test]
fn a_failed_commit_keeps_what_has_no_folder_to_come_back_to() {
    for place in places() {
        // The first step is made; then the folder goes, and the disk fails.
        let cut_at = |cuts: u32| {
            let room = Room::new(place);
            let before = room.listing();
            let layer = room.layer();
            ["d/one", "edited"].iter().for_each(|path| {
                layer.write(room.work.path(), Path::new(path), b"new", None).unwrap();
            });
            assert!(cut::at(cuts, || drop(layer.commit(room.work.path(), None, Value::Null))));
            (std::fs::read(room.at("d/one")).unwrap() == b"new").then_some((room, before))
        };
        let (room, before) = (0..).find_map(cut_at).unwrap();
        let begun = Committed::load(&room.dir()).unwrap().unwrap();
        std::fs::rename(room.at("d"), room.at("elsewhere")).unwrap();
        assert!(begun.take_back().is_err(), "{place:?}");
        std::fs::rename(room.at("elsewhere"), room.at("d")).unwrap();
        assert_eq!(recover(&room.dir()).unwrap(), None, "{place:?}");
        assert_eq!(room.listing(), before, "{place:?}");
        assert!(!room.dir().exists());
    }
}

/// A home from a backup that could not take all: what is not there any more cannot come back.
#[test]
fn what_is_not_kept_any_more_is_named() {
    for place in places() {
        let room = Room::new(place);
        let layer = room.layer();
        layer.write(room.work.path(), Path::new("edited"), b"new", None).unwrap();
        layer.write(room.work.path(), Path::new("made"), b"new", None).unwrap();
        let committed = layer.commit(room.work.path(), None, Value::Null).unwrap();
        assert!(committed.missing().is_empty(), "{place:?}");
        let undone = committed.undo(Value::Null).unwrap();
        assert!(undone.missing().is_empty(), "{place:?}");
        let made = room.dir().join("upper/made");
        let aside = std::fs::read(&made).unwrap();
        std::fs::remove_file(&made).unwrap();
        assert_eq!(undone.missing(), [PathBuf::from("made")], "{place:?}");
        std::fs::write(&made, aside).unwrap();
        let again = undone.redo(Value::Null).unwrap();
        std::fs::remove_file(again.kept(Path::new("edited"))).unwrap();
        assert_eq!(again.missing(), [PathBuf::from("edited")], "{place:?}");
    }
}

/// What a person deletes while a commit is made is kept by nobody, and no reason to refuse its undo.
#[test]
fn what_somebody_deletes_meanwhile_hinders_no_undo() {
    let mut gone = 0;
    for at in 0..12 {
        let room = Room::new(Place::Same);
        let layer = room.layer();
        for path in ["d/one", "edited"] {
            layer.write(room.work.path(), Path::new(path), b"new", None).unwrap();
        }
        let theirs = room.at("edited");
        let delete =
            move || std::fs::read(&theirs).is_ok_and(|text| text != b"new") && std::fs::remove_file(&theirs).is_ok();
        let (made, deleted) = meanwhile::at(at, delete, || layer.commit(room.work.path(), None, Value::Null));
        let Ok(committed) = made else { continue };
        if deleted && !committed.kept(Path::new("edited")).exists() {
            gone += 1;
            let committed = Committed::load(committed.dir()).unwrap().unwrap();
            assert!(committed.missing().is_empty(), "{at}");
            committed.undo(Value::Null).unwrap();
            assert!(!room.at("edited").exists(), "{at}: it was deleted");
            assert_eq!(std::fs::read(room.at("d/one")).unwrap(), b"the old d/one");
        }
    }
    assert!(gone > 0);
}

pub(super) const BY_A_PERSON: &[u8] = b"by a person";

/// What somebody does at a path while nobody looks; whether that could be done.
type Deed = (&'static str, fn(&Room, &str) -> bool);
const DEEDS: [Deed; 5] = [
    ("saved by renaming", |room, path| {
        let place = room.at(path);
        let (is_folder, has_room) = (place.is_dir() && !place.is_symlink(), place.parent().unwrap().is_dir());
        std::fs::write(room.at("theirs"), BY_A_PERSON).unwrap();
        !is_folder && has_room && std::fs::rename(room.at("theirs"), place).is_ok()
    }),
    ("saved in place", |room, path| {
        let place = room.at(path);
        !place.is_symlink() && place.is_file() && std::fs::write(place, BY_A_PERSON).is_ok()
    }),
    ("saved within", |room, path| {
        let place = room.at(path);
        !place.is_symlink() && place.is_dir() && std::fs::write(place.join("theirs"), BY_A_PERSON).is_ok()
    }),
    ("took away", |room, path| {
        let place = room.at(path);
        let is_folder = !place.is_symlink() && place.is_dir();
        is_folder && std::fs::write(place.join("theirs"), BY_A_PERSON).is_ok() && {
            std::fs::rename(place, room.at("elsewhere")).is_ok()
        }
    }),
    ("put a file in the place of", |room, path| {
        let place = room.at(path);
        let is_folder = !place.is_symlink() && place.is_dir();
        is_folder && std::fs::rename(&place, room.at("elsewhere")).is_ok() && std::fs::write(place, BY_A_PERSON).is_ok()
    }),
];

/// What all files below a folder hold.
pub(super) fn contents(top: &Path) -> BTreeMap<Vec<u8>, PathBuf> {
    let (mut found, mut open) = (BTreeMap::new(), vec![top.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match std::fs::symlink_metadata(&path).unwrap().file_type() {
                kind if kind.is_dir() => open.push(path),
                kind if kind.is_file() => drop(found.insert(std::fs::read(&path).unwrap(), path)),
                _ => {}
            }
        }
    }
    found
}

/// After a crash what somebody had saved since was overwritten, and nothing of it was kept.
#[test]
fn what_somebody_saved_between_a_cut_and_its_recovery_is_not_lost() {
    let paths = [
        "edited",
        "d",
        "d/one",
        "d/deep",
        "d/deep/two",
        "n",
        "n/m",
        "n/m/f",
        "becomes-file",
        "becomes-file/in",
        "becomes-folder",
        "becomes-folder/in",
        "link",
        "new",
        "new/place",
    ];
    let originals: Vec<Vec<u8>> = {
        let room = Room::new(Place::Same);
        contents(room.work.path()).into_keys().filter(|content| content.starts_with(b"the old")).collect()
    };
    let (mut lost, mut runs, mut stays) = (Vec::new(), 0, 0);
    let started = std::time::Instant::now();
    for (place, (name, work)) in [(Place::Memory, WORKS[0]), (Place::Memory, WORKS[1]), (Place::Memory, WORKS[2])] {
        eprintln!("{name} {:?}", started.elapsed());
        for (phase, path, (deed, act)) in ["commit", "undo", "redo"]
            .into_iter()
            .flat_map(|phase| paths.into_iter().flat_map(move |path| DEEDS.map(|deed| (phase, path, deed))))
        {
            for cuts in 0.. {
                let room = Room::new(place);
                let cut = match phase {
                    "commit" => cut::at(cuts, || drop(work(&room))),
                    "undo" => {
                        let committed = work(&room).unwrap();
                        cut::at(cuts, || drop(committed.undo(Value::Null)))
                    }
                    _ => {
                        let undone = work(&room).unwrap().undo(Value::Null).unwrap();
                        cut::at(cuts, || drop(undone.redo(Value::Null)))
                    }
                };
                if !cut {
                    break;
                }
                if !act(&room, path) {
                    continue;
                }
                runs += 1;
                let told = format!("{name} {place:?} {phase} cut at {cuts}: {deed} {path}");
                let (ours, kept) = (contents(room.work.path()), contents(room.layers.path()));
                let had: Vec<_> =
                    originals.iter().filter(|one| ours.contains_key(*one) || kept.contains_key(*one)).collect();
                let recovered = recover(&room.dir());
                let (now, kept) = (contents(room.work.path()), contents(room.layers.path()));
                // What is kept goes with its window, and nobody looks there for what they saved themselves.
                if !now.contains_key(BY_A_PERSON) {
                    lost.push(format!("{told}: {recovered:?}"));
                }
                let gone = had.iter().find(|one| !now.contains_key(**one) && !kept.contains_key(**one));
                // What somebody replaced themselves may go.
                if let Some(gone) = gone
                    && !gone.ends_with(path.as_bytes())
                {
                    lost.push(format!("{told}: {} is gone: {recovered:?}", String::from_utf8_lossy(gone)));
                }
                match recovered {
                    Ok(_) => {}
                    Err(Error::Conflict { paths }) => {
                        stays += 1;
                        // Once they are out of the way, and folders back, it is brought to an end.
                        for one in paths {
                            let _ = std::fs::rename(room.work.path().join(one), room.at("out-of-the-way"));
                        }
                        if room.at("elsewhere").exists() {
                            let _ = std::fs::rename(room.at(path), room.at("out-of-the-way"));
                            std::fs::rename(room.at("elsewhere"), room.at(path)).unwrap();
                        }
                        let ended = recover(&room.dir());
                        if ended.is_err() || !contents(room.work.path()).contains_key(BY_A_PERSON) {
                            lost.push(format!("{told}: after it was out of the way: {ended:?}"));
                        }
                    }
                    Err(error) => lost.push(format!("{told}: it stays: {error:?}")),
                }
            }
        }
    }
    eprintln!("{runs} runs, of which {stays} waited for somebody");
    assert!(lost.is_empty(), "{} of {runs}:\n{}", lost.len(), lost.join("\n"));
}

/// Of a folder that its owner may not write to, an ordinary user's daemon said "Permission denied", and kept nothing of the
/// command that had removed it.
#[test]
fn a_folder_that_may_not_be_written_to_is_taken_away_and_brought_back_by_an_ordinary_user() {
    if rustix::process::geteuid().is_root() {
        // For this thread alone, and so for this test.
        let nobody = rustix::process::Uid::from_raw(65534);
        rustix::thread::set_thread_res_uid(None, Some(nobody), None).unwrap();
    }
    let locked = |room: &Room| {
        for (folder, mode) in [("d/deep", 0o555), ("d", 0o555)] {
            std::fs::set_permissions(room.at(folder), PermissionsExt::from_mode(mode)).unwrap();
        }
    };
    let unlocked = |room: &Room| {
        for folder in ["d", "d/deep", "new/place", "new/place/deep"] {
            let _ = std::fs::set_permissions(room.at(folder), PermissionsExt::from_mode(0o755));
        }
    };
    for work in [removal as Work, relocation] {
        let room = Room::new(Place::Same);
        locked(&room);
        let before = room.listing();
        let undone = work(&room).unwrap().undo(Value::Null).unwrap();
        assert_eq!(room.listing(), before);
        undone.redo(Value::Null).unwrap().undo(Value::Null).unwrap();
        assert_eq!(room.listing(), before);
        unlocked(&room);
    }
    for cuts in 0.. {
        let room = Room::new(Place::Same);
        locked(&room);
        let before = room.listing();
        if !cut::at(cuts, || drop(removal(&room).unwrap().undo(Value::Null).unwrap())) {
            assert!(cuts > 9, "{cuts}");
            unlocked(&room);
            break;
        }
        if let Some(committed) = recover(&room.dir()).unwrap()
            && committed.stage() == Stage::Committed
        {
            committed.undo(Value::Null).unwrap();
        }
        assert_eq!(room.listing(), before, "cut at {cuts}");
        unlocked(&room);
    }
}

/// It was always "changed since": the copy is another file, and of so large a one the content is not known.
#[test]
fn a_large_file_can_be_undone_wherever_it_lies() {
    for place in places() {
        let room = Room::new(place);
        let before = room.listing();
        let layer = room.layer();
        std::fs::File::create(layer.upper().join("large")).unwrap().set_len(65 << 20).unwrap();
        let committed = layer.commit(room.work.path(), None, Value::Null).unwrap();
        let redone = committed.undo(Value::Null).unwrap().redo(Value::Null).unwrap();
        assert_eq!(std::fs::metadata(room.at("large")).unwrap().len(), 65 << 20);
        save(&room.at("d/one"), std::time::SystemTime::now());
        std::fs::File::options().write(true).open(room.at("large")).unwrap().set_len(65 << 20).unwrap();
        let written = std::fs::File::options().write(true).open(room.at("large")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&written, b"mine", 5).unwrap();
        let Err(Error::Conflict { paths }) = redone.clone().undo(Value::Null) else { panic!("{place:?}") };
        assert_eq!(paths, [PathBuf::from("large")]);
        std::fs::remove_file(room.at("large")).unwrap();
        std::fs::write(room.at("d/one"), "the old d/one").unwrap();
        assert_eq!(room.listing(), before);
    }
}

/// The undo gave it those of the time before the command.
#[test]
fn permissions_that_somebody_gave_a_folder_since_stay() {
    let room = Room::new(Place::Same);
    let committed = edits(&room).unwrap();
    let mode = |mode: u32| std::fs::set_permissions(room.at("d"), PermissionsExt::from_mode(mode)).unwrap();
    mode(0o711);
    let Err(Error::Conflict { paths }) = committed.clone().undo(Value::Null) else { panic!("it was changed") };
    assert_eq!(paths, [PathBuf::from("d")]);
    mode(0o700);
    // And where it comes between the look and the undo.
    let mut late = committed;
    let state = State { stage: Stage::Undoing, turn: 1, ..late.record.state.clone() };
    late.state(state).unwrap();
    mode(0o711);
    late.go().unwrap();
    assert_eq!(std::fs::metadata(room.at("d")).unwrap().mode() & 0o777, 0o711);
}

/// The call was told that it had failed, and its change was made by the next.
#[test]
fn a_commit_whose_record_may_not_last_is_taken_back() {
    let room = Room::new(Place::Same);
    let before = room.listing();
    let (made, failed) = broken::at(0..1, || edits(&room));
    assert!(failed && matches!(made, Err(Error::Path { .. })), "{made:?}");
    assert_eq!((room.listing(), room.dir().exists()), (before, false));
}

/// It said that nothing was changed, and the next start undid it.
#[test]
fn an_undo_whose_beginning_may_not_last_was_not_begun() {
    for place in 0..2 {
        let room = Room::new(Place::Same);
        let committed = edits(&room).unwrap();
        let after = room.listing();
        let (undone, failed) = broken::at(place..place + 1, || committed.undo(Value::Null));
        assert!(failed && matches!(undone, Err(Error::Path { .. })), "{undone:?}");
        let found = recover(&room.dir()).unwrap().unwrap();
        assert_eq!((found.stage(), found.turn(), room.listing()), (Stage::Committed, 0, after), "{place}");
    }
}

#[test]
fn a_link_to_a_folder_is_replaced_like_any_link() {
    for place in places() {
        let room = Room::new(place);
        for link in ["one", "two"] {
            std::os::unix::fs::symlink("keep", room.at(link)).unwrap();
        }
        let before = room.listing();
        let layer = room.layer();
        std::fs::write(layer.upper().join("one"), "a file").unwrap();
        std::os::unix::fs::symlink("d", layer.upper().join("two")).unwrap();
        let committed = layer.commit(room.work.path(), None, Value::Null).unwrap();
        let after = room.listing();
        let undone = committed.undo(Value::Null).unwrap();
        assert_eq!(room.listing(), before, "{place:?}");
        undone.redo(Value::Null).unwrap();
        assert_eq!(room.listing(), after, "{place:?}");
    }
}
