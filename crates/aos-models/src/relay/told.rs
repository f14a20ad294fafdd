//! An answer of a model that speaks another format than the program: written in the program's while it comes in.
//!
//! Start at [`tell`]. What always holds: nothing is written before the model has begun to answer, so that until then
//! another one can be asked.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use aos_abi::inference::{Failure, Format, Reply, Stop, Usage};
use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use super::{Asked, Ended, Kind, Refusal, Relayed, Understood, Veil, chat, embeddings, messages, responses};
use crate::engine::Asker;
use crate::pool::{Delta, Pool};
use crate::written::Written;

/// Writes an answer in one format, as events.
pub(super) trait Writer: Send {
    /// What stands before everything else.
    fn begin(&mut self, out: &mut String);
    /// What came.
    fn delta(&mut self, delta: &Delta, out: &mut String);
    /// What stands at the end.
    fn end(&mut self, reply: &Reply, out: &mut String);
    /// It broke off.
    fn broken(&mut self, failure: &Failure, out: &mut String);
}

type Inference = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>;

/// A stream on its way.
pub(super) struct Told {
    /// `None` once it is over.
    inference: Option<Inference>,
    // Without a bound of its own: an answer has one.
    deltas: UnboundedReceiver<Delta>,
    writer: Box<dyn Writer>,
    /// What is written and not yet taken.
    ready: String,
    usage: Usage,
    answered_bytes: usize,
    /// The most that may have been answered, where it was asked to think: not all of that is heard.
    unheard: Option<u32>,
    whole: bool,
    until: Instant,
}

/// Asks the model, and tells the program what it answers.
pub(super) async fn tell(
    pool: &Arc<Pool>,
    model: &str,
    asked: &Asked,
    mut understood: Understood,
    asker: Asker,
    mut veil: Option<Box<dyn Veil>>,
) -> Result<Relayed, Refusal> {
    let until = pool.deadlines(pool.config(model)?).end;
    let (sender, deltas) = unbounded_channel();
    if let Some(veil) = &mut veil {
        understood.hide(veil.as_mut())?;
    }
    let id = format!("{}", asker.effect).replace('.', "-");
    let unheard = asked.head.thinks.then_some(understood.prompt.max_output);
    let inference = {
        let (pool, model) = (Arc::clone(pool), model.to_owned());
        async move {
            let Understood { prompt, wishes } = understood;
            // Nobody reads any more where the program has hung up; then this future is dropped too.
            let told = |delta| drop(sender.send(delta));
            let Some(mut veil) = veil else {
                return pool.answer(&model, &prompt, Some(&wishes), asker, &mut Written::default(), told).await;
            };
            // What stands for something may come in pieces, so it is all waited for.
            let mut reply = pool.answer(&model, &prompt, Some(&wishes), asker, &mut Written::default(), |_| ()).await?;
            veil.lift(&mut reply);
            retell(&reply, told);
            Ok(reply)
        }
    };
    if !asked.stream {
        let reply = inference.await.map_err(|failure| thought(failure, unheard))?;
        let body = match asked.format {
            Format::Chat => chat::whole(&reply, &asked.model, &id),
            Format::Responses => responses::whole(&reply, &asked.model, &id),
            Format::Messages => messages::whole(&reply, &asked.model, &id),
            Format::Embeddings => return Err(embeddings::not_here().into()),
        };
        let ended = Ended { usage: reply.usage, whole: reply.stop != Stop::Length };
        let kind = Kind::Done(Some(Bytes::from(body.to_string())), ended);
        return Ok(Relayed { status: 200, content_type: "application/json", kind });
    }
    let writer: Box<dyn Writer> = match asked.format {
        Format::Chat => Box::new(chat::Stream::new(&asked.model, &id, asked.head.wants_usage())),
        Format::Responses => Box::new(responses::Stream::new(&asked.model, &id)),
        Format::Messages => Box::new(messages::Stream::new(&asked.model, &id, asked.input_tokens())),
        Format::Embeddings => return Err(embeddings::not_here().into()),
    };
    let usage = Usage { input_tokens: asked.input_tokens(), estimated: true, ..Usage::default() };
    let mut told = Told {
        inference: Some(Box::pin(inference)),
        deltas,
        writer,
        ready: String::new(),
        usage,
        answered_bytes: 0,
        unheard,
        whole: false,
        until,
    };
    told.writer.begin(&mut told.ready);
    told.first().await?;
    Ok(Relayed { status: 200, content_type: "text/event-stream", kind: Kind::Told(Box::new(told)) })
}

/// A failure in the middle of an answer that was asked to think: not all of that is heard, and it may be so many tokens.
fn thought(failure: Failure, unheard: Option<u32>) -> Failure {
    let usage = failure.usage.map(|usage| match unheard {
        Some(most) if usage.estimated => Usage { output_tokens: usage.output_tokens.max(most.into()), ..usage },
        _ => usage,
    });
    Failure { usage, ..failure }
}

/// An answer that is whole, told as if it came in.
fn retell(reply: &Reply, told: impl Fn(Delta)) {
    if !reply.text.is_empty() {
        told(Delta::Text(reply.text.clone()));
    }
    for (nth, call) in reply.calls.iter().enumerate() {
        told(Delta::Call { id: call.id.clone(), name: call.name.clone() });
        told(Delta::Arguments { call: nth, text: call.arguments.clone() });
    }
}

impl Told {
    /// Waits until the model has begun to answer, or has failed to.
    async fn first(&mut self) -> Result<(), Failure> {
        let Some(inference) = &mut self.inference else { return Ok(()) };
        tokio::select! {
            biased;
            Some(delta) = self.deltas.recv() => self.take(&delta),
            answered = inference => match answered {
                Ok(reply) => self.over(Ok(reply)),
                Err(failure) => return Err(thought(failure, self.unheard)),
            },
        }
        Ok(())
    }

    pub(super) async fn next(&mut self) -> Option<Bytes> {
        while self.ready.is_empty() {
            let inference = self.inference.as_mut()?;
            tokio::select! {
                biased;
                Some(delta) = self.deltas.recv() => self.take(&delta),
                answered = inference => self.over(answered),
            }
        }
        Some(Bytes::from(std::mem::take(&mut self.ready)))
    }

    fn take(&mut self, delta: &Delta) {
        self.answered_bytes += match delta {
            Delta::Text(text) | Delta::Arguments { text, .. } => text.len(),
            Delta::Call { name, .. } => name.len(),
        };
        self.writer.delta(delta, &mut self.ready);
    }

    fn over(&mut self, answered: Result<Reply, Failure>) {
        self.inference = None;
        // What was told before the end was seen.
        while let Ok(delta) = self.deltas.try_recv() {
            self.take(&delta);
        }
        match answered {
            Ok(reply) => {
                self.usage = reply.usage;
                self.whole = reply.stop != Stop::Length;
                self.writer.end(&reply, &mut self.ready);
            }
            Err(failure) => {
                self.usage = failure.usage.unwrap_or(self.usage);
                self.writer.broken(&failure, &mut self.ready);
            }
        }
    }

    pub(super) fn until(&self) -> Instant {
        self.until
    }

    pub(super) fn ended(&self) -> Ended {
        let mut usage = self.usage;
        if usage.estimated {
            let heard = usage.output_tokens.max((self.answered_bytes as u64).div_ceil(3));
            usage.output_tokens = self.unheard.filter(|_| !self.whole).map_or(heard, |most| heard.max(most.into()));
        }
        Ended { usage, whole: self.whole }
    }
}
