//! What people and programs see of the kernel. Reads only.

use std::collections::BTreeMap;

use aos_abi::api::{CallView, ExplainView, ProposalView};
use aos_abi::entry::{ProposalState, Verdict};
use aos_abi::process::{
    DayView, HeldTimer, ProcessDetail, ProcessView, SlotView, State, TimerView, UsageView, WindowView,
};
use aos_abi::syscall::SendMsg;
use aos_abi::{CallError, Code, Pid, Syscall, Timestamp, Usd};

use crate::preview::preview;
use crate::process::{InnerCall, OpenProposal, Process, Route, TimerRule};
use crate::proposals::unseen;
use crate::table::PageStore;
use crate::{Kernel, no_process};

impl<P: PageStore> Kernel<P> {
    /// Reads of many processes that leave memory as it was: those paged out are in it only meanwhile. `read` has pages
    /// that somebody read already.
    pub fn glance<T>(&mut self, read: Vec<Process>, look: impl FnOnce(&mut Self) -> T) -> T {
        self.table.glance(read);
        let seen = look(self);
        self.table.leave();
        seen
    }

    /// At most `most` pids after `after`, in order: those of `stored`, which are the next ones that the store has, and
    /// those in memory.
    #[must_use]
    pub fn next_pids(&self, after: Pid, stored: &[Pid], most: usize) -> Vec<Pid> {
        let mut pids: Vec<Pid> = self.table.resident_after(after, most).chain(stored.iter().copied()).collect();
        pids.sort_unstable();
        pids.dedup();
        pids.truncate(most);
        pids
    }

    /// Every process of these that there is, with `group` those that belong to it; without `all` only those that live.
    pub fn list(&mut self, pids: impl IntoIterator<Item = Pid>, all: bool, group: Option<&str>) -> Vec<ProcessView> {
        pids.into_iter()
            .filter_map(|pid| {
                let process = self.table.get(pid)?;
                (all || !process.exited()).then_some(())?;
                group.is_none_or(|group| process.group.as_deref() == Some(group)).then_some(())?;
                self.view(pid)
            })
            .collect()
    }

    /// The timers of these processes.
    pub fn timers(&mut self, pids: impl IntoIterator<Item = Pid>) -> Vec<HeldTimer> {
        let mut held = Vec::new();
        for pid in pids {
            let timers = self.table.get(pid).into_iter().flat_map(|process| &process.timers);
            held.extend(timers.map(|(id, timer)| HeldTimer { pid, timer: timer_view(id, timer) }));
        }
        held
    }

    /// One process as lists show it.
    pub fn view(&mut self, pid: Pid) -> Option<ProcessView> {
        let budget = self.budget_view(pid);
        let broke = self.why_broke(pid);
        let process = self.table.get(pid)?;
        let usage = &process.usage;
        Some(ProcessView {
            pid,
            parent: process.parent,
            name: process.name.clone().unwrap_or_else(|| process.title.clone()),
            group: process.group.clone(),
            state: process.state(),
            waiting_for: process.waiting_for().map(str::to_owned),
            question: process.question(),
            model: process.model.clone(),
            priority: process.priority,
            mode: process.mode,
            usage: UsageView {
                inferences: usage.inferences,
                syscalls: usage.syscalls,
                input_tokens: usage.input_tokens,
                output_tokens: usage.output_tokens,
                cached_input_tokens: usage.cached_input_tokens,
                cost_usd: usage.cost,
                cost_unknown: usage.cost_unknown,
            },
            budget,
            started_at: process.started_at,
            exited_at: process.exit.as_ref().map(|exit| exit.at),
            exit_code: process.exit.as_ref().map(|exit| exit.code),
            result: process.exit.as_ref().and_then(|exit| serde_json::from_str(&exit.result).ok()),
            reason: process.exit.as_ref().map(|exit| exit.reason.clone()).or_else(|| process.stopped.clone()).or(broke),
        })
    }

