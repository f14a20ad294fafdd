//! What people do in a workspace between and beneath commits, and that none of it is lost.

use super::*;

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
        let room = Room::new(place);
        let before = room.listing();
        // The first step is made; then the folder goes, and the disk fails.
        let mut cuts = 0;
        while std::fs::read(room.at("d/one")).unwrap() != b"new" {
            let _ = std::fs::remove_dir_all(room.dir());
            let layer = room.layer();
            ["d/one", "edited"].iter().for_each(|path| {
                layer.write(room.work.path(), Path::new(path), b"new", None).unwrap();
            });
            assert!(cut::at(cuts, || drop(layer.commit(room.work.path(), None, Value::Null))));
            cuts += 1;
        }
        let begun = Committed::load(&room.dir()).unwrap().unwrap();
        std::fs::rename(room.at("d"), room.at("elsewhere")).unwrap();
        assert!(begun.take_back().is_err(), "{place:?}");
        std::fs::rename(room.at("elsewhere"), room.at("d")).unwrap();
        assert_eq!(recover(&room.dir()).unwrap(), None, "{place:?}");
        assert_eq!(room.listing(), before, "{place:?}");
        assert!(!room.dir().exists());
    }
}
