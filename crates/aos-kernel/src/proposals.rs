//! Proposals: calls that wait for a person.
//!
//! Start at [`Kernel::propose`]. What always holds: a call that a person approved is checked against the policy again when
//! it runs, runs once, and is the very call that was shown, over the very files; nobody's silence is a yes to an `ask`; what was refused is
//! not asked again while the answer holds; a stopped process starts nothing, approved or not.

use aos_abi::entry::{Changed, Examined, Outcome, Proposal, ProposalState, Verdict};
use aos_abi::{Body, CallError, Code, EffectId, Name, Pid, Syscall, Timestamp};
use aos_policy::{Approval, Permit, Policy, Subject, fingerprint};
use serde_json::Value;

use crate::effect::Effect;
use crate::personal::LEAVE;
use crate::process::{CallState, Leave, OpenProposal, Phase, Process, Refusal, Wait};
use crate::table::PageStore;
use crate::{InFlight, Kernel};

/// Refusals of one process that are kept; the oldest goes first.
const REFUSALS_MAX: usize = 64;

/// Whether an approval of such a call binds files: those that it names in the workspace.
#[must_use]
pub(crate) fn binds(name: Name) -> bool {
    use Name::{ExecCmd, FsDelete, FsEdit, FsMove, FsRead, FsWrite};
    matches!(name, FsRead | FsWrite | FsEdit | FsDelete | FsMove | ExecCmd)
}

fn binds_name(name: &str) -> bool {
    name.parse().is_ok_and(binds)
}

/// The tier that a proposal about no call asks for.
fn tier_of(open: &OpenProposal) -> String {
    let args: serde_json::Value = serde_json::from_str(&open.args).unwrap_or_default();
    args["tier"].as_str().unwrap_or_default().to_owned()
}

/// That there is no such proposal to answer.
pub(crate) fn no_proposal(id: &str) -> CallError {
    CallError::new(Code::NoEnt, format!("no open proposal `{id}`")).hint("`aos proposals` lists them")
}

/// That nobody can say yes yet.
pub(crate) fn unseen(id: &str) -> CallError {
    let error = CallError::new(Code::Again, format!("the files that {id} concerns are still being looked at"));
    CallError { retry_after_ms: Some(100), ..error }
}

/// What came of a call that a process proposed, as that process is told it: with the id of its proposal, by which people
/// speak of it.
pub fn told_of(id: &str, result: Result<Value, CallError>) -> Result<Value, CallError> {
    match result {
        Ok(Value::Object(mut fields)) => {
            fields.insert("proposal_id".to_owned(), id.into());
            Ok(Value::Object(fields))
        }
        Ok(other) => Ok(serde_json::json!({ "proposal_id": id, "result": other })),
        Err(error) => Err(CallError { message: format!("{id}: {}", error.message), ..error }),
    }
}

/// A call to put before a person.
#[derive(Debug)]
pub(crate) struct Question {
    /// Its name.
    pub(crate) name: Name,
    /// Its arguments, canonical.
    pub(crate) args: serde_json::Value,
    /// It runs after so many milliseconds unless vetoed; `None`: it needs a yes.
    pub(crate) hold_ms: Option<u64>,
    /// The rule that asks.
    pub(crate) rule: String,
    /// Why the process wants it.
    pub(crate) why: Option<String>,
    /// What could go wrong.
    pub(crate) risk: Option<String>,
}

