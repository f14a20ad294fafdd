//! Taking something back as a person asks for it: which change an id stands for, what would happen, and doing it.
//!
//! An id is given by the kernel when a change is journaled, so the journal says what it stands for. What always holds:
//! nothing is done that was not shown: a change that somebody touched since is refused with the names of what they touched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aos_abi::api::{ProposalView, UndoRequest, UndoView};
use aos_abi::entry::{Changed, ProposalState};
use aos_abi::{Body, CallId, EffectId, Entry, Lsn, Pid, limits};
use aos_drivers::fs::{Differences, SHOWN_BYTES_MAX};
use aos_gateway::{Answer, ApiError};
use aos_journal::Reader;
use aos_sandbox::{Altered, Committed, Error, Kind, Stage};

use crate::difference::leads;

use super::told::{changed, file_change, reversed};
use super::{Note, Undo};

/// What an id stands for.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) effect: EffectId,
    /// Odd: a person's taking back.
    pub(crate) turn: u32,
    /// What it took back.
    pub(crate) undoes: Option<String>,
}

/// What the ids of the journal stand for, as far as it was read.
#[derive(Debug, Default)]
pub(crate) struct Links {
    changes: BTreeMap<Lsn, Link>,
    /// The call that each proposal is about.
    asked: BTreeMap<String, (Pid, CallId)>,
    /// Calls that run under a proposal. A model's server may give a later call the same id.
    running: BTreeMap<(Pid, CallId), String>,
    links: BTreeMap<String, Link>,
}

impl Links {
    /// The next entry.
    pub(crate) fn take(&mut self, entry: Entry) {
        let pid = entry.pid;
        match entry.body {
            Body::Changed(changed) => {
                let Changed { effect, turn, call_id, undoes, .. } = *changed;
                let link = Link { effect, turn, undoes };
                // A call that a person approved has an id of its own, which stands for the same.
                let own = (link.turn == 0).then(|| self.running.remove(&(pid, call_id))).flatten();
                if let Some(id) = own {
                    self.links.insert(id, link.clone());
                }
                self.changes.insert(entry.lsn, link);
            }
            Body::Proposal { id, proposal: Some(proposal), .. } => {
                match entry.cause.and_then(|cause| self.changes.get(&cause)) {
                    Some(link) => drop(self.links.insert(id, link.clone())),
                    None => drop(self.asked.insert(id, (pid, proposal.call_id))),
                }
            }
            Body::Proposal { id, state: ProposalState::Executed, proposal: None, .. } => {
                if let Some(call) = self.asked.remove(&id) {
                    self.running.insert(call, id);
                }
            }
            Body::Syscall { call_id, .. } => drop(self.running.remove(&(pid, call_id))),
            _ => {}
        }
    }

    /// What each id stands for.
    pub(crate) fn found(self) -> BTreeMap<String, Link> {
        self.links
    }
}

