//! The outside: what effects do to the world, and what comes back of them, late and in any order.
//!
//! Start at [`Outside::perform`]. It keeps a register of every effect that changed something, which survives crashes as
//! the world does; what is on its way back is lost with the daemon.

use std::collections::{BTreeMap, BTreeSet};

use aos_abi::entry::Inner;
use aos_abi::process::Workspace;
use aos_abi::syscall::{FsWrite, Handler, NetFetch, Risk};
use aos_abi::{CallId, EffectId, Lsn, Name, Pid, Syscall, Timestamp};
use aos_kernel::effect::{Effect, Infer};

use crate::bill::Bill;
use crate::chance::Chance;
use crate::desk::Desk;
use crate::files::Files;
use crate::need;
use crate::report::{Broken, broken};

/// Something on its way back to the kernel.
#[derive(Debug)]
pub(crate) enum Job {
    /// A model's answer; it is made up when it is delivered.
    Infer(Box<Infer>),
    /// A model has not said a word yet.
    Silent { id: EffectId, pid: Pid },
    /// A driver's result, and what the call led to and was denied.
    Call { id: EffectId, pid: Pid, call_id: CallId, name: Name, holds: bool, denied: Vec<Inner> },
    /// A model's answer to a program.
    Serve { id: EffectId, pid: Pid, max_output: u32 },
    /// What the files are that a proposal concerns.
    Look { pid: Pid, id: String, workspace: Workspace, call: Box<Syscall> },
}

/// The world beyond the kernel.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    jobs: BTreeMap<(Timestamp, u64), Job>,
    /// Effects that somebody has given up on.
    cancelled: BTreeSet<EffectId>,
    arrivals: u64,
    /// Changes made to the world, with how often.
    done: BTreeMap<EffectId, (String, u32)>,
    /// Files that are watched.
    pub(crate) watches: BTreeSet<(Pid, String)>,
    answered: BTreeSet<String>,
    /// What models want for what programs asked.
    pub(crate) bill: Bill,
    /// What people were asked and said.
    pub(crate) desk: Desk,
    /// The files of every workspace.
    pub(crate) files: Files,
    /// Results come at once and succeed.
    pub(crate) calm: bool,
}

impl Outside {
    /// Does what the kernel wants done.
    pub(crate) fn perform(
        &mut self,
        chance: &mut Chance,
        now: Timestamp,
        durable: Lsn,
        effect: Effect,
    ) -> Result<(), Broken> {
        match effect {
            Effect::Infer(infer) => {
                if infer.id.cause > durable {
                    return Err(broken("nothing is changed before that is written", format!("{} is asked", infer.id)));
                }
                let twice = self.jobs.values().any(|job| matches!(job, Job::Infer(other) if other.id == infer.id));
                if twice {
                    return Err(broken("an inference is asked once", format!("{} is under way already", infer.id)));
                }
                self.bill.infers(&infer);
                let at = self.later(chance, now);
                if let Some(silent) = infer.hedge_after_ms.map(|after| now.plus_millis(after)).filter(|on| *on < at) {
                    self.come(silent, Job::Silent { id: infer.id, pid: infer.pid });
                }
                self.come(at, Job::Infer(infer));
            }
            Effect::Serve(serve) => {
                if serve.paid_by > durable {
                    return Err(broken("nothing is asked before it is paid for", format!("{} is asked", serve.id)));
                }
                self.bill.asked(&serve, durable);
                let at = self.later(chance, now);
                self.come(at, Job::Serve { id: serve.id, pid: serve.pid, max_output: serve.max_output });
            }
            // Its program is told, and nothing comes back.
            Effect::Refuse { .. } => {}
            Effect::Call { id, pid, call_id, permit, workspace, bound, .. } => {
                // What is attached to a child comes by its parent's rights.
                let attached = call_id.as_str().starts_with("attached") && permit.pid() < pid;
                if permit.pid() != pid && !attached {
                    return Err(broken("a permit is its process's", format!("{id} of {pid}: {permit:?}")));
                }
                let call = permit.into_call();
                let name = call.name();
                if matches!(name.spec().handler, Handler::Kernel | Handler::Absent(_)) {
                    return Err(broken("drivers get only calls of drivers", format!("{id} of {pid}: {name}")));
                }
                // Somebody may have changed a file since a person approved it; what it changed itself before a crash it may.
                let found = self.files.look(pid, &workspace, &call);
                let repeated = self.files.has_made(id);
                let holds = repeated || bound.is_none_or(|bound| bound.files == found);
                if holds {
                    self.desk.done(id, pid, &call, &found)?;
                    self.files.carry_out(id, pid, &call_id, &workspace, &call);
                } else {
                    self.desk.drifts(id);
                }
                if name.spec().risk != Risk::Read && holds {
                    if id.cause > durable {
                        return Err(broken("nothing is changed before that is written", format!("{id}: {call:?}")));
                    }
                    let idempotent = call.idempotent();
                    let what = format!("{pid} {call:?}");
                    let times = self.done.entry(id).or_insert_with(|| (what.clone(), 0));
                    times.1 += 1;
                    if times.0 != what {
                        return Err(broken("an effect id names one effect", format!("{id}: {} and {what}", times.0)));
                    }
                    if times.1 > 1 && !idempotent {
                        return Err(broken("nothing is done twice", format!("{id}: {what}")));
                    }
                }
                let at = self.later(chance, now);
                let denied = if holds { denied_inside(id, &call) } else { Vec::new() };
                self.come(at, Job::Call { id, pid, call_id, name, holds, denied });
            }
            Effect::Examine { pid, id, call, workspace, .. } => {
                let at = self.later(chance, now);
                self.come(at, Job::Look { pid, id, workspace, call });
            }
            Effect::Cancel(id) => {
                self.cancelled.insert(id);
                self.hurry(now, id);
            }
            // Nothing out here decides by a policy of its own.
            Effect::Policy(_) => {}
            Effect::Watch { pid, watch_id, .. } => {
                if !self.watches.insert((pid, watch_id.clone())) {
                    return Err(broken("a watch begins once", format!("{watch_id} of {pid}")));
                }
            }
            Effect::Unwatch { pid, watch_id } => {
                self.watches.remove(&(pid, watch_id));
            }
            Effect::WebhookReply { request_id, .. } => {
                if !self.answered.insert(request_id.clone()) {
                    return Err(broken("a webhook is answered once", request_id));
                }
            }
        }
        Ok(())
    }

