//! Commands behind all walls, as root and as an ordinary user. Each test says "SKIPPED" and why where the host lacks a
//! feature.

mod layers;
mod owners;
#[path = "../rig/mod.rs"]
mod rig;
mod terminals;

use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use aos_sandbox::{
    Access, Cancel, Change, ChangeKind, End, Error, Feature, Inode, Isolation, Layer, Mount, Network, Programs,
    ProxyServer, probe, run,
};

use rig::{LONG, Rig, Room, go, helper, walled as rig};

/// The Python that the system has, not one in somebody's home.
const PYTHON: &str = "/usr/bin/python3";

impl Rig {
    fn python(&self, program: &str) -> aos_sandbox::Outcome {
        go(&self.spec(&[PYTHON, "-c", program])).expect("python starts")
    }
}

#[test]
fn probing_names_every_feature() {
    let rig = Rig::new(Isolation::Full);
    let report = probe(&helper(), rig.workspace.path()).expect("the helper starts");
    eprintln!("{report:#?}");
    for feature in [Feature::Landlock, Feature::Seccomp, Feature::UserNamespaces, Feature::Cgroup] {
        assert!(report.findings.iter().any(|finding| finding.feature == feature), "{feature}");
    }
    assert!(!report.kernel.is_empty());
}

#[test]
fn a_shell_works_in_its_workspace() {
    let Some(rig) = rig() else { return };
    std::fs::write(rig.path().join("in"), "b\na\n").expect("it can be written");
    let out =
        rig.sh("pwd; id -un; sort < in | tee out | wc -l; echo gone > /dev/null; ls /nowhere 2> /dev/null; exit 3");
    assert_eq!((out.stdout.text().as_ref(), out.exit_code()), ("/workspace\nagent\n2\n", Some(3)), "{out:?}");
    let made = rig.path().join("out");
    assert_eq!(std::fs::read_to_string(&made).expect("it was made"), "a\nb\n");
    assert_eq!(out.changed, [Change { path: "out".into(), kind: ChangeKind::Created }]);
    let (made, folder) = (made.metadata().expect("it is there"), rig.path().metadata().expect("it is there"));
    assert_eq!((made.uid(), made.gid()), (folder.uid(), folder.gid()), "what is made belongs to the workspace's owner");
}

#[test]
fn a_workspace_of_another_user_stays_that_users() {
    let Some(rig) = rig() else { return };
    if !rustix::process::geteuid().is_root() {
        return; // Only root can give a workspace away.
    }
    std::os::unix::fs::chown(rig.path(), Some(1234), Some(2345)).expect("root may");
    std::fs::set_permissions(rig.path(), PermissionsExt::from_mode(0o700)).expect("root may");
    assert!(rig.sh("mkdir d && echo x > d/f").success());
    let made = rig.path().join("d/f").metadata().expect("it was made");
    assert_eq!((made.uid(), made.gid()), (1234, 2345));
}

#[test]
fn signals_codes_input_and_environment_come_through() {
    let Some(rig) = rig() else { return };
    assert_eq!(rig.sh("kill -SEGV $$").end, End::Signaled(11));
    let mut spec = rig.spec(&["sh", "-c", "cat; env | cut -d= -f1 | sort | tr '\\n' ' '"]);
    spec.stdin = b"hello ".to_vec();
    spec.env.insert("EXTRA".into(), "1".into());
    let out = go(&spec).expect("the shell starts");
    assert_eq!(out.stdout.text(), "hello EXTRA HOME LANG LOGNAME PATH PWD TMPDIR USER ");
}

#[test]
fn python_and_git_work() {
    let Some(rig) = rig() else { return };
    let out = rig.python("import subprocess, tempfile, multiprocessing as m, os\nprint(subprocess.check_output('echo $((6*7)) | cat', shell=True).decode().strip(), os.getcwd())\nwith m.Pool(2) as p: print(p.map(abs, [-1, -2]))\nprint(tempfile.NamedTemporaryFile().name[:5])");
    assert_eq!(out.stdout.text(), "42 /workspace\n[1, 2]\n/tmp/\n", "{out:?}");
    let out = rig.sh("git init -q . && git config user.email a@b && git config user.name a && echo 1 > f && git add f && git commit -qm one && git log --format=%s && git status --short");
    assert_eq!(out.stdout.text(), "one\n", "{out:?}");
}

