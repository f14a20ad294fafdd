//! Commits cut off between any two steps on the disk, on one file system and across two.

mod meanwhile;
mod people;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::{Value, json};

use super::*;
use crate::below::LEVELS_MAX;
use crate::below::tests::chain;
use crate::failpoint::trace::{self, Was};
use crate::failpoint::{broken, cut};
use crate::image::{Kind, digest};
use crate::layer::{Like, RECORD_BYTES_MAX};
use crate::outcome::{LeftOut, LeftOutKind};
use crate::record::RECORD;

/// A workspace and a place for a layer.
struct Room {
    work: tempfile::TempDir,
    layers: tempfile::TempDir,
}

/// Where the layer is: beside the workspace, or on memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Same,
    Other,
    /// Both on memory, where many can be tried.
    Memory,
}

impl Room {
    fn new(place: Place) -> Room {
        let disk = || tempfile::tempdir().unwrap();
        let memory = || tempfile::tempdir_in("/dev/shm").unwrap();
        let (work, layers) = match place {
            Place::Same => (disk(), disk()),
            Place::Other => (disk(), memory()),
            Place::Memory => (memory(), memory()),
        };
        let room = Room { work, layers };
        for folder in ["d/deep", "becomes-file/in", "keep"] {
            std::fs::create_dir_all(room.at(folder)).unwrap();
        }
        for (file, mode) in [
            ("edited", 0o640),
            ("d/one", 0o644),
            ("d/deep/two", 0o755),
            ("becomes-file/in/x", 0o600),
            ("becomes-folder", 0o600),
            ("keep/same", 0o644),
        ] {
            std::fs::write(room.at(file), format!("the old {file}")).unwrap();
            std::fs::set_permissions(room.at(file), PermissionsExt::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::symlink("edited", room.at("link")).unwrap();
        room.decoys().iter().for_each(|decoy| std::fs::write(decoy, "a decoy").unwrap());
        room
    }

    /// Files of the names that things had on their way in and out while anybody could tell them.
    fn decoys(&self) -> Vec<PathBuf> {
        let ways = ["edited", "link", "becomes-file", "becomes-folder", "d", "n", "new", "fresh"].map(|name| {
            ["away", "into"].map(|way| self.at(&format!(".aos-draft-{way}-{}", &digest(name.as_bytes())[..16])))
        });
        ways.into_iter().flatten().collect()
    }

    /// The same without them, for what was begun while they were the names.
    fn without_decoys(place: Place) -> Room {
        let room = Room::new(place);
        room.decoys().iter().for_each(|decoy| std::fs::remove_file(decoy).unwrap());
        room
    }

    fn at(&self, path: &str) -> PathBuf {
        self.work.path().join(path)
    }

    fn dir(&self) -> PathBuf {
        self.layers.path().join("41.0")
    }

    fn layer(&self) -> Layer {
        Layer::create(self.dir()).unwrap()
    }

    /// Every path with kind, mode and content.
    fn listing(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.work.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let meta = std::fs::symlink_metadata(&path).unwrap();
                let content = if meta.is_dir() {
                    folders.push(path.clone());
                    Vec::new()
                } else if meta.is_symlink() {
                    std::fs::read_link(&path).unwrap().into_os_string().into_vec()
                } else {
                    std::fs::read(&path).unwrap()
                };
                found.insert(path.strip_prefix(self.work.path()).unwrap().to_owned(), (meta.mode(), content));
            }
        }
        found
    }
}

/// Everything that can be committed at once.
fn edits(room: &Room) -> Result<Committed, Error> {
    let layer = room.layer();
    let write = |path: &str, mode: u32| {
        let me = std::fs::metadata(room.work.path()).unwrap();
        let like = Like { mode, owner: (me.uid(), me.gid()) };
        layer.write(room.work.path(), Path::new(path), format!("the new {path}").as_bytes(), Some(like)).unwrap();
    };
    write("edited", 0o600);
    write("d/one", 0o644);
    write("n/m/f", 0o755);
    write("becomes-file", 0o644);
    std::fs::create_dir(layer.upper().join("becomes-folder")).unwrap();
    std::fs::write(layer.upper().join("becomes-folder/in"), "in").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", layer.upper().join("link")).unwrap();
    std::fs::set_permissions(layer.upper().join("d"), PermissionsExt::from_mode(0o700)).unwrap();
    layer.commit(room.work.path(), None, json!("edits"))
}

fn removal(room: &Room) -> Result<Committed, Error> {
    room.layer().remove(room.work.path(), Path::new("d"), Value::Null)
}

fn relocation(room: &Room) -> Result<Committed, Error> {
    room.layer().relocate(room.work.path(), Path::new("d"), Path::new("new/place"), Value::Null)
}