    fn later(&mut self, chance: &mut Chance, now: Timestamp) -> Timestamp {
        if self.calm {
            return now.plus_millis(10);
        }
        now.plus_millis(match chance.weighted(&[60, 30, 8, 2]) {
            0 => chance.between(0, 500),
            1 => chance.between(500, 8000),
            2 => chance.between(8000, 60_000),
            _ => chance.between(60_000, 900_000),
        })
    }

    fn come(&mut self, at: Timestamp, job: Job) {
        self.arrivals += 1;
        self.jobs.insert((at, self.arrivals), job);
    }

    /// What was given up on comes back soon.
    fn hurry(&mut self, now: Timestamp, id: EffectId) {
        let found = self.jobs.iter().find(|(_, job)| job.id() == Some(id)).map(|(key, _)| *key);
        if let Some(key) = found
            && let Some(job) = self.jobs.remove(&key)
        {
            self.jobs.insert((key.0.min(now.plus_millis(5)), key.1), job);
        }
    }

    /// Something that is due by now; any of it, since nothing says in which order things come back.
    pub(crate) fn take_due(&mut self, chance: &mut Chance, now: Timestamp) -> Option<Job> {
        let due: Vec<(Timestamp, u64)> = self.jobs.range(..=(now, u64::MAX)).map(|(key, _)| *key).collect();
        let key = chance.pick(&due)?;
        self.jobs.remove(&key)
    }

    /// Whether an effect was given up on.
    pub(crate) fn is_cancelled(&self, id: EffectId) -> bool {
        self.cancelled.contains(&id)
    }

    /// When the next thing comes back.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.jobs.keys().next().map(|(at, _)| *at)
    }

    /// The daemon dies: nothing that was on its way reaches anybody.
    pub(crate) fn crash(&mut self, durable: Lsn, policy: &str) {
        self.jobs.clear();
        self.bill.crash();
        self.desk.crash(durable, policy);
        self.files.crash(durable);
        self.watches.clear();
        self.cancelled.clear();
    }
}

/// What a call leads to at times and is denied, by most policies here. What is done once and never again has none of it: people
/// could let a command run once more. It takes no chance, so that nothing else comes out otherwise.
fn denied_inside(id: EffectId, call: &Syscall) -> Vec<Inner> {
    let nth = id.cause.0;
    if need::mark(call).is_some() {
        return Vec::new();
    }
    let fetch = NetFetch { url: format!("{}{}", need::DENIED_URL, nth % 7), headers: None };
    let write = FsWrite { path: format!("made/{}", nth % 5), content: String::new(), mode: None };
    match call {
        Syscall::NetFetch(_) if nth.is_multiple_of(3) => vec![Inner::of(&Syscall::NetFetch(fetch))],
        Syscall::ExecCmd(_) if nth.is_multiple_of(3) => vec![Inner::of(&Syscall::FsWrite(write))],
        Syscall::ExecCmd(_) => [Syscall::FsWrite(write), Syscall::NetFetch(fetch)].iter().map(Inner::of).collect(),
        _ => Vec::new(),
    }
}

impl Job {
    pub(crate) fn id(&self) -> Option<EffectId> {
        match self {
            Job::Infer(infer) => Some(infer.id),
            Job::Call { id, .. } | Job::Serve { id, .. } => Some(*id),
            Job::Look { .. } | Job::Silent { .. } => None,
        }
    }
}
