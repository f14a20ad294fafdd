//! Attempts to get out of the sandbox, each a real attack run inside, as root and as an ordinary user.
//!
//! Start at [`attempts`]; each kind has a file. Each prints `ESCAPED` where it gets what it is after; afterwards an ordinary action of the same
//! kind has to work, so that no wall is so thick that nothing can live behind it. The table in `docs/sandbox.md` is held
//! to this list. Where the host cannot isolate, everything here says "SKIPPED" and why, and fails where that is not to be.

mod calls;
mod controls;
mod files;
mod limits;
mod network;
mod programs;
#[path = "../rig/mod.rs"]
mod rig;
mod system;

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aos_sandbox::{Access, Error, Isolation, Layer, Mount, Network, Outcome, Programs, ProxyServer};
use rig::{Rig, Room, go, walled as rig};

/// One attack.
struct Attempt {
    name: &'static str,
    /// What stops it.
    wall: &'static str,
    how: How,
    /// Prints `ok` where the ordinary action works.
    beside: &'static str,
}

/// In which language, and within which walls.
enum How {
    /// A shell's.
    Sh(&'static str),
    /// Python's.
    Py(&'static str),
    /// A shell's, with few programs granted.
    Narrow(&'static str),
    /// Python's, with as few.
    NarrowPy(&'static str),
    /// Python's, with tight limits.
    Tight(&'static str),
    /// Python's, with a deadline of [`SHORT`] that it has to run into.
    Late(&'static str),
    /// Python's, while the host commits to `dir` of its workspace again and again.
    Races(&'static str),
}
use How::{Late, Narrow, NarrowPy, Py, Races, Sh, Tight};

/// The deadline of those that try to outlive one.
const SHORT: Duration = Duration::from_secs(4);

const fn attempt(name: &'static str, wall: &'static str, how: How, beside: &'static str) -> Attempt {
    Attempt { name, wall, how, beside }
}

/// What every Python attack begins with: system calls by number, and a word for success.
const PRELUDE: &str = "import ctypes, errno, mmap, os, resource, shutil, socket, stat, struct, sys, threading, time
l = ctypes.CDLL(None, use_errno=True)
SECRET, PORT, SOCK, ABSTRACT, HOSTPID = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])
NAMES, PTS, DAEMON = int(sys.argv[6]), sys.argv[7], sys.argv[8]
def tries(*fs):
  for f in fs:
    try: r = f()
    except (OSError, ValueError, MemoryError, PermissionError): continue
    print('ESCAPED', r)
def unreachable(*fs):
  for f in fs:
    try: r = f()
    except OSError as e:
      # No way there at all, which is another thing than an answer that does not come.
      if e.errno in (errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT): continue
      r = e
    print('ESCAPED', r)
def calls(*cs):
  for name, *args in cs:
    if N[name] is None: continue
    ctypes.set_errno(0)
    r = l.syscall(N[name], *args)
    if (r, ctypes.get_errno()) != (-1, errno.ENOSYS): print('ESCAPED', name, args, r, ctypes.get_errno())
";

macro_rules! numbers {
    ($($name:ident)*) => { &[$((stringify!($name), Some(libc::$name))),*] };
}

/// What system calls are by number here. The filter's answer is that there is no such call; any other answer comes from
/// the kernel, which was reached.
const NUMBERS: &[(&str, Option<libc::c_long>)] = numbers! {
    SYS_acct SYS_add_key SYS_bpf SYS_chroot SYS_clock_settime SYS_clone SYS_clone3 SYS_delete_module SYS_execveat SYS_exit
    SYS_fanotify_init SYS_finit_module SYS_fsopen SYS_init_module SYS_ioctl SYS_io_uring_enter SYS_io_uring_register
    SYS_io_uring_setup SYS_ioprio_set SYS_kcmp SYS_kexec_file_load SYS_kexec_load SYS_keyctl SYS_landlock_add_rule
    SYS_landlock_create_ruleset SYS_madvise SYS_memfd_create SYS_mount
    SYS_mount_setattr SYS_move_mount SYS_name_to_handle_at SYS_open_by_handle_at SYS_open_tree SYS_perf_event_open
    SYS_pidfd_getfd SYS_pivot_root SYS_prlimit64 SYS_process_vm_readv SYS_process_vm_writev SYS_ptrace SYS_quotactl
    SYS_reboot SYS_renameat2 SYS_request_key SYS_sched_setaffinity SYS_sched_setattr SYS_sched_setparam SYS_sched_setscheduler
    SYS_seccomp SYS_semctl SYS_semget SYS_semop SYS_semtimedop
    SYS_setdomainname SYS_sethostname SYS_setns SYS_setpriority SYS_settimeofday SYS_swapoff SYS_swapon SYS_syslog
    SYS_umount2 SYS_unshare SYS_userfaultfd
};

/// Calls that only x86-64 has; elsewhere there is nothing to try.
#[cfg(target_arch = "x86_64")]
const NUMBERS_OF_ONE: &[(&str, Option<libc::c_long>)] = numbers! { SYS_ioperm SYS_iopl SYS_modify_ldt };
#[cfg(not(target_arch = "x86_64"))]
const NUMBERS_OF_ONE: &[(&str, Option<libc::c_long>)] =
    &[("SYS_ioperm", None), ("SYS_iopl", None), ("SYS_modify_ldt", None)];

/// The numbers as Python reads them.
fn numbers() -> String {
    let each = NUMBERS.iter().chain(NUMBERS_OF_ONE).map(|(name, number)| {
        let number = number.map_or_else(|| "None".into(), |number| number.to_string());
        format!("'{}': {number}", name.trim_start_matches("SYS_"))
    });
    format!("N = {{{}}}\n", each.collect::<Vec<_>>().join(", "))
}

const READS: &str = "echo x > mine && test \"$(cat mine)\" = x && echo ok";
const RUNS: &str = "sh -c 'echo ok'";
const SOCKETS: &str = "/usr/bin/python3 -c \"import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()); print('ok')\"";
const TERMINAL: &str = "/usr/bin/python3 -c \"import pty; pty.openpty(); print('ok')\"";
const MEMORY: &str = "/usr/bin/python3 -c \"x = bytearray(1 << 20); print('ok')\"";
const GRANTED: &str = "cat /etc/os-release > /dev/null && echo ok";

const SHOWN: &str = "test $(cat /shelf/note) = note && ls /shelf | grep -qx note && echo ok";

const VEIL: &str = "an overlay over what is shown";
const NAMESPACES: &str = "mount namespace, a root of its own";
const SECCOMP: &str = "seccomp allow-list";
const PIDS: &str = "pid namespace";
const NET: &str = "network namespace";
const LANDLOCK: &str = "Landlock";
const READ_ONLY: &str = "read-only mounts, Landlock";
const LIMITS: &str = "limits";
const GRANTS: &str = "granted programs only, noexec";

/// Every attack, in the order in which the document lists them.
fn attempts() -> Vec<&'static Attempt> {
    [files::ATTEMPTS, system::ATTEMPTS, calls::ATTEMPTS, network::ATTEMPTS, limits::ATTEMPTS, programs::ATTEMPTS]
        .into_iter()
        .flatten()
        .collect()
}

/// What the attacks are after, on the host's side.
struct Host {
    folder: tempfile::TempDir,
    listener: std::net::TcpListener,
    /// Answers whoever asks for a name, on the host's loopback.
    names: std::net::UdpSocket,
    _sockets: [UnixListener; 4],
    /// A terminal: whoever has it, and its name.
    _terminal: rustix::fd::OwnedFd,
    terminal: String,
    _pipe: std::fs::File,
    _leaked: std::fs::File,
    abstract_name: String,
}

impl Host {
    fn new() -> Host {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("secret"), "ESCAPED").expect("it can be written");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("the host has a loopback");
        let names = std::net::UdpSocket::bind("127.0.0.1:0").expect("the host has a loopback");
        let answers = names.try_clone().expect("a descriptor is free");
        std::thread::spawn(move || {
            while let Ok((_, from)) = answers.recv_from(&mut [0; 512]) {
                let _ = answers.send_to(b"ESCAPED", from);
            }
        });
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let nth = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let abstract_name = format!("aos-escapes-{}-{nth}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).expect("a name");
        let shelf = folder.path().join("shelf");
        std::fs::create_dir(&shelf).expect("it can be made");
        std::fs::write(shelf.join("note"), "note").expect("it can be written");
        if let Some(library) = library() {
            std::fs::write(shelf.join("evil.so"), library).expect("there is room");
        }
        // As a daemon's home has it.
        let daemon = folder.path().join("daemon");
        std::fs::create_dir_all(daemon.join("run")).expect("it can be made");
        std::fs::create_dir(folder.path().join("aim")).expect("it can be made");
        std::fs::write(daemon.join("run/certificates"), "trust").expect("it can be written");
        for secret in ["run/token", "journal.db"] {
            std::fs::write(daemon.join(secret), "ESCAPED").expect("it can be written");
        }
        let terminal = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY);
        let terminal = terminal.and_then(|fd| rustix::pty::unlockpt(&fd).map(|()| fd)).expect("the host has terminals");
        let name = rustix::pty::ptsname(&terminal, Vec::new()).expect("it has a name");
        rustix::io::fcntl_setfd(&terminal, rustix::io::FdFlags::CLOEXEC).expect("it is open");
        let sockets = [
            UnixListener::bind(folder.path().join("socket")).expect("it can be bound"),
            UnixListener::bind_addr(&address).expect("it can be bound"),
            UnixListener::bind(shelf.join("socket")).expect("it can be bound"),
            UnixListener::bind(daemon.join("run/aos.sock")).expect("it can be bound"),
        ];
        let pipe = shelf.join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o644.into(), 0)
            .expect("it can be made");
        let mut pipe = std::fs::File::options().read(true).write(true).open(pipe).expect("it is there");
        std::io::Write::write_all(&mut pipe, b"ESCAPED").expect("there is room");
        // Somebody in the daemon forgot to mark it.
        let leaked = std::fs::File::open(folder.path().join("secret")).expect("it is there");
        rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).expect("it is open");
        Host {
            folder,
            listener,
            names,
            _sockets: sockets,
            _terminal: terminal,
            terminal: name.into_string().expect("plain"),
            _pipe: pipe,
            _leaked: leaked,
            abstract_name,
        }
    }

    fn arguments(&self) -> [String; 8] {
        let path = |name: &str| self.folder.path().join(name).to_str().expect("plain").to_owned();
        let port = self.listener.local_addr().expect("it is bound").port();
        let names = self.names.local_addr().expect("it is bound").port().to_string();
        let me = std::process::id().to_string();
        let (terminal, name) = (self.terminal.clone(), self.abstract_name.clone());
        [path("secret"), port.to_string(), path("socket"), name, me, names, terminal, path("daemon")]
    }
}

/// A library that says so when it is loaded into a program; `None` where there is no compiler.
fn library() -> Option<&'static [u8]> {
    static BUILT: std::sync::OnceLock<Option<Vec<u8>>> = std::sync::OnceLock::new();
    let build = || {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = "#include <unistd.h>\n__attribute__((constructor)) static void loaded(void) \
            { if (write(1, \"ESCAPED\\n\", 8) < 0) _exit(9); }\n";
        std::fs::write(folder.path().join("evil.c"), source).expect("there is room");
        let mut cc = std::process::Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o", "evil.so", "evil.c"]).current_dir(folder.path());
        match cc.status() {
            Ok(status) => assert!(status.success(), "{cc:?}"),
            Err(_) => return None,
        }
        Some(std::fs::read(folder.path().join("evil.so")).expect("it was built"))
    };
    let built = BUILT.get_or_init(build).as_deref();
    if built.is_none() {
        rig::skipped("no compiler (cc) makes a library to plant");
    }
    built
}

