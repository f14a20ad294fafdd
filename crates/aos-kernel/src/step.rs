//! The step: the calls of one reply, in order, each through the policy.
//!
//! Start at [`Kernel::run_steps`]. Calls run one after the other; neighbours that only read run side by side at the
//! drivers. What always holds: no call happens without a verdict `allow` recorded before it; every call gets exactly
//! one result; results enter the window in the order of the calls, whatever order they came in.

use aos_abi::entry::{Outcome, Took, Verdict};
use aos_abi::syscall::{Handler, Risk, SendMsg};
use aos_abi::{Body, CallError, CallId, Code, EffectId, Lsn, Name, Pid, Syscall, Timestamp, limits};
use aos_context::ItemKind;
use aos_policy::terms::HOLD_MS;
use aos_policy::{Explanation, Labels, Permit, Ruling, Subject};

use crate::denials::denied;
use crate::effect::{Authority, Effect};
use crate::groups::About;
use crate::labels::{Reads, reads, told};
use crate::personal::LEAVE;
use crate::process::{CallState, Phase, StepCall, Wait};
use crate::proposals::{Question, told_of};
use crate::table::PageStore;
use crate::{InFlight, Kernel, failure};

/// What a call carried out by the kernel comes to.
pub(crate) enum Done {
    /// It is over.
    Now(Result<serde_json::Value, CallError>),
    /// It waits, until then at most.
    Waits(Wait, Option<Timestamp>),
    /// The process has ended; nothing more happens to it.
    Ended,
}

impl<P: PageStore> Kernel<P> {
    /// Goes on with the calls of a process's last reply once what is being done now is over. Whoever is woken waits its turn
    /// here, so that a chain of any length, each waking the next, takes no stack.
    pub(crate) fn run_step(&mut self, pid: Pid) {
        self.to_run.push_back(pid);
    }

    /// Goes on with everybody whose calls can.
    pub(crate) fn run_steps(&mut self) {
        while let Some(pid) = self.to_run.pop_front() {
            self.works_on(pid);
            self.advance(pid);
        }
    }

    /// Goes on with the calls of the last reply as far as it can.
    fn advance(&mut self, pid: Pid) {
        if self.table.get(pid).is_some_and(|process| matches!(process.phase, Phase::Writing(_))) {
            self.write_on(pid);
        }
        let is_running = |call: &StepCall| matches!(call.state, CallState::Running(_));
        let Some(process) = self.table.get(pid) else { return };
        let mut running: Vec<usize> =
            process.step.iter().enumerate().filter(|(_, call)| is_running(call)).map(|(index, _)| index).collect();
        // No call before this one is queued: each that is started here is begun or over.
        let mut from = 0;
        loop {
            let Some(process) = self.table.get(pid) else { return };
            if process.phase != Phase::Calling || process.stopped.is_some() {
                return;
            }
            let mut rest = process.step.iter().enumerate().skip(from);
            let Some((next, _)) = rest.find(|(_, call)| call.state == CallState::Queued) else {
                if !process.step.iter().any(is_running) {
                    self.finish_step(pid);
                }
                return;
            };
            let may = running.is_empty()
                || running.len() < limits::PARALLEL_READS_MAX && self.runs_beside(pid, next, &running);
            if !may {
                return;
            }
            self.start_call(pid, next);
            from = next + 1;
            let started = self.table.get(pid).and_then(|process| process.step.get(next));
            if started.is_some_and(is_running) {
                running.push(next);
            }
        }
    }

    /// Whether a call may start while others run: it and they only read, at a driver, and nobody has to be asked about it. A
    /// process that waits for a person does nothing else, so that the answer finds the call.
    fn runs_beside(&mut self, pid: Pid, index: usize, running: &[usize]) -> bool {
        let only_reads = |name: &str| {
            name.parse::<Name>().is_ok_and(|name| {
                name.spec().risk == Risk::Read && !matches!(name.spec().handler, Handler::Kernel | Handler::Absent(_))
            })
        };
        let Some(process) = self.table.get(pid) else { return false };
        let call = &process.step[index];
        if !only_reads(&call.name) || !running.iter().all(|other| only_reads(&process.step[*other].name)) {
            return false;
        }
        let Ok(parsed) = Syscall::parse(&call.name, &call.args) else { return true };
        !self.rule(pid, parsed).is_some_and(|ruling| matches!(ruling.verdict, Verdict::Ask | Verdict::Hold))
    }

