//! Labels: where the content of a process's window came from (docs/decisions/0005).
//!
//! Start at [`Kernel::learns`]. What always holds: the labels of a process only grow, each growth is a fact before any
//! decision that follows from it, and what leaves a process carries its labels with it. A result's labels join when it
//! is shown: the calls beside it were written before anybody could see it. Deliberately absent: labels of single values;
//! what people gave, word by word, is in `given`.

use std::path::Path;

use aos_abi::entry::{Outcome, Requested, Verdict};
use aos_abi::process::Workspace;
use aos_abi::{Body, CallError, Name, Pid, Syscall};
use aos_policy::settings::{ExecNet, Mount};
use aos_policy::{Given, Labels, Permit};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::process::Process;
use crate::table::PageStore;
use crate::{InFlight, Kernel};

/// What a call at a driver reads that others may have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reads {
    /// Nothing of this system.
    Nothing,
    /// Files of its workspace.
    Files,
    /// Memory that is not its own.
    Memory,
}

/// A command under way, and what it may have fetched by the policy that holds.
pub(crate) struct Fetching {
    by: Pid,
    workspace: Workspace,
    role: String,
    labels: Labels,
}

/// Whether a memory namespace belongs to whoever names it.
fn is_own(namespace: Option<&String>) -> bool {
    aos_policy::namespace(namespace.map(String::as_str)).first() == Some(&"self")
}

/// What a call reads.
pub(crate) fn reads(call: &Syscall) -> Reads {
    match call {
        Syscall::MemRead(args) if !is_own(args.namespace.as_ref()) => Reads::Memory,
        _ => match call.name() {
            Name::FsRead | Name::FsList | Name::FsSearch | Name::FsEdit | Name::ExecCmd => Reads::Files,
            _ => Reads::Nothing,
        },
    }
}

/// Most values in what a quarantined child returns without a label: more could spell a text.
const VALUES_MAX: usize = 64;
/// Why a process ended, where the kernel alone chose the words.
const ENDS: [&str; 4] = ["answered", "SYS_EXIT", "killed", "ended by TERM after its last turn"];

/// How many values there are in one.
fn values(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
        Value::Array(items) => 1 + items.iter().map(values).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(values).sum::<usize>(),
    }
}

/// Whether a value can carry no words but those that were named beforehand: numbers, booleans, such words, and lists and
/// objects of them.
fn is_wordless(value: &Value, given: &Given<'_>) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(word) => given.names(word),
        Value::Array(items) => items.iter().all(|item| is_wordless(item, given)),
        Value::Object(fields) => fields.iter().all(|(key, value)| given.names(key) && is_wordless(value, given)),
    }
}

/// Whether one folder lies in the other: then they have files in common.
fn have_common(one: &str, other: &str) -> bool {
    Path::new(one).starts_with(other) || Path::new(other).starts_with(one)
}

/// The same of two workspaces.
fn are_common(one: &Workspace, other: &Workspace) -> bool {
    match (one, other) {
        (Workspace::Folder(one), Workspace::Folder(other)) => have_common(one, other),
        (one, other) => one == other,
    }
}

/// Whether a mount shows files of a folder. Where the person's home is, only the edge knows; then any folder may be the one.
fn is_mounted(mount: &Mount, folder: &str) -> bool {
    mount.host.starts_with('~') || have_common(&mount.host, folder)
}

/// The same as far as a folder's name tells: for what passes, any folder at all would be too much.
fn is_in_mount(mount: &Mount, folder: &str) -> bool {
    match mount.host.strip_prefix("~/") {
        Some(below) => format!("{folder}/").contains(&format!("/{}/", below.trim_end_matches('/'))),
        None => have_common(&mount.host, folder),
    }
}

/// What a driver says that its result carries: what a command was let reach is known only at its end.
pub(crate) fn told(outcome: &Outcome) -> Labels {
    said(outcome, "label").unwrap_or(Labels::NONE)
}

