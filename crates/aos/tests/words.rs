//! Words that people and agents are told: a system call that is named is one that there is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::path::{Path, PathBuf};

use aos_abi::Name;

/// What a name of a call begins with, and what a name that is none has begun with.
fn begins_like_a_call(word: &str) -> bool {
    let first = |name: &str| name.split('_').next().unwrap_or_default().to_owned();
    let first_of = first(word);
    first_of == "IPC" || Name::ALL.iter().any(|name| first(name.as_str()) == first_of)
}

/// The words of a text that look like names of calls: capitals in parts, `FS_READ`. One with a digit is none, nor one that
/// goes on in small letters (`FS_Read`, `{FS_…`).
fn named(text: &str) -> Vec<String> {
    // What is filled in is named in code: `{WAIT_S_MAX}`.
    let text = text.split('{').map(|part| part.trim_start_matches(|one: char| one.is_ascii_uppercase() || one == '_'));
    let text = text.collect::<Vec<_>>().join("{");
    let words = text.split(|one: char| !one.is_ascii_alphanumeric() && one != '_');
    let parts = |word: &str| word.split('_').count() > 1 && word.split('_').all(|part| !part.is_empty());
    let capitals = |word: &&str| parts(word) && word.chars().all(|one| one.is_ascii_uppercase() || one == '_');
    words.filter(capitals).filter(|word| begins_like_a_call(word)).map(str::to_owned).collect()
}

/// The texts in quotes of a source, comments left out. One that goes over several lines is told by the sign at their ends.
fn quoted(source: &str) -> String {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let (mut found, mut inside) = (String::new(), false);
    // What is for tests alone is at the end of a file.
    for line in code.take_while(|line| line.trim() != "mod tests {") {
        for part in line.replace("\\\"", "'").split_inclusive('"') {
            if inside {
                found.push_str(part);
            }
            inside ^= part.ends_with('"');
        }
        found.push('\n');
        inside &= line.trim_end().ends_with('\\');
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "tests") {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// A hint told agents to write to each other with a call that there never was.
#[test]
fn every_call_that_is_named_to_anybody_is_one() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    // The minds of the simulation make mistakes on purpose.
    for entry in std::fs::read_dir(&crates).unwrap().flatten().filter(|entry| entry.file_name() != "aos-sim") {
        sources(&entry.path().join("src"), &mut files);
    }
    assert!(files.len() > 200, "{}", files.len());
    // `[SYS_CALL::NAME]` is how a call is written as text.
    let known = |word: &String| word == "SYS_CALL" || Name::ALL.iter().any(|name| name.as_str() == *word);
    let mut told = 0;
    for file in files {
        let words = named(&quoted(&std::fs::read_to_string(&file).unwrap()));
        let (right, wrong): (Vec<_>, Vec<_>) = words.into_iter().partition(known);
        told += right.len();
        assert!(wrong.is_empty(), "{}: {wrong:?}", file.display());
    }
    assert!(told > 100, "{told}");
    let text =
        "let a = \"write with IPC_SEND\";\n// FS_REED in words\nlet b = SYS_OTHER;\nlet c = \"NET_FETCH, AOS_LOG\";";
    assert_eq!(named(&quoted(text)), ["IPC_SEND", "NET_FETCH"]);
}
