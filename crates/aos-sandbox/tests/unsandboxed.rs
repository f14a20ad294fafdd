//! Commands that run on the bare host by consent: what holds even without walls.

mod rig;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use aos_sandbox::{Access, Cancel, Change, ChangeKind, End, Error, Helper, Mount, UnsandboxedConsent, run};
use rig::{LONG, Rig, alive, go, unsandboxed};

fn rig() -> Rig {
    Rig::new(unsandboxed())
}

#[test]
fn consent_takes_the_whole_sentence() {
    assert!(UnsandboxedConsent::from_words("yes").is_none());
    assert!(UnsandboxedConsent::from_words("true").is_none());
    assert!(UnsandboxedConsent::from_words("").is_none());
    assert!(UnsandboxedConsent::from_words(UnsandboxedConsent::WORDS).is_some());
}

#[test]
fn output_exit_code_and_directory_come_back() {
    let rig = rig();
    let out = rig.sh("pwd; echo oops >&2; exit 7");
    assert_eq!(out.exit_code(), Some(7));
    assert_eq!(out.stdout.text().trim(), rig.path().to_str().expect("a plain path"));
    assert_eq!(out.stderr.text(), "oops\n");
    assert!(!out.stdout.truncated());
}

#[test]
fn the_environment_is_what_the_spec_names() {
    let rig = rig();
    let mut spec = rig.spec(&["env"]);
    spec.env.insert("GREETING".into(), "hello".into());
    let out = go(&spec).expect("env starts");
    let names: BTreeSet<String> =
        out.stdout.text().lines().filter_map(|line| Some(line.split_once('=')?.0.to_owned())).collect();
    let expected = ["PATH", "HOME", "LANG", "TMPDIR", "GREETING"].map(str::to_owned);
    assert_eq!(names, BTreeSet::from(expected));
    // The test's own environment has plenty to leak.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let home = std::env::var("HOME").unwrap_or_default();
    assert!(!out.stdout.text().contains(&format!("HOME={home}\n")));
}

#[test]
fn the_private_home_exists_and_goes_away() {
    let rig = rig();
    let out = rig.sh("touch \"$HOME/x\" && echo \"$HOME\"");
    assert!(out.success());
    assert!(!std::path::Path::new(out.stdout.text().trim()).exists());
}

#[test]
fn standard_input_is_given_and_ends() {
    let rig = rig();
    let mut spec = rig.spec(&["cat"]);
    spec.stdin = vec![b'x'; 300_000];
    let out = go(&spec).expect("cat starts");
    assert_eq!(out.stdout.bytes, spec.stdin);
    spec.stdin = Vec::new();
    assert!(go(&spec).expect("cat starts").stdout.bytes.is_empty());
}

#[test]
fn a_command_that_ignores_its_input_is_no_error() {
    let rig = rig();
    let mut spec = rig.spec(&["true"]);
    spec.stdin = vec![b'x'; 1 << 20];
    assert!(go(&spec).expect("true starts").success());
}

#[test]
fn an_output_bomb_is_cut_and_drained() {
    let rig = rig();
    let mut spec = rig.spec(&["sh", "-c", "head -c 50000000 /dev/zero; head -c 3000 /dev/zero >&2"]);
    spec.limits.output = 1000;
    let out = go(&spec).expect("head starts");
    assert!(out.success());
    assert_eq!((out.stdout.bytes.len(), out.stdout.dropped), (1000, 50_000_000 - 1000));
    assert_eq!((out.stderr.bytes.len(), out.stderr.dropped), (1000, 2000));
}

#[test]
fn endless_output_ends_at_the_deadline() {
    let rig = rig();
    let mut spec = rig.spec(&["yes"]);
    spec.limits.wall = Duration::from_millis(500);
    let out = go(&spec).expect("yes starts");
    assert!(out.timed_out());
    assert!(out.stdout.truncated());
}

#[test]
fn signals_are_told_apart_from_codes() {
    let rig = rig();
    assert_eq!(rig.sh("kill -SEGV $$").end, End::Signaled(11));
    assert_eq!(rig.sh("exit 139").end, End::Exited(139));
}