/// Programs of the host by their names, as far as it has them.
fn granted(names: &str) -> Vec<PathBuf> {
    let find =
        |name| ["/usr/bin", "/bin", "/usr/sbin"].iter().map(|at| Path::new(at).join(name)).find(|at| at.exists());
    names.split_whitespace().filter_map(find).collect()
}

/// The programs with which a row is tried: all of the host, as few as it says, or a list as roles have it, with and without
/// what commands make themselves.
fn programs(how: &How) -> Vec<Programs> {
    const FEW: &str = "sh cat cp chmod env head";
    const MANY: &str = "sh bash awk cat chmod cp date env find git grep head id ionice kill ln ls mkdir mkfifo mknod mv nice \
        perl printf prlimit python3 renice rm sed sleep su sudo taskset tee test touch truncate true uname";
    match how {
        Narrow(_) => vec![Programs::Only(granted(FEW))],
        NarrowPy(_) => vec![Programs::Only(granted(&format!("{FEW} python3 perl bash")))],
        Sh(_) | Py(_) | Tight(_) | Late(_) | Races(_) => {
            vec![Programs::System, Programs::Only(granted(MANY)), Programs::AndOwn(granted(MANY))]
        }
    }
}

/// The words of a command line.
fn words(host: &Host, how: &How) -> Vec<String> {
    let python = |text: &str| format!("{}{PRELUDE}{text}", numbers());
    let argv: Vec<String> = match how {
        Sh(text) | Narrow(text) => ["sh", "-c", text, "sh"].map(str::to_owned).into(),
        Py(text) | NarrowPy(text) | Tight(text) | Late(text) | Races(text) => {
            vec!["/usr/bin/python3".into(), "-c".into(), python(text)]
        }
    };
    argv.into_iter().chain(host.arguments()).collect()
}

