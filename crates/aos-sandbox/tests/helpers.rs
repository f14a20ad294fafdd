//! Helpers that are made ready before they are needed: each serves one command, and none outlives those it is for.

mod rig;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aos_sandbox::Helper;
use rig::{LONG, go, helper, walled as rig};

/// A helper program of this test's own, so that its processes can be told from others'.
struct Own {
    _folder: tempfile::TempDir,
    program: PathBuf,
}

impl Own {
    fn new() -> Own {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let program = folder.path().join("helper");
        std::fs::copy(env!("CARGO_BIN_EXE_aos-sandbox-helper"), &program).expect("there is room");
        Own { program, _folder: folder }
    }

    /// The processes that run it.
    fn pids(&self) -> Vec<i32> {
        let runs = |pid: &i32| {
            std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.starts_with(Path::new(&self.program)))
        };
        let entries = std::fs::read_dir("/proc").expect("it is mounted").flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(runs).collect()
    }

    fn wait_until(&self, what: &str, holds: impl Fn(&[i32]) -> bool) -> Vec<i32> {
        let began = Instant::now();
        loop {
            let pids = self.pids();
            if holds(&pids) {
                return pids;
            }
            assert!(began.elapsed() < LONG, "{what}: {pids:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn parent(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

#[test]
fn one_command_leaves_nothing_to_the_next() {
    let Some(rig) = rig() else { return };
    let shared = helper();
    for _ in 0..5 {
        let script = "ls -A /tmp /dev/shm; touch /tmp/left /dev/shm/left; (sleep 1000 &) ; for p in /proc/[0-9]*; do echo ${p#/proc/}; done";
        let mut spec = rig.spec(&["sh", "-c", script]);
        spec.helper = shared.clone();
        let out = go(&spec).expect("the shell starts");
        let text = out.stdout.text();
        assert!(out.success() && !text.contains("left"), "{out:?}");
        let pids: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        assert!(pids.len() >= 2 && pids.iter().all(|pid| *pid <= 9), "a process of another: {pids:?}");
    }
}

#[test]
fn commands_of_one_nurse_share_no_namespace() {
    let Some(rig) = rig() else { return };
    let shared = helper();
    // Numbers are used again when a namespace is gone, so all are there at once.
    let script = "readlink /proc/self/ns/*; touch here.$1; while test $(ls | wc -l) -lt 4; do sleep 0.01; done";
    let said: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4)
            .map(|nth| {
                let (rig, shared) = (&rig, shared.clone());
                scope.spawn(move || {
                    let mut spec = rig.spec(&["sh", "-c", script, "sh", &nth.to_string()]);
                    spec.helper = shared;
                    go(&spec).expect("the shell starts").stdout.text().into_owned()
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().expect("it ran")).collect()
    });
    // Time has no namespace of its own; what one process shares with its children is counted once.
    let spaces = |text: &String| -> std::collections::BTreeSet<String> {
        text.lines().filter(|line| line.contains(":[") && !line.starts_with("time")).map(str::to_owned).collect()
    };
    let spaces: Vec<_> = said.iter().map(spaces).collect();
    let all: std::collections::BTreeSet<_> = spaces.iter().flatten().collect();
    assert!(spaces.iter().all(|of| of.len() >= 7), "{said:?}");
    assert_eq!(all.len(), spaces.iter().map(|of| of.len()).sum::<usize>(), "{said:?}");
}

#[test]
fn a_helper_that_is_kept_ready_ends_with_the_last_who_could_use_it() {
    let Some(rig) = rig() else { return };
    let own = Own::new();
    let helper = Helper::new(&own.program, []);
    assert!(own.pids().is_empty(), "nothing is started before it is needed");
    let mut spec = rig.spec(&["true"]);
    spec.helper = helper.clone();
    assert!(go(&spec).expect("it starts").success());
    // The nurse, a helper of hers, and its sandbox.
    own.wait_until("one is made ready", |pids| pids.len() >= 3);
    drop(spec);
    // What ended with the command may have been among the three, so that the last of them is waited for.
    own.wait_until("one is still ready, since somebody may want it", |pids| pids.len() >= 3);
    drop(helper);
    own.wait_until("all end", <[i32]>::is_empty);
}

#[test]
fn a_nurse_that_was_killed_is_replaced() {
    let Some(rig) = rig() else { return };
    let own = Own::new();
    let mut spec = rig.spec(&["echo", "here"]);
    spec.helper = Helper::new(&own.program, []);
    assert_eq!(go(&spec).expect("it starts").stdout.text(), "here\n");
    let me = std::process::id().cast_signed();
    let pids = own.wait_until("one is made ready", |pids| pids.len() >= 3);
    let nurse = pids.into_iter().find(|pid| parent(*pid) == Some(me)).expect("she is this process's child");
    rustix::process::kill_process(rustix::process::Pid::from_raw(nurse).expect("a pid"), rustix::process::Signal::KILL)
        .expect("she is ours");
    own.wait_until("whom she kept ready dies with her", |pids| pids.iter().all(|pid| *pid == nurse));
    assert_eq!(go(&spec).expect("another is started").stdout.text(), "here\n");
}

#[test]
fn many_at_once_wait_for_their_turn() {
    let Some(rig) = rig() else { return };
    let shared = helper();
    std::thread::scope(|scope| {
        for nth in 0..40 {
            let (rig, shared) = (&rig, shared.clone());
            scope.spawn(move || {
                let mut spec = rig.spec(&["sh", "-c", &format!("echo {nth}; sleep 0.05; ls /tmp")]);
                spec.helper = shared;
                assert_eq!(go(&spec).expect("it starts").stdout.text(), format!("{nth}\n"));
            });
        }
    });
}
