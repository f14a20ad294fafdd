//! Denials: what the policy denied, kept beside the questions that wait, for people to see and, where a grant was wanting, to
//! lift.
//!
//! Start at [`Kernel::keep_denial`]. What always holds: the process was told `EPERM` and went on, so nothing waits for one;
//! a yes is for the very call that was denied, once, over the files that were shown, under the policy that held when it was
//! said; another policy ends all that it does not deny in the very same way; no yes lifts the floor, a rule that denies, what
//! labels say, or a process that was given nothing (`aos_policy::Wanting`): such a denial is closed, and says why. They are
//! bounded by process, in all and by the hour, so that whoever is denied in a loop floods neither people nor the journal; a
//! closed one takes the place of no other.

use std::collections::BTreeMap;

use aos_abi::entry::{Inner, Lifted, PROCESS_ENDED, Proposal, ProposalState, Verdict};
use aos_abi::syscall::Kill;
use aos_abi::{Body, CallError, CallId, Code, Name, Pid, Syscall, Timestamp};
use aos_policy::{Labels, OF_A_DRY_RUN, Permit, Policy, Ruling, Standing, Subject, fingerprint};
use serde::{Deserialize, Serialize};

use crate::Kernel;
use crate::process::{Denial, InnerCall, OpenProposal, Process, Refusal};
use crate::proposals::no_proposal;
use crate::table::PageStore;

/// Denials of one process that nobody has answered; beyond, the oldest goes.
const OF_PROCESS_MAX: usize = 16;
/// And of all processes.
const IN_ALL_MAX: usize = 256;
/// Bytes of arguments that are kept of one process's denials. A call that alone has more is not kept.
const ARGS_BYTES_MAX: usize = 128 << 10;
/// New ones of a process and all below it in an hour; beyond, only the process is told.
const PER_HOUR: u64 = 60;
/// Beyond so many in it, one that no yes lifts is not kept.
const CLOSED_PER_HOUR: u64 = 30;
const HOUR_S: u64 = 3600;
/// Denials of one process that were lifted for once and are not used yet.
const LIFTED_MAX: usize = 64;
/// How the rules begin by which the kernel refuses what the policy allows.
const OF_THE_KERNEL: &str = "kernel: ";
/// Bytes of a call that its process is shown when it is told.
const CALL_SHOWN_BYTES: usize = 300;

/// What is kept of a denial.
pub(crate) struct Kept<'a> {
    /// The call that is made after a yes: the one that was denied, or the command to which something was.
    pub(crate) call: &'a Syscall,
    /// What denied it.
    pub(crate) rule: &'a str,
    /// What it wants.
    pub(crate) grants: Vec<String>,
    /// What was denied to a command.
    pub(crate) inner: Vec<Inner>,
    /// What led to a call that its process has not made.
    pub(crate) led: Option<String>,
    /// Why no yes lifts it.
    pub(crate) closed: Option<String>,
}

impl Kept<'_> {
    /// Names what it is on. Whatever command wants the same, it is the same.
    fn print(&self) -> u128 {
        if self.inner.is_empty() {
            return Standing::of("", self.call).print();
        }
        let mut wanted = self.grants.clone();
        if self.closed.is_some() {
            wanted = self.inner.iter().map(|inner| format!("{} {}", inner.name, inner.args)).collect();
        }
        wanted.sort_unstable();
        fingerprint("inside", &wanted.into())
    }
}

/// Whose a denial is, by its number.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Denied {
    pub(crate) pid: Pid,
    root: Pid,
    /// Names the call and what it is on, see [`Standing::print`].
    print: u128,
    /// A person has lifted it.
    lifted: bool,
    /// No yes lifts it.
    closed: bool,
}

/// The number of an id such as `p7`.
pub(crate) fn number(id: &str) -> Option<u64> {
    id.strip_prefix('p')?.parse().ok().filter(|number| format!("p{number}") == id)
}

