//! The rig of the end-to-end tests: a home of its own, a scripted model over real HTTP, and the real program.
//!
//! Start at [`Rig::new`], then [`Rig::aos`] for a command, [`Rig::http`] for a request, [`until`] for whatever takes
//! time. What always holds: the environment is clean, everything is on loopback, every wait has a deadline, and every
//! process that has this home on its command line is gone when the rig is dropped, also after a panic.
//! Deliberately absent: the client under test. Requests here are a few lines over a plain socket.

#![allow(dead_code, reason = "each test file uses its own part of the furniture")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod script;
mod terminal;
mod wire;

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aos_models::config::Provider;
use aos_models::scripted::{Page, Rule, Script, Server};
use serde_json::Value;

#[allow(unused_imports, reason = "each test file uses its own part of the furniture")]
pub(crate) use script::{any, call, call_ids, calls, echo, last, regex, results, role, say, words, write};
#[allow(unused_imports, reason = "each test file uses its own part of the furniture")]
pub(crate) use terminal::Terminal;
#[allow(unused_imports, reason = "each test file uses its own part of the furniture")]
pub(crate) use wire::{Http, Sent, Sse};

use wire::exchange;

/// How long anything may take. Far more than it needs: no test measures time.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// How often something is looked at while it is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Everything that these tests need, allowed, and nothing else; `contracts/` asks a person.
pub(crate) const POLICY: &str = r#"
version: 1
default_role: assistant
limits:
  spawn: {depth: 4, children: 64}
roles:
  assistant:
    calls: [SPAWN_AGENT, SYS_SCHEDULE, ASK_USER, PROPOSE, "SYS_REGISTER_WEBHOOK hooks/**"]
    fs:
      - {path: "**", ops: [read, write, delete]}
      - {path: "contracts/**", ops: [write, delete], verdict: ask}
    memory:
      - {namespace: "self/**", ops: [read, write, forget]}
    ipc:
      - {peer: "*", ops: [send]}
"#;

/// Says that something was not tried because the host cannot isolate commands; a failure where that has to be tried.
pub(crate) fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
    let required = std::env::var_os("AOS_TEST_SANDBOX").is_some_and(|value| value == "required");
    assert!(!required, "{why}, and AOS_TEST_SANDBOX says that it is required");
}

/// What a home is made of before its daemon starts.
pub(crate) struct Setup {
    /// The text of `policy.yaml`; `None`: there is none.
    pub(crate) policy: Option<String>,
    /// Lines of `[models.small]` after `provider`, `base_url` and `model`.
    pub(crate) model: String,
    /// Whatever else stands in `aos.toml`.
    pub(crate) more: String,
    /// Where the model is; the scripted server if left out.
    pub(crate) base_url: Option<String>,
    /// What the model's server answers at other paths.
    pub(crate) pages: Vec<Page>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            policy: Some(POLICY.to_owned()),
            model: "context_window = 400000\nprice = { input = 1.0, output = 1.0 }\nlimits = { concurrency = 32 }\nlocal = true\n"
                .to_owned(),
            more: String::new(),
            base_url: None,
            pages: Vec::new(),
        }
    }
}

/// A home, its model and its daemon.
pub(crate) struct Rig {
    root: tempfile::TempDir,
    server: Server,
    // Dropped after the server, whose task it runs.
    runtime: tokio::runtime::Runtime,
}

impl Rig {
    /// A home whose model plays these rules; the first that matches answers.
    pub(crate) fn new(rules: Vec<Rule>) -> Rig {
        Rig::with(rules, Setup::default())
    }

