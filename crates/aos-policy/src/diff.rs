//! Differences: what a new policy makes possible and impossible, with a call that shows each.
//!
//! Start at [`diff`]. Each scope that either file names is turned into sample calls and judged under both: the scope's
//! own witnesses, and where it meets each other rule about the same action. That finds every difference between files
//! whose rules differ; a difference that only a meeting of three rules shows can be missed, so this is for people who
//! read a change, not a proof that two files are equal.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use aos_abi::Name;
use aos_abi::entry::Verdict;

use crate::child::samples;
use crate::decide::{by_role_alone, narrowest};
use crate::policy::{LabelRule, Policy, Tables};
use crate::scope::Scope;
use crate::settings::{Exec, ExecNet, Mount};
use crate::target::{Action, Kind, Target, kind};
use crate::terms::Obligations;

/// One call that the two policies judge differently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// The role.
    pub role: String,
    /// The call, in the form of a grant, such as `FS_WRITE docs/x`; of a command with its line, such as `EXEC_CMD git`.
    pub example: String,
    /// What the old policy says.
    pub old: Verdict,
    /// What the new policy says.
    pub new: Verdict,
    /// The rule of the old policy that decides.
    pub old_rule: String,
    /// The rule of the new policy that decides.
    pub new_rule: String,
}

impl Change {
    /// Whether the new policy allows more.
    #[must_use]
    pub fn loosens(&self) -> bool {
        self.new > self.old
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.loosens() { '+' } else { '-' };
        let (old, new) = (self.old.as_str(), self.new.as_str());
        write!(f, "{sign} {}: {} was {old} ({}), is {new} ({})", self.role, self.example, self.old_rule, self.new_rule)
    }
}

/// A part of the files that differs in what no example shows, such as `limits` or `role a: exec`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which.
    pub name: String,
    /// What came and what went, where it is named one by one.
    pub changes: Vec<String>,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.changes[..] {
            [] => f.write_str(&self.name),
            changes => write!(f, "{}: {}", self.name, changes.join("; ")),
        }
    }
}

/// What changes from one policy to another, for a window without labels: one example for each pair of deciding rules, and of
/// requests for each method.
#[must_use]
pub fn diff(old: &Policy, new: &Policy) -> Vec<Change> {
    let (old, new) = (old.tables(), new.tables());
    let mut names: Vec<&String> = old.roles.keys().chain(new.roles.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let mut changes = Vec::new();
    for role in names {
        mounts_of(old, new, role, &mut changes);
        let actions = Name::ALL.iter().map(|name| Action::of(*name)).chain([Action::MOVE_TO]);
        for action in actions.filter(|action| kind(action.name()) != Kind::Always) {
            changes_of(old, new, role, action, &mut changes);
        }
    }
    changes
}

/// The parts of the files that differ in what no verdict shows, such as `labels` or `role a: exec`: [`diff`] has no example of
/// these, or not of all that is in them.
#[must_use]
pub fn beside(old: &Policy, new: &Policy) -> Vec<Part> {
    let (old, new) = (old.tables(), new.tables());
    let mut parts = Vec::new();
    let mut differs = |differs: bool, name: &str| {
        if differs {
            parts.push(Part { name: name.to_owned(), changes: Vec::new() });
        }
    };
    differs(old.default_role != new.default_role, "default_role");
    differs(old.limits != new.limits, "limits");
    differs(old.proposals != new.proposals, "proposals");
    differs(old.personal_data != new.personal_data, "personal_data");
    for (name, before) in &old.roles {
        let Some(after) = new.roles.get(name) else { continue };
        differs(before.models != after.models, &format!("role {name}: models"));
        differs(before.budget != after.budget, &format!("role {name}: budget"));
        differs(before.secrets != after.secrets, &format!("role {name}: secrets"));
        let bound = Name::ALL.iter().map(|name| Action::of(*name)).chain([Action::MOVE_TO]);
        let bound = bound.filter(|action| is_bound_otherwise(old, new, name, *action));
        let mut calls: Vec<&str> = bound.map(|action| action.name().as_str()).collect();
        calls.dedup();
        let calls_name = format!("role {name}: undo, window, rate, redact or label of {}", calls.join(", "));
        differs(!calls.is_empty(), &calls_name);
    }
    let mut named = |name: String, changes: Vec<String>| {
        if !changes.is_empty() {
            parts.push(Part { name, changes });
        }
    };
    named("labels".to_owned(), labels_of(old, new));
    // A role that is in one file alone has its programs there as well.
    for name in old.roles.keys().chain(new.roles.keys().filter(|name| !old.roles.contains_key(*name))) {
        let exec = |tables: &Tables| tables.roles.get(name).and_then(|role| role.exec.clone());
        named(format!("role {name}: exec"), exec_of(exec(old).as_ref(), exec(new).as_ref()));
    }
    parts
}

/// The rules of `labels` that came and went, in the words of their file.
fn labels_of(old: &Tables, new: &Tables) -> Vec<String> {
    // One that is about calls and about models stands in both tables under one name.
    let rules = |tables: &'_ Tables| -> Vec<(LabelRule, bool)> {
        let named = |rules: &[LabelRule], name: &str| rules.iter().any(|rule| &*rule.name == name);
        let calls = tables.labels.iter().map(|rule| (rule.clone(), named(&tables.flows, &rule.name)));
        let models = tables.flows.iter().filter(|rule| !named(&tables.labels, &rule.name));
        calls.chain(models.map(|rule| (rule.clone(), true))).collect()
    };
    let says = |(rule, to_models): &(LabelRule, bool)| (rule.when, rule.calls, rule.terms.clone(), *to_models);
    let (before, after) = (rules(old), rules(new));
    let beyond = |what: &'static str, has: &[(LabelRule, bool)], other: &[(LabelRule, bool)]| -> Vec<String> {
        let beyond = has.iter().filter(|rule| !other.iter().any(|one| says(one) == says(rule)));
        beyond.map(|(rule, _)| format!("{what} is {{{}}}", rule.words)).collect()
    };
    [beyond("gone", &before, &after), beyond("new", &after, &before)].concat()
}