/// What a command may write beside its files.
fn neighbours(room: &Room) -> Result<Committed, Error> {
    let (layer, long) = (room.layer(), "x".repeat(250));
    for name in ["edited", "fresh", &long] {
        let beside = if name.len() < 200 { name.to_owned() } else { format!(".{}", digest(name.as_bytes())) };
        for path in [name.to_owned(), format!("{beside}.leaving"), format!("{beside}.part")] {
            layer.write(room.work.path(), Path::new(&path), format!("the new {path}").as_bytes(), None).unwrap();
        }
    }
    layer.commit(room.work.path(), None, Value::Null)
}

type Work = fn(&Room) -> Result<Committed, Error>;
const WORKS: [(&str, Work); 4] =
    [("edits", edits), ("removal", removal), ("relocation", relocation), ("neighbours", neighbours)];

/// The places there are, and for each kind of work what the workspace is like afterwards.
fn places() -> Vec<Place> {
    let dev = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev()).ok();
    let other = dev(Path::new("/dev/shm"));
    if other.is_some() && other != dev(&std::env::temp_dir()) {
        return vec![Place::Same, Place::Other];
    }
    eprintln!("SKIPPED: no second file system at /dev/shm");
    vec![Place::Same]
}

#[test]
fn what_is_committed_can_be_undone_and_done_again() {
    for place in places() {
        for (name, work) in WORKS {
            let room = Room::new(place);
            let before = room.listing();
            let committed = work(&room).unwrap();
            let after = room.listing();
            assert_ne!(before, after, "{name}");
            let drafts = |listing: &BTreeMap<PathBuf, (u32, Vec<u8>)>| -> Vec<PathBuf> {
                listing.keys().filter(|path| path.to_string_lossy().contains(".aos-draft")).cloned().collect()
            };
            assert_eq!(drafts(&after), drafts(&before), "{name}");
            assert_eq!(Committed::load(&room.dir()).unwrap().unwrap(), committed, "{name}");
            let undone = committed.undo(json!("undo")).unwrap();
            assert_eq!((room.listing(), undone.turn()), (before.clone(), 1), "{name} {place:?}");
            let redone = undone.redo(json!("redo")).unwrap();
            assert_eq!((room.listing(), redone.note()), (after, &json!("redo")), "{name} {place:?}");
            redone.undo(Value::Null).unwrap().forget().unwrap();
            assert_eq!(room.listing(), before, "{name} {place:?}");
            assert!(!room.dir().exists());
        }
    }
}

#[test]
fn a_commit_cut_off_anywhere_is_all_or_nothing() {
    for place in places() {
        for (name, work) in WORKS {
            let whole = Room::new(place);
            let before = whole.listing();
            work(&whole).unwrap();
            let after = whole.listing();
            let mut cuts = 0;
            loop {
                let room = Room::new(place);
                if !cut::at(cuts, || drop(work(&room))) {
                    break;
                }
                match recover(&room.dir()).unwrap() {
                    None => assert_eq!(room.listing(), before, "{name} {place:?} cut at {cuts}"),
                    Some(committed) => {
                        assert_eq!(room.listing(), after, "{name} {place:?} cut at {cuts}");
                        committed.undo(Value::Null).unwrap();
                        assert_eq!(room.listing(), before, "{name} {place:?} cut at {cuts} and undone");
                    }
                }
                cuts += 1;
            }
            assert!(cuts > 4, "{name} {place:?} has {cuts} places to be cut off at");
        }
    }
}

#[test]
fn an_undo_cut_off_anywhere_is_all_or_nothing_and_so_is_its_recovery() {
    for place in places() {
        for (name, work) in WORKS {
            let mut cuts = 0;
            loop {
                let room = Room::new(place);
                let before = room.listing();
                let committed = work(&room).unwrap();
                let after = room.listing();
                if !cut::at(cuts, || drop(committed.undo(Value::Null))) {
                    break;
                }
                // The recovery is cut off as well, three places further on each time, until it comes through.
                let mut again = 0;
                while cut::at(again, || drop(recover(&room.dir()).unwrap())) {
                    again += 3;
                }
                let Some(found) = recover(&room.dir()).unwrap() else { panic!("{name}: it was committed") };
                let expected = if found.stage() == Stage::Undone { &before } else { &after };
                assert_eq!(&room.listing(), expected, "{name} {place:?} cut at {cuts}");
                cuts += 1;
            }
            assert!(cuts > 2, "{name} {place:?} has {cuts} places to be cut off at");
        }
    }
}

