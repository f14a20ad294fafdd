//! The past of processes, read from the journal: windows for forks, decisions made again, proposals that are over.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use aos_abi::api::{CallView, ProposalView, ReplayDifference, ReplayView};
use aos_abi::entry::{Outcome, Proposal, ProposalState, Verdict, WindowItem};
use aos_abi::{Body, EffectId, Entry, Lsn, Name, Pid};
use aos_journal::{Error, Reader};
use aos_kernel::preview::preview;

use super::barrier;
use super::undo::{Link, Links};

/// Entries read at once.
const PAGE: u64 = 4096;

/// The window of a process as of some entry, as the journal tells it.
pub(crate) struct Told {
    /// The last entry that it holds.
    pub(crate) upto: Lsn,
    /// Its window, in order.
    pub(crate) window: Vec<WindowItem>,
    /// It had nothing to do.
    pub(crate) rests: bool,
}

/// The window of `pid` just after the entry `at`, or now. `None` where it has no entry up to there.
pub(crate) fn window(reader: &Reader, pid: Pid, at: Option<Lsn>) -> Result<Option<Told>, Error> {
    // The end of a child stands in its parent's window, and in the child's own trail.
    let mut children = BTreeSet::new();
    each_of(reader, pid, at, |entry| {
        if let Body::Result { name, outcome: Outcome::Success { result }, .. } = &entry.body
            && [Name::SpawnAgent, Name::Propose].iter().any(|spawns| spawns.as_str() == name)
        {
            children.extend(result["pid"].as_u64().map(Pid));
        }
    })?;
    let mut ends = BTreeMap::new();
    for child in children {
        // What was proposed may have told of any other.
        let mut is_own = false;
        each_of(reader, child, at, |entry| match &entry.body {
            Body::Spawned(spec) => is_own = spec.parent == pid,
            Body::Exited { .. } if is_own => {
                ends.insert(entry.lsn, entry);
            }
            _ => {}
        })?;
    }
    let (mut past, mut upto) = (aos_kernel::past::Past::of(pid), Lsn::ZERO);
    each_of(reader, pid, at, |entry| {
        while let Some(end) = ends.first_entry().filter(|end| *end.key() < entry.lsn) {
            past.take(&end.remove());
        }
        upto = entry.lsn;
        past.take(&entry);
    })?;
    ends.values().for_each(|end| past.take(end));
    let rests = past.rests();
    Ok((upto > Lsn::ZERO).then(|| Told { upto, window: past.window(), rests }))
}

/// Does something with each entry of a process up to one, in order.
fn each_of(reader: &Reader, pid: Pid, at: Option<Lsn>, mut visit: impl FnMut(Entry)) -> Result<(), Error> {
    let mut after = Lsn::ZERO;
    loop {
        let page = reader.entries_of(pid, after, PAGE)?;
        if page.is_empty() {
            return Ok(());
        }
        for entry in page {
            if at.is_some_and(|at| entry.lsn > at) {
                return Ok(());
            }
            after = entry.lsn;
            visit(entry);
        }
    }
}

