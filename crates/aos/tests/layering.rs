//! Who may reach the machine: the arrows between crates, and that none but those made for it open files, sockets or
//! processes. A driver takes a permit, so a path round the policy could only be one round the drivers.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::path::{Path, PathBuf};

/// What each crate may use of ours.
const ARROWS: [(&str, &[&str]); 14] = [
    ("aos-abi", &[]),
    ("aos-personal", &[]),
    ("aos-policy", &["aos-abi", "aos-personal"]),
    ("aos-context", &["aos-abi"]),
    ("aos-kernel", &["aos-abi", "aos-personal", "aos-policy", "aos-context"]),
    ("aos-journal", &["aos-abi"]),
    ("aos-models", &["aos-abi"]),
    ("aos-runtime", &["aos-abi"]),
    ("aos-memory", &["aos-abi", "aos-policy"]),
    ("aos-sandbox", &[]),
    ("aos-drivers", &["aos-abi", "aos-policy", "aos-sandbox"]),
    ("aos-gateway", &["aos-abi"]),
    ("aos-sim", &["aos-abi", "aos-kernel", "aos-journal", "aos-policy", "aos-context"]),
    (
        "aos",
        &[
            "aos-abi",
            "aos-personal",
            "aos-policy",
            "aos-context",
            "aos-kernel",
            "aos-journal",
            "aos-models",
            "aos-runtime",
            "aos-memory",
            "aos-sandbox",
            "aos-drivers",
            "aos-gateway",
        ],
    ),
];

/// Crates that reach nothing at all, and libraries by which they could.
const PURE: [&str; 5] = ["aos-abi", "aos-personal", "aos-policy", "aos-context", "aos-kernel"];
const REACHING: [&str; 10] =
    ["tokio", "rustix", "libc", "reqwest", "hyper", "hyper-util", "rusqlite", "tempfile", "nix", "axum"];

/// What code can open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    Files,
    Network,
    Processes,
    Environment,
}
use Opening::{Environment, Files, Network, Processes};

/// Words of code that opens something.
const WORDS: [(Opening, &[&str]); 4] = [
    (
        Files,
        &["std::fs", "fs::read", "fs::write", "File::open", "File::create", "OpenOptions", "tokio::fs", "rustix::fs"],
    ),
    (
        Network,
        &[
            "TcpStream::connect",
            "UnixStream::connect",
            "TcpListener::bind",
            "UnixListener::bind",
            "UdpSocket",
            "UnixDatagram",
            "reqwest::",
            "lookup_host",
            "rustix::net",
        ],
    ),
    (Processes, &["process::Command", "Command::new", "rustix::runtime"]),
    (Environment, &["env::var"]),
];

/// Who opens what; the longest path that fits a file counts, and what is named nowhere opens nothing.
const OPENERS: [(&str, &[Opening]); 17] = [
    // The drivers, and what they stand on. A driver starts no process: that is the sandbox's.
    ("aos-drivers", &[Files, Network]),
    ("aos-sandbox", &[Files, Network, Processes]),
    // Each its own store.
    ("aos-journal", &[Files]),
    ("aos-memory", &[Files]),
    ("aos-runtime", &[Files]),
    // Models are asked over the network; their keys come from the environment, their weights into a file.
    ("aos-models", &[Network]),
    ("aos-models/src/pool.rs", &[Network, Environment]),
    ("aos-models/src/pull", &[Files, Network]),
    // The program: its home, its socket, and the daemon that the command line starts.
    ("aos", &[Files]),
    ("aos/src/env.rs", &[Environment]),
    ("aos/src/client", &[Network]),
    ("aos/src/client/start.rs", &[Files, Network, Processes, Environment]),
    ("aos/src/cli/init.rs", &[Files, Network]),
    ("aos/src/daemon/mod.rs", &[Files, Network]),
    // What computes, and does nothing else.
    ("aos/src/cli/completion.rs", &[]),
    ("aos/src/daemon/drivers.rs", &[]),
    ("aos/src/daemon/heart.rs", &[]),
];

/// What a driver does without a permit, since it carries out no call, and the only file that asks for it: the look at
/// files before a person is asked, a watch that outlives its call, and the network of a command that has its permit.
const UNPERMITTED: [(&str, &str); 3] = [
    ("fs::examine(", "aos/src/daemon/edges.rs"),
    ("Watcher::start(", "aos/src/daemon/drivers.rs"),
    ("Proxy::new(", "aos/src/daemon/outlet.rs"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The names below `[dependencies]`.
fn dependencies(manifest: &str) -> Vec<&str> {
    let table = manifest.split("\n[").find_map(|table| table.strip_prefix("dependencies]\n")).unwrap_or("");
    let names = table.lines().filter(|line| !line.starts_with('#'));
    names.filter_map(|line| line.split(['.', ' ', '=']).next()).filter(|name| !name.is_empty()).collect()
}

/// The lines of code of a text with their numbers; comments and what is there for tests alone left out.
fn code(text: &str) -> Vec<(usize, &str)> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"));
    let mut found = Vec::new();
    while let Some((nth, line)) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            found.push((nth, line));
            continue;
        }
        // The item it stands before, to its end.
        let Some((_, item)) = lines.find(|(_, line)| !line.trim_start().starts_with("#[")) else { break };
        if item.ends_with('{') {
            lines.find(|(_, line)| line.trim_start().starts_with('}') && indent(line) == indent(item));
        }
    }
    found
}

