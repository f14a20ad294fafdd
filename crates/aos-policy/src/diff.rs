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
use crate::policy::{Policy, Tables};
use crate::scope::Scope;
use crate::settings::Mount;
use crate::target::{Action, Kind, Target, kind};
use crate::terms::Obligations;

/// One call that the two policies judge differently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// The role.
    pub role: String,
    /// The call, in the form of a grant, such as `FS_WRITE docs/x`.
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

/// What changes from one policy to another, for a window without labels: one example for each pair of deciding rules.
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
/// these.
#[must_use]
pub fn beside(old: &Policy, new: &Policy) -> Vec<String> {
    let (old, new) = (old.tables(), new.tables());
    let mut parts = Vec::new();
    let mut differs = |differs: bool, part: &dyn Fn() -> String| {
        if differs {
            parts.push(part());
        }
    };
    let rules = |tables: &Tables| -> Vec<_> {
        let all = tables.labels.iter().chain(&tables.flows);
        all.map(|rule| (rule.when, rule.calls, rule.terms.clone())).collect()
    };
    let (before, after) = (rules(old), rules(new));
    let lacks = |one: &[_], other: &[_]| one.iter().any(|rule| !other.contains(rule));
    differs(old.default_role != new.default_role, &|| "default_role".into());
    differs(lacks(&before, &after) || lacks(&after, &before), &|| "labels".into());
    differs(old.limits != new.limits, &|| "limits".into());
    differs(old.proposals != new.proposals, &|| "proposals".into());
    differs(old.personal_data != new.personal_data, &|| "personal_data".into());
    for (name, before) in &old.roles {
        let Some(after) = new.roles.get(name) else { continue };
        differs(before.exec != after.exec, &|| format!("role {name}: exec"));
        differs(before.models != after.models, &|| format!("role {name}: models"));
        differs(before.budget != after.budget, &|| format!("role {name}: budget"));
        differs(before.secrets != after.secrets, &|| format!("role {name}: secrets"));
        let bound = Name::ALL.iter().map(|name| Action::of(*name)).chain([Action::MOVE_TO]);
        let mut calls: Vec<Name> =
            bound.filter(|action| is_bound_otherwise(old, new, name, *action)).map(Action::name).collect();
        calls.dedup();
        differs(!calls.is_empty(), &|| {
            let calls: Vec<_> = calls.iter().map(|name| name.as_str()).collect();
            format!("role {name}: undo, window, rate, redact or label of {}", calls.join(", "))
        });
    }
    parts
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
    let mut found: BTreeMap<(String, String), Change> = BTreeMap::new();
    for target in samples(action, &scopes) {
        let (before, after) = (by_role_alone(old, role, action, &target), by_role_alone(new, role, action, &target));
        if before.verdict == after.verdict {
            continue;
        }
        found.entry((before.rule.clone(), after.rule.clone())).or_insert_with(|| Change {
            role: role.to_owned(),
            example: narrowest(action, &target),
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
