//! Archives against what lies in homes and what becomes of files.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use aos_abi::Timestamp;
use aos_journal::chain::hex;
use aos_journal::{Journal, OpenOptions};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::home::Home;

fn quiet() -> impl FnMut(&str, u64) {
    |_: &str, _: u64| {}
}

fn home_at(path: &Path) -> Home {
    let home = Home::at(path).unwrap();
    home.create().unwrap();
    drop(Journal::open(&home.journal_file(), OpenOptions::default()).unwrap());
    home
}

fn backed_up(home: &Home, to: &Path) -> Manifest {
    write(home, to, Timestamp(0), &mut quiet()).unwrap().manifest
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// Where links lead in ways that a library would put in order.
const ODD_LINKS: [&str; 7] = [
    "/",
    "//",
    "a//b",
    "a/.",
    "./a/",
    "../..//x",
    "a////////////////////////////////////////////////////////////////////////////////////////////////////b",
];

/// Something of every kind that agents leave behind.
fn lived_in(dir: &Path) -> Home {
    let home = home_at(&dir.join("home"));
    let own = home.workspaces().join("3");
    fs::create_dir_all(own.join("deep").join("er".repeat(80)).join("x".repeat(80))).unwrap();
    fs::create_dir(own.join("empty")).unwrap();
    fs::write(own.join("deep").join("er".repeat(80)).join("x".repeat(80)).join("ä.txt"), "long paths").unwrap();
    fs::write(own.join("tool"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(own.join("tool"), Permissions::from_mode(0o755)).unwrap();
    symlink("tool", own.join("link")).unwrap();
    symlink("/etc", own.join("out")).unwrap();
    for (nth, target) in ODD_LINKS.iter().enumerate() {
        symlink(target, own.join(format!("odd{nth}"))).unwrap();
    }
    let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"no\xfftext");
    fs::write(own.join(name), [0, 255, 10]).unwrap();
    fs::create_dir(own.join("locked")).unwrap();
    fs::write(own.join("locked/inside"), "x").unwrap();
    fs::set_permissions(own.join("locked"), Permissions::from_mode(0o555)).unwrap();
    drop(std::os::unix::net::UnixListener::bind(own.join("socket")).unwrap());
    Home::write_private(&home.config_file(), "[budget]\nusd_per_day = 1\n").unwrap();
    fs::write(home.token_file(), "secret-token").unwrap();
    home
}

/// One such path, which a move makes, let every backup fail.
#[test]
fn what_lies_deeper_than_paths_reach_is_left_out_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let home = home_at(&dir.path().join("home"));
    let own = home.workspaces().join("3");
    let deep = |top: &str| (0..12).fold(own.join(top), |path, _| path.join("x".repeat(200)));
    fs::create_dir_all(deep("to")).unwrap();
    fs::create_dir_all(deep("from")).unwrap();
    fs::rename(own.join("from"), deep("to").join("from")).unwrap();
    fs::write(own.join("plain"), "kept").unwrap();
    let manifest = backed_up(&home, &dir.path().join("a.aos"));
    let [left] = manifest.left_out.as_slice() else { panic!("{:?}", manifest.left_out) };
    assert!(left.path.len() > PATH_BYTES_MAX && left.why.contains("too long"), "{left:?}");
    assert!(manifest.held.iter().any(|held| held.path == "workspaces/3/plain"));
}

/// A home whose data lie deep below the rest, as only `XDG_DATA_HOME` can say.
fn deep_home(dir: &Path, data_bytes: usize) -> Home {
    let (person, state) = (dir.join("person"), dir.join("state"));
    let mut data = dir.join("data");
    while data.as_os_str().len() < data_bytes {
        data.push("d".repeat(99));
    }
    let pairs = [("HOME", &person), ("XDG_DATA_HOME", &data), ("XDG_STATE_HOME", &state)];
    Home::find(None, &crate::env::Env::from(pairs.map(|(name, path)| (name, path.to_str().unwrap())))).unwrap()
}

/// The folder in which it is unpacked has a longer path than the home, and one file was enough for no restore at all.
#[test]
fn a_path_as_long_as_an_agent_can_make_it_hinders_no_restore() {
    let dir = tempfile::tempdir().unwrap();
    let (home, archive) = (home_at(&dir.path().join("home")), dir.path().join("a.aos"));
    let own = home.workspaces().join("3");
    let deep = |levels| (0..levels).fold(own.clone(), |path: PathBuf, _| path.join("x".repeat(255)));
    fs::create_dir_all(deep(15)).unwrap();
    let longest = deep(15).join("y".repeat(4_090 - deep(15).as_os_str().len()));
    fs::write(&longest, "deep").unwrap();
    symlink("f", deep(13).join("link")).unwrap();
    fs::write(deep(13).join("file"), "there").unwrap();
    let manifest = backed_up(&home, &archive);
    let [left] = manifest.left_out.as_slice() else { panic!("{:?}", manifest.left_out) };
    assert!(left.why.contains("too long") && left.why.contains("what is in it"), "{left:?}");

    let restored = restore(&archive, &home, Timestamp(0), None, &mut quiet()).unwrap();
    assert_eq!(restored.left_out, []);
    assert_eq!(fs::read_to_string(deep(13).join("file")).unwrap(), "there");
    assert!(deep(13).join("link").is_symlink() && !longest.exists());
    let other = deep_home(dir.path(), 300);
    let restored = restore(&archive, &other, Timestamp(0), None, &mut quiet()).unwrap();
    let file = deep(13).join("file");
    let file = file.strip_prefix(home.root()).unwrap();
    assert_eq!((restored.left_out, fs::read_to_string(other.root().join(file)).unwrap()), (Vec::new(), "there".into()));

    // As it was written when there was no such bound.
    let below = |path: &Path| path.strip_prefix(home.root()).unwrap().to_owned();
    let more = [(below(&deep(14)), None), (below(&deep(15)), None), (below(&longest), Some("deep"))];
    let old = dir.path().join("old.aos");
    with_more(&archive, manifest, &more, &old);
    for (home, left_out) in [(&home, &more[2].0), (&other, &more[1].0)] {
        let restored = restore(&old, home, Timestamp(0), None, &mut quiet()).unwrap();
        let left: Vec<&Path> = restored.left_out.iter().map(|left| Path::new(&left.path)).collect();
        assert_eq!(left, [left_out], "with what is in it");
        assert!(home.root().join(&more[0].0).is_dir());
    }
}

/// The same archive with more folders and files at its end.
fn with_more(archive: &Path, mut manifest: Manifest, more: &[(PathBuf, Option<&str>)], to: &Path) {
    let mut tar = tar::Builder::new(File::create(to).unwrap());
    for entry in tar::Archive::new(File::open(archive).unwrap()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let (path, mut header) = (entry.path().unwrap().into_owned(), entry.header().clone());
        match entry.link_name().unwrap().map(|target| target.into_owned()) {
            _ if path == Path::new(MANIFEST) => break,
            Some(target) => tar.append_link(&mut header, &path, target).unwrap(),
            None => tar.append_data(&mut header, &path, &mut entry).unwrap(),
        }
    }
    for (path, text) in more {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o700);
        header.set_entry_type(if text.is_some() { tar::EntryType::Regular } else { tar::EntryType::Directory });
        let bytes = text.unwrap_or_default().as_bytes();
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, path, bytes).unwrap();
        let sha256 = text.map(|text| hex(&Sha256::digest(text).into()));
        let path = path.to_str().unwrap().to_owned();
        manifest.held.push(Held { path, mode: 0o700, bytes: bytes.len() as u64, sha256, link: None });
    }
    let text = serde_json::to_vec(&manifest).unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    tar.append_data(&mut header, MANIFEST, text.as_slice()).unwrap();
    tar.into_inner().unwrap().flush().unwrap();
}