/// What a no to a denial is remembered by; no call has it.
fn dismissed(print: u128) -> u128 {
    fingerprint("denied", &format!("{print:x}").into())
}

impl<P: PageStore> Kernel<P> {
    /// What a denied call wants, where a person may lift that. `led`: its process has not made it, so that it is denied too where
    /// a rule asks about it.
    fn wanting(&mut self, pid: Pid, call: &Syscall, led: bool) -> Option<Vec<String>> {
        // A message to somebody whom a rule closes under his other name.
        if self.rule_of_receiver(pid, call).is_some_and(|said| said.verdict == Verdict::Deny) {
            return None;
        }
        // Who is in a group when it is made, nobody could be shown.
        if matches!(call, Syscall::Kill(Kill { group: Some(_), .. })) {
            return None;
        }
        let about = self.about(pid, call);
        self.judge(pid, about, |policy, subject| match led {
            true => policy.wanting_unasked(subject, call),
            false => policy.wanting(subject, call).map(|wanting| wanting.grants),
        })?
    }

    /// Why no yes lifts that a call is denied, in words.
    fn closed(&mut self, pid: Pid, call: &Syscall) -> String {
        if let Some(said) = self.rule_of_receiver(pid, call).filter(|said| said.verdict == Verdict::Deny) {
            return format!("no yes lifts {}", said.rule);
        }
        if matches!(call, Syscall::Kill(Kill { group: Some(_), .. })) {
            return "whom a group holds when it is made nobody can be shown".to_owned();
        }
        let about = self.about(pid, call);
        self.judge(pid, about, |policy, subject| policy.closed(subject, call)).unwrap_or_default()
    }

    /// What a denied call wants, or why no yes lifts it; `led` as of [`Kernel::wanting`].
    fn wants_or_closed(&mut self, pid: Pid, call: &Syscall, led: bool) -> (Vec<String>, Option<String>) {
        match self.wanting(pid, call, led) {
            Some(grants) => (grants, None),
            None => (Vec::new(), Some(self.closed(pid, call))),
        }
    }

    /// Keeps a call that was just denied, for people to see, where they do not see it already. `led`: what led to it, where its
    /// process has not made it.
    pub(crate) fn keep_denial(&mut self, pid: Pid, call_id: CallId, call: &Syscall, rule: &str, led: Option<String>) {
        let (grants, closed) = self.wants_or_closed(pid, call, led.is_some());
        self.put_denial(pid, call_id, Kept { call, rule, grants, inner: Vec::new(), led, closed });
    }

    /// Keeps a call that the policy allowed and that what it asks for was denied to all the same, such as a child with more than
    /// its parent has: no yes lifts that.
    pub(crate) fn keep_refused(&mut self, pid: Pid, index: usize, call: &Syscall, error: &CallError) {
        let call_id = self.table.get(pid).and_then(|process| process.step.get(index)).map(|call| call.call_id.clone());
        // What was proposed has a line of its own.
        let Some(call_id) = call_id.filter(|_| error.code == Code::Perm && call.name() != Name::Propose) else {
            return;
        };
        let is_grant = |hint: &str| hint.split(' ').next().is_some_and(|word| word.parse::<Name>().is_ok());
        let closed = match &error.hint {
            Some(hint) if is_grant(hint) => format!("a yes is no grant: {hint}"),
            Some(hint) => hint.clone(),
            None => "no yes lifts it".to_owned(),
        };
        let (rule, grants, inner) = (format!("{OF_THE_KERNEL}{}", error.message), Vec::new(), Vec::new());
        self.put_denial(pid, call_id, Kept { call, rule: &rule, grants, inner, led: None, closed: Some(closed) });
    }

