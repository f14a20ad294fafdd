//! The model: what a question may come to, as the documents say it (`docs/decisions/0009`, `0010` and `0034`).
//!
//! Start at [`Model::word`]. It is a state machine of one agent, its questions and one file, with nothing of the kernel in
//! it. Each act says what must come out ([`Out`]), to the last entry; the world compares.

use aos_abi::Code;
use aos_abi::entry::ProposalState as Said;

use super::stories::{Call, GRACE_MS, HOLD_MS, Kind, TTL_MS};

/// So long ago nothing was, in milliseconds.
const FAR_MS: u64 = 1 << 40;

/// What an act must come to: no more, no less.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Out {
    /// Proposals and what became of them.
    pub(super) became: Vec<(u64, Said)>,
    /// What the agent is told of its calls; `None`: it was made.
    pub(super) told: Vec<Option<Code>>,
    /// Calls that go to a driver.
    pub(super) made: Vec<Call>,
    /// Questions whose files are to be looked at.
    pub(super) looks: Vec<u64>,
    /// Denials that the agent hears are lifted.
    pub(super) lifted: Vec<u64>,
}

impl Out {
    /// In an order of its own: which of them comes first says nothing.
    pub(super) fn sorted(mut self) -> Out {
        self.became.sort_by_key(|(id, state)| (*id, *state as u8));
        self.told.sort();
        self.made.sort();
        self.looks.sort_unstable();
        self.lifted.sort_unstable();
        self
    }
}

/// What the agent is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It asks its model.
    Thinks,
    /// It is stopped, and would.
    Rests,
    /// It is stopped, and would make a call.
    Begins(Call),
    /// It waits for an answer.
    Asks(u64),
    /// It is stopped, and would make the call that was approved.
    Approved(u64),
    /// A driver makes a call, under this question where one binds it.
    Runs {
        /// Which.
        call: Call,
        /// The question that it is made under.
        under: Option<u64>,
        /// The driver has been reached.
        left: bool,
        /// The driver made it.
        made: bool,
    },
}

/// Something that a person can answer, or has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) id: u64,
    pub(super) call: Call,
    pub(super) kind: Kind,
    /// When it is over, in milliseconds.
    pub(super) ends: u64,
    /// The file as people were shown it.
    pub(super) shown: Option<u32>,
    pub(super) is: Is,
    /// The policy that it was asked under.
    policy: u32,
}

/// Where a question stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Is {
    /// Nobody has answered.
    Open,
    /// A yes to one call, which is not made yet.
    Yes,
    /// A yes that stands.
    Stands,
}

/// A change that a call made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// How often it was taken back and made again.
    pub(super) turn: u32,
    /// By which people know each turn of it; `None`: by the first.
    pub(super) ids: Vec<Option<u64>>,
}

impl Change {
    /// Whether the journal has yet to be told of its last turn.
    pub(super) fn is_owed(&self) -> bool {
        self.ids.len() <= self.turn as usize
    }
}

/// The state of it all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) now: u64,
    /// When the last entry was made.
    pub(super) last: u64,
    /// The last id that was given out.
    pub(super) ids: u64,
    pub(super) alive: bool,
    pub(super) stopped: bool,
    /// When it is killed, after `TERM`.
    pub(super) killed_at: Option<u64>,
    pub(super) doing: Doing,
    /// Those that are not over.
    pub(super) questions: Vec<Question>,
    /// Calls that were refused, and until when that holds.
    refused: Vec<(Call, u64)>,
    /// Places of denials that were dismissed, and until when that holds.
    dismissed: Vec<(Call, u64)>,
    /// Changes of files that can be taken back.
    pub(super) changes: Vec<Change>,
    /// Which content the file has.
    pub(super) file: u32,
    /// Which policy holds.
    pub(super) policy: u32,
}

impl Model {
    pub(super) fn new() -> Model {
        Model {
            now: 0,
            last: 0,
            ids: 0,
            alive: true,
            stopped: false,
            killed_at: None,
            doing: Doing::Thinks,
            questions: Vec::new(),
            refused: Vec::new(),
            dismissed: Vec::new(),
            changes: Vec::new(),
            file: 0,
            policy: 0,
        }
    }

    /// The same with times counted from now: two runs that differ in how late it is go on alike.
    pub(super) fn as_of_now(&self) -> Model {
        let now = self.now;
        let mut model = self.clone();
        let left = |at: u64| (at + FAR_MS).saturating_sub(now);
        (model.now, model.last) = (0, now - self.last);
        model.questions.iter_mut().for_each(|question| question.ends = left(question.ends));
        model.killed_at = self.killed_at.map(left);
        for answers in [&mut model.refused, &mut model.dismissed] {
            answers.retain(|(_, until)| *until > now);
            answers.iter_mut().for_each(|(_, until)| *until = left(*until));
        }
        model
    }