/// Whoever opened the copy would end it, in a folder of somebody's that goes on without it.
#[test]
fn a_change_that_is_under_way_stays_where_it_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let home = home_at(&dir.path().join("home"));
    for change in ["9.0", "kept/5.0"] {
        fs::create_dir_all(home.undo().join(change)).unwrap();
        fs::write(home.undo().join(change).join("record.json"), "{}").unwrap();
    }
    let held = backed_up(&home, &dir.path().join("a.aos")).held;
    let of_undo: Vec<&str> = held.iter().map(|held| &*held.path).filter(|path| path.starts_with("undo")).collect();
    assert_eq!(of_undo, ["undo", "undo/kept", "undo/kept/5.0", "undo/kept/5.0/record.json"]);
}

/// What a link led to was in the backup, where it took the place of a folder that had been listed.
#[test]
fn nothing_is_taken_from_elsewhere_whatever_agents_do_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let home = home_at(&dir.path().join("home"));
    let (own, outside) = (home.workspaces().join("3"), dir.path().join("outside"));
    for (folder, file) in [(own.join("z"), "first"), (own.join("z"), "key"), (outside.clone(), "key")] {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), folder.to_str().unwrap()).unwrap();
    }
    let mut written = 0;
    let mut swap = |doing: &str, _| {
        written += usize::from(doing == "writing");
        // The journal's copy is the first.
        if written == 2 && !dir.path().join("away").exists() {
            fs::rename(own.join("z"), dir.path().join("away")).unwrap();
            symlink(&outside, own.join("z")).unwrap();
        }
    };
    let manifest = write(&home, &dir.path().join("a.aos"), Timestamp(0), &mut swap).unwrap().manifest;
    let held: Vec<&str> = manifest.held.iter().map(|held| held.path.as_str()).collect();
    assert_eq!(["first", "key"].map(|name| held.contains(&&*format!("workspaces/3/z/{name}"))), [true, false]);
    assert_eq!(manifest.left_out, []);
}

