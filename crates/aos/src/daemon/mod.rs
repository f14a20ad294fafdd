//! The daemon: everything wired together around one loop.
//!
//! Start at [`run`]. `heart` owns the kernel, `edges` perform its effects (`inference`, `drivers`), `system` is what the
//! HTTP interface sees, `past` reads the journal back. Start: lock and open the journal, restore the kernel from the
//! last checkpoint, apply the entries after it, then say `Booted`. Stop: no more requests, a last checkpoint, close.

mod backlog;
mod barrier;
mod brought;
mod clock;
mod cost;
mod counters;
mod descriptors;
mod drivers;
mod edges;
mod example;
pub(crate) mod folders;
mod fork;
mod found;
mod ground;
mod handles;
mod heart;
mod history;
mod inference;
mod left;
mod measured;
mod memory;
mod outlet;
mod pages;
mod past;
mod privacy;
pub(crate) mod programs;
pub(crate) mod proof;
mod relay;
mod reload;
mod requests;
mod restore;
mod slots;
mod spare;
mod system;
mod toolchain;
mod trust;
mod undo;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aos_abi::api::ModelView;
use aos_abi::model::Ability;
use aos_abi::{Body, Lsn, Pid};
use aos_journal::{Journal, OpenOptions, Opened};
use aos_models::engine::Engine;
use aos_policy::address::Listens;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::env::Env;
use crate::home::Home;
use crate::listeners;
use crate::local::{Local, NANO};
use crate::mounts::Mounts;

use heart::Heart;

/// Longest wait for effects under way when stopping.
const DRAIN: Duration = Duration::from_secs(3);
/// Longest wait for a daemon that is stopping: less than a client waits for one that is starting.
const LEAVE_WITHIN: Duration = Duration::from_secs(8);
/// How often its journal is tried meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often it is looked whether the journal is still the file of its name, beside each commit.
const IN_PLACE_EVERY: Duration = Duration::from_secs(10);

/// Why a checkpoint is made again from the first entry on.
#[derive(Clone, Debug)]
pub enum Lost {
    /// It is of another version of aos.
    Other(String),
    /// Its bytes are not those that were written.
    Damaged(String),
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Lost::Other(why) | Lost::Damaged(why)) = self;
        f.write_str(why)
    }
}

/// Why the daemon did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The journal cannot be used as it is.
    #[error("{0}")]
    Journal(#[from] aos_journal::Error),
    /// The home cannot be used.
    #[error("{0}")]
    Home(#[from] crate::home::Error),
    /// An address to listen on cannot be had.
    #[error("{at}: {source}")]
    Listen {
        /// Which.
        at: String,
        /// The system's word.
        source: std::io::Error,
    },
    /// The socket cannot be made.
    #[error("cannot listen on {}: {source}", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// The system's word.
        source: std::io::Error,
    },
    /// Replaying the journal's last entries decided otherwise than they say.
    #[error("entry {lsn} of the journal was decided otherwise than this version of aos would")]
    Diverged {
        /// The first such entry.
        lsn: Lsn,
        /// It was read from the first one on, since this version cannot read the state that was saved.
        from_first: bool,
    },
    /// The kernel fails over what the journal holds.
    #[error("this version of aos fails over what the journal holds: {0}")]
    Fails(String),
    /// The checkpoint is of no use, and what it stands for is in the journal no more.
    #[error("{lost}, and it cannot be made again: entries from {from} on were pruned")]
    Checkpoint {
        /// Why it is of no use.
        lost: Lost,
        /// The first entry that is missing.
        from: Lsn,
    },
    /// What was remembered is gone; the daemon that wrote the journal's first entry had it.
    #[error("the memory {} is missing", .0.display())]
    Memory(PathBuf),
    /// The policy file cannot be used.
    #[error("{path}: {message}")]
    Policy {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its place.
        message: String,
    },
    /// Something else the daemon stands on.
    #[error("{what}: {why}")]
    Part {
        /// What.
        what: &'static str,
        /// Why.
        why: String,
    },
}

