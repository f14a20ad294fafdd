//! What this host can do, for `aos doctor` and for tests that have to know.
//!
//! Start at [`probe`]. Nothing is guessed from versions or settings: each feature is tried, in a helper that ends
//! afterwards. Always true: a report never decides anything; [`run`](crate::run) finds out for itself.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags};
use rustix::process::WaitOptions;

use crate::cancel::Cancel;
use crate::error::{Error, Feature};
use crate::identity::{Identity, Translator, clone};
use crate::job::{Failure, Report, Step, Task};
use crate::layer::Layer;
use crate::run::{Helped, run};
use crate::spec::{Helper, Isolation, Network, Spec};
use crate::{LANDLOCK_ABI_MIN, landlock, root, seccomp, walls};

/// What the host has of all that isolation is built on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostReport {
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// One per feature.
    pub findings: Vec<Finding>,
}

/// What was found of one feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The feature; [`Feature::remedy`] says how to get it.
    pub feature: Feature,
    /// Whether full isolation needs it on this host.
    pub needed: bool,
    /// Details of what is there, or why it is not.
    pub state: Result<String, String>,
}

impl HostReport {
    /// Whether commands can run with full isolation here.
    pub fn can_isolate(&self) -> bool {
        self.missing().next().is_none()
    }

    /// What full isolation needs and the host lacks.
    pub fn missing(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.needed && finding.state.is_err())
    }
}

/// Tries what the host can do; `state` is the folder that workspaces and layers will be in. At last a command that does
/// nothing is run over a layer there, since not every file system takes one.
///
/// # Errors
/// [`Error::Helper`] when the helper cannot be started.
pub fn probe(helper: &Helper, state: &Path) -> Result<HostReport, Error> {
    let landlock = match landlock::abi() {
        Ok(abi) if abi >= LANDLOCK_ABI_MIN => Ok(format!("ABI {abi}")),
        Ok(abi) => Err(format!("ABI {abi} is too old, {LANDLOCK_ABI_MIN} is the least")),
        Err(error) => Err(error.to_string()),
    };
    let seccomp = seccomp::available().map(|()| "filters".to_owned()).map_err(|error| error.to_string());
    let mut findings = vec![
        Finding { feature: Feature::Landlock, needed: true, state: landlock },
        Finding { feature: Feature::Seccomp, needed: true, state: seccomp },
        Finding { feature: Feature::Cgroup, needed: false, state: cgroup() },
    ];
    for (feature, errno) in Helped::start(helper, &Task::Probe(state.into()))?.probed()? {
        let state = match errno {
            0 => Ok("tried, works".to_owned()),
            errno => Err(io::Error::from_raw_os_error(errno).to_string()),
        };
        findings.push(Finding { feature, needed: true, state });
    }
    let lacks = |finding: &Finding| finding.needed && finding.state.is_err();
    if !findings.iter().any(lacks)
        && let Err((feature, why)) = try_layer(helper, state)
    {
        findings.retain(|finding| finding.feature != feature);
        findings.push(Finding { feature, needed: true, state: Err(format!("in {}: {why}", state.display())) });
    }
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    Ok(HostReport { kernel, findings })
}

/// Runs a command over a layer in a folder, and says what that folder's file system lacks.
fn try_layer(helper: &Helper, state: &Path) -> Result<(), (Feature, String)> {
    let folder = room(state)?;
    let workspace = folder.path().join("workspace");
    std::fs::create_dir(&workspace).map_err(|error| overlay(&error))?;
    run_over(helper, &folder, &workspace, "echo > written")
}

/// Tries whether commands can run in a folder that is there already, with their layers in `state`. A command that does
/// nothing is run over a layer; the folder is left as it is.
///
/// # Errors
/// What is missing, in a finding whose state says why.
pub fn probe_folder(helper: &Helper, state: &Path, folder: &Path) -> Result<(), Finding> {
    let tried = room(state).and_then(|room| run_over(helper, &room, folder, ":"));
    tried.map_err(|(feature, why)| Finding { feature, needed: true, state: Err(why) })
}

fn overlay(error: &dyn std::fmt::Display) -> (Feature, String) {
    (Feature::Overlay, error.to_string())
}

/// A folder that goes away with its value.
fn room(state: &Path) -> Result<tempfile::TempDir, (Feature, String)> {
    tempfile::Builder::new().prefix("aos-probe-").tempdir_in(state).map_err(|error| overlay(&error))
}

fn run_over(
    helper: &Helper,
    folder: &tempfile::TempDir,
    workspace: &Path,
    script: &str,
) -> Result<(), (Feature, String)> {
    let mut spec = Spec::new(["/bin/sh", "-c", script], workspace, Isolation::Full);
    spec.helper = helper.clone();
    let layer = Layer::create(folder.path().join("layer")).map_err(|error| overlay(&error))?;
    spec.layer = Some(layer.clone());
    let ran = Cancel::new().map_err(|error| overlay(&error)).map(|cancel| run(&spec, &cancel));
    // What overlayfs leaves in it is closed to everybody at first.
    layer.discard().map_err(|error| overlay(&error))?;
    match ran? {
        Ok(outcome) if outcome.success() => Ok(()),
        Ok(outcome) => Err(overlay(&outcome.stderr.text().trim())),
        Err(Error::Missing { feature, source }) => Err((feature, source.to_string())),
        Err(error) => Err(overlay(&error)),
    }
}

