//! What the entries of a process mean for the person attached to it.
//!
//! Start at [`Talk::hear`], which is pure. What always holds: a question is open from the call that asks it until its
//! result, whoever answers it; prompts are answered in the order in which they came.

use std::collections::{BTreeMap, VecDeque};

use aos_abi::entry::{InferenceOutcome, Outcome, ProposalState};
use aos_abi::process::QuestionView;
use aos_abi::{Body, CallId, Entry};

use super::narrate::Narrator;
use super::proposals::bound;
use super::{clean, clean_line, view};
use crate::local::NANO;
use crate::said::{Said, said};

/// How the person is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To the end of one task.
    Run,
    /// For as long as they like.
    Attach,
}

/// Something that the process waits to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prompt {
    /// `ASK_USER`.
    Question {
        /// The call.
        call: CallId,
        /// What it asks, as it is told: who attaches later reads it then.
        lines: Vec<String>,
    },
    /// `SYS_READ_STDIN`.
    Stdin {
        /// The call.
        call: CallId,
    },
    /// A proposal.
    Approval {
        /// Its id.
        id: String,
    },
}

/// What is to be done about an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Tell the person, on standard error.
    Tell(String),
    /// Write to standard output what the process writes there.
    Write(String),
    /// A prompt was added.
    Ask,
    /// The files of a proposal that waits were looked at.
    Looked {
        /// Its id.
        id: String,
        /// What would happen to them, and what a yes is bound to.
        text: String,
    },
    /// It stopped and a person must act.
    Stopped(String),
    /// It ended.
    End {
        /// Its exit code.
        code: i32,
        /// Its result as text.
        result: Option<String>,
        /// Why, in words.
        reason: String,
    },
}

/// One person's view of one process.
#[derive(Clone, Debug)]
pub(crate) struct Talk {
    kind: Kind,
    narrator: Narrator,
    prompts: VecDeque<Prompt>,
    writes: BTreeMap<CallId, String>,
    activity: String,
}

impl Talk {
    /// Nothing was heard yet.
    pub(crate) fn new(kind: Kind, narrator: Narrator) -> Talk {
        Talk { kind, narrator, prompts: VecDeque::new(), writes: BTreeMap::new(), activity: "starting".into() }
    }

    /// The prompt to be answered first.
    pub(crate) fn prompt(&self) -> Option<&Prompt> {
        self.prompts.front()
    }

    /// The questions that are open, in lines.
    pub(crate) fn questions(&self) -> Vec<String> {
        let lines = self.prompts.iter().filter_map(|prompt| match prompt {
            Prompt::Question { lines, .. } => Some(lines.clone()),
            Prompt::Stdin { .. } | Prompt::Approval { .. } => None,
        });
        lines.flatten().collect()
    }

    /// Takes the first prompt: it is being answered.
    pub(crate) fn answered(&mut self) -> Option<Prompt> {
        self.prompts.pop_front()
    }

    /// Puts a prompt back: what was typed was no answer to it.
    pub(crate) fn again(&mut self, prompt: Prompt) {
        self.prompts.push_front(prompt);
    }

    /// What it is at, in a few words.
    pub(crate) fn activity(&self) -> &str {
        &self.activity
    }