    fn start_call(&mut self, pid: Pid, index: usize) {
        let Some(process) = self.table.get(pid) else { return };
        let call = process.step[index].clone();
        if let Some((id, _)) = call.approved.as_ref().filter(|_| call.call_id == LEAVE) {
            self.may_leave(pid, index, id);
            return;
        }
        if let Some((id, open)) = call.approved {
            self.run_approved(pid, index, &id, &open);
            return;
        }
        let args = serde_json::from_str(&call.args).unwrap_or(serde_json::Value::Null);
        self.fact(pid, Body::Syscall { call_id: call.call_id.clone(), name: call.name.clone(), args });
        self.with(pid, |process| {
            process.usage.syscalls += 1;
            process.step[index].state = CallState::Waiting;
        });
        let parsed = match call.fault {
            Some(fault) => {
                let mut error = CallError::new(fault.code, fault.message);
                error.hint = fault.hint;
                Err(error)
            }
            None => Syscall::parse(&call.name, &call.args),
        };
        let parsed = parsed.and_then(|parsed| {
            // Ending is free, so that a spent budget never keeps a process alive.
            if matches!(parsed, Syscall::SysExit(_)) {
                return Ok(parsed);
            }
            self.pay_call(pid).map(|()| parsed)
        });
        match parsed {
            Ok(parsed) => self.decide_call(pid, index, parsed),
            Err(error) => self.finish_call(pid, index, Err(error)),
        }
    }

    /// The policy's word on a call.
    pub(crate) fn rule(&mut self, pid: Pid, call: Syscall) -> Option<Ruling> {
        // A model that its parent does not run on may be one that a person is to be asked about.
        let other = match &call {
            Syscall::SpawnAgent(args) => args.model.clone(),
            _ => None,
        };
        let stricter = self.rule_of_receiver(pid, &call);
        let process = self.table.get(pid)?;
        let own = [&process.model, &process.course.asked];
        let other = other.filter(|model| !own.contains(&model)).map(|model| (process.policy_role.clone(), model));
        let standing = self.standing(pid);
        let about = self.about(pid, &call);
        let ruling = self.judge(pid, about, |policy, subject| policy.authorize_with(subject, &standing, call))?;
        if let Some(stricter) = stricter.filter(|stricter| stricter.verdict < ruling.verdict) {
            return Some(Ruling { verdict: stricter.verdict, rule: stricter.rule, permit: None, ..ruling });
        }
        let Some((role, model)) = other else { return Some(ruling) };
        let (role_says, trust) = (self.model_verdict(&role, &model), self.model_trust(pid, &model));
        let said = role_says.min(trust);
        if said >= ruling.verdict || role_says == Verdict::Deny {
            return Some(ruling);
        }
        let rule = match role_says <= trust {
            true => format!("role {role}: models {model}"),
            false => format!("models: {model} is of a higher tier, asked for by one that has read untrusted content"),
        };
        Some(Ruling { verdict: said, rule, permit: None, ..ruling })
    }

    /// What a rule says of a message to the same receiver named the other way, by name or by pid; nothing where none is
    /// about it.
    pub(crate) fn rule_of_receiver(&mut self, pid: Pid, call: &Syscall) -> Option<Explanation> {
        let Syscall::SendMsg(args) = call else { return None };
        let (to_pid, to) = match (args.to_pid, &args.to) {
            (Some(receiver), None) => (None, Some(self.table.get(receiver)?.name.clone()?)),
            (None, Some(name)) => (Some(*self.globals.names.get(name)?), None),
            _ => return None,
        };
        let otherwise = Syscall::SendMsg(SendMsg { to_pid, to, ..args.clone() });
        let said = self.judge(pid, About::of(call.name()), |policy, subject| {
            policy.explain(&Subject { labels: Labels::NONE, ..*subject }, &otherwise)
        })?;
        // Where a grant is wanting, no rule has spoken.
        Some(said).filter(|said| said.hint.is_none())
    }

