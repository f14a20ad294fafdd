//! Models with `provider = "local"`: the runtime inside this program, as the model pool asks it.
//!
//! Start at [`Local`]. What always holds: a fault of the runtime becomes a failure with its way out; dropping an answer
//! to come ends the work on it.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aos_abi::Pid;
use aos_abi::inference::{Encoding, Failure, FailureKind, Message, Part, Prompt, Reply, Stop, Usage};
use aos_abi::syscall::CallSet;
use aos_models::embed::{Embedder, Embedding, Vector, Wanted};
use aos_models::engine::{Answering, Engine, Work};
use aos_models::{Delta, ModelConfig, Provider, Tier};
use aos_runtime::{Answered, Embedded, Fault, Options, Runtime};

use crate::home::Home;

/// The name of the model that serves where none is configured.
pub(crate) const NANO: &str = "nano";
/// The weights of that model, as `provider = "local"` names them.
const WEIGHTS: &str = "aos-nano";
/// The models in this program.
static INSIDE: &[(&str, &[u8])] = &[(WEIGHTS, include_bytes!("../../../models/nano/weights/aos-nano.gguf"))];
/// What the kernel may fill of aos-nano's window: it is shown the newest of it (`models/nano/FORMAT.md`, part 3).
const NANO_WINDOW: u32 = 16_384;
/// Its longest answer, in its own tokens.
const NANO_OUTPUT: u32 = 384;

/// The files of local models, which may lie outside of the home: whoever changes them changes what every agent is told.
pub(crate) fn files<'m>(home: &Home, models: impl IntoIterator<Item = &'m ModelConfig>) -> Vec<PathBuf> {
    let runtime = Runtime::new(Options { inside: INSIDE, ..Options::new(home.models()) });
    let local = models.into_iter().filter(|model| model.provider == Provider::Local);
    local.map(|model| runtime.file(&model.model)).collect()
}

/// aos-nano as a model of the pool.
pub(crate) fn nano() -> ModelConfig {
    ModelConfig {
        tier: Some(Tier::Nano),
        tools: Encoding::Constrained,
        context_window: NANO_WINDOW,
        max_output: NANO_OUTPUT,
        ..ModelConfig::new(Provider::Local, WEIGHTS)
    }
}

/// The runtime of a home.
#[derive(Debug)]
pub(crate) struct Local(Runtime);

/// How fast a model is on this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed {
    /// From nothing to the first token of an answer to a short prompt: loading included.
    pub(crate) cold: Duration,
    /// Tokens of a prompt read in a second.
    pub(crate) prefill: f64,
    /// Tokens of an answer written in a second; nothing where the answer was a single token.
    pub(crate) decode: Option<f64>,
}

impl Local {
    /// Over the models of a home. Nothing is loaded before it is asked for.
    pub(crate) fn new(home: &Home) -> Local {
        Local(Runtime::new(Options { inside: INSIDE, ..Options::new(home.models()) }))
    }

    /// Asks a model twice, the second time with a long prompt.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(crate) async fn measure(&self, model: &str) -> Result<Speed, Fault> {
        let cold = self.answer(model, None, plain("Say one word.", 8), &mut |_| ()).await?.first;
        let mut text = String::new();
        for nth in 0..16 {
            let _ = write!(text, "Line {nth}: a sentence of no meaning, to be read and counted. ");
        }
        let answered = self.answer(model, None, plain(&text, 32), &mut |_| ()).await?;
        let read = answered.prompt_tokens.saturating_sub(answered.reused_tokens);
        let more = answered.answer_tokens.saturating_sub(1);
        Ok(Speed {
            cold,
            prefill: read as f64 / answered.first.as_secs_f64().max(1e-9),
            decode: (more > 0).then(|| more as f64 / answered.rest.as_secs_f64().max(1e-9)),
        })
    }

    async fn answer(
        &self,
        model: &str,
        pid: Option<Pid>,
        prompt: Prompt,
        deltas: &mut (dyn FnMut(String) + Send),
    ) -> Result<Answered, Fault> {
        let mut answering = self.0.ask(&self.0.file(model), pid, prompt)?;
        while let Some(delta) = answering.deltas.recv().await {
            deltas(delta);
        }
        answering.reply.await.unwrap_or_else(|_| Err(Fault::Broke("its thread ended".to_owned())))
    }
}

/// A prompt that any text answers.
fn plain(text: &str, max_output: u32) -> Prompt {
    Prompt {
        // Not every model reads one.
        system: String::new(),
        messages: vec![Message::User(vec![Part::Text(text.to_owned())])],
        status: String::new(),
        tools: CallSet::EMPTY,
        encoding: Encoding::Constrained,
        max_output,
    }
}

impl Engine for Local {
    fn infer<'a>(&'a self, work: Work<'a>, deltas: &'a mut (dyn FnMut(Delta) + Send)) -> Answering<'a> {
        Box::pin(async move {
            let mut text = |text| deltas(Delta::Text(text));
            let answered = self.answer(&work.config.model, work.asker.pid, work.prompt.clone(), &mut text).await;
            let pid = work.asker.pid;
            answered.map(|answered| reply(answered, work.name, pid)).map_err(|fault| failure(&fault))
        })
    }

    fn models(&self) -> Vec<String> {
        self.0.models()
    }

    fn ended(&self, pid: Pid) {
        self.0.ended(pid);
    }
}

impl Embedder for Local {
    fn embed<'a>(&'a self, wanted: Wanted<'a>) -> Embedding<'a> {
        Box::pin(async move {
            let model = &wanted.config.model;
            let texts = wanted.texts.iter().map(|text| (*text).to_owned()).collect();
            let made = match self.0.embed(&self.0.file(model), texts) {
                Ok(made) => made.await.unwrap_or_else(|_| Err(Fault::Broke("its thread ended".to_owned()))),
                Err(fault) => Err(fault),
            };
            let name: Arc<str> = model.as_str().into();
            let vector = |made: Embedded| Vector {
                model: Arc::clone(&name),
                numbers: made.numbers.into(),
                tokens: made.tokens as u64,
            };
            made.map(|made| made.into_iter().map(vector).collect()).map_err(|fault| failure(&fault))
        })
    }
}

/// The bill of what is no process says nothing about who else has asked.
fn reply(answered: Answered, model: &str, pid: Option<Pid>) -> Reply {
    let stop = match (answered.whole, answered.calls.is_empty()) {
        (false, _) => Stop::Length,
        (true, false) => Stop::Calls,
        (true, true) => Stop::End,
    };
    let usage = Usage {
        input_tokens: answered.prompt_tokens as u64,
        output_tokens: answered.answer_tokens as u64,
        cached_input_tokens: pid.map_or(0, |_| answered.reused_tokens as u64),
        ..Usage::default()
    };
    Reply { text: answered.text, calls: answered.calls, stop, usage, model: model.to_owned() }
}

fn failure(fault: &Fault) -> Failure {
    let kind = match fault {
        Fault::TooLong { .. } | Fault::TooLarge { .. } | Fault::LongText { .. } | Fault::HugeText { .. } => {
            FailureKind::TooLong
        }
        Fault::Unread(_) => FailureKind::Refused,
        fault if fault.passes() => FailureKind::Transient,
        _ => FailureKind::Permanent,
    };
    let (message, hint) = (fault.to_string(), Some(fault.hint().to_owned()));
    Failure { kind, message, hint, retry_after_ms: None, usage: None, unreachable: false }
}