/// Makes every decision of the journal again, offline, and says where those about `pid` differ. The inner error says
/// why that cannot be done.
pub(crate) fn replay(reader: &Reader, pid: Pid, at: Option<Lsn>) -> Result<Result<ReplayView, String>, Error> {
    let (mut kernel, after) = barrier::origin(reader)?;
    if at.is_some_and(|at| at <= after) {
        return Ok(Err(format!(
            "entries up to {after} were decided by an earlier version of aos, or what led to them was pruned"
        )));
    }
    let mut expected: std::collections::VecDeque<std::sync::Arc<Entry>> = Default::default();
    let mut view = ReplayView { after, inputs: 0, facts: 0, difference: None };
    let mut refused = None;
    let mut last = after;
    reader.for_each_after(after, |recorded| {
        if at.is_some_and(|at| recorded.lsn > at) {
            return ControlFlow::Break(());
        }
        // Every decision follows from all that came before it, whosever it was, so a gap ends what can be made again.
        if recorded.lsn != last.next() {
            let (from, to) = (last.next(), recorded.lsn);
            refused = Some(format!(
                "entries from {from} on, before {to}, were pruned, so what came after them cannot be decided again"
            ));
            return ControlFlow::Break(());
        }
        last = recorded.lsn;
        if recorded.cause.is_none() {
            let applied = kernel.apply(recorded.at, recorded.pid, recorded.body.clone());
            expected = applied.entries.into();
            if recorded.pid == pid {
                view.inputs += 1;
            }
        } else if recorded.pid == pid {
            view.facts += 1;
        }
        let now = expected.pop_front();
        if now.as_deref() == Some(&recorded) {
            return ControlFlow::Continue(());
        }
        // A difference anywhere may have bent this process's path, so the first one counts whosever it is.
        view.difference = Some(ReplayDifference {
            lsn: recorded.lsn,
            recorded: serde_json::to_value(&recorded).ok(),
            now: now.and_then(|entry| serde_json::to_value(&*entry).ok()),
        });
        ControlFlow::Break(())
    })?;
    if view.difference.is_some() && barrier::position(reader)? != after {
        refused = Some("what it began with was replaced meanwhile, by a prune: do it again".to_owned());
    }
    Ok(refused.map_or(Ok(view), Err))
}

/// Every proposal there ever was, with what became of it.
pub(crate) fn proposals(reader: &Reader) -> Result<Vec<ProposalView>, Error> {
    let (mut proposals, mut links) = (Proposals::default(), Links::default());
    reader.for_each_after(Lsn::ZERO, |entry| {
        proposals.take(&entry);
        links.take(entry);
        ControlFlow::Continue(())
    })?;
    proposals.join(&links.found());
    let mut views: Vec<ProposalView> = proposals.0.into_values().collect();
    views.sort_by_key(|view| view.id.trim_start_matches('p').parse::<u64>().unwrap_or(u64::MAX));
    Ok(views)
}

/// The proposal of this id with what became of it, and what each id stands for that can be taken back: read at once, since
/// that is as long as the journal.
pub(crate) fn undoable(reader: &Reader, id: &str) -> Result<(Option<ProposalView>, BTreeMap<String, Link>), Error> {
    let (mut proposals, mut links) = (Proposals::default(), Links::default());
    reader.for_each_after(Lsn::ZERO, |entry| {
        proposals.take(&entry);
        links.take(entry);
        ControlFlow::Continue(())
    })?;
    Ok((proposals.0.remove(id), links.found()))
}

/// The id that what an entry brought about got among the proposals.
pub(crate) fn proposed_by(reader: &Reader, pid: Pid, entry: Lsn) -> Result<Option<String>, Error> {
    // Facts follow at once: that what was undone is so, and what brings it back.
    let facts = reader.entries_of(pid, entry, 4)?;
    Ok(facts.into_iter().filter(|fact| fact.cause == Some(entry)).find_map(|fact| match fact.body {
        Body::Proposal { id, proposal: Some(_), .. } => Some(id),
        _ => None,
    }))
}

/// The proposals among the entries seen so far, by id.
#[derive(Debug, Default)]
struct Proposals(BTreeMap<String, ProposalView>);

impl Proposals {
    fn take(&mut self, entry: &Entry) {
        match &entry.body {
            Body::Examined(examined) => {
                if let Some(view) = self.0.get_mut(&examined.id) {
                    view.preview = preview(&view.call.name, &view.call.args, &examined.diff);
                    view.files.clone_from(&examined.files);
                    view.unbound.clone_from(&examined.unbound);
                }
            }
            Body::Proposal { id, proposal: Some(proposal), state, .. } => {
                self.0.insert(id.clone(), proposed(entry.pid, id, *state, (**proposal).clone()));
            }
            Body::Proposal { id, state, why, .. } => {
                if let Some(view) = self.0.get_mut(id) {
                    view.state = *state;
                    // What is sent is not taken back. Of a change to files `join` knows better.
                    if *state == ProposalState::Executed && view.verdict != Verdict::Allow {
                        view.expires_at = entry.at;
                    }
                    view.ended = why.clone().filter(|why| !why.is_empty() && is_over(*state));
                }
            }
            _ => {}
        }
    }
}