/// The file behind a link was shown under the link's name: a Java found none of its libraries, npm none of its modules.
#[test]
fn a_program_that_is_a_link_to_elsewhere_finds_what_lies_beside_it() {
    let Some(rig) = rig() else { return };
    let programs = std::fs::read_dir("/usr/bin").expect("it is on every host");
    let elsewhere = programs.flatten().map(|entry| entry.path()).find_map(|path| {
        let real = path.canonicalize().ok().filter(|real| real.is_file())?;
        let below = ["/usr/lib", "/usr/share", "/usr/local"].iter().any(|folder| real.starts_with(folder));
        below.then_some((path, real))
    });
    let Some((link, real)) = elsewhere else {
        rig::skipped("no program of this host is a link to another folder, so whether one works inside was not tried");
        return;
    };
    let mut spec = rig.spec(&["readlink", "-f", link.to_str().expect("a plain path")]);
    spec.programs = Programs::Only(vec!["/usr/bin/readlink".into(), link]);
    let out = go(&spec).expect("it starts");
    assert_eq!(out.stdout.text(), format!("{}\n", real.display()), "{out:?}");
}

/// A toolchain of Rust's lies where its user keeps it; its programs find their libraries by where they lie, and each other by
/// name.
#[test]
fn a_program_of_a_rust_toolchain_finds_what_belongs_to_it() {
    let Some(rig) = rig() else { return };
    // Not in `/tmp`, of which a command has its own.
    let folder = tempfile::tempdir_in("/var/tmp").expect("everybody's");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
    let toolchain = folder.path().canonicalize().expect("it is there").join("toolchain");
    for below in ["bin", "lib/rustlib", "share"] {
        std::fs::create_dir_all(toolchain.join(below)).expect("it is ours");
    }
    for (path, script) in [("bin/cargo", "rustc \"$1\""), ("bin/rustc", "cat \"${0%/*}/../lib/part\"; echo \"$1\"")] {
        let path = toolchain.join(path);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("it is ours");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("it is ours");
    }
    std::fs::write(toolchain.join("lib/part"), "a library\n").expect("it is ours");
    std::fs::write(folder.path().join("other"), "no part of it").expect("it is ours");
    let script = format!("cargo build; ls {}", folder.path().display());
    let mut spec = rig.spec(&["sh", "-c", &script]);
    spec.programs =
        Programs::Only(vec!["/bin/sh".into(), "/bin/cat".into(), "/bin/ls".into(), toolchain.join("bin/cargo")]);
    spec.env.insert("PATH".into(), format!("{}/bin:{}", toolchain.display(), aos_sandbox::PATH).into());
    let out = go(&spec).expect("it starts");
    assert_eq!(out.stdout.text(), "a library\nbuild\ntoolchain\n", "{out:?}");
}

#[test]
fn a_program_written_inside_runs() {
    let Some(rig) = rig() else { return };
    let out = rig.sh("printf '#!/bin/sh\\necho ran\\n' > tool && chmod +x tool && ./tool");
    assert_eq!(out.stdout.text(), "ran\n", "{out:?}");
}

#[test]
fn files_of_the_host_are_not_there() {
    let Some(rig) = rig() else { return };
    let outside = tempfile::NamedTempFile::new().expect("a temporary file");
    let sibling = outside.path().to_str().expect("a plain path");
    std::os::unix::fs::symlink("/etc/shadow", rig.path().join("link")).expect("it can be made");
    std::os::unix::fs::symlink("../../../../root", rig.path().join("up")).expect("it can be made");
    let own = rig.path();
    let paths =
        ["/root", "/etc/shadow", "/home", "/var", "/sys", "/run", "/etc/ssh", "/dev/console", "/dev/vda", "/dev/kmsg"];
    for path in paths.iter().copied().chain([sibling, "link", "up/", "../etc/shadow", own.to_str().expect("plain")]) {
        let out = rig.sh(&format!("test -e {path} || cat {path}"));
        assert!(!out.success() && out.stderr.text().contains("No such file"), "{path}: {out:?}");
    }
    assert_eq!(rig.sh("ls -A /tmp /dev/shm | tr '\\n' ' '").stdout.text(), "/dev/shm:  /tmp: ");
    assert_eq!(rig.sh("cd /workspace/../.. && pwd && ls -d *").stdout.text().lines().next(), Some("/"));
}

