//! Decisions of the past, made again under two policies: which of them another policy would turn round.
//!
//! Start at [`Turned::find`]. The journal is read from its end backwards, a chunk at a time, and nothing of it is kept but
//! counts and the newest examples. What always holds: a call is judged as what it was, with the role, the grants and the
//! labels that were recorded for its process, and both policies judge the same, so that whatever is no matter of a policy's
//! text (rates, approvals, a person's own words) turns nothing. Deliberately absent: any change to the journal, and a guess
//! where something is gone; that is counted.

use std::collections::HashMap;
use std::fmt;

use aos_abi::entry::Verdict;
use aos_abi::process::SpawnSpec;
use aos_abi::syscall::Kill;
use aos_abi::{Body, CallId, Entry, Lsn, Pid, Syscall, Timestamp};
use aos_journal::{Error, Reader};
use aos_policy::{Given, Grants, Labels, Policy, Subject};
use serde::Serialize;
use serde_json::Value;

/// Decisions that are looked at, the newest.
const DECISIONS_MAX: u64 = 10_000;
/// Examples that are kept.
const EXAMPLES_MAX: usize = 10;
/// Ancestors that are looked through for grants: deeper than any tree may be.
const DEPTH_MAX: usize = 1024;

/// What another policy would have said to what was decided.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Turned {
    /// Decisions that were made again.
    pub decided: u64,
    /// Those to which the new policy gives more.
    pub looser: u64,
    /// Those to which it gives less.
    pub stricter: u64,
    /// Decisions that cannot be made again: the call, or what its process was, stands in the journal no more.
    pub undecided: u64,
    /// Entries of that time that were pruned, and with them maybe decisions.
    pub pruned: u64,
    /// When the oldest was made; `None`: there is none.
    pub since: Option<Timestamp>,
    /// The newest that turn, newest first.
    pub examples: Vec<Example>,
}

/// A decision that turns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Example {
    /// The entry of the decision.
    pub lsn: Lsn,
    /// When it was made.
    pub at: Timestamp,
    /// Whose call it was.
    pub pid: Pid,
    /// The call.
    pub call: String,
    /// Its arguments.
    pub args: Value,
    /// What the journal says that was said, and by which rule.
    pub recorded: Verdict,
    /// See `recorded`.
    pub recorded_rule: String,
    /// What the old policy says.
    pub old: Verdict,
    /// By which rule.
    pub old_rule: String,
    /// What the new policy says.
    pub new: Verdict,
    /// By which rule.
    pub new_rule: String,
}

/// A recorded verdict whose call has not been met yet.
struct Recorded {
    lsn: Lsn,
    at: Timestamp,
    verdict: Verdict,
    rule: String,
    given: bool,
    labels: Labels,
}

/// What a process was to the policy.
#[derive(Clone)]
struct Held {
    role: String,
    grants: Vec<Grants>,
}

struct Past<'a> {
    reader: &'a Reader,
    old: &'a Policy,
    new: &'a Policy,
    open: HashMap<(Pid, CallId), Recorded>,
    held: HashMap<Pid, Option<Held>>,
    turned: Turned,
}

impl Turned {
    /// Makes the last decisions again. `progress` hears how many there are so far.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(super) fn find(
        reader: &Reader,
        old: &Policy,
        new: &Policy,
        mut progress: impl FnMut(u64),
    ) -> Result<Turned, Error> {
        let (open, held) = (HashMap::new(), HashMap::new());
        let mut past = Past { reader, old, new, open, held, turned: Turned::default() };
        let (mut before, mut oldest) = (Some(reader.last()?.0.next()), Lsn::ZERO);
        'chunks: while let Some(at) = before {
            let (entries, next) = reader.back(at, &["syscall", "verdict"])?;
            for entry in entries {
                if past.turned.decided + past.turned.undecided == DECISIONS_MAX {
                    oldest = entry.lsn;
                    break 'chunks;
                }
                past.take(entry)?;
            }
            progress(past.turned.decided);
            before = next;
            if before.is_none() {
                // What is left has lost its call.
                past.turned.undecided += past.open.len() as u64;
            }
        }
        past.turned.pruned = reader.pruned_from(oldest)?;
        Ok(past.turned)
    }
}

