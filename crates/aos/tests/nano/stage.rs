//! A home with aos-nano, where tasks are set up and played by the real daemon.
//!
//! Start at [`Stage::play`]. What always holds: each process has a folder and a memory of its own, the agents of a task
//! have the pids that it says, nothing is asked of a person, and whatever a task started is ended with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aos_abi::{EffectId, Lsn, Pid, Timestamp};
use aos_memory::{MemoryStore as _, Note, Source, WordStore};
use aos_models::scripted::Rule;
use serde_json::{Value, json};

use super::journal::{Told, descendants, played};
use super::judge::Played;
use super::pages::Pages;
use super::rig::{Rig, Setup, any, say, until};
use super::task::{Memory, Task};

/// How long a task may take; a helper it waits for; a sleep that is waited for.
const TASK: Duration = Duration::from_secs(50);
const HELPER: Duration = Duration::from_secs(15);
const NAP: Duration = Duration::from_secs(5);
/// The most calls of a task.
const CALLS: u64 = 16;
/// The first pid that a daemon gives.
const FIRST_PID: u64 = 2;

/// All that the tasks need, without a question. Any address may be fetched, so that helpers can be given that; the
/// configuration keeps all of it at the server.
fn policy(server: &str) -> String {
    format!(
        r#"
version: 1
default_role: assistant
limits:
  spawn: {{depth: 4, children: 64}}
roles:
  assistant:
    calls: [SPAWN_AGENT, SYS_SCHEDULE, ASK_USER, PROPOSE, "SYS_REGISTER_WEBHOOK hooks/**"]
    fs:
      - {{path: "**", ops: [read, write, delete]}}
    exec:
      shell: true
      programs: [sh, bash, coreutils, which, find, xargs, grep, sed, awk, diffutils, tar, gzip, python3]
      net: none
    net:
      - {{to: "**:*", allow: ["GET /**"]}}
      - {{to: "{server}", allow: ["GET /**", "POST /**", "PUT /**", "PATCH /**", "DELETE /**"], private: true}}
    memory:
      - {{namespace: "self/**", ops: [read, write, forget]}}
    ipc:
      - {{peer: "*", ops: [send]}}
"#
    )
}

/// Who plays.
pub(crate) enum Player<'a> {
    /// These weights, in the daemon.
    Nano(&'a [u8]),
    /// The scripted model.
    Script(Vec<Rule>),
}

/// The home, its daemon and its web server.
pub(crate) struct Stage {
    pub(crate) rig: Rig,
    memory: WordStore,
    /// The configured model that plays.
    model: &'static str,
    /// Held while a process is started, so that the next pid is known; how many memories were set up.
    starting: Mutex<u64>,
}

impl Stage {
    /// Starts a daemon with this player, and the agents of these tasks under their pids.
    pub(crate) fn open(player: Player<'_>, pages: &Pages, tasks: &[Task]) -> Stage {
        let more = format!(
            "default_model = \"small\"\n[net]\nprivate = [\"{}\"]\n[models.nano]\nprovider = \"local\"\n\
             model = \"nano\"\ncontext_window = 16384\nmax_output = 400\n",
            pages.address
        );
        let setup = Setup { policy: Some(policy(&pages.address)), more, ..Setup::default() };
        let (model, weights, mut rules) = match player {
            Player::Nano(weights) => ("nano", weights, vec![]),
            Player::Script(rules) => ("small", [].as_slice(), rules),
        };
        rules.push(any("", vec![say("noted")]));
        let rig = Rig::with(rules, setup);
        fs::create_dir(rig.file("models")).unwrap();
        fs::write(rig.file("models/nano.gguf"), weights).unwrap();
        rig.up();
        for (address, body) in tasks.iter().flat_map(|task| &task.setup.pages) {
            pages.add(address, body);
        }
        let memory = WordStore::open(&rig.file("memory/memory.db")).unwrap();
        let stage = Stage { rig, memory, model, starting: Mutex::new(0) };
        stage.place_agents(tasks);
        stage
    }

    /// Makes the agents that are to be written to. A pid of several tasks goes by the name of the first, and a name
    /// belongs to one pid; the tasks go by the pids. What a task is to call its helper nobody else is called, unless a task
    /// names them so.
    fn place_agents(&self, tasks: &[Task]) {
        let mut names = BTreeMap::<u64, Option<&str>>::new();
        let mut used = BTreeSet::new();
        let mut agents: Vec<_> =
            tasks.iter().flat_map(|task| task.setup.agents.iter().map(move |one| (task, one))).collect();
        let said = |task: &Task, name: &str| task.task.contains(name);
        agents.sort_by_key(|(task, agent)| !said(task, &agent.name));
        let of_helpers: BTreeSet<&str> = tasks.iter().flat_map(names_of_helpers).collect();
        for (task, agent) in agents {
            let name = names.entry(agent.pid).or_default();
            let free = said(task, &agent.name) || !of_helpers.contains(&*agent.name);
            if name.is_none() && free && used.insert(&agent.name) {
                *name = Some(&agent.name);
            }
        }
        for pid in FIRST_PID..=names.keys().next_back().copied().unwrap_or(0) {
            let name = names.get(&pid);
            let idle = json!({ "role": "You wait.", "model": "small", "name": name.copied().flatten() });
            assert_eq!(self.start(&idle), pid, "pids are given one after the other");
            if name.is_none() {
                self.end(pid);
            }
        }
    }