    /// Records what was said to a call, and under what.
    pub(crate) fn decided(&mut self, pid: Pid, call_id: CallId, verdict: Verdict, rule: String, given: Option<String>) {
        let generation = self.policy.generation().to_owned();
        let step = self.table.get(pid).and_then(|process| process.step.iter().find(|call| call.call_id == call_id));
        let runs = step.is_some_and(|call| call.name == Name::ExecCmd.as_str());
        let files = if runs { self.labels_run(pid).only(Labels::UNTRUSTED) } else { Labels::NONE };
        let labels = self.labels_of(pid).and(files).held().map(str::to_owned).collect();
        self.fact(pid, Body::Verdict { call_id, verdict, rule, given, generation, labels, took_us: Took::default() });
    }

    fn decide_call(&mut self, pid: Pid, index: usize, call: Syscall) {
        if let Handler::Absent(hint) = call.name().spec().handler {
            let error = CallError::new(Code::NoSys, format!("{} is not there yet", call.name())).hint(hint);
            self.finish_call(pid, index, Err(error));
            return;
        }
        let (name, args) = (call.name(), call.args());
        let Some(ruling) = self.rule(pid, call) else { return };
        let Some(call_id) = self.table.get(pid).map(|process| process.step[index].call_id.clone()) else { return };
        let lifted = self.lifted(pid, &ruling).map(|(id, open, permit)| (Some((id, open)), permit));
        let by_word = lifted.or_else(|| self.runs_once_more(pid, &ruling).map(|permit| (None, permit)));
        if let Some((lifted, permit)) = by_word {
            if let Some(over) = self.over(pid, name, Verdict::Allow, permit.obligations()) {
                self.decided(pid, call_id, Verdict::Deny, over.rule.clone(), None);
                self.finish_call(pid, index, Err(over.error(name)));
                return;
            }
            self.decided(pid, call_id, Verdict::Allow, permit.rule().to_owned(), None);
            self.count_rates(pid, permit.obligations());
            if let Some((id, open)) = lifted {
                self.use_lifted(pid, index, id, open);
            }
            self.carry_out(pid, index, permit);
            return;
        }
        if let Some(over) = self.over(pid, name, ruling.verdict, &ruling.obligations) {
            self.decided(pid, call_id, Verdict::Deny, over.rule.clone(), None);
            self.finish_call(pid, index, Err(over.error(name)));
            return;
        }
        self.decided(pid, call_id.clone(), ruling.verdict, ruling.rule.clone(), ruling.lifted.clone());
        if ruling.verdict > Verdict::Deny {
            self.count_rates(pid, &ruling.obligations);
        }
        match (ruling.verdict, ruling.permit) {
            (Verdict::Allow, Some(permit)) => {
                if let Some(id) = &ruling.standing {
                    self.runs_standing(pid, index, name, id);
                }
                self.carry_out(pid, index, permit);
            }
            (Verdict::Ask | Verdict::Hold, _) => {
                let hold_ms = (ruling.verdict == Verdict::Hold).then(|| ruling.obligations.hold_ms.unwrap_or(HOLD_MS));
                let risk = ruling.lacking.map(|lacking| self.risk(pid, &lacking));
                if let Some(call) = &ruling.refused {
                    self.is_asked_about(pid, call);
                }
                self.propose(pid, index, Question { name, args, hold_ms, rule: ruling.rule, why: None, risk });
            }
            (Verdict::Deny | Verdict::Allow, _) => {
                if let Some(call) = &ruling.refused {
                    self.keep_denial(pid, call_id, call, &ruling.rule, None);
                }
                self.finish_call(pid, index, Err(denied(name, &ruling.rule, ruling.hint)));
            }
        }
    }

