//! A program that asks models over TCP, as OpenAI's clients do: one request at a time, then many at once.
//!
//! It serves the instant model itself and asks whatever stands before it, or the model itself where `--to` is its own
//! port. So the same client and the same model stand at both ends of whatever is measured, and what both cost is in every
//! figure alike. What always holds: an answer that is not the model's own words ends the run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::model::{Answer, Model};
use crate::{Arguments, Failure, daemon};

const WORDS: [&str; 16] = [
    "It ", "holds ", "a ", "letter, ", "two ", "bills, ", "a ", "list ", "of ", "names ", "and ", "the ", "notes ",
    "of ", "last ", "week.",
];
/// Longest wait for any answer: what takes longer is broken, not slow.
const DEADLINE: Duration = Duration::from_secs(60);

/// `--port PORT --to ADDRESS --key KEY --requests N --warm N --connections N --seconds S [--process PID]`; twice, once for
/// answers in one piece and once for streams.
pub(crate) async fn run(arguments: &Arguments) -> Result<Value, Failure> {
    let model = Model::start(arguments.number("port")?, Answer::Chat(&WORDS)).await?;
    let mut figures = json!({});
    for stream in [false, true] {
        let target = Arc::new(Target {
            to: arguments.number("to")?,
            head: format!("Bearer {}", arguments.text("key")?),
            body: body(stream),
        });
        figures[if stream { "streamed" } else { "whole" }] = measure(arguments, &model, &target).await?;
    }
    figures["answered"] = model.answered().into();
    Ok(figures)
}

async fn measure(arguments: &Arguments, model: &Model, target: &Arc<Target>) -> Result<Value, Failure> {
    let mut line = target.connect().await?;
    for _ in 0..arguments.number::<usize>("warm")? {
        target.ask(&mut line).await?;
    }
    let mut one = Vec::new();
    for _ in 0..arguments.number::<usize>("requests")? {
        one.push(target.ask(&mut line).await?);
    }
    drop(line);
    let connections: usize = arguments.number("connections")?;
    let span = Duration::from_secs_f64(arguments.number("seconds")?);
    // Everybody is connected, and has been answered, before anything is counted.
    let mut lines = Vec::new();
    for _ in 0..connections {
        let mut line = target.connect().await?;
        target.ask(&mut line).await?;
        lines.push(line);
    }
    let used = |pid: u32| if pid == 0 { Ok(Duration::ZERO) } else { daemon::processor_time(pid) };
    let process: u32 = arguments.number_or("process", 0)?;
    let (before, own) = (used(process)?, used(std::process::id())?);
    let (began, answered) = (Instant::now(), model.answered());
    let mut asking = JoinSet::new();
    for mut line in lines {
        let target = Arc::clone(target);
        asking.spawn(async move {
            let mut taken = Vec::new();
            while began.elapsed() < span {
                taken.push(target.ask(&mut line).await?);
            }
            Ok::<_, Failure>(taken)
        });
    }
    let mut many = Vec::new();
    while let Some(taken) = asking.join_next().await {
        many.extend(taken??);
    }
    let elapsed = began.elapsed().as_secs_f64();
    if ((model.answered() - answered) as usize) < many.len() {
        return Err("more answers than the model gave".into());
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / many.len().max(1) as f64;
    let (process_us, own_us) = (each(used(process)? - before), each(used(std::process::id())? - own));
    let per_s = many.len() as f64 / elapsed;
    Ok(json!({
        "one": percentiles(one), "many": percentiles(many), "per_s": per_s,
        "process_us": process_us, "load_us": own_us,
    }))
}

fn body(stream: bool) -> Bytes {
    let messages = json!([
        { "role": "system", "content": "You say in one sentence what somebody has." },
        { "role": "user", "content": "What is in the drawer of the desk in the hall?" },
    ]);
    let mut body = json!({ "model": "instant", "messages": messages, "max_tokens": 64 });
    if stream {
        body["stream"] = true.into();
        body["stream_options"] = json!({ "include_usage": true });
    }
    Bytes::from(body.to_string())
}

/// What is asked, and how.
struct Target {
    to: SocketAddr,
    head: String,
    body: Bytes,
}

type Line = SendRequest<Full<Bytes>>;

impl Target {
    async fn connect(&self) -> Result<Line, Failure> {
        let stream = timeout(DEADLINE, TcpStream::connect(self.to)).await??;
        stream.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // It ends with its sender; what went wrong shows in the request.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// One request; from its first byte to the last of its answer.
    async fn ask(&self, line: &mut Line) -> Result<Duration, Failure> {
        let request = Request::post("/v1/chat/completions")
            .header("host", self.to.to_string())
            .header("authorization", &self.head)
            .header("content-type", "application/json")
            .body(Full::new(self.body.clone()))?;
        line.ready().await?;
        let began = Instant::now();
        let answer = timeout(DEADLINE, line.send_request(request)).await??;
        let status = answer.status();
        let body = timeout(DEADLINE, answer.into_body().collect()).await??.to_bytes();
        let taken = began.elapsed();
        // The last word, in whatever form, and what it used.
        let has = |mark: &[u8]| body.windows(mark.len()).any(|window| window == mark);
        if status.is_success() && has(b"week.") && has(b"completion_tokens") {
            return Ok(taken);
        }
        Err(format!("{}: {status}: {}", self.to, String::from_utf8_lossy(&body)).into())
    }
}

fn percentiles(mut taken: Vec<Duration>) -> Value {
    taken.sort_unstable();
    let at = |share: f64| {
        let nth = (taken.len() as f64 * share) as usize;
        taken.get(nth.min(taken.len().saturating_sub(1))).map_or(0.0, |time| time.as_secs_f64() * 1e6)
    };
    json!({ "n": taken.len(), "p50_us": at(0.5), "p90_us": at(0.9), "p99_us": at(0.99), "worst_us": at(1.0) })
}
