//! What a layer costs over a workspace of 10,000 files: `cargo bench -p aos-sandbox --bench layer`; as a test, of 100.
//!
//! Prints, in milliseconds, the median of some runs of `true` and of a command that changes one file: in an empty
//! workspace and in a large one, without and with a layer; then the difference of a layer, its
//! commit and its undo, of one file and of every file.
#![allow(clippy::expect_used, reason = "a measurement that cannot go on ends here")]

use std::path::Path;
use std::time::Instant;

use aos_sandbox::{Cancel, HELPER_SUBCOMMAND, Helper, Isolation, Layer, Spec, helper_main, run};

/// Runs of which the median is taken.
const RUNS: usize = 9;

fn main() {
    if std::env::args_os().nth(1).is_some_and(|first| first == HELPER_SUBCOMMAND) {
        helper_main()
    }
    let files = if std::env::args().any(|argument| argument == "--bench") { 10_000 } else { 100 };
    let helper = Helper::default();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (empty, large) = (folder.path().join("empty"), folder.path().join("large"));
    std::fs::create_dir_all(&empty).expect("there is room");
    for nth in 0..files {
        let at = large.join(format!("d{}", nth % 100));
        std::fs::create_dir_all(&at).expect("there is room");
        std::fs::write(at.join(format!("f{nth}")), "some text\n").expect("there is room");
    }
    println!("{files} files; milliseconds, median of {RUNS}");
    for (name, workspace) in [("empty", &empty), ("large", &large)] {
        for (what, script) in [("true", "true"), ("one file", "echo x > changed")] {
            let direct = median(|_| command(&helper, workspace, script, None));
            let layered = median(|nth| {
                let layer = Layer::create(folder.path().join(format!("l{nth}"))).expect("there is room");
                let took = command(&helper, workspace, script, Some(layer.clone()));
                layer.discard().expect("it can be deleted");
                took
            });
            println!("{name:>6} {what:>9}: direct {direct:8.2}  layer {layered:8.2}");
        }
    }
    for (what, script) in
        [("one file", "echo x > changed"), ("every file", "for d in d*; do for f in $d/*; do echo y > $f; done; done")]
    {
        let layer = Layer::create(folder.path().join("kept")).expect("there is room");
        let ran = command(&helper, &large, script, Some(layer.clone()));
        // What the command's end costs before anything is moved: which paths were changed, and how.
        let (changed, diff) = timed(|| layer.changes(&large).expect("it can be looked through"));
        let (committed, commit) = timed(|| layer.commit(&large, None, serde_json::Value::Null).expect("it commits"));
        let changes = committed.changes().len();
        assert_eq!(changed.len(), changes, "what is found is what is committed");
        let (undone, undo) = timed(|| committed.undo(serde_json::Value::Null).expect("nothing is in the way"));
        undone.forget().expect("it can be deleted");
        println!(
            " large {what:>10}: run {ran:8.2}  diff {diff:8.2}  commit {commit:8.2}  undo {undo:8.2}  ({changes} changes)"
        );
    }
}

fn command(helper: &Helper, workspace: &Path, script: &str, layer: Option<Layer>) -> f64 {
    let mut spec = Spec::new(["sh", "-c", script], workspace, Isolation::Full);
    (spec.layer, spec.helper) = (layer, helper.clone());
    let (out, took) = timed(|| run(&spec, &Cancel::new().expect("a descriptor is free")).expect("this host isolates"));
    assert!(out.success(), "{out:?}");
    took
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed().as_secs_f64() * 1000.0)
}

fn median(mut work: impl FnMut(usize) -> f64) -> f64 {
    let mut took: Vec<f64> = (0..RUNS).map(&mut work).collect();
    took.sort_by(f64::total_cmp);
    took[RUNS / 2]
}
