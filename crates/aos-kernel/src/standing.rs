//! Standing approvals: a person's yes for the rest of a process's life, and its end.
//!
//! Start at [`Kernel::stands`]. What always holds: one is given with the answer to a proposal and journaled with it; it ends
//! with its process, with the policy it was given under, with a person's no, and where the files have changed that a
//! command's approval bound; a child or a fork has none of it. What it covers is the policy's business.

use aos_abi::entry::ProposalState;
use aos_abi::process::StandingView;
use aos_abi::{Body, CallError, Code, Name, Pid, Syscall};
use aos_policy::Standing;

use crate::Kernel;
use crate::process::{InnerCall, OpenProposal};
use crate::table::PageStore;

/// Standing approvals of one process.
const STANDING_MAX: usize = 64;

impl<P: PageStore> Kernel<P> {
    /// The approvals that stand for a process.
    pub(crate) fn standing(&mut self, pid: Pid) -> Vec<Standing> {
        let Some(process) = self.table.get(pid) else { return Vec::new() };
        process.standing.iter().flat_map(|(id, open)| standing_of(id, open)).collect()
    }

    /// The same as people see them.
    pub(crate) fn standing_view(&mut self, pid: Pid) -> Vec<StandingView> {
        let Some(process) = self.table.get(pid) else { return Vec::new() };
        let view = |(id, open): (&String, &OpenProposal)| {
            let covers: Vec<String> = standing_of(id, open).iter().map(Standing::shown).collect();
            StandingView { id: id.clone(), covers: covers.join(", "), rule: open.rule.clone() }
        };
        process.standing.iter().map(view).collect()
    }

    /// Whether a yes to this proposal may stand: not where the same call would be asked about again all the same.
    pub(crate) fn check_stands(&mut self, pid: Pid, id: &str, open: &OpenProposal) -> Result<(), CallError> {
        let Some(process) = self.table.get(pid) else { return Err(crate::no_process(pid)) };
        if process.standing.len() >= STANDING_MAX {
            return Err(CallError::new(
                Code::Again,
                format!("{STANDING_MAX} approvals stand for process {pid} already"),
            )
            .hint("`aos reject ID` withdraws one that `aos inspect` lists; or approve this once"));
        }
        let stands = standing_of(id, open);
        if stands.is_empty() {
            let message = format!("an approval of {id} cannot stand: it asks about no call of the process");
            return Err(CallError::new(Code::Perm, message).hint("approve it once"));
        }
        let call = Syscall::parse(&open.name, &open.args)?;
        let said = match open.inner.is_empty() {
            true => {
                let about = self.about(pid, &call);
                self.judge(pid, about, |policy, subject| policy.explain_with(subject, &stands, &call))
            }
            false => self.said_inside(pid, &call, open, stands),
        };
        match said {
            Some(said) if said.standing.is_some() && said.verdict == aos_abi::entry::Verdict::Allow => Ok(()),
            Some(said) => Err(CallError::new(
                Code::Perm,
                format!("an approval of {id} cannot stand: the same call would be decided by {} again", said.rule),
            )
            .hint("approve it once; only what a role's own rule asks, or has no rule for, can be answered for longer")),
            None => Err(crate::no_process(pid)),
        }
    }

    /// A yes stands from now on.
    pub(crate) fn stands(&mut self, pid: Pid, id: &str, open: &OpenProposal) {
        self.globals.standing.insert(id.to_owned(), pid);
        self.with(pid, |process| process.standing.insert(id.to_owned(), open.clone()));
    }

    /// Whether a yes stands under this id for the process.
    pub(crate) fn is_standing(&mut self, pid: Pid, id: &str) -> bool {
        self.table.get(pid).is_some_and(|process| process.standing.contains_key(id))
    }

    /// A yes stands no more.
    pub(crate) fn withdraw(&mut self, pid: Pid, id: &str) {
        if self.globals.standing.remove(id).is_some() {
            self.with(pid, |process| process.standing.remove(id));
        }
    }

    /// A command is about to run under an approval that stands: the files that it names must be those that were shown.
    pub(crate) fn runs_standing(&mut self, pid: Pid, index: usize, name: Name, id: &str) {
        if name != Name::ExecCmd {
            return;
        }
        self.with(pid, |process| {
            let bound = process.standing.get(id).cloned();
            process.step[index].approved = bound.map(|open| (id.to_owned(), open));
        });
    }

    /// Another policy holds: what was asked under the old one is over, and what was approved under it stands no more.
    pub(crate) fn questions_are_over(&mut self) {
        const WHY: &str = "the policy has changed since";
        for (id, pid) in self.globals.standing.clone() {
            self.works_on(pid);
            self.withdraw(pid, &id);
            let why = Some(format!("{WHY} it was approved for the process"));
            self.fact(pid, Body::Proposal { id, state: ProposalState::Expired, proposal: None, why });
        }
        let holds = self.policy.generation().to_owned();
        for (id, pid) in self.globals.proposals.clone() {
            self.works_on(pid);
            let older = self.open_proposal(pid, &id).filter(|open| open.generation != holds).cloned();
            if let Some(open) = older {
                self.may_ask_again(pid, &open);
                let error = CallError::new(Code::Rejected, format!("{WHY} this was asked"))
                    .hint("make the call again: the new policy decides on it");
                self.expire(pid, &id, Some(error.message.clone()), error);
            }
        }
        self.denials_are_over(&format!("{WHY} it was denied"));
    }
}

/// What a yes to it is to: its call, or what was denied to the command that it is.
pub(crate) fn calls_of(open: &OpenProposal) -> Vec<Syscall> {
    match open.inner.as_slice() {
        // What was proposed has been parsed before, but for what the system itself asks: a tier, or a model elsewhere.
        [] => Syscall::parse(&open.name, &open.args).into_iter().collect(),
        inner => inner.iter().filter_map(InnerCall::call).collect(),
    }
}

/// What a yes to it covers that stands; nothing where it is about no call.
fn standing_of(id: &str, open: &OpenProposal) -> Vec<Standing> {
    let lifts = !open.grants.is_empty();
    let standing = calls_of(open).into_iter().map(|call| Standing::of(id, &call));
    standing.map(|standing| if lifts { standing.lifting() } else { standing }).collect()
}