impl<P: PageStore> Kernel<P> {
    /// Puts a call before a person; it waits. Where a person has refused the very same already, that answer holds.
    pub(crate) fn propose(&mut self, pid: Pid, call: usize, question: Question) {
        let Question { name, args, hold_ms, rule, why, risk } = question;
        let Some(process) = self.table.get(pid) else { return };
        let Some(call_id) = process.step.get(call).map(|call| call.call_id.clone()) else { return };
        let now = self.globals.at;
        let print = fingerprint(name.as_str(), &args);
        let refused = process.refusals.iter().rev().find(|refusal| refusal.fingerprint == print && now < refusal.until);
        if let Some(Refusal { id, why, until, .. }) = refused {
            let error = CallError::new(Code::Rejected, format!("refused already, as {id}: {why}"))
                .hint(format!("do something else; the same call can be asked for again at {until}"));
            self.finish_call(pid, call, Err(error));
            self.run_step(pid);
            return;
        }
        self.puts(pid, &serde_json::json!([args, why, risk]));
        if hold_ms.is_none() {
            self.count_ask(pid);
        }
        self.globals.last_proposal += 1;
        let id = format!("p{}", self.globals.last_proposal);
        let expires_at = now.plus_millis(hold_ms.unwrap_or(self.policy.proposals().ttl_ms));
        let hold = hold_ms.is_some();
        let mut open = OpenProposal {
            call: Some(call),
            name: name.as_str().to_owned(),
            args: args.to_string(),
            hold,
            rule: rule.clone(),
            grants: Vec::new(),
            inner: Vec::new(),
            led: None,
            closed: None,
            why: why.clone(),
            risk: risk.clone(),
            receiver: None,
            expires_at,
            generation: self.policy.generation().to_owned(),
            examined: None,
        };
        open.receiver = self.receiver_by_now(pid, &open);
        let look = self.examination(pid, &id, &open);
        let verdict = if hold { Verdict::Hold } else { Verdict::Ask };
        let (grants, inner, led, closed) = (Vec::new(), Vec::new(), None, None);
        let proposal = Box::new(Proposal {
            call_id,
            name,
            args,
            verdict,
            rule,
            grants,
            inner,
            led,
            closed,
            why,
            risk,
            expires_at,
        });
        let state = ProposalState::Pending;
        self.fact(pid, Body::Proposal { id: id.clone(), state, proposal: Some(proposal), why: None });
        self.globals.proposals.insert(id.clone(), pid);
        self.with(pid, |process| {
            process.step[call].state = CallState::Waiting;
            process.phase = Phase::Waiting { call, wait: Wait::Approval(id.clone()), since: now, until: None };
            process.proposals.insert(id, open);
        });
        look.into_iter().for_each(|look| self.perform(look));
    }

    /// Asks a person whether a process may go on in a tier that its role has it ask about. It goes on as it is meanwhile.
    pub(crate) fn ask_for_tier(&mut self, pid: Pid, tier: &str, why: String) {
        let Some(role) = self.table.get(pid).map(|process| process.policy_role.clone()) else { return };
        self.count_ask(pid);
        self.globals.last_proposal += 1;
        let id = format!("p{}", self.globals.last_proposal);
        let expires_at = self.globals.at.plus_millis(self.policy.proposals().ttl_ms);
        let role = self.policy.role(&role).map_or("", |role| role.name.as_str());
        let (rule, args) = (format!("role {role}: models {tier}"), serde_json::json!({ "tier": tier }));
        let open = OpenProposal {
            call: None,
            name: Name::Propose.as_str().to_owned(),
            args: args.to_string(),
            hold: false,
            rule: rule.clone(),
            grants: Vec::new(),
            inner: Vec::new(),
            led: None,
            closed: None,
            why: Some(why.clone()),
            risk: None,
            receiver: None,
            expires_at,
            generation: self.policy.generation().to_owned(),
            examined: None,
        };
        let (name, why, verdict) = (Name::Propose, Some(why), Verdict::Ask);
        let (call_id, grants, inner) = (id.as_str().into(), Vec::new(), Vec::new());
        let (led, closed, risk) = (None, None, None);
        let proposal = Box::new(Proposal {
            call_id,
            name,
            args,
            verdict,
            rule,
            grants,
            inner,
            led,
            closed,
            why,
            risk,
            expires_at,
        });
        let state = ProposalState::Pending;
        self.fact(pid, Body::Proposal { id: id.clone(), state, proposal: Some(proposal), why: None });
        self.globals.proposals.insert(id.clone(), pid);
        self.with(pid, |process| process.proposals.insert(id, open));
    }

