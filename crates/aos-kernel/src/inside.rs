//! Denials of what a call led to: where a redirect leads, and what a command asks of the network or changes in files.
//!
//! Start at [`Kernel::denied_inside`]. A redirect is kept as the fetch that its process may make by itself. Of a command all is
//! one denial, the command's: it may be run once more, and what was denied in it passes then. What no yes lifts is another.
//! What always holds: the drivers only tell what was denied, and what a person may lift of that is judged here; a yes reaches
//! those very calls alone, in one run of the very command; of changes to files all can be let through or none, since none is
//! kept without the others.

use aos_abi::entry::{Inner, ProposalState, Requested, Verdict};
use aos_abi::{Body, Name, Pid, Syscall, limits};
use aos_policy::{Explanation, Permit, Ruling, Standing};

use crate::denials::{Kept, begun};
use crate::effect::Authority;
use crate::process::{InnerCall, OpenProposal};
use crate::table::PageStore;
use crate::{InFlight, Kernel};

/// Bytes that are shown of the address whose server pointed elsewhere.
const LED_BYTES: usize = 200;

/// Calls on files by which the changes of a command are judged.
fn is_on_files(call: &Syscall) -> bool {
    matches!(call.name(), Name::FsWrite | Name::FsDelete)
}

/// Calls that a call can lead to.
fn can_be_inside(call: &Syscall) -> bool {
    is_on_files(call) || matches!(call.name(), Name::NetFetch | Name::NetSend)
}

/// The rules for which something was denied to a command, in a few words. What a change to the role would mend is said only
/// where it would mend all: a rule that is none of it alone, and several that are together.
fn all_of(mut rules: Vec<String>) -> Option<String> {
    if let Some(at) = rules.iter().position(|rule| !rule.starts_with("role ")) {
        return Some(rules.swap_remove(at));
    }
    // Those without a rule first.
    rules.sort_by_key(|rule| !rule.contains(": no rule"));
    let mut seen = std::collections::BTreeSet::new();
    rules.retain(|rule| seen.insert(rule.clone()));
    let (first, others) = rules.split_first()?;
    Some(match others {
        [] => first.clone(),
        [other] => format!("{first}; also {other}"),
        [other, ..] => format!("{first}; also {other}, and others"),
    })
}

/// What was denied to a command and makes one denial.
struct Inside {
    inner: Vec<Inner>,
    rule: String,
    grants: Vec<String>,
    /// Why no yes lets it through.
    closed: Option<String>,
}

impl Inside {
    /// What of these a person may let through, and what no yes does; the second of them are such already.
    fn sorted(authority: &Authority, (told, mut closed): (Vec<Syscall>, Vec<Syscall>)) -> [Option<Inside>; 2] {
        let sending = authority.sending();
        let decides = |call: &Syscall| if is_on_files(call) { authority } else { &sending };
        let wanted: Vec<_> = told.into_iter().map(|call| (decides(&call).wants(&call), call)).collect();
        let files = wanted.iter().filter(|(_, call)| is_on_files(call)).all(|(wants, _)| wants.is_some());
        let (mut inner, mut grants, mut rules) = (Vec::new(), Vec::new(), Vec::new());
        for (wants, call) in wanted {
            // Of changes none passes without the others.
            let Some((wants, rule)) = wants.filter(|_| files || !is_on_files(&call)) else {
                closed.push(call);
                continue;
            };
            if inner.contains(&Inner::of(&call)) {
                continue;
            }
            inner.push(Inner::of(&call));
            rules.push(rule);
            wants.into_iter().for_each(|grant| {
                if !grants.contains(&grant) {
                    grants.push(grant)
                }
            });
        }
        let open = all_of(rules).map(|rule| Inside { inner, rule, grants, closed: None });
        let (mut inner, mut rules, mut whys) = (Vec::new(), Vec::new(), Vec::new());
        for call in closed {
            let Some((rule, why)) = decides(&call).closed(&call).filter(|_| !inner.contains(&Inner::of(&call))) else {
                continue;
            };
            inner.push(Inner::of(&call));
            rules.push(rule);
            if !whys.contains(&why) {
                whys.push(why);
            }
        }
        let closed = Some(whys.join("; "));
        [open, all_of(rules).map(|rule| Inside { inner, rule, grants: Vec::new(), closed })]
    }
}

