//! That the attempts would get what they are after where the wall is not: each row that can be tried without harm is, so
//! that none passes because the host lacks what it asks for.
//!
//! Start at [`WITHOUT_WALLS`]. Not there, because they would hurt the machine: what writes to its system, settings and kernel,
//! what takes more memory than it may, and what kills. Those of the filter of calls are told from the kernel's own answers by
//! another test. What needs root outside too is tried by root alone, and what is the first
//! process's where the host's own rules (a container's, a security module's) let root look at it. An address outside is
//! no control, since the test's own machine may have no network: inside it must be unreachable, not merely silent.

use aos_sandbox::Programs;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::How::{self, Late, Narrow, NarrowPy, Py, Races, Sh, Tight};
use super::rig::{self, Rig, go, walled};
use super::{Attempt, GRANTS, Host, NUMBERS, PRELUDE, SHORT, attempts, numbers, run, words};

/// Rows that get out without walls: everybody's, and root's.
const WITHOUT_WALLS: &[(&str, bool)] = &[
    ("a file outside by its path", false),
    ("a file outside by ..", false),
    ("the host's passwords", true),
    ("homes and state", false),
    ("a symbolic link to a file outside", false),
    ("a symbolic link to the root", false),
    ("a hard link to a file outside", false),
    ("a hard link to a name that changes meanwhile", false),
    ("/proc/1/root", true),
    ("/proc/self/root", false),
    ("/proc/self/cwd and ..", false),
    ("/proc/1/environ", true),
    ("/proc/1/mem", true),
    ("/proc/self/mem", false),
    ("/proc/1/fd", true),
    ("processes of the host in /proc", false),
    ("/sys", false),
    ("memory and disks as devices", true),
    ("making a device", true),
    ("terminals of the host", false),
    ("typing into a terminal of its own, other protocols on it", false),
    ("the daemon's socket, token and journal", false),
    ("becoming root", true),
    ("the host's loopback", false),
    ("names (DNS)", false),
    ("raw sockets and ICMP", true),
    ("packet sockets", true),
    ("an abstract socket of the host", false),
    ("a socket of the host by its path", false),
    ("a socket in a folder that is shown", false),
    ("a pipe in a folder that is shown", false),
    ("a fork bomb", false),
    ("a disk bomb", false),
    ("a descriptor bomb", false),
    ("a flood of output", false),
    ("a bomb of terminals", false),
    ("an interpreter's own file calls", false),
    ("planted git hooks and settings", false),
];

/// The same, where the row itself would do harm or needs another run.
const VARIANTS: [(&str, How); 2] = [
    ("signals to the host", Py("tries(lambda: os.kill(HOSTPID, 0))")),
    ("a planted shell profile", Sh("echo 'echo ESCAPED' > .profile; HOME=. sh -l -c true")),
];

fn find(name: &str) -> &'static Attempt {
    attempts().into_iter().find(|attempt| attempt.name == name).expect("it is in the list")
}

/// A row's attack after another folder than the one that is shown inside.
fn outside(attempt: &Attempt, host: &Host) -> How {
    let shelf = host.folder.path().join("shelf");
    let at = |text: &str| -> &'static str { text.replace("/shelf", shelf.to_str().expect("plain")).leak() };
    match attempt.how {
        Sh(text) | Narrow(text) => Sh(at(text)),
        Py(text) | NarrowPy(text) | Tight(text) | Late(text) | Races(text) => Py(at(text)),
    }
}

#[test]
fn without_walls_the_attempts_are_seen_to_escape() {
    let root = rustix::process::geteuid().is_root();
    let host = Host::new();
    // Some hosts keep it from root, too.
    let open = std::fs::read("/proc/1/environ").is_ok();
    let rows = WITHOUT_WALLS.iter().copied().filter(|(name, of_root)| {
        let may = root && (open || !name.starts_with("/proc/1/"));
        if *of_root && !may {
            eprintln!("not tried: `{name}` takes more rights outside than this test has");
        }
        may || !of_root
    });
    let rows = rows.map(|(name, _)| (name, outside(find(name), &host)));
    let mut silent = Vec::new();
    for (name, how) in rows.chain(VARIANTS) {
        find(name);
        let out = run(&Rig::new(rig::unsandboxed()), &host, &how, Programs::System, None).expect("it starts");
        if !out.stdout.text().contains("ESCAPED") {
            silent.push(format!("{name}: {out:?}"));
        }
    }
    assert!(silent.is_empty(), "{silent:#?}");
}

/// A row's attack as a program that this one starts, with nothing in between: what `before` it says, in this folder.
fn direct(before: &[&str], how: &How, host: &Host, folder: &Path) -> Command {
    let argv = before.iter().map(|word| (*word).to_owned()).chain(words(host, how)).collect::<Vec<_>>();
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).current_dir(folder);
    command
}

#[track_caller]
fn escapes(name: &str, mut command: Command) {
    let out = command.output().expect("it starts");
    assert!(String::from_utf8_lossy(&out.stdout).contains("ESCAPED"), "{name}: {out:?}");
}