#[test]
fn everything_comes_back_as_it_was_and_nothing_secret_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let (home, archive) = (lived_in(dir.path()), dir.path().join("a.aos"));
    let manifest = backed_up(&home, &archive);
    assert_eq!(mode(&archive), 0o600);
    let left: Vec<&str> = manifest.left_out.iter().map(|left| left.path.as_str()).collect();
    assert_eq!(left, ["workspaces/3/socket"]);
    let bytes = fs::read(&archive).unwrap();
    assert!(!bytes.windows(12).any(|window| window == b"secret-token"), "the token stays at home");
    assert!(matches!(write(&home, &archive, Timestamp(0), &mut quiet()), Err(Error::Exists(_))));

    let other = Home::at(&dir.path().join("other")).unwrap();
    let restored = restore(&archive, &other, Timestamp(0), None, &mut quiet()).unwrap();
    assert_eq!((restored.replaced, &restored.manifest), (Vec::<PathBuf>::new(), &manifest));
    // A copy of the copy lists the same: names, rights, bytes and where links lead.
    let again = backed_up(&other, &dir.path().join("b.aos"));
    let listed = |manifest: &Manifest| -> Vec<Held> {
        manifest.held.iter().filter(|held| held.path != "journal.db").cloned().collect()
    };
    assert_eq!(listed(&again), listed(&manifest));
    assert_eq!(fs::read_link(other.workspaces().join("3/out")).unwrap(), Path::new("/etc"));
    for (nth, target) in ODD_LINKS.iter().enumerate() {
        let read = fs::read_link(other.workspaces().join(format!("3/odd{nth}"))).unwrap();
        assert_eq!(read.as_os_str(), *target, "letter by letter");
    }
    assert_eq!([mode(&other.config_file()), mode(&other.journal_file())], [0o600, 0o600]);
    let leftovers: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(leftovers.len(), 4, "no drafts stay: {leftovers:?}");
    assert!(!other.root().join(".restoring").exists());
}