/// The control group of this process if it may make others below it.
fn cgroup() -> Result<String, String> {
    let own = std::fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::")).ok_or("no cgroup v2")?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").map_err(|error| error.to_string())?;
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, at, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(at))
    });
    let folder = mount.ok_or("cgroup v2 is not mounted")?.join(own.trim_start_matches('/'));
    rustix::fs::access(&folder, rustix::fs::Access::WRITE_OK)
        .map_err(|errno| format!("{}: {errno}", folder.display()))?;
    let controllers = std::fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
    match lacking(&controllers).as_slice() {
        [] => Ok(format!("{}, controllers: [{}]", folder.display(), controllers.trim())),
        lacking => Err(format!("{} lacks the controllers: {}", folder.display(), lacking.join(", "))),
    }
}

/// What a control group cannot bound without: what of these it was not given.
fn lacking(controllers: &str) -> Vec<&'static str> {
    let given: Vec<&str> = controllers.split_whitespace().collect();
    ["memory", "pids"].into_iter().filter(|wanted| !given.contains(wanted)).collect()
}

/// The helper's part: tries what takes a namespace, and says with which error number it failed, 0 if it did not.
pub(crate) fn try_all(state: &Path) -> Vec<(Feature, i32)> {
    let mut results = Vec::new();
    let identity = Identity::choose();
    if identity == Identity::Translated {
        let unopened = |errno: rustix::io::Errno| Failure::step("open the state folder", errno);
        // A person's own path, links included.
        let held = rustix::fs::open(state, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(unopened);
        let tried = held.and_then(|held| Translator::default().tree(state, held));
        results.push((Feature::IdmappedMounts, tried.map_or_else(|failure| failure.errno, |_| 0)));
    }
    match try_namespaces(identity) {
        Ok(inside) => {
            results.push((Feature::UserNamespaces, 0));
            results.extend(inside);
        }
        Err(failure) => results.push((Feature::UserNamespaces, failure.errno)),
    }
    results
}

/// Makes the namespaces of a sandbox and tries in them what only works there.
fn try_namespaces(identity: Identity) -> Result<Vec<(Feature, i32)>, Failure> {
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("open a pipe");
    let (wait, go) = pipe()?;
    let (answer, answer_theirs) = pipe()?;
    let Some(child) = clone(walls::namespaces(Network::None)).step("clone")? else {
        drop((go, answer));
        let results = try_inside(&wait);
        let packet = serde_json::to_vec(&results).unwrap_or_default();
        let _ = rustix::io::write(&answer_theirs, &packet);
        // SAFETY: ends the process without running anything of its parent's.
        unsafe { libc::_exit(0) }
    };
    drop((wait, answer_theirs));
    let mapped = identity.map(child);
    let _ = rustix::io::write(&go, b".");
    let mut text = Vec::new();
    let _ = io::Read::read_to_end(&mut std::fs::File::from(answer), &mut text);
    let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
    mapped?;
    serde_json::from_slice(&text).map_err(io::Error::from).step("try namespaces")
}

fn try_inside(wait: &OwnedFd) -> Vec<(Feature, i32)> {
    let _ = rustix::io::read(wait, &mut [0u8; 1]);
    let errno = |result: Result<(), Failure>| result.map_or_else(|failure| failure.errno, |()| 0);
    let ready = walls::become_inside();
    let proc = root::proc().map(drop);
    vec![(Feature::Proc, errno(ready.and(proc))), (Feature::Overlay, errno(try_overlay()))]
}

/// Mounts an overlay whose layers are on memory.
fn try_overlay() -> Result<(), Failure> {
    let privately = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", privately).step("separate mounts")?;
    let make = |kind: &str, options: &[(&str, &str)]| -> Result<OwnedFd, rustix::io::Errno> {
        let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (key, value) in options {
            rustix::mount::fsconfig_set_string(&context, *key, *value)?;
        }
        rustix::mount::fsconfig_create(&context)?;
        rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
    };
    let memory = make("tmpfs", &[("size", "1m")]).step("mount tmpfs")?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(&memory, "", rustix::fs::CWD, "/tmp", flags).step("mount tmpfs")?;
    let layers = ["/tmp/lower", "/tmp/upper", "/tmp/work"];
    for layer in layers {
        std::fs::create_dir(layer).step("make layers")?;
    }
    let options = [("lowerdir", layers[0]), ("upperdir", layers[1]), ("workdir", layers[2])];
    let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).step("open overlayfs")?;
    rustix::mount::fsconfig_set_flag(&context, "userxattr").step("set overlayfs up")?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(&context, key, value).step("set overlayfs up")?;
    }
    rustix::mount::fsconfig_create(&context).step("mount overlayfs")
}

/// What [`Helped::probed`] takes out of a report.
pub(crate) fn results_of(report: Option<Report>) -> Result<Vec<(Feature, i32)>, Error> {
    match report {
        Some(Report::Probed(results)) => Ok(results),
        _ => Err(Error::Helper { reason: "did not answer the probe".into(), source: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_that_cannot_bound_says_what_it_lacks() {
        assert_eq!(lacking("hugetlb\n"), ["memory", "pids"]);
        assert_eq!(lacking("cpu memory io\n"), ["pids"]);
        assert!(lacking("cpuset cpu io memory hugetlb pids rdma misc\n").is_empty());
    }
}