impl Undo {
    /// Shows what taking `id` back would do, and unless only that is wanted does it. What is to be journaled then is
    /// given to `tell` before anybody else may change the workspace, which says what id the taking back got. `own`: where its
    /// process's folder is, if that is one of this home.
    pub(crate) async fn undo<F: Future<Output = Answer<Option<String>>>>(
        self: &Arc<Self>,
        proposal: ProposalView,
        links: &BTreeMap<String, Link>,
        request: UndoRequest,
        own: Option<PathBuf>,
        tell: impl FnOnce(Pid, Body) -> F,
    ) -> Answer<UndoView> {
        let id = proposal.id.clone();
        let link = links.get(&id).ok_or_else(|| not_undoable(&proposal))?.clone();
        let (committed, _) = self.load(link.effect).ok_or_else(|| gone(&proposal))?;
        let workspace = committed.workspace();
        if let Some(own) = own
            && let Ok(there) = workspace.canonicalize()
            && own.canonicalize().ok().as_ref() != Some(&there)
        {
            return Err(elsewhere(&id, &workspace));
        }
        let _turn = self.persons_turn(&workspace, Duration::from_secs(limits::WORKSPACE_WAIT_S)).await?;
        // It may have been another's turn before.
        let (committed, note) = self.load(link.effect).ok_or_else(|| gone(&proposal))?;
        if note.until < super::super::heart::now() {
            return Err(gone(&proposal));
        }
        let may = match link.turn % 2 {
            0 => committed.stage() == Stage::Committed,
            _ => committed.stage() == Stage::Undone && committed.turn() == link.turn,
        };
        if !may {
            return Err(undone(&id, &link, links, committed.turn()));
        }
        let missing = committed.missing();
        if !missing.is_empty() {
            return Err(lost(&id, &missing));
        }
        let (committed, mut view) = blocking(move || shown(committed, proposal)).await?;
        if request.dry_run {
            return Ok(view);
        }
        if !view.conflicts.is_empty() {
            return Err(conflict(&id, &view.conflicts));
        }
        let restores = if link.turn % 2 == 1 { link.undoes.clone() } else { None };
        let note = note.turned(&id, restores.clone());
        drop(committed);
        let watch = self.watch(link.effect, &workspace);
        let (turned, note) = blocking(move || {
            let turned = watch.turned(&note).map_err(|error| refused(&id, &error))?;
            Ok((turned, note))
        })
        .await?;
        let changed = changed(&turned, &note);
        let told = tell(note.pid, Body::Changed(Box::new(changed))).await?;
        view.done = true;
        // What stands again has its id already.
        view.back = restores.or(told);
        view.proposal.state = ProposalState::Undone;
        Ok(view)
    }
}

/// What would happen.
fn shown(committed: Committed, proposal: ProposalView) -> Answer<(Committed, UndoView)> {
    let in_the_way = committed.in_the_way().map_err(|error| refused(&proposal.id, &error))?;
    let conflicts = in_the_way.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let mut altered = committed.altered();
    if committed.stage() == Stage::Committed {
        altered = altered.into_iter().map(reversed).collect();
    }
    let mut diffs = Differences::default();
    for altered in &altered {
        if diffs.is_full() {
            break;
        }
        let (now, then) = sides(&committed, altered);
        diffs.add(&altered.path.to_string_lossy(), now, then);
    }
    let diff = diffs.into_text();
    let workspace = committed.workspace();
    let link = |one: &Altered| {
        let to = target(&committed, one)?;
        Some((one.path.to_string_lossy().into_owned(), leads(&workspace, &one.path, &to)))
    };
    let links = altered.iter().filter_map(link).collect();
    // All of them: the journal has not.
    let changes = altered.iter().map(file_change).collect();
    Ok((committed, UndoView { proposal, changes, links, more: 0, diff, conflicts, done: false, back: None }))
}

/// Where what will be a link leads, or the link that will be gone.
fn target(committed: &Committed, altered: &Altered) -> Option<PathBuf> {
    let is_link = |image: &Option<aos_sandbox::Image>| image.as_ref().is_some_and(|image| image.kind == Kind::Link);
    match (is_link(&altered.after), altered.after.is_none() && is_link(&altered.before)) {
        (true, _) => std::fs::read_link(committed.kept(&altered.path)).ok(),
        (_, true) => committed.link_now(&altered.path).ok(),
        _ => None,
    }
}

/// A file as it is now and as it will be; `None` for what is not shown.
fn sides(committed: &Committed, altered: &Altered) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let small = |image: &aos_sandbox::Image| image.kind == Kind::File && image.size <= SHOWN_BYTES_MAX;
    let now = match &altered.before {
        None => Some(Vec::new()),
        Some(image) if small(image) => committed.read_now(&altered.path, SHOWN_BYTES_MAX).ok(),
        Some(_) => None,
    };
    let then = match &altered.after {
        None => Some(Vec::new()),
        Some(image) if small(image) => std::fs::read(committed.kept(&altered.path)).ok(),
        Some(_) => None,
    };
    (now, then)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Answer<T> + Send + 'static) -> Answer<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| ApiError::internal(error.to_string()))?
}