    /// A person has said whether a process may use a tier.
    fn tier_answered(&mut self, pid: Pid, id: &str, open: &OpenProposal, state: ProposalState) {
        if state != ProposalState::Approved {
            return;
        }
        let tier = tier_of(open);
        self.answered(pid, |process| {
            process.course.allowed.insert(tier);
        });
        let (id, state) = (id.to_owned(), ProposalState::Executed);
        self.fact(pid, Body::Proposal { id, state, proposal: None, why: None });
    }

    /// Keeps an answer that holds for more than one call: for as long as the policy under which it was asked for.
    pub(crate) fn answered(&mut self, pid: Pid, keep: impl FnOnce(&mut Process)) {
        let holds = self.policy.generation().to_owned();
        self.with(pid, |process| {
            if process.answered_under != holds {
                process.answered_under = holds;
                process.leave = Leave::Unasked;
                process.course.allowed.clear();
                process.course.proposed.clear();
            }
            keep(process);
        });
    }

    /// Whether such answers were given under the policy that holds.
    pub(crate) fn answers_hold(&mut self, pid: Pid) -> bool {
        self.table.get(pid).is_some_and(|process| process.answered_under == self.policy.generation())
    }

    /// What it takes to see the files that a proposal concerns, where an approval binds any.
    pub(crate) fn examination(&mut self, pid: Pid, id: &str, open: &OpenProposal) -> Option<Effect> {
        let call = Syscall::parse(&open.name, &open.args).ok().filter(|call| binds(call.name()))?;
        let process = self.table.get(pid)?;
        let (workspace, role) = (process.workspace.clone(), process.policy_role.clone());
        Some(Effect::Examine { pid, id: id.to_owned(), call: Box::new(call), workspace, role })
    }

    /// After a start: what was being looked at when the last daemon ended is looked at again.
    pub(crate) fn examine_again(&mut self) {
        for (id, pid) in self.globals.proposals.clone() {
            self.works_on(pid);
            if self.is_set_aside(pid) {
                continue;
            }
            let open = self.open_proposal(pid, &id).filter(|open| open.examined.is_none()).cloned();
            if let Some(look) = open.and_then(|open| self.examination(pid, &id, &open)) {
                self.perform(look);
            }
        }
        for (number, denied) in self.globals.denials.clone() {
            self.works_on(denied.pid);
            if self.is_set_aside(denied.pid) {
                continue;
            }
            let id = format!("p{number}");
            let open = self.denial(denied.pid, &id).filter(|denial| denial.open.examined.is_none());
            let open = open.map(|denial| denial.open.clone());
            if let Some(look) = open.and_then(|open| self.examination(denied.pid, &id, &open)) {
                self.perform(look);
            }
        }
    }

    /// Held calls wait on for as long as the daemon was off: nobody could have said no in that time. All since the entry
    /// before counts as that, so what was asked last waits for a whole window again at most.
    pub(crate) fn keep_windows_open(&mut self, before: Timestamp) {
        let off_ms = self.globals.at.millis_since(before);
        for (id, pid) in self.globals.proposals.clone() {
            self.works_on(pid);
            if self.is_set_aside(pid) {
                continue;
            }
            self.with(pid, |process| {
                if let Some(open) = process.proposals.get_mut(&id).filter(|open| open.hold) {
                    open.expires_at = open.expires_at.plus_millis(off_ms);
                }
            });
        }
    }

    /// Somebody has looked at the files that a proposal concerns.
    pub(crate) fn examined(&mut self, pid: Pid, examined: &Examined) {
        self.with(pid, |process| {
            if let Some(open) = process.proposals.get_mut(&examined.id) {
                open.examined = Some(examined.clone());
            }
        });
        self.examined_denial(pid, examined);
    }

