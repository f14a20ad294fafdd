//! What several commands ask for and show: addresses of processes, and processes as text.

use aos_abi::api::{Accepted, LinkView, SignalRequest, SpawnRequest, Started};
use aos_abi::process::{ProcessView, QuestionView};
use aos_abi::{Pid, Signal};
use serde_json::Value;

use super::Context;
use super::clean::{clean, clean_line};
use super::failure::Failure;
use crate::client::{Address, Client};

/// `/v1/processes/PID`.
pub(super) fn process(pid: Pid) -> Address {
    Address::of("/v1/processes").then(pid)
}

/// The process table, or one group of it; with `all` the exited ones too.
pub(super) async fn processes(client: &Client, all: bool, group: Option<&str>) -> Result<Vec<ProcessView>, Failure> {
    let address = Address::of("/v1/processes");
    let address = if all { address.with("all", true) } else { address };
    let address = if let Some(group) = group { address.with("group", group) } else { address };
    Ok(client.get(&address).await?)
}

/// Says at once where commands will be refused in the folder that was named, and what of its grants its role does not give.
pub(super) fn lacks(cx: &Context, request: &SpawnRequest, started: &Started) {
    if let (Some(folder), Some(lack)) = (&request.workspace, &started.lacks) {
        let (folder, lack) = (clean_line(folder), clean_line(lack));
        cx.note(&format!("commands in {folder} will be refused, since it lacks {lack}"));
    }
    for grant in &started.beyond_role {
        let grant = clean_line(grant);
        cx.note(&format!("the grant `{grant}` goes beyond its role, and has an effect only as far as that goes"));
    }
    if !started.unpriced.is_empty() {
        let models: Vec<String> = started.unpriced.iter().map(|model| format!("`{}`", clean_line(model))).collect();
        let budget = if request.budget.usd.is_some() { "its budget" } else { "the day's budget" };
        cx.note(&format!(
            "{budget} in dollars does not hold for {}: no price is known (`price` in aos.toml, 0 where nothing is paid)",
            models.join(", ")
        ));
    }
}

/// Sends a signal.
pub(super) async fn signal(client: &Client, pid: Pid, signal: Signal, tree: bool) -> Result<Accepted, Failure> {
    Ok(client.post(&process(pid).then("signal"), &SignalRequest { signal, tree }).await?)
}

/// A result as text for people: a string as it is, anything else as JSON; `None` where there is none.
pub(super) fn result_text(result: Option<&Value>) -> Option<String> {
    let text = match result? {
        Value::Null => return None,
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).expect("JSON is always JSON"),
    };
    Some(clean(&text).into_owned())
}

/// State and what is waited for: `blocked: stdin`.
pub(super) fn state(process: &ProcessView) -> String {
    match (&process.waiting_for, process.exit_code) {
        (Some(what), _) => format!("{}: {what}", process.state.as_str()),
        (None, Some(code)) => format!("{} {code}", process.state.as_str()),
        (None, None) => process.state.as_str().to_owned(),
    }
}

/// A question with the answers that it suggests: `Tea or coffee? (tea / coffee)`.
pub(crate) fn question(question: &QuestionView) -> String {
    let options: Vec<String> = question.options.iter().map(|option| clean_line(option)).collect();
    let options = if options.is_empty() { String::new() } else { format!(" ({})", options.join(" / ")) };
    format!("{}{options}", question.text)
}

/// Where a link leads, to stand behind its name.
pub(super) fn leads(link: &LinkView) -> String {
    let out = if link.out { " (leads out of the folder)" } else { "" };
    format!(" -> {}{out}", clean_line(&link.to))
}

/// What comes on standard input, whole; `instead` says where it can go that is too long or no text.
pub(super) fn all_of_stdin(instead: &str) -> Result<String, Failure> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(aos_abi::limits::TEXT_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::new("cannot read standard input").why(error.to_string()))?;
    if bytes.len() > aos_abi::limits::TEXT_BYTES_MAX {
        return Err(Failure::usage(format!("standard input is longer than {} bytes", aos_abi::limits::TEXT_BYTES_MAX))
            .hint(instead));
    }
    String::from_utf8(bytes).map_err(|_| Failure::usage("standard input is not UTF-8").hint(instead))
}