    fn start(&self, request: &Value) -> u64 {
        let answer = self.rig.http("POST", "/v1/processes", Some(request));
        assert!(answer.status < 300, "no process was started: {}", answer.status);
        answer.json()["pid"].as_u64().unwrap()
    }

    fn end(&self, pid: u64) {
        // It may have ended by itself.
        let _ = self.rig.http("DELETE", &format!("/v1/processes/{pid}"), None);
        self.rig.until_state(pid, "exited");
    }

    fn starting(&self) -> MutexGuard<'_, u64> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a task up, plays it to its end and says what was done; `after` is the last entry seen, and is moved on.
    pub(crate) fn play(&self, task: &Task, after: &mut u64) -> Played {
        let folder = self.rig.folder(&format!("{}-{}", task.kind, task.id));
        for (path, content) in &task.setup.files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let request = json!({
            "task": task.task, "mode": "one_shot", "model": self.model, "workspace": folder, "budget": { "calls": CALLS },
        });
        let (pid, memories) = self.start_with(&request, &task.setup.memory);
        self.until_over(pid);
        self.end(pid);
        let mut entries = self.entries(after);
        for helper in descendants(&entries, pid) {
            self.end(helper);
        }
        entries.extend(self.entries(after));
        let Told { calls, said, of_helpers } = played(&entries, pid);
        Played { calls, said, of_helpers, memories, files: files_of(&folder) }
    }

    /// Starts a process that remembers this; its pid, and the keys by their ids. Memory belongs to a pid, so it is
    /// written for the next one; where something else was started just then, it is tried again.
    fn start_with(&self, request: &Value, memories: &[Memory]) -> (u64, BTreeMap<String, String>) {
        let mut written = self.starting();
        if memories.is_empty() {
            return (self.start(request), BTreeMap::new());
        }
        loop {
            let before = self.start(&json!({ "role": "You wait.", "model": "small" }));
            self.end(before);
            let mut keys = BTreeMap::new();
            for memory in memories {
                *written += 1;
                keys.insert(self.remember(before + 1, memory, *written), memory.key.clone());
            }
            let pid = self.start(request);
            if pid == before + 1 {
                return (pid, keys);
            }
            self.end(pid);
        }
    }

    fn remember(&self, pid: u64, memory: &Memory, nth: u64) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let note = Note {
            namespace: format!("self/{pid}"),
            key: memory.key.clone(),
            value: memory.value.clone(),
            tags: BTreeSet::new(),
            labels: BTreeSet::new(),
            ttl_s: None,
            source: Source { pid: Pid::INIT, lsn: Lsn::ZERO },
            // Far from those that the daemon gives.
            effect: EffectId { cause: Lsn((1 << 48) + nth), nth: 0 },
        };
        self.memory.write(&note, Timestamp(i64::try_from(now).unwrap())).unwrap()
    }

    /// Waits until a process has exited, waits for somebody, or has used up its time.
    fn until_over(&self, pid: u64) {
        let begun = Instant::now();
        let mut since: Option<(String, Instant)> = None;
        until("a task to be over", || {
            let process = self.rig.process(pid);
            let state = process["state"].as_str().unwrap_or_default();
            let waits = format!("{state} {}", process["waiting_for"].as_str().unwrap_or_default());
            if since.as_ref().is_none_or(|(before, _)| *before != waits) {
                since = Some((waits.clone(), Instant::now()));
            }
            let long = |most: Duration| since.as_ref().is_some_and(|(_, at)| at.elapsed() > most);
            let is_over = match waits.as_str() {
                "blocked child" => long(HELPER),
                "blocked model" => false,
                _ if state == "sleeping" => long(NAP),
                _ => matches!(state, "exited" | "stopped" | "blocked"),
            };
            (is_over || begun.elapsed() > TASK).then_some(())
        });
    }

    /// The entries after the last one seen.
    fn entries(&self, after: &mut u64) -> Vec<Value> {
        let answer = self.rig.http("GET", &format!("/v1/admin/audit/export?after={after}"), None);
        assert_eq!(answer.status, 200, "the journal could not be read");
        let entries: Vec<Value> = answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        *after = entries.last().and_then(|entry| entry["lsn"].as_u64()).unwrap_or(*after);
        entries
    }
}

/// What a task is to call its helpers.
fn names_of_helpers(task: &Task) -> impl Iterator<Item = &str> {
    let calls = task.expect.calls.iter().chain(task.expect.calls_any.iter().flatten());
    calls.filter(|(name, _)| name == "SPAWN_AGENT").filter_map(|(_, args)| args.get("name")?.as_str())
}

/// Every file below a folder by its path in it.
fn files_of(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let content = fs::read(entry.path()).unwrap_or_default();
            let path = entry.path().strip_prefix(folder).unwrap().to_string_lossy().into_owned();
            found.insert(path, String::from_utf8_lossy(&content).into_owned());
        }
    }
    found
}