    /// A proposal of this process that waits.
    pub(crate) fn open_proposal(&mut self, pid: Pid, id: &str) -> Option<&OpenProposal> {
        self.table.get(pid)?.proposals.get(id)
    }

    /// Whether a person may answer a proposal so: nobody says yes before it is known what to.
    pub(crate) fn check_answer(&mut self, pid: Pid, id: &str, state: ProposalState) -> Result<(), CallError> {
        let yes = matches!(state, ProposalState::Approved | ProposalState::Standing);
        if !yes && self.is_standing(pid, id) {
            return Ok(());
        }
        if self.denial(pid, id).is_some() {
            return self.check_denial(pid, id, state);
        }
        let open = self.open_proposal(pid, id).ok_or_else(|| no_proposal(id))?.clone();
        if !yes || open.examined.is_some() || !binds_name(&open.name) {
            return if state == ProposalState::Standing { self.check_stands(pid, id, &open) } else { Ok(()) };
        }
        Err(unseen(id))
    }

    /// The files that a person saw when they approved a call, where it was.
    pub(crate) fn bound(&mut self, pid: Pid, index: usize) -> Option<Box<Examined>> {
        let (_, open) = self.table.get(pid)?.step.get(index)?.approved.as_ref()?;
        open.examined.clone().map(Box::new)
    }

    /// Whether a call runs under a person's word, or its absence for a window.
    pub(crate) fn is_approved(&mut self, pid: Pid, index: usize) -> bool {
        self.table.get(pid).and_then(|process| process.step.get(index)).is_some_and(|call| call.approved.is_some())
    }

    /// Whether its process asked for a call with `PROPOSE`; what the system asks for itself is no call of it.
    fn is_proposed(&mut self, pid: Pid, index: usize) -> bool {
        let call = self.table.get(pid).and_then(|process| process.step.get(index));
        call.is_some_and(|call| call.name == Name::Propose.as_str() && call.call_id != LEAVE)
    }

    /// The proposal under which a call is made that its process asked for with `PROPOSE`.
    pub(crate) fn proposed(&mut self, pid: Pid, index: usize) -> Option<String> {
        if !self.is_proposed(pid, index) {
            return None;
        }
        let (id, _) = self.table.get(pid)?.step.get(index)?.approved.as_ref()?;
        Some(id.clone())
    }

    /// Says that an approval did not hold, where that is why a driver did not make the call.
    pub(crate) fn unless_it_held(&mut self, effect: EffectId, outcome: &Outcome) {
        let Outcome::Error { error } = outcome else { return };
        let Some(InFlight::Call { pid, call, .. }) = self.globals.in_flight.get(&effect) else { return };
        let (pid, call) = (*pid, *call);
        let approved = self.table.get(pid).and_then(|process| process.step.get(call)?.approved.as_ref());
        if let Some((id, _)) = approved.filter(|_| error.code == Code::Rejected) {
            let (id, state, why) = (id.clone(), ProposalState::Expired, Some(error.message.clone()));
            self.withdraw(pid, &id);
            self.fact(pid, Body::Proposal { id, state, proposal: None, why });
        }
    }

    /// Files were changed, or a change was taken back. What can be taken back is listed as carried out from the start.
    pub(crate) fn files_changed(&mut self, pid: Pid, changed: &Changed) {
        let mut became = |id: &Option<String>, state| {
            if let Some(id) = id {
                self.fact(pid, Body::Proposal { id: id.clone(), state, proposal: None, why: None });
            }
        };
        became(&changed.undoes, ProposalState::Undone);
        became(&changed.restores, ProposalState::Executed);
        // What stands again has its id already.
        let Some(undo_ms) = changed.undo_ms.filter(|_| changed.restores.is_none()) else { return };
        self.globals.last_proposal += 1;
        let id = format!("p{}", self.globals.last_proposal);
        let proposal = Proposal {
            call_id: changed.call_id.clone(),
            name: changed.name,
            args: changed.args.clone(),
            verdict: Verdict::Allow,
            rule: changed.rule.clone(),
            grants: Vec::new(),
            inner: Vec::new(),
            led: None,
            closed: None,
            why: None,
            risk: None,
            expires_at: self.globals.at.plus_millis(undo_ms),
        };
        let (state, proposal) = (ProposalState::Executed, Some(Box::new(proposal)));
        self.fact(pid, Body::Proposal { id, state, proposal, why: None });
    }