#[test]
fn an_archive_with_any_byte_changed_or_cut_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (home, archive) = (lived_in(dir.path()), dir.path().join("a.aos"));
    backed_up(&home, &archive);
    let whole = fs::read(&archive).unwrap();
    let find = |what: &[u8]| whole.windows(what.len()).position(|window| window == what).unwrap();
    let target = home_at(&dir.path().join("target"));
    fs::write(target.config_file(), "mine").unwrap();
    let refused = |bytes: &[u8]| {
        let bad = dir.path().join("bad.aos");
        fs::write(&bad, bytes).unwrap();
        let error = restore(&bad, &target, Timestamp(0), None, &mut quiet()).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. } | Error::Foreign { .. }), "{error}");
        assert_eq!(fs::read_to_string(target.config_file()).unwrap(), "mine");
        let names = fs::read_dir(target.root()).unwrap().flatten().map(|entry| entry.file_name());
        let strange: Vec<_> = names
            .filter(|name| name.to_string_lossy().starts_with(['.']) || name.to_string_lossy().contains("repl"))
            .collect();
        assert!(strange.is_empty(), "{strange:?}");
        error.to_string()
    };
    for (at, name) in [(find(b"#!/bin/sh"), "workspaces/3/tool"), (600, "journal.db"), (find(b"usd_per"), "aos.toml")] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        assert!(refused(&bytes).contains(name), "{name}");
    }
    for end in [0, 100, 512, 5_000, whole.len() / 2, find(b"\"format\""), find(b"\"format\"") + 50] {
        refused(&whole[..end]);
    }
    refused(b"SQLite format 3\0 and so on");
    let mut bytes = whole.clone();
    bytes[find(b"\"format\":2") + 9] = b'3';
    fs::write(dir.path().join("future.aos"), bytes).unwrap();
    let error = restore(&dir.path().join("future.aos"), &target, Timestamp(0), None, &mut quiet()).unwrap_err();
    assert!(matches!(error, Error::TooNew { found: 3, .. }), "{error}");
}

#[test]
fn an_archive_made_by_an_enemy_writes_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let file = |tar: &mut tar::Builder<File>, name: &str| {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(1);
        // The library refuses such names itself.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        tar.append(&header, b"x".as_slice()).unwrap();
    };
    let link = |tar: &mut tar::Builder<File>, name: &str| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        tar.append_link(&mut header, name, &outside).unwrap();
    };
    for (nth, name) in ["../outside/x", "/tmp/aos-outside-x", "run/token", "workspaces/x"].into_iter().enumerate() {
        let archive = dir.path().join(format!("{nth}.aos"));
        let mut tar = tar::Builder::new(File::create(&archive).unwrap());
        file(&mut tar, "journal.db");
        if name == "workspaces/x" {
            link(&mut tar, "workspaces");
        }
        file(&mut tar, name);
        tar.into_inner().unwrap().flush().unwrap();
        let home = Home::at(&dir.path().join(format!("home-{nth}"))).unwrap();
        restore(&archive, &home, Timestamp(0), None, &mut quiet()).unwrap_err();
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{name}");
        assert!(!home.token_file().exists() && !home.journal_file().exists());
    }
    assert!(!Path::new("/tmp/aos-outside-x").exists());
    for name in ["journal.db", "policy.yaml", "workspaces"] {
        let archive = dir.path().join("link.aos");
        let mut tar = tar::Builder::new(File::create(&archive).unwrap());
        if name != "journal.db" {
            file(&mut tar, "journal.db");
        }
        link(&mut tar, name);
        tar.into_inner().unwrap().flush().unwrap();
        let home = Home::at(&dir.path().join("home-link")).unwrap();
        let error = restore(&archive, &home, Timestamp(0), None, &mut quiet()).unwrap_err();
        assert!(error.to_string().contains(&format!("`{name}` is a link")), "{error}");
    }
}

#[test]
fn what_was_there_is_kept_each_time_also_where_configuration_lies_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let env = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (person, config, data, state) = (env("person"), env("config"), env("data"), env("state"));
    let pairs =
        [("HOME", &*person), ("XDG_CONFIG_HOME", &*config), ("XDG_DATA_HOME", &*data), ("XDG_STATE_HOME", &*state)];
    let home = Home::find(None, &crate::env::Env::from(pairs)).unwrap();
    home.create().unwrap();
    drop(Journal::open(&home.journal_file(), OpenOptions::default()).unwrap());
    fs::write(home.config_file(), "first").unwrap();
    let archive = dir.path().join("a.aos");
    backed_up(&home, &archive);
    for words in ["second", "third"] {
        fs::write(home.config_file(), words).unwrap();
        fs::create_dir_all(home.workspaces().join("9")).unwrap();
        let restored = restore(&archive, &home, Timestamp(0), None, &mut quiet()).unwrap();
        assert_eq!(restored.replaced.len(), 2, "{restored:?}");
        let kept = |name: &str| restored.replaced.iter().any(|folder| folder.join(name).exists());
        assert!(kept("journal.db") && kept("journal.head") && kept("workspaces/9"), "{restored:?}");
        let texts: Vec<_> =
            restored.replaced.iter().filter_map(|folder| fs::read_to_string(folder.join("aos.toml")).ok()).collect();
        assert_eq!(texts, [words]);
        assert_eq!(fs::read_to_string(home.config_file()).unwrap(), "first");
        drop(Journal::open(&home.journal_file(), OpenOptions::default()).unwrap());
    }
}