/// Whoever made a file of the name that another has on its way out kept `aos undo` and FS_DELETE from taking that one away,
/// and both said that it was gone.
#[test]
fn what_has_a_name_like_those_on_their_way_is_left_alone() {
    for place in places() {
        let room = Room::new(place);
        let before = room.listing();
        let layer = room.layer();
        layer.write(room.work.path(), Path::new("fresh"), b"evil", None).unwrap();
        let undone = layer.commit(room.work.path(), None, Value::Null).unwrap().undo(Value::Null).unwrap();
        assert_eq!(room.listing(), before, "{place:?}");
        let redone = undone.redo(Value::Null).unwrap();
        assert_eq!(std::fs::read(room.at("fresh")).unwrap(), b"evil", "{place:?}");
        redone.forget().unwrap();

        let committed = room.layer().remove(room.work.path(), Path::new("fresh"), Value::Null).unwrap();
        assert_eq!(room.listing(), before, "{place:?}");
        assert_eq!(std::fs::read(committed.kept(Path::new("fresh"))).unwrap(), b"evil", "{place:?}");
    }
}

/// A command's own file `X.leaving` was put in the place of its X, and the journal told of another.
#[test]
fn what_a_command_writes_beside_its_files_is_put_in_place_as_told() {
    for place in places() {
        let room = Room::new(place);
        let before = room.listing();
        let committed = neighbours(&room).unwrap();
        let after = room.listing();
        assert_eq!((committed.altered().len(), after.len()), (9, before.len() + 8), "{place:?}");
        for Altered { path, after, .. } in committed.altered() {
            let (now, told) = (std::fs::read(room.work.path().join(&path)), after.and_then(|image| image.sha256));
            assert_eq!(now.ok().map(|now| digest(&now)), told, "{place:?} {}", path.display());
        }
        let undone = committed.undo(Value::Null).unwrap();
        assert_eq!(room.listing(), before, "{place:?}");
        undone.redo(Value::Null).unwrap();
        assert_eq!(room.listing(), after, "{place:?}");
    }
}

#[test]
fn each_turn_has_names_of_its_own() {
    let room = Room::new(Place::Same);
    let nonce = |committed: &Committed| {
        let known = Committed::load(&room.dir()).unwrap().unwrap().record.state.nonce.unwrap();
        assert_eq!((known.len(), Some(&known)), (32, committed.record.state.nonce.as_ref()));
        known
    };
    let committed = edits(&room).unwrap();
    let first = nonce(&committed);
    let undone = committed.undo(Value::Null).unwrap();
    let second = nonce(&undone);
    let third = nonce(&undone.redo(Value::Null).unwrap());
    assert!(first != second && second != third && first != third);
}

/// A commit that is written down and not begun, as version 0.1.0 wrote it before there was a nonce.
fn begun_without_nonce(room: &Room, work: Work) -> Committed {
    assert!(cut::at(1, || drop(work(room))));
    let path = room.dir().join(RECORD);
    let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(record.as_object_mut().unwrap().remove("nonce").is_some());
    let parts = |name: &mut Value| {
        let path = PathBuf::from(name.as_str().unwrap());
        *name = path.iter().map(|part| part.as_bytes().to_vec()).collect();
    };
    for step in record["steps"].as_array_mut().unwrap() {
        parts(&mut step[0]);
        if let Some(from) = step[1].get_mut("Move").and_then(|step| step.get_mut("from")) {
            parts(from);
        }
    }
    record["workspace"] = json!([record["workspace"].as_str().unwrap().as_bytes()]);
    std::fs::write(&path, record.to_string()).unwrap();
    Committed::load(&room.dir()).unwrap().unwrap()
}

#[test]
fn what_was_done_or_cut_off_before_there_was_a_nonce_is_finished_and_undone() {
    for place in places() {
        // A command's `X.leaving` was taken for another then, so that comes out as it came out then.
        for (name, work) in WORKS.into_iter().filter(|(name, _)| *name != "neighbours") {
            let whole = Room::without_decoys(place);
            let before = whole.listing();
            let mut committed = begun_without_nonce(&whole, work);
            committed.go().unwrap();
            let after = whole.listing();
            let undone = Committed::load(&whole.dir()).unwrap().unwrap().undo(Value::Null).unwrap();
            assert_eq!(
                (whole.listing(), undone.record.state.nonce.is_some()),
                (before.clone(), true),
                "{name} {place:?}"
            );
            undone.redo(Value::Null).unwrap();
            assert_eq!(whole.listing(), after, "{name} {place:?}");
            let mut cuts = 0;
            loop {
                let room = Room::without_decoys(place);
                let mut committed = begun_without_nonce(&room, work);
                if !cut::at(cuts, || committed.go().unwrap()) {
                    break;
                }
                assert!(recover(&room.dir()).unwrap().is_some());
                assert_eq!(room.listing(), after, "{name} {place:?} cut at {cuts}");
                let mut committed = Committed::load(&room.dir()).unwrap().unwrap();
                let state = State { stage: Stage::Undoing, turn: 1, ..committed.record.state.clone() };
                committed.state(state).unwrap();
                cut::at(cuts, || committed.go().unwrap());
                assert!(recover(&room.dir()).unwrap().is_some());
                assert_eq!(room.listing(), before, "{name} {place:?} cut at {cuts} while it was taken back");
                cuts += 1;
            }
            assert!(cuts > 1, "{name} {place:?} has {cuts} places to be cut off at");
        }
    }
}