    /// A person has answered.
    pub(crate) fn proposal_answered(&mut self, pid: Pid, id: &str, state: ProposalState, why: Option<&str>) {
        if self.denial_answered(pid, id, state, why) {
            return;
        }
        let Some(open) = self.take_proposal(pid, id) else {
            self.withdraw(pid, id);
            self.not_begun(pid, id, why);
            return;
        };
        let Some(call) = open.call else { return self.tier_answered(pid, id, &open, state) };
        match state {
            ProposalState::Approved => self.approved(pid, id, call, open),
            ProposalState::Standing => {
                self.stands(pid, id, &open);
                self.approved(pid, id, call, open);
            }
            ProposalState::Rejected | ProposalState::Vetoed => {
                let reason = why.filter(|why| !why.is_empty()).unwrap_or("no reason given");
                self.remember_refusal(pid, id, &open, reason);
                self.settle_call(pid, call, id, CallError::new(Code::Rejected, reason));
            }
            ProposalState::Pending
            | ProposalState::Expired
            | ProposalState::Executed
            | ProposalState::Undone
            | ProposalState::Denied => {}
        }
    }

    /// A person has taken back a yes that stands: where the very call that it was given to waits yet, since its process is
    /// stopped, it is not made either.
    fn not_begun(&mut self, pid: Pid, id: &str, why: Option<&str>) {
        let Some(process) = self.table.get(pid) else { return };
        let waits = process.step.iter().enumerate().find_map(|(index, call)| match &call.approved {
            Some((of, open)) if of == id && call.state == CallState::Queued => Some((index, open.clone())),
            _ => None,
        });
        let Some((index, open)) = waits else { return };
        let reason = why.filter(|why| !why.is_empty()).unwrap_or("no reason given");
        self.remember_refusal(pid, id, &open, reason);
        self.settle_call(pid, index, id, CallError::new(Code::Rejected, reason));
    }

    fn remember_refusal(&mut self, pid: Pid, id: &str, open: &OpenProposal, why: &str) {
        let Ok(call) = Syscall::parse(&open.name, &open.args) else { return };
        let (now, ttl_ms) = (self.globals.at, self.policy.proposals().ttl_ms);
        let refusal = Refusal {
            fingerprint: fingerprint(call.name().as_str(), &call.args()),
            id: id.to_owned(),
            why: why.to_owned(),
            until: now.plus_millis(ttl_ms),
        };
        self.keep_refusal(pid, refusal);
    }

    /// Keeps an answer that holds for a time.
    pub(crate) fn keep_refusal(&mut self, pid: Pid, refusal: Refusal) {
        let now = self.globals.at;
        self.with(pid, |process| {
            process.refusals.retain(|earlier| now < earlier.until);
            if process.refusals.len() >= REFUSALS_MAX {
                process.refusals.pop_front();
            }
            process.refusals.push_back(refusal);
        });
    }

    /// Proposals whose time is over: held calls run, asked ones are refused.
    pub(crate) fn expire_proposals(&mut self, pid: Pid, now: Timestamp) {
        let Some(process) = self.table.get(pid) else { return };
        let due: Vec<String> =
            process.proposals.iter().filter(|(_, open)| open.expires_at <= now).map(|(id, _)| id.clone()).collect();
        for id in due {
            let Some(open) = self.open_proposal(pid, &id) else { continue };
            if open.hold && (open.examined.is_some() || !binds_name(&open.name)) {
                if let Some((call, open)) = self.take_proposal(pid, &id).and_then(|open| Some((open.call?, open))) {
                    self.approved(pid, &id, call, open);
                }
            } else if open.hold {
                let error = CallError::new(Code::Rejected, "nobody could look at the files that it concerns")
                    .hint("propose it again");
                self.expire(pid, &id, None, error);
            } else {
                let error = CallError::new(Code::Rejected, "nobody answered in time")
                    .hint("propose it again if it still matters");
                self.expire(pid, &id, None, error);
            }
        }
    }