fn run(rig: &Rig, host: &Host, how: &How, programs: Programs, layer: Option<Layer>) -> Result<Outcome, Error> {
    let argv = words(host, how);
    let mut spec = rig.spec(&argv.iter().map(String::as_str).collect::<Vec<_>>());
    spec.layer = layer;
    let walls = matches!(rig.isolation, Isolation::Full);
    if walls {
        let shelf = host.folder.path().join("shelf").canonicalize().expect("it is there");
        spec.mounts.push(Mount { host: shelf, at: "/shelf".into(), access: Access::Read, is: None });
        let own = host.folder.path().join("daemon/run/certificates");
        spec.mounts.push(Mount { host: own, at: "/etc/certificates".into(), access: Access::Read, is: None });
    } else {
        // Counted with all that the user runs, a fork bomb of the test beside this one too.
        spec.limits.pids = 4096;
        // Bombs are to find that it is the limits which stop them elsewhere.
        (spec.limits.files, spec.limits.output) = (1024, 16 << 20);
    }
    if programs == Programs::System && matches!(how, Narrow(_) | NarrowPy(_)) {
        // As a control, in which some of what is started stays.
        spec.limits.wall = Duration::from_secs(10);
    }
    spec.programs = programs;
    match how {
        Tight(_) if walls => {
            (spec.limits.pids, spec.limits.memory, spec.limits.files) = (64, 256 << 20, 256);
            (spec.limits.disk, spec.limits.output) = (8 << 20, 1 << 20);
            spec.limits.wall = Duration::from_secs(60);
        }
        Late(_) => spec.limits.wall = SHORT,
        Races(_) => return raced(rig, host, &spec),
        _ => {}
    }
    go(&spec)
}