/// The programs that came and went, and whether the shell and which network did.
fn exec_of(old: Option<&Exec>, new: Option<&Exec>) -> Vec<String> {
    let programs = |exec: Option<&'_ Exec>| exec.map(|exec| exec.programs.clone()).unwrap_or_default();
    let (before, after) = (programs(old), programs(new));
    let beyond = |what: &str, has: &[String], other: &[String]| {
        let names: Vec<&str> = has.iter().filter(|name| !other.contains(name)).map(String::as_str).collect();
        (!names.is_empty()).then(|| format!("{what}: {}", names.join(", ")))
    };
    let shell = |exec: Option<&Exec>| exec.is_some_and(|exec| exec.shell);
    let net = |exec: Option<&Exec>| match exec.map(|exec| exec.net) {
        Some(ExecNet::Rules) => "rules",
        Some(ExecNet::Closed) | None => "none",
    };
    let shells = (shell(old) != shell(new)).then(|| format!("`shell` was {}, is {}", shell(old), shell(new)));
    let nets = (net(old) != net(new)).then(|| format!("`net` was {}, is {}", net(old), net(new)));
    let gone = beyond("programs gone", &before, &after);
    let come = beyond("programs new", &after, &before);
    [gone, come, shells, nets].into_iter().flatten().collect()
}

/// Whether some call of a role has the same verdict under other obligations.
fn is_bound_otherwise(old: &Tables, new: &Tables, role: &str, action: Action) -> bool {
    // A rate's rule is named by its place in the file.
    let duties = |tables: &Tables, target: &Target<'_>| {
        let said = by_role_alone(tables, role, action, target);
        let rates: BTreeSet<(u64, u64)> = said.obligations.rates.iter().map(|rate| (rate.count, rate.per_s)).collect();
        (said.verdict, Obligations { rates: BTreeSet::new(), ..said.obligations }, rates)
    };
    samples(action, &scopes(old, new, role, action)).iter().any(|target| {
        let (before, after) = (duties(old, target), duties(new, target));
        before.0 == after.0 && before.0 > Verdict::Deny && before != after
    })
}

/// Whose files a path leads to is another matter than whether it may be read.
fn mounts_of(old: &Tables, new: &Tables, role: &str, changes: &mut Vec<Change>) {
    let of = |tables: &Tables| tables.roles.get(role).map(|role| role.mounts.clone()).unwrap_or_default();
    let (old, new) = (of(old), of(new));
    let has =
        |mounts: &[Mount], mount: &Mount| mounts.iter().any(|one| (&one.at, &one.host) == (&mount.at, &mount.host));
    let change = |mount: &Mount, [old, new]: [(Verdict, &str); 2]| Change {
        role: role.to_owned(),
        example: format!("FS_READ {}/** of {}", mount.at, mount.host),
        old: old.0,
        new: new.0,
        old_rule: old.1.to_owned(),
        new_rule: new.1.to_owned(),
    };
    let none = (Verdict::Deny, "not mounted");
    let gone = old.iter().filter(|mount| !has(&new, mount));
    changes.extend(gone.map(|mount| change(mount, [(Verdict::Allow, &mount.rule), none])));
    let come = new.iter().filter(|mount| !has(&old, mount));
    changes.extend(come.map(|mount| change(mount, [none, (Verdict::Allow, &mount.rule)])));
}

/// What either file's rules for an action are about.
fn scopes<'t>(old: &'t Tables, new: &'t Tables, role: &str, action: Action) -> Vec<&'t Scope> {
    let roles = [old, new].into_iter().filter_map(|tables| tables.roles.get(role));
    roles.flat_map(|role| role.table(action).rules()).map(|rule| &rule.scope).collect()
}

fn changes_of(old: &Tables, new: &Tables, role: &str, action: Action, changes: &mut Vec<Change>) {
    let scopes = scopes(old, new, role, action);
    let mut found: BTreeMap<(String, String, u8), Change> = BTreeMap::new();
    for target in samples(action, &scopes) {
        let (before, after) = (by_role_alone(old, role, action, &target), by_role_alone(new, role, action, &target));
        if before.verdict == after.verdict {
            continue;
        }
        // One rule names several methods, and to see that something can be posted tells nothing of what can be deleted.
        let method = if let Target::Net { method, .. } = &target { *method } else { 0 };
        found.entry((before.rule.clone(), after.rule.clone(), method)).or_insert_with(|| Change {
            role: role.to_owned(),
            example: match &target {
                Target::Command(line) => format!("{} {line}", action.name()),
                target => narrowest(action, target),
            },
            old: before.verdict,
            new: after.verdict,
            old_rule: before.rule,
            new_rule: after.rule,
        });
    }
    for change in found.into_values() {
        // Where a call goes from and where it goes to are two actions, and often one sentence.
        if !changes.contains(&change) {
            changes.push(change);
        }
    }
}