/// What a helper keeps from a command also where there are no walls.
#[test]
fn without_a_helper_the_attempts_are_seen_to_escape() {
    let (host, rig) = (Host::new(), Rig::new(rig::unsandboxed()));
    let descriptors = "descriptors left open";
    escapes(descriptors, direct(&[], &find(descriptors).how, &host, &rig.path()));
    let sockets = "virtual machine sockets";
    find(sockets);
    let vsock = Py("tries(lambda: socket.socket(40, socket.SOCK_STREAM))");
    if std::fs::read_to_string("/proc/net/protocols").is_ok_and(|has| has.contains("AF_VSOCK")) {
        escapes(sockets, direct(&[], &vsock, &host, &rig.path()));
    } else {
        eprintln!("not tried: `{sockets}`, since this kernel has none");
    }
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // In a network that nobody needs.
    let interface = "making an interface (netlink, ioctl)";
    escapes(interface, direct(&["unshare", "-n"], &find(interface).how, &host, &rig.path()));
    let set_id = "a set-id program of one's own";
    find(set_id);
    let flags = rustix::fs::statvfs(rig.workspace.path()).expect("it is there").f_flag;
    if flags.contains(rustix::fs::StatVfsMountFlags::NOSUID) {
        eprintln!("not tried: `{set_id}`, since temporary folders are nosuid here");
        return;
    }
    // Root's own, since that is whom it would be after.
    let mut made = Command::new("sh");
    made.args(["-c", "chmod 755 . && cp /usr/bin/id mine2 && chmod 6755 mine2"]);
    assert!(made.current_dir(rig.path()).status().expect("the shell starts").success());
    let ordinary = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];
    escapes(set_id, direct(&ordinary, &Sh("./mine2 -u | grep -qx 0 && echo ESCAPED"), &host, &rig.path()));
}

/// With nobody who keeps its deadline and ends the whole of its tree.
#[test]
fn without_a_watchman_a_command_outlives_its_deadline() {
    let (host, rig) = (Host::new(), Rig::new(rig::unsandboxed()));
    let how = &find("a command that outlives its deadline").how;
    let mut command = direct(&[], how, &host, &rig.path()).spawn().expect("python starts");
    let (began, until) = (rig.path().join("began"), std::time::Instant::now() + rig::LONG);
    while !began.exists() && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    command.kill().expect("it is ours");
    let _ = command.wait().expect("it is ours");
    while !rig.path().join("late").exists() {
        assert!(std::time::Instant::now() < until, "what it started is gone with it, though it has {SHORT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Otherwise a row could be stopped by a word that does not occur or a program that is not installed.
#[test]
fn with_all_programs_granted_those_about_grants_are_seen_to_escape() {
    let Some(_) = walled() else { return };
    let host = Host::new();
    for attempt in attempts().into_iter().filter(|attempt| attempt.wall.contains(GRANTS)) {
        let rig = walled().expect("it was there a moment ago");
        let out = run(&rig, &host, &attempt.how, Programs::System, None).expect("it starts");
        assert!(out.stdout.text().contains("ESCAPED"), "{}: {out:?}", attempt.name);
    }
}

/// Inside, the filter's answer is that there is no such call. Here the kernel says something else, to arguments that no call
/// takes, so that the answer inside is the filter's and not that of a kernel that has none of them.
#[test]
fn without_a_filter_the_kernel_knows_the_calls() {
    let asks = "for name, number in N.items():
  if number is None or name == 'exit': continue
  args = [0] * 3 if name == 'modify_ldt' else [-1] * 6
  ctypes.set_errno(0)
  r = l.syscall(ctypes.c_long(number), *map(ctypes.c_long, args))
  if (r, ctypes.get_errno()) == (-1, errno.ENOSYS): print(name)";
    let rig = Rig::new(rig::unsandboxed());
    let program = format!("{}{PRELUDE}{asks}", numbers());
    let arguments = Host::new().arguments();
    let argv: Vec<&str> =
        ["/usr/bin/python3", "-c", &program].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let out = go(&rig.spec(&argv)).expect("python starts");
    assert!(out.success(), "{out:?}");
    let text = out.stdout.text();
    let unknown: Vec<&str> = text.lines().collect();
    eprintln!("this kernel was built without {unknown:?}: of these the rows prove nothing here");
    // Each of them can be left out of a kernel; one without most of them is another system.
    assert!(unknown.len() * 4 < NUMBERS.len(), "{unknown:?}");
}

/// What a command does to a terminal that it can get at.
const TYPES: &str = "import fcntl, os
def types(at):
  try: fcntl.ioctl(at() if callable(at) else at, 0x5412, b'x')
  except OSError as e: return e
  print('ESCAPED typed')
try: print('ESCAPED', os.open('/dev/tty', os.O_RDWR))
except OSError: pass
for at in (0, 1, 2, lambda: os.open('/dev/tty', os.O_RDWR)): types(at)
for fd in range(3):
  if os.isatty(fd): print('ESCAPED', fd)
";

/// Run again in a terminal of its own, since a test has none: there is one to be typed into, and inside there is not.
#[test]
fn a_terminal_of_the_daemons_is_not_the_commands() {
    const NAME: &str = "controls::a_terminal_of_the_daemons_is_not_the_commands";
    const INSIDE: &str = "AOS_TEST_IN_A_TERMINAL";
    let Some(rig) = walled() else { return };
    if std::env::var_os(INSIDE).is_none() {
        let open = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
        let me = std::env::current_exe().expect("it runs");
        let mut again = Command::new("/usr/bin/python3");
        again.args(["-c", open]).arg(me).args(["--exact", NAME, "--nocapture"]).env(INSIDE, "1");
        let out = again.stdin(std::process::Stdio::null()).output().expect("python starts");
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    let direct = Command::new("/usr/bin/python3").args(["-c", TYPES]).output().expect("python starts");
    let said = String::from_utf8_lossy(&direct.stdout);
    assert!(said.contains("ESCAPED"), "there is a terminal to be had here: {direct:?}");
    let out = go(&rig.spec(&["/usr/bin/python3", "-c", TYPES])).expect("python starts");
    assert!(out.success() && !out.stdout.text().contains("ESCAPED"), "{out:?}");
}
