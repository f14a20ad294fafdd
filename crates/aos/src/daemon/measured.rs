//! What the daemon is made of, looked at when it starts: its program, its policy, its configuration.
//!
//! Start at [`record`]. What always holds: each start is journaled with the hashes, and what differs from the one before
//! is said in the log, in `aos status` and by `aos doctor`; a program that was changed is said and not refused, since an
//! upgrade is just that. The two files are looked at before anything runs. The program's tens of megabytes are read
//! beside the start, and not at all where file number, size and times are those of its last hash.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use aos_abi::entry::Measured;
use aos_abi::{Body, Pid};
use aos_sandbox::{digest, digest_of};

use super::heart::Handle;
use crate::home::Home;

/// The hashes of the files that say what may be done; the program's is not known yet.
pub(crate) fn files(home: &Home) -> Measured {
    let hash = |path: &Path| std::fs::read(path).map(|bytes| digest(&bytes)).unwrap_or_default();
    Measured { policy: hash(&home.policy_file()), config: hash(&home.config_file()), ..Measured::default() }
}

/// The hash of the running program; empty where it cannot be read. Blocking.
pub(crate) fn program(home: &Home) -> String {
    // The file that runs, also where another has taken its name since.
    let running = Path::new("/proc/self/exe");
    let Ok(found) = std::fs::metadata(running) else { return String::new() };
    let stamp = format!(
        "{} {} {} {}.{} {}.{}",
        found.dev(),
        found.ino(),
        found.len(),
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec()
    );
    let kept = home.run().join("program");
    let known = std::fs::read_to_string(&kept).unwrap_or_default();
    if let Some((hash, of)) = known.trim_end().split_once(' ')
        && of == stamp
        && hash.len() == 64
    {
        return hash.to_owned();
    }
    let Ok(hash) = std::fs::File::open(running).and_then(digest_of) else { return String::new() };
    if let Err(error) = Home::write_private(&kept, &format!("{hash} {stamp}\n")) {
        tracing::debug!(%error, "the program's hash is not kept");
    }
    hash
}

/// What is known of both and differs.
pub(crate) fn differs(before: &Measured, now: &Measured) -> Vec<&'static str> {
    let known = before != &Measured::default();
    let parts = [
        ("the program", &before.program, &now.program),
        ("policy.yaml", &before.policy, &now.policy),
        ("aos.toml", &before.config, &now.config),
    ];
    // An empty hash of the program is one that is not known.
    let differ = |what: &str, before: &str, now: &str| {
        before != now && (what != "the program" || !(before.is_empty() || now.is_empty()))
    };
    parts.into_iter().filter(|(what, before, now)| known && differ(what, before, now)).map(|(what, ..)| what).collect()
}

/// Journals what this start is made of.
pub(crate) async fn record(handle: Handle, files: Measured, program: tokio::task::JoinHandle<String>) {
    let program = program.await.unwrap_or_default();
    let recorded = handle.change(move |kernel| {
        let mut now = Measured { program, ..files };
        now.changed = differs(kernel.measured(), &now).into_iter().map(str::to_owned).collect();
        if now.changed.iter().any(|what| what == "the program") {
            tracing::warn!("the program is not what it was when the daemon last started");
        }
        Ok((Pid::SYSTEM, Body::Measured(now)))
    });
    if let Err(error) = recorded.await {
        tracing::warn!(%error, "what this daemon is made of is not journaled");
    }
}