/// Where a command's driver says which labels of rules for files are on what was there, in case not all of them are.
pub const FOUND: &str = "labels_found";

/// The labels in a field of what came back; `None` where it is not there.
fn said(outcome: &Outcome, field: &str) -> Option<Labels> {
    let value = match outcome {
        Outcome::Success { result } => result,
        Outcome::Error { error } => error.partial.as_ref()?,
    };
    Some(value[field].as_str()?.split(", ").filter_map(Labels::named).fold(Labels::NONE, Labels::and))
}

impl<P: PageStore> Kernel<P> {
    /// What the window of a process carries.
    pub(crate) fn labels_of(&mut self, pid: Pid) -> Labels {
        self.table.get(pid).map(|process| process.labels).unwrap_or_default()
    }

    /// Content with these labels is in the window of a process from here on.
    pub(crate) fn learns(&mut self, pid: Pid, labels: Labels) {
        let before = self.labels_of(pid);
        let now = before.and(labels);
        if now == before {
            return;
        }
        self.fact(pid, Body::Labelled { labels: now.held().map(str::to_owned).collect() });
        self.with(pid, |process| process.labels = now);
    }

    /// Content with these labels will be shown to a process at its next turn.
    pub(crate) fn will_see(&mut self, pid: Pid, labels: Labels) {
        if !labels.is_empty() {
            self.with(pid, |process| process.incoming = process.incoming.and(labels));
        }
    }

    /// What a message of this process carries.
    pub(crate) fn labels_of_message(&mut self, from: Pid) -> Labels {
        let labels = self.labels_of(from);
        if labels.any_of(Labels::UNTRUSTED) { labels.and(Labels::MESSAGE) } else { labels }
    }

    /// What the end of a process carries.
    pub(crate) fn labels_of_end(&mut self, pid: Pid, result: &Value, reason: &str) -> Labels {
        let is_bare = |process: &Process| {
            let wordless = is_wordless(result, &process.subject().given);
            wordless && values(result) <= VALUES_MAX && ENDS.contains(&reason)
        };
        match self.table.get(pid) {
            // Such words can tell nobody what to do, but numbers can spell a key.
            Some(process) if process.quarantine && is_bare(process) => process.labels.without(Labels::UNTRUSTED),
            Some(process) if process.quarantine => process.labels.and(Labels::CHILD),
            Some(process) => process.labels,
            None => Labels::NONE,
        }
    }

    /// A call leaves for a driver: what it writes carries the labels of whoever writes it, and of what it is copied from.
    pub(crate) fn labels_leave(&mut self, pid: Pid, permit: &Permit) {
        let Some(process) = self.table.get(pid) else { return };
        let workspace = process.workspace.clone();
        // What a rule labels, or what was written under labels, is copied with its labels.
        let ruled = match permit.call() {
            Syscall::FsMove(args) => Some(self.policy.labels_of_files(&process.policy_role, &args.from)),
            // Of what a rule labels it may find nothing, which is known when it has come back.
            Syscall::ExecCmd(_) => Some(Labels::NONE),
            _ => None,
        };
        let copied = ruled.map_or(Labels::NONE, |ruled| ruled.and(self.labels_read(pid, Reads::Files)));
        let labels = match permit.call().name() {
            // That two names stand in a request does not say that one was to take the place of the other.
            Name::FsMove => self.labels_of(pid),
            _ => self.labels_of_call(pid, permit.call()),
        };
        let labels = labels.and(copied);
        if labels.is_empty() {
            return;
        }
        match permit.call() {
            Syscall::MemWrite(args) if !is_own(args.namespace.as_ref()) => {
                self.globals.memory = self.globals.memory.and(labels);
            }
            call => match call.name() {
                // What is taken away changes what a command does, too: the next file of a name that is looked for is taken.
                Name::FsWrite | Name::FsEdit | Name::FsMove | Name::FsDelete | Name::ExecCmd => {
                    self.mark_files(&workspace, labels);
                }
                _ => {}
            },
        }
    }