    /// Everything about one process.
    ///
    /// # Errors
    /// `ESRCH` where there is none.
    pub fn detail(&mut self, pid: Pid) -> Result<ProcessDetail, CallError> {
        let view = self.view(pid).ok_or_else(|| no_process(pid))?;
        let spec = self.model(&view.model);
        let standing = self.standing_view(pid);
        let process = self.table.get(pid).ok_or_else(|| no_process(pid))?;
        Ok(ProcessDetail {
            role: process.role.clone(),
            policy_role: Some(process.policy_role.clone()).filter(|role| !role.is_empty()),
            grants: if process.own_grants { process.chain.first().map(aos_policy::Grants::texts) } else { None },
            labels: process.labels.held().map(str::to_owned).collect(),
            standing,
            children: process.children.iter().copied().collect(),
            pipe_to: process.pipe_to,
            workspace: process.workspace.clone(),
            inbox: process.inbox.len(),
            timers: process.timers.iter().map(|(id, timer)| timer_view(id, timer)).collect(),
            webhooks: process.webhooks.keys().cloned().collect(),
            watches: process.watches.keys().cloned().collect(),
            window: WindowView {
                tokens: process.window.tokens(),
                tokens_max: spec.map_or(0, |spec| u64::from(spec.context_window.saturating_sub(spec.max_output))),
                items: process.window.items().count(),
            },
            process: view,
        })
    }

