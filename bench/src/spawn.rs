//! Idle agents: as many residents without a task as asked for, over several connections.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::Client;
use crate::{Arguments, Failure};

/// `--socket --count N [--connections N]`.
pub(crate) async fn run(arguments: &Arguments) -> Result<Value, Failure> {
    let socket = Path::new(arguments.text("socket")?);
    let count: u64 = arguments.number("count")?;
    let connections: u64 = arguments.number_or("connections", 64)?;
    let (next, first) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..connections.min(count) {
        let mut client = Client::connect(socket).await?;
        let (next, first) = (Arc::clone(&next), Arc::clone(&first));
        clients.spawn(async move {
            while next.fetch_add(1, Ordering::Relaxed) < count {
                let pid = client.spawn(&json!({ "role": "You answer at once." })).await?;
                first.fetch_min(pid, Ordering::Relaxed);
            }
            Ok::<(), Failure>(())
        });
    }
    clients.join_all().await.into_iter().collect::<Result<(), Failure>>()?;
    let seconds = began.elapsed().as_secs_f64();
    Ok(
        json!({ "spawned": count, "first": first.load(Ordering::Relaxed), "seconds": seconds, "per_s": count as f64 / seconds }),
    )
}