/// A child, one in a session of its own, and one that is forked twice, each of which would sleep for ever.
const ESCAPE: &str = "
    sh -c 'echo $$ >> pids; exec sleep 1000' &
    setsid sh -c 'echo $$ >> pids; exec sleep 1000' &
    setsid sh -c '(setsid sh -c \"echo \\$\\$ >> pids; trap : TERM HUP INT; sleep 1000; sleep 1000\" &) ; exit 0' &
    until [ \"$(wc -l < pids 2>/dev/null)\" = 3 ]; do sleep 0.01; done
";

#[test]
fn the_deadline_ends_the_whole_tree() {
    let rig = rig();
    let mut spec = rig.spec(&["sh", "-c", &format!("{ESCAPE} sleep 1000")]);
    spec.limits.wall = Duration::from_secs(4);
    let out = go(&spec).expect("the shell starts");
    assert!(out.timed_out());
    let pids = rig.pids("pids");
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|pid| !alive(*pid)), "{pids:?}");
}

#[test]
fn what_a_command_leaves_behind_dies_with_it() {
    let rig = rig();
    let began = Instant::now();
    let out = rig.sh(&format!("{ESCAPE} echo done"));
    assert_eq!((out.stdout.text().as_ref(), out.exit_code()), ("done\n", Some(0)));
    assert!(rig.pids("pids").iter().all(|pid| !alive(*pid)));
    assert!(began.elapsed() < LONG, "open pipes of the survivors must not be waited for");
}

#[test]
fn cancelling_ends_the_whole_tree() {
    let rig = rig();
    let spec = rig.spec(&["sh", "-c", &format!("{ESCAPE} echo ready; sleep 1000")]);
    let cancel = Cancel::new().expect("a descriptor is free");
    let pids = rig.workspace.path().join("pids");
    let handle = cancel.clone();
    let canceller = std::thread::spawn(move || {
        while std::fs::read_to_string(&pids).map_or(0, |text| text.lines().count()) < 3 {
            std::thread::sleep(Duration::from_millis(5));
        }
        handle.cancel();
    });
    let out = run(&spec, &cancel).expect("the shell starts");
    canceller.join().expect("the canceller ends");
    assert_eq!(out.end, End::Cancelled);
    assert!(rig.pids("pids").iter().all(|pid| !alive(*pid)));
}

#[test]
fn a_run_that_is_cancelled_before_it_starts_ends_at_once() {
    let rig = rig();
    let cancel = Cancel::new().expect("a descriptor is free");
    cancel.cancel();
    assert_eq!(run(&rig.spec(&["sleep", "1000"]), &cancel).expect("it starts").end, End::Cancelled);
}

#[test]
fn a_missing_program_is_told_from_a_failing_one() {
    let rig = rig();
    match go(&rig.spec(&["no-such-program-anywhere"])) {
        Err(Error::Program { program, source }) => {
            assert_eq!(program, "no-such-program-anywhere");
            assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(go(&rig.spec(&["/etc/passwd"])), Err(Error::Program { .. })));
    assert!(matches!(go(&rig.spec(&[])), Err(Error::Spec { .. })));
    assert!(matches!(go(&rig.spec(&["echo", "a\0b"])), Err(Error::Spec { .. })));
}

#[test]
fn a_missing_workspace_names_the_path() {
    let rig = rig();
    let mut spec = rig.spec(&["true"]);
    spec.workspace = rig.path().join("absent");
    assert!(matches!(go(&spec), Err(Error::Path { path, .. }) if path.ends_with("absent")));
}

#[test]
fn a_missing_helper_is_an_error_and_not_a_run() {
    let rig = rig();
    let mut spec = rig.spec(&["touch", "ran"]);
    spec.helper = Helper::new("/no/such/helper", []);
    assert!(matches!(go(&spec), Err(Error::Helper { .. })));
    spec.helper = Helper::new("/bin/false", []);
    assert!(matches!(go(&spec), Err(Error::Helper { .. })));
    assert!(!rig.path().join("ran").exists());
}

#[test]
fn mounts_without_walls_are_refused() {
    let rig = rig();
    let mut spec = rig.spec(&["true"]);
    spec.mounts.push(Mount { host: "/usr".into(), at: "/x".into(), access: Access::Read, is: None });
    assert!(matches!(go(&spec), Err(Error::Spec { .. })));
}

#[test]
fn only_the_three_streams_are_open() {
    let rig = rig();
    // A descriptor that somebody in the daemon forgot to mark must not come through either.
    let leaked = std::fs::File::open("/dev/null").expect("it opens");
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).expect("it is open");
    let out = rig.sh("for fd in /proc/self/fd/*; do echo ${fd##*/}; done");
    drop(leaked);
    let open: BTreeSet<String> = out.stdout.text().lines().map(str::to_owned).collect();
    // The shell itself opens one more to read the folder.
    let expected: BTreeSet<String> = ["0", "1", "2", "3"].map(str::to_owned).into();
    assert!(open.is_subset(&expected), "{open:?}");
}