/// Runs a command that exchanges the folder `dir` for a link to a folder of the host's, while a commit puts something into
/// `dir` and so does somebody who looks at nothing.
fn raced(rig: &Rig, host: &Host, spec: &aos_sandbox::Spec) -> Result<Outcome, Error> {
    let aim = host.folder.path().join("aim");
    let layers = Room::new();
    let _ = std::fs::remove_file(aim.join("naive"));
    let (mut went, mut round) = (0, 0);
    let commit = |round: usize| -> Result<aos_sandbox::Committed, Error> {
        let layer = Layer::create(layers.path().join(round.to_string()))?;
        layer.write(&rig.path(), "dir/planted".as_ref(), b"x", None)?;
        layer.commit(&rig.path(), None, serde_json::Value::Null)
    };
    let mut out = std::thread::scope(|scope| {
        let running = scope.spawn(|| go(spec));
        while !running.is_finished() && (round < 200 || !aim.join("naive").exists()) {
            for _ in 0..20 {
                let _ = std::fs::write(rig.path().join("dir/naive"), "");
            }
            went += usize::from(commit(round).is_ok());
            round += 1;
        }
        std::fs::write(rig.path().join("over"), "").expect("there is room");
        running.join().expect("no panic")
    })?;
    if aim.join("planted").exists() {
        out.stdout.bytes.extend(b"ESCAPED: a commit went through a link");
    } else if !aim.join("naive").exists() || went == 0 {
        out.stdout.bytes.extend(format!("ESCAPED notice: no race in {round} rounds, {went} went").bytes());
    }
    Ok(out)
}

/// What is wrong with an attempt that is made with these programs.
fn faults(rig: &Rig, host: &Host, attempt: &Attempt, programs: &Programs) -> Vec<String> {
    let mut faults = Vec::new();
    let kind = match programs {
        Programs::System => "all programs",
        Programs::Only(_) => "granted programs",
        Programs::AndOwn(_) => "granted programs and its own",
    };
    let mut fault = |said: String| faults.push(format!("{} ({kind}): {said}", attempt.name));
    let python = !matches!(attempt.how, Sh(_) | Narrow(_));
    match run(rig, host, &attempt.how, programs.clone(), None) {
        Err(error) => fault(error.to_string()),
        Ok(out) => {
            let (stdout, stderr) = (out.stdout.text(), out.stderr.text());
            // An attack that breaks by itself proves nothing.
            let early = matches!(attempt.how, Late(_)) && !out.timed_out();
            if stdout.contains("ESCAPED") || (python && stderr.contains("Traceback")) || early {
                fault(format!("{stdout}{stderr}").chars().take(600).collect());
            }
        }
    }
    match run(rig, host, &Sh(attempt.beside), programs.clone(), None) {
        Ok(out) if out.stdout.text() == "ok\n" => {}
        other => fault(format!("beside it: {other:?}")),
    }
    faults
}

