//! A person's desk: what was asked of people, what they saw and said, and what came of it outside.
//!
//! Start at [`Desk::decides`] for what may leave the kernel and at [`Desk::done`] for what was done. It rests on what the
//! person said and what the drivers did, both of which outlive the machine; the kernel's word that something was allowed,
//! approved or executed is not asked for. Its facts are taken only for what they tell people (that there is a question) and
//! for excuses (a process that was stopped or has ended).
//!
//! What always holds: a word counts only as long as the journal has it; a yes is used once, for the very call, over the very
//! files, in time and under the policy it was asked under; a no is never followed by the call. What was denied may be made
//! by whoever was denied, once, after a yes to it: whether and when they do is theirs.

use std::collections::BTreeMap;
use std::sync::Arc;

use aos_abi::entry::{BoundFile, ProposalState, Verdict};
use aos_abi::syscall::Handler;
use aos_abi::{Body, CallId, EffectId, Entry, Lsn, Pid, Signal, Syscall, Timestamp};

use crate::need::{self, Need, needed};
use crate::report::{Broken, broken};

const WORD: &str = "nothing that needs a person's word is done without one";
const ONE_USE: &str = "a yes is used once";
const SHOWN: &str = "a yes is for the files that were shown";
const ONE_ANSWER: &str = "a question is answered once";
const COMES: &str = "what a person decided comes to exactly that";

/// What people know.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    questions: Vec<Question>,
    /// The policy that its owner put in force last.
    policy: Arc<str>,
    /// When each entry was made, in their order.
    moments: Vec<Timestamp>,
    /// Starts of the machine, with how long it was off.
    starts: Vec<(Lsn, u64)>,
    /// Calls that have left the kernel and not yet reached their driver, each with what it may rest on.
    leaving: BTreeMap<EffectId, Leave>,
    /// What was done under which mark.
    marks: BTreeMap<String, EffectId>,
    /// Messages that were proposed and sent.
    sent: BTreeMap<String, Lsn>,
    /// Words that were heard.
    pub(crate) words: u64,
    /// Calls that were made under a word, or under a window that ended.
    pub(crate) made: u64,
    /// Calls that had been denied, and were made after somebody had lifted that for once.
    pub(crate) lifted: u64,
    /// Commands that ran once more with what had been denied to them.
    pub(crate) again: u64,
    /// Calls that a driver would not make since a file had changed.
    pub(crate) drifted: u64,
}

#[derive(Debug)]
struct Leave {
    need: Need,
    /// Questions that it may rest on, and how: the one that was asked about it before others.
    on: Vec<(usize, Rests)>,
}

/// How a call may rest on a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rests {
    /// It is what was asked about.
    Asked,
    /// It is another one that the yes lets as well.
    Covered,
}

/// Something that people were asked.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) id: String,
    pub(crate) pid: Pid,
    /// The call that would be made; `None` for what is about none.
    pub(crate) call: Option<Syscall>,
    pub(crate) expires_at: Timestamp,
    /// The entry that put it.
    pub(crate) lsn: Lsn,
    call_id: CallId,
    hold: bool,
    /// It was denied, and its process went on.
    pub(crate) denied: bool,
    /// It is a command that was let run, to which something was denied.
    inside: bool,
    policy: Arc<str>,
    /// The files as the person saw them, with the entry and the time.
    shown: Option<(Lsn, Timestamp, Vec<BoundFile>)>,
    /// What was said, when, and the entry that has it.
    words: Vec<(ProposalState, Timestamp, Lsn)>,
    /// A driver made the call, perhaps once more after a crash.
    came: bool,
    /// A driver would not make it.
    drifted: bool,
    /// The entry with which its process was told what came of it.
    over: Option<Lsn>,
    /// Something came between that may keep the call from being made.
    disturbed: bool,
    /// It went with a crash before anybody could see it.
    lost: bool,
}

impl Question {
    fn said(&self, states: &[ProposalState]) -> bool {
        self.words.iter().any(|(state, ..)| states.contains(state))
    }

    fn yes(&self) -> bool {
        self.said(&[ProposalState::Approved, ProposalState::Standing])
    }

    fn no(&self) -> bool {
        self.said(&[ProposalState::Rejected, ProposalState::Vetoed])
    }

    /// A yes that stands, given while there was still a question.
    fn stands(&self) -> bool {
        let timely = |at: &Timestamp| self.hold || *at <= self.expires_at;
        let given = self.words.iter().any(|(state, at, _)| *state == ProposalState::Standing && timely(at));
        given && !self.no()
    }

