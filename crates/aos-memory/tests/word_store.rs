//! What any agent can rely on when it remembers. Each test works on a store of its own in a temporary folder.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use aos_abi::{EffectId, Lsn, Pid, Timestamp};
use aos_memory::{Error, Forget, Hit, MemoryStore, Note, Search, Source, What, WordStore};

struct Room {
    folder: tempfile::TempDir,
    store: WordStore,
    lsn: std::cell::Cell<u64>,
}

impl Room {
    fn new() -> Room {
        let folder = tempfile::tempdir().unwrap();
        let store = WordStore::open(&folder.path().join("memory.db")).unwrap();
        Room { folder, store, lsn: std::cell::Cell::new(0) }
    }

    fn note(&self, key: &str, value: &str) -> Note {
        self.lsn.set(self.lsn.get() + 1);
        Note {
            namespace: "self/7".into(),
            key: key.into(),
            value: value.into(),
            tags: BTreeSet::new(),
            labels: BTreeSet::new(),
            ttl_s: None,
            source: Source { pid: Pid(7), lsn: Lsn(self.lsn.get()) },
            effect: EffectId { cause: Lsn(self.lsn.get()), nth: 0 },
        }
    }

    fn keep(&self, key: &str, value: &str) -> String {
        self.store.write(&self.note(key, value), self.now()).unwrap()
    }

    /// A clock that moves by a second per write.
    fn now(&self) -> Timestamp {
        Timestamp(1_795_305_600_000).plus_millis(self.lsn.get() * 1000)
    }

    fn hits(&self, query: &str) -> Vec<Hit> {
        self.store.search(&ask(query), self.now()).unwrap()
    }

    fn keys(&self, query: &str) -> Vec<String> {
        self.hits(query).into_iter().map(|hit| hit.record.key).collect()
    }
}

fn ask(query: &str) -> Search {
    Search { namespace: "self/7".into(), query: query.into(), tags: BTreeSet::new(), since: None, limit: 6 }
}

fn forget(what: What, lsn: u64) -> Forget {
    Forget { namespace: "self/7".into(), what, effect: EffectId { cause: Lsn(lsn), nth: 0 } }
}

#[test]
fn word_search_hits_pass_the_threshold() {
    let room = Room::new();
    room.keep("favourite colour", "green");
    for query in ["favourite colour", "green", "What is my favourite colour?", "colours", "FAVOURITE", "favo"] {
        let hits = room.hits(query);
        assert_eq!(hits.len(), 1, "{query}");
        assert!(hits[0].score > 0.2 && hits[0].score <= 1.0, "{query}: {}", hits[0].score);
    }
    assert!((room.hits("favourite colour")[0].score - 1.0).abs() < 1e-9, "the whole query is answered");
    for nth in 0..200 {
        room.keep(&format!("note {nth}"), "what is said in passing is soon of no use");
    }
    let hits = room.hits("What is my favourite colour?");
    assert_eq!(hits[0].record.key, "favourite colour");
    assert!(hits[0].score > 0.5, "{}", hits[0].score);
    assert!(hits.len() < 2 || hits[1].score < hits[0].score / 2.0, "common words alone are worth little");
    assert_eq!(room.keys("zebra"), Vec::<String>::new());
}

#[test]
fn search_works_without_an_embedding_service() {
    let room = Room::new();
    room.keep("deploy", "The production server is called hydra and restarts at night.");
    room.keep("lunch", "Anna eats no peanuts.");
    room.keep("compound", "Die Lieblingsfarbe ist Grün.");
    assert_eq!(room.keys("production servers"), ["deploy"], "an ending that differs");
    assert_eq!(room.keys("restart"), ["deploy"], "the beginning of a word");
    assert_eq!(room.keys("farbe"), ["compound"], "the inside of a word");
    assert_eq!(room.keys("gruen OR grun"), ["compound"], "no accent, and OR is a word");
    assert_eq!(room.keys("peanut allergy anna"), ["lunch"]);
}

