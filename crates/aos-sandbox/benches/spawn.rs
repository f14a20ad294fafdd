//! What the walls cost: `/bin/true` alone, behind walls and in bubblewrap, by turns: `cargo bench -p aos-sandbox --bench
//! spawn`. As a test each runs a few times, and nothing is judged.
//!
//! Prints the median and the 99th percentile of single runs, and what fifty at once take. The aims are at most 0.75 of
//! bubblewrap's time, which does less (no Landlock, no seccomp, no limits, no deadline), and three times that of a bare
//! fork and exec. The helper is this program; with `AOS=PATH` it is that of the daemon.
#![allow(clippy::expect_used, reason = "a measurement that cannot go on ends here")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use aos_sandbox::{Cancel, HELPER_SUBCOMMAND, Helper, Isolation, Spec, helper_main, run};

/// Runs at once.
const AT_ONCE: usize = 50;

/// A way to run `/bin/true` in a workspace.
type Way<'w> = (&'static str, &'w (dyn Fn(&Path) + Sync));

fn main() {
    if std::env::args_os().nth(1).is_some_and(|first| first == HELPER_SUBCOMMAND) {
        helper_main()
    }
    let rounds = if std::env::args().any(|argument| argument == "--bench") { 400 } else { 3 };
    let workspace = tempfile::tempdir().expect("a temporary folder");
    let mut ways: Vec<Way<'_>> = vec![("fork and exec", &bare), ("behind walls", &walled)];
    match Command::new("bwrap").arg("--version").output() {
        Ok(_) => ways.push(("bubblewrap", &bubblewrapped)),
        Err(_) => println!("bubblewrap is not installed here: it is left out"),
    }

    let mut took: Vec<Vec<Duration>> = ways.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for _ in 0..rounds {
        // By turns, since a machine is faster and slower by the minute.
        for ((_, way), took) in ways.iter().zip(&mut took) {
            took.push(timed(|| way(workspace.path())));
        }
    }
    println!("{:<16} {:>10} {:>10}   {AT_ONCE} at once", "/bin/true", "median µs", "p99 µs");
    for ((name, way), took) in ways.iter().zip(&mut took) {
        took.sort_unstable();
        let at_once = timed(|| {
            std::thread::scope(|scope| {
                (0..AT_ONCE).for_each(|_| drop(scope.spawn(|| way(workspace.path()))));
            });
        });
        let (median, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
        println!(
            "{name:<16} {:>10} {:>10}   {:>7.1} ms",
            median.as_micros(),
            p99.as_micros(),
            at_once.as_secs_f64() * 1e3
        );
    }
    let of = |at: usize| took[1][rounds / 2].as_secs_f64() / took[at][rounds / 2].as_secs_f64();
    println!("behind walls: {:.1} times fork and exec (aim 3)", of(0));
    if ways.len() > 2 {
        println!("behind walls: {:.2} of bubblewrap (aim 0.75)", of(2));
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

fn bare(workspace: &Path) {
    let ran = Command::new("/bin/true").env_clear().current_dir(workspace).stdin(Stdio::null()).output();
    assert!(ran.expect("it starts").status.success());
}

fn walled(workspace: &Path) {
    let mut spec = Spec::new(["/bin/true"], workspace, Isolation::Full);
    if let Some(program) = std::env::var_os("AOS") {
        spec.helper = Helper { program: program.into(), args: vec![HELPER_SUBCOMMAND.into()] };
    }
    let out = run(&spec, &Cancel::new().expect("a descriptor is free")).expect("this host isolates");
    assert!(out.success(), "{out:?}");
}

/// The same view of the system, as far as it has words for it.
fn bubblewrapped(workspace: &Path) {
    let mut bwrap = Command::new("bwrap");
    bwrap.args(["--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--ro-bind", "/usr", "/usr"]);
    for name in ["bin", "sbin", "lib", "lib64"] {
        if let Ok(target) = std::fs::read_link(Path::new("/").join(name)) {
            bwrap.arg("--symlink").arg(target).arg(format!("/{name}"));
        } else {
            bwrap.args(["--ro-bind-try", &format!("/{name}"), &format!("/{name}")]);
        }
    }
    bwrap.args([
        "--ro-bind-try",
        "/etc/ld.so.cache",
        "/etc/ld.so.cache",
        "--ro-bind-try",
        "/etc/ssl/certs",
        "/etc/ssl/certs",
    ]);
    bwrap.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind"]).arg(workspace).arg("/workspace");
    bwrap.args(["--chdir", "/workspace", "/bin/true"]);
    let ran = bwrap.stdin(Stdio::null()).output().expect("it starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