impl<P: PageStore> Kernel<P> {
    /// A driver has told what a call led to that was denied.
    pub(crate) fn denied_inside(&mut self, pid: Pid, requested: &Requested) {
        let Some(process) = self.table.get(pid).filter(|process| !process.exited()) else { return };
        let running = |call: &&crate::process::StepCall| call.call_id == requested.call_id && call.is_running();
        let Some((index, call)) = process.step.iter().enumerate().find(|(_, call)| running(call)) else {
            self.denied_to_a_child(pid, requested);
            return;
        };
        let args = call.approved.as_ref().map_or(&call.args, |(_, open)| &open.args);
        let Ok(made) = Syscall::parse(call.made(), args) else { return };
        let calls = |told: &[Inner]| -> Vec<Syscall> {
            let calls = told.iter().take(limits::DENIED_INSIDE_MAX).filter_map(|inner| inner.call().ok());
            calls.filter(can_be_inside).collect()
        };
        let (told, closed) = (calls(&requested.denied), calls(&requested.closed));
        match &made {
            Syscall::NetFetch(fetch) => {
                let led = format!("a redirect of NET_FETCH {}", begun(&fetch.url, LED_BYTES));
                for to in told.iter().chain(&closed).filter(|call| call.name() == Name::NetFetch) {
                    let Some(ruling) = self.rule(pid, to.clone()) else { return };
                    // What a rule asks about is denied here as well: nobody is asked while a server waits.
                    if ruling.verdict < Verdict::Allow {
                        self.keep_denial(pid, requested.call_id.clone(), to, &ruling.rule, Some(led.clone()));
                    }
                }
            }
            Syscall::ExecCmd(_) => self.denied_to_command(pid, index, &made, (told, closed)),
            _ => {}
        }
    }

    /// What a child is to be shown was fetched for its parent's grants, and led elsewhere. The parent, who may not be meant to read
    /// it, is offered no fetch of it.
    fn denied_to_a_child(&mut self, pid: Pid, requested: &Requested) {
        let fetches = |flight: &InFlight| match flight {
            InFlight::Call { pid: child, by, call, .. } if *by == pid && *child != pid => Some((*child, *call)),
            _ => None,
        };
        let fetched: Vec<(Pid, usize)> = self.globals.in_flight.values().filter_map(fetches).collect();
        let is_it = |(child, call): (Pid, usize)| {
            let step = self.table.get(child).and_then(|process| process.step.get(call));
            step.is_some_and(|call| call.call_id == requested.call_id)
        };
        if !fetched.into_iter().any(is_it) {
            return;
        }
        let calls: Vec<Syscall> =
            requested.denied.iter().chain(&requested.closed).filter_map(|inner| inner.call().ok()).collect();
        for call in calls.iter().filter(|call| call.name() == Name::NetFetch) {
            let Some(ruling) = self.rule(pid, call.clone()).filter(|ruling| ruling.verdict < Verdict::Allow) else {
                continue;
            };
            let led = Some("a redirect of what SPAWN_AGENT attaches".to_owned());
            let closed = Some("what a child is shown is fetched where its parent says, or not at all".to_owned());
            let (rule, grants, inner) = (ruling.rule.as_str(), Vec::new(), Vec::new());
            self.put_denial(pid, requested.call_id.clone(), Kept { call, rule, grants, inner, led, closed });
        }
    }

    /// Keeps what was denied to a command: what a person may let through, and apart from it what no yes lets through.
    fn denied_to_command(&mut self, pid: Pid, index: usize, command: &Syscall, told: (Vec<Syscall>, Vec<Syscall>)) {
        let Some(call_id) = self.table.get(pid).map(|process| process.step[index].call_id.clone()) else { return };
        let authority = self.authority(pid, Some(index), command);
        for Inside { inner, rule, grants, closed } in Inside::sorted(&authority, told).into_iter().flatten() {
            let kept = Kept { call: command, rule: &rule, grants, inner, led: None, closed };
            self.put_denial(pid, call_id.clone(), kept);
        }
    }

    /// The approvals that stand for what a call leads to: what was denied and is granted to its process from now on. No file is
    /// shown to a command by one.
    pub(crate) fn standing_inside(&mut self, pid: Pid, call: &Syscall) -> Vec<Standing> {
        if !matches!(call.name(), Name::NetFetch | Name::ExecCmd) {
            return Vec::new();
        }
        let Some(process) = self.table.get(pid) else { return Vec::new() };
        let lifting = process.standing.iter().filter(|(_, open)| open.lifts() || !open.inner.is_empty());
        let calls =
            lifting.flat_map(|(id, open)| crate::standing::calls_of(open).into_iter().map(move |call| (id, call)));
        calls.filter(|(_, call)| can_be_inside(call)).map(|(id, call)| Standing::of(id, &call).lifting()).collect()
    }

