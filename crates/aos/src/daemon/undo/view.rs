//! Taking something back as a person asks for it: which change an id stands for, what would happen, and doing it.
//!
//! An id is given by the kernel when a change is journaled, so the journal says what it stands for. What always holds:
//! nothing is done that was not shown: a change that somebody touched since is refused with the names of what they touched.

use std::collections::BTreeMap;
use std::sync::Arc;

use aos_abi::api::{ProposalView, UndoRequest, UndoView};
use aos_abi::entry::ProposalState;
use aos_abi::{Body, EffectId, Entry, Lsn, Pid, limits};
use aos_drivers::fs::{Differences, SHOWN_BYTES_MAX};
use aos_gateway::{Answer, ApiError};
use aos_journal::Reader;
use aos_sandbox::{Altered, Committed, Error, Kind, Stage};
use tokio_util::sync::CancellationToken;

use super::told::{changed, file_change, reversed};
use super::{Note, Undo, Wants};

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
    changes: BTreeMap<Lsn, (Pid, String, Link)>,
    /// Proposals that were about a call, with that.
    approved: Vec<(String, Pid, String)>,
    links: BTreeMap<String, Link>,
}

impl Links {
    /// The next entry.
    pub(crate) fn take(&mut self, entry: Entry) {
        match entry.body {
            Body::Changed(changed) => {
                let link = Link { effect: changed.effect, turn: changed.turn, undoes: changed.undoes };
                self.changes.insert(entry.lsn, (entry.pid, changed.call_id, link));
            }
            Body::Proposal { id, proposal: Some(proposal), .. } => {
                match entry.cause.and_then(|cause| self.changes.get(&cause)) {
                    Some((_, _, link)) => drop(self.links.insert(id, link.clone())),
                    None => self.approved.push((id, entry.pid, proposal.call_id)),
                }
            }
            _ => {}
        }
    }

    /// What each id stands for. A call that a person approved has an id of its own, which stands for the same.
    pub(crate) fn found(mut self) -> BTreeMap<String, Link> {
        for (id, pid, call_id) in self.approved {
            let own = |(of, call, link): &&(Pid, String, Link)| *of == pid && *call == call_id && link.turn == 0;
            if let Some((_, _, link)) = self.changes.values().find(own) {
                self.links.insert(id, link.clone());
            }
        }
        self.links
    }
}

impl Undo {
    /// Shows what taking `id` back would do, and unless only that is wanted does it. What is to be journaled then is
    /// given to `tell` before anybody else may change the workspace.
    pub(crate) async fn undo<F: Future<Output = Answer<()>>>(
        self: &Arc<Self>,
        proposal: ProposalView,
        links: &BTreeMap<String, Link>,
        request: UndoRequest,
        tell: impl FnOnce(Pid, Body) -> F,
    ) -> Answer<UndoView> {
        let id = proposal.id.clone();
        let link = links.get(&id).ok_or_else(|| not_undoable(&proposal))?.clone();
        let (committed, _) = self.load(link.effect).ok_or_else(|| gone(&proposal))?;
        let workspace = committed.workspace();
        let wants = Wants { workspace: &workspace, mounted: &[], labelled: false };
        let _turn = self.turn(wants, &CancellationToken::new()).await?;
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
        let (committed, mut view) = blocking(move || shown(committed, proposal)).await?;
        if request.dry_run {
            return Ok(view);
        }
        if !view.conflicts.is_empty() {
            return Err(conflict(&id, &view.conflicts));
        }
        let restores = if link.turn % 2 == 1 { link.undoes.clone() } else { None };
        let note = note.turned(&id, restores);
        drop(committed);
        let (undo, effect) = (Arc::clone(self), link.effect);
        let (turned, note) = blocking(move || {
            let turned = undo.turned(effect, note.written());
            turned.map(|turned| (turned, note)).map_err(|error| refused(&id, &error))
        })
        .await?;
        let changed = changed(&turned, &note);
        tell(note.pid, Body::Changed(Box::new(changed))).await?;
        let kept = super::Kept { pid: note.pid, bytes: turned.kept_bytes(), until: note.until };
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(link.effect, kept);
        view.done = true;
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
    // All of them: the journal has not.
    let changes = altered.iter().map(file_change).collect();
    Ok((committed, UndoView { proposal, changes, more: 0, diff, conflicts, done: false }))
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
    ApiError::new(410, "gone", format!("{} cannot be undone any more: {why}", proposal.id))
        .hint("a longer `undo` in policy.yaml keeps it longer")
}

fn undone(id: &str, link: &Link, links: &BTreeMap<String, Link>, turn: u32) -> ApiError {
    let back = links.iter().find(|(_, other)| other.effect == link.effect && other.turn == turn);
    let error = ApiError::new(409, "conflict", format!("{id} is undone already"));
    match back {
        Some((back, _)) if turn % 2 == 1 => error.hint(format!("`aos undo {back}` brings it back")),
        _ => error,
    }
}

fn conflict(id: &str, paths: &[String]) -> ApiError {
    let shown: Vec<String> = paths.iter().take(10).map(|path| path.escape_debug().to_string()).collect();
    let more = paths.len().saturating_sub(10);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let message = format!("{id} is not undone, since these changed after it: {}{more}", shown.join(", "));
    ApiError::new(409, "conflict", message)
        .hint("undo the later changes first (`aos proposals --all`), or bring those files back to what they were")
}

fn refused(id: &str, error: &Error) -> ApiError {
    match error {
        Error::Conflict { paths } => {
            conflict(id, &paths.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>())
        }
        error => {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
            ApiError::internal(format!("{id} cannot be undone: {error}{cause}"))
                .hint("what was begun is finished at the next start")
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