    /// Keeps a denial, where no person sees it already and there are not too many.
    pub(crate) fn put_denial(&mut self, pid: Pid, call_id: CallId, kept: Kept<'_>) {
        // Whoever began a dry run asked for that.
        if kept.rule.starts_with(OF_A_DRY_RUN) {
            return;
        }
        let print = kept.print();
        let Kept { call, rule, grants, inner, led, closed } = kept;
        let (name, args, now) = (call.name(), call.args(), self.globals.at);
        let within =
            inner.iter().map(|one| InnerCall { name: one.name.as_str().to_owned(), args: one.args.to_string() });
        let expires_at = now.plus_millis(self.policy.proposals().ttl_ms);
        let mut open = OpenProposal {
            call: None,
            name: name.as_str().to_owned(),
            args: args.to_string(),
            hold: false,
            rule: rule.to_owned(),
            grants: grants.clone(),
            inner: within.collect(),
            led: led.clone(),
            closed: closed.clone(),
            why: None,
            risk: None,
            receiver: None,
            expires_at,
            generation: self.policy.generation().to_owned(),
            examined: None,
        };
        let Some(root) = self.table.get(pid).map(|process| process.root) else { return };
        // A redirect leads to the same place until the process asks there by itself, as it was told that it may.
        let is_closed = closed.is_some();
        let known = |denied: &Denied| {
            let same = denied.root == root && denied.print == print && denied.closed == is_closed;
            same && (!denied.lifted || led.is_some())
        };
        if open.bytes() > ARGS_BYTES_MAX
            || self.globals.denials.values().any(known)
            || self.was_dismissed(pid, print)
            || !self.count_denial(pid, is_closed)
            || !self.make_room(pid, open.bytes(), is_closed)
        {
            return;
        }
        self.globals.last_proposal += 1;
        let number = self.globals.last_proposal;
        let id = format!("p{number}");
        open.risk = self.risk_by_now(pid, &open);
        open.rule = self.with_next(pid, &open, call, rule);
        let look = if is_closed { None } else { self.examination(pid, &id, &open) };
        let (verdict, rule, risk, why) = (Verdict::Deny, open.rule.clone(), open.risk.clone(), None);
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
        self.fact(pid, Body::Proposal { id, state: ProposalState::Denied, proposal: Some(proposal), why: None });
        self.globals.denials.insert(number, Denied { pid, root, print, lifted: false, closed: is_closed });
        self.with(pid, |process| process.denials.insert(number, Denial { open, lifted: false }));
        look.into_iter().for_each(|look| self.perform(look));
    }

    /// A rule with what else is said to the call, which the wanting grant hid and which a yes takes the place of as well.
    fn with_next(&mut self, pid: Pid, open: &OpenProposal, call: &Syscall, rule: &str) -> String {
        if open.closed.is_some() {
            return rule.to_owned();
        }
        let Some(next) = self.said_of(pid, open, call).filter(|said| said.verdict < Verdict::Allow) else {
            return rule.to_owned();
        };
        let does = if next.verdict == Verdict::Hold { "holds" } else { "asks" };
        match next.rule == rule {
            true => format!("{rule} {does}"),
            false => format!("{rule}; then {} {does}", next.rule),
        }
    }

    /// Whether a person has said no to it, of this process or of its tree.
    fn was_dismissed(&mut self, pid: Pid, print: u128) -> bool {
        let (now, print) = (self.globals.at, dismissed(print));
        let first = self.lineage(pid).last().copied().unwrap_or(pid);
        let said = |process: &Process| process.refusals.iter().any(|no| no.fingerprint == print && now < no.until);
        [pid, first].into_iter().any(|pid| self.table.get(pid).is_some_and(said))
    }

    /// Counts one more of its tree, where there may be one more.
    fn count_denial(&mut self, pid: Pid, closed: bool) -> bool {
        let (now, most) = (self.globals.at, if closed { CLOSED_PER_HOUR } else { PER_HOUR });
        let Some(first) = self.lineage(pid).last().copied() else { return false };
        let counted = self.with(first, |process| {
            let room = process.denied.used_at(now) < most;
            if room {
                process.denied.add(now, HOUR_S, 1);
            }
            room
        });
        counted == Some(true)
    }