    /// What would be said to what was denied to a command if these approvals stood: the strictest.
    pub(crate) fn said_inside(
        &mut self,
        pid: Pid,
        command: &Syscall,
        open: &OpenProposal,
        stands: Vec<Standing>,
    ) -> Option<Explanation> {
        let mut authority = self.authority(pid, None, command);
        authority.standing = stands;
        let sending = authority.sending();
        let calls = open.inner.iter().filter_map(InnerCall::call);
        let said = calls.map(|call| if is_on_files(&call) { authority.explain(&call) } else { sending.explain(&call) });
        said.min_by_key(|said| said.verdict)
    }

    /// Whether all that was denied to a command would happen now.
    pub(crate) fn passes_inside(&mut self, pid: Pid, command: &Syscall, open: &OpenProposal) -> bool {
        self.said_inside(pid, command, open, Vec::new()).is_some_and(|said| said.verdict == Verdict::Allow)
    }

    /// The rule by which all that was denied to a command is denied now, with what it wants or why no yes lifts it; `None` where
    /// some of it is not, or not in the one way in which all of it was.
    pub(crate) fn denied_inside_by_now(
        &mut self,
        pid: Pid,
        command: &Syscall,
        open: &OpenProposal,
    ) -> Option<(String, Vec<String>, Option<String>)> {
        let calls: Vec<Syscall> = open.inner.iter().filter_map(InnerCall::call).collect();
        let told = if open.closed.is_some() { (Vec::new(), calls) } else { (calls, Vec::new()) };
        let authority = self.authority(pid, None, command);
        let now =
            Inside::sorted(&authority, told).into_iter().flatten().find(|now| now.inner.len() == open.inner.len())?;
        Some((now.rule, now.grants, now.closed))
    }

    /// The yeses to one more run of this very command, the newest first.
    fn one_run(&mut self, pid: Pid, command: &Syscall) -> Vec<(u64, OpenProposal)> {
        let Some(process) = self.table.get(pid).filter(|_| command.name() == Name::ExecCmd) else { return Vec::new() };
        let args = command.args().to_string();
        let lifted = process.denials.iter().rev().filter(|(_, denial)| denial.lifted && !denial.open.inner.is_empty());
        let it = lifted.filter(|(_, denial)| denial.open.args == args);
        it.map(|(number, denial)| (*number, denial.open.clone())).collect()
    }

    /// What a yes to one more run of this command lets happen where a person would be asked about it anew. One that does not
    /// hold is over.
    pub(crate) fn runs_once_more(&mut self, pid: Pid, ruling: &Ruling) -> Option<Permit> {
        let asks = matches!(ruling.verdict, Verdict::Ask | Verdict::Hold);
        let command = ruling.refused.as_ref().filter(|_| asks)?;
        for (number, open) in self.one_run(pid, command) {
            match self.permit_approved(pid, &format!("p{number}"), &open)? {
                Ok(permit) => return Some(permit),
                Err(error) => self.end_denial(number, &error.message),
            }
        }
        None
    }

    /// A command runs: the yeses to one more run of it are used up, and what they let through comes back. Those hold together
    /// that are to the same files.
    pub(crate) fn use_one_run(&mut self, pid: Pid, index: usize, command: &Syscall) -> Vec<Standing> {
        let mut lets = Vec::new();
        for (number, open) in self.one_run(pid, command) {
            let id = format!("p{number}");
            match self.permit_approved(pid, &id, &open) {
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.end_denial(number, &error.message);
                    continue;
                }
                None => return lets,
            }
            let Some(call) = self.table.get(pid).and_then(|process| process.step.get(index)) else { return lets };
            let files = |open: &OpenProposal| open.examined.as_ref().map(|examined| examined.files.clone());
            if call.approved.as_ref().is_some_and(|(_, bound)| files(bound) != files(&open)) {
                continue;
            }
            let calls = open.inner.iter().filter_map(InnerCall::call);
            lets.extend(calls.map(|call| Standing::for_one_run(&id, &call)));
            self.forget_denial(pid, number);
            self.fact(
                pid,
                Body::Proposal { id: id.clone(), state: ProposalState::Executed, proposal: None, why: None },
            );
            self.with(pid, |process| {
                process.step[index].approved.get_or_insert((id, open));
            });
        }
        lets
    }
}