#[test]
fn no_attempt_gets_out_and_ordinary_work_goes_on() {
    let attempts = attempts();
    assert!(attempts.len() >= 60, "{} attempts", attempts.len());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failed = std::sync::Mutex::new(Vec::new());
    let host = Host::new();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(attempt) = attempts.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    for programs in programs(&attempt.how) {
                        // The workspace of one must not help the next.
                        let Some(rig) = rig() else { return };
                        failed.lock().expect("no panic").extend(faults(&rig, &host, attempt, &programs));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic");
    assert!(failed.is_empty(), "{failed:#?}");
    let secret = std::fs::read_to_string(host.folder.path().join("secret")).expect("it is there");
    assert_eq!(secret, "ESCAPED");
}

/// What a command leaves in its layer: only files, folders and links arrive, without set-id bits, under their own names.
#[test]
fn what_is_left_in_a_layer_cannot_hurt_whoever_looks_at_it() {
    let Some(rig) = rig() else { return };
    let host = Host::new();
    let folder = Room::new();
    std::os::unix::fs::symlink(host.folder.path(), rig.path().join("out")).expect("it can be made");
    let layer = Layer::create(folder.path().join("layer")).expect("it can be made");
    let attack = "mkfifo fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; cp /usr/bin/id sid; chmod 6755 sid; \
        echo x > out/planted; echo x > \"$(printf 'new\\nline')\"; echo x > ..x; echo x > -rf; ln -s ../../etc/passwd climbs; echo ok > plain";
    let out = run(&rig, &host, &Sh(attack), Programs::System, Some(layer.clone())).expect("it starts");
    let told: Vec<_> = out.left_out.iter().map(|left_out| left_out.path.to_string_lossy().into_owned()).collect();
    assert_eq!(told, ["fifo", "sid", "sock"], "{out:?}");
    let committed = layer.commit(&rig.path(), None, serde_json::Value::Null).expect("it commits");
    let names: Vec<_> = committed.changes().into_iter().map(|change| change.path).collect();
    for absent in ["fifo", "sock"] {
        assert!(!names.iter().any(|name| name.as_os_str() == absent) && !rig.path().join(absent).exists(), "{out:?}");
    }
    assert_eq!(rig.path().join("sid").metadata().expect("it was made").permissions().mode() & 0o7777, 0o755);
    assert!(!host.folder.path().join("planted").exists(), "through a link that was there before");
    for present in ["new\nline", "..x", "-rf", "plain", "climbs"] {
        assert!(rig.path().join(present).symlink_metadata().is_ok(), "{present:?}: {names:?} {out:?}");
    }
    assert!(names.iter().all(|name| !name.is_absolute() && !name.starts_with("..")), "{names:?}");
    committed.undo(serde_json::Value::Null).expect("nothing is in the way");
    assert_eq!(std::fs::read_dir(rig.path()).expect("it is there").count(), 1);
}

/// While a commit is made, the folder that it goes to is swapped for a link to the outside, as fast as can be.
#[test]
fn a_folder_swapped_for_a_link_during_commits_leads_nothing_out() {
    let Some(rig) = rig() else { return };
    let host = Host::new();
    let layers = Room::new();
    std::fs::create_dir(rig.path().join("dir")).expect("it can be made");
    std::os::unix::fs::symlink(host.folder.path(), rig.path().join("link")).expect("it can be made");
    let done = std::sync::atomic::AtomicBool::new(false);
    let (mut went, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let work = std::fs::File::open(rig.path()).expect("it is there");
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let swap = rustix::fs::RenameFlags::EXCHANGE;
                // A commit that replaces one of them has it out of the folder for a moment.
                match rustix::fs::renameat_with(&work, "dir", &work, "link", swap) {
                    Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                    Err(other) => panic!("the swap fails: {other}"),
                }
            }
        });
        for round in 0..200 {
            let layer = Layer::create(layers.path().join(round.to_string())).expect("it can be made");
            let written = layer.write(&rig.path(), "dir/planted".as_ref(), b"x", None);
            match written.and_then(|()| layer.commit(&rig.path(), None, serde_json::Value::Null)) {
                Ok(_) => went += 1,
                Err(_) => refused += 1,
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(went > 0, "{went} went, {refused} refused");
    assert!(!host.folder.path().join("planted").exists(), "{went} went, {refused} refused");
    assert_eq!(host.folder.path().metadata().expect("it is there").uid(), rig.path().metadata().expect("too").uid());
}

/// With doors: nothing but the doors. Nobody inside can stand in their place, lead packets elsewhere, or widen what is
/// let through.
#[test]
fn round_the_doors_there_is_nothing() {
    let Some(rig) = rig() else { return };
    let host = Host::new();
    let attacks = r#"
def route(family, kind, table, scope, bits, address):
    body = struct.pack('BBBBBBBBI', family, bits, 0, 0, table, 3, scope, kind, 0)
    body += struct.pack('HH', 4 + len(address), 1) + address + struct.pack('HHI', 8, 4, 1)
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.send(struct.pack('IHHII', 16 + len(body), 24, 0x405, 1, 0) + body)
    errno = struct.unpack('i', s.recv(256)[16:20])[0]
    if errno: raise OSError(-errno, 'refused')
tries(
    lambda: socket.create_connection(('127.0.0.1', PORT), 3),
    lambda: socket.create_connection(('192.0.2.1', 80), 3),
    lambda: socket.create_connection(('198.51.100.1', 443), 3),
    lambda: socket.create_connection(('2001:db8::1', 80), 3),
    lambda: socket.create_connection(('203.0.113.7', 81), 3),
    lambda: socket.create_connection(('8.8.8.8', 53), 3),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53)),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('169.254.169.254', 80)),
    lambda: socket.getaddrinfo('example.com', 80),
    lambda: socket.create_server(('127.0.0.1', 53)),
    lambda: socket.create_server(('198.18.0.1', 80)),
    lambda: socket.create_server(('203.0.113.7', 80), reuse_port=True),
    lambda: socket.create_server(('127.0.0.1', 3128), reuse_port=True),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(('127.0.0.1', 53)),
    lambda: socket.socket().setsockopt(0, 19, 1),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
    lambda: route(2, 2, 255, 254, 32, socket.inet_aton('192.0.2.1')),
    lambda: route(2, 1, 254, 253, 0, socket.inet_aton('0.0.0.0')))