#[test]
fn a_commit_that_fails_half_way_leaves_everything_as_it_was() {
    let room = Room::new(Place::Same);
    let before = room.listing();
    // Sorted first, `a` is put in place; then `d/one` finds a link where its folder was.
    let layer = room.layer();
    layer.write(room.work.path(), Path::new("a"), b"a", None).unwrap();
    layer.write(room.work.path(), Path::new("d/one"), b"one", None).unwrap();
    let plan: Vec<_> = vec![(PathBuf::from("a"), put(&layer, "a")), (PathBuf::from("d/one"), put(&layer, "d/one"))];
    std::fs::rename(room.at("d"), room.at("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", room.at("d")).unwrap();
    let swapped = room.listing();
    assert!(matches!(Committed::perform(layer, room.work.path(), plan, Value::Null), Err(Error::Path { .. })));
    assert_eq!(room.listing(), swapped);
    assert!(!room.dir().exists());
    assert_ne!(before, swapped);
}

/// Where taking back failed too, the layer was deleted with the originals in it.
#[test]
fn a_disk_that_fails_anywhere_loses_nothing() {
    for place in places() {
        for (name, work) in WORKS {
            let whole = Room::new(place);
            let before = whole.listing();
            work(&whole).unwrap();
            let after = whole.listing();
            // It fails once, twice or for good.
            for times in [1, 2, 1000] {
                let mut unfinished = 0;
                for at in 0.. {
                    let (room, told) = (Room::new(place), format!("{name} {place:?} failed at {at}, {times} times"));
                    let (made, fails) = broken::at(at..at + times, || work(&room));
                    match made {
                        Ok(_) => assert!(!fails, "{told}"),
                        Err(Error::Path { .. }) => assert_eq!(room.listing(), before, "{told}"),
                        Err(Error::Unfinished { .. }) => {
                            unfinished += 1;
                            let discarded = Layer::at(&room.dir()).discard();
                            assert!(matches!(discarded, Err(Error::Spec { .. })), "{told}: {discarded:?}");
                            let Some(committed) = recover(&room.dir()).unwrap() else { panic!("{told}") };
                            assert_eq!(room.listing(), after, "{told}");
                            committed.undo(Value::Null).unwrap();
                            assert_eq!(room.listing(), before, "{told}");
                        }
                        Err(other) => panic!("{told}: {other:?}"),
                    }
                    if !fails {
                        break;
                    }
                }
                assert_eq!(unfinished > 0, times > 2, "{name} {place:?} {times} times");
            }
        }
    }
}

#[test]
fn an_undo_of_which_the_disk_fails_anywhere_loses_nothing() {
    for place in places() {
        for (name, work) in WORKS {
            for times in [1, 2, 1000] {
                for at in 0.. {
                    let (room, told) = (Room::new(place), format!("{name} {place:?} failed at {at}, {times} times"));
                    let before = room.listing();
                    let committed = work(&room).unwrap();
                    let after = room.listing();
                    let (undone, fails) = broken::at(at..at + times, || committed.undo(json!("undo")));
                    match undone {
                        Ok(_) => assert!(!fails, "{told}"),
                        Err(Error::Path { .. }) => assert_eq!(room.listing(), after, "{told}"),
                        Err(Error::Unfinished { .. }) => {
                            let Some(undone) = recover(&room.dir()).unwrap() else { panic!("{told}") };
                            let found = (room.listing(), undone.stage(), undone.note().clone());
                            assert_eq!(found, (before.clone(), Stage::Undone, json!("undo")), "{told}");
                        }
                        Err(other) => panic!("{told}: {other:?}"),
                    }
                    if !fails {
                        break;
                    }
                    let found = Committed::load(&room.dir()).unwrap().unwrap();
                    let (now, then) = if found.stage() == Stage::Undone {
                        (found.redo(Value::Null).unwrap(), &after)
                    } else {
                        assert_eq!(found.turn(), 0, "{told}");
                        (found.undo(Value::Null).unwrap(), &before)
                    };
                    assert_eq!((&room.listing(), now.turn() > 0), (then, true), "{told}");
                }
            }
        }
    }
}

/// What was being written when the power went is no part of the record, and is not left in it.
#[test]
fn a_state_that_is_half_written_is_none() {
    let room = Room::new(Place::Same);
    let committed = edits(&room).unwrap();
    let path = room.dir().join(RECORD);
    let whole = std::fs::read(&path).unwrap();
    let last = whole.iter().rposition(|byte| *byte == b'\n').unwrap();
    for end in [last, last + 1, whole.len() - 1] {
        std::fs::write(&path, &whole[..end]).unwrap();
        let mut found = Committed::load(&room.dir()).unwrap().unwrap();
        assert_eq!(found.stage(), Stage::Committing);
        found.state(committed.record.state.clone()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), whole);
    }
    let mut damaged = whole.clone();
    damaged[last + 1] = b'x';
    damaged.extend_from_slice(&whole[last..]);
    std::fs::write(&path, damaged).unwrap();
    assert!(matches!(Committed::load(&room.dir()), Err(Error::Path { .. })));
}

