//! Effects: what the kernel wants done outside. Plain data, performed by the edges, never journaled.

use std::sync::Arc;

use aos_abi::entry::{Examined, Purpose, Verdict};
use aos_abi::inference::Encoding;
use aos_abi::process::Workspace;
use aos_abi::syscall::{CallSet, Handler, Risk};
use aos_abi::{CallError, CallId, Code, EffectId, Lsn, Name, Pid, Syscall};
use aos_personal::Detector;
use aos_policy::address::DAEMON_HINT;
use aos_policy::settings::Mount;
use aos_policy::{Allowed, Explanation, Given, Grants, Labels, Permit, Policy, Standing, Subject};

/// Something to be done outside the kernel. Its outcome, where it has one, comes back as an input.
#[derive(Debug)]
#[must_use]
#[expect(clippy::large_enum_variant, reason = "an effect is moved a few times and never stored")]
pub enum Effect {
    /// Ask a model.
    Infer(Box<Infer>),
    /// Ask a model what a program wants to know.
    Serve(Box<Serve>),
    /// A program's request gets no answer.
    Refuse {
        /// Which.
        request: u64,
        /// Why.
        error: CallError,
    },
    /// Carry out a call.
    Call {
        /// By which its result comes back.
        id: EffectId,
        /// Whose.
        pid: Pid,
        /// Of which call.
        call_id: CallId,
        /// The call, allowed by the policy.
        permit: Permit,
        /// Where the process's files are.
        workspace: Workspace,
        /// What decides on where a call leads to while it runs, such as a redirect.
        authority: Authority,
        /// The files that a person saw when they approved it: where they differ by now it does not run, and its outcome
        /// is `EREJECTED`.
        bound: Option<Box<Examined>>,
        /// A person's word, or its absence for a window, is used up by it.
        approved: bool,
        /// Its process asked for it with `PROPOSE`: the id of the proposal, which belongs into what comes of it, see
        /// [`crate::told_of`].
        proposed: Option<String>,
    },
    /// Look at the files that a proposed call concerns; what is seen comes back as [`aos_abi::Body::Examined`].
    Examine {
        /// Whose.
        pid: Pid,
        /// The proposal.
        id: String,
        /// The call.
        call: Box<Syscall>,
        /// Where the process's files are.
        workspace: Workspace,
        /// The policy's role it runs under, which may have mounts; empty: the default one.
        role: String,
    },
    /// Give up on an effect under way; its outcome must come back all the same.
    Cancel(EffectId),
    /// Begin to watch files.
    Watch {
        /// Whose.
        pid: Pid,
        /// By which changes are reported.
        watch_id: String,
        /// Where the process's files are.
        workspace: Workspace,
        /// The policy's role it runs under, which may have mounts; empty: the default one.
        role: String,
        /// What to watch, relative to that.
        path: String,
        /// Only paths that match.
        glob: Option<String>,
    },
    /// Stop watching.
    Unwatch {
        /// Whose.
        pid: Pid,
        /// Which watch.
        watch_id: String,
    },
    /// Another policy holds from now on: what runs under an older one may do no more than both allow.
    Policy(Policy),
    /// Answer an HTTP caller that waits.
    WebhookReply {
        /// Which.
        request_id: String,
        /// The HTTP status.
        status: u16,
        /// Headers.
        headers: Vec<(String, String)>,
        /// The body.
        body: String,
    },
}

/// The policy as it holds for one process.
#[derive(Clone, Debug)]
pub struct Authority {
    /// The process.
    pub pid: Pid,
    /// The first of its tree.
    pub root: Pid,
    /// The policy of that moment.
    pub policy: Policy,
    /// The policy's role it runs under; empty: the default one.
    pub role: String,
    /// The process's grants and its ancestors'.
    pub chain: Vec<Grants>,
    /// What its window carried; without the untrusted ones where a person vouches for the call.
    pub labels: Labels,
    /// Approvals that stand for what the call leads to: for where a redirect leads, and for what a command asks for and changes.
    pub standing: Vec<Standing>,
    /// What the files carry that a command of it may send, since they were written under labels.
    pub files: Labels,
    /// What they carry where a rule labels them `personal` or `secret`. Whoever sees that there are none takes it away.
    pub ruled: Labels,
}

impl Authority {
    /// The same process under another policy. What vouched for the call vouches on: it is the call that a person saw. What
    /// stood under the policy before stands no more.
    #[must_use]
    pub fn under(&self, policy: &Policy) -> Authority {
        let same = policy.generation() == self.policy.generation();
        let standing = if same { self.standing.clone() } else { Vec::new() };
        Authority { policy: policy.clone(), standing, ..self.clone() }
    }