    /// Does what the policy allowed.
    pub(crate) fn carry_out(&mut self, pid: Pid, index: usize, permit: Permit) {
        if let Err(error) = self.leaves_clean(&permit) {
            self.keep_refused(pid, index, permit.call(), &error);
            self.finish_call(pid, index, Err(error));
            return;
        }
        if permit.call().name().spec().handler == Handler::Kernel {
            let call = permit.call().clone();
            match self.kernel_call(pid, index, permit) {
                Done::Now(result) => {
                    if let Err(error) = &result {
                        self.keep_refused(pid, index, &call, error);
                    }
                    self.finish_call(pid, index, result);
                }
                Done::Waits(wait, until) => {
                    let since = self.globals.at;
                    self.with(pid, |process| {
                        process.step[index].state = CallState::Waiting;
                        process.phase = Phase::Waiting { call: index, wait, since, until };
                    });
                    self.find_deadlock(pid);
                }
                Done::Ended => {}
            }
            return;
        }
        let id = self.effect_id();
        let Some((call_id, workspace)) = self.with(pid, |process| {
            process.step[index].state = CallState::Running(id);
            process.phase = Phase::Calling;
            (process.step[index].call_id.clone(), process.workspace.clone())
        }) else {
            return;
        };
        self.labels_leave(pid, &permit);
        let reads = reads(permit.call());
        let (labels, vouched) = self.labels_brought(pid, &permit, reads);
        self.globals.in_flight.insert(id, InFlight::Call { pid, by: pid, call: index, labels, reads, vouched });
        let run = self.use_one_run(pid, index, permit.call());
        let mut authority = self.authority(pid, Some(index), permit.call());
        authority.standing.extend(run);
        let (bound, approved) = (self.bound(pid, index), self.is_approved(pid, index));
        let proposed = self.proposed(pid, index);
        self.perform(Effect::Call { id, pid, call_id, permit, workspace, authority, bound, approved, proposed });
    }

    /// What a call brings with it by what holds now, also where another policy mounts no more what it reads when the result
    /// comes; and whether names that it brings count as given.
    pub(crate) fn labels_brought(&mut self, pid: Pid, permit: &Permit, reads: Reads) -> (Labels, bool) {
        let labels = permit.obligations().labels.and(self.labels_read(pid, reads)).and(self.labels_shown(pid, permit));
        (labels, !self.labels_of_call(pid, permit.call()).any_of(Labels::UNTRUSTED))
    }

    /// The policy as it holds for what a call of a process leads to. Where a person gave the request or approved it, the
    /// way a server then points is that person's too; a command that was approved can do anything, so it is not. `index`: where
    /// the call, or the one that it serves, stands in the step of `pid`; `None` where that is not known any more.
    pub(crate) fn authority(&mut self, pid: Pid, index: Option<usize>, call: &Syscall) -> Authority {
        let policy = self.policy.clone();
        let step = self.table.get(pid).and_then(|process| process.step.get(index?));
        let approved = step.is_some_and(|call| call.approved.is_some());
        let labels = match call.name() {
            Name::NetFetch | Name::NetSend if approved => self.labels_of(pid).without(Labels::UNTRUSTED),
            _ => self.labels_of_call(pid, call),
        };
        let (files, ruled) = match call.name() {
            Name::ExecCmd => (self.labels_run(pid), self.labels_sent(pid)),
            _ => (Labels::NONE, Labels::NONE),
        };
        let (root, role, chain) = match self.table.get(pid) {
            Some(process) => (process.root, process.policy_role.clone(), process.chain.clone()),
            None => (pid, String::new(), Vec::new()),
        };
        let standing = self.standing_inside(pid, call);
        Authority { pid, root, policy, role, chain, labels, standing, files, ruled }
    }