#[test]
fn the_system_cannot_be_written() {
    let Some(rig) = rig() else { return };
    for path in [
        "/x",
        "/usr/x",
        "/etc/x",
        "/etc/passwd",
        "/dev/x",
        "/proc/self/comm",
        "/proc/sys/kernel/hostname",
        "/proc/sysrq-trigger",
    ] {
        let out = rig.sh(&format!("echo bad > {path}"));
        assert!(!out.success(), "{path}: {out:?}");
    }
    let out = rig.python("import os\nfor p in ['/etc/passwd','/usr/bin/env']:\n  try: os.truncate(p, 0); print('truncated', p)\n  except OSError: pass");
    assert_eq!((out.stdout.text().as_ref(), out.success()), ("", true), "{out:?}");
}

#[test]
fn processes_of_the_host_are_not_seen() {
    let Some(rig) = rig() else { return };
    let out = rig.sh("for p in /proc/[0-9]*; do echo ${p#/proc/}; done");
    let pids: Vec<u32> = out.stdout.text().lines().map(|pid| pid.parse().expect("a pid")).collect();
    assert!(!pids.is_empty() && pids.iter().all(|pid| *pid < 20), "{pids:?}");
    // The first process cannot be looked into, signalled or stopped.
    // That even asking is refused is Landlock's doing: it is the same user.
    let out =
        rig.sh("ls /proc/1/fd; cat /proc/1/environ; kill -KILL 1; kill -STOP 1; kill -0 1 && echo bad; echo alive");
    assert_eq!(out.stdout.text(), "alive\n", "{out:?}");
}

#[test]
fn there_is_no_network_but_a_loopback() {
    let Some(rig) = rig() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("the host has a loopback");
    let port = listener.local_addr().expect("it is bound").port();
    let out = rig.python(&format!(
        "import socket\nprint([n for _, n in socket.if_nameindex()])\nfor to in [('127.0.0.1', {port}), ('192.0.2.1', 80), ('169.254.169.254', 80)]:\n  try: socket.create_connection(to, 5); print('connected', to)\n  except OSError as e: pass\ns = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); print('own')"
    ));
    assert_eq!(out.stdout.text(), "['lo']\nown\n", "{out:?}");
}

#[test]
fn a_proxy_is_the_only_way_out() {
    let Some(rig) = rig() else { return };
    let program = "import os, socket, urllib.request as u\nprint(u.urlopen('http://example.com/x').read().decode())\ntry: socket.create_connection(('192.0.2.1', 80), 5)\nexcept OSError: print('closed')";
    let mut spec = rig.spec(&[PYTHON, "-c", program]);
    spec.network = Network::Proxy;
    assert!(matches!(go(&spec), Err(Error::Spec { .. })), "a proxy that nobody serves");
    spec.proxy = Some(ProxyServer::new(|doors| {
        std::thread::spawn(move || {
            let (mut stream, _) = doors.proxy.accept().expect("the command connects");
            let mut request = [0; 4096];
            let length = stream.read(&mut request).expect("it asks");
            let asked = String::from_utf8_lossy(&request[..length]).lines().next().unwrap_or_default().to_owned();
            write!(stream, "HTTP/1.0 200 OK\r\n\r\nasked: {asked}").expect("it listens");
        });
    }));
    let out = go(&spec).expect("python starts");
    assert_eq!(out.stdout.text(), "asked: GET http://example.com/x HTTP/1.1\nclosed\n", "{out:?}");
}

#[test]
fn the_host_network_is_there_when_granted() {
    let Some(rig) = rig() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("the host has a loopback");
    let port = listener.local_addr().expect("it is bound").port();
    let program = format!("import socket; socket.create_connection(('127.0.0.1', {port})); print('connected')");
    let mut spec = rig.spec(&[PYTHON, "-c", &program]);
    spec.network = Network::Host;
    let out = go(&spec).expect("python starts");
    assert_eq!(out.stdout.text(), "connected\n", "{out:?}");
}

#[test]
fn privileges_are_gone_and_stay_gone() {
    let Some(rig) = rig() else { return };
    let out = rig.sh("grep -E '^(Cap|NoNewPrivs|Seccomp:|Groups)' /proc/self/status | tr -d ' \\t'");
    let none = "0000000000000000";
    let mut expected = String::new();
    if rustix::process::geteuid().is_root() {
        expected.push_str("Groups:\n");
    }
    for set in ["Inh", "Prm", "Eff", "Bnd", "Amb"] {
        expected.push_str(&format!("Cap{set}:{none}\n"));
    }
    expected.push_str("NoNewPrivs:1\nSeccomp:2\n");
    let seen = out.stdout.text().into_owned();
    assert!(seen.ends_with(&expected), "{seen}");
    for command in
        ["unshare -U true", "unshare -r true", "mount -t tmpfs x /tmp", "chroot / true", "setpriv --reuid 0 true"]
    {
        assert!(!rig.sh(command).success(), "{command}");
    }
}

