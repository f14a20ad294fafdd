//! Terminals that a command makes for the programs that it starts, as `script`, `expect` and test suites do.

use std::path::Path;

use aos_sandbox::End;

use super::rig::{go, walled};

/// There was neither `/dev/ptmx` nor `/dev/pts`: "out of pty devices".
#[test]
fn a_command_makes_terminals_of_its_own() {
    let Some(rig) = walled() else { return };
    let out = rig.python(
        "import os, pty, sys
print(sorted(os.listdir('/dev/pts')))
m, s = pty.openpty()
print(os.ttyname(s), os.isatty(s), sorted(os.listdir('/dev/pts')))
os.write(s, b'through\\n'); print(os.read(m, 99))
# None of them is the terminal of this session, until one is made so.
try: os.open('/dev/tty', os.O_RDWR)
except OSError as e: print(e.strerror)
pid, m = pty.fork()
if pid == 0: os.execvp('sh', ['sh', '-c', 'tty; stty size > /dev/null && echo typed > /dev/tty; read x; echo got $x'])
os.write(m, b'this\\n')
said = b''
while b'got' not in said: said += os.read(m, 99)
print(said.split(b'\\r\\n'), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
    );
    assert_eq!(
        out.stdout.text().lines().take(4).collect::<Vec<_>>(),
        ["['ptmx']", "/dev/pts/0 True ['0', 'ptmx']", "b'through\\r\\n'", "No such device or address"],
        "{out:?}"
    );
    let last = out.stdout.text().lines().last().unwrap_or_default().to_owned();
    for part in ["b'/dev/pts/1'", "b'typed'", "b'got this'", "] 0"] {
        assert!(last.contains(part), "{out:?}");
    }
    if Path::new("/usr/bin/script").exists() {
        let out = rig.sh("script -qec 'tty; exit 3' /dev/null < /dev/null");
        assert_eq!((out.stdout.text().trim(), out.exit_code()), ("/dev/pts/0", Some(3)), "{out:?}");
    }
}

/// What one sandbox has, no other sees or counts.
#[test]
fn terminals_are_private_and_bounded() {
    let Some(rig) = walled() else { return };
    let bomb = "import os
x = []
try:
  while True: x.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))
except OSError as e: print(len(x), e.strerror)
open('full', 'w'); import time
while not os.path.exists('over'): time.sleep(.01)";
    std::thread::scope(|scope| {
        let full = scope.spawn(|| rig.python(bomb));
        while !rig.path().join("full").exists() && !full.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let other = walled().expect("it was there a moment ago");
        let beside =
            other.python("import os, pty; print(os.ttyname(pty.openpty()[1]), sorted(os.listdir('/dev/pts')))");
        assert_eq!(beside.stdout.text(), "/dev/pts/0 ['0', 'ptmx']\n", "{beside:?}");
        std::fs::write(rig.path().join("over"), "").expect("it can be made");
        let full = full.join().expect("it runs");
        assert_eq!(full.stdout.text(), "64 No space left on device\n", "{full:?}");
    });
}

/// A root daemon's commands are somebody else than who made their pipes, and `echo x > /dev/stderr` was denied.
#[test]
fn standard_streams_are_opened_by_their_names() {
    let Some(rig) = walled() else { return };
    let mut spec =
        rig.spec(&["sh", "-c", "cat /dev/stdin > /dev/stdout; echo two >> /dev/stdout; echo three > /dev/stderr"]);
    spec.stdin = b"one\n".to_vec();
    let out = go(&spec).expect("the shell starts");
    let said = (out.end, out.stdout.text().into_owned(), out.stderr.text().into_owned());
    assert_eq!(said, (End::Exited(0), "one\ntwo\n".to_owned(), "three\n".to_owned()));
}