    /// Whether the policy forbids a call outright; one that it would ask about is not.
    #[must_use]
    pub fn forbids(&self, call: &Syscall) -> bool {
        self.policy.explain(&self.subject(), call).verdict == Verdict::Deny
    }

    /// Whether the policy allows this call too, without asking anybody.
    ///
    /// # Errors
    /// `EPERM` with the deciding rule.
    pub fn allows(&self, call: &Syscall) -> Result<Allowed, CallError> {
        let said = self.explain(call);
        if said.verdict == Verdict::Allow {
            let generation = self.policy.generation().to_owned();
            return Ok(Allowed { rule: said.rule, generation, obligations: said.obligations });
        }
        let mut error = CallError::new(Code::Perm, format!("the policy does not allow {}: {}", call.name(), said.rule));
        let asks = said.verdict > Verdict::Deny && matches!(call.name(), Name::NetFetch | Name::NetSend);
        let by_itself = || format!("nobody can be asked in the middle of a call: make it with {}", call.name());
        error.hint = said.hint.or_else(|| asks.then(by_itself));
        Err(error)
    }

    /// What the policy says to it.
    pub(crate) fn explain(&self, call: &Syscall) -> Explanation {
        self.policy.explain_with(&self.subject(), &self.standing, call)
    }

    /// The same where another policy holds by now: both have to allow it, and it carries what either says.
    ///
    /// # Errors
    /// `EPERM` with the deciding rule.
    pub fn still_allows(&self, now: &Policy, call: &Syscall) -> Result<Allowed, CallError> {
        let said = self.allows(call)?;
        if now.generation() == self.policy.generation() {
            return Ok(said);
        }
        Ok(said.and(self.under(now).allows(call)?))
    }

    /// What a call wants that a command led to, and the rules that deny it or ask about it; where a person's yes can let it
    /// happen.
    #[must_use]
    pub fn wants(&self, call: &Syscall) -> Option<(Vec<String>, String)> {
        let subject = self.subject();
        let grants = self.policy.wanting_inside(&subject, &self.standing, call)?;
        let (said, next) = (self.explain(call), self.policy.explain_lifted(&subject, call));
        Some((grants, rules(&said, &next)))
    }

    /// The rule that keeps a call from a command that led to it, and why no yes lets it happen there; `None` where it is allowed.
    pub(crate) fn closed(&self, call: &Syscall) -> Option<(String, String)> {
        let (said, subject) = (self.explain(call), self.subject());
        let rule = match said.verdict {
            Verdict::Allow if said.obligations.redact => format!("{} keeps personal data here", said.rule),
            Verdict::Allow if !said.obligations.rates.is_empty() => format!("{} has a rate", said.rule),
            Verdict::Allow => return None,
            Verdict::Deny => said.rule,
            Verdict::Ask => format!("{} asks", said.rule),
            Verdict::Hold => format!("{} holds", said.rule),
        };
        let denied =
            said.verdict == Verdict::Deny && self.policy.explain_lifted(&subject, call).verdict == Verdict::Deny;
        let why = match denied {
            true => self.policy.closed(&subject, call),
            // Each of so many changes that only all of them together would do, or one that would be asked about.
            false => "a command does not wait for what is asked about, and of what it changes all is kept or nothing: its agent \
                      can make that call itself"
                .to_owned(),
        };
        Some((rule, why))
    }

    /// Who decides on what a command asks of the network: it can send whatever it can read.
    #[must_use]
    pub fn sending(&self) -> Authority {
        Authority { labels: self.labels.and(self.files).and(self.ruled), ..self.clone() }
    }

    /// Whether it does not allow a call that its process has not made itself, in a way that a person may lift for once.
    #[must_use]
    pub fn is_liftable(&self, call: &Syscall) -> bool {
        self.policy.wanting_unasked(&self.subject(), call).is_some()
    }

    /// The folders of the host that its commands are shown.
    #[must_use]
    pub fn mounts(&self) -> Vec<&Mount> {
        self.policy.mounts(&self.subject())
    }

    /// Whether it may read all that is in a folder of its workspace, `.` for the whole, without asking anybody.
    #[must_use]
    pub fn reads_all(&self, folder: &str) -> bool {
        self.policy.reads_all(&self.subject(), folder)
    }