#[test]
fn not_only_latin_letters() {
    let room = Room::new();
    let facts = [
        ("zh", "用户最喜欢的颜色是绿色", &["颜色", "绿", "我最喜欢的颜色是什么", "绿色"][..]),
        ("ja", "好きな食べ物はラーメンです", &["食べ物", "ラーメン", "ラーメンが好き", "ﾗｰﾒﾝ"]),
        ("ar", "اللون المفضل هو الأَزْرَق", &["الأزرق", "اللون", "المفضل"]),
        ("ru", "Любимый город — Санкт-Петербург", &["город", "города", "ПЕТЕРБУРГ", "петербурге"]),
        ("th", "อาหารโปรดคือต้มยำกุ้ง", &["ต้มยำ", "กุ้ง", "อาหารโปรด"]),
        ("ko", "좋아하는 색깔은 파란색입니다", &["색깔", "파란색", "파란색을", "색깔이"]),
        ("el", "Η αγαπημένη πόλη είναι η Αθήνα", &["πόλη", "ΠΟΛΗ", "Αθηνα"]),
        ("he", "הצבע האהוב הוא כחול", &["כחול", "צבע"]),
        ("hi", "पसंदीदा रंग हरा है", &["रंग", "हरा"]),
        ("vi", "Món ăn yêu thích là phở", &["phở", "pho", "yêu thích"]),
    ];
    for (key, value, _) in facts {
        room.keep(key, value);
    }
    for (key, _, queries) in facts {
        for query in queries {
            assert_eq!(room.keys(query).first().map(String::as_str), Some(key), "{query}");
        }
    }
}

#[test]
fn one_agents_memory_is_not_read_or_overwritten_by_anothers() {
    let room = Room::new();
    let mine = room.keep("plan", "attack at dawn");
    let mut other = room.note("plan", "sleep until noon");
    other.namespace = "self/8".into();
    let theirs = room.store.write(&other, room.now()).unwrap();
    assert_ne!(mine, theirs);
    assert_eq!(room.hits("plan").iter().map(|h| h.record.value.as_str()).collect::<Vec<_>>(), ["attack at dawn"]);
    assert!(room.hits("noon sleep").is_empty());
    // One namespace's name being the beginning of another's, or a pattern, changes nothing.
    for namespace in ["self/77", "self", "self/", "self/%", "self/*", "", "SELF/7"] {
        let search = Search { namespace: namespace.into(), ..ask("plan") };
        assert!(room.store.search(&search, room.now()).unwrap().is_empty(), "{namespace}");
    }
    for nth in 0..12 {
        // Namespaces 1 and 11, 12 in the index.
        let mut note = room.note("plan", &format!("of {nth}"));
        note.namespace = format!("n{nth}");
        room.store.write(&note, room.now()).unwrap();
    }
    assert_eq!(room.hits("plan").len(), 1);
    // Words that look like the index's own columns and marks find nobody else's either.
    for query in ["ns1x", "ns2x", "ns : ns2x", "ns:ns2x OR plan", "\"plan\" ns2x", "plan) OR (ns : ns2x"] {
        assert!(room.hits(query).iter().all(|hit| hit.record.namespace == "self/7"), "{query}");
    }
    let error = room.store.forget(&forget(What::Id(theirs.clone()), 900)).unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    assert_eq!(room.store.show(&theirs, room.now()).unwrap()[0].value, "sleep until noon");
}

#[test]
fn distinct_facts_are_not_merged_because_they_start_alike() {
    let room = Room::new();
    let start = "The customer number of our very important client whose name begins with A is ".repeat(5);
    let first = room.keep(&format!("{start}1"), &format!("{start}4711"));
    let second = room.keep(&format!("{start}2"), &format!("{start}4712"));
    assert_ne!(first, second);
    assert_eq!(room.hits("customer number").len(), 2);
    assert_eq!(room.hits("4712")[0].record.id, second);
    assert_eq!(room.hits("4711")[0].record.id, first);
    room.keep("Plan", "a");
    room.keep("plan", "b");
    room.keep("plan ", "c");
    assert_eq!(room.keys("plan").len(), 2, "case is part of a key, white space round it is not");
}

#[test]
fn the_same_key_is_a_new_version_and_the_newest_is_found() {
    let room = Room::new();
    let first = room.keep("colour", "green");
    let second = room.keep("colour", "blue");
    let hits = room.hits("colour");
    assert_eq!((hits.len(), hits[0].record.value.as_str(), hits[0].record.version), (1, "blue", 2));
    assert!(room.hits("green").is_empty(), "what it was is not found");
    let versions: Vec<_> =
        room.store.show(&first, room.now()).unwrap().into_iter().map(|r| (r.id, r.version, r.value)).collect();
    assert_eq!(versions, [(second, 2, "blue".to_owned()), (first, 1, "green".to_owned())]);
}