    /// Lets others go until there is room for one more with so many bytes of arguments, the oldest of those that no yes lifts
    /// first. `false` where none gives way: one that no yes lifts takes the place of its like alone.
    fn make_room(&mut self, pid: Pid, bytes: usize, closed: bool) -> bool {
        loop {
            let Some(process) = self.table.get(pid) else { return false };
            let open = || process.denials.iter().filter(|(_, denial)| !denial.lifted);
            let kept: usize = open().map(|(_, denial)| denial.open.bytes()).sum();
            if open().count() < OF_PROCESS_MAX && kept + bytes <= ARGS_BYTES_MAX {
                break;
            }
            let of_closed = open().find(|(_, denial)| denial.open.closed.is_some());
            let oldest = of_closed.or_else(|| open().next().filter(|_| !closed)).map(|(number, _)| *number);
            let Some(number) = oldest else { return false };
            self.end_denial(number, "newer ones took its place");
        }
        while self.globals.denials.values().filter(|denied| !denied.lifted).count() >= IN_ALL_MAX {
            let Some(number) = self.one_too_many(true).or_else(|| self.one_too_many(false).filter(|_| !closed)) else {
                return false;
            };
            self.end_denial(number, "newer ones took its place");
        }
        true
    }

    /// The oldest of the tree that has the most, so that whoever is denied often pushes out nobody else's; of those alone that no
    /// yes lifts, or that one may.
    fn one_too_many(&self, closed: bool) -> Option<u64> {
        let open = || self.globals.denials.iter().filter(|(_, denied)| !denied.lifted && denied.closed == closed);
        let mut of_root: BTreeMap<Pid, usize> = BTreeMap::new();
        open().for_each(|(_, denied)| *of_root.entry(denied.root).or_default() += 1);
        let most = of_root.values().max()?;
        open().find(|(_, denied)| of_root.get(&denied.root) == Some(most)).map(|(number, _)| *number)
    }

    /// It is over, answered or not.
    pub(crate) fn end_denial(&mut self, number: u64, why: &str) {
        let Some(denied) = self.globals.denials.remove(&number) else { return };
        self.with(denied.pid, |process| process.denials.remove(&number));
        let (id, state, why) = (format!("p{number}"), ProposalState::Expired, Some(why.to_owned()));
        self.fact(denied.pid, Body::Proposal { id, state, proposal: None, why });
    }

    /// A denial of this process that is not over.
    pub(crate) fn denial(&mut self, pid: Pid, id: &str) -> Option<&Denial> {
        self.table.get(pid)?.denials.get(&number(id)?)
    }

    /// Somebody has looked at the files that a denied call concerns.
    pub(crate) fn examined_denial(&mut self, pid: Pid, examined: &aos_abi::entry::Examined) {
        let Some(number) = number(&examined.id) else { return };
        self.with(pid, |process| {
            if let Some(denial) = process.denials.get_mut(&number) {
                denial.open.examined = Some(examined.clone());
            }
        });
    }

