//! What people do in a workspace while a commit is being made, and files that may not be replaced.

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

/// Where a cut came between the exchange of two files and the look at what came out, the next start deleted what somebody had
/// saved in that instant.
#[test]
fn what_somebody_saves_right_before_a_cut_stays() {
    let in_place = |path: &Path| std::fs::write(path, BY_A_PERSON).is_ok();
    let renamed = |path: &Path| {
        let theirs = path.with_file_name("theirs");
        std::fs::write(&theirs, BY_A_PERSON).is_ok() && std::fs::rename(theirs, path).is_ok()
    };
    let saves: [fn(&Path) -> bool; 2] = [in_place, renamed];
    let (mut cuts, mut exchanged) = (0, 0);
    let all = saves.into_iter().flat_map(|save| (0..3).flat_map(move |turns| (0..40).map(move |at| (save, turns, at))));
    for (save, turns, saved_at) in all {
        for cut_at in saved_at + 1.. {
            let room = Room::new(Place::Memory);
            let theirs = room.at("edited");
            let committed = (turns > 0).then(|| replacement(&room).unwrap());
            let undone = (turns > 1).then(|| committed.clone().unwrap().undo(Value::Null).unwrap());
            let turn = || match (undone, committed) {
                (Some(undone), _) => undone.redo(Value::Null),
                (None, Some(committed)) => committed.undo(Value::Null),
                (None, None) => replacement(&room),
            };
            let (cut, saved) = meanwhile::at(saved_at, move || save(&theirs), || cut::at(cut_at, || drop(turn())));
            if !cut || !saved {
                break;
            }
            cuts += 1;
            exchanged += u32::from(!contents(room.work.path()).contains_key(BY_A_PERSON));
            let recovered = recover(&room.dir());
            let told = format!("{turns} turns, saved at {saved_at}, cut at {cut_at}: {recovered:?}");
            assert!(contents(room.work.path()).contains_key(BY_A_PERSON), "{told}");
            if let Err(error) = recovered {
                assert!(matches!(error, Error::Conflict { .. }), "{told}");
                std::fs::rename(room.at("edited"), room.at("out-of-the-way")).unwrap();
                recover(&room.dir()).unwrap();
                assert!(contents(room.work.path()).contains_key(BY_A_PERSON), "{told}");
            }
        }
    }
    assert!(cuts > 50 && exchanged > 2, "{cuts} {exchanged}");
}

