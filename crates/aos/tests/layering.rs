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
            // The sandbox's own ways.
            "aos_sandbox::delete",
            "aos_sandbox::recover",
            "aos_sandbox::Layer",
            "aos_sandbox::Stage",
            "aos_sandbox::Walk",
            "aos_sandbox::Copies",
            "aos_sandbox::Programs",
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
            // By these the sandbox runs a program, and the driver whatever it is made with.
            "aos_sandbox::run",
            "aos_sandbox::Isolator",
            "aos_sandbox::ThisHost",
            "Isolator for ",
            "aos_sandbox::probe",
            "aos_sandbox::helper_main",
            // An import of all of it, or by another name, has every word.
            "use aos_sandbox::*",
            "use aos_sandbox as ",
            "use aos_sandbox;",
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
const OPENERS: &[(&str, &[Opening])] = &[
    // The drivers, and what they stand on. A driver starts no process: that is the sandbox's, whom one of them asks.
    ("aos-drivers", &[Files, Network]),
    ("aos-drivers/src/exec", &[Files, Network, Processes]),
    ("aos-sandbox", &[Files, Network, Processes, Calls]),
    // Each its own store.
    ("aos-journal", &[Files]),
    ("aos-memory", &[Files]),
    ("aos-runtime", &[Files]),
    // Models are asked over the network; their keys come from the environment, their weights into a file.
    ("aos-models", &[Network]),
    ("aos-models/src/pool.rs", &[Network, Environment]),
    ("aos-models/src/pull", &[Files, Network]),
    // The program's home, its configuration, and what a person names.
    ("aos/src/archive", &[Files]),
    ("aos/src/config/mod.rs", &[Files]),
    ("aos/src/difference.rs", &[Files]),
    ("aos/src/env.rs", &[Environment]),
    ("aos/src/home.rs", &[Files]),
    ("aos/src/home", &[Files]),
    // It ends a daemon that cannot be asked to.
    ("aos/src/home/holder.rs", &[Files, Processes]),
    ("aos/src/listeners.rs", &[Files]),
    ("aos/src/log.rs", &[Files]),
    ("aos/src/mounts.rs", &[Files]),
    ("aos/src/secrets.rs", &[Files]),
    // It becomes the sandbox's helper where it is started as that.
    ("aos/src/main.rs", &[Processes]),
    // The command line: files that a person names, and the host that it looks at.
    ("aos/src/cli/backup.rs", &[Files]),
    ("aos/src/cli/doctor.rs", &[Files, Processes]),
    ("aos/src/cli/documented.rs", &[Files]),
    ("aos/src/cli/init.rs", &[Files, Network]),
    ("aos/src/cli/loosen.rs", &[Files]),
    ("aos/src/cli/policy.rs", &[Files]),
    ("aos/src/cli/pull.rs", &[Files]),
    ("aos/src/cli/restore.rs", &[Files]),
    ("aos/src/cli/run.rs", &[Files]),
    ("aos/src/cli/source.rs", &[Files]),
    // The socket, and the daemon that the command line starts.
    ("aos/src/client", &[Network]),
    // Whether the daemon's socket is there; and a daemon that tests play.
    ("aos/src/client/mod.rs", &[Files, Network]),
    ("aos/src/client/fake.rs", &[Files, Network]),
    ("aos/src/client/start.rs", &[Files, Network, Processes, Environment]),
    // The daemon: its listeners, what it keeps in its home, and what it knows of workspaces.
    ("aos/src/daemon/mod.rs", &[Files, Network]),
    ("aos/src/daemon/brought.rs", &[Files]),
    ("aos/src/daemon/edges.rs", &[Files]),
    ("aos/src/daemon/folders.rs", &[Files]),
    ("aos/src/daemon/fork.rs", &[Files]),
    ("aos/src/daemon/ground.rs", &[Files, Processes]),
    ("aos/src/daemon/left.rs", &[Files]),
    ("aos/src/daemon/measured.rs", &[Files]),
    ("aos/src/daemon/toolchain.rs", &[Files]),
    ("aos/src/daemon/programs.rs", &[Files]),
    ("aos/src/daemon/proof.rs", &[Files]),
    ("aos/src/daemon/reload.rs", &[Files]),
    ("aos/src/daemon/spare.rs", &[Files]),
    ("aos/src/daemon/system.rs", &[Files]),
    ("aos/src/daemon/trust.rs", &[Files]),
    ("aos/src/daemon/undo.rs", &[Files]),
    ("aos/src/daemon/undo", &[Files]),
];