#[test]
fn dangerous_system_calls_do_not_exist() {
    let Some(rig) = rig() else { return };
    let numbers = [
        libc::SYS_ptrace,
        libc::SYS_mount,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_keyctl,
        libc::SYS_bpf,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_perf_event_open,
        libc::SYS_clone3,
    ];
    // The last is a clone that makes a user namespace.
    let out = rig.python(&format!(
        "import ctypes\nl = ctypes.CDLL(None, use_errno=True)\nfor n, *a in [(n, 0) for n in {numbers:?}] + [({}, 0x10000011)]:\n  r = l.syscall(n, *a); print(n, r, ctypes.get_errno()) if (r, ctypes.get_errno()) != (-1, 38) else None",
        libc::SYS_clone
    ));
    assert_eq!((out.stdout.text().as_ref(), out.success()), ("", true), "{out:?}");
}

#[test]
fn a_fork_bomb_is_limited() {
    let Some(rig) = rig() else { return };
    let program = "import os, time\nn = 0\nwhile n < 500:\n  try:\n    if os.fork() == 0: time.sleep(1000)\n    n += 1\n  except OSError: break\nprint(n)";
    let mut spec = rig.spec(&[PYTHON, "-c", program]);
    spec.limits.pids = 20;
    let out = go(&spec).expect("python starts");
    assert_eq!(out.stdout.text(), "19\n", "{out:?}");
    // A real one, which ends with its deadline.
    let bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass";
    let mut spec = rig.spec(&[PYTHON, "-c", bomb]);
    spec.limits.wall = Duration::from_secs(2);
    assert!(go(&spec).expect("python starts").timed_out());
}

#[test]
fn the_deadline_and_cancelling_end_everything_inside() {
    let Some(rig) = rig() else { return };
    let mark = format!("sleep 98{}", std::process::id());
    let script = format!("setsid sh -c '(setsid {mark} &)' & touch ready; {mark}");
    let found = || {
        std::fs::read_dir("/proc").expect("it is mounted").flatten().any(|entry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).replace('\0', " ").starts_with(&mark))
        })
    };
    let mut spec = rig.spec(&["sh", "-c", &script]);
    spec.limits.wall = Duration::from_secs(2);
    assert!(go(&spec).expect("the shell starts").timed_out());
    assert!(!found());
    std::fs::remove_file(rig.path().join("ready")).expect("it came so far");
    spec.limits.wall = LONG;
    let cancel = Cancel::new().expect("a descriptor is free");
    let (handle, ready) = (cancel.clone(), rig.path().join("ready"));
    let canceller = std::thread::spawn(move || {
        while !ready.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        handle.cancel();
    });
    assert_eq!(run(&spec, &cancel).expect("the shell starts").end, End::Cancelled);
    canceller.join().expect("the canceller ends");
    assert!(!found());
}

#[test]
fn processor_time_is_limited_for_each_process() {
    let Some(rig) = rig() else { return };
    // A shell that sees its child ended by SIGXCPU (24), and goes on: the limit is a process's.
    let mut spec = rig.spec(&["sh", "-c", "sh -c 'while :; do :; done'; echo $?; while :; do :; done"]);
    spec.limits.cpu = Duration::from_secs(1);
    let out = go(&spec).expect("the shell starts");
    assert_eq!((out.stdout.text().trim(), out.end), ("152", End::Signaled(24)));
    assert!(out.usage.cpu >= Duration::from_millis(1000), "{:?}", out.usage);
}

#[test]
fn memory_is_limited_for_one_and_for_all() {
    let Some(rig) = rig() else { return };
    let mut spec = rig.spec(&[PYTHON, "-c", "x = bytearray(400 << 20)"]);
    spec.limits.memory = 128 << 20;
    let out = go(&spec).expect("python starts");
    assert!(out.exit_code() == Some(1) && out.stderr.text().contains("MemoryError"), "{out:?}");
    let greedy =
        "import os, time\nfor _ in range(5): os.fork()\nx = bytearray(os.urandom(1 << 20) * 48)\ntime.sleep(1000)";
    let mut spec = rig.spec(&[PYTHON, "-c", greedy]);
    spec.limits.memory = 128 << 20;
    assert_eq!(go(&spec).expect("python starts").end, End::OutOfMemory);
}