    /// A result came: a command may have written what it fetched, and what it found.
    pub(crate) fn labels_came(&mut self, pid: Pid, reads: Reads, told: Labels) {
        let workspace = self.table.get(pid).map(|process| process.workspace.clone());
        if let (Reads::Files, false, Some(workspace)) = (reads, told.is_empty(), workspace) {
            self.mark_files(&workspace, told);
        }
    }

    /// What a command that has come back found of what rules label: what its driver says, or else all of it.
    pub(crate) fn labels_found(&mut self, pid: Pid, call: usize, outcome: &Outcome) -> Labels {
        let Some(process) = self.table.get(pid) else { return Labels::NONE };
        if process.step.get(call).is_none_or(|call| call.made() != Name::ExecCmd.as_str()) {
            return Labels::NONE;
        }
        let ruled = self.policy.labels_of_files(&process.policy_role, ".");
        said(outcome, FOUND).map_or(ruled, |found| ruled.only(found))
    }

    /// What commands under way may have put into the files that a process reads, of what rules label there: they are in
    /// place before it is told what was found.
    pub(crate) fn labels_copying(&mut self, pid: Pid, reads: Reads) -> Labels {
        let Some(process) = self.table.get(pid).filter(|_| matches!(reads, Reads::Files)) else { return Labels::NONE };
        let workspace = process.workspace.clone();
        let there = self.fetching().into_iter().filter(|one| are_common(&workspace, &one.workspace));
        there.fold(Labels::NONE, |labels, one| labels.and(self.policy.labels_of_files(&one.role, ".")))
    }

    /// What the error of a call shows: why files could not be changed is said with names of what is there, of a folder that
    /// could not be taken away with those in it, and of a link with where it leads.
    pub(crate) fn labels_of_error(&mut self, pid: Pid, call: usize, reads: Reads, error: &CallError) -> Labels {
        let Some(process) = self.table.get(pid) else { return self.labels_read(pid, reads) };
        let made = process.step.get(call).and_then(|call| {
            let args = call.approved.as_ref().map_or(&call.args, |(_, open)| &open.args);
            Syscall::parse(call.made(), args).ok()
        });
        let (reads, taken) = match &made {
            Some(Syscall::FsWrite(_)) => (Reads::Files, None),
            Some(Syscall::FsDelete(args)) => (Reads::Files, Some(args.path.as_str())),
            Some(Syscall::FsMove(args)) => (Reads::Files, Some(args.from.as_str())),
            _ => (reads, None),
        };
        let leads_to = error.partial.as_ref().and_then(|partial| partial["leads_to"].as_str());
        let named = taken.into_iter().chain(leads_to);
        let ruled = named.map(|path| self.policy.labels_of_files(&process.policy_role, path));
        ruled.fold(Labels::NONE, Labels::and).and(self.labels_read(pid, reads))
    }

    /// Whether a request came to nothing before anything came back: its error is the daemon's own words.
    pub(crate) fn heard_nobody(&mut self, pid: Pid, call: usize, error: &CallError) -> bool {
        let call = self.table.get(pid).and_then(|process| process.step.get(call));
        let asks = |made: &str| [Name::NetFetch, Name::NetSend].iter().any(|name| name.as_str() == made);
        error.is_unheard() && call.is_some_and(|call| asks(call.made()))
    }

    /// A command was let reach something: what came of it may be seen in its files before its result is here.
    pub(crate) fn labels_reached(&mut self, pid: Pid, requested: &Requested) {
        let Some(process) = self.table.get(pid) else { return };
        let mut calls = process.step.iter().filter(|call| call.call_id == requested.call_id);
        let runs = calls.any(|call| call.made() == Name::ExecCmd.as_str());
        let reached = requested.requests.iter().any(|request| request.verdict == Verdict::Allow);
        if runs && (reached || requested.more > 0) {
            let workspace = process.workspace.clone();
            self.mark_files(&workspace, Labels::WEB);
        }
    }

