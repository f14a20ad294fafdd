//! What people do in a workspace while a commit is being made.

use super::people::{BY_A_PERSON, contents};
use super::*;
use crate::failpoint::meanwhile;

/// What a command removed or replaced was looked at once, before all of it was hashed, synced and moved: what was saved in a
/// folder after that went with it, and the call said that all was well.
#[test]
fn what_somebody_saves_while_a_commit_is_made_stays() {
    let within = ["d/theirs", "d/deep/theirs", "becomes-file/theirs", "becomes-file/in/x", "keep/theirs"];
    let files = ["edited", "d/one", "becomes-folder"];
    let in_place = |path: &Path| path.is_file() && std::fs::write(path, BY_A_PERSON).is_ok();
    let new = |path: &Path| std::fs::write(path, BY_A_PERSON).is_ok();
    let renamed = |path: &Path| {
        let theirs = path.with_file_name("theirs");
        path.is_file() && std::fs::write(&theirs, BY_A_PERSON).is_ok() && std::fs::rename(theirs, path).is_ok()
    };
    let within = within.map(|path| (path, new as fn(&Path) -> bool));
    let saves = within
        .into_iter()
        .chain(files.into_iter().flat_map(|path| [(path, in_place as fn(&Path) -> bool), (path, renamed)]));
    let (mut kept, mut refused) = (0, 0);
    for (path, save) in saves {
        for (place, stride) in [(Place::Memory, 1), (Place::Other, 3)] {
            for (name, work) in [WORKS[0], WORKS[1]] {
                for at in (0..).step_by(stride) {
                    let room = Room::new(place);
                    let theirs = room.at(path);
                    let (made, saved) = meanwhile::at(at, move || save(&theirs), || work(&room));
                    let told = format!("{name} {place:?} {path} at {at}: {made:?}");
                    if !saved {
                        break;
                    }
                    assert!(contents(room.work.path()).contains_key(BY_A_PERSON), "{told}");
                    match made {
                        Ok(_) => kept += 1,
                        Err(Error::Conflict { .. }) => {
                            refused += 1;
                            assert!(!room.dir().exists(), "{told}");
                            assert_eq!(std::fs::read(room.at("d/deep/two")).unwrap(), b"the old d/deep/two", "{told}");
                        }
                        // A file that had been kept by then: nobody can tell who replaced it. It waits for a person.
                        Err(Error::Unfinished { source }) if files.contains(&path) => {
                            assert!(matches!(*source, Error::Conflict { .. }), "{told}");
                            std::fs::rename(room.at(path), room.at("out-of-the-way")).unwrap();
                            recover(&room.dir()).unwrap();
                            assert!(contents(room.work.path()).contains_key(BY_A_PERSON), "{told}");
                        }
                        Err(other) => panic!("{told}: {other:?}"),
                    }
                }
            }
        }
    }
    assert!(kept > 0 && refused > 0, "{kept} {refused}");
}

/// Whoever is in the folder can save there when it has no name any more.
#[test]
fn what_is_saved_in_a_folder_on_its_way_out_brings_it_back() {
    for work in [removal as Work, edits] {
        let room = Room::new(Place::Same);
        let outs = ["d", "becomes-file"].map(|path| Layer::at(&room.dir()).old_of(Path::new(path)).join("theirs"));
        let save = move || outs.iter().any(|out| std::fs::write(out, BY_A_PERSON).is_ok());
        let (made, saved) = meanwhile::at(0, save, || work(&room));
        assert!(saved && matches!(made, Err(Error::Conflict { .. })), "{made:?}");
        assert!(contents(room.work.path()).contains_key(BY_A_PERSON));
        assert!(!room.dir().exists());
    }
}

/// The next start went on with the removal of a folder that somebody had worked in for a day.
#[test]
fn a_removal_that_was_cut_off_is_taken_back_where_somebody_worked_in_the_folder_since() {
    for levels in [1, 300] {
        for cuts in 0.. {
            let room = Room::new(Place::Same);
            let mut deep = room.at("d/deep");
            std::fs::write(room.at("d/deep/two"), "the old d/deep/two").unwrap();
            (0..levels).for_each(|_| deep.push("a"));
            std::fs::create_dir_all(&deep).unwrap();
            let (dir, theirs) = (room.dir().join("upper"), deep.join("theirs"));
            if !cut::at(cuts, || drop(removal(&room))) {
                assert!(cuts > 3);
                break;
            }
            let saved = std::fs::write(&theirs, BY_A_PERSON).is_ok();
            let recovered = recover(&room.dir()).unwrap();
            assert!(dir.exists() == recovered.is_some() && (recovered.is_none() || !saved), "{levels} {cuts}");
            assert_eq!(saved, theirs.exists(), "{levels} {cuts}");
        }
    }
}
