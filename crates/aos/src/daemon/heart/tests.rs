//! The loop where the kernel fails, over a journal on the disk.

use aos_abi::process::{SpawnSpec, State};
use aos_abi::{Signal, Usd};
use aos_journal::OpenOptions;
use tokio::task::JoinHandle;

use super::*;
use crate::config::Config;
use crate::daemon::{counters, drivers, history, inference, relay, undo};
use crate::env::Env;
use crate::home::Home;

/// A model that nobody answers for.
const CONFIG: &str =
    "[models.m]\nprovider = \"openai\"\nbase_url = \"http://127.0.0.1:9\"\nmodel = \"m\"\ntier = \"small\"\n";

/// A beating heart on a home.
struct Beating {
    handle: Handle,
    journal: Arc<Journal>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Beating {
    fn begin(home: &Home) -> Beating {
        home.create().unwrap();
        let config = Config::parse(CONFIG, &Env::default()).unwrap();
        let (journal, opened) = Journal::open(&home.journal_file(), OpenOptions::default()).unwrap();
        let journal = Arc::new(journal);
        let mut failures = mpsc::unbounded_channel();
        let (kernel, checkpoint) = restore::restore(&journal, &mut failures).unwrap();
        let served = crate::daemon::models(&config, home, aos_policy::Policy::default_text(), (config.listen, false));
        let pool = Arc::new(served.pool);
        let own = aos_drivers::net::Own::new("127.0.0.1:1".parse().unwrap());
        let drivers = Arc::new(drivers::Drivers::new(&config, home, own).unwrap());
        let (completions, outcomes) = mpsc::unbounded_channel();
        let edges = Edges::new(
            tokio::runtime::Handle::current(),
            completions.clone(),
            Arc::new(history::History::new(journal.reader())),
            Arc::new(inference::Models::new(Arc::clone(&pool))),
            drivers,
            Arc::new(undo::Undo::open(home.undo(), opened.last).unwrap().0),
            Arc::new(counters::Counters::default()),
            Arc::new(relay::Relays::new(pool, completions)),
            home.workspaces(),
        );
        let stop = CancellationToken::new();
        let (heart, handle) =
            Heart::new(kernel, Arc::clone(&journal), Arc::new(edges), outcomes, failures.0, checkpoint);
        let task = tokio::spawn(heart.run(served.configured, opened.last_pid, stop.clone()));
        Beating { handle, journal, stop, task }
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
        drop(self.journal);
    }

    async fn spawn(&self) -> Pid {
        let made = self.handle.change(|kernel| {
            let pid = kernel.next_pid();
            Ok((pid, Body::Spawned(Box::new(SpawnSpec::resident(pid, "You wait.", "m")))))
        });
        made.await.unwrap().pid
    }

    async fn signal(&self, pid: Pid, signal: Signal) -> Result<Accepted, CallError> {
        self.handle.change(move |_| Ok((pid, Body::Signal { signal, from_pid: Pid::INIT, tree: false }))).await
    }

    /// The kernel fails over what comes next.
    async fn fail(&self) {
        self.handle.look(|kernel| kernel.fail_after(0)).await.unwrap();
    }

    async fn state(&self, pid: Pid) -> (State, String) {
        let view = self.handle.look(move |kernel| kernel.view(pid)).await.unwrap().unwrap();
        (view.state, view.reason.unwrap_or_default())
    }
}

/// A fault in the kernel ended the daemon.
#[tokio::test(flavor = "multi_thread")]
async fn a_fault_of_the_kernel_sets_one_process_aside_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path()).unwrap();
    let beating = Beating::begin(&home);
    let (one, other) = (beating.spawn().await, beating.spawn().await);
    beating.fail().await;
    let error = beating.signal(one, Signal::Stop).await.unwrap_err();
    assert_eq!(error.code, Code::Io, "{error:?}");
    assert!(error.message.contains("failed over process 2, which is set aside"), "{error:?}");
    assert!(error.hint.is_some_and(|hint| hint.contains("`aos resume 2`")));
    let faulted = (State::Stopped, "faulted: a fault that a test wanted".to_owned());
    assert_eq!(beating.state(one).await, faulted);
    // What was done before it is there, and what comes after it is done.
    assert_eq!(beating.state(other).await.0, State::Blocked);
    beating.signal(other, Signal::Kill).await.unwrap();
    let third = beating.spawn().await;
    assert_eq!(third, Pid(4));
    beating.end().await;

    let beating = Beating::begin(&home);
    assert_eq!(beating.state(one).await, faulted);
    assert_eq!(beating.state(other).await.0, State::Exited);
    beating.signal(one, Signal::Cont).await.unwrap();
    assert_eq!(beating.state(one).await.0, State::Blocked);
    beating.end().await;
}