#[test]
fn an_effect_carried_out_twice_writes_once() {
    let room = Room::new();
    let note = room.note("colour", "green");
    let id = room.store.write(&note, room.now()).unwrap();
    assert_eq!(room.store.write(&note, room.now().plus_millis(5000)).unwrap(), id);
    assert_eq!(room.store.show(&id, room.now()).unwrap().len(), 1);
    // After the daemon came back, too.
    let again = WordStore::open(&room.folder.path().join("memory.db")).unwrap();
    assert_eq!(again.write(&note, room.now()).unwrap(), id);
    // The same number from another journal is another effect.
    let other = Note { value: "blue".into(), ..note };
    assert_ne!(room.store.write(&other, room.now()).unwrap(), id);
    let request = forget(What::Key("colour".into()), 50);
    assert_eq!(room.store.forget(&request).unwrap(), 2);
    assert_eq!(room.store.forget(&request).unwrap(), 2, "the answer that got lost in the crash");
    assert!(matches!(room.store.forget(&forget(What::Key("colour".into()), 51)), Err(Error::NotFound { .. })));
}

#[test]
fn what_is_forgotten_is_gone_and_nothing_older_comes_back() {
    let room = Room::new();
    room.keep("secret", "oldsecretword");
    let newest = room.keep("secret", "newsecretword");
    room.keep("other", "stays");
    assert_eq!(room.store.forget(&forget(What::Id(newest.clone()), 90)).unwrap(), 2);
    assert!(room.hits("secret").is_empty() && room.hits("oldsecretword").is_empty());
    assert!(matches!(room.store.show(&newest, room.now()), Err(Error::NotFound { .. })));
    assert_eq!(room.keys(""), ["other"]);
    let first = room.keep("fact", "one");
    room.keep("fact", "two");
    assert_eq!(room.store.forget(&forget(What::Id(first), 91)).unwrap(), 1, "an old version alone");
    assert_eq!(room.hits("fact")[0].record.value, "two");
    assert!(matches!(room.store.forget(&forget(What::Id("x".into()), 92)), Err(Error::Id(_))));
    // Neither the file nor its log holds the text, while the store is still open.
    assert!(std::fs::read_dir(room.folder.path()).unwrap().count() >= 2);
    for entry in std::fs::read_dir(room.folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("secretword"), "the text is overwritten");
    }
}

#[test]
fn time_is_what_the_caller_says() {
    let room = Room::new();
    room.keep("key", "before");
    let mut note = room.note("key", "for a minute");
    note.ttl_s = Some(60);
    room.store.write(&note, room.now()).unwrap();
    let later = room.now().plus_millis(59_999);
    assert_eq!(room.store.search(&ask("key"), later).unwrap()[0].record.value, "for a minute");
    let gone = room.now().plus_millis(60_000);
    assert!(room.store.search(&ask("key"), gone).unwrap().is_empty(), "and the older version stays hidden");
    assert!(room.store.list(None, None, 9, gone).unwrap().is_empty());
    let shown = |now| room.store.show("m2", now).unwrap().len();
    let exported = |now| room.store.export(None, None, 9, now).unwrap().len();
    assert_eq!((shown(later), exported(later)), (2, 2));
    assert_eq!((shown(gone), exported(gone)), (1, 1), "also before it is swept");
    assert_eq!(room.store.expire(later).unwrap(), 0);
    assert_eq!(room.store.expire(gone).unwrap(), 1);
    // What had no end is not forgotten by what took its place for a minute, and stays superseded.
    assert_eq!(room.store.stats().unwrap().versions, 1);
    assert!(room.store.search(&ask("key"), gone).unwrap().is_empty());
    assert!(room.store.list(None, None, 9, gone).unwrap().is_empty());
    note.ttl_s = Some(0);
    note.effect.nth = 1;
    assert!(matches!(room.store.write(&note, gone), Err(Error::Invalid(_))));
}