#[test]
fn the_private_folder_is_limited() {
    let Some(rig) = rig() else { return };
    let mut spec = rig.spec(&["sh", "-c", "for i in 1 2 3 4; do head -c 900000 /dev/zero > /tmp/$i || exit 9; done"]);
    spec.limits.disk = 1 << 20;
    assert_eq!(go(&spec).expect("the shell starts").exit_code(), Some(9));
}

#[test]
fn only_granted_programs_run() {
    let Some(rig) = rig() else { return };
    let granted = ["/bin/sh", "/usr/bin/cat", "/bin/ls", "/usr/bin/cp", "/usr/bin/chmod", PYTHON];
    let sh = |script: &str| {
        let mut spec = rig.spec(&["sh", "-c", script]);
        spec.programs = Programs::Only(granted.iter().map(Into::into).collect());
        go(&spec).expect("the shell starts")
    };
    assert_eq!(sh("echo a | cat; python3 -c 'print(1)'").stdout.text(), "a\n1\n");
    assert_eq!(
        sh("ls /usr/bin /bin/").stdout.text(),
        "/bin/:\ncat\nchmod\ncp\nls\npython3\nsh\n\n/usr/bin:\ncat\nchmod\ncp\nls\npython3\nsh\n"
    );
    assert_eq!(sh("grep x /etc/passwd").exit_code(), Some(127));
    // Bringing one along does not help, nor does the loader, nor a file that is only in memory.
    for script in [
        "cp /bin/cat ./mine && chmod +x mine && ./mine /etc/passwd",
        "cp /bin/cat /tmp/mine && /lib64/ld-linux-x86-64.so.2 /tmp/mine /etc/passwd",
        "cp /bin/cat ./mine && /lib64/ld-linux-x86-64.so.2 ./mine /etc/passwd",
        "python3 -c 'import os; os.memfd_create(\"x\")'",
        "echo 123456789 > /tmp/x; python3 -c 'import mmap; f = open(\"/tmp/x\", \"r+b\"); mmap.mmap(f.fileno(), 9, prot=mmap.PROT_READ | mmap.PROT_EXEC); print(1)'",
    ] {
        let out = sh(script);
        assert!(!out.success() && out.stdout.bytes.is_empty(), "{script}: {out:?}");
    }
    // What is granted finds its own parts, and libraries are no less there for that.
    let mut spec = rig.spec(&["sh", "-c", "git init -q . && git config user.email a@b && git config user.name a && echo 1 > f && git add f && git commit -qm one && git repack -adq && git log --format=%s && python3 -c 'import ssl, ctypes, sqlite3, decimal; print(ctypes.CDLL(None).getuid())'"]);
    spec.programs = Programs::Only(["/bin/sh", "/usr/bin/git", PYTHON].map(Into::into).into());
    let out = go(&spec).expect("the shell starts");
    assert_eq!(out.stdout.text(), "one\n1000\n", "{out:?}");
    let mut spec = rig.spec(&["grep", "x"]);
    spec.programs = Programs::Only(vec!["/bin/sh".into()]);
    assert!(matches!(go(&spec), Err(Error::Program { .. })));
}

/// What is made inside runs where that is granted, and gains nothing by it; all else of the host stays as it was.
#[test]
fn what_a_command_makes_runs_where_that_is_granted() {
    let Some(rig) = rig() else { return };
    let shown = tempfile::tempdir().expect("a temporary folder");
    std::fs::copy("/bin/cat", shown.path().join("cat")).expect("it can be copied");
    let granted: Vec<PathBuf> = ["/bin/sh", "/usr/bin/cat", "/usr/bin/cp", "/usr/bin/chmod", PYTHON, "/usr/bin/gcc"]
        .into_iter()
        .map(PathBuf::from)
        .filter(|path| path.exists())
        .collect();
    let sh = |own: bool, script: &str| {
        let mut spec = rig.spec(&["sh", "-c", script]);
        spec.mounts.push(Mount { host: shown.path().into(), at: "/shelf".into(), access: Access::Write, is: None });
        spec.programs = if own { Programs::AndOwn(granted.clone()) } else { Programs::Only(granted.clone()) };
        go(&spec).expect("the shell starts")
    };
    let mut makes = vec![
        "printf '#!/bin/sh\necho made\n' > s.sh && chmod +x s.sh && ./s.sh",
        "printf '#!/bin/sh\necho made\n' > /tmp/s.sh && chmod +x /tmp/s.sh && /tmp/s.sh",
        "cp /bin/cat mine && chmod +x mine && echo made | ./mine",
        "echo 123456789 > x; python3 -c 'import mmap; f = open(\"x\", \"r+b\"); mmap.mmap(f.fileno(), 9, prot=mmap.PROT_READ | mmap.PROT_EXEC); print(\"made\")'",
    ];
    if granted.iter().any(|path| path.ends_with("gcc")) {
        makes.push("printf '#include <stdio.h>\nint main() { puts(\"made\"); }\n' > h.c && gcc h.c && ./a.out");
    } else {
        eprintln!("SKIPPED: there is no gcc");
    }
    for script in makes {
        let (own, not) = (sh(true, script), sh(false, script));
        assert_eq!(own.stdout.text(), "made\n", "{script}: {own:?}");
        assert!(!not.success() && not.stdout.bytes.is_empty(), "{script}: {not:?}");
    }
    // What is the host's is not theirs: neither what is mounted nor a program that is not granted.
    for script in ["/shelf/cat /etc/passwd", "cp /bin/cat /shelf/new && /shelf/new /etc/passwd", "/usr/bin/id"] {
        let out = sh(true, script);
        assert!(!out.success() && out.stdout.bytes.is_empty(), "{script}: {out:?}");
    }
}