/// What a driver does without a permit, since it carries out no call, and the only file that asks for it: the look at
/// files before a person is asked, a watch that outlives its call, and the network of a command that has its permit.
const UNPERMITTED: [(&str, &str); 3] = [
    ("fs::examine(", "aos/src/daemon/edges.rs"),
    ("Watcher::start(", "aos/src/daemon/drivers.rs"),
    ("Proxy::new(", "aos/src/daemon/outlet.rs"),
];

/// What of the drivers is to be had without a permit: it makes a value, tells something of one, or is one of
/// [`UNPERMITTED`] and what goes with it. Whatever else is public there takes one.
const WITHOUT: &[(&str, &[&str])] = &[
    ("exec/driver.rs", &["new"]),
    ("fs/difference.rs", &["is_full", "add", "into_text"]),
    ("fs/driver.rs", &["new"]),
    // Looks that a person or a call stands behind; neither shows or changes what is in a file but to a person.
    ("fs/examine.rs", &["examine", "drift"]),
    // Beside a command that has its permit: names alone, and of these only what rules say of them.
    ("fs/labelled.rs", &["labelled"]),
    ("fs/place.rs", &["new", "check"]),
    ("net/authority.rs", &["new", "pem"]),
    // Says what is refused; nothing is looked up or reached.
    ("net/driver.rs", &["new", "with_resolver", "away_from", "refuses"]),
    ("net/own.rs", &["new"]),
    // A command's network, made for one that has its permit.
    ("net/proxy.rs", &["new", "serve", "speak"]),
    ("net/secret.rs", &["new", "is_for", "covered"]),
    ("net/through.rs", &["serve_names", "serve_through"]),
    ("watch/watcher.rs", &["start", "stop"]),
];

/// The public functions of a text, each with its head up to its body.
fn public(text: &str) -> Vec<(String, String)> {
    let lines: Vec<String> = statements(text).into_iter().map(|(_, line)| line).collect();
    let named = |line: &str| {
        let line = line.trim_start().strip_prefix("pub ")?;
        let line =
            ["const ", "async ", "unsafe "].iter().fold(line, |line, word| line.strip_prefix(word).unwrap_or(line));
        let name = line.strip_prefix("fn ")?;
        Some(name[..name.find(|one: char| !one.is_alphanumeric() && one != '_')?].to_owned())
    };
    let head = |nth: usize| {
        let body = lines[nth..].iter().position(|line| line.contains('{')).unwrap_or(0);
        lines[nth..=nth + body].join(" ")
    };
    lines.iter().enumerate().filter_map(|(nth, line)| Some((named(line)?, head(nth)))).collect()
}

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

/// The list of what needs none was one by hand, and a new door of a driver was on no list.
#[test]
fn whatever_else_is_public_of_the_drivers_takes_a_permit() {
    let sources = all_sources();
    let mut open: Vec<(&str, String)> = Vec::new();
    for (path, text) in &sources {
        let Some(file) = path.strip_prefix("aos-drivers/src/") else { continue };
        let without = public(text).into_iter().filter(|(_, head)| !head.contains("permit: Permit"));
        open.extend(without.map(|(name, _)| (file, name)));
    }
    let listed = |(file, name): &(&str, String)| {
        WITHOUT.iter().any(|(known, names)| known == file && names.contains(&name.as_str()))
    };
    let unknown: Vec<_> = open.iter().filter(|one| !listed(one)).collect();
    assert!(unknown.is_empty(), "public, and without a permit: {unknown:?}");
    for (file, names) in WITHOUT {
        for name in *names {
            assert!(open.iter().any(|one| one == &(*file, (*name).to_owned())), "{file}: {name} is no more");
        }
    }
    let text = "impl A {\n    pub async fn a(\n        &self,\n        permit: Permit,\n    ) {\n    pub(super) fn b() {\n    pub const fn \
                c(x: u8) -> u8 {\n";
    let found = public(text);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names, found[0].1.contains("permit: Permit")), (vec!["a", "c"], true));
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
            "aos_sandbox::delete(folder)?;",
            "use aos_sandbox::{Committed, recover};",
            "use aos_sandbox::Layer;",
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
            "aos_sandbox::run(spec, &cancel)?;",
            "use aos_sandbox::{Cancel, ThisHost};",
            "impl Isolator for Mine {",
            "use aos_sandbox as walls;",
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
    // A new file of the daemon opens nothing until it is named.
    assert_eq!((may_open("aos/src/daemon/new.rs"), may_open("aos/src/daemon/heart.rs")), (&[][..], &[][..]));
    assert_eq!(
        dependencies(
            "[package]\nname = \"x\"\n\n[dependencies]\n# no\na.workspace = true\nb = \"1\"\n\n[dev-dependencies]\nc = \"1\"\n"
        ),
        ["a", "b"]
    );
}
