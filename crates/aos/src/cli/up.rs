//! `aos up`: the daemon, in the background or here.

use std::time::Duration;

use aos_abi::process::StatusView;
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::status::shown;
use super::{Context, Exit, Failure, init};
use crate::client::Address;
use crate::config::Config;
use crate::daemon::Start;
use crate::log::Covered;

/// How long the threads that work for the daemon may take to end after it has.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// Start the daemon; every other command does so by itself
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run it here instead of in the background; AOS_LOG filters what it logs
    #[arg(long)]
    foreground: bool,
    /// Go on where the journal is damaged or its end is lost (a disk that failed, a copy cut short), from the last entry
    /// up to which all is whole; a damaged file is kept as journal.db.damaged. Only with --foreground
    #[arg(long, requires = "foreground")]
    accept_loss: bool,
    /// In a session of its own, so that closing the terminal does not end it.
    #[arg(long, hide = true, requires = "foreground")]
    detached: bool,
}

impl Args {
    pub(super) fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        if self.foreground { foreground(cx, &self) } else { super::wait_for(background(cx)) }
    }
}

async fn background(cx: &Context) -> Result<Exit, Failure> {
    let status: StatusView = cx.client()?.get(&Address::of("/v1/status")).await?;
    if cx.json {
        cx.document(&status)?;
    } else if !cx.quiet {
        cx.print(&shown(&status))?;
    }
    Ok(Exit::Success)
}

fn foreground(cx: &Context, args: &Args) -> Result<Exit, Failure> {
    if args.detached {
        // Fails only where this is a session of its own already.
        let _ = rustix::process::setsid();
        crate::log::keep_short(cx.home.daemon_log());
    }
    if cx.home.is_new() {
        for line in init::make(&cx.home, &cx.env)?.lines() {
            cx.note(&line);
        }
    }
    cx.home.prepare()?;
    let config = Config::load(&cx.home.config_file(), &cx.env)?;
    log_to_stderr(cx)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .enable_all()
        .build()
        .map_err(|error| Failure::new("cannot start").why(error.to_string()))?;
    let accept_loss = args.accept_loss;
    let ended = runtime.block_on(async {
        let shutdown = CancellationToken::new();
        let signals = stop_on_signals(shutdown.clone())?;
        let ended = crate::daemon::run(cx.home.clone(), config, Start { accept_loss }, shutdown).await;
        signals.abort();
        ended
            .map(|()| Exit::Success)
            .map_err(|error| error.located(&cx.home))
            .map_err(|error| Failure::new("the daemon cannot run").why(error.to_string()).hint(error.hint()))
    });
    // What still blocks a thread is recovered at the next start, like everything that was under way.
    runtime.shutdown_timeout(ENDS_WITHIN);
    ended
}

/// One less than there are processors, since the journal's writer has one: it is on the way of every input. Workers wake
/// each other whenever one of them gets something to do, which with two on two processors is half of all switches of a
/// turn (`bench/README.md`).
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get().saturating_sub(1).max(1))
}

fn log_to_stderr(cx: &Context) -> Result<(), Failure> {
    let filter = match cx.env.text("AOS_LOG") {
        None => Targets::new().with_default(LevelFilter::INFO),
        Some(text) => text.parse().map_err(|error: tracing_subscriber::filter::ParseError| {
            Failure::usage("AOS_LOG is no filter")
                .why(error.to_string())
                .hint("such as AOS_LOG=debug or AOS_LOG=info,aos_kernel=trace")
        })?,
    };
    // Without colours also at a terminal: the library is built without them, and fails where they are asked for.
    let written = tracing_subscriber::fmt::layer().with_writer(|| Covered).with_ansi(false);
    tracing_subscriber::registry()
        .with(written)
        .with(filter)
        .try_init()
        .map_err(|error| Failure::new("cannot log").why(error.to_string()))
}

/// The first INT or TERM ends the daemon in good order; the second at once, which the journal makes harmless.
fn stop_on_signals(shutdown: CancellationToken) -> Result<tokio::task::JoinHandle<()>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| signal(kind).map_err(|error| Failure::new("cannot listen for signals").why(error.to_string()));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    // Its parent is `foreground`, which ends it when the daemon has ended.
    Ok(tokio::spawn(async move {
        let mut one = async || {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        one().await;
        shutdown.cancel();
        one().await;
        std::process::exit(1);
    }))
}