    /// The same, made of `setup`.
    pub(crate) fn with(rules: Vec<Rule>, setup: Setup) -> Rig {
        let root = tempfile::Builder::new().prefix("aos-e2e-").tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(Server::start(Script { pages: setup.pages, ..Script::new(rules) })).unwrap();
        let rig = Rig { root, server, runtime };
        // What others can read is warned of at each start.
        fs::DirBuilder::new().mode(0o700).create(rig.home()).unwrap();
        let base_url = setup.base_url.unwrap_or_else(|| rig.server.base_url(Provider::Openai));
        let config = format!(
            "[daemon]\nlisten = \"127.0.0.1:0\"\n{}\n[models.small]\nprovider = \"openai\"\nbase_url = \"{base_url}\"\nmodel = \"scripted\"\n{}",
            setup.more, setup.model
        );
        fs::write(rig.file("aos.toml"), config).unwrap();
        if let Some(policy) = setup.policy {
            fs::write(rig.file("policy.yaml"), policy).unwrap();
        }
        rig
    }

    /// The home.
    pub(crate) fn home(&self) -> PathBuf {
        self.root.path().join("h")
    }

    /// A file of the home.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.home().join(path)
    }

    /// A fresh folder beside the home.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let path = self.root.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    }

    /// The program with a clean environment, not started yet.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_aos")), arguments)
    }

    /// The same with a copy of the program that every user can run: the folder it was built in may be one's own.
    pub(crate) fn command_for_anybody(&self, arguments: &[&str]) -> Command {
        let program = self.root.path().join("aos-for-anybody");
        if !program.exists() {
            std::fs::copy(env!("CARGO_BIN_EXE_aos"), &program).unwrap();
        }
        self.command_of(&program, arguments)
    }

    /// The same with this program.
    pub(crate) fn command_of(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.root.path())
            .env("AOS_HOME", self.home())
            .env("TERM", "dumb")
            // What computes for models waits for its threads by spinning, and other tests run beside it.
            .env("CANDLE_NUM_THREADS", "1")
            .current_dir(self.root.path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end.
    #[track_caller]
    pub(crate) fn aos(&self, arguments: &[&str]) -> Ran {
        self.start(arguments).end()
    }

    /// Runs a command with this on its standard input.
    #[track_caller]
    pub(crate) fn aos_fed(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped());
        let mut running = Running::new(command);
        let mut stdin = running.child.stdin.take().unwrap();
        // Its reader may stop early; that is for the test to judge by what it says.
        let _ = stdin.write_all(input);
        drop(stdin);
        running.end()
    }

    /// Starts a command.
    #[track_caller]
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::new(self.command(arguments))
    }

    /// Runs a command that must succeed, and reads the JSON document it prints.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let mut all = vec!["--json"];
        all.extend(arguments);
        let ran = self.aos(&all);
        assert_eq!(ran.code, 0, "aos {arguments:?}: {ran:?}");
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("aos {arguments:?}: {error}: {ran:?}"))
    }

    /// Starts a resident process; its pid.
    #[track_caller]
    pub(crate) fn spawn(&self, arguments: &[&str]) -> u64 {
        let mut all = vec!["spawn"];
        all.extend(arguments);
        let ran = self.aos(&all);
        assert_eq!(ran.code, 0, "aos {all:?}: {ran:?}");
        ran.out.trim().parse().unwrap_or_else(|_| panic!("no pid: {ran:?}"))
    }

    /// Makes the daemon run.
    #[track_caller]
    pub(crate) fn up(&self) {
        let ran = self.aos(&["up"]);
        assert_eq!(ran.code, 0, "{ran:?}\n{}", self.log());
    }

    /// Stops the daemon in good order.
    #[track_caller]
    pub(crate) fn down(&self) {
        let ran = self.aos(&["down"]);
        assert_eq!(ran.code, 0, "{ran:?}\n{}", self.log());
    }

    /// Stops the daemon in good order and waits until its process is over.
    #[track_caller]
    pub(crate) fn stop(&self) {
        let daemons = self.daemons();
        self.down();
        until("the daemon to be gone", || daemons.iter().all(|pid| is_over(*pid)).then_some(()));
    }

    /// Ends the daemon as a power cut would.
    pub(crate) fn kill_daemon(&self) {
        let daemons = self.daemons();
        for pid in &daemons {
            let _ = rustix::process::kill_process(*pid, rustix::process::Signal::KILL);
        }
        until("the daemon to be gone", || daemons.iter().all(|pid| is_over(*pid)).then_some(()));
    }

    /// The processes of this machine that have this home on their command line: its daemons.
    pub(crate) fn daemons(&self) -> Vec<rustix::process::Pid> {
        let home = self.home();
        let needle = home.as_os_str().as_encoded_bytes();
        let Ok(listing) = fs::read_dir("/proc") else { return Vec::new() };
        listing
            .flatten()
            .filter(|entry| {
                let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                line.split(|byte| *byte == 0).any(|word| word == needle)
            })
            .filter_map(|entry| rustix::process::Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
            .collect()
    }

    /// Whether this host can isolate a command of this home; said aloud where it cannot.
    pub(crate) fn isolates(&self) -> bool {
        let helper = aos_sandbox::Helper::new(env!("CARGO_BIN_EXE_aos"), [aos_sandbox::HELPER_SUBCOMMAND.into()]);
        let probe = aos_sandbox::probe(&helper, &self.home()).unwrap();
        for finding in probe.missing() {
            skipped(&format!("no {}: {:?}; {}", finding.feature, finding.state, finding.feature.remedy()));
        }
        probe.can_isolate()
    }

    /// What the daemon has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.file("logs/daemon.log")).unwrap_or_default()
    }

    /// A process as `aos inspect` shows it.
    #[track_caller]
    pub(crate) fn process(&self, pid: u64) -> Value {
        self.get(&format!("/v1/processes/{pid}"))
    }

    /// Waits for the state of a process, such as `exited`; the process.
    #[track_caller]
    pub(crate) fn until_state(&self, pid: u64, state: &str) -> Value {
        until(&format!("process {pid} to be {state}"), || {
            let process = self.process(pid);
            (process["state"] == state).then_some(process)
        })
    }

    /// Waits until a resident process has nothing to do.
    #[track_caller]
    pub(crate) fn until_idle(&self, pid: u64) -> Value {
        until(&format!("process {pid} to be idle"), || {
            let process = self.process(pid);
            (process["waiting_for"] == "stdin").then_some(process)
        })
    }

    /// Every entry of the journal.
    #[track_caller]
    pub(crate) fn journal(&self) -> Vec<Value> {
        let answer = self.http("GET", "/v1/admin/audit/export", None);
        assert_eq!(answer.status, 200, "{answer:?}");
        let entry = |line: &str| {
            let mut entry: Value = serde_json::from_str(line).unwrap();
            // What proves an entry is no part of it.
            entry.as_object_mut().unwrap().remove("hash");
            entry
        };
        answer.text().lines().map(entry).collect()
    }

    /// The entries of one process of one type.
    #[track_caller]
    pub(crate) fn entries(&self, pid: u64, kind: &str) -> Vec<Value> {
        self.journal().into_iter().filter(|entry| entry["pid"] == pid && entry["type"] == kind).collect()
    }

    /// The requests that reached the model, oldest first.
    pub(crate) fn requests(&self) -> Vec<Value> {
        let asked = self.server.requests().into_iter().filter(|request| !request.body.is_empty());
        asked.map(|request| serde_json::from_slice(&request.body).unwrap()).collect()
    }

    /// The requests that hold this text somewhere.
    pub(crate) fn requests_with(&self, text: &str) -> Vec<Value> {
        self.requests().into_iter().filter(|request| words(request).contains(text)).collect()
    }

    /// Where the scripted server is, as `host:port`.
    pub(crate) fn server_address(&self) -> String {
        self.server.address().to_string()
    }

    /// How many requests for an answer came.
    pub(crate) fn request_count(&self) -> u64 {
        self.server.count()
    }

    /// Asks over the socket, which needs no token; the document.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = self.http("GET", path, None);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    /// A request over the socket.
    #[track_caller]
    pub(crate) fn http(&self, method: &str, path: &str, body: Option<&Value>) -> Http {
        self.try_http(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}\n{}", self.log()))
    }

    /// The same, where the daemon may be away.
    pub(crate) fn try_http(&self, method: &str, path: &str, body: Option<&Value>) -> std::io::Result<Http> {
        let stream = UnixStream::connect(self.file("run/aos.sock"))?;
        stream.set_read_timeout(Some(DEADLINE))?;
        let body = body.map(Value::to_string);
        exchange(stream, method, path, &[], body.as_deref())
    }

    /// A request over TCP with these headers.
    #[track_caller]
    pub(crate) fn tcp(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Http {
        let stream = TcpStream::connect(self.listen()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        exchange(stream, method, path, headers, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Where the daemon listens now; another port after each start.
    #[track_caller]
    pub(crate) fn listen(&self) -> String {
        self.get("/v1/status")["listen"].as_str().unwrap().to_owned()
    }

    /// The token of the HTTP interface.
    pub(crate) fn token(&self) -> String {
        fs::read_to_string(self.file("run/token")).unwrap().trim().to_owned()
    }

    /// Events of `path`, after `last` where there is one.
    pub(crate) fn events(&self, path: &str, last: Option<u64>) -> Sse {
        let mut stream = UnixStream::connect(self.file("run/aos.sock")).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let last = last.map(|lsn| format!("Last-Event-ID: {lsn}\r\n")).unwrap_or_default();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n{last}\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.contains(" 200 "), "{path}: {line}");
        while line.trim() != "" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        Sse::new(reader)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the daemon's log\n{}", self.log());
        }
        // A command may be starting one just now, so it is looked for until none is found.
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            let daemons = self.daemons();
            for pid in &daemons {
                let _ = rustix::process::kill_process(*pid, rustix::process::Signal::KILL);
            }
            if daemons.is_empty() || Instant::now() > end {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Whether a process holds nothing any more. Its command line is gone before its files are closed, and one that nobody
/// has waited for stays as a zombie, whose threads may still be ending.
fn is_over(pid: rustix::process::Pid) -> bool {
    let folder = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let Ok(stat) = fs::read_to_string(folder.join("stat")) else { return true };
    let zombie = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']));
    zombie && fs::read_dir(folder.join("task")).map_or(0, Iterator::count) <= 1
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A command that runs. Dropped, it is ended.
pub(crate) struct Running {
    pub(crate) child: Child,
    out: Option<JoinHandle<Vec<u8>>>,
    err: Option<JoinHandle<Vec<u8>>>,
}

impl Running {
    #[track_caller]
    pub(crate) fn new(mut command: Command) -> Running {
        fn gather(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = from.read_to_end(&mut bytes);
                bytes
            })
        }
        let mut child = command.spawn().unwrap();
        let out = child.stdout.take().map(gather);
        let err = child.stderr.take().map(gather);
        Running { child, out, err }
    }

    /// A child that was started elsewhere, its streams taken or not wanted.
    pub(crate) fn of(child: Child) -> Running {
        Running { child, out: None, err: None }
    }

    /// Whether it has ended already.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ran {
        let end = Instant::now() + DEADLINE;
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if Instant::now() > end => break None,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        if status.is_none() {
            let _ = self.child.kill();
        }
        let text = |gathered: Option<JoinHandle<Vec<u8>>>| {
            String::from_utf8_lossy(&gathered.map(|thread| thread.join().unwrap()).unwrap_or_default()).into_owned()
        };
        let (out, err) = (text(self.out.take()), text(self.err.take()));
        let Some(status) = status else { panic!("it did not end\n--- stdout\n{out}\n--- stderr\n{err}") };
        use std::os::unix::process::ExitStatusExt as _;
        let code = status.code().unwrap_or_else(|| 1000 + status.signal().unwrap_or(0));
        Ran { code, out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Looks until there is something.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A command failed as the contract says: `error:`, then `why:` or `try:`, no panic and no backtrace.
#[track_caller]
pub(crate) fn assert_told(ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, code, "{ran:?}");
    assert!(ran.err.contains("error: "), "{ran:?}");
    for word in words {
        assert!(ran.err.contains(word), "`{word}` is not said: {ran:?}");
    }
    for never in ["panicked", "RUST_BACKTRACE", "has a fault in itself"] {
        assert!(!ran.err.contains(never), "{ran:?}");
    }
}

/// The content of a file.
#[track_caller]
pub(crate) fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref()).unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}