#[test]
fn any_name_can_be_written_down() {
    for bytes in [&b"plain/a b"[..], b"50%/%41", b"\xff\xfe/\x80x", "\u{e9}\u{1f600}\n\"".as_bytes()] {
        let name = Name::of(Path::new(std::ffi::OsStr::from_bytes(bytes)));
        let text = serde_json::to_string(&name).unwrap();
        assert_eq!(serde_json::from_str::<Name>(&text).unwrap(), name, "{text}");
    }
    for wrong in ["%", "%4", "%zz", "a%\u{e9}"] {
        assert!(serde_json::from_value::<Name>(json!(wrong)).is_err(), "{wrong}");
    }
}

/// Many files at once: more than are synced one by one.
fn many(room: &Room) -> Result<Committed, Error> {
    let layer = room.layer();
    for nth in 0..40 {
        let path = format!("many/{}/{nth}", nth % 3);
        layer.write(room.work.path(), Path::new(&path), b"new", None).unwrap();
    }
    layer.commit(room.work.path(), None, Value::Null)
}

/// A command leaves its files as it wrote them, with nothing synced.
fn unsynced(room: &Room) -> Result<Committed, Error> {
    let layer = room.layer();
    std::fs::create_dir_all(layer.upper().join("d/new")).unwrap();
    for path in ["edited", "d/new/file"] {
        std::fs::write(layer.upper().join(path), "by a command").unwrap();
    }
    layer.commit(room.work.path(), None, Value::Null)
}

/// What was done must be in an order in which a power cut at any place leaves all of it or nothing.
#[track_caller]
fn in_order(room: &Room, committed: &Committed, done: &[Was], begun: Stage, ended: Stage, name: &str) {
    let at = |stage: Stage| done.iter().position(|one| *one == Was::Recorded(stage)).expect("it is recorded");
    let (begun, ended) = (at(begun), at(ended));
    let steps: Vec<usize> = (0..done.len()).filter(|at| matches!(done[*at], Was::Stepped(_))).collect();
    assert_eq!(steps.len(), committed.record.steps.len(), "{name}: {done:?}");
    let (first, last) = (*steps.first().unwrap(), *steps.last().unwrap());
    assert!(begun < first && last < ended, "{name}: the record says what is begun, and what is done: {done:?}");
    let (dir, work) = (room.dir(), room.work.path().canonicalize().unwrap());
    let lasts = |done: &[Was], root: &Path, path: &Path| {
        done.contains(&Was::Synced(path.to_owned())) || done.contains(&Was::Whole(root.to_owned()))
    };
    let dir = dir.canonicalize().unwrap_or(dir);
    assert!(lasts(&done[last..ended], &dir, &dir.join("old")), "{name}: what was kept: {done:?}");
    for (path, step) in &committed.record.steps {
        let path = path.path();
        let above = path.parent().unwrap();
        let above = if above.as_os_str().is_empty() { work.clone() } else { work.join(above) };
        // What is not there any more has no names that could get lost.
        if above.is_dir() {
            assert!(lasts(&done[last..ended], &work, &above), "{name}: the names in {}: {done:?}", above.display());
        }
        if let (Step::Put { after, .. }, Stage::Committed) = (step, committed.stage()) {
            let held = dir.join("upper").join(path);
            let synced = after.kind == Kind::Link || lasts(&done[..begun], &dir, &held);
            // What comes back from an undo has been made to last when it went.
            assert!(synced || committed.turn() > 0, "{name}: what is in {}: {done:?}", held.display());
        }
    }
}

/// Where a file system keeps no order with another one, a copy lasts before what it was made from is deleted.
#[track_caller]
fn no_copy_is_last(done: &[Was], name: &str) {
    let mut copied: Option<PathBuf> = None;
    for one in done {
        match one {
            Was::Copied(path) => copied = Some(path.parent().unwrap().to_owned()),
            Was::Synced(path) if copied.as_ref() == Some(path) => copied = None,
            Was::Deleting(path) => assert_eq!(copied, None, "{name}: {} goes: {done:?}", path.display()),
            Was::Synced(_) | Was::Whole(_) | Was::Recorded(_) | Was::Stepped(_) => {}
        }
    }
}