/// A mount that stands in the workspace is none of it.
#[test]
fn what_is_mounted_below_an_executable_workspace_stays_closed() {
    let Some(rig) = rig() else { return };
    let granted: Vec<PathBuf> =
        ["/bin/sh", "/usr/bin/cat", "/usr/bin/cp", "/usr/bin/chmod", PYTHON].map(PathBuf::from).into();
    let python = |path: &str| {
        let open = format!("f = open(\"{path}\", \"rb\")");
        format!(
            "python3 -c 'import mmap; {open}; mmap.mmap(f.fileno(), 9, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC); print(1)'"
        )
    };
    for (access, layered) in
        [(Access::Read, false), (Access::Read, true), (Access::Write, false), (Access::Write, true)]
    {
        let (shown, layers) = (tempfile::tempdir().expect("there is room"), Room::new());
        std::fs::copy("/bin/cat", shown.path().join("cat")).expect("it can be copied");
        std::fs::write(shown.path().join("s.sh"), "#!/bin/sh\necho ran\n").expect("it can be written");
        let all = PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(shown.path().join("s.sh"), all).expect("it is ours");
        let layer = layered.then(|| Layer::create(layers.path().join("layer")).expect("it can be made"));
        let sh = |script: &str| {
            let mut spec = rig.spec(&["sh", "-c", script]);
            spec.mounts.push(Mount { host: shown.path().into(), at: "/workspace/shelf".into(), access, is: None });
            spec.programs = Programs::AndOwn(granted.clone());
            spec.layer.clone_from(&layer);
            go(&spec).expect("the shell starts")
        };
        let which = format!("{access:?}, layered: {layered}");
        let own = sh("cat shelf/s.sh > own.sh && chmod +x own.sh && ./own.sh");
        assert_eq!(own.stdout.text(), "ran\n", "what is copied out of it is the workspace's: {which}: {own:?}");
        for script in [
            "shelf/s.sh",
            "shelf/cat /etc/passwd",
            "/workspace/shelf/cat /etc/passwd",
            "/lib64/ld-linux-x86-64.so.2 shelf/cat /etc/passwd",
            "cp /bin/cat shelf/new && chmod +x shelf/new && shelf/new /etc/passwd",
            &python("shelf/cat"),
        ] {
            let out = sh(script);
            assert!(!out.success() && out.stdout.bytes.is_empty(), "{which}: {script}: {out:?}");
        }
        assert_eq!(shown.path().join("new").exists(), access == Access::Write, "{which}");
    }
}

