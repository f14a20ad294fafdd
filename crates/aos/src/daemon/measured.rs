//! What the daemon is made of, looked at when it starts: its program, its policy, its configuration.
//!
//! Start at [`look`], then [`record`]. What always holds: each start is journaled with the hashes, and what differs from
//! the one before is said in the log, in `aos status` and by `aos doctor`; a program that was changed is said and not
//! refused, since an upgrade is just that. All of it is looked at before anything runs. The program's tens of megabytes
//! are not read where file number, size and times are those of its last hash, and beside the start where a home has
//! nothing to compare with.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use aos_abi::entry::Measured;
use aos_abi::{Body, Pid};
use aos_sandbox::{digest, digest_of};

use super::heart::{Handle, LiveKernel};
use crate::home::Home;

/// Looks at what this start is made of and says what differs from the one before. The program is left out where there was
/// none before, so that nothing can differ.
pub(crate) async fn look(home: &Home, before: &Measured) -> Measured {
    let hash = |path: &Path| std::fs::read(path).map(|bytes| digest(&bytes)).unwrap_or_default();
    let mut now =
        Measured { policy: hash(&home.policy_file()), config: hash(&home.config_file()), ..Measured::default() };
    if !before.program.is_empty() {
        now.program = program_of(home).await;
    }
    now.changed = differs(before, &now).into_iter().map(str::to_owned).collect();
    for what in &now.changed {
        tracing::warn!("{what} is not what it was when the daemon last started");
    }
    now
}

/// The hash of the running program; empty where it cannot be read. Blocking.
fn program(home: &Home) -> String {
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
fn differs(before: &Measured, now: &Measured) -> Vec<&'static str> {
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

/// The hash of the running program, read where nothing waits for it.
async fn program_of(home: &Home) -> String {
    let home = home.clone();
    tokio::task::spawn_blocking(move || program(&home)).await.unwrap_or_default()
}

/// Journals what this start is made of. A program that was not looked at yet is looked at now and told of afterwards: a
/// policy that is changed meanwhile is compared with the files.
pub(crate) async fn record(handle: Handle, home: Home, now: Measured) {
    let looked_at = !now.program.is_empty();
    let mut recorded = handle.change(move |_| Ok((Pid::SYSTEM, Body::Measured(now)))).await;
    if recorded.is_ok() && !looked_at {
        let program = program_of(&home).await;
        let all = move |kernel: &mut LiveKernel| {
            Ok((Pid::SYSTEM, Body::Measured(Measured { program, ..kernel.measured().clone() })))
        };
        recorded = handle.change(all).await;
    }
    if let Err(error) = recorded {
        tracing::warn!(%error, "what this daemon is made of is not journaled");
    }
}