    /// How many processes are in each state.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, u64> {
        State::ALL.iter().map(|state| (state.as_str().to_owned(), self.globals.counts[*state as usize])).collect()
    }

    /// What everything together has cost on the day (UTC) of `now`.
    #[must_use]
    pub fn today(&self, now: Timestamp) -> DayView {
        let mut day = self.globals.day;
        day.turn(now);
        let limit = self.config.usd_per_day;
        DayView {
            spent_usd: Usd(day.spent),
            cost_unknown: day.unpriced,
            usd_per_day: limit,
            nearly_spent: limit.is_some_and(|limit| day.warned.is_of(limit.0, Some(day.renews_at()))),
            renews_at: day.renews_at(),
        }
    }

    /// How many live below the first of each tree, by its pid.
    #[must_use]
    pub fn trees(&self) -> &BTreeMap<Pid, u32> {
        &self.globals.trees
    }

    /// Each model's slots.
    #[must_use]
    pub fn slots(&self) -> BTreeMap<String, SlotView> {
        let models = self.config.models.iter();
        models.map(|(name, spec)| (name.clone(), self.globals.scheduler.slots(name, &spec.limits))).collect()
    }

    /// The proposals that wait, and then the denials: open, or lifted for once.
    pub fn proposals(&mut self) -> Vec<ProposalView> {
        let open: Vec<(String, Pid)> = self.globals.proposals.iter().map(|(id, pid)| (id.clone(), *pid)).collect();
        let denied = self.globals.denials.iter().map(|(number, denied)| (format!("p{number}"), denied.pid));
        let all: Vec<(String, Pid)> = open.into_iter().chain(denied).collect();
        all.into_iter().filter_map(|(id, pid)| self.proposal_view(&id, pid)).collect()
    }

    fn proposal_view(&mut self, id: &str, pid: Pid) -> Option<ProposalView> {
        // The files that it runs may have been changed since it was asked.
        let denial = self.denial(pid, id).cloned();
        let denied = denial.as_ref().map(|denial| &denial.open).cloned();
        let asked = denied.or(self.table.get(pid)?.proposals.get(id).cloned());
        let by_now = asked.as_ref().filter(|open| open.risk.is_none());
        let by_now = by_now.and_then(|open| self.risk_by_now(pid, open));
        let receiver = asked.and_then(|open| self.receiver_by_now(pid, &open));
        let process = self.table.get(pid)?;
        let (open, state) = match (&denial, process.proposals.get(id)) {
            (Some(denial), _) if denial.lifted => (&denial.open, ProposalState::Approved),
            (Some(denial), _) => (&denial.open, ProposalState::Denied),
            (None, Some(open)) => (open, ProposalState::Pending),
            (None, None) => (process.standing.get(id)?, ProposalState::Standing),
        };
        let asks = if open.hold { Verdict::Hold } else { Verdict::Ask };
        let args: serde_json::Value = serde_json::from_str(&open.args).unwrap_or(serde_json::Value::Null);
        let mut view = ProposalView {
            id: id.to_owned(),
            pid,
            preview: preview(&open.name, &args, open.examined.as_ref().map_or("", |examined| &examined.diff)),
            files: open.examined.as_ref().map(|examined| examined.files.clone()).unwrap_or_default(),
            unbound: open.examined.as_ref().and_then(|examined| examined.unbound.clone()).or(receiver),
            call: CallView { name: open.name.clone(), args },
            verdict: if open.is_denial() { Verdict::Deny } else { asks },
            rule: open.rule.clone(),
            grants: open.grants.clone(),
            inner: open.inner.iter().map(inner).collect(),
            led: open.led.clone(),
            closed: open.closed.clone(),
            why: open.why.clone(),
            risk: open.risk.clone().or(by_now),
            shown: String::new(),
            state,
            ended: None,
            under: None,
            expires_at: open.expires_at,
        };
        if let (ProposalState::Pending | ProposalState::Denied, Ok(name)) = (state, open.name.parse::<aos_abi::Name>())
        {
            let (call, led) = ([&view.call.args, &serde_json::json!(view.inner)], &view.led);
            let seen = serde_json::json!([call, led, view.why, view.risk, view.preview, view.files, view.unbound]);
            view.shown = format!("{:032x}", aos_policy::fingerprint(name.as_str(), &seen));
        }
        Some(view)
    }

    /// Who has the name by now that a message is for, or whom a signal reaches.
    pub(crate) fn receiver_by_now(&mut self, pid: Pid, open: &OpenProposal) -> Option<String> {
        let name = match Syscall::parse(&open.name, &open.args) {
            Ok(Syscall::SendMsg(SendMsg { to: Some(name), .. })) => name,
            Ok(Syscall::Kill(args)) => return self.reached_by_now(pid, &args),
            _ => return None,
        };
        let has = self.globals.names.get(&name).map_or("nobody".to_owned(), |pid| format!("process {pid}"));
        Some(format!("the name `{name}` is that of {has} by now"))
    }

    /// Whether a yes counts to what whoever gives it has seen: the view named `shown`, or the question as it was put. A denial
    /// was put to nobody, so a yes to one names what it is to.
    ///
    /// # Errors
    /// `EREJECTED` where there is something else to see by now, or `shown` is wanting; `EAGAIN` where nobody can have seen it.
    pub fn check_shown(&mut self, id: &str, shown: Option<&str>) -> Result<(), CallError> {
        let open = |view: &ProposalView| matches!(view.state, ProposalState::Pending | ProposalState::Denied);
        let Some(view) = self.proposal(id).filter(open) else { return Ok(()) };
        if let Some(shown) = shown {
            return if shown == view.shown { Ok(()) } else { Err(to_be_read(id, changed(id, "it was shown", &view))) };
        }
        if let Some(denial) = self.denial(view.pid, id) {
            // That no yes lifts it is said to whoever has seen it and who has not.
            if denial.open.closed.is_some() {
                return Ok(());
            }
            let looked_at = denial.is_looked_at();
            let wanting = format!("{id} was denied, and a yes to it names what was shown");
            return Err(if looked_at { unseen(id) } else { to_be_read(id, wanting) });
        }
        let Some(open) = self.open_proposal(view.pid, id).cloned() else { return Ok(()) };
        if open.risk == view.risk && open.receiver == self.receiver_by_now(view.pid, &open) {
            return Ok(());
        }
        Err(to_be_read(id, changed(id, "it was put", &view)))
    }

    /// Whose proposal or denial this is, while it waits or its approval stands or is not used.
    #[must_use]
    pub fn proposal_owner(&self, id: &str) -> Option<Pid> {
        let asked = self.globals.proposals.get(id).or_else(|| self.globals.standing.get(id)).copied();
        asked.or_else(|| {
            crate::denials::number(id).and_then(|number| self.globals.denials.get(&number)).map(|of| of.pid)
        })
    }

    /// The approvals that stand, each with its process.
    #[must_use]
    pub fn standing_approvals(&self) -> Vec<(String, Pid)> {
        self.globals.standing.iter().map(|(id, pid)| (id.clone(), *pid)).collect()
    }

    /// A proposal that waits, or whose approval stands.
    pub fn proposal(&mut self, id: &str) -> Option<ProposalView> {
        let pid = self.proposal_owner(id)?;
        self.proposal_view(id, pid)
    }

    /// Whether what stands at a path of the host may be what untrusted content told somebody to put there.
    #[must_use]
    pub fn is_untrusted(&self, path: &std::path::Path) -> bool {
        self.labels_of_folders(|folder| path.starts_with(folder)).any_of(aos_policy::Labels::UNTRUSTED)
    }

    /// Who answers a webhook path.
    pub fn route(&mut self, path: &str) -> Option<(Pid, Route)> {
        let pid = *self.globals.routes.get(path)?;
        Some((pid, self.table.get(pid)?.webhooks.get(path)?.clone()))
    }

    /// What the policy would say to a call, without doing it.
    ///
    /// # Errors
    /// `ESRCH` for no such process, `EINVAL` or `ENOSYS` for no such call.
    pub fn explain(&mut self, pid: Pid, name: &str, args: &str) -> Result<ExplainView, CallError> {
        let call = Syscall::parse(name, args)?;
        let standing = self.standing(pid);
        let about = self.about(pid, &call);
        let said = self.judge(pid, about, |policy, subject| policy.explain_with(subject, &standing, &call));
        let mut said = said.ok_or_else(|| no_process(pid))?;
        if let Some(stricter) = self.rule_of_receiver(pid, &call).filter(|stricter| stricter.verdict < said.verdict) {
            said = stricter;
        }
        let (verdict, rule, hint) = match self.over(pid, call.name(), said.verdict, &said.obligations) {
            Some(over) => (Verdict::Deny, over.rule, Some(over.hint)),
            None => (said.verdict, said.rule, said.hint),
        };
        let refused = self.child_denied(pid, &call).or_else(|| self.unreachable(pid, &call));
        let (verdict, rule, hint) = match refused {
            Some(error) if verdict > Verdict::Deny => (Verdict::Deny, error.message, error.hint),
            Some(_) | None => (verdict, rule, hint),
        };
        let lacking = said.lacking.map(|lacking| lacking.to_string());
        let ended = self.table.get(pid).is_some_and(Process::exited);
        Ok(ExplainView { verdict, ended, rule, hint, given: said.lifted, lacking, taken: Vec::new(), refused: None })
    }

    /// A process, as the kernel keeps it. For checks and tests.
    pub fn process(&mut self, pid: Pid) -> Option<&Process> {
        self.table.get(pid)
    }
}