impl Proposals {
    /// What was changed under a yes has an id beside that of the question: they are told as one, whichever of them took it back.
    fn join(&mut self, links: &BTreeMap<String, Link>) {
        let first = |id: &String| links.get(id).filter(|link| link.turn == 0);
        let asked = |view: &&ProposalView| matches!(view.verdict, Verdict::Ask | Verdict::Hold | Verdict::Deny);
        let by_effect: BTreeMap<EffectId, String> = (self.0.values().filter(asked))
            .filter_map(|view| Some((first(&view.id)?.effect, view.id.clone())))
            .collect();
        let changes = self.0.values().filter(|view| view.verdict == Verdict::Allow);
        let pairs =
            changes.filter_map(|view| Some((view.id.clone(), by_effect.get(&first(&view.id)?.effect)?.clone())));
        for (change, question) in pairs.collect::<Vec<_>>() {
            let undone = [&change, &question].iter().any(|id| self.0[*id].state == ProposalState::Undone);
            let until = self.0[&change].expires_at;
            for id in [&change, &question] {
                let Some(view) = self.0.get_mut(id) else { continue };
                view.expires_at = until;
                view.state = if undone { ProposalState::Undone } else { view.state };
            }
            if let Some(view) = self.0.get_mut(&change) {
                view.under = Some(question);
            }
        }
    }
}

/// Whether nothing comes after it that would be said of it.
fn is_over(state: ProposalState) -> bool {
    matches!(state, ProposalState::Rejected | ProposalState::Vetoed | ProposalState::Expired)
}