    /// Whether a person may answer a denial so.
    pub(crate) fn check_denial(&mut self, pid: Pid, id: &str, state: ProposalState) -> Result<(), CallError> {
        let Some(process) = self.table.get(pid) else { return Err(crate::no_process(pid)) };
        let denial = number(id).and_then(|number| process.denials.get(&number)).ok_or_else(|| no_proposal(id))?;
        if !matches!(state, ProposalState::Approved | ProposalState::Standing) {
            return Ok(());
        }
        let again = |message: String, hint: &str| CallError {
            retry_after_ms: Some(1000),
            ..CallError::new(Code::Again, message).hint(hint)
        };
        if denial.lifted {
            return Err(no_proposal(id));
        }
        if let Some(why) = &denial.open.closed {
            let message = format!("no yes to {id} lets its call be made: {why}");
            let of_command = denial.open.name == Name::ExecCmd.as_str() && denial.open.inner.is_empty();
            let hint = match of_command && denial.open.rule.ends_with(": no rule") {
                true => format!("`aos approve {id} --for role` shows what its role would be given"),
                false => "what policy.yaml says holds until it is changed".to_owned(),
            };
            return Err(CallError::new(Code::Perm, message).hint(hint));
        }
        if denial.is_looked_at() {
            return Err(crate::proposals::unseen(id));
        }
        if process.is_full() {
            return Err(again(format!("process {pid} has too many unread events to be told"), "try it again later"));
        }
        if process.denials.values().filter(|denial| denial.lifted).count() >= LIFTED_MAX {
            let message = format!("process {pid} has {LIFTED_MAX} approvals that it has not used");
            return Err(again(message, "`aos reject ID` takes one back"));
        }
        let open = denial.open.clone();
        if state == ProposalState::Standing { self.check_stands(pid, id, &open) } else { Ok(()) }
    }

    /// A person has answered a denial; `false` where it is none.
    pub(crate) fn denial_answered(&mut self, pid: Pid, id: &str, state: ProposalState, why: Option<&str>) -> bool {
        let Some(open) = self.denial(pid, id).map(|denial| denial.open.clone()) else { return false };
        let Some(number) = number(id) else { return false };
        match state {
            ProposalState::Approved => {
                // What is known now must hold when it runs.
                let risk = self.risk_by_now(pid, &open);
                self.with(pid, |process| {
                    if let Some(denial) = process.denials.get_mut(&number) {
                        (denial.lifted, denial.open.risk) = (true, risk);
                    }
                });
                if let Some(denied) = self.globals.denials.get_mut(&number) {
                    denied.lifted = true;
                }
                let call = shown(&open);
                self.tell_lifted(pid, id, Lifted::Once, call, Some(open.expires_at));
            }
            ProposalState::Standing => {
                self.forget_denial(pid, number);
                self.stands(pid, id, &open);
                let standing = self.standing(pid);
                let covers: Vec<String> = standing.iter().filter(|one| one.id == id).map(|one| one.shown()).collect();
                self.tell_lifted(pid, id, Lifted::Process, begun(&covers.join(", "), CALL_SHOWN_BYTES), None);
            }
            ProposalState::Rejected | ProposalState::Vetoed => {
                let print = self.globals.denials.get(&number).map(|denied| denied.print);
                self.forget_denial(pid, number);
                if let Some(print) = print {
                    self.dismiss(pid, id, print, why.unwrap_or_default());
                }
            }
            ProposalState::Pending
            | ProposalState::Expired
            | ProposalState::Executed
            | ProposalState::Undone
            | ProposalState::Denied => {}
        }
        true
    }

    pub(crate) fn forget_denial(&mut self, pid: Pid, number: u64) {
        self.globals.denials.remove(&number);
        self.with(pid, |process| process.denials.remove(&number));
    }

    /// The same is not shown again while the answer holds, whoever of the tree makes it.
    fn dismiss(&mut self, pid: Pid, id: &str, print: u128, why: &str) {
        let until = self.globals.at.plus_millis(self.policy.proposals().ttl_ms);
        let first = self.lineage(pid).last().copied().unwrap_or(pid);
        for of in std::collections::BTreeSet::from([pid, first]) {
            let refusal = Refusal { fingerprint: dismissed(print), id: id.to_owned(), why: why.to_owned(), until };
            self.keep_refusal(of, refusal);
        }
    }

    /// Tells a process that it may make a call that was denied.
    fn tell_lifted(&mut self, pid: Pid, id: &str, reach: Lifted, call: String, until: Option<Timestamp>) {
        let lsn = self.fact(pid, Body::Lifted { id: id.to_owned(), reach, call, until });
        self.notice(pid, lsn, Labels::NONE);
        if reach != Lifted::Role {
            self.interrupt(pid, "a person's answer");
        }
    }

