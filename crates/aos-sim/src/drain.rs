//! Coming to rest: nobody begins anything new, everything under way ends, and then nothing may be stuck.

use aos_abi::Body;
use aos_abi::Pid;
use aos_abi::entry::ProposalState;
use aos_kernel::process::Phase;

use crate::report::{Broken, Halt, broken};
use crate::world::Simulation;

/// Rounds after which a world must have come to rest.
const ROUNDS: u32 = 3000;

/// Lets the world come to rest and looks at what is left.
pub(crate) fn to_rest(sim: &mut Simulation) -> Result<(), Halt> {
    sim.outside.calm = true;
    sim.sync()?;
    let open: Vec<_> = sim.kernel.proposals().into_iter().map(|proposal| (proposal.id, proposal.pid)).collect();
    for (id, pid) in open {
        let state = if sim.chance.percent(50) { ProposalState::Approved } else { ProposalState::Rejected };
        sim.offer(pid, Body::Proposal { id, state, proposal: None, why: None })?;
    }
    let mut rounds = 0;
    while busy(sim) {
        rounds += 1;
        if rounds > ROUNDS {
            return Err(stuck(sim, "still busy after everything was delivered").into());
        }
        sim.sync()?;
        while let Some(job) = sim.outside.take_due(&mut sim.chance, sim.now) {
            sim.deliver(job)?;
        }
        sim.sync()?;
        if !busy(sim) {
            break;
        }
        let next = [sim.outside.next_due(), sim.kernel.next_deadline()].into_iter().flatten().min();
        match next {
            Some(at) => sim.go_to(at)?,
            None => return Err(stuck(sim, "nothing is under way and nothing is due").into()),
        }
    }
    sim.sync()?;
    sim.outside.desk.at_rest(sim.now)?;
    if sim.kernel.next_deadline().is_none() {
        let before = sim.history.len();
        sim.apply(Pid::SYSTEM, Body::Tick)?;
        if sim.history.len() != before + 1 || !sim.waiting.is_empty() {
            return Err(broken("an idle system does nothing", "a tick came to something").into());
        }
        sim.sync()?;
    }
    Ok(())
}

/// Whether anybody is at something that time and outcomes alone must end.
fn busy(sim: &mut Simulation) -> bool {
    sim.outside.next_due().is_some() || !at_work(sim).is_empty()
}

fn at_work(sim: &mut Simulation) -> Vec<Pid> {
    let config = sim.kernel.config().clone();
    let pids = (2..sim.kernel.next_pid().0).map(Pid);
    pids.filter(|pid| {
        sim.kernel.process(*pid).is_some_and(|process| match &process.phase {
            Phase::Ready => process.stopped.is_none() && config.models.contains_key(&process.model),
            Phase::Calling | Phase::Backoff(_) => process.stopped.is_none(),
            Phase::Inferring(_) => true,
            Phase::Waiting { .. } | Phase::Broke { .. } | Phase::Writing(_) | Phase::Idle | Phase::Exited => false,
        })
    })
    .collect()
}

fn stuck(sim: &mut Simulation, what: &str) -> Broken {
    let who: Vec<String> = at_work(sim)
        .into_iter()
        .map(|pid| format!("{pid} {:?}", sim.kernel.process(pid).map(|process| process.phase.clone())))
        .collect();
    broken("a drained world has nobody stuck", format!("{what}: {who:?}"))
}
