//! Proposals, model-checked: every order of a few acts round a question, with the daemon killed at every entry of each.
//!
//! Start at [`check`]. A story (`stories`) says what can happen and how often; from its first state on every act that can
//! happen does, and from each state that this leads to again, until nothing more can or the run is long enough. At each
//! state the daemon may be killed: after the entries of the act before, and where a call came of them, also before that
//! has left; twice in a run. What must come out of every act says a model (`model`) that was written from the documents; the
//! kernel in its world (`world`) has to do exactly that. States that go on alike are gone on from once, at the shortest way to them.
//!
//! Deliberately absent: the machine losing entries that were not durable. Nothing that came of those may have left, so it is
//! a state that was gone on from already; that a call under a word waits for the disk is looked at with every one.

mod model;
mod stories;
mod world;

use std::collections::BTreeSet;
use std::fmt;

use crate::proposals::model::{Change, Doing};
use crate::proposals::stories::{Often, STORIES, Story};
use crate::proposals::world::{Act, Ground, World};

/// What was gone through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Of which story.
    pub story: &'static str,
    /// States that are not alike.
    pub states: usize,
    /// Acts that were done, each at one of them.
    pub acts: usize,
    /// Starts after the daemon was killed, each at a place of its own.
    pub crashes: usize,
    /// Acts with which a call was made.
    pub made: usize,
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explored { story, states, acts, crashes, made } = self;
        write!(f, "{story}: {states} states, {acts} acts, {crashes} crashes, {made} calls made")
    }
}

/// How many stories there are.
#[must_use]
pub fn stories() -> usize {
    STORIES.len()
}

/// What a run was like, to be gone on from.
struct Node {
    world: World,
    left: Often,
    run: Vec<(Act, bool)>,
}

/// Goes through the story of this number, with so many acts more in a run than it has.
///
/// # Errors
/// In words, with the acts of the first run in which the kernel does something else than the model.
pub fn check(story: usize, more: usize) -> Result<Explored, String> {
    let story = STORIES.get(story).ok_or("there is no such story")?;
    let ground = Ground::new();
    let mut explored = Explored { story: story.name, states: 1, ..Explored::default() };
    let mut known = BTreeSet::new();
    let mut now = vec![Node { world: World::new(&ground), left: story.often, run: Vec::new() }];
    for _ in 0..story.depth + more {
        let mut next = Vec::new();
        for mut node in now {
            node.world.rebuild().map_err(|what| format!("{}: {:?}: {what}", story.name, node.run))?;
            explored.acts += refusals(story, &mut node)?;
            for (act, left) in acts(story, &node) {
                for cut in [false, true] {
                    let mut run = node.run.clone();
                    run.push((act, cut));
                    let mut world = node.world.twin();
                    let came = world.act(act, cut).and_then(|came| {
                        if story.looks_at_once { world.looks_at_all().map(|()| came) } else { Ok(came) }
                    });
                    let came = came.map_err(|what| format!("{}: {run:?}: {what}", story.name))?;
                    explored.acts += 1;
                    explored.crashes += usize::from(cut || act == Act::Crash);
                    explored.made += usize::from(world.made() > node.world.made());
                    let left = Often { crashes: left.crashes.saturating_sub(cut.into()), ..left };
                    if known.insert(format!("{left:?} {}", world.key())) {
                        explored.states += 1;
                        next.push(Node { world, left, run });
                    }
                    // Killed before the call left is another end only where one came.
                    if !came || left.crashes == 0 {
                        break;
                    }
                }
            }
        }
        now = next;
    }
    Ok(explored)
}

/// Answers to what is over already, and to what nobody was asked: none counts, and nothing is another for them. Says how many.
fn refusals(story: &Story, node: &mut Node) -> Result<usize, String> {
    let ids = 1..=(node.world.model.ids + 1);
    let over: Vec<u64> = ids.filter(|id| node.world.model.find(*id).is_none()).collect();
    for (id, say) in over.iter().flat_map(|id| story.says.iter().map(move |say| (*id, *say))) {
        let said = node.world.act(Act::Word(id, say), false);
        said.map_err(|what| format!("{}: {:?}, then {say:?} to {id}: {what}", story.name, node.run))?;
    }
    Ok(over.len() * story.says.len())
}

/// Everything that can happen next, and how often what can after it.
fn acts(story: &Story, node: &Node) -> Vec<(Act, Often)> {
    let (model, left) = (&node.world.model, node.left);
    let mut acts: Vec<(Act, Often)> = Vec::new();
    if left.crashes > 0 {
        acts.push((Act::Crash, Often { crashes: left.crashes - 1, ..left }));
    }
    acts.extend(node.world.looks.iter().map(|id| (Act::Look(*id), left)));
    let owed = model.changes.iter().position(Change::is_owed);
    if let Some(at) = owed {
        acts.push((Act::Owed(at), left));
    } else if left.turns > 0 {
        let left = Often { turns: left.turns - 1, ..left };
        acts.extend((0..model.changes.len()).map(|at| (Act::Turn(at), left)));
    }
    // The journal has a change before it has the result of its call.
    if node.world.has_result() && owed.is_none() {
        acts.push((Act::Done, left));
    }
    if left.edits > 0 && !model.questions.is_empty() {
        acts.push((Act::Edit, Often { edits: left.edits - 1, ..left }));
    }
    if left.policies > 0 {
        acts.push((Act::Policy, Often { policies: left.policies - 1, ..left }));
    }
    if left.words > 0 {
        for question in &model.questions {
            let left = Often { words: left.words - 1, ..left };
            acts.extend(story.says.iter().map(|say| (Act::Word(question.id, *say), left)));
        }
    }
    if left.times > 0 && model.next().is_some() {
        let left = Often { times: left.times - 1, ..left };
        acts.extend([(Act::Tick, left), (Act::Late, left)]);
    }
    if model.next().is_some_and(|at| at <= model.now) {
        acts.push((Act::Tick, left));
    }
    if !model.alive {
        return acts;
    }
    match (model.doing, model.killed_at) {
        (Doing::Thinks, Some(_)) => acts.push((Act::Reply(None), left)),
        (Doing::Thinks, None) if left.replies > 0 => {
            let left = Often { replies: left.replies - 1, ..left };
            acts.extend(story.calls.iter().map(|call| (Act::Reply(Some(*call)), left)));
        }
        _ => {}
    }
    if model.stopped {
        acts.push((Act::Cont, left));
    } else if left.stops > 0 && model.killed_at.is_none() {
        acts.push((Act::Stop, Often { stops: left.stops - 1, ..left }));
    }
    if left.ends > 0 && model.ids > 0 {
        let left = Often { ends: left.ends - 1, ..left };
        acts.extend([(Act::Kill, left), (Act::ParentKills, left)]);
        if model.doing != Doing::Thinks && model.killed_at.is_none() {
            acts.push((Act::Term, left));
        }
    }
    acts
}