impl Error {
    /// The way out.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Error::Journal(error) => error.hint(),
            Error::Home(error) => error.hint(),
            Error::Listen { .. } => "stop what listens there, or set another `listen` in `[daemon]` of aos.toml".into(),
            Error::Socket { path, .. } => format!(
                "what is at {0} is no socket of a daemon, or its folder cannot be written: `ls -ld {0}` shows it; move it away",
                path.display()
            ),
            Error::Checkpoint { lost: Lost::Other(_), .. } => {
                "start the version of aos that wrote it; nothing was changed".into()
            }
            Error::Checkpoint { lost: Lost::Damaged(_), .. } => {
                "`aos restore FILE` from a backup, into a new home; nothing was changed".into()
            }
            Error::Diverged { from_first: true, .. } => {
                "go on with the version of aos that wrote it, or begin a new home with this one: `aos --home NEW init`; nothing was changed".into()
            }
            Error::Diverged { .. } | Error::Fails(_) => {
                "start the version of aos that wrote it, stop that with `aos down`, then start this one; nothing was changed".into()
            }
            Error::Policy { .. } => "`aos policy check` shows every fault; until it is mended the daemon does not start".into(),
            Error::Memory(path) => format!(
                "put it back, or `aos restore FILE` from a backup; to begin with an empty one, make an empty file there: \
                 mkdir -pm 700 {} && touch {}",
                path.parent().unwrap_or(path).display(),
                path.display()
            ),
            Error::Part { .. } => "`aos doctor` looks at what the daemon stands on".into(),
        }
    }
}

impl Error {
    /// The same, with what is whole of the journal looked up where it is damaged.
    #[must_use]
    pub fn located(self, home: &Home) -> Error {
        match self {
            Error::Journal(error) => Error::Journal(error.located(&home.journal_file())),
            other => other,
        }
    }
}

/// How the daemon starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    /// Go on where the journal's end is lost, from the last entry that is whole.
    pub accept_loss: bool,
}

/// Runs the daemon until `shutdown` is cancelled, a client asks it to stop, or the journal fails.
///
/// # Errors
/// Why it did not start, or had to stop.
pub async fn run(home: Home, config: Config, start: Start, shutdown: CancellationToken) -> Result<(), Error> {
    home.prepare()?;
    let seal = proof::Seal::of(&home);
    let ended = serve(home, config, start, &seal, shutdown).await;
    seal.put();
    ended
}