    /// Records a result decided by the kernel.
    pub(crate) fn finish_call(&mut self, pid: Pid, index: usize, result: Result<serde_json::Value, CallError>) {
        let Some(call) = self.table.get(pid).and_then(|process| process.step.get(index)) else { return };
        let (call_id, name) = (call.call_id.clone(), call.name.clone());
        let result = result.map_err(|error| match name.parse::<Name>() {
            Ok(name) => error.or_example(name),
            Err(_) => error,
        });
        let outcome = Outcome::from(match self.proposed(pid, index) {
            Some(id) => told_of(&id, result),
            None => result,
        });
        self.with(pid, |process| process.course.learn(&outcome));
        let lsn = self.fact(pid, Body::Result { call_id, name, effect: None, outcome });
        self.call_done(pid, index, lsn);
    }

    fn call_done(&mut self, pid: Pid, index: usize, lsn: Lsn) {
        let tokens = self.as_notice(lsn).tokens;
        self.with(pid, |process| {
            process.step[index].state = CallState::Done(lsn, tokens);
            if !process.exited() {
                process.phase = Phase::Calling;
            }
        });
    }

    /// A call that waited is over; the step goes on.
    pub(crate) fn resolve(&mut self, pid: Pid, result: Result<serde_json::Value, CallError>) {
        let Some(Phase::Waiting { call, .. }) = self.table.get(pid).map(|process| process.phase.clone()) else {
            return;
        };
        self.finish_call(pid, call, result);
        self.run_step(pid);
    }

    /// A driver's result has come.
    pub(crate) fn driver_result(&mut self, effect: EffectId, lsn: Lsn, outcome: &Outcome) {
        let Some(InFlight::Call { pid, call, labels, reads, vouched, .. }) =
            self.globals.in_flight.get(&effect).cloned()
        else {
            return;
        };
        self.globals.in_flight.remove(&effect);
        self.count_brought(pid, outcome);
        let told = told(outcome).and(self.labels_found(pid, call, outcome));
        self.labels_came(pid, reads, told);
        let shown = match outcome {
            Outcome::Success { .. } => self.labels_read(pid, reads),
            Outcome::Error { error } => self.labels_of_error(pid, call, reads, error),
        };
        let labels = match outcome {
            Outcome::Error { error } if self.heard_nobody(pid, call, error) => Labels::NONE,
            _ => labels.and(told).and(shown).and(self.labels_copying(pid, reads)),
        };
        self.will_see(pid, labels);
        let current = self.table.get(pid).and_then(|process| process.step.get(call)).map(|call| call.state);
        if current == Some(CallState::Running(effect)) && self.table.get(pid).is_some_and(|process| !process.exited()) {
            if let (true, Outcome::Success { result }) = (vouched && !labels.any_of(Labels::UNTRUSTED), outcome) {
                self.names(pid, call, result);
            }
            self.with(pid, |process| process.course.learn(outcome));
            self.call_done(pid, call, lsn);
            self.run_step(pid);
        }
    }

    fn finish_step(&mut self, pid: Pid) {
        self.with(pid, |process| {
            for call in &process.step {
                if let CallState::Done(lsn, tokens) = call.state {
                    process.window.push(lsn, tokens, ItemKind::Result);
                }
            }
        });
        self.want_turn(pid);
    }

    /// Returns every call not yet started unrun, with this reason.
    pub(crate) fn abandon_queued(&mut self, pid: Pid, why: &str) {
        self.approvals_are_over(pid, why);
        let Some(process) = self.table.get(pid) else { return };
        let queued: Vec<usize> =
            (0..process.step.len()).filter(|index| process.step[*index].state == CallState::Queued).collect();
        for index in queued {
            let Some(call) = self.table.get(pid).map(|process| process.step[index].clone()) else { return };
            // One that was put before a person was made already.
            if call.approved.is_none() {
                let args = serde_json::from_str(&call.args).unwrap_or(serde_json::Value::Null);
                self.fact(pid, Body::Syscall { call_id: call.call_id.clone(), name: call.name.clone(), args });
            }
            let error = CallError::new(Code::Intr, format!("not run: {why}"));
            let body = Body::Result { call_id: call.call_id, name: call.name, effect: None, outcome: failure(error) };
            let lsn = self.fact(pid, body);
            let tokens = self.as_notice(lsn).tokens;
            self.with(pid, |process| process.step[index].state = CallState::Done(lsn, tokens));
        }
    }
}
