//! How much of what takes the machine runs at once: commands, and searches.
//!
//! Start at [`Slots::take`]. What always holds: a free slot and somebody who may have it never coexist; who comes next is
//! of the tree that holds fewest, the longest waiting first; no tree holds all, so that whoever starts something else
//! waits for nobody's long command. A tree is a process that a person started with all that descend from it: those it
//! makes wait beside it, not before others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aos_abi::Pid;
use tokio::sync::oneshot;

/// So many at once.
#[derive(Debug)]
pub(crate) struct Slots {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many each tree holds; none that holds none.
    held: BTreeMap<Pid, usize>,
    /// Who waits, by tree, with a number that rises with each who came.
    waiting: BTreeMap<Pid, VecDeque<(u64, oneshot::Sender<Slot>)>>,
    came: u64,
}

/// A slot that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    root: Pid,
}

impl Slots {
    /// Slots of which `most` are held at once, two at least.
    pub(crate) fn new(most: usize) -> Arc<Slots> {
        Arc::new(Slots { most: most.max(2), state: Mutex::default() })
    }

    /// Waits for a slot for a process of this tree.
    ///
    /// # Cancel safety
    /// Dropping it gives the place among those who wait up, and the slot, where one has come meanwhile.
    pub(crate) async fn take(self: &Arc<Self>, root: Pid) -> Slot {
        let waits = {
            let mut state = self.state();
            if self.is_free(&state, root) {
                *state.held.entry(root).or_default() += 1;
                return Slot { slots: Arc::clone(self), root };
            }
            let (sender, slot) = oneshot::channel();
            state.came += 1;
            let came = state.came;
            state.waiting.entry(root).or_default().push_back((came, sender));
            slot
        };
        // Who waits is told, or the slots are gone with the daemon.
        match waits.await {
            Ok(slot) => slot,
            Err(_) => std::future::pending().await,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_free(&self, state: &State, root: Pid) -> bool {
        let held = state.held.get(&root).copied().unwrap_or(0);
        state.held.values().sum::<usize>() < self.most && held < self.most - 1
    }

    /// Who comes next, where somebody may.
    fn next(&self, state: &mut State) -> Option<(Pid, oneshot::Sender<Slot>)> {
        let free = state.waiting.iter().filter(|(root, _)| self.is_free(state, **root));
        let rank = |(root, queue): &(&Pid, &VecDeque<(u64, _)>)| {
            (state.held.get(*root).copied().unwrap_or(0), queue.front().map(|(came, _)| *came))
        };
        let root = *free.min_by_key(rank)?.0;
        let queue = state.waiting.get_mut(&root)?;
        let first = queue.pop_front();
        if queue.is_empty() {
            state.waiting.remove(&root);
        }
        first.map(|(_, sender)| (root, sender))
    }

    fn give_back(self: &Arc<Self>, root: Pid) {
        // What nobody waits for any more is handed over once the lock is free: it comes back by the same way.
        let mut granted = Vec::new();
        {
            let mut state = self.state();
            fewer(&mut state.held, root);
            while let Some((root, sender)) = self.next(&mut state) {
                if !sender.is_closed() {
                    *state.held.entry(root).or_default() += 1;
                    granted.push((sender, Slot { slots: Arc::clone(self), root }));
                }
            }
        }
        for (sender, slot) in granted {
            drop(sender.send(slot));
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.give_back(self.root);
    }
}

fn fewer(held: &mut BTreeMap<Pid, usize>, root: Pid) {
    if let Some(count) = held.get_mut(&root) {
        *count -= 1;
        if *count == 0 {
            held.remove(&root);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::pin::Pin;

    type Waiting<'s> = Pin<Box<dyn Future<Output = Slot> + Send + 's>>;

    /// Begins to wait for one.
    fn wait(slots: &Arc<Slots>, root: u64) -> Waiting<'_> {
        let mut waiting: Waiting<'_> = Box::pin(slots.take(Pid(root)));
        assert!(waiting.as_mut().now_or_never().is_none(), "it waits");
        waiting
    }

    fn now(slots: &Arc<Slots>, root: u64) -> Slot {
        slots.take(Pid(root)).now_or_never().unwrap()
    }

    fn came(waiting: &mut Waiting<'_>) -> Option<Slot> {
        waiting.as_mut().now_or_never()
    }

    #[test]
    fn no_tree_holds_all_and_those_with_fewest_come_first() {
        let slots = Slots::new(4);
        let mut of_two: Vec<Slot> = (0..3).map(|_| now(&slots, 2)).collect();
        let mut more: Vec<Waiting<'_>> = (0..3).map(|_| wait(&slots, 2)).collect();
        let stranger = now(&slots, 3);
        let (mut third, mut fourth) = (wait(&slots, 3), wait(&slots, 4));
        // Of those who came first the tree holds most.
        drop(of_two.pop());
        let of_four = came(&mut fourth).unwrap();
        assert!(came(&mut third).is_none() && came(&mut more[0]).is_none());
        drop(of_two.pop());
        let second = came(&mut more[0]);
        assert!(second.is_some(), "one each, and the first who came");
        assert!(came(&mut third).is_none());
        drop((stranger, of_four));
        assert!(came(&mut third).is_some() && came(&mut more[1]).is_some());
    }

    #[test]
    fn a_free_slot_and_one_who_waits_never_coexist() {
        let slots = Slots::new(3);
        let (first, second, last) = (now(&slots, 2), now(&slots, 2), now(&slots, 3));
        let (mut given_up, mut next) = (wait(&slots, 2), wait(&slots, 4));
        drop(first);
        // It was given to whoever held none, who then goes away without having looked.
        drop(next.as_mut().now_or_never().unwrap());
        let mut again = came(&mut given_up);
        assert!(again.take().is_some(), "the slot went on");
        drop((given_up, second, last));
        let waiting = wait_all(&slots);
        drop(waiting);
        assert!(slots.state().held.is_empty() && slots.state().waiting.is_empty());
    }

    /// Takes all, waits, and gives up waiting before it lets go.
    fn wait_all(slots: &Arc<Slots>) -> Vec<Slot> {
        let held = vec![now(slots, 2), now(slots, 2), now(slots, 3)];
        drop((wait(slots, 2), wait(slots, 3), wait(slots, 4)));
        held
    }

    #[test]
    fn whoever_comes_alone_has_all_but_one() {
        let slots = Slots::new(1);
        let held = now(&slots, 2);
        let mut waiting = wait(&slots, 2);
        drop(held);
        assert!(came(&mut waiting).is_some());
    }
}