async fn serve(
    home: Home,
    config: Config,
    start: Start,
    seal: &proof::Seal,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let descriptors = descriptors::raise();
    let options = OpenOptions { accept_loss: start.accept_loss, ..OpenOptions::default() };
    let (journal, opened) = open_journal(&home, &options).await?;
    if let Some(torn) = &opened.torn {
        tracing::warn!(last_good = %torn.last_good, expected = %torn.expected, "the journal's end is lost; going on from the last entry that is whole");
    }
    if let Some(damaged) = &opened.damaged {
        let damaged = damaged.display();
        tracing::warn!(last = %opened.last, %damaged, "the journal was damaged; going on with what is whole of it");
    }
    let lost = lost(&home, opened.last)?;
    let journal = Arc::new(journal);
    let mut failures = mpsc::unbounded_channel();
    let (mut kernel, mut checkpoint) = restore::restore(&journal, &mut failures)?;
    if let Some(at) = barrier::renew(&journal, &mut kernel)? {
        checkpoint = at;
    }
    let (failed, mut failures) = failures;
    folders::put_away(&home.workspaces(), kernel.next_pid())
        .map_err(|error| Error::Part { what: "the workspaces", why: error.to_string() })?;

    // A daemon that was killed left it, and it may lead to anybody by now.
    let _ = std::fs::remove_file(home.listen_file());
    let (tcp, taken) = match bind_tcp(config.listen).await? {
        Door::Open(tcp) => (Some(tcp), None),
        Door::Taken(why) => (None, Some(why)),
    };
    // Nothing of an agent goes to who has taken the address, either.
    let listens = tcp.as_ref().map_or(Ok(config.listen), TcpListener::local_addr);
    let listens = listens.map_err(|source| Error::Listen { at: config.listen.to_string(), source })?;
    let listen = listens.to_string();
    if tcp.is_some() {
        Home::write_private(&home.listen_file(), &format!("{listen}\n"))?;
    }

    let mounts = Mounts::new(&home, &Env::of_process());
    let policy = reload::read(&home.policy_file(), &mounts)
        .map_err(|faults| Error::Policy { path: home.policy_file(), message: faults.join("; ") })?;
    let Served { pool, views: models, configured } = models(&config, &home, &policy.text, (listens, tcp.is_some()));
    // Said before anything runs.
    let before = kernel.measured().clone();
    let weights = crate::local::files(&home, config.serving().values());
    let measured = measured::look(&home, &weights, &before).await;
    measured::tell(&home, &measured, &lost);
    let drivers = Arc::new(drivers::Drivers::new(&config, &home, aos_drivers::net::Own::new(listens))?);
    drivers.adopt(policy.policy.away_from(Some(Listens(listens))));
    let (undo, owed) = undo::Undo::open(home.undo(), opened.last)
        .map_err(|error| Error::Part { what: "what is kept for undoing", why: error.to_string() })?;
    let undo = Arc::new(undo);
    let ground = Arc::new(ground::Ground::new(home.undo(), config.exec, drivers.helper().clone(), drivers.policy()));
    let history = Arc::new(history::History::new(journal.reader()));
    let (completions, outcomes) = mpsc::unbounded_channel();
    let counters = Arc::new(counters::Counters::default());
    let pool = Arc::new(pool);
    let relays = Arc::new(relay::Relays::new(Arc::clone(&pool), completions.clone()));
    undo.tells(journal.reader(), completions.clone());
    relays.know(kernel.keys());
    let edges = Arc::new(edges::Edges::new(
        tokio::runtime::Handle::current(),
        completions,
        history,
        Arc::new(inference::Models::new(pool)),
        Arc::clone(&drivers),
        Arc::clone(&undo),
        Arc::clone(&counters),
        relays,
        home.workspaces(),
    ));
    let (heart, handle) = Heart::new(kernel, Arc::clone(&journal), Arc::clone(&edges), outcomes, failed, checkpoint);
    let stop_heart = CancellationToken::new();
    let mut beating = tokio::spawn(heart.run(configured, opened.last_pid, stop_heart.clone()));

    let proof = proof::Proof::new(journal.reader(), &home, seal);
    let system = Arc::new(system::Daemon {
        policy: Arc::new(reload::Reload::new(handle.clone(), home.clone(), mounts)),
        heart: handle.clone(),
        journal: Arc::clone(&journal),
        edges: Arc::clone(&edges),
        drivers,
        ground: Arc::clone(&ground),
        proof: Arc::clone(&proof),
        undo,
        counters,
        home: home.clone(),
        listen: if taken.is_some() { String::new() } else { listen.clone() },
        taken: taken.clone(),
        models,
        weights,
        started: Instant::now(),
        shutdown: shutdown.clone(),
    });
    let part = |what: &'static str, why: String| Error::Part { what, why };
    // Once this is durable so is the start.
    handle.change(|_| Ok((Pid::SYSTEM, Body::Tick))).await.map_err(|error| part("the kernel", error.message))?;

    // Changes that were wholly made, and whose entry the stop prevented.
    for (pid, changed) in owed {
        if undo::Note::is_in(&journal.reader(), pid, &changed)? {
            system.undo.told(&changed);
        } else if let Err(error) = handle.change(move |_| Ok((pid, Body::Changed(Box::new(changed))))).await {
            // Its process was pruned: nobody can ask for it any more.
            tracing::warn!(%pid, %error, "a change of files is not journaled");
        }
    }

    home.discard_exposed_token()?;
    let token = aos_gateway::Token::new(&home.token()?)
        .map_err(|short| part("the token", format!("run/token holds {} characters, too few", short.0)))?;
    // Last of all: whoever can connect is served, and whoever starts this daemon reads its error where it fails before.
    let unix = bind_socket(&home.socket())?;
    let mut listeners = vec![aos_gateway::Listener::Unix(unix)];
    listeners.extend(tcp.map(aos_gateway::Listener::Tcp));
    let mut options = aos_gateway::Options::new(token);
    options.hosts.clone_from(&config.hosts);
    options.connections_max = descriptors::connections(descriptors, options.connections_max);
    let serving = tokio::spawn(aos_gateway::serve(listeners, Arc::clone(&system), options, shutdown.clone()));
    tracing::info!(listen = taken.as_ref().map_or(listen.as_str(), |_| "the socket alone"), home = %home.root().display(), "ready");
    let following = edges.apart(Arc::clone(&system.policy).follow());
    let undo = Arc::clone(&system.undo);
    let counting = tokio::task::spawn_blocking(move || undo.count());
    // Nobody waits for it but who asks for the status.
    let looking = edges.apart(async move { drop(ground.lacks().await) });
    let proving = tokio::spawn(proven(proof, shutdown.clone()));
    let recording = edges.apart(measured::record(handle.clone(), home.clone(), measured));
    let failure = tokio::select! {
        biased;
        () = shutdown.cancelled() => None,
        failure = failures.recv() => failure.map(Error::from),
        replaced = replaced(&journal) => Some(replaced.into()),
        // What made it fail was applied before it was journaled, so it is not there after a restart.
        ended = &mut beating => Some(part("the kernel", ended.err().map_or_else(|| "ended by itself".into(), |error| error.to_string()))),
    };
    // Stop: no new requests, then no new decisions, then what is under way is given up and recovered at the next start.
    shutdown.cancel();
    let _ = tokio::time::timeout(DRAIN, serving).await;
    following.abort();
    stop_heart.cancel();
    if !beating.is_finished() {
        let _ = tokio::time::timeout(DRAIN, beating).await;
    }
    let _ = tokio::time::timeout(DRAIN, edges.close()).await;
    let _ = tokio::time::timeout(DRAIN, counting).await;
    let _ = tokio::time::timeout(DRAIN, proving).await;
    recording.abort();
    looking.abort();
    let _ = std::fs::remove_file(home.listen_file());
    let _ = std::fs::remove_file(home.socket());
    failure.map_or(Ok(()), Err)
}