/// What was being done in a person's folder stayed half done, and what it had replaced lay in the folder of what was replaced.
#[test]
fn a_change_that_was_under_way_is_brought_to_its_end_first() {
    let dir = tempfile::tempdir().unwrap();
    let (home, archive) = (home_at(&dir.path().join("home")), dir.path().join("a.aos"));
    backed_up(&home, &archive);
    let own = dir.path().join("own");
    fs::create_dir(&own).unwrap();
    for name in ["one", "two"] {
        fs::write(own.join(name), "before").unwrap();
    }
    let change = home.undo().join("9.0");
    let layer = aos_sandbox::Layer::create(&change).unwrap();
    for name in ["one", "two"] {
        layer.write(&own, Path::new(name), b"after", None).unwrap();
    }
    let committed = layer.commit(&own, None, serde_json::Value::Null).unwrap();
    // As a kill behind its first step leaves it.
    fs::rename(own.join("two"), change.join("upper/two")).unwrap();
    fs::rename(committed.kept(Path::new("two")), own.join("two")).unwrap();
    let record = fs::read_to_string(change.join("committed.json")).unwrap();
    fs::write(change.join("committed.json"), record.lines().next().unwrap()).unwrap();

    let restored = restore(&archive, &home, Timestamp(0), None, &mut quiet()).unwrap();
    let texts = ["one", "two"].map(|name| fs::read_to_string(own.join(name)).unwrap());
    assert_eq!(restored.finished, [own.canonicalize().unwrap()]);
    assert!(texts == ["after", "after"] && restored.replaced[0].join("undo/9.0").is_dir(), "{texts:?}");

    // What nobody can tell of, or is of a folder that is gone, is set aside with the rest.
    fs::create_dir_all(&change).unwrap();
    fs::write(change.join("committed.json"), "nonsense").unwrap();
    let restored = restore(&archive, &home, Timestamp(1), None, &mut quiet()).unwrap();
    assert!(restored.finished.is_empty() && restored.replaced[0].join("undo/9.0").is_dir());
}

/// It let no backup be made, and the message said that the journal was damaged.
#[test]
fn a_damaged_database_costs_only_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (home, archive) = (lived_in(dir.path()), dir.path().join("a.aos"));
    let damaged = home.memory().join("other.db");
    fs::write(&damaged, b"SQLite format 3\0and nothing of the kind".repeat(200)).unwrap();
    let manifest = backed_up(&home, &archive);
    let left: Vec<&LeftOut> = manifest.left_out.iter().filter(|left| left.path.ends_with(".db")).collect();
    assert!(left.len() == 1 && left[0].path == "memory/other.db" && left[0].why.contains("damaged"), "{left:?}");
}

/// What a person saves under the name while the backup is written is theirs.
#[test]
fn a_backup_replaces_nothing_that_came_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let (home, archive) = (lived_in(dir.path()), dir.path().join("a.aos"));
    let refused = write(&home, &archive, Timestamp(0), &mut |_: &str, _: u64| fs::write(&archive, "mine").unwrap());
    assert!(matches!(refused, Err(Error::Exists(_))), "{refused:?}");
    assert_eq!(fs::read_to_string(&archive).unwrap(), "mine");
}

#[test]
fn a_home_in_which_nothing_happened_is_no_backup() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(&dir.path().join("home")).unwrap();
    let refused = write(&home, &dir.path().join("a.aos"), Timestamp(0), &mut quiet());
    assert!(matches!(refused, Err(Error::Empty(_))), "{refused:?}");
    assert!(!dir.path().join("a.aos").exists() && !home.root().exists());
}