    /// Whether the call may be made under it now, for the first time.
    fn lets(&self, now: Timestamp, need: Need) -> bool {
        let fresh = self.over.is_none() && !self.no() && !(self.denied && self.came);
        let yes = self.yes() && (self.hold || now <= self.expires_at);
        let window = self.hold && self.words.is_empty() && now >= self.expires_at && need != Need::Yes;
        fresh && (yes || window)
    }
}

impl Desk {
    /// Questions that people have on their desk: those that are durable, answered or not.
    pub(crate) fn questions(&self, durable: Lsn) -> impl Iterator<Item = &Question> {
        self.questions.iter().filter(move |question| !question.lost && question.lsn <= durable)
    }

    /// Those that nobody has answered.
    pub(crate) fn open(&self, durable: Lsn) -> Vec<&Question> {
        self.questions(durable).filter(|question| question.words.is_empty() && question.over.is_none()).collect()
    }

    /// A denial that nobody has answered may outlive a policy: what it is about is denied by the next one as it was, or it is over.
    fn denials_are_of_this_policy(&mut self) {
        for question in self.questions.iter_mut().filter(|question| question.denied && question.words.is_empty()) {
            question.policy = Arc::clone(&self.policy);
        }
    }

    /// The policy that holds is another one.
    pub(crate) fn policy(&mut self, text: &str) {
        if *self.policy != *text {
            self.policy = text.into();
            self.questions.iter_mut().for_each(|question| question.disturbed = true);
            self.denials_are_of_this_policy();
        }
    }

    fn find(&mut self, pid: Pid, id: &str) -> Option<&mut Question> {
        self.questions.iter_mut().rev().find(|question| !question.lost && question.pid == pid && question.id == id)
    }

    /// Somebody's word has been taken.
    pub(crate) fn hears(
        &mut self,
        pid: Pid,
        id: &str,
        state: ProposalState,
        at: (Timestamp, Lsn),
    ) -> Result<(), Broken> {
        let Some(question) = self.find(pid, id) else {
            return Err(broken(ONE_ANSWER, format!("{state:?} to {id} of {pid}, which nobody was asked")));
        };
        let yes = matches!(state, ProposalState::Approved | ProposalState::Standing);
        // What was lifted and is not used yet can be taken back.
        let lifted = question.denied && question.yes();
        let stood = (lifted || question.said(&[ProposalState::Standing])) && !question.no();
        let again = !question.words.is_empty() && (yes || !stood);
        if again || (question.words.is_empty() && question.over.is_some()) {
            return Err(broken(ONE_ANSWER, format!("{state:?} to {question:?}")));
        }
        if yes && question.shown.is_none() && question.call.as_ref().is_some_and(need::binds) {
            return Err(broken(SHOWN, format!("{state:?} is taken before anything was shown of {question:?}")));
        }
        question.words.push((state, at.0, at.1));
        self.words += 1;
        Ok(())
    }

    /// The files that a question concerns are put beside it.
    pub(crate) fn looks(
        &mut self,
        pid: Pid,
        id: &str,
        files: &[BoundFile],
        at: (Timestamp, Lsn),
    ) -> Result<(), Broken> {
        match self.find(pid, id) {
            Some(question) if question.shown.is_none() => {
                question.shown = Some((at.1, at.0, files.to_vec()));
                Ok(())
            }
            other => Err(broken(SHOWN, format!("{id} of {pid} is looked at again: {other:?}"))),
        }
    }

    /// Whether what people are shown of a question is what it is about.
    pub(crate) fn reads(&self, view: &aos_abi::api::ProposalView) -> Result<(), Broken> {
        let mut questions = self.questions.iter().rev();
        let question = questions.find(|question| !question.lost && question.id == view.id);
        let same = question.is_some_and(|question| {
            let shown = question.shown.as_ref().map(|(_, _, files)| files.as_slice()).unwrap_or_default();
            let call = question.call.as_ref();
            let call = call.is_none_or(|call| call.name().as_str() == view.call.name && call.args() == view.call.args);
            call && view.pid == question.pid && view.files == shown
        });
        if same { Ok(()) } else { Err(broken(SHOWN, format!("{view:?} is shown of {question:?}"))) }
    }