/// Ends when another file has the journal's name: what would be written is lost at the end of this daemon.
async fn replaced(journal: &Journal) -> aos_journal::Error {
    loop {
        tokio::time::sleep(IN_PLACE_EVERY).await;
        let Err(found) = journal.in_place() else { continue };
        // The writer finds it as well, and says what it has kept.
        let (told, telling) = tokio::sync::oneshot::channel();
        journal.append(Vec::new(), move |outcome| drop(told.send(outcome)));
        return match telling.await {
            Ok(Err(error)) => error,
            Ok(Ok(())) | Err(_) => found,
        };
    }
}

/// Opens the journal. A daemon that has it and that nobody can reach any more is on its way out, and is waited for.
async fn open_journal(home: &Home, options: &OpenOptions) -> Result<(Journal, Opened), Error> {
    let until = Instant::now() + LEAVE_WITHIN;
    loop {
        match Journal::open(&home.journal_file(), options.clone()) {
            Err(aos_journal::Error::Locked { .. })
                if Instant::now() < until && UnixStream::connect(home.socket()).await.is_err() =>
            {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            opened => return Ok(opened?),
        }
    }
}

/// Makes the folders that were missing under a journal anew, empty; which these were. What was remembered is not begun anew
/// without a word: what agents write into an empty memory would stand in the way of the one that is put back.
fn lost(home: &Home, last: Lsn) -> Result<Vec<PathBuf>, Error> {
    let begun = last > Lsn::ZERO;
    if begun && !home.memory_file().exists() {
        return Err(Error::Memory(home.memory_file()));
    }
    let lost = home.lost();
    home.create()?;
    Ok(if begun { lost } else { Vec::new() })
}

/// Whether HTTP is served over TCP.
#[derive(Debug)]
enum Door {
    Open(TcpListener),
    /// It is not, and why.
    Taken(String),
}

/// The TCP port. Where a program of one's own (often another home's daemon) has it, a free one of this machine is taken:
/// the command line needs no port, and agents should not stand still for one. Where another user's has it, none is: what
/// programs send there, keys and all, comes to that user, who could pass it on to wherever this daemon went and be
/// noticed by nobody. An address for other machines is what they were told, so there it is an error.
async fn bind_tcp(listen: SocketAddr) -> Result<Door, Error> {
    let failed = |source| Error::Listen { at: listen.to_string(), source };
    let mut bound = TcpListener::bind(listen).await;
    if bound.is_err() && listeners::is_free(listen) {
        // Who had it has gone meanwhile, or holds it without listening yet.
        bound = TcpListener::bind(listen).await;
    }
    match bound {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && listen.ip().is_loopback() => {
            let whose = match listeners::stranger(listen) {
                Some(user) => Some(format!("a program of the user {user}")),
                None if listeners::is_free(listen) => Some("a program that does not show itself".to_owned()),
                None => None,
            };
            if let Some(whose) = whose {
                let why = format!("{whose} has {listen}, and gets what is sent there");
                tracing::warn!(
                    "{why}: HTTP is served on the Unix socket alone; end it, or set another `listen` in `[daemon]` of aos.toml, then `aos down`"
                );
                return Ok(Door::Taken(why));
            }
            let tcp = TcpListener::bind((listen.ip(), 0)).await.map_err(failed)?;
            let taken = tcp.local_addr().map_or_else(|error| error.to_string(), |at| at.to_string());
            tracing::warn!(
                "another program listens on {listen}: HTTP is served on {taken} until the next start (run/listen has it); \
                 set another `listen` in `[daemon]` of aos.toml to choose one"
            );
            Ok(Door::Open(tcp))
        }
        bound => bound.map(Door::Open).map_err(failed),
    }
}

/// Proves the journal, which is the last that a start does beside the work, and lets go of the code that only the start used.
async fn proven(proof: Arc<proof::Proof>, stop: CancellationToken) {
    proof.run(stop.clone()).await;
    if stop.is_cancelled() {
        return;
    }
    match tokio::task::spawn_blocking(aos_sandbox::release_code).await {
        Ok(Ok(bytes)) => tracing::debug!(bytes, "the code that the start used is let go"),
        Ok(Err(error)) => tracing::debug!(%error, "the code that the start used stays in memory"),
        Err(error) => tracing::warn!(%error, "letting go of code failed"),
    }
}

/// The Unix socket, for its own user alone. The journal's lock is held, so a socket that is there already is stale.
fn bind_socket(path: &Path) -> Result<UnixListener, Error> {
    let failed = |source| Error::Socket { path: path.to_owned(), source };
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// So many random bytes, in hex.
fn random_hex(bytes: usize) -> Result<String, aos_gateway::ApiError> {
    let mut buffer = vec![0; bytes];
    getrandom::fill(&mut buffer).map_err(|error| aos_gateway::ApiError::internal(error.to_string()))?;
    Ok(buffer.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The models of a running daemon.
struct Served {
    pool: aos_models::Pool,
    views: Vec<ModelView>,
    configured: aos_abi::entry::Configured,
}

/// `listens`: the address, and whether it is this daemon that listens there.
fn models(config: &Config, home: &Home, policy: &str, (listens, open): (SocketAddr, bool)) -> Served {
    let mut configured = config.configured(policy);
    configured.hooks_url = if open { format!("http://{listens}/hooks/") } else { String::new() };
    configured.listens = Some(listens);
    let table = config.serving();
    if config.has_no_model() {
        configured.models.insert(NANO.to_owned(), table[NANO].spec());
        NANO.clone_into(&mut configured.default_model);
    }
    let created = u64::try_from(heart::now().0 / 1000).unwrap_or_default();
    let views = table
        .iter()
        .map(|(name, model)| {
            let spec = model.spec();
            ModelView {
                id: name.clone(),
                object: "model".into(),
                created,
                owned_by: word(&model.provider),
                provider: word(&model.provider),
                model: model.model.clone(),
                tier: model.tier.as_ref().map(word),
                context_window: spec.context_window,
                max_output: spec.max_output,
                price: spec.price,
                dimension: model.dimension,
                can: Ability::ALL.into_iter().filter(|ability| spec.can(*ability)).collect(),
                limits: spec.limits,
                local: spec.local,
                default: *name == configured.default_model,
            }
        })
        .collect();
    let local = Arc::new(Local::new(home));
    let pool = aos_models::Pool::new(table, aos_models::environment(), aos_models::Options::default())
        .with_engine(Arc::clone(&local) as Arc<dyn Engine>)
        .with_embedder(local);
    Served { pool, views, configured }
}

/// A unit variant's name on the wire.
fn word<T: serde::Serialize>(variant: &T) -> String {
    serde_json::to_value(variant).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