#[test]
fn tags_and_time_narrow_a_search() {
    let room = Room::new();
    for (key, tags) in [("a", &["work", "urgent"][..]), ("b", &["work"]), ("c", &[])] {
        let mut note = room.note(key, "meeting");
        note.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        room.store.write(&note, room.now()).unwrap();
    }
    let find = |tags: &[&str], since: Option<Timestamp>, query: &str| -> Vec<String> {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        let hits = room.store.search(&Search { tags, since, ..ask(query) }, room.now()).unwrap();
        hits.into_iter().map(|hit| hit.record.key).collect()
    };
    assert_eq!(find(&["work", "urgent"], None, "meeting"), ["a"]);
    assert_eq!(find(&["work"], None, ""), ["b", "a"]);
    assert_eq!(find(&["urg"], None, "meeting"), Vec::<String>::new(), "a tag is whole");
    assert_eq!(find(&[], Some(room.now()), "meeting"), ["c"], "written then or later");
    assert_eq!(find(&[], None, "urgent"), ["a"], "tags are words too");
}

#[test]
fn queries_are_text_and_never_syntax() {
    let room = Room::new();
    room.keep("c++", "prefers C++ over \"Rust\" 🎉");
    for query in [
        "\"",
        "\"\"",
        "*",
        "NEAR(a b)",
        "a AND",
        "NOT x",
        "key:x",
        "{key}: y",
        "^a",
        "a + b",
        "-a",
        "(",
        "'; DROP TABLE memory; --",
        "\0",
        "\u{202e}",
        "%",
        "_",
        "ns",
        "AND OR NOT",
    ] {
        room.store.search(&ask(query), room.now()).unwrap_or_else(|error| panic!("{query}: {error}"));
    }
    assert_eq!(room.keys("\"rust\" AND"), ["c++"]);
    assert_eq!(room.keys("🎉"), ["c++"]);
    assert_eq!(room.keys("++"), ["c++"]);
    assert_eq!(room.keys("%"), Vec::<String>::new());
    assert!(matches!(room.store.search(&ask(&"x".repeat(5000)), room.now()), Err(Error::Invalid(_))));
}

#[test]
fn a_long_word_over_records_of_one_letter_costs_no_more_than_reading_them() {
    let room = Room::new();
    for nth in 0..4 {
        room.keep(&format!("k{nth}"), &format!("b{}", "a".repeat((64 << 10) - 1)));
        room.keep(&format!("m{nth}"), &"a\u{488}".repeat(20_000));
    }
    // As a phrase of 4,094 trigrams this was seconds for each record.
    let hits = room.hits(&"a".repeat(4096));
    assert!(!hits.is_empty() && hits.iter().all(|hit| hit.record.key.starts_with('k')), "{:?}", hits.len());
    assert!(!room.hits(&"a\u{488}".repeat(1300)).is_empty());
    let words: Vec<String> = (0..32).map(|nth| "a".repeat(60 + nth)).collect();
    assert!(!room.hits(&words.join(" ")).is_empty());
}

#[test]
fn a_hit_says_where_it_comes_from() {
    let room = Room::new();
    let mut note = room.note("colour", "green");
    note.labels = ["untrusted.web".to_owned()].into();
    room.store.write(&note, Timestamp(1_795_305_600_000)).unwrap();
    let hit = serde_json::to_value(&room.hits("colour")[0]).unwrap();
    assert_eq!(
        hit,
        serde_json::json!({ "id": "m1", "namespace": "self/7", "key": "colour", "value": "green", "tags": [],
            "labels": ["untrusted.web"], "version": 1, "at": "2026-11-22T00:00:00.000Z",
            "source": { "pid": 7, "lsn": 1 }, "score": 1.0 })
    );
}