s = socket.create_connection(('127.0.0.1', 3128), 5); s.close()
s = socket.create_connection(('203.0.113.7', 80), 5); print(s.recv(99).decode())
s = socket.create_connection(('198.19.255.254', 80), 5); print(s.recv(99).decode())"#;
    let program = format!("{PRELUDE}{attacks}");
    let arguments = host.arguments();
    let argv: Vec<&str> =
        ["/usr/bin/python3", "-c", &program].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let mut spec = rig.spec(&argv);
    spec.network = Network::Proxy;
    let mut server = ProxyServer::new(|doors| {
        // Whoever asks for names hears nothing, and no packet of theirs leaves.
        drop(doors.names);
        std::thread::spawn(move || doors.proxy.accept());
        for listener in doors.through {
            std::thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    let meant = stream.local_addr().expect("it is connected").ip().to_canonical();
                    let _ = std::io::Write::write_all(&mut stream, format!("meant {meant}").as_bytes());
                }
            });
        }
    });
    (server.ports, server.addresses) = (vec![80], vec!["203.0.113.7".parse().expect("an address")]);
    spec.proxy = Some(server);
    let out = go(&spec).expect("python starts");
    assert_eq!(out.stdout.text(), "meant 203.0.113.7\nmeant 198.19.255.254\n", "{out:?}");
}

#[test]
fn the_document_lists_every_attempt() {
    let document = include_str!("../../../../docs/sandbox.md");
    for attempt in attempts() {
        let row = format!("| {} | {} |", attempt.name, attempt.wall);
        assert!(document.contains(&row), "docs/sandbox.md lacks `{row}`");
    }
    let names: std::collections::BTreeSet<_> = attempts().into_iter().map(|attempt| attempt.name).collect();
    assert_eq!(names.len(), attempts().len(), "each has a name of its own");
}

/// The whole of this file once more as a user without any rights, when it runs as root.
#[test]
fn all_of_this_as_an_ordinary_user() {
    if rustix::process::geteuid().is_root() && rig().is_some() {
        rig::again_as_an_ordinary_user("all_of_this_as_an_ordinary_user");
    }
}
