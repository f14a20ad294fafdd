//! Proposals: calls that wait for a person.
//!
//! What always holds: an approved call is checked against the policy again when it runs, runs once, and is the very
//! call that was shown; nobody's silence is a yes to an `ask`.

use aos_abi::entry::{Proposal, ProposalState, Verdict};
use aos_abi::{Body, CallError, Code, Name, Pid, Syscall, Timestamp, limits};
use aos_policy::{Approval, Subject};

use crate::Kernel;
use crate::process::{CallState, OpenProposal, Phase, Wait};
use crate::table::PageStore;

/// How long a held call waits for a veto, in seconds, where the policy names no other window.
const HOLD_S: u64 = 15 * 60;

impl<P: PageStore> Kernel<P> {
    /// Puts a call before a person; it waits.
    #[expect(clippy::too_many_arguments, reason = "each is a field of the proposal")]
    pub(crate) fn propose(
        &mut self,
        pid: Pid,
        call: usize,
        name: Name,
        args: &serde_json::Value,
        hold: bool,
        rule: String,
        why: Option<String>,
        risk: Option<String>,
    ) {
        let Some(call_id) =
            self.table.get(pid).and_then(|process| process.step.get(call)).map(|call| call.call_id.clone())
        else {
            return;
        };
        self.globals.last_proposal += 1;
        let id = format!("p{}", self.globals.last_proposal);
        let life_s = if hold { HOLD_S } else { limits::PROPOSAL_TTL_S };
        let expires_at = self.globals.at.plus_millis(life_s * 1000);
        let proposal = Proposal {
            call_id,
            name,
            args: args.clone(),
            verdict: if hold { Verdict::Hold } else { Verdict::Ask },
            rule: rule.clone(),
            why: why.clone(),
            risk: risk.clone(),
            expires_at,
        };
        self.fact(
            pid,
            Body::Proposal {
                id: id.clone(),
                state: ProposalState::Pending,
                proposal: Some(Box::new(proposal)),
                why: None,
            },
        );
        self.globals.proposals.insert(id.clone(), pid);
        let since = self.globals.at;
        let generation = self.policy.generation().to_owned();
        self.with(pid, |process| {
            process.step[call].state = CallState::Waiting;
            process.phase = Phase::Waiting { call, wait: Wait::Approval(id.clone()), since, until: None };
            let name = name.as_str().to_owned();
            let args = args.to_string();
            process
                .proposals
                .insert(id, OpenProposal { call, name, args, hold, rule, why, risk, expires_at, generation });
        });
    }

    /// A person has answered.
    pub(crate) fn proposal_answered(&mut self, pid: Pid, id: &str, state: ProposalState, why: Option<&str>) {
        let Some(open) = self.take_proposal(pid, id) else { return };
        match state {
            ProposalState::Approved => self.run_proposed(pid, id, &open),
            ProposalState::Rejected | ProposalState::Vetoed => {
                let reason = why.filter(|why| !why.is_empty()).unwrap_or("no reason given");
                self.settle_proposal(pid, &open, CallError::new(Code::Rejected, reason));
            }
            ProposalState::Pending | ProposalState::Expired | ProposalState::Executed | ProposalState::Undone => {}
        }
    }

    /// Proposals whose time is over: held calls run, asked ones are refused.
    pub(crate) fn expire_proposals(&mut self, pid: Pid, now: Timestamp) {
        let Some(process) = self.table.get(pid) else { return };
        let due: Vec<String> =
            process.proposals.iter().filter(|(_, open)| open.expires_at <= now).map(|(id, _)| id.clone()).collect();
        for id in due {
            let Some(open) = self.take_proposal(pid, &id) else { continue };
            if open.hold {
                self.run_proposed(pid, &id, &open);
            } else {
                self.fact(pid, Body::Proposal { id, state: ProposalState::Expired, proposal: None, why: None });
                let error = CallError::new(Code::Rejected, "nobody answered in time")
                    .hint("propose it again if it still matters");
                self.settle_proposal(pid, &open, error);
            }
        }
    }

    fn take_proposal(&mut self, pid: Pid, id: &str) -> Option<OpenProposal> {
        let open = self.with(pid, |process| process.proposals.remove(id)).flatten()?;
        self.globals.proposals.remove(id);
        Some(open)
    }

    fn run_proposed(&mut self, pid: Pid, id: &str, open: &OpenProposal) {
        let role = self.policy.default_role().to_owned();
        let ruling = Syscall::parse(&open.name, &open.args).map(|call| {
            let chain = self.table.get(pid).map(|process| process.chain.clone()).unwrap_or_default();
            let subject = Subject { pid, role: &role, chain: &chain, labels: Default::default() };
            let args: serde_json::Value = serde_json::from_str(&open.args).unwrap_or_default();
            let approval = Approval { id, name: call.name(), args: &args, generation: Some(&open.generation) };
            self.policy.authorize_approved(&subject, call, &approval)
        });
        match ruling {
            Ok(ruling) => match ruling.permit {
                Some(permit) => {
                    self.fact(
                        pid,
                        Body::Proposal { id: id.to_owned(), state: ProposalState::Executed, proposal: None, why: None },
                    );
                    self.with(pid, |process| process.phase = Phase::Calling);
                    self.carry_out(pid, open.call, permit);
                    self.run_step(pid);
                }
                None => {
                    let mut error =
                        CallError::new(Code::Perm, format!("the policy denies {} by now: {}", open.name, ruling.rule));
                    error.hint = ruling.hint;
                    self.settle_proposal(pid, open, error);
                }
            },
            Err(error) => self.settle_proposal(pid, open, error),
        }
    }

    fn settle_proposal(&mut self, pid: Pid, open: &OpenProposal, error: CallError) {
        self.finish_call(pid, open.call, Err(error));
        self.run_step(pid);
    }
}
