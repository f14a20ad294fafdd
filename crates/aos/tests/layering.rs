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
    /// System calls as they are, by which all the others could be done.
    Calls,
}
use Opening::{Calls, Environment, Files, Network, Processes};

/// Words of code that opens something.
const WORDS: [(Opening, &[&str]); 5] = [
    (
        Files,
        &[
            "std::fs",
            "tokio::fs",
            "rustix::fs",
            "rustix::mount",
            "os::unix::fs",
            "os::linux::fs",
            // What is imported as `fs`; the drivers' own has none of these.
            "fs::read",
            "fs::write",
            "fs::copy",
            "fs::rename",
            "fs::remove_",
            "fs::create_",
            "fs::hard_link",
            "fs::metadata",
            "fs::symlink",
            "fs::canonicalize",
            "fs::set_permissions",
            "fs::exists",
            "fs::open",
            "fs::File",
            "File::open",
            "File::create",
            "File::options",
            "OpenOptions",
            "DirBuilder",
            "DirEntry",
            "ReadDir",
            "tempfile::",
            "tempdir(",
            "memmap",
            // A path's own ways to the disk.
            ".canonicalize()",
            ".read_dir()",
            ".read_link()",
            ".symlink_metadata()",
            ".try_exists()",
            ".exists()",
            ".is_file()",
            ".is_dir()",
            ".is_symlink()",
        ],
    ),
    (
        Network,
        &[
            "Stream::connect",
            "Listener::bind",
            "Stream as ",
            "Listener as ",
            "connect_timeout(",
            "connect_addr(",
            "bind_addr(",
            "TcpSocket",
            "UnixSocket",
            "UdpSocket",
            "UnixDatagram",
            "UnixSeqpacket",
            "socket2",
            "socketpair",
            "SocketAddrs",
            "to_socket_addrs(",
            "lookup_host",
            "getaddrinfo",
            "reqwest::",
            "hyper_util::client",
            "hyper::client",
            "rustix::net",
        ],
    ),
    (
        Processes,
        &[
            "process::Command",
            "Command::new",
            "CommandExt",
            "rustix::runtime",
            "rustix::process::kill",
            "rustix::process::pidfd",
            "process::pivot_root",
            "posix_spawn",
            "fork()",
            "execve",
            "execvp",
        ],
    ),
    (Environment, &["env::var", "env::set_var", "env::remove_var", "env::home_dir", "env::set_current_dir"]),
    (
        Calls,
        &[
            "libc::",
            " nix::",
            "(nix::",
            "asm!",
            "extern \"C\"",
            "#[no_mangle]",
            "from_raw_fd",
            "dlopen",
            "libloading",
            "io_uring",
        ],
    ),
];

/// Who opens what; the longest path that fits a file counts, and what is named nowhere opens nothing.
const OPENERS: [(&str, &[Opening]); 19] = [
    // The drivers, and what they stand on. A driver starts no process: that is the sandbox's.
    ("aos-drivers", &[Files, Network]),
    ("aos-sandbox", &[Files, Network, Processes, Calls]),
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
    // Whether the daemon's socket is there; and a daemon that tests play.
    ("aos/src/client/mod.rs", &[Files, Network]),
    ("aos/src/client/fake.rs", &[Files, Network]),
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
        let of = |name: &str| ["::", ",", "}", " as "].iter().any(|end| line.contains(&format!("{name}{end}")));
        let whose = ["use std::{", "use tokio::{", "use rustix::{"];
        let group = whose.iter().any(|whose| line.trim_start().trim_start_matches("pub ").starts_with(whose));
        group && ["fs", "net", "process", "env"].into_iter().any(of)
    };
    let opens = |line: &str| {
        let forbidden = WORDS.iter().filter(|(opening, _)| !allowed.contains(opening));
        let lines = imports(line).unwrap_or_else(|| vec![line.to_owned()]);
        let has = |word: &&str| lines.iter().any(|line| line.contains(word));
        forbidden.flat_map(|(_, words)| words.iter()).any(has) || grouped(line)
    };
    let lines = statements(text).into_iter().filter(|(_, line)| opens(line));
    lines.map(|(nth, line)| format!("{file}:{nth}: {}", line.trim())).collect()
}

/// What an import names, each by an import of its own: `use a::b::{c, d as e};` is `use a::b::c;` and `use a::b::d as e;`.
/// `None` where a line is none.
fn imports(line: &str) -> Option<Vec<String>> {
    let tree = line.trim_start();
    let tree = match tree.strip_prefix("pub(") {
        Some(whom) => whom.split_once(')')?.1.trim_start(),
        None => tree.trim_start_matches("pub "),
    };
    let mut found = Vec::new();
    expand("use ", tree.strip_prefix("use ")?.trim_end().trim_end_matches(';'), &mut found);
    Some(found)
}