    /// The very call of a denial is put before people as a question: what led there is not listed beside it.
    pub(crate) fn is_asked_about(&mut self, pid: Pid, call: &Syscall) {
        let Some(process) = self.table.get(pid) else { return };
        let (name, args) = (call.name().as_str(), call.args().to_string());
        let is_it = |denial: &Denial| {
            !denial.lifted && denial.open.inner.is_empty() && denial.open.name == name && denial.open.args == args
        };
        let it = process.denials.iter().find(|(_, denial)| is_it(denial)).map(|(number, _)| *number);
        if let Some(number) = it {
            self.end_denial(number, "its process makes the call itself, and a person is asked");
        }
    }

    /// What a person's yes to this very call, which the policy denies or asks about, lets happen; with the approval, which is
    /// used up once the call is made. One that does not hold is over.
    pub(crate) fn lifted(&mut self, pid: Pid, ruling: &Ruling) -> Option<(String, OpenProposal, Permit)> {
        let call = ruling.refused.as_ref()?;
        let (name, args) = (call.name().as_str(), call.args().to_string());
        let is_it = |denial: &Denial| {
            denial.lifted && denial.open.lifts() && denial.open.name == name && denial.open.args == args
        };
        let mut of = self.table.get(pid)?.denials.iter();
        let (number, open) =
            of.find(|(_, denial)| is_it(denial)).map(|(number, denial)| (*number, denial.open.clone()))?;
        let id = format!("p{number}");
        match self.permit_approved(pid, &id, &open)? {
            Ok(permit) => Some((id, open, permit)),
            Err(error) => {
                self.end_denial(number, &error.message);
                None
            }
        }
    }

    /// A call is made under the yes to it, which is used up by that.
    pub(crate) fn use_lifted(&mut self, pid: Pid, index: usize, id: String, open: OpenProposal) {
        if let Some(number) = number(&id) {
            self.forget_denial(pid, number);
        }
        self.fact(pid, Body::Proposal { id: id.clone(), state: ProposalState::Executed, proposal: None, why: None });
        self.with(pid, |process| process.step[index].approved = Some((id, open)));
    }

    /// Those of a process whose time is over.
    pub(crate) fn expire_denials(&mut self, pid: Pid, now: Timestamp) {
        let Some(process) = self.table.get(pid) else { return };
        let due = process.denials.iter().filter(|(_, denial)| denial.open.expires_at <= now);
        let due: Vec<(u64, bool)> = due.map(|(number, denial)| (*number, denial.lifted)).collect();
        for (number, lifted) in due {
            self.end_denial(number, if lifted { "the call was not made in time" } else { "nobody lifted it in time" });
        }
    }