/// Both cost agents nothing, and filled the disk on which the backup lay.
#[test]
fn holes_and_further_names_take_no_room_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let (home, archive) = (home_at(&dir.path().join("home")), dir.path().join("a.aos"));
    let own = home.workspaces().join("3");
    fs::create_dir_all(own.join("deep")).unwrap();
    // More pieces than one header has room for, the first of them one of few bytes.
    let pieces = File::create(own.join("pieces")).unwrap();
    for nth in 0..60u64 {
        pieces.write_all_at(format!("piece {nth}").as_bytes(), nth * 300_000 + nth).unwrap();
    }
    pieces.set_len(32 << 20).unwrap();
    File::create(own.join("hole")).unwrap().set_len(32 << 20).unwrap();
    File::create(own.join("end")).unwrap().write_all_at(b"end", 20_000_003).unwrap();
    File::create(own.join("endless")).unwrap().set_len(HOLES_BYTES_MAX).unwrap();
    // Nor does one before it leave it none.
    fs::create_dir_all(home.workspaces().join("2")).unwrap();
    for name in ["greedy", "more"] {
        File::create(home.workspaces().join("2").join(name)).unwrap().set_len(HOLES_BYTES_MAX / 2).unwrap();
    }
    fs::write(own.join("deep/one"), vec![7; 3_000_000]).unwrap();
    (0..9).for_each(|nth| fs::hard_link(own.join("deep/one"), own.join(format!("name{nth}"))).unwrap());
    let manifest = backed_up(&home, &archive);
    let size = fs::metadata(&archive).unwrap().len();
    assert!(size < 8_000_000, "{size}");
    let left: Vec<&str> = manifest.left_out.iter().map(|left| left.path.as_str()).collect();
    assert_eq!(left, ["workspaces/2/more", "workspaces/3/endless"]);

    // Those of the first form are read as before.
    let mut bytes = fs::read(&archive).unwrap();
    let at = bytes.windows(10).rposition(|window| window == b"\"format\":2").unwrap();
    bytes[at + 9] = b'1';
    let old = dir.path().join("old.aos");
    fs::write(&old, bytes).unwrap();
    for (name, archive) in [("new", archive), ("old", old)] {
        let other = Home::at(&dir.path().join(name)).unwrap();
        restore(&archive, &other, Timestamp(0), None, &mut quiet()).unwrap();
        let there = other.workspaces().join("3");
        for file in ["pieces", "hole", "end", "deep/one", "name4"] {
            assert!(fs::read(own.join(file)).unwrap() == fs::read(there.join(file)).unwrap(), "{file}");
            let blocks = |folder: &Path| fs::metadata(folder.join(file)).unwrap().blocks();
            assert!(blocks(&there) <= blocks(&own) + 10_000, "{file}: {} {}", blocks(&there), blocks(&own));
        }
        let meta = |file: &str| fs::metadata(there.join(file)).unwrap();
        assert_eq!((meta("deep/one").ino(), meta("deep/one").nlink()), (meta("name8").ino(), 10));
    }
}

#[test]
fn a_further_name_is_of_nothing_outside_and_of_nothing_at_the_top() {
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    fs::write(&outside, "a person's").unwrap();
    for (nth, first) in [outside.to_str().unwrap(), "../outside", "journal.db", "workspaces/later"].iter().enumerate() {
        let archive = dir.path().join(format!("{nth}.aos"));
        let mut tar = tar::Builder::new(File::create(&archive).unwrap());
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(1);
        tar.append_data(&mut header, "journal.db", b"x".as_slice()).unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Link);
        header.set_size(0);
        tar.append_link(&mut header, "workspaces/name", first).unwrap();
        tar.into_inner().unwrap().flush().unwrap();
        let home = Home::at(&dir.path().join(format!("home-{nth}"))).unwrap();
        let error = restore(&archive, &home, Timestamp(0), None, &mut quiet()).unwrap_err();
        assert!(error.to_string().contains("no name of anything before it"), "{first}: {error}");
        assert_eq!(fs::metadata(&outside).unwrap().nlink(), 1);
    }
}

