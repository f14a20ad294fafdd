//! A model that is not asked over HTTP: the pool hands it the work, the asker and the deltas, and keeps its time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aos_abi::inference::{Encoding, FailureKind, Message, Part, Prompt, Reply, Stop, Usage};
use aos_abi::syscall::CallSet;
use aos_abi::{EffectId, Lsn, Pid};
use aos_models::engine::{Answering, Asker, Engine, Work};
use aos_models::{Delta, ModelConfig, Options, Pool, Provider, Timeouts};

const EFFECT: EffectId = EffectId { cause: Lsn(7), nth: 1 };

/// Says back what it was told, or nothing for ever.
#[derive(Debug, Default)]
struct Echo {
    silent: bool,
    asked: Mutex<Vec<Option<Pid>>>,
    ended: Mutex<Vec<Pid>>,
}

impl Engine for Echo {
    fn infer<'a>(&'a self, work: Work<'a>, deltas: &'a mut (dyn FnMut(Delta) + Send)) -> Answering<'a> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(work.asker.pid);
            if self.silent {
                std::future::pending::<()>().await;
            }
            let Some(Message::User(parts)) = work.prompt.messages.last() else { panic!("no message") };
            let Some(Part::Text(text)) = parts.first() else { panic!("no text") };
            deltas(Delta::Text(text.clone()));
            let usage = Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() };
            let (text, model) = (format!("{} says {text}", work.config.model), work.name.to_owned());
            Ok(Reply { text, calls: Vec::new(), stop: Stop::End, usage, model })
        })
    }

    fn models(&self) -> Vec<String> {
        vec!["tiny".to_owned()]
    }

    fn ended(&self, pid: Pid) {
        self.ended.lock().unwrap().push(pid);
    }
}

fn prompt() -> Prompt {
    Prompt {
        system: String::new(),
        messages: vec![Message::User(vec![Part::Text("hello".into())])],
        status: String::new(),
        tools: CallSet::EMPTY,
        encoding: Encoding::Constrained,
        max_output: 10,
    }
}

fn pool() -> Pool {
    let models = BTreeMap::from([("m".to_owned(), ModelConfig::new(Provider::Local, "tiny"))]);
    let timeouts = Timeouts { total: Duration::from_secs(30), ..Timeouts::default() };
    Pool::new(models, Arc::new(|_| None), Options { timeouts, ..Options::default() })
}

#[tokio::test]
async fn an_engine_answers_for_local_models() {
    let echo = Arc::new(Echo::default());
    let pool = pool().with_engine(Arc::clone(&echo) as Arc<dyn Engine>);
    let mut heard = Vec::new();
    let asker = Asker { pid: Some(Pid(9)), ..EFFECT.into() };
    let reply = pool.infer("m", &prompt(), asker, |delta| heard.push(delta)).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.model.as_str()), ("tiny says hello", "m"));
    assert_eq!(heard, [Delta::Text("hello".into())]);
    assert_eq!(pool.list("m").await.unwrap(), ["tiny"]);
    pool.check("m").await.unwrap();
    pool.ended(Pid(9));
    assert_eq!(*echo.asked.lock().unwrap(), [Some(Pid(9)), None]);
    assert_eq!(*echo.ended.lock().unwrap(), [Pid(9)]);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_never_answers_is_given_up() {
    let pool = pool().with_engine(Arc::new(Echo { silent: true, ..Echo::default() }));
    let failure = pool.infer("m", &prompt(), EFFECT, |_| ()).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Transient);
    assert!(failure.message.contains("in time"), "{failure:?}");
}

#[tokio::test]
async fn without_an_engine_a_local_model_says_what_is_missing() {
    let failure = pool().infer("m", &prompt(), EFFECT, |_| ()).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Permanent);
}
