//! What the daemon is made of, looked at when it starts: its program, its policy, its configuration, its secrets and local
//! weights.
//!
//! Start at [`look`], then [`tell`] and [`record`]. What always holds: each start is journaled with the hashes, and what
//! differs from the one before is said to whoever caused the start, in the log, in `aos status` and by `aos doctor`; a
//! program that was changed is said and not refused, since an upgrade is just that. Of secrets and weights it is not the
//! content that is looked at but size, time and file number: the one is nobody's, the other is gigabytes. All of it is looked at before anything runs. The program's tens of megabytes
//! are not read where file number, size and times are those of its last hash, and beside the start where a home has
//! nothing to compare with.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use aos_abi::entry::Measured;
use aos_abi::{Body, Pid};
use aos_sandbox::{digest, digest_of};

use super::heart::{Handle, LiveKernel};
use crate::home::Home;

/// Looks at what this start is made of and says what differs from the one before. The program is left out where there was
/// none before, so that nothing can differ.
pub(crate) async fn look(home: &Home, weights: &[PathBuf], before: &Measured) -> Measured {
    let hash = |path: &Path| std::fs::read(path).map(|bytes| digest(&bytes)).unwrap_or_default();
    let mut now = Measured {
        policy: hash(&home.policy_file()),
        config: hash(&home.config_file()),
        files: Some(stamps(home, weights)),
        ..Measured::default()
    };
    if !before.program.is_empty() {
        now.program = program_of(home).await;
    }
    now.changed = differs(before, &now);
    for what in &now.changed {
        tracing::warn!("{what} is not what it was when the daemon last started");
    }
    now
}

/// Leaves word for whoever caused this start: what changed, which folders were missing, and what of the home's folders others
/// can read.
pub(crate) fn tell(home: &Home, now: &Measured, lost: &[PathBuf]) {
    let changed = (!now.changed.is_empty()).then(|| {
        format!(
            "since the last start these changed: {} (nothing, if that was you; `aos audit export` shows each start as `measured`)",
            now.changed.join(", ")
        )
    });
    let folders = home.exposed().into_iter().filter(|(path, _)| path.is_dir());
    let open = folders.map(|(path, mode)| {
        let path = path.display();
        let what = format!("others can read {path} (mode {mode:03o}): chmod 700 {path}");
        tracing::warn!("{what}");
        what
    });
    let lost = lost.iter().map(|folder| {
        let what = format!(
            "{} was missing and is empty now: what agents had there is gone; if you have it elsewhere, `aos down` and put it \
             back, or `aos restore FILE` from a backup",
            folder.display()
        );
        tracing::warn!("{what}");
        what
    });
    let told: Vec<String> = changed.into_iter().chain(lost).chain(open).collect();
    let left = match told.is_empty() {
        true => std::fs::remove_file(home.drift_file()).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error.to_string()),
        }),
        false => Home::write_private(&home.drift_file(), &(told.join("\n") + "\n")).map_err(|error| error.to_string()),
    };
    if let Err(error) = left {
        tracing::debug!(%error, "whoever caused this start is not told what changed");
    }
}

/// Secrets and weights, each as it lies there.
fn stamps(home: &Home, weights: &[PathBuf]) -> BTreeMap<String, String> {
    let secrets = std::fs::read_dir(home.secrets()).into_iter().flatten().flatten().map(|entry| entry.path());
    let secrets = secrets.map(|path| ("secrets", path));
    let weights = weights.iter().map(|path| ("models", path.clone()));
    let stamped = secrets.chain(weights).filter_map(|(folder, path)| {
        let found = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
        let name = path.strip_prefix(home.models()).ok().or_else(|| path.file_name().map(Path::new))?;
        let stamp = format!("{} {}.{} {}", found.len(), found.mtime(), found.mtime_nsec(), found.ino());
        Some((format!("{folder}/{}", name.display()), digest(stamp.as_bytes())))
    });
    stamped.collect()
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
fn differs(before: &Measured, now: &Measured) -> Vec<String> {
    if before == &Measured::default() {
        return Vec::new();
    }
    // An empty hash of the program is one that is not known.
    let program = before.program != now.program && !before.program.is_empty() && !now.program.is_empty();
    let parts = [
        ("the program", program),
        ("policy.yaml", before.policy != now.policy),
        ("aos.toml", before.config != now.config),
    ];
    let mut changed: Vec<String> =
        parts.into_iter().filter(|(_, differ)| *differ).map(|(what, _)| what.into()).collect();
    if let (Some(before), Some(now)) = (&before.files, &now.files) {
        let differ = |name: &&String| before.get(*name) != now.get(*name);
        let names = before.keys().chain(now.keys().filter(|name| !before.contains_key(*name)));
        changed.extend(names.filter(differ).cloned());
    }
    changed
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