/// A person's folder may be read-only, and what an agent removed of it is in backups as long as it can be undone. Root may
/// remove it anyhow, so this proves something to whoever runs it as somebody else.
#[test]
fn a_restore_that_was_refused_is_in_nobodys_way() {
    let dir = tempfile::tempdir().unwrap();
    let (home, archive) = (lived_in(dir.path()), dir.path().join("a.aos"));
    backed_up(&home, &archive);
    let other = Home::at(&dir.path().join("other")).unwrap();
    let wrong = "0".repeat(64);
    for expected in [Some(&*wrong), Some(&*wrong), None] {
        let restored = restore(&archive, &other, Timestamp(0), expected, &mut quiet());
        match expected {
            Some(_) => assert!(matches!(restored, Err(Error::Other { .. })), "{restored:?}"),
            None => assert_eq!(mode(&restored.map(|_| other.workspaces().join("3/locked")).unwrap()), 0o555),
        }
        assert!(!other.root().join(".restoring").exists());
    }
}

/// Names that JSON makes six times as long, and as many as cost nothing: the list was longer than anybody reads, and every
/// backup failed after it was written.
#[test]
fn one_workspace_with_more_than_a_list_holds_costs_only_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (home, archive) = (home_at(&dir.path().join("home")), dir.path().join("a.aos"));
    let name = |nth: usize| format!("{nth:03}{}", "\u{1}".repeat(200));
    for (pid, files) in [("1", 0), ("2", 600), ("3", 0), ("4", 600)] {
        let own = home.workspaces().join(pid);
        fs::create_dir_all(own.join("zz")).unwrap();
        fs::write(own.join("zz/plain"), pid).unwrap();
        (0..files).for_each(|nth| drop(File::create(own.join(name(nth))).unwrap()));
    }
    // A few are named, the others counted.
    let sockets = home.workspaces().join("3");
    (0..150).for_each(|nth| drop(std::os::unix::net::UnixListener::bind(sockets.join(nth.to_string())).unwrap()));
    Home::write_private(&home.config_file(), "mine").unwrap();
    let manifest = backed_up(&home, &archive);
    assert!(serde_json::to_vec(&manifest).unwrap().len() < MANIFEST_BYTES_MAX);
    let held = |path: &str| manifest.held.iter().filter(|held| held.path.starts_with(path)).count();
    let counted = |path: &str| -> usize {
        let left = manifest.left_out.iter().find(|left| left.path == path).unwrap();
        left.why.split(' ').next().unwrap().parse().unwrap()
    };
    for pid in ["workspaces/2", "workspaces/4"] {
        assert!(held(pid) > 10, "{pid}: {}", held(pid));
        assert_eq!(held(pid) + counted(pid), 603, "the folder, the files, and what is in `zz` with it");
    }
    assert_eq!([held("workspaces/1/zz/plain"), held("workspaces/3/zz/plain"), held("aos.toml")], [1, 1, 1]);
    assert_eq!((manifest.left_out.len(), counted("workspaces/3")), (100 + 3, 50));

    let other = Home::at(&dir.path().join("other")).unwrap();
    restore(&archive, &other, Timestamp(0), None, &mut quiet()).unwrap();
    assert_eq!(fs::read_to_string(other.workspaces().join("3/zz/plain")).unwrap(), "3");
    assert!(!other.workspaces().join("4/zz").exists());
}

/// What was unpacked beside the data could not be moved to the configuration, once the journal was set aside.
#[test]
fn configuration_on_another_file_system_comes_back_too() {
    let (dir, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    assert_ne!(device(dir.path()), device(memory.path()), "this proves something with two of them alone");
    let pairs = [("HOME", dir.path()), ("XDG_CONFIG_HOME", memory.path())];
    let env = crate::env::Env::from(pairs.map(|(name, path)| (name, path.to_str().unwrap())));
    let home = Home::find(None, &env).unwrap();
    home.create().unwrap();
    drop(Journal::open(&home.journal_file(), OpenOptions::default()).unwrap());
    fs::write(home.config_file(), "first").unwrap();
    let archive = dir.path().join("a.aos");
    backed_up(&home, &archive);
    fs::write(home.config_file(), "second").unwrap();
    let restored = restore(&archive, &home, Timestamp(0), None, &mut quiet()).unwrap();
    assert_eq!(fs::read_to_string(home.config_file()).unwrap(), "first");
    assert_eq!(restored.replaced.len(), 2);
    assert!(!folder_of(&home.config_file()).join(".restoring").exists());
    drop(Journal::open(&home.journal_file(), OpenOptions::default()).unwrap());
}