/// Between the exchange and its end, what was replaced has two names in the layer. Where the new file was changed or taken away
/// before the next start, the former content came back, and the record said that the new one stood.
#[test]
fn what_becomes_of_a_new_file_before_the_next_start_decides_nothing() {
    let deeds: [fn(&Path); 4] = [
        |path: &Path| std::fs::remove_file(path).unwrap(),
        |path: &Path| std::fs::write(path, BY_A_PERSON).unwrap(),
        |path: &Path| std::fs::set_permissions(path, PermissionsExt::from_mode(0o604)).unwrap(),
        |path: &Path| std::fs::rename(path, path.with_file_name("elsewhere")).unwrap(),
    ];
    let mut twins = 0;
    for (undo, deed, cuts) in [false, true]
        .into_iter()
        .flat_map(|undo| (0..4).flat_map(move |deed| (0..40).map(move |cuts| (undo, deed, cuts))))
    {
        let room = Room::new(Place::Memory);
        let committed = undo.then(|| replacement(&room).unwrap());
        let turn = || match committed {
            Some(committed) => committed.undo(Value::Null),
            None => replacement(&room),
        };
        let cut = cut::at(cuts, || drop(turn()));
        let layer = Layer::at(&room.dir());
        if !cut || !crate::transfer::is_one(&layer.upper().join("edited"), &layer.old_of(Path::new("edited"))) {
            continue;
        }
        let placed: &[u8] = if undo { b"the old edited" } else { b"new" };
        if std::fs::read(room.at("edited")).unwrap() != placed {
            continue;
        }
        twins += 1;
        deeds[deed](&room.at("edited"));
        let before = std::fs::symlink_metadata(room.at("edited")).ok().map(|meta| (meta.ino(), meta.mode()));
        let ended = recover(&room.dir()).unwrap().unwrap();
        let after = std::fs::symlink_metadata(room.at("edited")).ok().map(|meta| (meta.ino(), meta.mode()));
        let stage = if undo { Stage::Undone } else { Stage::Committed };
        assert_eq!((ended.stage(), after), (stage, before), "{undo} {deed} cut at {cuts}");
        assert!(ended.missing().is_empty(), "{undo} {deed} cut at {cuts}");
    }
    assert!(twins >= 8, "{twins}");
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

/// What was copied and half deleted by then looked like a folder that somebody had worked in, and waited for them.
#[test]
fn a_removal_over_two_file_systems_goes_on_where_its_folder_is_half_deleted() {
    let mut half = 0;
    for cuts in (0..).flat_map(|cuts| [cuts, cuts]) {
        let room = Room::new(Place::Other);
        if !cut::at(cuts, || drop(removal(&room))) {
            break;
        }
        let decoys = room.decoys();
        let names = names(&open_root(room.work.path()).unwrap(), Path::new(".")).unwrap();
        let away = names
            .iter()
            .map(|name| room.work.path().join(name))
            .find(|path| is_passing(path.file_name().unwrap()) && !decoys.contains(path));
        if let Some(away) = away
            && Layer::at(&room.dir()).old_of(Path::new("d")).exists()
        {
            half += 1;
            std::fs::remove_file(away.join("one")).unwrap();
            // Whoever is in the folder can save there still.
            let saved = half % 2 == 0;
            if saved {
                std::fs::write(away.join("deep/theirs"), BY_A_PERSON).unwrap();
            }
            recover(&room.dir()).unwrap().unwrap();
            assert!(room.at("d/deep/theirs").exists() == saved && !away.exists(), "{cuts}");
            assert_eq!(room.at("d").exists(), saved, "{cuts}");
        }
    }
    assert!(half > 0 || places().len() == 1, "{half}");
}

/// It was given the command's permissions, and under root its owner, which no undo took from it.
#[test]
fn a_folder_that_somebody_makes_meanwhile_keeps_its_permissions() {
    for at in 0.. {
        let room = Room::new(Place::Same);
        let theirs = room.at("n");
        let make = move || {
            std::fs::create_dir(&theirs).is_ok()
                && std::fs::set_permissions(&theirs, PermissionsExt::from_mode(0o711)).is_ok()
        };
        let (made, was_made) = meanwhile::at(at, make, || edits(&room));
        if !was_made {
            assert!(at > 3);
            break;
        }
        let mode = std::fs::metadata(room.at("n")).unwrap().mode() & 0o777;
        assert_eq!((mode, made.is_ok()), (0o711, true), "at {at}: {made:?}");
        assert_eq!(std::fs::read(room.at("n/m/f")).unwrap(), b"the new n/m/f");
        let decoys = room.decoys();
        let passing =
            |path: &PathBuf| is_passing(path.file_name().unwrap()) && !decoys.contains(&room.work.path().join(path));
        assert!(!room.listing().keys().any(passing), "at {at}");
    }
}

/// Does something as an ordinary user, whose everything in a room is but what lies at `foreign`.
fn as_nobody<T>(room: &Room, foreign: &[&str], work: impl FnOnce() -> T) -> T {
    let (nobody, root) = (rustix::process::Uid::from_raw(65534), rustix::process::Uid::ROOT);
    let mut open = vec![room.work.path().to_owned(), room.layers.path().to_owned()];
    while let Some(path) = open.pop() {
        if !foreign.iter().any(|foreign| path == room.at(foreign)) {
            std::os::unix::fs::lchown(&path, Some(nobody.as_raw()), None).unwrap();
        }
        if path.is_dir() && !path.is_symlink() {
            open.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    rustix::thread::set_thread_res_uid(None, Some(nobody), None).unwrap();
    let done = work();
    rustix::thread::set_thread_res_uid(None, Some(root), None).unwrap();
    done
}

/// Whether there are files here that an ordinary user may not give another name.
fn there_are_foreign_files() -> bool {
    let protected = std::fs::read("/proc/sys/fs/protected_hardlinks").is_ok_and(|value| value.starts_with(b"1"));
    let root = rustix::process::geteuid().is_root();
    if !protected || !root {
        eprintln!("SKIPPED: this takes root, and hard links that are protected");
    }
    protected && root
}

fn replacement(room: &Room) -> Result<Committed, Error> {
    let layer = room.layer();
    layer.write(room.work.path(), Path::new("edited"), b"new", None).unwrap();
    layer.commit(room.work.path(), None, Value::Null)
}

/// It could neither be done nor taken back, and nothing in the workspace could be changed any more.
#[test]
fn a_file_that_may_not_be_replaced_stops_its_own_change_alone() {
    if !there_are_foreign_files() {
        return;
    }
    for place in places() {
        let sticky = || {
            let room = Room::new(place);
            std::fs::set_permissions(room.work.path(), PermissionsExt::from_mode(0o1777)).unwrap();
            std::fs::set_permissions(room.at("edited"), PermissionsExt::from_mode(0o644)).unwrap();
            room
        };
        let foreign = ["", "edited"];
        let room = sticky();
        let before = room.listing();
        let refused = as_nobody(&room, &foreign, || replacement(&room));
        let Err(Error::Path { source, .. }) = refused else { panic!("{place:?}: {refused:?}") };
        assert_eq!(source.kind(), std::io::ErrorKind::PermissionDenied, "{place:?}");
        assert_eq!((room.listing(), room.dir().exists()), (before.clone(), false), "{place:?}");
        for cuts in 0.. {
            let room = sticky();
            let (cut, recovered) = as_nobody(&room, &foreign, || {
                let cut = cut::at(cuts, || drop(replacement(&room)));
                (cut, recover(&room.dir()))
            });
            assert!(matches!(recovered, Ok(None)), "{place:?} {cuts}: {recovered:?}");
            assert_eq!((room.listing(), room.dir().exists()), (before.clone(), false), "{place:?} {cuts}");
            if !cut {
                assert!(cuts > 4, "{cuts}");
                break;
            }
        }
    }
}

/// The same under root.
#[test]
fn an_immutable_file_stops_its_own_change_alone() {
    let room = Room::new(Place::Same);
    let before = room.listing();
    let file = std::fs::File::open(room.at("edited")).unwrap();
    let Ok(flags) = rustix::fs::ioctl_getflags(&file) else { return };
    if rustix::fs::ioctl_setflags(&file, flags | rustix::fs::IFlags::IMMUTABLE).is_err() {
        eprintln!("SKIPPED: no file can be made immutable here");
        return;
    }
    let refused = replacement(&room);
    let after = (room.listing(), room.dir().exists());
    rustix::fs::ioctl_setflags(&file, flags).unwrap();
    assert!(matches!(refused, Err(Error::Path { .. })), "{refused:?}");
    assert_eq!(after, (before, false));
}

/// Nor could an undo of it, which said that it was neither.
#[test]
fn what_may_not_be_taken_back_stays_done() {
    if !there_are_foreign_files() {
        return;
    }
    let room = Room::new(Place::Same);
    let committed = as_nobody(&room, &[], || replacement(&room)).unwrap();
    let sticky = || std::fs::set_permissions(room.work.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    for path in [room.work.path(), &room.at("edited")] {
        std::os::unix::fs::lchown(path, Some(0), None).unwrap();
    }
    sticky();
    let after = room.listing();
    let refused = as_nobody(&room, &["", "edited"], || committed.undo(json!("undo")));
    assert!(matches!(refused, Err(Error::Path { .. })), "{refused:?}");
    assert_eq!(room.listing(), after);
    let committed = Committed::load(&room.dir()).unwrap().unwrap();
    assert_eq!((committed.stage(), committed.turn()), (Stage::Committed, 0));
    committed.undo(Value::Null).unwrap();
    assert_eq!(std::fs::read(room.at("edited")).unwrap(), b"the old edited");
}

/// What was kept of them is a copy, and where a cut came between the exchange of the two and its end, nothing told which was
/// which.
#[test]
fn what_cannot_be_linked_is_all_or_nothing_too() {
    if !there_are_foreign_files() {
        return;
    }
    let foreign = ["edited", "d/one", "becomes-folder"];
    let made = || {
        let room = Room::new(Place::Same);
        for path in foreign {
            std::fs::set_permissions(room.at(path), PermissionsExt::from_mode(0o644)).unwrap();
        }
        room
    };
    let before = made().listing();
    let after = {
        let room = made();
        as_nobody(&room, &foreign, || edits(&room)).unwrap();
        room.listing()
    };
    for cuts in 0.. {
        let room = made();
        let (cut, recovered) = as_nobody(&room, &foreign, || {
            let cut = cut::at(cuts, || drop(edits(&room).unwrap().undo(Value::Null).unwrap()));
            (cut, recover(&room.dir()))
        });
        let expected = match &recovered {
            Ok(Some(committed)) if committed.stage() == Stage::Committed => &after,
            Ok(_) => &before,
            Err(_) => panic!("{cuts}: {recovered:?}"),
        };
        assert_eq!(&room.listing(), expected, "{cuts}");
        if !cut {
            break;
        }
    }
}

/// What a command leaves of folders that may not be written to, one of them the workspace's.
fn locked(room: &Room) -> Result<Committed, Error> {
    let layer = room.layer();
    for folder in ["keep", "mine/in"] {
        std::fs::create_dir_all(layer.upper().join(folder)).unwrap();
        std::fs::write(layer.upper().join(folder).join("same"), "new").unwrap();
    }
    for folder in ["keep", "mine/in", "mine"] {
        std::fs::set_permissions(layer.upper().join(folder), PermissionsExt::from_mode(0o555)).unwrap();
    }
    // As it is counted while the command runs.
    assert_eq!(Below::of(&layer.upper(), 100, true).unseen, None);
    assert_eq!(layer.changes(room.work.path()).unwrap().len(), 4);
    layer.commit(room.work.path(), None, Value::Null)
}

/// The daemon had opened them to look into them, and committed that: unasked, and told by nobody.
#[test]
fn folders_that_may_not_be_written_to_stay_so() {
    let made = || {
        let room = Room::new(Place::Same);
        std::fs::set_permissions(room.at("keep"), PermissionsExt::from_mode(0o555)).unwrap();
        room
    };
    let root = rustix::process::geteuid().is_root();
    for ordinary in [false, true].into_iter().filter(|ordinary| root || !ordinary) {
        let run = |room: &Room, work: &dyn Fn()| if ordinary { as_nobody(room, &[], work) } else { work() };
        let room = made();
        let before = room.listing();
        run(&room, &|| {
            let committed = locked(&room).unwrap();
            let paths: Vec<PathBuf> = committed.altered().into_iter().map(|altered| altered.path).collect();
            assert_eq!(paths, ["keep/same", "mine", "mine/in", "mine/in/same"].map(PathBuf::from));
            let after = room.listing();
            for folder in ["keep", "mine", "mine/in"] {
                assert_eq!(after[Path::new(folder)].0 & 0o777, 0o555, "{folder} {ordinary}");
            }
            let undone = committed.undo(Value::Null).unwrap();
            assert_eq!(room.listing(), before, "{ordinary}");
            let redone = undone.redo(Value::Null).unwrap();
            assert_eq!(room.listing(), after, "{ordinary}");
            redone.undo(Value::Null).unwrap();
        });
        for cuts in 0.. {
            let (room, ended) = (made(), std::cell::Cell::new(false));
            run(&room, &|| {
                ended.set(!cut::at(cuts, || drop(locked(&room).unwrap().undo(Value::Null).unwrap())));
                if let Some(committed) = recover(&room.dir()).unwrap()
                    && committed.stage() == Stage::Committed
                {
                    committed.undo(Value::Null).unwrap();
                }
                assert_eq!(room.listing(), before, "cut at {cuts} {ordinary}");
            });
            std::fs::set_permissions(room.at("keep"), PermissionsExt::from_mode(0o755)).unwrap();
            if ended.get() {
                break;
            }
        }
        std::fs::set_permissions(room.at("keep"), PermissionsExt::from_mode(0o755)).unwrap();
    }
}

/// The same of a folder that is moved whole, which its owner may write to for that moment.
#[test]
fn a_folder_that_may_not_be_written_to_stays_so_where_it_is_moved() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: this takes root");
        return;
    }
    let made = || {
        let room = Room::new(Place::Same);
        std::fs::set_permissions(room.at("keep"), PermissionsExt::from_mode(0o555)).unwrap();
        room
    };
    let moved = |room: &Room| {
        room.layer().relocate(room.work.path(), Path::new("keep"), Path::new("d/keep"), Value::Null).unwrap()
    };
    let before = made().listing();
    for cuts in 0.. {
        let (room, ended) = (made(), std::cell::Cell::new(false));
        as_nobody(&room, &[], || {
            ended.set(!cut::at(cuts, || drop(moved(&room).undo(Value::Null).unwrap())));
            if let Some(committed) = recover(&room.dir()).unwrap()
                && committed.stage() == Stage::Committed
            {
                assert_eq!(room.listing()[Path::new("d/keep")].0 & 0o777, 0o555, "cut at {cuts}");
                committed.undo(Value::Null).unwrap();
            }
            assert_eq!(room.listing(), before, "cut at {cuts}");
        });
        std::fs::set_permissions(room.at("keep"), PermissionsExt::from_mode(0o755)).unwrap();
        if ended.get() {
            assert!(cuts > 3, "{cuts}");
            break;
        }
    }
}

/// Between two file systems a look came before the move that replaces: what was saved between the two was gone. Here each
/// place of a small change is tried, the one between them too.
#[test]
fn what_somebody_saves_right_before_a_copy_takes_its_place_stays() {
    let in_place = |path: &Path| path.is_file() && std::fs::write(path, BY_A_PERSON).is_ok();
    let renamed = |path: &Path| {
        let theirs = path.with_file_name("theirs");
        path.is_file() && std::fs::write(&theirs, BY_A_PERSON).is_ok() && std::fs::rename(theirs, path).is_ok()
    };
    for place in places().into_iter().filter(|place| *place == Place::Other) {
        for save in [in_place as fn(&Path) -> bool, renamed] {
            for undo in [false, true] {
                let mut tried = 0;
                for at in 0.. {
                    let room = Room::new(place);
                    let layer = room.layer();
                    layer.write(room.work.path(), Path::new("edited"), b"by a command, and longer", None).unwrap();
                    let work = || layer.commit(room.work.path(), None, Value::Null);
                    let theirs = room.at("edited");
                    let (_, saved) = match undo {
                        false => meanwhile::at(at, move || save(&theirs), || drop(work())),
                        true => {
                            let committed = work().unwrap();
                            meanwhile::at(at, move || save(&theirs), || drop(committed.undo(Value::Null)))
                        }
                    };
                    if !saved {
                        break;
                    }
                    tried += 1;
                    // In its place, or kept in the layer where it could be taken back.
                    let kept =
                        [room.work.path(), room.layers.path()].iter().any(|at| contents(at).contains_key(BY_A_PERSON));
                    assert!(kept, "{place:?}, undo {undo}, at {at}");
                }
                assert!(tried > 8, "{tried} places");
            }
        }
    }
}

/// A command makes a folder that may not be written to, with a file in it.
fn closed(room: &Room) -> Result<Committed, Error> {
    let layer = room.layer();
    std::fs::create_dir(layer.upper().join("mine")).unwrap();
    std::fs::write(layer.upper().join("mine/in"), "new").unwrap();
    std::fs::set_permissions(layer.upper().join("mine"), PermissionsExt::from_mode(0o555)).unwrap();
    layer.commit(room.work.path(), None, Value::Null)
}

/// The mark of a folder that an undo had taken away stayed, so that a person's folder with its number was taken for it; and a
/// power cut could leave the folder without its mark.
#[test]
fn the_mark_of_a_folder_that_was_made_lasts_before_it_and_goes_with_it() {
    for place in places() {
        let room = Room::new(place);
        let mut mark = Layer::at(&room.dir()).old_of(Path::new("mine")).into_os_string();
        mark.push(".made");
        let mark = PathBuf::from(mark);
        let lasts = |room: &Room, done: Vec<Was>| {
            let mark = mark.canonicalize().unwrap();
            let synced = done.iter().position(|was| *was == Was::Synced(mark.clone()));
            let stepped = done.iter().position(|was| *was == Was::Stepped("mine".into()));
            assert!(synced.is_some() && synced < stepped, "{:?}: {done:?}", room.dir());
        };
        let work = || {
            trace::take();
            let committed = closed(&room).unwrap();
            lasts(&room, trace::take());
            let undone = committed.undo(Value::Null).unwrap();
            assert!(!mark.exists() && !room.at("mine").exists(), "{place:?}");
            trace::take();
            let redone = undone.redo(Value::Null).unwrap();
            lasts(&room, trace::take());
            // A folder that stays since somebody works in it is the one that was made still.
            std::fs::set_permissions(room.at("mine"), PermissionsExt::from_mode(0o755)).unwrap();
            std::fs::write(room.at("mine/theirs"), BY_A_PERSON).unwrap();
            redone.undo(Value::Null).unwrap();
            assert!(mark.exists() && room.at("mine/theirs").exists(), "{place:?}");
        };
        // Root needs no leave.
        if rustix::process::geteuid().is_root() { as_nobody(&room, &[], work) } else { work() }
    }
}

/// What was replaced was put in the place of the new file, and the record said that the new one is there.
#[test]
fn a_file_that_somebody_takes_away_after_a_cut_comes_as_it_was_to_be() {
    let mut changed = [0, 0];
    for (nth, undoing) in [false, true].into_iter().enumerate() {
        for cuts in 0.. {
            let room = Room::new(Place::Other);
            let layer = room.layer();
            layer.write(room.work.path(), Path::new("edited"), b"the new one", None).unwrap();
            let commit = || layer.clone().commit(room.work.path(), None, Value::Null).unwrap();
            let cut = if undoing {
                let committed = commit();
                cut::at(cuts, || drop(committed.undo(Value::Null)))
            } else {
                cut::at(cuts, || drop(commit()))
            };
            if !cut {
                break;
            }
            let decoys = room.decoys();
            let replaced: &[u8] = if undoing { b"the new one" } else { b"the old edited" };
            let is_replaced = |(path, (_, content)): (&PathBuf, &(u32, Vec<u8>))| {
                is_passing(path.file_name().unwrap())
                    && !decoys.contains(&room.at(path.to_str().unwrap()))
                    && content == replaced
            };
            if !room.listing().iter().any(is_replaced) {
                continue;
            }
            changed[nth] += 1;
            std::fs::remove_file(room.at("edited")).unwrap();
            let found = recover(&room.dir()).unwrap().unwrap();
            let now = || std::fs::read(room.at("edited")).unwrap();
            assert!(!room.listing().iter().any(is_replaced), "cut at {cuts}, undoing: {undoing}");
            if undoing {
                assert_eq!((found.stage(), now()), (Stage::Undone, b"the old edited".to_vec()), "cut at {cuts}");
            } else {
                assert_eq!((found.stage(), now()), (Stage::Committed, b"the new one".to_vec()), "cut at {cuts}");
                found.undo(Value::Null).unwrap();
                assert_eq!(now(), b"the old edited", "cut at {cuts}");
            }
        }
    }
    assert!(changed.iter().all(|times| *times > 0) || places().len() == 1, "{changed:?}");
}

/// A folder of a person's that stood where a command had made one that may not be written to looked like one that had been
/// lent the leave, which was then taken from it. Where a cut comes after, so it was by the recovery.
#[test]
fn a_folder_that_somebody_makes_keeps_its_permissions_where_a_command_made_one_too() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: this takes root");
        return;
    }
    let mode = |room: &Room| room.listing()[Path::new("mine")].0 & 0o777;
    let theirs = |room: &Room| {
        let mine = room.at("mine");
        move || {
            let made = std::fs::create_dir(&mine);
            made.and_then(|()| std::fs::set_permissions(&mine, PermissionsExt::from_mode(0o755))).is_ok()
        }
    };
    let mut kept = 0;
    for at in 0.. {
        let room = Room::new(Place::Memory);
        let (made, saved) = as_nobody(&room, &[], || meanwhile::at(at, theirs(&room), || closed(&room)));
        if !saved {
            break;
        }
        let Ok(committed) = made else { continue };
        kept += 1;
        assert_eq!(mode(&room), 0o755, "at {at}");
        for cuts in 0.. {
            let room = Room::new(Place::Memory);
            let ended = as_nobody(&room, &[], || {
                let work = || drop(meanwhile::at(at, theirs(&room), || closed(&room)));
                let cut = cut::at(cuts, work);
                let _ = recover(&room.dir());
                !cut
            });
            // Before the folder was made there was a cut, or else it is the person's.
            let is_theirs = room.at("mine").exists() && room.at("mine/in").exists() && cuts > at;
            assert!(!is_theirs || mode(&room) == 0o755, "at {at}, cut at {cuts}");
            if ended {
                break;
            }
        }
        let undone = as_nobody(&room, &[], || committed.undo(Value::Null).map(drop));
        // An empty one goes with what was in it.
        assert!(!room.at("mine").exists() || mode(&room) == 0o755, "at {at}: {undone:?}");
    }
    assert!(kept > 0, "nothing was tried");
}

/// It was moved with the folder that it lay in, and what was kept of it could be deleted by nobody but its owner: it stayed
/// when its time was over, and was counted no more.
#[test]
fn a_folder_whose_owner_alone_could_delete_it_is_not_taken_away() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: this takes root");
        return;
    }
    for (mode, goes) in [(0o755, false), (0o777, true), (0o1777, true)] {
        let room = Room::new(Place::Same);
        for (folder, mode) in [("d", 0o777), ("d/deep", mode)] {
            std::fs::set_permissions(room.at(folder), PermissionsExt::from_mode(mode)).unwrap();
        }
        let before = room.listing();
        let gone = as_nobody(&room, &["d", "d/deep"], || removal(&room).map(|committed| committed.forget().unwrap()));
        match gone {
            Ok(()) => assert!(goes && !room.dir().exists() && !room.at("d").exists(), "{mode:o}"),
            Err(error) => {
                assert!(!goes && matches!(error, Error::Path { .. }), "{mode:o}: {error:?}");
                assert_eq!(room.listing(), before, "{mode:o}");
            }
        }
    }
}