fn not_undoable(proposal: &ProposalView) -> ApiError {
    let (id, what) = (&proposal.id, &proposal.call.name);
    match proposal.state {
        ProposalState::Pending => ApiError::new(409, "conflict", format!("{id} waits for an answer; nothing was done"))
            .hint(format!("aos reject {id}")),
        _ => ApiError::new(409, "conflict", format!("{id} ({what}) changed no file that is kept"))
            .hint("changes to files can be taken back; `aos proposals --all` shows which, with the time left"),
    }
}

/// A restored home has its records from another one, whose workspaces are nobody's here.
fn elsewhere(id: &str, workspace: &Path) -> ApiError {
    let where_it_was = workspace.display();
    ApiError::new(410, "gone", format!("{id} cannot be undone here: it was made in another home, in {where_it_was}"))
        .hint("undo it there: aos --home DIR undo, or AOS_HOME")
}

fn lost(id: &str, missing: &[PathBuf]) -> ApiError {
    let missing: Vec<String> = missing.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    ApiError::new(410, "gone", format!("{id} cannot be undone any more: nothing is kept of {}", listed(&missing)))
        .hint("a backup leaves out what it cannot read, and names it; nothing was changed")
}

fn gone(proposal: &ProposalView) -> ApiError {
    let over = proposal.expires_at < super::super::heart::now();
    let why = if over {
        format!("its window ended at {}", proposal.expires_at)
    } else {
        format!(
            "what it replaced was deleted to make room: {} MiB are kept of one process, {} MiB of all",
            limits::UNDO_PROCESS_BYTES_MAX >> 20,
            limits::UNDO_BYTES_MAX >> 20
        )
    };
    let hint = match over {
        true => "a longer `undo` in policy.yaml keeps it longer",
        false => "where that must not be, `verdict: ask` or `hold` for those files has a person see the change first",
    };
    ApiError::new(410, "gone", format!("{} cannot be undone any more: {why}", proposal.id)).hint(hint)
}

fn undone(id: &str, link: &Link, links: &BTreeMap<String, Link>, turn: u32) -> ApiError {
    let back = links.iter().find(|(_, other)| other.effect == link.effect && other.turn == turn);
    let error = ApiError::new(409, "conflict", format!("{id} is undone already"));
    match (back, &link.undoes) {
        (Some((back, _)), _) if turn % 2 == 1 => error.hint(format!("`aos undo {back}` brings it back")),
        (_, Some(stands)) => error.hint(format!("`aos undo {stands}` takes back what stands again by that")),
        (_, None) => error,
    }
}

/// The first of them.
fn listed(paths: &[String]) -> String {
    let shown: Vec<String> = paths.iter().take(10).map(|path| path.escape_debug().to_string()).collect();
    let more = paths.len().saturating_sub(10);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    shown.join(", ") + &more
}

fn conflict(id: &str, paths: &[String]) -> ApiError {
    let message = format!("{id} is not undone, since these changed after it: {}", listed(paths));
    ApiError::new(409, "conflict", message)
        .hint("undo the later changes first (`aos proposals --all`), or bring those files back to what they were")
}

fn refused(id: &str, error: &Error) -> ApiError {
    match error {
        Error::Conflict { paths } => {
            conflict(id, &paths.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>())
        }
        error => {
            let told = ApiError::internal(format!("{id} cannot be undone: {}", error.whole()));
            if matches!(error, Error::Unfinished { .. }) { told } else { told.hint("nothing was changed") }
        }
    }
}

