//! What an effect comes to whose driver has a fault.

use std::net::IpAddr;

use aos_abi::entry::{Requested, Verdict};
use aos_abi::{Lsn, Timestamp};
use aos_drivers::net::{Own, Resolve, Resolving};
use aos_journal::{Journal, OpenOptions};
use aos_memory::{Error, Forget, Hit, MemoryStore, Note as Memory, Record, Search, Stats};
use aos_models::{Options, Pool};
use aos_policy::Labels;

use super::*;
use crate::config::Config;
use crate::env::Env;
use crate::home::Home;

/// A bug in whatever is asked first, in a thread that may block and in a task; what is asked later is in order.
#[derive(Default)]
struct Faulty(Mutex<u32>);

impl Faulty {
    fn asked(&self) {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *asked += 1;
        assert!(*asked > 1, "a bug in a tool");
    }
}

impl MemoryStore for Faulty {
    fn search(&self, _: &Search, _: Timestamp) -> Result<Vec<Hit>, Error> {
        self.asked();
        Ok(Vec::new())
    }
    fn write(&self, _: &Memory, _: Timestamp) -> Result<String, Error> {
        unreachable!("these tests only search")
    }
    fn forget(&self, _: &Forget) -> Result<u64, Error> {
        unreachable!("these tests only search")
    }
    fn list(&self, _: Option<&str>, _: Option<&str>, _: usize, _: Timestamp) -> Result<Vec<Record>, Error> {
        unreachable!("these tests only search")
    }
    fn show(&self, _: &str, _: Timestamp) -> Result<Vec<Record>, Error> {
        unreachable!("these tests only search")
    }
    fn export(&self, _: Option<&str>, _: Option<&str>, _: usize, _: Timestamp) -> Result<Vec<Record>, Error> {
        unreachable!("these tests only search")
    }
    fn stats(&self) -> Result<Stats, Error> {
        unreachable!("these tests only search")
    }
    fn expire(&self, _: Timestamp) -> Result<u64, Error> {
        unreachable!("these tests only search")
    }
    fn clear(&self, _: &dyn Fn(&str) -> bool) -> Result<u64, Error> {
        unreachable!("these tests only search")
    }
}

impl Resolve for Faulty {
    fn resolve<'r>(&'r self, host: &'r str) -> Resolving<'r> {
        Box::pin(async move {
            self.asked();
            Err(std::io::Error::other(format!("{host} is unknown")))
        })
    }
}

