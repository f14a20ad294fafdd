//! The files of every workspace as the world has them: what is there, what calls changed, and what was taken back.
//!
//! Start at [`Files::look`]. Like a disk it survives crashes, and like the daemon's own record of changes it knows which of
//! them the journal has yet to be told of. What always holds: no two contents ever written are the same, so that equal means
//! untouched. Deliberately absent: folders, links and what commands write.

use std::collections::BTreeMap;

use aos_abi::entry::{BoundFile, Changed, ProposalState};
use aos_abi::process::Workspace;
use aos_abi::{Body, CallId, EffectId, Entry, Lsn, Name, Pid, Syscall};
use serde_json::json;

use crate::chance::Chance;
use crate::report::{Broken, broken};

/// A workspace and a path in it.
type Place = (String, String);

/// The disk.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// What is there, by the number of its content.
    there: BTreeMap<Place, u64>,
    /// How many contents there have been.
    written: u64,
    /// Where the files of each process are that had some looked at.
    homes: BTreeMap<Pid, String>,
    made: BTreeMap<EffectId, Change>,
    /// How often a change was taken back, or made again.
    pub(crate) turned: u64,
}

/// What one call changed.
#[derive(Debug)]
struct Change {
    pid: Pid,
    call_id: CallId,
    name: Name,
    /// What was at each place, and what is there since.
    places: BTreeMap<Place, (Option<u64>, Option<u64>)>,
    /// How often it was taken back and made again.
    turn: u32,
    /// The entry that told the journal of each turn, with the id that people know it by, where it got one.
    told: Vec<(Lsn, Option<String>)>,
}