impl Past<'_> {
    /// Going backwards, a verdict comes before its call. A call that was approved has several; the first is the policy's.
    fn take(&mut self, entry: Entry) -> Result<(), Error> {
        let Entry { lsn, at, pid, body, .. } = entry;
        match body {
            Body::Verdict { call_id, verdict, rule, given, labels, .. } => {
                let labels = labels.iter().filter_map(|name| Labels::named(name)).fold(Labels::NONE, Labels::and);
                let recorded = Recorded { lsn, at, verdict, rule, given: given.is_some(), labels };
                if self.open.len() as u64 == DECISIONS_MAX && !self.open.contains_key(&(pid, call_id.clone())) {
                    self.turned.undecided += 1;
                } else {
                    self.open.insert((pid, call_id), recorded);
                }
            }
            Body::Syscall { call_id, name, args } => {
                // One that was never judged has none: it could not be read, or was not run.
                if let Some(recorded) = self.open.remove(&(pid, call_id)) {
                    self.again(pid, recorded, name, args)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn again(&mut self, pid: Pid, recorded: Recorded, name: String, args: Value) -> Result<(), Error> {
        self.turned.since = Some(recorded.at);
        let (Some(held), Ok(call)) = (self.held(pid)?, Syscall::parse(&name, &args.to_string())) else {
            self.turned.undecided += 1;
            return Ok(());
        };
        self.turned.decided += 1;
        let reaches = self.reaches(&recorded.rule, &call)?;
        let subject = Subject {
            pid,
            role: &held.role,
            chain: &held.grants,
            labels: recorded.labels,
            // What the files of a command carried stands among the labels.
            given: Given::default(),
            reaches: reaches.as_deref(),
        };
        let old = self.old.explain_past(&subject, recorded.given, &call);
        let new = self.new.explain_past(&subject, recorded.given, &call);
        if old.verdict == new.verdict {
            return Ok(());
        }
        match new.verdict > old.verdict {
            true => self.turned.looser += 1,
            false => self.turned.stricter += 1,
        }
        if self.turned.examples.len() < EXAMPLES_MAX {
            self.turned.examples.push(Example {
                lsn: recorded.lsn,
                at: recorded.at,
                pid,
                call: name,
                args,
                recorded: recorded.verdict,
                recorded_rule: recorded.rule,
                old: old.verdict,
                old_rule: old.rule,
                new: new.verdict,
                new_rule: new.rule,
            });
        }
        Ok(())
    }

    /// Whom a signal reached that was not below its process, by the name that it was made with. What was always allowed
    /// reached nobody else; who was in a group then is told by nothing.
    fn reaches(&self, rule: &str, call: &Syscall) -> Result<Option<Vec<String>>, Error> {
        let Syscall::Kill(Kill { pid: Some(to), .. }) = call else { return Ok(Some(Vec::new())) };
        if rule.starts_with("always:") {
            return Ok(Some(Vec::new()));
        }
        let name = self.spec(*to)?.and_then(|spec| spec.name);
        Ok(Some(vec![name.unwrap_or_else(|| to.to_string())]))
    }

    /// What a process was; `None` where that is gone from the journal.
    fn held(&mut self, pid: Pid) -> Result<Option<Held>, Error> {
        if let Some(known) = self.held.get(&pid) {
            return Ok(known.clone());
        }
        let held = self.look(pid)?;
        self.held.insert(pid, held.clone());
        Ok(held)
    }

    /// The nearest grants lie within all above them, so they alone say what it might do.
    fn look(&self, pid: Pid) -> Result<Option<Held>, Error> {
        let Some(spec) = self.spec(pid)? else { return Ok(None) };
        let role = spec.policy_role.clone().unwrap_or_default();
        let mut nearest = spec;
        for _ in 0..DEPTH_MAX {
            if let Some(texts) = &nearest.grants {
                // As the kernel took them: what does not parse any more grants nothing.
                let grants = vec![Grants::parse(texts).unwrap_or_default()];
                return Ok(Some(Held { role, grants }));
            }
            if nearest.parent == Pid::INIT || nearest.parent == Pid::SYSTEM {
                return Ok(Some(Held { role, grants: Vec::new() }));
            }
            nearest = match self.spec(nearest.parent)? {
                Some(above) => above,
                None => return Ok(None),
            };
        }
        Ok(None)
    }

    /// What a process was made as: its first entry.
    fn spec(&self, pid: Pid) -> Result<Option<SpawnSpec>, Error> {
        let first = self.reader.entries_of(pid, Lsn::ZERO, 1)?.pop().map(|entry| entry.body);
        Ok(match first {
            Some(Body::Spawned(spec) | Body::Forked { spec, .. }) => Some(*spec),
            _ => None,
        })
    }
}

impl fmt::Display for Example {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.new > self.old { '+' } else { '-' };
        let call = super::narrate::call(&self.call, &self.args);
        let (old, new) = (self.old.as_str(), self.new.as_str());
        write!(f, "{sign} process {}, {call}: was {old} ({}), is {new} ({})", self.pid, self.old_rule, self.new_rule)?;
        if self.recorded != self.old {
            write!(f, "; recorded was {} ({})", self.recorded.as_str(), self.recorded_rule)?;
        }
        Ok(())
    }
}

impl fmt::Display for Turned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = self.looser + self.stricter;
        write!(f, "of the last {} recorded decisions {changed} would be others", self.decided)?;
        if changed > 0 {
            write!(f, ": {} looser, {} stricter", self.looser, self.stricter)?;
        }
        if changed > self.examples.len() as u64 {
            write!(f, "; the newest {}:", self.examples.len())?;
        }
        Ok(())
    }
}