impl Note {
    /// Whether the journal holds what this change owes it.
    pub(crate) fn is_in(reader: &Reader, pid: Pid, owed: &aos_abi::entry::Changed) -> Result<bool, aos_journal::Error> {
        let mut after = owed.effect.cause;
        loop {
            let page = reader.entries_of(pid, after, 4096)?;
            let Some(last) = page.last().map(|entry| entry.lsn) else { return Ok(false) };
            let same = |body: &Body| matches!(body, Body::Changed(known) if known.effect == owed.effect && known.turn == owed.turn);
            if page.iter().any(|entry| same(&entry.body)) {
                return Ok(true);
            }
            after = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aos_abi::entry::{Proposal, Verdict};
    use aos_abi::{Name, Timestamp};

    /// A journal of one process whose model's server calls every call `call_0`.
    struct Told(u64, Links);

    impl Told {
        fn entry(&mut self, cause: Option<u64>, body: Body) -> u64 {
            self.0 += 1;
            let (lsn, at, pid) = (Lsn(self.0), Timestamp(0), Pid(2));
            self.1.take(Entry { lsn, at, pid, cause: cause.map(Lsn), body });
            self.0
        }

        fn call(&mut self) {
            let (call_id, name, args) = ("call_0".into(), "FS_WRITE".into(), serde_json::Value::Null);
            self.entry(None, Body::Syscall { call_id, name, args });
        }

        fn asked(&mut self, id: &str, state: ProposalState, cause: Option<u64>) {
            let proposal = Proposal {
                call_id: "call_0".into(),
                name: Name::FsWrite,
                args: serde_json::Value::Null,
                verdict: Verdict::Ask,
                rule: String::new(),
                grants: Vec::new(),
                inner: Vec::new(),
                led: None,
                closed: None,
                why: None,
                risk: None,
                expires_at: Timestamp(0),
            };
            let (id, proposal) = (id.into(), Some(Box::new(proposal)));
            self.entry(cause, Body::Proposal { id, state, proposal, why: None });
        }

        fn became(&mut self, id: &str, state: ProposalState) {
            self.entry(None, Body::Proposal { id: id.into(), state, proposal: None, why: None });
        }

        /// The call changes a file, and what it did gets an id.
        fn changed(&mut self, id: &str) -> EffectId {
            let effect = EffectId { cause: Lsn(self.0), nth: 0 };
            let changed = Changed {
                effect,
                turn: 0,
                call_id: "call_0".into(),
                name: Name::FsWrite,
                args: serde_json::Value::Null,
                rule: String::new(),
                changes: Vec::new(),
                more: 0,
                undo_ms: Some(1),
                lost: None,
                undoes: None,
                restores: None,
            };
            let cause = self.entry(None, Body::Changed(Box::new(changed)));
            self.asked(id, ProposalState::Executed, Some(cause));
            effect
        }
    }

    #[test]
    fn an_approval_stands_for_what_its_own_call_changed() {
        let mut told = Told(0, Links::default());
        told.call();
        let first = told.changed("p1");
        told.call();
        told.asked("p2", ProposalState::Pending, None);
        told.became("p2", ProposalState::Approved);
        told.became("p2", ProposalState::Executed);
        let second = told.changed("p3");
        // One that was made and changed nothing, and one that was not made.
        for (id, states) in [
            ("p4", [ProposalState::Approved, ProposalState::Executed]),
            ("p5", [ProposalState::Approved, ProposalState::Expired]),
        ] {
            told.call();
            told.asked(id, ProposalState::Pending, None);
            states.into_iter().for_each(|state| told.became(id, state));
        }
        told.call();
        let last = told.changed("p6");
        let found: Vec<(String, EffectId)> = told.1.found().into_iter().map(|(id, link)| (id, link.effect)).collect();
        let wanted = [("p1", first), ("p2", second), ("p3", second), ("p6", last)];
        assert_eq!(found, wanted.map(|(id, effect)| (id.to_owned(), effect)));
    }
}
