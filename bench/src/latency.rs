//! One agent at a time: from an input sent to the model asked, and to the event that its answer is durable.
//!
//! Each turn goes to the next agent of the row, so that windows stay short and the same length in every run. Every
//! tenth turn the disk is measured alone, in the same minutes on the same folder.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::client::{Client, completions};
use crate::disk::{Floor, summary};
use crate::model::{Answer, Model};
use crate::{Arguments, Failure, daemon};

/// Longest turn that is waited for.
const DEADLINE: Duration = Duration::from_secs(60);
/// Turns between two looks at the disk.
const DISK_EVERY: u64 = 10;

/// `--socket --port --daemon PID --disk DIR --turns N --agents N [--first PID --stride N]`: the agents are spawned, or
/// those from `first` on are taken, every `stride`th.
pub(crate) async fn run(arguments: &Arguments) -> Result<Value, Failure> {
    let socket = Path::new(arguments.text("socket")?);
    let os_pid: u32 = arguments.number("daemon")?;
    let (turns, agents): (u64, u64) = (arguments.number("turns")?, arguments.number("agents")?);
    let first: u64 = arguments.number_or("first", 0)?;
    let stride: u64 = arguments.number_or("stride", 1)?;
    let model = Model::start(arguments.number("port")?, Answer::Text("done")).await?;
    let mut floor = Floor::open(Path::new(arguments.text("disk")?))?;
    let mut client = Client::connect(socket).await?;
    let mut pids = Vec::new();
    for nth in 0..agents {
        pids.push(match first {
            0 => client.spawn(&json!({ "role": "You answer at once." })).await?,
            first => first + nth * stride,
        });
    }
    let mut completed = completions(socket).await?;
    let (mut acknowledged, mut wakes, mut whole) = (vec![], vec![], vec![]);
    let mut used = Duration::ZERO;
    let warm = (turns / 20).min(agents);
    for turn in 0..warm + turns {
        if turn % DISK_EVERY == 0 {
            floor.sample()?;
        }
        if turn == warm {
            used = daemon::processor_time(os_pid)?;
        }
        let pid = pids[(turn % agents) as usize];
        let _ = model.take_arrival();
        let began = Instant::now();
        client.send(pid, "What is the state of things?").await?;
        let accepted = began.elapsed();
        let ended = loop {
            match timeout(DEADLINE, completed.recv()).await? {
                Some((of, at)) if of == pid => break at,
                Some(_) => {}
                None => return Err("the daemon ended the stream of events".into()),
            }
        };
        let arrived = model.take_arrival().ok_or("an inference was completed that was never asked")?;
        if turn >= warm {
            acknowledged.push(accepted);
            wakes.push(arrived - began.into_std());
            whole.push(ended - began.into_std());
        }
    }
    let used = daemon::processor_time(os_pid)? - used;
    Ok(json!({
        "turn": summary(whole), "wake": summary(wakes), "acknowledged": summary(acknowledged), "fsync": summary(floor.overwrites), "fsync_append": summary(floor.appends),
        "cpu_us_per_turn": used.as_secs_f64() * 1e6 / turns as f64,
        "prompt_bytes": model.received_bytes() / model.answered().max(1),
    }))
}