/// The paths that a call names, in its order. Of a command, its words.
fn paths(call: &Syscall) -> Vec<String> {
    match call {
        Syscall::FsRead(args) => vec![args.path.clone()],
        Syscall::FsWrite(args) => vec![args.path.clone()],
        Syscall::FsEdit(args) => vec![args.path.clone()],
        Syscall::FsDelete(args) => vec![args.path.clone()],
        Syscall::FsMove(args) => vec![args.from.clone(), args.to.clone()],
        Syscall::ExecCmd(args) => args.cmd.split(' ').map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

impl Files {
    /// The files that a call concerns as they are now: what the edge answers when it is asked to look.
    pub(crate) fn look(&mut self, pid: Pid, workspace: &Workspace, call: &Syscall) -> Vec<BoundFile> {
        let home = format!("{workspace:?}");
        self.homes.insert(pid, home.clone());
        let mut seen = Vec::new();
        for path in paths(call) {
            let there = self.there.get(&(home.clone(), path.clone()));
            if there.is_none() && call.name() == Name::ExecCmd {
                // Of a command, a word that names nothing is a word.
                continue;
            }
            seen.push(BoundFile {
                path,
                is: if there.is_some() { "file" } else { "nothing" }.to_owned(),
                mode: if there.is_some() { "644" } else { "" }.to_owned(),
                bytes: 0,
                sha256: there.map(u64::to_string),
            });
        }
        seen
    }

    /// Whether a call has changed files.
    pub(crate) fn has_made(&self, id: EffectId) -> bool {
        self.made.contains_key(&id)
    }

    /// A call that may change files is carried out. One that is repeated finds them as it made them.
    pub(crate) fn carry_out(
        &mut self,
        id: EffectId,
        pid: Pid,
        call_id: &CallId,
        workspace: &Workspace,
        call: &Syscall,
    ) {
        if self.made.contains_key(&id) {
            return;
        }
        let home = format!("{workspace:?}");
        let mut places = BTreeMap::new();
        let mut put = |files: &mut Files, path: &str, after: Option<u64>| {
            let place = (home.clone(), path.to_owned());
            let before = files.put(&place, after);
            places.insert(place, (before, after));
        };
        match call {
            Syscall::FsWrite(args) => {
                self.written += 1;
                put(self, &args.path, Some(self.written));
            }
            Syscall::FsDelete(args) => put(self, &args.path, None),
            Syscall::FsMove(args) if args.from != args.to => {
                let moved = self.there.get(&(home.clone(), args.from.clone())).copied();
                put(self, &args.from, None);
                put(self, &args.to, moved);
            }
            _ => return,
        }
        let change = Change { pid, call_id: call_id.clone(), name: call.name(), places, turn: 0, told: Vec::new() };
        self.made.insert(id, change);
    }

    fn put(&mut self, place: &Place, what: Option<u64>) -> Option<u64> {
        match what {
            Some(content) => self.there.insert(place.clone(), content),
            None => self.there.remove(place),
        }
    }

    /// Somebody else writes or deletes a file that a call concerns.
    pub(crate) fn somebody_edits(&mut self, chance: &mut Chance, pid: Pid, call: &Syscall) {
        let Some(home) = self.homes.get(&pid).cloned() else { return };
        let Some(path) = chance.pick(&paths(call)) else { return };
        self.written += 1;
        let new = chance.percent(80).then_some(self.written);
        self.put(&(home, path), new);
    }

    /// What the journal is to be told of a change, where it has not been.
    pub(crate) fn untold(&self, id: EffectId) -> Option<(Pid, Body)> {
        let change = self.made.get(&id).filter(|change| change.told.len() <= change.turn as usize)?;
        let known = |turn: usize| change.told.get(turn).and_then(|(_, id)| id.clone());
        let turn = change.turn as usize;
        let (undoes, restores) = match turn {
            0 => (None, None),
            turn if turn % 2 == 1 => (known(0), None),
            turn => (known(turn - 1), known(0)),
        };
        let changed = Changed {
            effect: id,
            turn: change.turn,
            call_id: change.call_id.clone(),
            name: change.name,
            args: json!({}),
            rule: "sim".into(),
            changes: Vec::new(),
            more: 0,
            undo_ms: Some(900_000),
            lost: None,
            undoes,
            restores,
        };
        Some((change.pid, Body::Changed(Box::new(changed))))
    }

    /// Every change that the journal does not know of: what a start finds.
    pub(crate) fn owed(&self) -> Vec<(Pid, Body)> {
        self.made.keys().filter_map(|id| self.untold(*id)).collect()
    }

    /// Changes that can be turned round: what they made is still there, and people know of it.
    pub(crate) fn undoable(&self, durable: Lsn) -> Vec<EffectId> {
        let is_there = |change: &Change| {
            let mut places = change.places.iter();
            places.all(|(place, (before, after))| {
                self.there.get(place).copied() == if change.turn.is_multiple_of(2) { *after } else { *before }
            })
        };
        let known = |change: &Change| {
            change.told.len() == change.turn as usize + 1 && change.told.iter().all(|(lsn, _)| *lsn <= durable)
        };
        let may = |(_, change): &(&EffectId, &Change)| known(change) && is_there(change);
        self.made.iter().filter(may).map(|(id, _)| *id).collect()
    }

    /// Takes a change back, or makes it again.
    pub(crate) fn turn_round(&mut self, id: EffectId) {
        let Some(change) = self.made.get_mut(&id) else { return };
        change.turn += 1;
        self.turned += 1;
        let again = change.turn.is_multiple_of(2);
        for (place, (before, after)) in change.places.clone() {
            self.put(&place, if again { after } else { before });
        }
    }

    /// The journal was told of a change, and this came of it.
    pub(crate) fn told(&mut self, changed: &Changed, entries: &[std::sync::Arc<Entry>]) -> Result<(), Broken> {
        let lsn = entries.first().map(|entry| entry.lsn).unwrap_or_default();
        let mut new = None;
        let mut became = Vec::new();
        for entry in entries {
            match &entry.body {
                Body::Proposal { id, state: ProposalState::Executed, proposal: Some(_), .. } if new.is_none() => {
                    new = Some(id.clone());
                }
                Body::Proposal { id, state, .. } => became.push((id.clone(), *state)),
                _ => {}
            }
        }
        let said = |id: &Option<String>, state| id.clone().map(|id| (id, state));
        let wanted = [said(&changed.undoes, ProposalState::Undone), said(&changed.restores, ProposalState::Executed)];
        let wanted: Vec<_> = wanted.into_iter().flatten().collect();
        if became != wanted || new.is_some() == changed.restores.is_some() {
            let what = format!("{} turn {}: {new:?} and {became:?}, {wanted:?} wanted", changed.effect, changed.turn);
            return Err(broken("a change that stands can be taken back by one id", what));
        }
        if let Some(change) = self.made.get_mut(&changed.effect) {
            change.told.push((lsn, new));
        }
        Ok(())
    }

    /// Only what is durable was told.
    pub(crate) fn crash(&mut self, durable: Lsn) {
        for change in self.made.values_mut() {
            change.told.retain(|(lsn, _)| *lsn <= durable);
        }
    }
}