const POLICY: &str = "
version: 1
default_role: assistant
roles:
  assistant:
    memory: [{namespace: \"self/**\", ops: [read]}]
    net: [{to: \"tool.example:80\", allow: [\"GET /**\"]}]
    fs: [{path: \"**\", ops: [read]}]
";

struct Bench {
    edges: Arc<Edges>,
    outcomes: mpsc::UnboundedReceiver<Completion>,
    /// What was decided while the calls ran.
    requested: Vec<Requested>,
    _home: tempfile::TempDir,
}

impl Bench {
    /// The real edges of a new home, with a memory and a resolver that have a fault.
    fn new() -> Bench {
        Bench::with(Arc::new(Faulty::default()))
    }

    /// The same with another resolver.
    fn with(resolver: Arc<dyn Resolve>) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        home.create().unwrap();
        let (journal, opened) = Journal::open(&home.journal_file(), OpenOptions::default()).unwrap();
        let config = Config::parse("[daemon]\nlisten = \"127.0.0.1:0\"\n", &Env::default()).unwrap();
        let drivers = Drivers::new(&config, &home, Own::new(config.listen)).unwrap();
        let drivers = drivers.with(Arc::new(Faulty::default()), resolver);
        drivers.adopt(Policy::parse(POLICY).unwrap());
        let (undo, _) = Undo::open(home.undo(), opened.last).unwrap();
        let (completions, outcomes) = mpsc::unbounded_channel();
        let pool = Arc::new(Pool::new(Default::default(), Arc::new(|_: &str| None), Options::default()));
        let relays = Relays::new(Arc::clone(&pool), completions.clone());
        let edges = Edges::new(
            tokio::runtime::Handle::current(),
            completions,
            Arc::new(History::new(journal.reader())),
            Arc::new(Models::new(pool)),
            Arc::new(drivers),
            Arc::new(undo),
            Arc::default(),
            Arc::new(relays),
            home.workspaces(),
        );
        Bench { edges: Arc::new(edges), outcomes, requested: Vec::new(), _home: dir }
    }

    /// Has a call made, as the kernel does; what comes back of it.
    async fn made(&mut self, pid: Pid, nth: u32, name: &str, args: Value) -> Outcome {
        let policy = Policy::parse(POLICY).unwrap();
        let id = EffectId { cause: Lsn(41), nth };
        let authority = Authority {
            pid,
            root: pid,
            policy: policy.clone(),
            role: "assistant".into(),
            chain: Vec::new(),
            labels: Labels::NONE,
            standing: Vec::new(),
            files: Labels::NONE,
            ruled: Labels::NONE,
        };
        let call = Syscall::parse(name, &args.to_string()).unwrap();
        let subject = aos_policy::Subject {
            pid,
            role: "assistant",
            chain: &[],
            labels: Labels::NONE,
            given: Default::default(),
            reaches: None,
        };
        let ruling = policy.authorize(&subject, call);
        let permit = ruling.permit.unwrap_or_else(|| panic!("{name}: {}", ruling.rule));
        let place = self.edges.place_now(&Workspace::Home(pid), "assistant");
        let call_id: CallId = format!("c{nth}").as_str().into();
        self.edges.call(Job {
            id,
            pid,
            call_id: call_id.clone(),
            permit,
            place,
            authority,
            bound: None,
            proposed: None,
        });
        loop {
            let (of, body) = self.outcomes.recv().await.unwrap();
            let (told, of_call, effect, outcome) = match body {
                Body::Result { call_id, name, effect, outcome } => (call_id, name, effect, outcome),
                // Each request of a call is a decision of its own, told before the result.
                Body::Requested(requested) => {
                    self.requested.push(*requested);
                    continue;
                }
                _ => continue,
            };
            assert_eq!((of, told, of_call.as_str(), effect), (pid, call_id, name, Some(id)));
            return outcome;
        }
    }
}

/// The bug stays in the log: what a process is told of it is that the driver failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_one_tool_does_not_end_every_agent() {
    let mut bench = Bench::new();
    for (nth, name, args) in
        [(0, "MEM_READ", json!({"query": "tea"})), (1, "NET_FETCH", json!({"url": "http://tool.example/"}))]
    {
        let Outcome::Error { error } = bench.made(Pid(2), nth, name, args.clone()).await else { panic!("{name}") };
        assert_eq!((error.code, error.message.as_str()), (Code::Io, "the driver failed unexpectedly"), "{name}");
        assert!(!format!("{error:?}").contains("a bug in a tool"), "{error:?}");
        assert!(bench.edges.under_way.lock().unwrap().is_empty(), "it is over, and nothing can cancel it");

        // Another process calls the same driver, and the first one goes on too.
        for (pid, more) in [(Pid(3), 10), (Pid(2), 20)] {
            let after = bench.made(pid, nth + more, name, args.clone()).await;
            let told = serde_json::to_string(&after).unwrap();
            let expected = if name == "MEM_READ" { "SUCCESS" } else { "tool.example" };
            assert!(told.contains(expected) && !told.contains("failed unexpectedly"), "{told}");
        }
    }
    bench.edges.close().await;
}

/// Names that all lead to this machine.
struct Leading(IpAddr);

impl Resolve for Leading {
    fn resolve<'r>(&'r self, _: &'r str) -> Resolving<'r> {
        Box::pin(async move { Ok(vec![self.0]) })
    }
}

/// Where a name leads only the driver sees: the journal had the policy's `allow` and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_name_leads_is_decided_in_an_entry_of_its_own() {
    let mut bench = Bench::with(Arc::new(Leading("10.0.0.1".parse().unwrap())));
    let args = json!({"url": "http://tool.example/x?secret=1"});
    let Outcome::Error { error } = bench.made(Pid(2), 0, "NET_FETCH", args).await else { panic!("it was fetched") };
    assert!(error.code == Code::Perm && error.is_unheard(), "{error:?}");
    let [requested] = &bench.requested[..] else { panic!("{:?}", bench.requested) };
    let generation = Policy::parse(POLICY).unwrap().generation().to_owned();
    assert_eq!((requested.generation.as_str(), requested.requests.len()), (generation.as_str(), 1));
    let request = &requested.requests[0];
    assert_eq!((request.method.as_str(), request.to.as_str()), ("GET", "http://tool.example/x"));
    assert_eq!(request.verdict, Verdict::Deny);
    assert!(request.rule.as_deref().unwrap().starts_with("floor: private addresses"), "{request:?}");
    assert!(request.why.as_deref().unwrap().contains("10.0.0.1"), "{request:?}");
    bench.edges.close().await;
}

#[tokio::test]
async fn an_inference_that_panics_is_a_failure_that_the_kernel_tries_again() {
    let broken = || Body::InferenceCompleted {
        effect: EffectId { cause: Lsn(41), nth: 0 },
        latency_ms: 0,
        personal: None,
        outcome: inference_broke(),
    };
    let body = settled(async { panic!("a bug at the model's edge") }, broken).await;
    let Body::InferenceCompleted { outcome: InferenceOutcome::Failed { failure }, .. } = body else {
        panic!("{body:?}")
    };
    assert_eq!((failure.kind, failure.message.contains("a bug")), (FailureKind::Here, false));
}