    /// A call ends whose result will not come: what a command has fetched by then may be in its files.
    pub(crate) fn labels_lost(&mut self, pid: Pid, call: &str) {
        let Some(process) = self.table.get(pid).filter(|_| call == Name::ExecCmd.as_str()) else { return };
        let (workspace, role) = (process.workspace.clone(), process.policy_role.clone());
        self.mark_files(&workspace, self.labels_put(&role));
    }

    /// The commands that have not come back.
    pub(crate) fn fetching(&mut self) -> Vec<Fetching> {
        let calls = self.globals.in_flight.values().filter_map(|in_flight| match in_flight {
            InFlight::Call { by, call, reads: Reads::Files, .. } => Some((*by, *call)),
            InFlight::Call { .. } | InFlight::Infer { .. } | InFlight::Serve { .. } => None,
        });
        let commands = calls.collect::<Vec<_>>().into_iter().filter_map(|(by, call)| {
            let process = self.table.get(by)?;
            process.step.get(call).filter(|call| call.made() == Name::ExecCmd.as_str())?;
            let (workspace, role) = (process.workspace.clone(), process.policy_role.clone());
            Some(Fetching { by, labels: self.labels_put(&role), workspace, role })
        });
        commands.collect()
    }

    /// Another policy holds: what is in their files stays there, also where it would have let them fetch nothing of that.
    pub(crate) fn labels_stay(&mut self, fetching: Vec<Fetching>) {
        for Fetching { workspace, role, labels, .. } in fetching {
            if !labels.within(self.labels_put(&role)) {
                self.mark_files(&workspace, labels);
            }
        }
    }

    /// Something with these labels was put into a workspace.
    pub(crate) fn mark_files(&mut self, workspace: &Workspace, labels: Labels) {
        match workspace {
            Workspace::Home(owner) => {
                self.with(*owner, |owner| owner.files = owner.files.and(labels));
            }
            Workspace::Folder(path) => {
                let held = self.globals.folders.entry(path.clone()).or_default();
                *held = held.and(labels);
            }
        }
    }

    /// A person has looked at a folder: what agents left in it under untrusted content is the person's from here on.
    pub(crate) fn trusts(&mut self, path: &str) {
        self.globals.folders.retain(|folder, held| {
            if Path::new(folder).starts_with(path) {
                *held = held.without(Labels::UNTRUSTED);
            }
            !held.is_empty()
        });
    }

    /// The folder above this one that agents have left something in under untrusted content.
    pub(crate) fn marked_above(&self, path: &str) -> Option<&str> {
        let above = |folder: &str| folder != path && Path::new(path).starts_with(folder);
        let mut marked = self.globals.folders.iter().filter(|(_, held)| held.any_of(Labels::UNTRUSTED));
        marked.find(|(folder, _)| above(folder)).map(|(folder, _)| folder.as_str())
    }

    /// What the files of a process carry that are a copy of what another one sees, or of what lies somewhere: also what a
    /// command under way may have put there while they were copied.
    pub(crate) fn labels_of_copy(&mut self, pid: Pid, of: Option<Pid>, from: Option<&Workspace>) {
        let read = of.map_or(Labels::NONE, |of| self.labels_read(of, Reads::Files).and(self.labels_coming(of, None)));
        let there = from.map_or(Labels::NONE, |from| {
            let written = self.labels_in(from);
            written.and(self.labels_coming_to(None, |other| are_common(from, other)))
        });
        let labels = read.and(there);
        self.with(pid, |process| process.files = process.files.and(labels));
    }

    /// What the names of changed files carry: whoever writes a file chooses its name.
    pub(crate) fn labels_of_watch(&mut self, pid: Pid, watch_id: &str) -> Labels {
        let written = self.labels_read(pid, Reads::Files);
        let Some(process) = self.table.get(pid) else { return written };
        let path = process.watches.get(watch_id).map_or(".", |watch| watch.path.as_str());
        written.and(self.policy.labels_of_files(&process.policy_role, path))
    }