#[test]
fn mounts_show_what_was_granted() {
    let Some(rig) = rig() else { return };
    let shown = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(shown.path().join("page"), "text").expect("it can be written");
    let mut spec = rig.spec(&["sh", "-c", "cat /handbook/page; echo x > /handbook/new; echo y > /drafts/deep/new; ls"]);
    for (at, access) in [("/handbook", Access::Read), ("/drafts/deep", Access::Write)] {
        spec.mounts.push(Mount { host: shown.path().into(), at: at.into(), access, is: None });
    }
    let out = go(&spec).expect("the shell starts");
    assert_eq!(out.stdout.text(), "text", "{out:?}");
    assert_eq!(std::fs::read_to_string(shown.path().join("new")).expect("it was made"), "y\n");
    for at in ["relative", "/proc/x", "/dev/x", "/a/../../b", "/"] {
        let mut spec = rig.spec(&["true"]);
        spec.mounts.push(Mount { host: shown.path().into(), at: at.into(), access: Access::Read, is: None });
        assert!(matches!(go(&spec), Err(Error::Spec { .. })), "{at}");
    }
    // A link in the workspace must not lead a mount astray.
    std::os::unix::fs::symlink("/tmp", rig.path().join("link")).expect("it can be made");
    let mut spec = rig.spec(&["true"]);
    spec.mounts.push(Mount {
        host: shown.path().into(),
        at: "/workspace/link/x".into(),
        access: Access::Read,
        is: None,
    });
    assert!(matches!(go(&spec), Err(Error::Setup { .. })));
}

/// Whoever can write above a folder had a moment between the look at it and the mount.
#[test]
fn what_was_put_in_the_place_of_a_mount_meanwhile_is_not_mounted() {
    let Some(rig) = rig() else { return };
    let around = tempfile::tempdir().expect("a temporary folder");
    let around = around.path().canonicalize().expect("it is there");
    let (shelf, other) = (around.join("shelf"), around.join("other"));
    for (folder, text) in [(&shelf, "granted"), (&other, "secret")] {
        std::fs::create_dir_all(folder.join("book")).expect("it can be made");
        std::fs::write(folder.join("book/page"), text).expect("it can be written");
    }
    let book = shelf.join("book");
    let looked = std::fs::File::open(&book).expect("it is there");
    let is = Some(Inode::of(&looked).expect("it is open"));
    let mounted = || {
        let mut spec = rig.spec(&["cat", "/book/page"]);
        spec.mounts.push(Mount { host: book.clone(), at: "/book".into(), access: Access::Read, is });
        go(&spec)
    };
    assert_eq!(mounted().expect("it is what it was").stdout.text(), "granted");
    let away = around.join("away");
    let link = |to: &Path, at: &Path| std::os::unix::fs::symlink(to, at).expect("it can be made");
    let swaps: [(&Path, &dyn Fn(), bool); 3] = [
        (&book, &|| link(&other.join("book"), &book), true),
        (&shelf, &|| link(&other, &shelf), true),
        (&shelf, &|| std::fs::rename(&other, &shelf).expect("it can be moved"), false),
    ];
    for (nth, (place, put, is_link)) in swaps.into_iter().enumerate() {
        std::fs::rename(place, &away).expect("it can be moved");
        put();
        let error = mounted().expect_err("it is another one");
        match is_link {
            true => assert!(
                matches!(&error, Error::Path { source, .. } if source.raw_os_error() == Some(libc::ELOOP)),
                "{nth}: {error:?}"
            ),
            false => assert!(error.to_string().contains("which was replaced"), "{nth}: {error:?}"),
        }
        if is_link {
            std::fs::remove_file(place).expect("the link is there");
            std::fs::rename(&away, place).expect("it can be moved");
            assert!(mounted().expect("it is back").success(), "{nth}");
        }
    }
}