    /// The rule that would have a person asked about a held call now: the files that a command runs may have been changed
    /// while it waited.
    fn asks_by_now(&mut self, pid: Pid, open: &OpenProposal) -> Option<String> {
        let call = Syscall::parse(&open.name, &open.args).ok()?;
        let about = self.about(pid, &call);
        let said = self.judge(pid, about, |policy, subject| policy.explain_with(subject, &[], &call))?;
        (said.verdict == Verdict::Ask).then_some(said.rule)
    }

    /// What a person should know who is asked about it now.
    pub(crate) fn risk_by_now(&mut self, pid: Pid, open: &OpenProposal) -> Option<String> {
        let call = Syscall::parse(&open.name, &open.args).ok()?;
        let said = self.said_of(pid, open, &call)?;
        said.lacking.map(|lacking| self.risk(pid, &lacking))
    }

    /// A proposal is over unanswered; its process gets the error. `why` is what people are told, if it was not the time.
    pub(crate) fn expire(&mut self, pid: Pid, id: &str, why: Option<String>, error: CallError) {
        let Some(open) = self.take_proposal(pid, id) else { return };
        self.fact(pid, Body::Proposal { id: id.to_owned(), state: ProposalState::Expired, proposal: None, why });
        if let Some(call) = open.call {
            self.settle_call(pid, call, id, error);
        }
    }

    /// A question that a policy has ended: the next one may put it anew.
    pub(crate) fn may_ask_again(&mut self, pid: Pid, open: &OpenProposal) {
        self.with(pid, |process| match open.call {
            None => {
                process.course.proposed.remove(&tier_of(open));
            }
            Some(call) if process.step.get(call).is_some_and(|call| call.call_id == LEAVE) => {
                process.leave = Leave::Unasked;
            }
            Some(_) => {}
        });
    }

    fn take_proposal(&mut self, pid: Pid, id: &str) -> Option<OpenProposal> {
        let open = self.with(pid, |process| process.proposals.remove(id)).flatten()?;
        self.globals.proposals.remove(id);
        Some(open)
    }

    /// The call may run: at once, or when its process goes on. Then what was known when it was approved must hold.
    fn approved(&mut self, pid: Pid, id: &str, call: usize, mut open: OpenProposal) {
        let waits = |wait: &Wait| matches!(wait, Wait::Approval(of) if of == id);
        let phase = self.table.get(pid).map(|process| &process.phase);
        // No journal can make it otherwise; were one to, a yes must not reach another call, nor end the daemon.
        if !matches!(phase, Some(Phase::Waiting { call: at, wait, .. }) if *at == call && waits(wait)) {
            let (id, state, why) = (id.to_owned(), ProposalState::Expired, Some("its call is over".to_owned()));
            self.fact(pid, Body::Proposal { id, state, proposal: None, why });
            return;
        }
        open.risk = self.risk_by_now(pid, &open);
        self.with(pid, |process| {
            let call = &mut process.step[call];
            call.state = CallState::Queued;
            call.approved = Some((id.to_owned(), open));
            process.phase = Phase::Calling;
        });
        self.run_step(pid);
    }