#[test]
fn limits_and_no_new_privileges_are_set() {
    let rig = rig();
    let mut spec = rig.spec(&["sh", "-c", "ulimit -n; ulimit -c; ulimit -t; grep NoNewPrivs /proc/self/status"]);
    spec.limits.files = 37;
    spec.limits.cpu = Duration::from_millis(2500);
    assert_eq!(go(&spec).expect("it starts").stdout.text(), "37\n0\n3\nNoNewPrivs:\t1\n");
}

#[test]
fn a_file_above_the_disk_limit_is_cut() {
    let rig = rig();
    let mut spec = rig.spec(&["sh", "-c", "exec head -c 100000 /dev/zero > big"]);
    spec.limits.disk = 4096;
    assert_eq!(go(&spec).expect("it starts").end, End::Signaled(25));
    assert_eq!(std::fs::metadata(rig.path().join("big")).expect("it is there").len(), 4096);
}

#[test]
fn a_workspace_that_grows_too_much_ends_the_command() {
    let rig = rig();
    std::fs::write(rig.path().join("before"), vec![1; 4 << 20]).expect("it can be written");
    let mut spec = rig.spec(&["sh", "-c", "i=0; while :; do i=$((i+1)); head -c 900000 /dev/zero > f$i; done"]);
    spec.limits.disk = 2 << 20;
    assert_eq!(go(&spec).expect("it starts").end, End::OutOfDisk);
    let mut spec = rig.spec(&["sh", "-c", "sleep 1"]);
    spec.limits.disk = 2 << 20;
    assert!(go(&spec).expect("it starts").success(), "what was there before does not count");
}

#[test]
fn processor_time_ends_a_busy_loop() {
    let rig = rig();
    let mut spec = rig.spec(&["sh", "-c", "while :; do :; done"]);
    spec.limits.cpu = Duration::from_secs(1);
    let out = go(&spec).expect("it starts");
    assert_eq!(out.end, End::Signaled(24));
    assert!(out.usage.cpu >= Duration::from_millis(500), "{:?}", out.usage);
}

#[test]
fn changes_are_told() {
    let rig = rig();
    let path = rig.path();
    std::fs::create_dir(path.join("d")).expect("it can be made");
    for name in ["same", "gone", "d/edited"] {
        std::fs::write(path.join(name), "old").expect("it can be written");
    }
    let out = rig.sh("rm gone; echo new > d/edited; mkdir e; echo x > e/made; cat same");
    let change = |path: &str, kind| Change { path: path.into(), kind };
    let expected = vec![
        change("d/edited", ChangeKind::Modified),
        change("e", ChangeKind::Created),
        change("e/made", ChangeKind::Created),
        change("gone", ChangeKind::Deleted),
    ];
    assert_eq!((out.changed, out.changed_truncated), (expected, false));
}

/// Not a test: the daemon of the next one, which is killed.
#[test]
#[ignore = "played by another test"]
fn daemon() {
    let workspace = std::env::var_os("DAEMON_WORKSPACE").expect("the other test sets it");
    let mut spec = rig().spec(&["sh", "-c", &format!("echo $HOME > home; {ESCAPE} sleep 1000")]);
    spec.workspace = workspace.into();
    let _ = go(&spec);
}

#[test]
fn a_daemon_that_is_killed_takes_its_commands_along() {
    let rig = rig();
    let mut daemon = std::process::Command::new(std::env::current_exe().expect("it runs"))
        .args(["--exact", "daemon", "--ignored"])
        .env("DAEMON_WORKSPACE", rig.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let pids = rig.path().join("pids");
    while std::fs::read_to_string(&pids).map_or(0, |text| text.lines().count()) < 3 {
        std::thread::sleep(Duration::from_millis(5));
    }
    daemon.kill().expect("it runs");
    daemon.wait().expect("it is our child");
    let began = Instant::now();
    while rig.pids("pids").iter().any(|pid| alive(*pid)) {
        assert!(began.elapsed() < LONG, "its commands live on");
        std::thread::sleep(Duration::from_millis(5));
    }
    let home = std::fs::read_to_string(rig.path().join("home")).expect("the command wrote it");
    while std::path::Path::new(home.trim()).exists() {
        assert!(began.elapsed() < LONG, "its home stays");
        std::thread::sleep(Duration::from_millis(5));
    }
}