    /// Nothing is given here: what a call leads to is no argument of it.
    fn subject(&self) -> Subject<'_> {
        Subject {
            pid: self.pid,
            role: &self.role,
            chain: &self.chain,
            labels: self.labels,
            given: Given { files: self.files.and(self.ruled), ..Given::default() },
            reaches: None,
        }
    }

    /// Whether the policy allows a connection of which only host and port can be seen; what it brings back carries these
    /// labels.
    ///
    /// # Errors
    /// `EPERM` with the reason.
    pub fn opens(&self, host: &str, port: u16) -> Result<Allowed, CallError> {
        let subject = self.subject();
        self.policy.opens(&subject, host, port).map_err(|why| {
            let hint = match why.starts_with("floor: ") {
                true => DAEMON_HINT.to_owned(),
                false => format!("a rule of `net` to \"{host}:{port}\" would allow what it names there"),
            };
            CallError::new(Code::Perm, format!("a connection to {host}:{port} is not opened: {why}")).hint(hint)
        })
    }

    /// Whether the policy allows anything at all to a host and port.
    pub fn speaks_of(&self, host: &str, port: u16) -> bool {
        self.policy.speaks_of(&self.role, host, port)
    }
}

/// The rule that stands in the way of a call that can be lifted, and the one that asks about it behind that.
fn rules(said: &Explanation, next: &Explanation) -> String {
    let does = match next.verdict {
        Verdict::Ask => "asks",
        Verdict::Hold => "holds",
        Verdict::Allow | Verdict::Deny => return said.rule.clone(),
    };
    match said.verdict {
        Verdict::Deny => format!("{}; then {} {does}", said.rule, next.rule),
        Verdict::Ask | Verdict::Hold | Verdict::Allow => format!("{} {does}", next.rule),
    }
}

/// An inference to make. The texts of `items` are read from the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct Infer {
    /// By which its answer comes back.
    pub id: EffectId,
    /// Whose.
    pub pid: Pid,
    /// Why.
    pub purpose: Purpose,
    /// The configured name of the model.
    pub model: String,
    /// Who the process is; the same bytes for all its life.
    pub system: String,
    /// The entries of the window, in order. For a summary or a digest, only those it is to stand for.
    pub items: Vec<Lsn>,
    /// Tokens the window may have; what is larger is shown cut.
    pub budget: u64,
    /// What is true only now.
    pub status: String,
    /// The calls it may make.
    pub tools: CallSet,
    /// How the model writes calls.
    pub encoding: Encoding,
    /// Whether the model is shown images.
    pub images: bool,
    /// Most tokens of the answer.
    pub max_output: u32,
    /// What is looked for before anything is sent.
    pub guard: Option<Guard>,
    /// Its server is sent one request and no more, since each that goes out is counted before.
    pub once: bool,
    /// After how many milliseconds without a word of an answer the kernel is told so, with [`aos_abi::Body::Silent`].
    pub hedge_after_ms: Option<u64>,
}

/// A program's request to serve. What it says, the edge has.
#[derive(Clone, Debug, PartialEq)]
pub struct Serve {
    /// By which its end comes back.
    pub id: EffectId,
    /// The program.
    pub pid: Pid,
    /// Which of its requests.
    pub request: u64,
    /// The configured name of the model.
    pub model: String,
    /// Most tokens of the answer.
    pub max_output: u32,
    /// Its server is sent one request and no more, as for an [`Infer`].
    pub once: bool,
    /// What is looked for before anything is sent.
    pub guard: Option<Guard>,
    /// The entry that it is paid by: of the filling of a purse, or of what caused it. It goes out once that is durable.
    pub paid_by: Lsn,
}

/// What is looked for in a prompt before it is sent, and what happens where it is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// What finds personal data.
    pub detector: Arc<Detector>,
    /// What happens then.
    pub then: Then,
    /// The rule of the policy that says so, where it does not go as it is.
    pub rule: Option<Arc<str>>,
}

/// What happens where a prompt holds personal data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is sent, and the kernel is told.
    Tell,
    /// Tokens are sent in its place, and filled in again in the answer.
    Replace,
    /// Nothing is sent.
    Withhold,
}

impl Effect {
    /// Whether it must not leave before the entries that caused it are durable, where everything up to `durable` is. What
    /// only reads here may be early: if the machine stops now, nobody can tell that it was done; a server can. So may what a
    /// purse pays that is durable: if the machine stops now, it is counted as spent.
    #[must_use]
    pub fn waits_for_disk(&self, durable: Lsn) -> bool {
        match self {
            Effect::Serve(serve) => serve.paid_by > durable,
            Effect::Infer(_) | Effect::Refuse { .. } | Effect::WebhookReply { .. } => true,
            // A person's word is used once, so that a call under it is written before it is made.
            Effect::Call { approved: true, .. } => true,
            Effect::Call { permit, .. } => {
                let spec = permit.call().name().spec();
                spec.risk != Risk::Read || spec.handler == Handler::Net
            }
            // In order with the calls that were judged by it, some of which do not wait either.
            Effect::Policy(_) => false,
            // Not before what it ends, which may wait itself.
            Effect::Cancel(_) => true,
            Effect::Watch { .. } | Effect::Unwatch { .. } | Effect::Examine { .. } => false,
        }
    }
}
