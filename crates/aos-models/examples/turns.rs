//! What one inference costs at this edge: turns per second and processor time per turn against the scripted server.
//!
//! `cargo run --release -p aos-models --example turns [SECONDS] [AT_ONCE]`. Each side has one thread. The request is a usual one: all tools, a history of some calls, about 20 kB.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aos_abi::inference::{Encoding, Message, NativeCall, Part, Prompt};
use aos_abi::syscall::CallSet;
use aos_abi::{EffectId, Lsn};
use aos_models::scripted::{Answer, Rule, Script, Server};
use aos_models::{Options, Pool, Provider};

/// Processor time of the threads with this name so far, from `/proc/self/task/*/stat` (proc(5)); ticks are hundredths
/// of a second on Linux.
fn processor_time(name: &str) -> Duration {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        if stat.contains(&format!("({name})")) {
            let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
            ticks += fields.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
        }
    }
    Duration::from_millis(ticks * 10)
}

fn runtime(name: &str) -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_all().build()
}

fn prompt() -> Prompt {
    let mut messages = vec![Message::User(vec![Part::Text("Summarise the notes.".to_owned())])];
    for nth in 0..4 {
        let call = NativeCall {
            id: format!("call_{nth}"),
            name: "FS_READ".to_owned(),
            arguments: r#"{"path":"a"}"#.to_owned(),
        };
        messages.push(Message::Assistant { text: "I read on.".to_owned(), calls: vec![call] });
        let content =
            format!(r#"{{"status":"SUCCESS","result":{{"content":"{}"}}}}"#, "some words and lines\\n".repeat(20));
        messages.push(Message::Result { call_id: format!("call_{nth}"), name: "FS_READ".to_owned(), content });
    }
    Prompt {
        system: "You are a process of an agent operating system. ".repeat(60),
        messages,
        status: "It is noon.".to_owned(),
        tools: CallSet::all(),
        encoding: Encoding::Native,
        max_output: 500,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let at_once: usize = arguments.next().map_or(Ok(32), |text| text.parse())?;
    let prompt = Arc::new(prompt());
    let (edge, servers) = (runtime("edge")?, runtime("server")?);
    for (what, script) in [
        ("instant", Script::instant("done")),
        ("one rule", Script::new(vec![Rule::always(vec![Answer::text("done")])])),
    ] {
        for provider in [Provider::Openai, Provider::Anthropic, Provider::Gemini] {
            let server = servers.block_on(async { servers.spawn(Server::start(script.clone())).await })??;
            let models = BTreeMap::from([("m".to_owned(), server.model(provider))]);
            let pool = Arc::new(Pool::new(models, Arc::new(|_| None), Options::default()));
            let (began, used) = (Instant::now(), ["edge", "server"].map(processor_time));
            let until = began + Duration::from_secs(seconds);
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..at_once {
                let (pool, prompt) = (Arc::clone(&pool), Arc::clone(&prompt));
                tasks.spawn_on(
                    async move {
                        let mut turns = 0_u64;
                        while Instant::now() < until {
                            let effect = EffectId { cause: Lsn(turns), nth: 0 };
                            pool.infer("m", &prompt, effect, |_| ()).await.map_err(|failure| failure.message)?;
                            turns += 1;
                        }
                        Ok::<u64, String>(turns)
                    },
                    edge.handle(),
                );
            }
            let turns = edge.block_on(tasks.join_all()).into_iter().sum::<Result<u64, String>>()?;
            let rate = turns as f64 / began.elapsed().as_secs_f64();
            let spent = |name, before| (processor_time(name) - before).as_micros() as u64 / turns.max(1);
            let (edge_us, server_us) = (spent("edge", used[0]), spent("server", used[1]));
            let bytes = server.requests().last().map_or(0, |request| request.body.len());
            println!(
                "{what:9} {provider:?}: {rate:.0} turns/s; processor per turn {edge_us} us at the edge and {server_us} us at the server; {bytes} bytes sent"
            );
            servers.block_on(server.stop());
        }
    }
    Ok(())
}