/// A proposal as it was made.
fn proposed(pid: Pid, id: &str, state: ProposalState, proposal: Proposal) -> ProposalView {
    ProposalView {
        id: id.to_owned(),
        pid,
        preview: preview(proposal.name.as_str(), &proposal.args, ""),
        files: Vec::new(),
        unbound: None,
        call: CallView { name: proposal.name.as_str().to_owned(), args: proposal.args },
        verdict: proposal.verdict,
        rule: proposal.rule,
        grants: proposal.grants,
        inner: proposal
            .inner
            .into_iter()
            .map(|of| CallView { name: of.name.as_str().to_owned(), args: of.args })
            .collect(),
        led: proposal.led,
        closed: proposal.closed,
        why: proposal.why,
        risk: proposal.risk,
        shown: String::new(),
        state,
        ended: None,
        under: None,
        expires_at: proposal.expires_at,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::sync_channel;

    use aos_abi::process::SpawnSpec;
    use aos_abi::{Signal, Timestamp};
    use aos_journal::{Checkpoint, Journal, OpenOptions};
    use aos_kernel::Kernel;
    use aos_kernel::table::NoPages;

    use super::*;

    fn spawned(parent: Pid) -> Body {
        Body::Spawned(Box::new(SpawnSpec { parent, ..SpawnSpec::resident(Pid(2), "r", "m") }))
    }

    /// What was left of a pruned process was taken for decisions that differ.
    #[test]
    fn a_replay_over_a_prune_says_that_it_cannot_be() {
        let home = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(&home.path().join("journal.db"), OpenOptions::default()).unwrap();
        let mut kernel = Kernel::new(NoPages);
        let kill = Body::Signal { signal: Signal::Kill, from_pid: Pid::INIT, tree: false };
        let inputs = [(Pid(2), spawned(Pid::INIT)), (Pid(3), spawned(Pid::INIT)), (Pid(2), kill)];
        for (pid, body) in inputs {
            journal.append_wait(kernel.apply(Timestamp(1), pid, body).entries).unwrap();
        }
        journal.checkpoint_wait(Checkpoint { lsn: kernel.lsn(), ..Checkpoint::default() }).unwrap();
        let reader = journal.reader();
        assert_eq!(replay(&reader, Pid(3), None).unwrap().unwrap().difference, None);

        let plan = reader.prune_plan(vec![Pid(2)]).unwrap();
        let (sender, answer) = sync_channel(1);
        journal.prune(plan, kernel.lsn().next(), Timestamp(2), move |outcome| sender.send(outcome).unwrap());
        answer.recv().unwrap().unwrap();
        let why = replay(&reader, Pid(3), None).unwrap().unwrap_err();
        assert!(why.contains("entries from 1 on, before 2, were pruned"), "{why}");
    }

    /// The rest of the time for an answer was shown as if what was sent could be taken back that long.
    #[test]
    fn what_was_carried_out_and_is_no_change_of_files_is_over() {
        let home = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(&home.path().join("journal.db"), OpenOptions::default()).unwrap();
        let asked = serde_json::json!({ "type": "proposal", "id": "p1", "state": "pending", "proposal": {
            "call_id": "c1", "name": "NET_SEND", "args": { "url": "https://a.example/", "method": "POST" },
            "verdict": "ask", "rule": "r", "why": null, "risk": null, "expires_at": Timestamp(90_000) } });
        let executed = serde_json::json!({ "type": "proposal", "id": "p1", "state": "executed" });
        let bodies = [asked, executed].map(|body| serde_json::from_value::<Body>(body).unwrap());
        let bodies = std::iter::once(spawned(Pid::INIT)).chain(bodies);
        let entries = bodies.zip(1..).map(|(body, lsn)| {
            Arc::new(Entry { lsn: Lsn(lsn), at: Timestamp(1_000 * lsn as i64), pid: Pid(2), cause: None, body })
        });
        let entries: Vec<_> = entries.collect();
        journal.append_wait(entries[..2].to_vec()).unwrap();
        let told = || {
            (
                proposals(&journal.reader()).unwrap().remove(0).state,
                proposals(&journal.reader()).unwrap().remove(0).expires_at,
            )
        };
        assert_eq!(told(), (ProposalState::Pending, Timestamp(90_000)));
        journal.append_wait(entries[2..].to_vec()).unwrap();
        assert_eq!(told(), (ProposalState::Executed, Timestamp(3_000)));
    }

    /// A fork of one that has ended did not know the ends of children that were spawned by proposals.
    #[test]
    fn the_end_of_a_child_that_was_proposed_is_in_the_window() {
        let home = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(&home.path().join("journal.db"), OpenOptions::default()).unwrap();
        let proposed = |child: u64| Body::Result {
            call_id: format!("call_{child}"),
            name: Name::Propose.as_str().to_owned(),
            outcome: Outcome::Success { result: serde_json::json!({ "pid": child }) },
            effect: None,
        };
        let exited = || Body::Exited { exit_code: 0, result: None, reason: String::new(), awaited: Vec::new() };
        let bodies = [
            (2, spawned(Pid::INIT)),
            (3, spawned(Pid(2))),
            (4, spawned(Pid::INIT)),
            (2, proposed(3)),
            (2, proposed(4)),
            (3, exited()),
            (4, exited()),
        ];
        let entries = bodies.into_iter().zip(1..).map(|((pid, body), lsn)| {
            Arc::new(Entry { lsn: Lsn(lsn), at: Timestamp(1), pid: Pid(pid), cause: None, body })
        });
        journal.append_wait(entries.collect()).unwrap();
        let told = window(&journal.reader(), Pid(2), None).unwrap().unwrap();
        let ends: Vec<u64> = told.window.iter().map(|item| item.lsn.0).filter(|lsn| *lsn > 5).collect();
        assert_eq!(ends, [6]);
    }
}