    /// Runs a call under its approval, which is used up by it. One that does not hold by now is over, also where it stood.
    pub(crate) fn run_approved(&mut self, pid: Pid, index: usize, id: &str, open: &OpenProposal) {
        self.with(pid, |process| process.step[index].state = CallState::Waiting);
        match self.permit_approved(pid, id, open) {
            None => {}
            Some(Ok(permit)) => {
                let state = ProposalState::Executed;
                self.fact(pid, Body::Proposal { id: id.to_owned(), state, proposal: None, why: None });
                self.carry_out(pid, index, permit);
            }
            Some(Err(error)) => {
                self.withdraw(pid, id);
                let (id, state, why) = (id.to_owned(), ProposalState::Expired, Some(error.message.clone()));
                self.fact(pid, Body::Proposal { id, state, proposal: None, why });
                self.finish_call(pid, index, Err(error));
            }
        }
    }

    /// What an approval lets happen now; `None` where its process is gone.
    pub(crate) fn permit_approved(
        &mut self,
        pid: Pid,
        id: &str,
        open: &OpenProposal,
    ) -> Option<Result<Permit, CallError>> {
        if !open.hold && self.globals.at > open.expires_at {
            let late = "the approval is over: it came too late, or its process was stopped for too long";
            let error = CallError::new(Code::Rejected, late).hint("propose it again if it still matters");
            return Some(Err(error));
        }
        // Nobody's silence says yes to what would be asked about by now, whenever it runs.
        if open.hold
            && self.globals.at >= open.expires_at
            && let Some(rule) = self.asks_by_now(pid, open)
        {
            let error = CallError::new(Code::Rejected, format!("by now a person has to be asked: {rule}"));
            return Some(Err(error.hint("make the call again, so that a person is asked")));
        }
        // Nor does a yes to files that nobody had changed under untrusted content.
        if open.risk.is_none()
            && let Some(risk) = self.risk_by_now(pid, open)
        {
            let error = CallError::new(Code::Rejected, format!("the approval does not hold any more: {risk}"));
            return Some(Err(error.hint("make the call again, so that a person is told")));
        }
        let call = match Syscall::parse(&open.name, &open.args) {
            Ok(call) => call,
            Err(error) => return Some(Err(error)),
        };
        let lifts = open.lifts();
        if lifts && self.rule_of_receiver(pid, &call).is_some_and(|said| said.verdict == Verdict::Deny) {
            return Some(Err(CallError::new(Code::Perm, "a rule closes whoever has that name by now")));
        }
        let args: serde_json::Value = serde_json::from_str(&open.args).unwrap_or_default();
        let approval = Approval { id, name: call.name(), args: &args, generation: Some(&open.generation), lifts };
        let about = self.about(pid, &call);
        let said = |policy: &Policy, subject: &Subject<'_>| policy.authorize_approved(subject, call, &approval);
        let ruling = self.judge(pid, about, said)?;
        Some(ruling.permit.ok_or_else(|| {
            let message = format!("the policy denies {} by now: {}", open.name, ruling.rule);
            CallError { hint: ruling.hint, ..CallError::new(Code::Perm, message) }
        }))
    }

    /// A call that may run and is not begun never will be: its approval is over, also where it stood.
    pub(crate) fn approvals_are_over(&mut self, pid: Pid, why: &str) {
        let Some(process) = self.table.get(pid) else { return };
        let queued = process.step.iter().filter(|call| call.state == CallState::Queued);
        let ids: Vec<String> = queued.filter_map(|call| call.approved.as_ref()).map(|(id, _)| id.clone()).collect();
        for id in ids {
            self.withdraw(pid, &id);
            let (state, why) = (ProposalState::Expired, Some(why.to_owned()));
            self.fact(pid, Body::Proposal { id, state, proposal: None, why });
        }
    }

    /// A call is not made, since its proposal came to nothing.
    fn settle_call(&mut self, pid: Pid, call: usize, id: &str, error: CallError) {
        // One that was approved is named with everything that comes of it.
        let waited = self.is_proposed(pid, call) && !self.is_approved(pid, call);
        let error = if waited { told_of(id, Err(error)) } else { Err(error) };
        self.finish_call(pid, call, error);
        self.run_step(pid);
    }
}