#[test]
fn a_missing_program_or_mount_is_named() {
    let Some(rig) = rig() else { return };
    assert!(matches!(go(&rig.spec(&["no-such-program"])), Err(Error::Program { .. })));
    let mut spec = rig.spec(&["true"]);
    spec.mounts.push(Mount { host: "/no/such/mount".into(), at: "/x".into(), access: Access::Read, is: None });
    assert!(matches!(go(&spec), Err(Error::Path { path, .. }) if path.as_os_str() == "/no/such/mount"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().canonicalize().expect("it is there").join("socket");
    let _listens = std::os::unix::net::UnixListener::bind(&socket).expect("it can be bound");
    // Root's commands are shown no file system without translated owners; others' see what is mounted below.
    let below = std::fs::read_to_string("/proc/self/mounts").expect("it is mounted").contains(" /dev/");
    if below && !rustix::process::geteuid().is_root() {
        spec.mounts[0].host = "/dev".into();
        let error = go(&spec).expect_err("what cannot be shown without its sockets is not shown").to_string();
        assert!(error.contains("no overlay goes over it"), "{error}");
    }
    spec.mounts[0].host = socket;
    let error = go(&spec).expect_err("whoever is shown a socket can talk to who listens at it").to_string();
    assert!(error.contains("neither a folder nor a file"), "{error}");
}

#[test]
fn many_at_once_do_not_meet() {
    let Some(rig) = rig() else { return };
    std::thread::scope(|scope| {
        for n in 0..16 {
            let spec = rig.spec(&["sh", "-c", &format!("echo {n} > /tmp/same; sleep 0.1; cat /tmp/same")]);
            scope.spawn(move || assert_eq!(go(&spec).expect("it starts").stdout.text(), format!("{n}\n")));
        }
    });
}

#[test]
fn the_host_is_as_it_was() {
    let Some(rig) = rig() else { return };
    let mounts = || std::fs::read_to_string("/proc/self/mounts").expect("it is mounted");
    let before = mounts();
    assert!(rig.sh("true").success());
    assert_eq!(mounts(), before);
    assert!(std::fs::write("/dev/null", "x").is_ok());
}

/// On a host that lacks a feature: all that it is found to lack, and what a command is refused with.
fn nothing_runs_without(feature: Feature) -> (Vec<Feature>, String) {
    let rig = Rig::new(Isolation::Full);
    let report = probe(&helper(), rig.workspace.path()).expect("the helper starts");
    assert!(!report.can_isolate());
    let error = match go(&rig.spec(&["touch", "ran"])) {
        Err(error @ Error::Missing { feature: missing, .. }) if missing == feature => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(!rig.path().join("ran").exists(), "nothing may run with fewer walls instead");
    (report.missing().map(|finding| finding.feature).collect(), error)
}

/// Not a test: what the next one runs where the kernel refuses namespaces.
#[test]
#[ignore = "played by another test"]
fn on_a_host_without_user_namespaces() {
    let (missing, error) = nothing_runs_without(Feature::UserNamespaces);
    assert!(missing.contains(&Feature::UserNamespaces));
    assert!(error.contains("user.max_user_namespaces"), "{error}");
}

#[test]
fn a_host_without_user_namespaces_is_told_so() {
    if rig().is_none() {
        return;
    }
    let me = std::env::current_exe().expect("it runs");
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" --exact on_a_host_without_user_namespaces --ignored";
    let status = Command::new("unshare").args(["-Ur", "sh", "-c", script]).arg(me).status().expect("unshare starts");
    assert!(status.success());
}

/// Kernels that lack something: a call of theirs, what it answers, and the feature that this is.
const LACKING: [(&str, i64, i32, Feature); 3] = [
    ("no Landlock", libc::SYS_landlock_create_ruleset, libc::ENOSYS, Feature::Landlock),
    // The version that this call tells is 0 then.
    ("Landlock before its first version", libc::SYS_landlock_create_ruleset, 0, Feature::Landlock),
    ("no filters", libc::SYS_seccomp, libc::ENOSYS, Feature::Seccomp),
];

/// Which of them is played.
const LACKS: &str = "AOS_TEST_LACKS";

/// Not a test: what the next one runs on each of these kernels.
#[test]
#[ignore = "played by another test"]
fn on_a_kernel_that_lacks_something() {
    let lacks = std::env::var(LACKS).expect("it is played by another test");
    let (_, call, answer, feature) = LACKING.into_iter().find(|(name, ..)| *name == lacks).expect("it is one of them");
    let rules = [(call, Vec::new())].into();
    let answer = seccompiler::SeccompAction::Errno(answer.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into().expect("filters know it");
    let filter = seccompiler::SeccompFilter::new(rules, seccompiler::SeccompAction::Allow, answer, arch);
    let filter: seccompiler::BpfProgram = filter.and_then(TryInto::try_into).expect("it compiles");
    // For this thread and all that it starts, which is the helper.
    seccompiler::apply_filter(&filter).expect("the kernel takes it");
    let (missing, error) = nothing_runs_without(feature);
    assert_eq!(missing, [feature]);
    assert!(error.contains(feature.remedy()), "the way out is told: {error}");
}

#[test]
fn a_kernel_that_lacks_landlock_or_filters_runs_nothing() {
    if rig().is_none() {
        return;
    }
    let me = std::env::current_exe().expect("it runs");
    for (name, ..) in LACKING {
        let mut played = Command::new(&me);
        played.args(["--exact", "on_a_kernel_that_lacks_something", "--ignored"]).env(LACKS, name);
        assert!(played.status().expect("it starts").success(), "{name}");
    }
}

/// The whole of this once more as a user without any rights, when it runs as root.
#[test]
fn all_of_this_as_an_ordinary_user() {
    if rustix::process::geteuid().is_root() && rig().is_some() {
        rig::again_as_an_ordinary_user("all_of_this_as_an_ordinary_user");
    }
}