/// It went on for a last turn, over which the kernel might fail again.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_nobody_who_is_set_aside_and_term_ends_them() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path()).unwrap();
    let beating = Beating::begin(&home);
    let one = beating.spawn().await;
    beating.fail().await;
    beating.signal(one, Signal::Term).await.unwrap_err();
    assert_eq!(beating.state(one).await.0, State::Stopped);
    tokio::time::timeout(std::time::Duration::from_secs(60), beating.end()).await.unwrap();

    let beating = Beating::begin(&home);
    beating.signal(one, Signal::Term).await.unwrap();
    assert_eq!(beating.state(one).await, (State::Exited, "ended by TERM while it was set aside".to_owned()));
    beating.end().await;
}

/// A look that fails changes nothing, and only whoever looked is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_fault_in_a_look_is_told_to_whoever_looked() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path()).unwrap();
    let beating = Beating::begin(&home);
    let one = beating.spawn().await;
    let error = beating.handle.look(|_| panic!("a look that fails")).await.map(|()| Usd::ZERO).unwrap_err();
    assert_eq!(error.code, Code::Io, "{error:?}");
    let error = beating.handle.change(|_| panic!("a change that fails")).await.unwrap_err();
    assert!(error.message.contains("nothing was changed"), "{error:?}");
    assert_eq!(beating.state(one).await.0, State::Blocked);
    beating.end().await;
}

/// After a prune nothing could be decided again, and the state that a replay began with would have kept what was pruned.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_prune_what_follows_can_be_decided_again() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path()).unwrap();
    let beating = Beating::begin(&home);
    let (one, other) = (beating.spawn().await, beating.spawn().await);
    beating.signal(one, Signal::Kill).await.unwrap();
    beating.handle.save().await.unwrap();
    let reader = beating.journal.reader();
    beating.journal.barrier_wait(barrier::VERSION).unwrap();
    assert!(reader.barrier_pages().unwrap().load(one).unwrap().is_some());
    beating.handle.prune(reader.prune_plan(vec![one]).unwrap()).await.unwrap();
    beating.signal(other, Signal::Stop).await.unwrap();
    let view = super::super::past::replay(&reader, other, None).unwrap().unwrap();
    assert_eq!((view.inputs, view.difference), (1, None));
    assert!(view.after > Lsn::ZERO);
    assert!(reader.barrier_pages().unwrap().load(one).unwrap().is_none());
    beating.end().await;
}

/// What was built for a process that was not born was the workspace of the next one, with files that carried no labels.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_built_for_a_process_that_is_not_born_is_nobodys() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path()).unwrap();
    let beating = Beating::begin(&home);
    beating.fail().await;
    let folder = home.workspaces().join("2");
    let made = folder.clone();
    let left_out = beating.handle.change(move |kernel| {
        std::fs::create_dir_all(&made).unwrap();
        let pid = kernel.next_pid();
        Ok((pid, Body::Spawned(Box::new(SpawnSpec::resident(pid, "You wait.", "m")))))
    });
    assert_eq!(left_out.await.unwrap_err().code, Code::Io);
    assert!(!folder.exists());
    assert_eq!(beating.spawn().await, Pid(2));
    assert!(!folder.exists());
    beating.end().await;
}