#[test]
fn lists_pages_exports_and_counts() {
    let room = Room::new();
    for key in ["a", "b", "c", "a"] {
        room.keep(key, "x");
    }
    let page = room.store.list(Some("self/7"), None, 2, room.now()).unwrap();
    assert_eq!(page.iter().map(|r| r.key.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    let rest = room.store.list(None, Some(&page[1].id), 9, room.now()).unwrap();
    assert_eq!(rest.iter().map(|r| r.key.as_str()).collect::<Vec<_>>(), ["b"]);
    let exported = |after: Option<&str>, limit| -> Vec<(String, u32)> {
        let page = room.store.export(None, after, limit, room.now()).unwrap();
        page.into_iter().map(|record| (record.key, record.version)).collect()
    };
    assert_eq!(exported(None, 9), [("a".into(), 1), ("b".into(), 1), ("c".into(), 1), ("a".into(), 2)]);
    assert!(matches!(room.store.export(None, Some("x"), 9, room.now()), Err(Error::Id(_))));
    let stats = room.store.stats().unwrap();
    assert_eq!((stats.versions, stats.namespaces["self/7"]), (4, 3));
    assert!(stats.bytes > 0);
    assert_eq!(exported(None, 2), [("a".into(), 1), ("b".into(), 1)]);
    room.store.forget(&forget(What::Key("b".into()), 90)).unwrap();
    assert_eq!(exported(Some("m2"), 2), [("c".into(), 1), ("a".into(), 2)], "also where the last one read is gone");
    assert_eq!(exported(Some("m4"), 2), []);
}

#[test]
fn what_is_too_long_or_empty_is_refused() {
    let room = Room::new();
    for (key, value) in [("", "x"), ("  ", "x"), (&"k".repeat(513), "x"), ("k", &"v".repeat(70_000))] {
        assert!(matches!(room.store.write(&room.note(key, value), room.now()), Err(Error::Invalid(_))));
    }
}

#[test]
fn a_file_that_is_no_store_is_not_taken_for_an_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    std::fs::write(
        &path,
        "this is a letter, and a long enough one to be mistaken for a header of a database".repeat(9),
    )
    .unwrap();
    assert!(matches!(WordStore::open(&path), Err(Error::Corrupt { .. })));
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("this is a letter"), "left as it is");
    let other = folder.path().join("other.db");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(matches!(WordStore::open(&other), Err(Error::Corrupt { .. })));
}

#[test]
fn many_write_and_read_at_once() {
    let room = Room::new();
    let store = &room.store;
    std::thread::scope(|scope| {
        for writer in 0..4_u64 {
            scope.spawn(move || {
                for nth in 0..25_u32 {
                    let note = Note {
                        namespace: format!("self/{writer}"),
                        key: "counter".into(),
                        value: format!("number {nth}"),
                        tags: BTreeSet::new(),
                        labels: BTreeSet::new(),
                        ttl_s: None,
                        source: Source { pid: Pid(writer), lsn: Lsn(1) },
                        effect: EffectId { cause: Lsn(writer + 1), nth },
                    };
                    store.write(&note, Timestamp(1)).unwrap();
                    let search = Search { namespace: format!("self/{writer}"), ..ask("counter number") };
                    let hits = store.search(&search, Timestamp(1)).unwrap();
                    assert_eq!(hits[0].record.value, format!("number {nth}"), "what was written is read");
                }
            });
        }
    });
    let newest = store.list(None, None, 9, Timestamp(1)).unwrap();
    assert_eq!(newest.iter().map(|record| record.version).collect::<Vec<_>>(), [25; 4]);
}

#[test]
fn the_newest_versions_of_a_key_are_kept() {
    let room = Room::new();
    room.keep("other", "stays");
    let ids: Vec<String> = (1..=40).map(|nth| room.keep("state", &format!("{nth}"))).collect();
    let kept: Vec<u32> = room.store.show(&ids[39], room.now()).unwrap().iter().map(|record| record.version).collect();
    assert_eq!(kept, (25..=40).rev().collect::<Vec<u32>>());
    assert!(matches!(room.store.show(&ids[0], room.now()), Err(Error::NotFound { .. })));
    assert_eq!(room.store.stats().unwrap().versions, 17);
    assert_eq!(room.keys("40"), ["state"]);
}

#[test]
fn a_namespace_is_cleared_whole_and_alone() {
    let room = Room::new();
    let write = |namespace: &str, value: &str| {
        let note = Note { namespace: namespace.into(), ..room.note("key", value) };
        room.store.write(&note, room.now()).unwrap();
    };
    for namespace in ["self/7", "self/7/notes", "self/70", "team"] {
        write(namespace, "secretword before");
        write(namespace, "secretword");
    }
    let ended = |namespace: &str| namespace == "self/7" || namespace.starts_with("self/7/");
    assert_eq!(room.store.clear(&ended).unwrap(), 4);
    assert_eq!(room.store.clear(&ended).unwrap(), 0);
    let left: Vec<String> = room.store.stats().unwrap().namespaces.into_keys().collect();
    assert_eq!(left, ["self/70", "team"]);
    assert!(room.hits("secretword").is_empty());
    // One that comes after is no heir.
    write("self/7", "another");
    assert!(room.hits("secretword").is_empty());
    assert_eq!(room.keys("another"), ["key"]);
}
