//! Watching real folders. Time is paused: it moves on only when every task waits, so "one event per burst" depends on
//! no machine's speed.

use std::path::PathBuf;
use std::time::Duration;

use aos_abi::Code;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::{Changed, Order, Settle, Watcher};
use crate::fs::Place;

struct Room {
    home: tempfile::TempDir,
    events: mpsc::Receiver<Changed>,
    sender: mpsc::Sender<Changed>,
}

impl Room {
    fn new() -> Room {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("work")).unwrap();
        let (sender, events) = mpsc::channel(1);
        Room { home, events, sender }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.home.path().join("work").join(path)
    }

    fn put(&self, path: &str, content: &str) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), content).unwrap();
    }

    async fn watch(&self, path: Option<&str>, glob: Option<&str>) -> Result<Watcher, aos_abi::CallError> {
        let (path, glob) = (path.map(str::to_owned), glob.map(str::to_owned));
        let order = Order { place: Place::new(self.at("")), path, glob, settle: Settle::default() };
        Watcher::start(order, self.sender.clone()).await
    }

    /// The next event, or what is there after a minute of quiet.
    async fn next(&mut self) -> Option<Changed> {
        timeout(Duration::from_secs(60), self.events.recv()).await.ok().flatten()
    }

    async fn paths(&mut self) -> Vec<String> {
        let changed = self.next().await.expect("something changed");
        assert!(!changed.incomplete);
        changed.paths.into_iter().collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_one_event() {
    let mut room = Room::new();
    room.put("old", "x");
    let _watcher = room.watch(None, None).await.unwrap();
    for nth in 0..50 {
        room.put(&format!("f{:02}", nth % 5), "x");
    }
    std::fs::remove_file(room.at("old")).unwrap();
    let before = Instant::now();
    assert_eq!(room.paths().await, ["f00", "f01", "f02", "f03", "f04", "old"]);
    assert!(before.elapsed() >= Duration::from_millis(200) && before.elapsed() < Duration::from_millis(400));
    assert_eq!(room.next().await, None, "and nothing more");
}

#[tokio::test(start_paused = true)]
async fn what_is_a_daemons_own_is_not_told() {
    let mut room = Room::new();
    room.put("sub/.aos/run/token", "x");
    let _watcher = room.watch(None, None).await.unwrap();
    room.put("sub/.aos/run/token", "y");
    room.put(".AOS/journal.db", "y");
    std::fs::rename(room.at(".AOS"), room.at("sub/.AOS")).unwrap();
    room.put("sub/.AOS/journal.db", "z");
    room.put("sub/told", "x");
    assert_eq!(room.paths().await, ["sub/told"]);
    assert_eq!(room.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_burst_without_end_is_told_in_pieces() {
    let mut room = Room::new();
    let _watcher = room.watch(None, None).await.unwrap();
    let before = Instant::now();
    let mut nth = 0;
    while room.events.is_empty() {
        room.put(&format!("{nth:03}"), "x");
        nth += 1;
        sleep(Duration::from_millis(100)).await;
        assert!(before.elapsed() < Duration::from_secs(8), "it waits for quiet for ever");
    }
    assert!(before.elapsed() >= Duration::from_secs(5));
    assert!(room.paths().await.len() > 10);
}

#[tokio::test(start_paused = true)]
async fn new_folders_are_watched_and_links_are_not_followed() {
    let mut room = Room::new();
    let outside = room.home.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, room.at("link")).unwrap();
    let _watcher = room.watch(None, None).await.unwrap();
    // Made at once, so that the inner ones exist before the outer one's watch does.
    room.put("a/b/c", "x");
    assert_eq!(room.paths().await, ["a", "a/b", "a/b/c"]);
    room.put("a/b/d", "x");
    assert_eq!(room.paths().await, ["a/b/d"]);
    std::fs::write(outside.join("x"), "x").unwrap();
    std::os::unix::fs::symlink(&outside, room.at("a/link2")).unwrap();
    assert_eq!(room.paths().await, ["a/link2"]);
    std::fs::write(outside.join("y"), "x").unwrap();
    assert_eq!(room.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_moved_folder_is_told_under_its_new_name() {
    let mut room = Room::new();
    room.put("a/deep/x", "x");
    room.put("ab/y", "x");
    let _watcher = room.watch(None, None).await.unwrap();
    std::fs::rename(room.at("a"), room.at("z")).unwrap();
    assert_eq!(room.paths().await, ["a", "z", "z/deep", "z/deep/x"]);
    room.put("z/deep/x", "new");
    room.put("ab/y", "new");
    assert_eq!(room.paths().await, ["ab/y", "z/deep/x"]);
    std::fs::rename(room.at("z"), room.home.path().join("gone")).unwrap();
    assert_eq!(room.paths().await, ["z"]);
    std::fs::write(room.home.path().join("gone/deep/x"), "secret").unwrap();
    assert_eq!(room.next().await, None, "what left the workspace is not watched");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_an_editor_replaces_stays_watched() {
    let mut room = Room::new();
    room.put("notes.txt", "one");
    room.put("other.txt", "one");
    let _watcher = room.watch(Some("notes.txt"), None).await.unwrap();
    for round in 0..3 {
        room.put(".notes.txt.swp", "draft");
        std::fs::rename(room.at(".notes.txt.swp"), room.at("notes.txt")).unwrap();
        room.put("other.txt", "not watched");
        assert_eq!(room.paths().await, ["notes.txt"], "round {round}");
    }
    std::fs::remove_file(room.at("notes.txt")).unwrap();
    assert_eq!(room.paths().await, ["notes.txt"]);
    room.put("notes.txt", "again");
    assert_eq!(room.paths().await, ["notes.txt"]);
    room.put("other.txt", "x");
    assert_eq!(room.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn only_what_matches_is_told_and_drafts_never_are() {
    let mut room = Room::new();
    room.put("inbox/a.txt", "x");
    let _watcher = room.watch(Some("inbox"), Some("*.txt")).await.unwrap();
    room.put("inbox/b.md", "x");
    room.put("c.txt", "x");
    room.put("inbox/.aos-draft-01.txt", "x");
    assert_eq!(room.next().await, None);
    room.put("inbox/deep/d.txt", "x");
    assert_eq!(room.paths().await, ["inbox/deep/d.txt"]);
}

#[tokio::test(start_paused = true)]
async fn a_folder_made_again_is_watched_again() {
    let mut room = Room::new();
    room.put("inbox/a", "x");
    let _watcher = room.watch(Some("inbox"), None).await.unwrap();
    std::fs::remove_dir_all(room.at("inbox")).unwrap();
    assert_eq!(room.paths().await, ["inbox", "inbox/a"]);
    room.put("inbox/b", "x");
    assert_eq!(room.paths().await, ["inbox", "inbox/b"]);
    room.put("inbox/c", "x");
    assert_eq!(room.paths().await, ["inbox/c"]);
}

/// More changes than an event may name: it says so, and is the only one.
#[tokio::test(start_paused = true)]
async fn too_many_changes_are_one_event_that_says_so() {
    let mut room = Room::new();
    let _watcher = room.watch(None, None).await.unwrap();
    for nth in 0..aos_abi::limits::LISTING_MAX + 50 {
        room.put(&nth.to_string(), "");
    }
    let changed = room.next().await.unwrap();
    assert!(changed.incomplete);
    assert_eq!(changed.paths.len(), aos_abi::limits::LISTING_MAX);
    assert_eq!(room.next().await, None);
}

/// The kernel's own queue (16,384 events by default) runs over when nobody reads it.
#[tokio::test(start_paused = true)]
async fn an_overflow_of_the_kernels_queue_is_told() {
    let most: usize =
        std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    let mut room = Room::new();
    room.put("a", "x");
    let _watcher = room.watch(None, None).await.unwrap();
    // Two files in turn, since equal events in a row are one.
    let mut files = ["a", "b"].map(|name| std::fs::File::create(room.at(name)).unwrap());
    for nth in 0..=most {
        std::io::Write::write_all(&mut files[nth % 2], b"x").unwrap();
    }
    drop(files);
    let changed = room.next().await.unwrap();
    assert!(changed.incomplete, "{} paths", changed.paths.len());
    room.put("new/file", "x");
    assert_eq!(room.paths().await, ["new", "new/file"], "and it goes on");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_one_event_for_all_that_happened() {
    let mut room = Room::new();
    let _watcher = room.watch(None, None).await.unwrap();
    for nth in 0..5 {
        room.put(&nth.to_string(), "x");
        sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(room.paths().await, ["0"]);
    assert_eq!(room.paths().await, ["1", "2", "3", "4"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_its_handle_or_its_reader() {
    let mut room = Room::new();
    let watcher = room.watch(None, None).await.unwrap();
    watcher.stop().await;
    room.put("a", "x");
    assert_eq!(room.next().await, None);
    let watcher = room.watch(None, None).await.unwrap();
    let (sender, closed) = mpsc::channel(1);
    room.events = closed;
    drop(std::mem::replace(&mut room.sender, sender));
    let mut task = watcher;
    timeout(Duration::from_secs(60), &mut task.task).await.expect("it ends by itself").unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_watched_is_refused() {
    let room = Room::new();
    std::os::unix::fs::symlink("/etc", room.at("link")).unwrap();
    let code = async |path: &str, glob: Option<&str>| room.watch(Some(path), glob).await.unwrap_err().code;
    assert_eq!(code("none", None).await, Code::NoEnt);
    assert_eq!(code("../work", None).await, Code::Perm);
    assert_eq!(code("/etc", None).await, Code::Perm);
    assert_eq!(code("link", None).await, Code::Perm);
    assert_eq!(code("", Some("a[")).await, Code::Inval);
}
