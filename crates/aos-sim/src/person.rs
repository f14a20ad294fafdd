//! People: whatever reaches the kernel from outside by somebody's will, sensible or not.
//!
//! Start at [`act`]. What the kernel refuses leaves no trace, so nonsense is welcome here.

use std::collections::BTreeMap;

use aos_abi::entry::{Asked, Key, ProposalState, WebhookRequest};
use aos_abi::inference::Format;
use aos_abi::model::Ability;
use aos_abi::process::{BudgetSpec, Mode, Priority, SpawnSpec};
use aos_abi::{Body, Pid, Signal, Timestamp, Usd};
use aos_kernel::Kernel;
use aos_kernel::table::PageStore;

use crate::chance::Chance;
use crate::setup::{self, ASKED, GROUPS, Kind, NAMES, PATHS};

/// What people do next.
pub(crate) fn act<P: PageStore>(
    chance: &mut Chance,
    kernel: &mut Kernel<P>,
    serial: u64,
    kind: Kind,
) -> Option<(Pid, Body)> {
    let next = kernel.next_pid();
    let anybody = Pid(chance.between(2, next.0.max(3) - 1));
    // A busy world has enough of everybody.
    let weights = match kind {
        Kind::Mixed => [18, 22, 12, 3, 5, 4, 12, 10, 2, 3, 2, 2],
        Kind::Busy => [0, 22, 0, 0, 0, 0, 12, 10, 2, 3, 0, 1],
        Kind::Asking => [6, 22, 4, 1, 0, 1, 40, 2, 1, 3, 1, 0],
    };
    let body = match chance.weighted(&weights) {
        0 => return Some((next, Body::Spawned(Box::new(spawn(chance, next, anybody))))),
        1 => Body::Input {
            text: if chance.percent(85) { format!("input {serial}") } else { String::new() },
            eof: chance.percent(15),
            from_pid: Pid::INIT,
            untrusted: serial % 32 == 7,
        },
        2 => Body::Signal {
            signal: [Signal::Term, Signal::Kill, Signal::Stop, Signal::Cont][chance.weighted(&[25, 20, 25, 30])],
            from_pid: Pid::INIT,
            tree: chance.percent(40),
        },
        3 => return fork(kernel, anybody),
        4 => Body::Budgeted { budget: budget(chance, 3) },
        5 => {
            let config = setup::configured(chance, kind);
            return Some((Pid::SYSTEM, Body::Configured(Box::new(config))));
        }
        6 => return answer(chance, kernel),
        7 => return webhook(chance, kernel, serial),
        8 => {
            let pids = kernel.prunable(&(2..next.0).map(Pid).collect::<Vec<_>>(), None);
            return Some((Pid::SYSTEM, Body::Pruned { pids, entries: 0 }));
        }
        9 => Body::Signal { signal: Signal::Cont, from_pid: Pid::INIT, tree: false },
        10 => {
            let signal = [Signal::Term, Signal::Kill, Signal::Stop, Signal::Cont][chance.weighted(&[15, 15, 25, 45])];
            let (group, tree) = (chance.one(&GROUPS).to_owned(), chance.percent(30));
            return Some((Pid::SYSTEM, Body::GroupSignal { group, signal, tree }));
        }
        _ => {
            let pids: Vec<Pid> = (2..next.0).map(Pid).collect();
            let timer = chance.pick(&kernel.timers(pids))?;
            return Some((timer.pid, Body::Unscheduled { timer_id: timer.timer.timer_id }));
        }
    };
    Some((anybody, body))
}

/// Somebody starts a process.
pub(crate) fn spawns<P: PageStore>(chance: &mut Chance, kernel: &mut Kernel<P>, kind: Kind) -> (Pid, Body) {
    let next = kernel.next_pid();
    let mut spec = spawn(chance, next, Pid::INIT);
    if kind != Kind::Mixed {
        spec.task = Some("never rest".into());
        (spec.model, spec.budget, spec.grants) = (setup::NATIVE.into(), BudgetSpec::default(), None);
    }
    (next, Body::Spawned(Box::new(spec)))
}

fn budget(chance: &mut Chance, wealth: u64) -> BudgetSpec {
    BudgetSpec {
        usd: chance.percent(50).then(|| Usd(chance.between(0, 150_000_000 * wealth))),
        tokens: chance.percent(30).then(|| chance.between(0, 100_000 * wealth)),
        calls: chance.percent(30).then(|| chance.between(0, 20 * wealth)),
        wall_s: chance.percent(10).then(|| chance.between(1, 4000)),
    }
}