/// That something became known of a question or denial since then, and what.
fn changed(id: &str, since: &str, view: &ProposalView) -> String {
    let known: Vec<&str> = [&view.risk, &view.unbound].into_iter().flatten().map(String::as_str).collect();
    let known = if known.is_empty() { String::new() } else { format!(": {}", known.join("; ")) };
    format!("what is known of {id} has changed since {since}{known}")
}

/// That a yes is to nothing that was seen.
fn to_be_read(id: &str, message: String) -> CallError {
    CallError::new(Code::Rejected, message).hint(format!(
        "read it with `aos proposals {id} --json` or GET /v1/proposals, and give its `shown` back: `aos approve {id} --shown \
         SHOWN`, or `shown` in the request"
    ))
}

fn inner(of: &InnerCall) -> CallView {
    CallView { name: of.name.clone(), args: serde_json::from_str(&of.args).unwrap_or_default() }
}

fn timer_view(id: &str, timer: &crate::process::Timer) -> TimerView {
    TimerView {
        timer_id: id.to_owned(),
        name: timer.name.clone(),
        next_at: timer.next_at,
        schedule: match &timer.rule {
            TimerRule::Every(millis) if timer.once => format!("once after {} s", millis / 1000),
            TimerRule::Every(millis) => format!("every {} s", millis / 1000),
            TimerRule::Cron(line, zone) => format!("{line} {zone}"),
        },
        prompt: timer.prompt.clone(),
    }
}