    /// Something became known.
    pub(crate) fn entry(&mut self, entry: &Entry) -> Result<(), Broken> {
        let pid = entry.pid;
        let before = self.moments.last().copied().unwrap_or(entry.at);
        self.moments.push(entry.at);
        match &entry.body {
            Body::Booted { .. } => {
                let off_ms = entry.at.millis_since(before);
                self.starts.push((entry.lsn, off_ms));
                for question in self.questions.iter_mut().filter(|question| question.hold) {
                    question.expires_at = question.expires_at.plus_millis(off_ms);
                }
            }
            // It makes no call before somebody lets it go on, which may be too late.
            Body::Faulted(_) => {
                let own = self.questions.iter_mut().filter(|question| question.pid == pid);
                own.for_each(|question| question.disturbed = true);
            }
            Body::Proposal {
                id,
                state: state @ (ProposalState::Pending | ProposalState::Denied),
                proposal: Some(proposal),
                ..
            } => {
                let call = Syscall::parse(proposal.name.as_str(), &proposal.args.to_string());
                self.questions.push(Question {
                    id: id.clone(),
                    pid,
                    call: call.ok(),
                    expires_at: proposal.expires_at,
                    lsn: entry.lsn,
                    call_id: proposal.call_id.clone(),
                    hold: proposal.verdict == Verdict::Hold,
                    denied: *state == ProposalState::Denied,
                    inside: !proposal.inner.is_empty(),
                    policy: Arc::clone(&self.policy),
                    shown: None,
                    words: Vec::new(),
                    came: false,
                    drifted: false,
                    over: None,
                    disturbed: false,
                    lost: false,
                });
            }
            Body::Result { call_id, .. } => {
                let mut open = self.questions.iter_mut().rev();
                let of = open.find(|question| {
                    !question.denied && !question.lost && question.pid == pid && question.call_id == *call_id
                });
                if let Some(question) = of.filter(|question| question.over.is_none()) {
                    question.over = Some(entry.lsn);
                }
            }
            // Nobody may lift it any more, or use that it was lifted.
            Body::Proposal { id, state: ProposalState::Expired, .. } => {
                if let Some(question) = self.find(pid, id).filter(|question| question.denied) {
                    question.over.get_or_insert(entry.lsn);
                }
            }
            Body::Signal { signal: Signal::Term | Signal::Kill | Signal::Stop, .. }
            | Body::Stopped { .. }
            | Body::Exited { .. } => {
                self.questions.iter_mut().filter(|of| of.pid == pid).for_each(|of| of.disturbed = true);
            }
            Body::Message { from_pid, content, .. } if content.starts_with(need::PROPOSED) => {
                let said = |question: &&Question| {
                    let about = question.call.as_ref().and_then(need::mark);
                    !question.lost && question.pid == *from_pid && about.as_ref() == Some(content)
                };
                let asked = self.questions.iter().rev().find(said);
                if !asked.is_some_and(|question| question.lets(entry.at, Need::Yes) && question.policy == self.policy) {
                    return Err(broken(WORD, format!("{from_pid} sent `{content}`: {asked:?}")));
                }
                if let Some(earlier) = self.sent.insert(content.clone(), entry.lsn) {
                    return Err(broken(ONE_USE, format!("{from_pid} sent `{content}` at {earlier} and {}", entry.lsn)));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The kernel wants a call made: is there what it needs?
    pub(crate) fn decides(
        &mut self,
        now: Timestamp,
        what: (EffectId, &CallId, Pid),
        call: &Syscall,
    ) -> Result<(), Broken> {
        let (id, call_id, pid) = what;
        let need = needed(&self.policy, call);
        let mut on = Vec::new();
        for (at, question) in self.questions.iter().enumerate() {
            let Some(asked) = question.call.as_ref().filter(|_| !question.lost && question.pid == pid) else {
                continue;
            };
            if question.policy != self.policy {
                continue;
            }
            // After a crash a yes that stands lets what was asked about be made again, however late.
            let it = question.call_id == *call_id || question.denied;
            let very = question.over.is_none() && it && asked == call;
            let for_once = question.lets(now, need) && !(question.denied && question.stands());
            if very && (for_once || question.stands() && !question.denied) {
                on.push((at, Rests::Asked));
            } else if (!very || question.denied) && !question.inside && question.stands() && need::covers(asked, call) {
                on.push((at, Rests::Covered));
            }
        }
        // A yes to one more run goes along with the word that the command itself was asked about.
        on.sort_by_key(|(at, rests)| (*rests, self.questions[*at].denied));
        let rests = match need {
            Need::Nothing => true,
            Need::Window | Need::Yes => !on.is_empty(),
            // Somebody has lifted it, and it can be lifted.
            Need::Never => {
                let denied = |(at, _): &(usize, Rests)| self.questions[*at].denied && !self.questions[*at].inside;
                need::lifts(&self.policy, call) && on.iter().any(denied)
            }
        };
        if !rests {
            let same = |question: &&Question| question.pid == pid && question.call.as_ref() == Some(call);
            let asked: Vec<&Question> = self.questions.iter().filter(same).collect();
            return Err(broken(WORD, format!("{id} of {pid} at {now} needs {need:?}: {call:?}, asked as {asked:?}")));
        }
        self.leaving.insert(id, Leave { need, on });
        Ok(())
    }

    /// A driver makes a call; `found` are the files as they are.
    pub(crate) fn done(&mut self, id: EffectId, pid: Pid, call: &Syscall, found: &[BoundFile]) -> Result<(), Broken> {
        let Some(leave) = self.leaving.remove(&id) else {
            return Err(broken(WORD, format!("{id} of {pid} reached a driver without having left: {call:?}")));
        };
        if let Some(mark) = need::mark(call)
            && let Some(earlier) = self.marks.insert(mark.clone(), id)
            && (earlier != id || !call.idempotent() || mark.starts_with(need::PROPOSED))
        {
            return Err(broken(ONE_USE, format!("`{mark}` of {pid} is done as {earlier} and as {id}")));
        }
        let exact = call.name() == aos_abi::Name::ExecCmd;
        let fits = |(at, rests): &&(usize, Rests)| {
            let question = &self.questions[*at];
            let shown = question.shown.as_ref().map(|(_, _, files)| files.as_slice());
            let same = !need::binds(call) || shown == Some(found);
            match rests {
                Rests::Asked if !question.came => same,
                // Made again after a crash, the file is as it left it itself.
                Rests::Asked => question.stands() && (same || !exact),
                Rests::Covered => same || !exact,
            }
        };
        let used: Vec<usize> =
            leave.on.iter().filter(fits).filter(|(_, rests)| *rests == Rests::Asked).map(|(at, _)| *at).collect();
        match leave.on.iter().find(fits) {
            Some(_) => {
                self.made += 1;
                for at in used {
                    self.lifted += u64::from(self.questions[at].denied);
                    self.again += u64::from(self.questions[at].inside);
                    self.questions[at].came = true;
                }
            }
            None if leave.need == Need::Nothing && leave.on.iter().all(|(at, _)| self.questions[*at].disturbed) => {}
            None => {
                let asked: Vec<&Question> = leave.on.iter().map(|(at, _)| &self.questions[*at]).collect();
                let used = asked.iter().all(|question| question.came);
                let check = if used { ONE_USE } else { SHOWN };
                return Err(broken(check, format!("{id} of {pid}: {call:?} over {found:?}, asked as {asked:?}")));
            }
        }
        Ok(())
    }

    /// A driver did not make a call, since a file is not what it was.
    pub(crate) fn drifts(&mut self, id: EffectId) {
        let Some(leave) = self.leaving.remove(&id) else { return };
        self.drifted += 1;
        if let Some((at, _)) = leave.on.first() {
            self.questions[*at].drifted = true;
        }
    }

    /// The machine stopped: what was not durable was never asked, said or shown. What was under way nobody knows.
    pub(crate) fn crash(&mut self, durable: Lsn, policy: &str) {
        self.leaving.clear();
        self.moments.truncate(usize::try_from(durable.0).unwrap_or(usize::MAX));
        self.sent.retain(|_, lsn| *lsn <= durable);
        // A start that was lost gave nobody more time.
        while let Some((start, off_ms)) = self.starts.pop_if(|(start, _)| *start > durable) {
            let held = self.questions.iter_mut().filter(|question| question.hold && question.lsn < start);
            held.for_each(|question| question.expires_at.0 -= i64::try_from(off_ms).unwrap_or_default());
        }
        for question in &mut self.questions {
            question.lost |= question.lsn > durable;
            question.words.retain(|(_, _, lsn)| *lsn <= durable);
            question.over = question.over.filter(|lsn| *lsn <= durable);
            question.shown = question.shown.take().filter(|(lsn, ..)| *lsn <= durable);
            question.disturbed = true;
        }
        self.policy = policy.into();
        self.denials_are_of_this_policy();
    }

    /// Nothing happens any more: whatever was decided, and was left in peace, has come to exactly that.
    pub(crate) fn at_rest(&self, now: Timestamp) -> Result<(), Broken> {
        let drivers = |call: &Syscall| !matches!(call.name().spec().handler, Handler::Kernel | Handler::Absent(_));
        for question in self.questions.iter().filter(|question| !question.lost) {
            let came = question.came || question.drifted;
            let (wanted, ripe) = match question.words.first() {
                Some((ProposalState::Approved | ProposalState::Standing, at, _)) => {
                    (question.hold || *at <= question.expires_at, true)
                }
                Some(_) => (false, true),
                None => {
                    let seen = question.shown.as_ref().is_some_and(|(_, at, _)| *at < question.expires_at);
                    (question.hold, seen && question.expires_at < now)
                }
            };
            let sure = ripe && !question.denied && !question.disturbed && question.call.as_ref().is_some_and(drivers);
            if (came && !wanted) || (sure && came != wanted) {
                return Err(broken(COMES, format!("it came: {came}, wanted: {wanted}: {question:?}")));
            }
        }
        Ok(())
    }
}