fn spawn(chance: &mut Chance, next: Pid, anybody: Pid) -> SpawnSpec {
    const RIGHTS: [&[&str]; 3] = [&[], &["FS_READ **"], &["FS_READ docs/**", "SPAWN_AGENT", "SEND_MSG *"]];
    SpawnSpec {
        parent: if chance.percent(90) { Pid::INIT } else { anybody },
        name: chance.percent(30).then(|| chance.one(&NAMES).to_owned()),
        group: chance.percent(30).then(|| chance.one(&GROUPS).to_owned()),
        task: chance.percent(70).then(|| "do something".to_owned()),
        mode: if chance.percent(50) { Mode::OneShot } else { Mode::Resident },
        model: chance.one(&ASKED).to_owned(),
        priority: [Priority::Interactive, Priority::Normal, Priority::Batch][chance.weighted(&[20, 60, 20])],
        grants: chance.percent(20).then(|| chance.one(&RIGHTS).iter().map(|text| (*text).to_owned()).collect()),
        budget: if chance.percent(50) { budget(chance, 4) } else { BudgetSpec::default() },
        pipe_to: chance.percent(10).then_some(anybody),
        ..SpawnSpec::resident(next, "You are an agent.", "")
    }
}

/// A program that is to have a key.
pub(crate) fn program<P: PageStore>(chance: &mut Chance, kernel: &mut Kernel<P>) -> (Pid, Body) {
    let next = kernel.next_pid();
    let mut spec = spawn(chance, next, Pid::INIT);
    (spec.mode, spec.task, spec.grants, spec.pipe_to) = (Mode::Program, None, None, None);
    (next, Body::Spawned(Box::new(spec)))
}

/// Its key.
pub(crate) fn key(chance: &mut Chance, serial: u64) -> Key {
    Key {
        sha256: format!("{serial:064x}"),
        owner: None,
        rpm: chance.percent(30).then(|| chance.between(1, 10) as u32),
        tiers: Vec::new(),
    }
}

/// What it asks.
pub(crate) fn asked(chance: &mut Chance, serial: u64) -> Asked {
    let model = chance.one(&ASKED);
    Asked {
        request: serial,
        model: model.to_owned(),
        format: Format::Chat,
        input_tokens: chance.between(1, 3000),
        max_output: chance.percent(50).then(|| chance.between(1, 2000) as u32),
        needs: Ability::ALL.into_iter().filter(|_| chance.percent(5)).collect(),
        more: 0,
    }
}

fn fork<P: PageStore>(kernel: &mut Kernel<P>, from: Pid) -> Option<(Pid, Body)> {
    let spec = kernel.fork_of(from).ok()?;
    let window = kernel.past(from).unwrap_or_default();
    let rests = kernel.rests(from);
    let body = Body::Forked { from_pid: from, from_lsn: kernel.lsn(), spec: Box::new(spec), window, rests };
    Some((kernel.next_pid(), body))
}

fn answer<P: PageStore>(chance: &mut Chance, kernel: &mut Kernel<P>) -> Option<(Pid, Body)> {
    let standing = kernel.standing_approvals();
    if chance.percent(20)
        && let Some((id, pid)) = chance.pick(&standing)
    {
        return Some((pid, Body::Proposal { id, state: ProposalState::Rejected, proposal: None, why: None }));
    }
    let open = kernel.proposals();
    let proposal = chance.pick(&open)?;
    let states = [
        ProposalState::Approved,
        ProposalState::Standing,
        ProposalState::Rejected,
        ProposalState::Vetoed,
        ProposalState::Expired,
        ProposalState::Undone,
    ];
    let state = states[chance.weighted(&[40, 15, 30, 5, 5, 5])];
    Some((proposal.pid, Body::Proposal { id: proposal.id, state, proposal: None, why: Some("so".into()) }))
}

fn webhook<P: PageStore>(chance: &mut Chance, kernel: &mut Kernel<P>, serial: u64) -> Option<(Pid, Body)> {
    let path = chance.one(&PATHS);
    let (pid, route) = kernel.route(path)?;
    let reply_by = (route.reply_within_s > 0).then(|| kernel.at().plus_millis(route.reply_within_s * 1000));
    Some((pid, Body::Webhook(request(format!("r{serial}"), path, reply_by))))
}

/// A request for a webhook.
pub(crate) fn request(id: String, path: &str, reply_by: Option<Timestamp>) -> WebhookRequest {
    WebhookRequest {
        id,
        method: "POST".into(),
        path: path.into(),
        headers: BTreeMap::new(),
        body: "{}".into(),
        encoding: None,
        reply_by,
    }
}
