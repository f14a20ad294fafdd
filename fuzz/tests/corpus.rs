//! Runs every target over its corpus without a fuzzer: each file as it is, cut at each of its bytes (or a thousand of
//! them), and with each bit of one byte in a while turned over.

use std::path::Path;

/// At how many bytes a file is cut and turned. A journal is opened and synced each time, which takes milliseconds.
fn places(name: &str) -> usize {
    if name == "journal_file" { 40 } else { 1000 }
}

#[test]
fn every_target_survives_its_corpus() {
    for (name, target) in aos_fuzz::TARGETS.iter().copied() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let mut files = 0;
        for file in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let data = std::fs::read(file.unwrap().path()).unwrap();
            files += 1;
            target(&data);
            let step = data.len().div_ceil(places(name)).max(1);
            for at in (0..data.len()).step_by(step) {
                target(&data[..at]);
                let mut turned = data.clone();
                turned[at] ^= 1 << (at % 8);
                target(&turned);
            }
        }
        assert!(files >= 5, "{name} has {files} files");
    }
}

#[test]
fn the_corpus_is_what_it_is_meant_to_be() {
    let whole = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        std::fs::read_dir(folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect::<Vec<_>>()
    };
    let entries = whole("entry_json");
    let read = entries.iter().filter(|data| serde_json::from_slice::<aos_abi::Entry>(data).is_ok()).count();
    assert!(read >= 13, "{read} entries can be read");
    let calls = whole("syscall_args");
    let parse = |data: &Vec<u8>| {
        let name = aos_abi::Name::ALL[usize::from(data[0])];
        aos_abi::Syscall::parse(name.as_str(), &String::from_utf8_lossy(&data[1..])).is_ok()
    };
    let read = calls.iter().filter(|data| parse(data)).count();
    assert!(read >= 35, "{read} calls can be read");
}

#[test]
#[cfg(feature = "proxy_request")]
fn requests_to_the_proxy_are_what_they_are_meant_to_be() {
    let told = |name: &str| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/proxy_request").join(name);
        let (seen, asked, answer) = aos_fuzz::told(&std::fs::read(file).unwrap());
        (seen.len(), asked.len(), String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap_or("nothing").to_owned())
    };
    // Decided, and then without an address; or refused before.
    for (name, requests, status) in [
        ("get", 1, "403"),
        ("climb", 1, "403"),
        ("connect", 1, "403"),
        ("connect_private", 1, "403"),
        ("origin", 0, "400"),
        ("separator_beyond_ascii", 1, "403"),
    ] {
        let (seen, _, got) = told(name);
        assert_eq!((seen, got.as_str()), (requests, status), "{name}");
    }
    assert_eq!(told("lengths").1, 0, "two lengths are not even decided");
}

#[test]
#[cfg(feature = "journal_file")]
fn journals_are_what_they_are_meant_to_be() {
    use aos_fuzz::{FOLDED, LAST};

    // What each came to, in words that do not name the folder.
    let mut said = std::collections::BTreeMap::new();
    for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/journal_file")).unwrap() {
        let path = file.unwrap().path();
        let outcome = match aos_fuzz::opened(&std::fs::read(&path).unwrap()).expect("it has a first byte") {
            Ok((opened, sound)) => {
                let lost = opened.torn.map_or(0, |torn| torn.expected.0 - torn.last_good.0);
                let new = if opened.created { "new, " } else { "" };
                let sound = sound.map_or("not sound".into(), |entries| format!("{entries} sound"));
                format!("{new}last {}, {lost} lost, {sound}", opened.last.0)
            }
            Err(error) => format!("{error:?}").split([' ', '{']).next().unwrap_or_default().to_owned(),
        };
        said.insert(path.file_name().unwrap().to_string_lossy().into_owned(), outcome);
    }
    for (name, outcome) in [
        ("whole", format!("last {LAST}, 0 lost, {LAST} sound")),
        ("without_head", format!("last {LAST}, 0 lost, {LAST} sound")),
        ("without_log", "TornTail".into()),
        ("without_log_accepted", format!("last {FOLDED}, {} lost, {FOLDED} sound", LAST - FOLDED)),
        ("without_database", "Missing".into()),
        ("head_only", "Missing".into()),
        ("log_only", "Missing".into()),
        ("new_home", "new, last 0, 0 lost, 0 sound".into()),
        ("empty_database", "Corrupt".into()),
        ("short_database", "Corrupt".into()),
        ("head_empty", format!("last {LAST}, 0 lost, {LAST} sound")),
    ] {
        assert_eq!(said.get(name), Some(&outcome), "{name} of {said:#?}");
    }
}

#[test]
#[cfg(all(feature = "configuration", feature = "http_body"))]
fn configurations_and_requests_are_what_they_are_meant_to_be() {
    let read = |target: &str, name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target).join(name);
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let env = aos::env::Env::from([("HOST", "127.0.0.1"), ("SECRET", "sk-0123456789abcdef")]);
    for (name, good) in [("whole", true), ("consent", true), ("one_model", true), ("unknown_keys", false)] {
        let text = String::from_utf8(read("configuration", name)).unwrap();
        assert_eq!(aos::config::Config::parse(&text, &env).is_ok(), good, "{name}");
    }
    for name in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/http_body")).unwrap() {
        let name = name.unwrap().file_name().into_string().unwrap();
        let call = aos_fuzz::call(&read("http_body", &name)).expect("it has a route");
        assert_eq!(call.is_ok(), name != "spawn_misspelt", "{name}: {call:?}");
    }
}