fn expand(before: &str, tree: &str, found: &mut Vec<String>) {
    let Some((above, inside)) = tree.split_once('{') else {
        found.push(format!("{before}{};", tree.trim()));
        return;
    };
    let before = format!("{before}{}", above.trim());
    let inside = inside.rsplit_once('}').map_or(inside, |(inside, _)| inside);
    let mut depth = 0;
    let parts = inside.split(|one: char| {
        depth += i32::from(one == '{') - i32::from(one == '}');
        one == ',' && depth == 0
    });
    parts.filter(|part| !part.trim().is_empty()).for_each(|part| expand(&before, part, found));
}

/// The lines of code, an import that goes over several of them as one.
fn statements(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut importing = false;
    for (nth, line) in code(text) {
        match found.last_mut().filter(|_| importing) {
            Some((_, before)) => *before += line.trim(),
            None => found.push((nth, line.to_owned())),
        }
        let begins = line.trim_start().trim_start_matches("pub ").starts_with("use ");
        importing = (importing || begins) && !line.trim_end().ends_with(';');
    }
    found
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

/// What the check missed before, by what it opens.
const WAYS: [(Opening, &[&str]); 5] = [
    (
        Files,
        &[
            "use std::{fmt, fs};",
            "use tokio::{fs, time};",
            "use rustix::{fs as files, io};",
            "fs::remove_file(path)?;",
            "fs::copy(a, b)",
            "File::options().write(true)",
            "std::os::unix::fs::symlink(a, b)",
            "rustix::mount::mount(a, b)",
            "if path.exists() {",
            "path.canonicalize()?",
            "for entry in path.read_dir()? {",
            "tempfile::tempfile()",
        ],
    ),
    (
        Network,
        &[
            "tokio::net::TcpStream::connect(address)",
            "TcpStream::connect_timeout(&address, wait)",
            "TcpSocket::new_v4()",
            "use tokio::net::TcpStream as Stream;",
            "tokio::net::UnixDatagram::unbound()",
            "for a in (name, 80).to_socket_addrs()? {",
            "hyper_util::client::legacy::Client::builder(x)",
        ],
    ),
    (
        Processes,
        &[
            "tokio::process::Command::new(a)",
            "use std::os::unix::process::CommandExt;",
            "use std::process::{Command as Run};",
            "pub(crate) use std::{fmt, process::{self, Command as Run}};",
            "use rustix::process::{Signal, kill_process};",
            "rustix::process::kill_process(pid, signal)",
            "rustix::runtime::execve(a, b, c)",
        ],
    ),
    (
        Environment,
        &["std::env::var_os(name)", "env::set_current_dir(path)", "use std::{env, fmt};", "use std::env::{var_os};"],
    ),
    (
        Calls,
        &[
            "unsafe { libc::open(path, 0) }",
            "std::arch::asm!(x)",
            "extern \"C\" {",
            "use nix::unistd::fork;",
            "OwnedFd::from_raw_fd(3)",
        ],
    ),
];

#[test]
fn the_check_finds_what_it_looks_for() {
    let text = "// std::fs in words\nlet a = std::fs::read(path);\n#[cfg(test)]\nmod tests;\nCommand::new(a);\n    #[cfg(test)]\n    \
                fn f() {\n        std::fs::read\n    }\nuse std::{env, fs};\n#[cfg(test)]\nmod tests {\n    std::fs::read\n}\n";
    let all = ["x.rs:2: let a = std::fs::read(path);", "x.rs:5: Command::new(a);", "x.rs:10: use std::{env, fs};"];
    assert_eq!(openings("x.rs", text, &[]), all);
    assert_eq!(openings("x.rs", text, &[Files, Environment]), all[1..]);
    // Each way by which something could be opened, one a line, and what looks like one.
    for (opening, lines) in WAYS {
        for line in lines {
            let others: Vec<Opening> =
                WORDS.iter().map(|(other, _)| *other).filter(|other| *other != opening).collect();
            assert!(!openings("x.rs", line, &others).is_empty(), "{opening:?}: {line}");
        }
    }
    for line in
        ["use tokio::{select, time};", "let a = unix::x;", "fn of(driver: &fs::Driver) {", "use std::net::IpAddr;"]
    {
        assert!(openings("x.rs", line, &[]).is_empty(), "{line}");
    }
    let names = imports("    pub use a::{b::{c, d as e}, self, f};");
    assert_eq!(names.unwrap(), ["use a::b::c;", "use a::b::d as e;", "use a::self;", "use a::f;"]);
    let several = "use std::{\n    fmt,\n    fs as files,\n};\n";
    assert_eq!(openings("x.rs", several, &[]).len(), 1, "an import that goes over several lines");
    assert_eq!(may_open("aos/src/client/start.rs"), [Files, Network, Processes, Environment]);
    assert_eq!((may_open("aos/src/client/http.rs"), may_open("aos-kernel/src/x.rs")), (&[Network][..], &[][..]));
    assert_eq!(
        dependencies(
            "[package]\nname = \"x\"\n\n[dependencies]\n# no\na.workspace = true\nb = \"1\"\n\n[dev-dependencies]\nc = \"1\"\n"
        ),
        ["a", "b"]
    );
}