    pub(super) fn find(&self, id: u64) -> Option<&Question> {
        self.questions.iter().find(|question| question.id == id)
    }

    fn take(&mut self, id: u64) -> Option<Question> {
        let at = self.questions.iter().position(|question| question.id == id)?;
        Some(self.questions.remove(at))
    }

    /// The next moment at which something is over by time alone.
    pub(super) fn next(&self) -> Option<u64> {
        let due = self.questions.iter().filter(|question| self.is_timed(question)).map(|question| question.ends);
        due.chain(self.killed_at.filter(|_| self.alive)).min()
    }

    /// Whether time ends it: it is open, or a lifted denial that is not used.
    fn is_timed(&self, question: &Question) -> bool {
        let unused = question.is == Is::Yes && question.kind == Kind::Denied && !self.runs_under(question.id);
        question.is == Is::Open || unused
    }

    /// The agent's model has said which call it wants; `None`: none, which is its last word after `TERM`.
    pub(super) fn reply(&mut self, call: Option<Call>, out: &mut Out) {
        match call {
            None => self.end(out),
            Some(call) if self.stopped => self.doing = Doing::Begins(call),
            Some(call) => self.begin(call, out),
        }
    }

    fn begin(&mut self, call: Call, out: &mut Out) {
        let kind = call.kind();
        let stands = self.questions.iter().any(|question| question.is == Is::Stands && question.call.covers(call));
        if stands || kind == Kind::Free {
            return self.make(call, None, out);
        }
        if kind == Kind::Denied {
            let lifted = self.questions.iter().find(|question| question.is == Is::Yes && question.call == call);
            if let Some(Question { id, ends, .. }) = lifted.cloned() {
                if self.now <= ends {
                    out.became.push((id, Said::Executed));
                    return self.make(call, Some(id), out);
                }
                self.over(id, out);
            }
            let known = |question: &Question| question.is == Is::Open && question.call.covers(call);
            let dismissed = self.dismissed.iter().any(|(of, until)| of.covers(call) && self.now < *until);
            if !dismissed && !self.questions.iter().any(known) {
                self.put(call, Said::Denied, out);
            }
            return self.tell(Some(Code::Perm), out);
        }
        if self.refused.iter().any(|(of, until)| *of == call && self.now < *until) {
            return self.tell(Some(Code::Rejected), out);
        }
        self.put(call, Said::Pending, out);
        self.doing = Doing::Asks(self.ids);
    }

    fn put(&mut self, call: Call, state: Said, out: &mut Out) {
        self.ids += 1;
        let (id, kind) = (self.ids, call.kind());
        let ends = self.now + if kind == Kind::Hold { HOLD_MS } else { TTL_MS };
        self.questions.push(Question { id, call, kind, ends, shown: None, is: Is::Open, policy: self.policy });
        out.became.push((id, state));
        out.looks.push(id);
    }

    /// It goes to a driver. A yes to one call is used up by that once it is over; nobody can answer it any more.
    fn make(&mut self, call: Call, under: Option<u64>, out: &mut Out) {
        out.made.push(call);
        self.doing = Doing::Runs { call, under, left: false, made: false };
    }

    fn tell(&mut self, code: Option<Code>, out: &mut Out) {
        out.told.push(code);
        self.doing = if self.stopped { Doing::Rests } else { Doing::Thinks };
    }

    /// It is over, and people are told so.
    fn over(&mut self, id: u64, out: &mut Out) {
        self.take(id);
        out.became.push((id, Said::Expired));
    }

    /// The files of a question are put beside it; whether anybody wants to know.
    pub(super) fn look(&mut self, id: u64) -> bool {
        let file = self.file;
        let question = self.questions.iter_mut().find(|question| question.id == id && question.shown.is_none());
        let wanted = question.filter(|question| question.is == Is::Open);
        wanted.is_some_and(|question| {
            question.shown = Some(file);
            true
        })
    }

