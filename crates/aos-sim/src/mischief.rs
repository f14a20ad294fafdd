//! Mischief: people and power cuts at the worst moment round a question.
//!
//! Start at [`Simulation::mischief`]. Each scheme takes a question that waits and does to it what careless, slow or malicious
//! people, other people and the mains do. Nothing here knows what should come of it: `desk` does.

use aos_abi::entry::ProposalState;
use aos_abi::{Body, EffectId, Pid, Signal, Syscall};

use crate::desk::Question;
use crate::report::Halt;
use crate::world::{Simulation, Stops};

use ProposalState::{Approved, Rejected, Standing, Vetoed};

/// What a scheme needs to know of its question.
#[derive(Clone)]
struct Target {
    pid: Pid,
    id: String,
    call: Option<Syscall>,
}

impl From<&Question> for Target {
    fn from(question: &Question) -> Target {
        Target { pid: question.pid, id: question.id.clone(), call: question.call.clone() }
    }
}

impl Simulation {
    /// Something goes wrong round a question that waits.
    pub(crate) fn mischief(&mut self) -> Result<(), Halt> {
        if self.chance.percent(20) {
            return self.an_old_word();
        }
        // People see what is durable.
        let open: Vec<Target> = self.outside.desk.open(self.acknowledged).into_iter().map(Target::from).collect();
        let Some(of) = self.chance.pick(&open) else { return self.takes_back(None) };
        match self.chance.weighted(&[14, 10, 18, 16, 10, 12, 10, 10]) {
            0 => self.two_people(&of),
            1 => self.too_late(&of),
            2 => self.while_stopped(&of),
            3 => {
                self.meddle(&of);
                self.yes(&of)
            }
            4 => {
                self.reload()?;
                self.yes(&of)
            }
            5 => {
                self.yes(&of)?;
                self.power_cut()
            }
            6 => {
                // The call is under way, or has been made and nobody knows.
                self.yes(&of)?;
                self.sync()?;
                if self.chance.percent(50) {
                    self.meddle(&of);
                }
                self.power_cut()
            }
            _ => {
                self.takes_back(None)?;
                self.yes(&of)
            }
        }
    }

    /// Somebody says something about a question of long ago, or of now.
    fn an_old_word(&mut self) -> Result<(), Halt> {
        let seen: Vec<Target> = self.outside.desk.questions(self.acknowledged).map(Target::from).collect();
        let Some(of) = self.chance.pick(&seen) else { return Ok(()) };
        let word = self.chance.one(&[Approved, Approved, Standing, Rejected, Vetoed]);
        self.says(&of, word).map(drop)
    }

    fn says(&mut self, of: &Target, state: ProposalState) -> Result<bool, Halt> {
        if let Some(view) = self.kernel.proposal(&of.id)
            && state != Rejected
        {
            self.outside.desk.reads(&view)?;
        }
        self.offer(of.pid, Body::Proposal { id: of.id.clone(), state, proposal: None, why: Some("so".into()) })
    }

    fn yes(&mut self, of: &Target) -> Result<(), Halt> {
        let word = if self.chance.percent(80) { Approved } else { Standing };
        self.says(of, word).map(drop)
    }

    /// Two people answer, neither of whom knows of the other.
    fn two_people(&mut self, of: &Target) -> Result<(), Halt> {
        for _ in 0..2 {
            let word = self.chance.one(&[Approved, Approved, Standing, Rejected, Vetoed]);
            self.says(of, word)?;
            if self.chance.percent(30) {
                self.sync()?;
            }
        }
        Ok(())
    }

    /// The time is over, and nobody has noticed yet.
    fn too_late(&mut self, of: &Target) -> Result<(), Halt> {
        let expires = self.outside.desk.questions(self.acknowledged).find(|question| question.id == of.id);
        let Some(expires) = expires.map(|question| question.expires_at) else { return Ok(()) };
        self.now = self.now.max(expires.plus_millis(self.chance.between(0, 2)));
        self.yes(of)?;
        self.go_to(self.now)
    }

    /// Whoever asked is stopped when the answer comes, and goes on after something has happened.
    fn while_stopped(&mut self, of: &Target) -> Result<(), Halt> {
        let signal = |signal| Body::Signal { signal, from_pid: Pid::INIT, tree: false };
        if !self.offer(of.pid, signal(Signal::Stop))? {
            return Ok(());
        }
        self.yes(of)?;
        match self.chance.weighted(&[20, 20, 20, 15, 15, 10]) {
            0 => self.meddle(of),
            1 => self.reload()?,
            2 => self.time_passes(6 * 3_600_000)?,
            3 => self.says(of, Rejected).map(drop)?,
            4 => self.power_cut()?,
            _ => {}
        }
        self.offer(of.pid, signal(Signal::Cont))?;
        if self.chance.percent(30) {
            self.offer(of.pid, signal(Signal::Cont))?;
        }
        Ok(())
    }

    /// Somebody changes a file that the question is about.
    fn meddle(&mut self, of: &Target) {
        if let Some(call) = &of.call {
            self.outside.files.somebody_edits(&mut self.chance, of.pid, call);
        }
    }

    /// The owner of the policy saves it again, changed or not.
    fn reload(&mut self) -> Result<(), Halt> {
        let config = crate::setup::configured(&mut self.chance, self.kind);
        self.offer(Pid::SYSTEM, Body::Configured(Box::new(config))).map(drop)
    }

    /// The mains fail. Nobody knows what was heard; some say it again later.
    fn power_cut(&mut self) -> Result<(), Halt> {
        if matches!(self.stops, Stops::Random) { Err(Halt::Crash) } else { Ok(()) }
    }

    /// A person takes back what a call changed, or makes it again: of this effect, or of any.
    pub(crate) fn takes_back(&mut self, of: Option<EffectId>) -> Result<(), Halt> {
        let may: Vec<EffectId> = self.outside.files.undoable(self.acknowledged);
        let Some(id) = of.filter(|id| may.contains(id)).or_else(|| self.chance.pick(&may)) else { return Ok(()) };
        self.outside.files.turn_round(id);
        let Some((pid, body)) = self.outside.files.untold(id) else { return Ok(()) };
        self.offer(pid, body).map(drop)
    }
}