#[test]
fn a_power_cut_finds_on_the_disk_what_the_record_says() {
    for place in places() {
        for (name, work) in WORKS.into_iter().chain([("many", many as Work), ("unsynced", unsynced)]) {
            let room = Room::new(place);
            trace::take();
            let committed = work(&room).unwrap();
            let done = trace::take();
            let above = Was::Synced(room.layers.path().canonicalize().unwrap());
            let recorded = done.iter().position(|one| matches!(one, Was::Recorded(_))).unwrap();
            let whole = Was::Whole(room.dir().canonicalize().unwrap());
            assert!(
                done[..recorded].iter().any(|one| *one == above || *one == whole),
                "{name}: its own name: {done:?}"
            );
            in_order(&room, &committed, &done, Stage::Committing, Stage::Committed, name);
            no_copy_is_last(&done, name);
            let undone = committed.undo(Value::Null).unwrap();
            let done = trace::take();
            in_order(&room, &undone, &done, Stage::Undoing, Stage::Undone, name);
            no_copy_is_last(&done, name);
            let redone = undone.redo(Value::Null).unwrap();
            let done = trace::take();
            in_order(&room, &redone, &done, Stage::Committing, Stage::Committed, name);
            no_copy_is_last(&done, name);
        }
    }
}

fn put(layer: &Layer, path: &str) -> Step {
    Step::Put { after: Image::of(&layer.upper().join(path)).unwrap(), before: None }
}

#[test]
fn what_changed_since_is_named_and_nothing_is_undone() {
    let room = Room::new(Place::Same);
    let committed = edits(&room).unwrap();
    std::fs::write(room.at("edited"), "by a person").unwrap();
    std::fs::remove_file(room.at("n/m/f")).unwrap();
    // The same bytes written again are no change.
    let same = std::fs::read(room.at("d/one")).unwrap();
    std::fs::write(room.at("d/one"), same).unwrap();
    let now = room.listing();
    let Err(Error::Conflict { paths }) = committed.undo(Value::Null) else { panic!("it was changed") };
    assert_eq!(paths, [PathBuf::from("edited"), PathBuf::from("n/m/f")]);
    assert_eq!(room.listing(), now);
}

#[test]
fn a_file_that_a_person_saved_meanwhile_is_not_overwritten() {
    let room = Room::new(Place::Same);
    let layer = room.layer();
    layer.write(room.work.path(), Path::new("edited"), b"by the command", None).unwrap();
    let began = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let now = room.listing();
    let Err(Error::Conflict { paths }) = layer.clone().commit(room.work.path(), Some(began), Value::Null) else {
        panic!("it was written in this hour")
    };
    assert_eq!((paths, room.listing()), (vec![PathBuf::from("edited")], now));
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    layer.commit(room.work.path(), Some(later), Value::Null).unwrap();
}

/// Writes a file so that it is newer than `began`, however coarse the file system's clock is.
fn save(path: &Path, began: std::time::SystemTime) {
    let began = since_1970(began).unwrap();
    while {
        std::fs::write(path, "by a person").unwrap();
        let meta = std::fs::metadata(path).unwrap();
        (meta.ctime(), meta.ctime_nsec()) <= began
    } {}
}

/// What was saved in it went with the folder.
#[test]
fn a_folder_in_which_a_person_saved_something_meanwhile_is_not_replaced() {
    let room = Room::new(Place::Same);
    let layer = room.layer();
    layer.write(room.work.path(), Path::new("becomes-file"), b"by the command", None).unwrap();
    let began = std::time::SystemTime::now();
    save(&room.at("becomes-file/in/today"), began);
    let now = room.listing();
    let Err(Error::Conflict { paths }) = layer.clone().commit(room.work.path(), Some(began), Value::Null) else {
        panic!("it was written since")
    };
    assert_eq!((paths, room.listing()), (vec![PathBuf::from("becomes-file")], now));
    layer.commit(room.work.path(), Some(std::time::SystemTime::now()), Value::Null).unwrap();
}

/// It said that it was done, and the file that the folder had replaced stayed away.
#[test]
fn a_folder_in_the_place_of_a_file_goes_only_with_what_the_commit_put_there() {
    let room = Room::new(Place::Same);
    let committed = edits(&room).unwrap();
    std::fs::write(room.at("becomes-folder/theirs"), "by a person").unwrap();
    // Beside it anything may be, and it stays.
    std::fs::write(room.at("n/m/theirs"), "by a person").unwrap();
    let now = room.listing();
    let Err(Error::Conflict { paths }) = committed.clone().undo(Value::Null) else { panic!("it is in the way") };
    assert_eq!((paths, room.listing()), (vec![PathBuf::from("becomes-folder/theirs")], now.clone()));
    // Where it comes between the look and the undo.
    let mut late = committed.clone();
    let state = State { stage: Stage::Undoing, turn: 1, ..late.record.state.clone() };
    late.state(state).unwrap();
    assert!(matches!(late.go(), Err(Error::Path { .. })));
    std::fs::remove_file(room.at("becomes-folder/theirs")).unwrap();
    let undone = recover(&room.dir()).unwrap().unwrap();
    assert_eq!(std::fs::read(room.at("becomes-folder")).unwrap(), b"the old becomes-folder");
    assert!(room.at("n/m/theirs").exists());
    undone.redo(Value::Null).unwrap();
    assert_eq!(std::fs::read(room.at("becomes-folder/in")).unwrap(), b"in");
}