    /// A person answers; whether the answer counts.
    pub(super) fn word(&mut self, id: u64, state: Said, out: &mut Out) -> bool {
        let Some(question) = self.find(id).cloned() else { return false };
        let yes = matches!(state, Said::Approved | Said::Standing);
        let open = question.is == Is::Open;
        let running = self.runs_under(id);
        let counts = match yes {
            true => open && question.shown.is_some() && (state == Said::Approved || question.call.may_stand()),
            // A yes can be taken back while it stands, and where it was to a denial, until it is used.
            false => {
                open || question.is == Is::Stands || question.kind == Kind::Denied && question.is == Is::Yes && !running
            }
        };
        if !counts {
            return false;
        }
        out.became.push((id, state));
        match (yes, question.kind) {
            (true, Kind::Denied) => {
                self.becomes(id, state);
                out.lifted.push(id);
            }
            (true, _) => {
                self.becomes(id, state);
                self.doing = Doing::Approved(id);
                if !self.stopped {
                    self.run_approved(id, out);
                }
            }
            (false, Kind::Denied) => {
                if question.is != Is::Stands {
                    self.dismissed.push((question.call, self.now + TTL_MS));
                }
                self.take(id);
            }
            (false, _) => {
                self.take(id);
                if matches!(self.doing, Doing::Asks(of) | Doing::Approved(of) if of == id) {
                    self.refused.push((question.call, self.now + TTL_MS));
                    self.tell(Some(Code::Rejected), out);
                }
            }
        }
        true
    }

    fn becomes(&mut self, id: u64, state: Said) {
        let is = if state == Said::Standing { Is::Stands } else { Is::Yes };
        self.questions.iter_mut().filter(|question| question.id == id).for_each(|question| question.is = is);
    }

    /// The call that was approved may be made now, where the approval still holds.
    fn run_approved(&mut self, id: u64, out: &mut Out) {
        let Some(question) = self.find(id).cloned() else { return };
        if question.kind != Kind::Hold && self.now > question.ends {
            self.over(id, out);
            return self.tell(Some(Code::Rejected), out);
        }
        if question.policy != self.policy {
            self.over(id, out);
            return self.tell(Some(Code::Perm), out);
        }
        out.became.push((id, Said::Executed));
        self.make(question.call, Some(id), out);
    }

    /// A driver is reached; whether it makes the call: not over other files than those that were shown.
    pub(super) fn leaves(&mut self) -> bool {
        let Doing::Runs { call, under, made, .. } = self.doing else { return false };
        let shown = under.and_then(|id| self.find(id)).map(|question| question.shown);
        let holds = made || shown.is_none_or(|shown| shown == Some(self.file));
        if holds && !made {
            self.file += 1;
            if call == Call::Free {
                self.changes.push(Change { turn: 0, ids: Vec::new() });
            }
        }
        self.doing = Doing::Runs { call, under, left: true, made: holds };
        holds
    }

    /// The driver's result.
    pub(super) fn done(&mut self, out: &mut Out) {
        let Doing::Runs { under, made, .. } = self.doing else { return };
        let stands = under.and_then(|id| self.find(id)).is_some_and(|question| question.is == Is::Stands);
        if let Some(id) = under {
            match made {
                true if stands => {}
                true => _ = self.take(id),
                false => self.over(id, out),
            }
        }
        self.tell((!made).then_some(Code::Rejected), out);
    }

    /// A change is taken back, or made again: on the disk, and the journal is told of it later.
    pub(super) fn turn(&mut self, at: usize) {
        self.changes[at].turn += 1;
        self.file += 1;
    }

    /// The journal is told of a change.
    pub(super) fn owed(&mut self, at: usize, out: &mut Out) {
        let change = &mut self.changes[at];
        let known = |turn: u32| change.ids.get(turn as usize).copied().flatten();
        let turn = change.turn;
        // What stands again has its id already.
        let is_new = turn == 0 || !turn.is_multiple_of(2);
        if turn > 0 {
            out.became.extend(known(if is_new { 0 } else { turn - 1 }).map(|id| (id, Said::Undone)));
        }
        if is_new {
            self.ids += 1;
            change.ids.push(Some(self.ids));
            out.became.push((self.ids, Said::Executed));
        } else {
            out.became.extend(known(0).map(|id| (id, Said::Executed)));
            change.ids.push(None);
        }
    }

    /// Somebody writes to the file.
    pub(super) fn edit(&mut self) {
        self.file += 1;
    }

    /// Another policy holds, which denies the same: what was asked and approved under the old one is over.
    pub(super) fn policy(&mut self, out: &mut Out) {
        self.policy += 1;
        for question in self.questions.clone() {
            let id = question.id;
            match question.is {
                Is::Open if question.kind == Kind::Denied => {
                    let denied = self.questions.iter_mut().find(|question| question.id == id);
                    denied.into_iter().for_each(|denied| denied.policy = self.policy);
                }
                Is::Open => {
                    self.over(id, out);
                    if self.doing == Doing::Asks(id) {
                        self.tell(Some(Code::Rejected), out);
                    }
                }
                // The yes to one call is looked at when that is made.
                Is::Stands if self.doing == Doing::Approved(id) => {
                    self.becomes(id, Said::Approved);
                    out.became.push((id, Said::Expired));
                }
                Is::Stands => self.over(id, out),
                Is::Yes if question.kind == Kind::Denied && !self.runs_under(id) => self.over(id, out),
                Is::Yes => {}
            }
        }
    }