    /// What a call brings back beside what its rules say.
    pub(crate) fn labels_read(&mut self, pid: Pid, reads: Reads) -> Labels {
        match reads {
            Reads::Nothing => Labels::NONE,
            Reads::Memory => self.globals.memory,
            Reads::Files => {
                let Some(process) = self.table.get(pid) else { return Labels::NONE };
                let workspace = process.workspace.clone();
                let mounts = self.policy.mounts_of(&process.policy_role);
                let mounted = self.labels_of_folders(|other| mounts.iter().any(|mount| is_mounted(mount, other)));
                mounted.and(self.labels_in(&workspace))
            }
        }
    }

    /// What the files of a workspace carry.
    fn labels_in(&mut self, workspace: &Workspace) -> Labels {
        match workspace {
            // What was known of them went with a process that was pruned.
            Workspace::Home(owner) => self.table.get(*owner).map_or(Labels::WEB, |owner| owner.files),
            Workspace::Folder(path) => self.labels_of_folders(|other| have_common(path, other)),
        }
    }

    /// What a listing shows beside what its own rules say: names, each of which a rule about what lies there may label.
    pub(crate) fn labels_shown(&mut self, pid: Pid, permit: &Permit) -> Labels {
        match (permit.call(), self.table.get(pid)) {
            (Syscall::FsList(args), Some(process)) => {
                self.policy.labels_of_names(&process.policy_role, args.path.as_deref().unwrap_or("."))
            }
            _ => Labels::NONE,
        }
    }

    /// What the files carry that a command runs: what they hold, and what another's command may be fetching into them now,
    /// since the one waits for the other's end.
    pub(crate) fn labels_run(&mut self, pid: Pid) -> Labels {
        let held = self.labels_read(pid, Reads::Files);
        held.and(self.labels_coming(pid, Some(pid)))
    }

    /// What commands under way, but for those of `except`, may be fetching into files that a process reads.
    fn labels_coming(&mut self, pid: Pid, except: Option<Pid>) -> Labels {
        let Some(process) = self.table.get(pid) else { return Labels::NONE };
        let workspace = process.workspace.clone();
        let mounts = self.policy.mounts_of(&process.policy_role).to_vec();
        self.labels_coming_to(except, |other| {
            let mounted = |other: &str| mounts.iter().any(|mount| is_in_mount(mount, other));
            are_common(&workspace, other) || matches!(other, Workspace::Folder(folder) if mounted(folder))
        })
    }

    fn labels_coming_to(&mut self, except: Option<Pid>, here: impl Fn(&Workspace) -> bool) -> Labels {
        let others = self.fetching().into_iter().filter(|one| Some(one.by) != except && here(&one.workspace));
        others.fold(Labels::NONE, |labels, one| labels.and(one.labels))
    }

    /// What a command of this role may put into its files: what it fetches, and what it finds.
    fn labels_put(&self, role: &str) -> Labels {
        self.labels_fetched(role).and(self.policy.labels_of_files(role, "."))
    }

    /// What a command of this role may fetch.
    fn labels_fetched(&self, role: &str) -> Labels {
        let exec = self.policy.role(role).and_then(|role| role.exec.as_ref());
        match exec.is_some_and(|exec| exec.net == ExecNet::Rules) {
            true => self.policy.labels_of_answers(role),
            false => Labels::NONE,
        }
    }

    /// What a command may send of the files that rules label. That a rule calls a file untrusted says nothing of who steers
    /// the command.
    pub(crate) fn labels_sent(&mut self, pid: Pid) -> Labels {
        let Some(process) = self.table.get(pid) else { return Labels::NONE };
        self.policy.labels_of_files(&process.policy_role, ".").without(Labels::UNTRUSTED)
    }

    pub(crate) fn labels_of_folders(&self, which: impl Fn(&str) -> bool) -> Labels {
        let folders = self.globals.folders.iter().filter(|(folder, _)| which(folder));
        folders.fold(Labels::NONE, |labels, (_, held)| labels.and(*held))
    }
}