/// The lines of code that open something, as `FILE:LINE: TEXT`.
fn openings(file: &str, text: &str, allowed: &[Opening]) -> Vec<String> {
    // Names that come in a group are not written as the words are.
    let grouped = |line: &str| {
        let of = |name: &str| line.contains(&format!("{name}::")) || line.contains(&format!("{name},"));
        line.trim_start().starts_with("use std::{") && ["fs", "net", "process", "env"].into_iter().any(of)
    };
    let opens = |line: &str| {
        let forbidden = WORDS.iter().filter(|(opening, _)| !allowed.contains(opening));
        forbidden.flat_map(|(_, words)| words.iter()).any(|word| line.contains(word)) || grouped(line)
    };
    let lines = code(text).into_iter().filter(|(_, line)| opens(line));
    lines.map(|(nth, line)| format!("{file}:{nth}: {}", line.trim())).collect()
}

/// What a file may open, by its path below `crates`.
fn may_open(path: &str) -> &'static [Opening] {
    let fits = |part: &str| path.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let named = OPENERS.iter().filter(|(part, _)| fits(part)).max_by_key(|(part, _)| part.len());
    named.map_or(&[], |(_, openings)| openings)
}

/// The sources of all crates: path below `crates`, and text.
fn all_sources() -> Vec<(String, String)> {
    let crates = root().join("crates");
    let mut files = Vec::new();
    for (name, _) in ARROWS {
        let before = files.len();
        sources(&crates.join(name).join("src"), &mut files);
        assert!(files.len() > before + 3, "{name} has sources");
    }
    let below = |file: &PathBuf| file.strip_prefix(&crates).unwrap().display().to_string();
    files.iter().map(|file| (below(file), std::fs::read_to_string(file).unwrap())).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

#[test]
fn arrows_point_down_only() {
    for (name, allowed) in ARROWS {
        let manifest = std::fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        for dependency in dependencies(&manifest) {
            let ours = dependency.starts_with("aos");
            assert!(!ours || allowed.contains(&dependency), "{name} may not use {dependency}");
            assert!(
                !PURE.contains(&name) || !REACHING.contains(&dependency),
                "{name} reaches nothing: no {dependency}"
            );
        }
    }
    let crates = std::fs::read_dir(root().join("crates")).unwrap().count();
    assert_eq!(crates, ARROWS.len(), "a new crate needs its arrows here");
}

#[test]
fn nothing_is_opened_round_the_drivers() {
    let sources = all_sources();
    let found: Vec<String> = sources.iter().flat_map(|(path, text)| openings(path, text, may_open(path))).collect();
    assert!(found.is_empty(), "{found:#?}");
    for (part, _) in OPENERS {
        assert!(sources.iter().any(|(path, _)| path.starts_with(part)), "{part} is no more");
    }
    assert!(
        PURE.iter().chain(&["aos-gateway", "aos-sim"]).all(|name| may_open(&format!("{name}/src/lib.rs")).is_empty())
    );
}

#[test]
fn what_needs_no_permit_is_asked_for_in_one_place() {
    let sources = all_sources();
    for (what, place) in UNPERMITTED {
        let asking = |(path, text): &(String, String)| {
            let asks = !path.starts_with("aos-drivers/") && code(text).iter().any(|(_, line)| line.contains(what));
            asks.then(|| path.clone())
        };
        assert_eq!(sources.iter().filter_map(asking).collect::<Vec<_>>(), [place], "{what}");
    }
}

#[test]
fn the_check_finds_what_it_looks_for() {
    let text = "// std::fs in words\nlet a = std::fs::read(path);\n#[cfg(test)]\nmod tests;\nCommand::new(a);\n    #[cfg(test)]\n    \
                fn f() {\n        std::fs::read\n    }\nuse std::{env, fs};\n#[cfg(test)]\nmod tests {\n    std::fs::read\n}\n";
    let all = ["x.rs:2: let a = std::fs::read(path);", "x.rs:5: Command::new(a);", "x.rs:10: use std::{env, fs};"];
    assert_eq!(openings("x.rs", text, &[]), all);
    assert_eq!(openings("x.rs", text, &[Files, Environment]), all[1..]);
    assert_eq!(may_open("aos/src/client/start.rs"), [Files, Network, Processes, Environment]);
    assert_eq!((may_open("aos/src/client/mod.rs"), may_open("aos-kernel/src/x.rs")), (&[Network][..], &[][..]));
    assert_eq!(
        dependencies(
            "[package]\nname = \"x\"\n\n[dependencies]\n# no\na.workspace = true\nb = \"1\"\n\n[dev-dependencies]\nc = \"1\"\n"
        ),
        ["a", "b"]
    );
}