/// A deletion that was taken back and is made again took everything with it that had been done in the folder since.
#[test]
fn a_folder_that_was_worked_in_since_it_came_back_is_not_taken_away_again() {
    for place in places() {
        for work in [removal as Work, edits] {
            let room = Room::new(place);
            let undone = work(&room).unwrap().undo(Value::Null).unwrap();
            let (folder, file) =
                if undone.altered().len() == 1 { ("d", "d/deep/more") } else { ("becomes-file", "becomes-file/in/x") };
            let untouched = undone.in_the_way().unwrap();
            assert_eq!(untouched, [] as [PathBuf; 0], "{place:?}");
            save(&room.at(file), std::time::SystemTime::now());
            let now = room.listing();
            let Err(Error::Conflict { paths }) = undone.redo(Value::Null) else { panic!("it was worked in") };
            assert_eq!((paths, room.listing()), (vec![PathBuf::from(folder)], now), "{place:?}");
        }
    }
}

#[test]
fn pipes_sockets_and_set_id_bits_are_not_committed() {
    let room = Room::new(Place::Same);
    let layer = room.layer();
    rustix::fs::mkfifoat(rustix::fs::CWD, layer.upper().join("pipe"), Mode::from_raw_mode(0o600)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(layer.upper().join("socket")).unwrap();
    std::fs::write(layer.upper().join("tool"), "x").unwrap();
    std::fs::set_permissions(layer.upper().join("tool"), PermissionsExt::from_mode(0o6755)).unwrap();
    let (_, left_out) = layer.brought(room.work.path()).unwrap();
    let kinds = [("pipe", LeftOutKind::Pipe), ("socket", LeftOutKind::Socket), ("tool", LeftOutKind::SetId)];
    assert_eq!(left_out, kinds.map(|(path, kind)| LeftOut { path: path.into(), kind }), "and that is told");
    let committed = layer.commit(room.work.path(), None, Value::Null).unwrap();
    let names: Vec<PathBuf> = committed.changes().into_iter().map(|change| change.path).collect();
    assert_eq!(names, [PathBuf::from("tool")]);
    assert!(!room.at("pipe").exists() && !room.at("socket").exists());
    assert_eq!(std::fs::metadata(room.at("tool")).unwrap().mode() & 0o7777, 0o755);
}

/// A chain of 2,000 folders ended the daemon by its stack, and nobody could delete it.
#[test]
fn a_layer_without_end_is_refused_and_goes_as_a_whole() {
    for levels in [LEVELS_MAX + 1, 2_100] {
        let room = Room::new(Place::Same);
        let before = room.listing();
        let layer = room.layer();
        layer.write(room.work.path(), Path::new("edited"), b"new", None).unwrap();
        chain(&layer.upper(), levels);
        assert!(matches!(layer.changes(room.work.path()), Err(Error::Deep { .. })));
        assert!(matches!(layer.clone().commit(room.work.path(), None, Value::Null), Err(Error::Deep { .. })));
        assert_eq!(layer.kept_bytes(), None);
        layer.discard().unwrap();
        assert_eq!(room.listing(), before);
        assert!(!room.dir().exists());
        // What a stop of the daemon left of such a layer.
        chain(&room.layer().upper(), levels);
        assert!(matches!(recover(&room.dir()), Ok(None)));
        assert!(!room.dir().exists());
    }
}

/// What was to be written down grew with names alone: 199,000 empty files below 250 folders took three gigabytes of it.
#[test]
fn more_than_can_be_written_down_is_refused() {
    let room = Room::new(Place::Same);
    let before = room.listing();
    let layer = room.layer();
    let mut folder = layer.upper();
    (0..14).for_each(|_| folder.push("x".repeat(250)));
    std::fs::create_dir_all(&folder).unwrap();
    let (names, long) = (RECORD_BYTES_MAX / 4_000, "y".repeat(200));
    (0..names).for_each(|nth| drop(std::fs::File::create(folder.join(format!("{long}{nth}"))).unwrap()));
    assert!(matches!(layer.changes(room.work.path()), Err(Error::Many { .. })));
    (0..names - 1_000).for_each(|nth| std::fs::remove_file(folder.join(format!("{long}{nth}"))).unwrap());
    let committed = layer.commit(room.work.path(), None, Value::Null).unwrap();
    let record = std::fs::metadata(room.dir().join(RECORD)).unwrap().len();
    assert!(record < RECORD_BYTES_MAX as u64 && committed.kept_bytes() == Some(record), "{record}");
    let undone = committed.undo(Value::Null).unwrap();
    assert_eq!(room.listing(), before);
    undone.forget().unwrap();
}

/// They came back writable: what a command locks in its layer is opened, and this was the workspace's.
#[test]
fn folders_that_may_not_be_written_to_come_back_as_they_were() {
    for place in places() {
        let room = Room::new(place);
        for (folder, mode) in [("d/deep", 0o555), ("d", 0o500)] {
            std::fs::set_permissions(room.at(folder), PermissionsExt::from_mode(mode)).unwrap();
        }
        let before = room.listing();
        let committed = match removal(&room) {
            Ok(committed) => committed,
            // On another file system, what may not be written to cannot be deleted after it was copied.
            Err(Error::Path { .. }) if place == Place::Other => continue,
            Err(other) => panic!("{place:?}: {other:?}"),
        };
        assert!(committed.kept_bytes().is_some());
        committed.undo(Value::Null).unwrap();
        assert_eq!(room.listing(), before, "{place:?}");
        for folder in ["d", "d/deep"] {
            std::fs::set_permissions(room.at(folder), PermissionsExt::from_mode(0o755)).unwrap();
        }
    }
}

#[test]
fn what_cannot_be_kept_on_another_file_system_stays() {
    for place in places() {
        let room = Room::new(place);
        chain(&room.at("d/deep"), 300);
        match (place, removal(&room)) {
            (Place::Same, Ok(committed)) => {
                committed.undo(Value::Null).unwrap().forget().unwrap();
            }
            (Place::Other, Err(Error::Path { .. })) => {}
            (_, other) => panic!("{place:?}: {other:?}"),
        }
        assert_eq!(std::fs::read(room.at("d/deep/two")).unwrap(), b"the old d/deep/two");
        assert!(!room.dir().exists());
        // The rest of it is no name that the listing of a test can follow.
        crate::below::delete(&room.at("d")).unwrap();
    }
}

/// Across file systems an undo brought back neither set-id bits nor attributes.
#[test]
fn set_id_bits_and_attributes_come_back() {
    for place in places() {
        let room = Room::new(place);
        std::fs::set_permissions(room.at("d/one"), PermissionsExt::from_mode(0o4755)).unwrap();
        std::fs::set_permissions(room.at("d/deep/two"), PermissionsExt::from_mode(0o2440)).unwrap();
        std::fs::set_permissions(room.at("d/deep"), PermissionsExt::from_mode(0o3751)).unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        let mine = |path: PathBuf| rustix::fs::lsetxattr(path, "user.mine", b"kept", flags);
        if ["d", "d/deep/two"].into_iter().any(|path| mine(room.at(path)).is_err()) {
            eprintln!("SKIPPED: no attributes in the folder for temporary files");
            return;
        }
        let takes = mine(room.layers.path().to_owned()).is_ok();
        let before = room.listing();
        match removal(&room) {
            Ok(committed) if takes => {
                assert!(!room.at("d").exists());
                committed.undo(Value::Null).unwrap();
            }
            Err(Error::Path { .. }) if !takes => {}
            other => panic!("{place:?}: {other:?}"),
        }
        assert_eq!(room.listing(), before, "{place:?}");
        for path in ["d", "d/deep/two"] {
            let mut value = [0u8; 16];
            let length = rustix::fs::lgetxattr(room.at(path), "user.mine", &mut value[..]).unwrap();
            assert_eq!(&value[..length], b"kept", "{place:?} {path}");
        }
    }
}

/// Whoever may write above a workspace may put a link in its place; then taking back wrote where it leads.
#[test]
fn nothing_is_taken_back_through_a_link_in_the_place_of_the_workspace() {
    let room = Room::new(Place::Same);
    let committed = edits(&room).unwrap();
    let (away, elsewhere) = (room.layers.path().join("away"), room.layers.path().join("elsewhere"));
    std::fs::rename(room.work.path(), &away).unwrap();
    assert!(std::process::Command::new("cp").arg("-a").args([&away, &elsewhere]).status().unwrap().success());
    std::os::unix::fs::symlink(&elsewhere, room.work.path()).unwrap();
    assert!(committed.in_the_way().is_err());
    assert!(committed.clone().undo(json!("undone")).is_err());
    assert_eq!(std::fs::read_to_string(elsewhere.join("edited")).unwrap(), "the new edited");
    std::fs::remove_file(room.work.path()).unwrap();
    std::fs::rename(&away, room.work.path()).unwrap();
    committed.undo(json!("undone")).unwrap();
    assert_eq!(std::fs::read_to_string(room.at("edited")).unwrap(), "the old edited");
}