    /// `STOP`.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    /// `CONT`.
    pub(super) fn cont(&mut self, out: &mut Out) {
        if !std::mem::take(&mut self.stopped) {
            return;
        }
        match self.doing {
            Doing::Begins(call) => self.begin(call, out),
            Doing::Approved(id) => self.run_approved(id, out),
            Doing::Rests => self.doing = Doing::Thinks,
            Doing::Thinks | Doing::Asks(_) | Doing::Runs { .. } => {}
        }
    }

    /// `TERM`: what waits is over, and there is one last turn.
    pub(super) fn term(&mut self, out: &mut Out) {
        if self.killed_at.is_some() {
            return;
        }
        self.killed_at = Some(self.now + GRACE_MS);
        self.stopped = false;
        match self.doing {
            Doing::Begins(_) => self.tell(Some(Code::Intr), out),
            Doing::Approved(id) => {
                self.over(id, out);
                self.tell(Some(Code::Intr), out);
            }
            Doing::Asks(id) => {
                self.over(id, out);
                // Nothing of its is left but what it was denied.
                self.questions.retain(|question| question.is != Is::Stands);
                self.tell(Some(Code::Intr), out);
            }
            Doing::Rests => self.doing = Doing::Thinks,
            Doing::Thinks | Doing::Runs { .. } => {}
        }
    }

    /// It ends, and everything that waits with it.
    pub(super) fn end(&mut self, out: &mut Out) {
        for question in std::mem::take(&mut self.questions) {
            let approved = self.doing == Doing::Approved(question.id);
            let used = self.runs_under(question.id);
            // That an approval stands no more is said by the end of its process.
            if approved || question.is != Is::Stands && !used {
                out.became.push((question.id, Said::Expired));
            }
        }
        self.alive = false;
        self.killed_at = None;
    }

    /// Whoever looks at the clock sees what is over by now.
    pub(super) fn tick(&mut self, out: &mut Out) {
        for question in self.questions.clone() {
            if !self.is_timed(&question) || question.ends > self.now {
                continue;
            }
            let id = question.id;
            match question.kind {
                Kind::Hold if question.shown.is_some() => {
                    self.becomes(id, Said::Approved);
                    self.doing = Doing::Approved(id);
                    if !self.stopped {
                        self.run_approved(id, out);
                    }
                }
                Kind::Denied => self.over(id, out),
                Kind::Hold | Kind::Ask | Kind::Free => {
                    self.over(id, out);
                    self.tell(Some(Code::Rejected), out);
                }
            }
        }
        if self.alive && self.killed_at.is_some_and(|at| at <= self.now) {
            self.end(out);
        }
    }

    pub(super) fn runs_under(&self, id: u64) -> bool {
        matches!(self.doing, Doing::Runs { under: Some(under), .. } if under == id)
    }

    /// The daemon starts again. Windows wait for as long as it was off; what was being looked at is looked at again; what
    /// was under way and may not be repeated is over, and nobody knows how it went.
    pub(super) fn boot(&mut self, out: &mut Out) {
        let off = self.now - self.last;
        let open = |question: &&mut Question| question.kind == Kind::Hold && question.is == Is::Open;
        self.questions.iter_mut().filter(open).for_each(|question| question.ends += off);
        if !self.alive {
            return;
        }
        let unseen = self.questions.iter().filter(|question| question.shown.is_none());
        out.looks.extend(unseen.map(|question| question.id));
        // What it was thinking is lost, and who is stopped begins no other thought.
        if self.stopped && self.doing == Doing::Thinks {
            self.doing = Doing::Rests;
        }
        let Doing::Runs { call, under, made, .. } = self.doing else { return };
        let stands = self.questions.iter().any(|question| question.is == Is::Stands && question.call.covers(call));
        if call.may_repeat() && (call.kind() == Kind::Free || stands) {
            out.made.push(call);
            self.doing = Doing::Runs { call, under, left: false, made };
            return;
        }
        let once = under.filter(|id| self.find(*id).is_some_and(|question| question.is != Is::Stands));
        once.map(|id| self.take(id));
        self.tell(Some(Code::Intr), out);
    }
}