    /// A process has ended.
    pub(crate) fn close_denials(&mut self, pid: Pid) {
        let Some(process) = self.table.get(pid) else { return };
        let numbers: Vec<u64> = process.denials.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.end_denial(number, PROCESS_ENDED));
    }

    /// Another policy holds: what the old one denied is over, but for what this one denies in the very same way and nobody has
    /// lifted. Who may make such a call by now is told.
    pub(crate) fn denials_are_over(&mut self, why: &str) {
        let holds = self.policy.generation().to_owned();
        for (number, Denied { pid, lifted, .. }) in self.globals.denials.clone() {
            self.works_on(pid);
            let Some(open) = self.table.get(pid).and_then(|process| process.denials.get(&number)) else { continue };
            let open = open.open.clone();
            if open.generation == holds {
                continue;
            }
            let call = Syscall::parse(&open.name, &open.args).ok();
            // A yes was to what held when it was said.
            if !lifted && call.as_ref().is_some_and(|call| self.is_denied_alike(pid, call, &open)) {
                self.with(pid, |process| {
                    if let Some(denial) = process.denials.get_mut(&number) {
                        denial.open.generation = holds.clone();
                    }
                });
                continue;
            }
            self.end_denial(number, why);
            // Of what the policy allows it says nothing new.
            let Some(call) = call.filter(|_| !open.rule.starts_with(OF_THE_KERNEL)) else { continue };
            // Nobody is asked about what a command leads to.
            let inside = open.inner.is_empty() || self.passes_inside(pid, &call, &open);
            let said = self.rule(pid, call).map_or(Verdict::Deny, |ruling| ruling.verdict);
            // What led to a call may have been asked about before, too, and then nothing new may be done.
            let may = said == Verdict::Allow || (said > Verdict::Deny && open.led.is_none());
            if inside && may && self.table.get(pid).is_some_and(|process| !process.is_full()) {
                self.tell_lifted(pid, &format!("p{number}"), Lifted::Role, shown(&open), None);
            }
        }
    }

    /// Whether a call is denied by what holds now just as it was: by the same rule, for want of the same grants, or with no yes
    /// that lifts it for the same reason. All that people were shown of it is true then.
    fn is_denied_alike(&mut self, pid: Pid, call: &Syscall, open: &OpenProposal) -> bool {
        let Some(said) = self.rule(pid, call.clone()) else { return false };
        let led = open.led.is_some();
        let by_now = match open.inner.is_empty() {
            true if said.verdict == Verdict::Deny || (led && said.verdict < Verdict::Allow) => {
                let (grants, closed) = self.wants_or_closed(pid, call, led);
                Some((said.rule, grants, closed))
            }
            // The command itself may run still.
            false if said.verdict > Verdict::Deny => self.denied_inside_by_now(pid, call, open),
            _ => None,
        };
        let Some((rule, grants, closed)) = by_now else { return false };
        (&grants, &closed) == (&open.grants, &open.closed)
            && self.with_next(pid, open, call, &rule) == open.rule
            && self.risk_by_now(pid, open) == open.risk
    }

    /// What the policy says to a call that was put before people: to one that was denied, as if that were lifted.
    pub(crate) fn said_of(&mut self, pid: Pid, open: &OpenProposal, call: &Syscall) -> Option<aos_policy::Explanation> {
        let lifts = open.lifts();
        let about = self.about(pid, call);
        self.judge(pid, about, |policy: &Policy, subject: &Subject<'_>| match lifts {
            true => policy.explain_lifted(subject, call),
            false => policy.explain_with(subject, &[], call),
        })
    }
}

/// What a process is told of a call that the policy denies. The grant for a signal has the name of whom it would reach, which
/// is for people to see.
pub(crate) fn denied(name: Name, rule: &str, hint: Option<String>) -> CallError {
    const OF_SIGNAL: &str = "a person sees in `aos proposals` which grant it takes; what is below you needs none";
    let is_grant = |hint: &String| name == Name::Kill && hint.starts_with(name.as_str());
    let hint = if hint.as_ref().is_some_and(is_grant) { Some(OF_SIGNAL.to_owned()) } else { hint };
    CallError { hint, ..CallError::new(Code::Perm, format!("the policy denies {name}: {rule}")) }
}

/// A call as its process is shown it.
fn shown(open: &OpenProposal) -> String {
    let name = open.name.parse::<Name>().map_or("", |name| name.as_str());
    let args = begun(&open.args, CALL_SHOWN_BYTES);
    let passes = match open.inner.is_empty() {
        true => String::new(),
        false => format!(", in which nothing stands against {}", begun(&open.grants.join(", "), CALL_SHOWN_BYTES)),
    };
    format!("{name} {args}{passes}")
}

/// The beginning of a text, of at most so many bytes of it.
pub(crate) fn begun(text: &str, most: usize) -> String {
    let shown = &text[..text.floor_char_boundary(most)];
    if shown.len() < text.len() { format!("{shown}…") } else { text.to_owned() }
}
