//! Models that are not asked over HTTP: where a runtime inside this program, or in a child process, is put in.
//!
//! Start at [`Engine`]; [`crate::Pool::with_engine`] puts one behind every model with `provider = "local"`. What always
//! holds: the pool keeps the deadline of the whole answer and drops the future at its end; an engine is asked once and
//! never again by the pool, since what fails in this program fails the same way again. Deliberately absent: prices,
//! limits and choosing a model, which the kernel does for these models as for all others.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use aos_abi::inference::{Failure, Prompt, Reply};
use aos_abi::{EffectId, Pid};

use crate::config::ModelConfig;
use crate::pool::Delta;
use crate::tries::Tries;

/// Who asks.
#[derive(Clone, Debug)]
pub struct Asker {
    /// The process, where it is one: what an engine keeps of it from one turn to the next is kept by this.
    pub pid: Option<Pid>,
    /// By which the answer comes back.
    pub effect: EffectId,
    /// How often its server may be asked again.
    pub tries: Tries,
}

impl From<EffectId> for Asker {
    fn from(effect: EffectId) -> Asker {
        Asker { pid: None, effect, tries: Tries::uncounted() }
    }
}

/// One inference to make.
#[derive(Clone, Debug)]
pub struct Work<'w> {
    /// The model's configured name; what [`Reply::model`] says.
    pub name: &'w str,
    /// How it is configured: which weights (`model`), window and encoding.
    pub config: &'w ModelConfig,
    /// What is asked, with the calls that the process may make.
    pub prompt: &'w Prompt,
    /// Who asks.
    pub asker: Asker,
}

/// An answer to come.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send + 'a>>;

/// A runtime that answers without HTTP.
pub trait Engine: Debug + Send + Sync {
    /// Answers. `deltas` is told what comes in while it comes in. A failure is [`Failure`] as for any model: what time may mend
    /// (memory is short) is transient, what a person must mend (no such weights, damaged ones) permanent with a hint.
    ///
    /// # Cancel safety
    /// Dropping the future ends the work soon and leaves the engine usable.
    fn infer<'a>(&'a self, work: Work<'a>, deltas: &'a mut (dyn FnMut(Delta) + Send)) -> Answering<'a>;

    /// The weights it has, by the names that `model` in `aos.toml` takes.
    fn models(&self) -> Vec<String>;

    /// A process has ended: what is kept of it may go.
    fn ended(&self, pid: Pid);
}
