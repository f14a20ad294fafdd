//! What the walls cost: `/bin/true` alone, behind walls and in bubblewrap, by turns: `cargo bench -p aos-sandbox --bench
//! spawn`. As a test each runs a few times, and nothing is judged.
//!
//! Prints the 10th percentile, the median and the 99th of single runs, and what fifty at once take. Before each run is a
//! pause of 25 milliseconds, as there is between an agent's commands: a helper is made ready in it, and a bare start has
//! the processor to itself again. The aims are at most 0.75 of
//! bubblewrap's time, which does less (no Landlock, no seccomp, no limits, no deadline), and three times that of a bare
//! fork and exec. The helper is this program; with `AOS=PATH` it is that of the daemon.
#![allow(clippy::expect_used, reason = "a measurement that cannot go on ends here")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use aos_sandbox::{Cancel, HELPER_SUBCOMMAND, Helper, Isolation, Spec, helper_main, run};

/// Runs at once.
const AT_ONCE: usize = 50;

/// Between two runs.
const PAUSE: Duration = Duration::from_millis(25);

/// How often many run at once.
const BURSTS: usize = 5;

/// A way to run `/bin/true` in a workspace.
type Way<'w> = (&'static str, &'w (dyn Fn(&Path) + Sync));

fn main() {
    if std::env::args_os().nth(1).is_some_and(|first| first == HELPER_SUBCOMMAND) {
        helper_main()
    }
    let rounds = if std::env::args().any(|argument| argument == "--bench") { 400 } else { 3 };
    let workspace = tempfile::tempdir().expect("a temporary folder");
    let helper = match std::env::var_os("AOS") {
        Some(program) => Helper::new(program, [HELPER_SUBCOMMAND.into()]),
        None => Helper::default(),
    };
    let walls = |workspace: &Path| walled(workspace, &helper);
    let mut ways: Vec<Way<'_>> = vec![("fork and exec", &bare), ("behind walls", &walls)];
    match Command::new("bwrap").arg("--version").output() {
        Ok(_) => ways.push(("bubblewrap", &bubblewrapped)),
        Err(_) => println!("bubblewrap is not installed here: it is left out"),
    }

    let mut took: Vec<Vec<Duration>> = ways.iter().map(|_| Vec::with_capacity(rounds)).collect();
    let mut bursts = took.clone();
    for round in 0..rounds {
        // By turns, since a machine is faster and slower by the minute; each goes first as often as the others, since what
        // the kernel clears away after one run slows the next.
        for turn in 0..ways.len() {
            let which = (round + turn) % ways.len();
            std::thread::sleep(PAUSE);
            took[which].push(timed(|| ways[which].1(workspace.path())));
            if round % (rounds / BURSTS).max(1) == 0 {
                bursts[which].push(timed(|| {
                    std::thread::scope(|scope| {
                        (0..AT_ONCE).for_each(|_| drop(scope.spawn(|| ways[which].1(workspace.path()))));
                    });
                }));
            }
        }
    }
    println!("{:<16} {:>10} {:>10} {:>10}   {AT_ONCE} at once", "/bin/true", "p10 µs", "median µs", "p99 µs");
    for (((name, _), took), bursts) in ways.iter().zip(&mut took).zip(&mut bursts) {
        took.sort_unstable();
        bursts.sort_unstable();
        let at = |percent: usize| took[took.len() * percent / 100].as_micros();
        let burst = bursts[bursts.len() / 2].as_secs_f64() * 1e3;
        println!("{name:<16} {:>10} {:>10} {:>10}   {burst:>7.1} ms", at(10), at(50), at(99));
    }
    let of = |way: usize, at: usize| took[1][at].as_secs_f64() / took[way][at].as_secs_f64();
    let (low, half) = (rounds / 10, rounds / 2);
    println!("behind walls: {:.1} times fork and exec (aim 3), {:.1} of the quickest tenth", of(0, half), of(0, low));
    if ways.len() > 2 {
        println!("behind walls: {:.2} of bubblewrap (aim 0.75), {:.2} of the quickest tenth", of(2, half), of(2, low));
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

fn walled(workspace: &Path, helper: &Helper) {
    let mut spec = Spec::new(["/bin/true"], workspace, Isolation::Full);
    spec.helper = helper.clone();
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
