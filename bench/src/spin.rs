//! Many agents that never rest: each turn makes one cheap call, whose result makes the next turn.
//!
//! Nothing is sent in while it is measured, so what is counted is the daemon's own path: an answer, its charge, its
//! call, verdict and result, the next inference, all durable.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::Client;
use crate::model::{Answer, Model};
use crate::{Arguments, Failure, daemon};

/// `--socket --port --daemon PID --agents N --seconds S --warm S`.
pub(crate) async fn run(arguments: &Arguments) -> Result<Value, Failure> {
    let socket = Path::new(arguments.text("socket")?);
    let os_pid: u32 = arguments.number("daemon")?;
    let agents: u64 = arguments.number("agents")?;
    let (seconds, warm): (f64, f64) = (arguments.number("seconds")?, arguments.number("warm")?);
    let answer = Answer::Call("SYS_WRITE_STDOUT", |nth| json!({ "text": format!("going on {nth}") }));
    let model = Model::start(arguments.number("port")?, answer).await?;
    let mut client = Client::connect(socket).await?;
    for _ in 0..agents {
        client.spawn(&json!({ "role": "You go on and on.", "task": "Go on." })).await?;
    }
    tokio::time::sleep(Duration::from_secs_f64(warm)).await;
    let journal = journal(socket).await?;
    let (turns, bytes) = (model.answered(), model.received_bytes());
    let (daemon, own) = (daemon::processor_time(os_pid)?, daemon::processor_time(std::process::id())?);
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    let (turns, bytes) = (model.answered() - turns, model.received_bytes() - bytes);
    let elapsed = began.elapsed().as_secs_f64();
    if turns == 0 {
        return Err("no agent turns any more: `aos ps` says why".into());
    }
    let (daemon, own) = (daemon::processor_time(os_pid)? - daemon, daemon::processor_time(std::process::id())? - own);
    let after = self::journal(socket).await?;
    let (entries, commits) = (after.0 - journal.0, after.1 - journal.1);
    let each = |time: Duration| time.as_secs_f64() * 1e6 / turns.max(1) as f64;
    Ok(json!({
        "turns_per_s": turns as f64 / elapsed, "cpu_us_per_turn": each(daemon), "load_cpu_us_per_turn": each(own),
        "daemon_cores": daemon.as_secs_f64() / elapsed, "prompt_bytes": bytes / turns.max(1),
        "entries_per_s": entries / elapsed, "commits_per_s": commits / elapsed,
    }))
}

/// Entries appended and commits so far, from `/metrics`.
async fn journal(socket: &Path) -> Result<(f64, f64), Failure> {
    // A connection of its own: the daemon closes those that rest.
    let mut client = Client::connect(socket).await?;
    let text = client.bytes(hyper::Method::GET, "/metrics", &Value::Null).await?;
    let text = String::from_utf8_lossy(&text);
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.trim().parse::<f64>().ok()).ok_or_else(|| format!("no {name} in /metrics"))
    };
    Ok((value("aos_journal_appends_total")?, value("aos_journal_commits_total")?))
}
