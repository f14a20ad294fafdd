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

/// Words of code that opens files, makes connections or starts processes.
const OPENING: [&str; 16] = [
    "std::fs",
    "fs::read",
    "fs::write",
    "File::open",
    "File::create",
    "OpenOptions",
    "TcpStream::connect",
    "UnixStream::connect",
    "UdpSocket",
    "UnixDatagram",
    "process::Command",
    "Command::new",
    "tokio::fs",
    "reqwest::",
    "lookup_host",
    "env::var",
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

/// The lines of code that open something, as `FILE:LINE: TEXT`; comments and tests left out.
fn openings(file: &str, text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or("");
    let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    let opens = lines.filter(|(_, line)| OPENING.iter().any(|word| line.contains(word)));
    opens.map(|(nth, line)| format!("{file}:{}: {}", nth + 1, line.trim())).collect()
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
    // The gateway accepts connections that were opened for it, and makes none.
    for name in PURE.into_iter().chain(["aos-gateway"]) {
        let mut files = Vec::new();
        sources(&root().join("crates").join(name).join("src"), &mut files);
        assert!(files.len() > 3, "{name} has sources");
        for file in files {
            let found = openings(&file.display().to_string(), &std::fs::read_to_string(&file).unwrap());
            assert!(found.is_empty(), "{found:#?}");
        }
    }
}

#[test]
fn the_check_finds_what_it_looks_for() {
    let text = "// std::fs in words\nlet a = std::fs::read(path);\n#[cfg(test)]\nmod tests { std::fs::read }\n";
    assert_eq!(openings("x.rs", text), ["x.rs:2: let a = std::fs::read(path);"]);
    assert_eq!(
        dependencies(
            "[package]\nname = \"x\"\n\n[dependencies]\n# no\na.workspace = true\nb = \"1\"\n\n[dev-dependencies]\nc = \"1\"\n"
        ),
        ["a", "b"]
    );
}