    /// What an entry of the process means.
    pub(crate) fn hear(&mut self, entry: &Entry) -> Vec<Action> {
        let told = self.narrator.tell(entry);
        // The end has its own words where it is an error.
        let mut actions: Vec<Action> = match &entry.body {
            Body::Exited { exit_code, .. } if *exit_code != 0 => vec![],
            Body::Stopped { .. } if self.kind == Kind::Run => vec![],
            _ => told.into_iter().map(Action::Tell).collect(),
        };
        self.note_activity(&entry.body);
        match &entry.body {
            Body::Spawned(spec) if spec.model == NANO => actions.push(Action::Tell(
                "note: nano is the small model inside aos, for plain tasks; `aos init` looks for a larger one".into(),
            )),
            Body::Syscall { call_id, name, args } => self.called(call_id, name, args, &mut actions),
            Body::Result { call_id, outcome, .. } => {
                self.prompts.retain(
                    |prompt| !matches!(prompt, Prompt::Question { call, .. } | Prompt::Stdin { call } if call == call_id),
                );
                if let (Some(text), Outcome::Success { .. }) = (self.writes.remove(call_id), outcome) {
                    actions.push(self.written(&text));
                }
            }
            Body::Proposal { id, state: ProposalState::Pending, .. } => {
                self.prompts.push_back(Prompt::Approval { id: id.clone() });
                actions.push(Action::Ask);
            }
            // What it would do comes after the question; then the question stands again below it.
            Body::Examined(examined) => {
                let waits = |prompt: &Prompt| matches!(prompt, Prompt::Approval { id } if *id == examined.id);
                let text = format!("{}{}", clean(&examined.diff), bound(&examined.files, examined.unbound.as_deref()));
                if self.prompts.iter().any(waits) {
                    let (id, text) = (examined.id.clone(), text.trim_end().to_owned());
                    actions.push(Action::Looked { id, text });
                }
            }
            Body::Proposal { id: over, .. } => {
                self.prompts.retain(|prompt| !matches!(prompt, Prompt::Approval { id } if id == over));
            }
            Body::InferenceCompleted { outcome: InferenceOutcome::Answered(reply), .. }
                if self.kind == Kind::Attach =>
            {
                let Said { text, calls } = said(reply);
                if !calls && !text.trim().is_empty() {
                    actions.push(Action::Write(text));
                }
            }
            Body::Stopped { reason, .. } if self.kind == Kind::Run => actions.push(Action::Stopped(reason.clone())),
            Body::Exited { exit_code, result, reason, .. } => actions.push(Action::End {
                code: *exit_code,
                result: view::result_text(result.as_ref()),
                reason: clean_line(reason),
            }),
            _ => {}
        }
        actions
    }

    fn called(&mut self, call: &CallId, name: &str, args: &serde_json::Value, actions: &mut Vec<Action>) {
        let text = |key: &str| args.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
        match name {
            "ASK_USER" => {
                let lines = self.narrator.quoted(&view::question(&asked(args)));
                actions.extend(lines.iter().cloned().map(Action::Tell));
                self.prompts.push_back(Prompt::Question { call: call.clone(), lines });
                actions.push(Action::Ask);
            }
            "SYS_READ_STDIN" => {
                self.prompts.push_back(Prompt::Stdin { call: call.clone() });
                actions.push(Action::Ask);
            }
            "SYS_WRITE_STDOUT" => {
                self.writes.insert(call.clone(), text("text").to_owned());
            }
            _ => {}
        }
    }

    fn written(&self, text: &str) -> Action {
        match self.kind {
            Kind::Attach => Action::Write(text.to_owned()),
            Kind::Run => Action::Tell(self.narrator.quoted(text).join("\n")),
        }
    }

    fn note_activity(&mut self, body: &Body) {
        self.activity = match body {
            Body::Spawned(_) => "starting".into(),
            Body::InferenceStarted { model, .. } => format!("thinking on {model}"),
            Body::Syscall { name, .. } => format!("in {}", clean_line(name)),
            Body::Result { .. } | Body::InferenceCompleted { .. } => "waiting for a model".into(),
            Body::Proposal { id, state: ProposalState::Pending, .. } => format!("waiting for an answer to {id}"),
            _ => return,
        };
    }
}

/// What a call of `ASK_USER` asks.
pub(crate) fn asked(args: &serde_json::Value) -> QuestionView {
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let options = args.get("options").and_then(serde_json::Value::as_array);
    QuestionView {
        text: args.get("question").and_then(text).unwrap_or_default(),
        options: options.into_iter().flatten().filter_map(text).collect(),
    }
}
