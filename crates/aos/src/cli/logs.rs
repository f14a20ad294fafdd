//! `aos logs`.

use aos_abi::entry::InferenceOutcome;
use aos_abi::{Body, Entry, Lsn, Pid, Timestamp};

use super::{Context, Exit, Failure, Narrator, Style, clean_json, clean_line, cut, moment, now, view, when};
use crate::client::{Event, Line};
use crate::said::{Said, said};

/// Show what a process thought, called and got
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  aos logs 7\n  aos logs -f --since 10m 7\n  aos logs 7 --events --json | jq .type\n\nTimes are UTC."
)]
pub struct Args {
    /// Whose
    pid: Pid,
    /// Go on with what happens, until the process ends
    #[arg(short, long)]
    follow: bool,
    /// Only what happened since: 10m ago, 2026-11-22, 2026-11-22T13:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Every event of the journal, a line each
    #[arg(long)]
    events: bool,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let since = self.since.map(|text| when::moment(&text, now())).transpose().map_err(when::wrong)?;
        let width = cx.width.unwrap_or(if self.events { usize::MAX } else { 200 });
        let mut narrator = Narrator::new(cx.out, width.min(10_000), Some(moment));
        let mut events = cx.client()?.events(view::process(self.pid).then("events"), Lsn::ZERO, self.follow);
        while let Some(event) = events.next().await? {
            let line = match event {
                Event::Entry(line) => line,
                Event::Lost => {
                    cx.note("! the daemon went away; waiting for it");
                    continue;
                }
                Event::Progress(_) | Event::Back => continue,
            };
            let shown = line.entry.as_deref().is_none_or(|entry| is_since(entry, since));
            if let Some(entry) = line.entry.as_deref().filter(|_| !shown) {
                // What was used before counts at the end.
                narrator.tell(entry);
            }
            if shown {
                let text = if cx.json {
                    format!("{}\n", clean_json(&line.json))
                } else if self.events {
                    format!("{}\n", event_line(&line, width, cx.out))
                } else {
                    line.entry.as_deref().map_or_else(|| cx.out.dim(&untold(&line)), |entry| told(&mut narrator, entry))
                };
                cx.print(&text)?;
            }
            if line.entry.is_some_and(|entry| entry.pid == self.pid && matches!(entry.body, Body::Exited { .. })) {
                break;
            }
        }
        Ok(Exit::Success)
    }
}

fn is_since(entry: &Entry, since: Option<Timestamp>) -> bool {
    since.is_none_or(|since| entry.at >= since)
}

/// The line for an entry of which this program knows no more than that.
fn untold(line: &Line) -> String {
    let fields: serde_json::Value = serde_json::from_str(&line.json).unwrap_or_default();
    let why = fields["error"].as_str().unwrap_or("this release does not know its type; `--json` shows it");
    format!("entry {}: {}\n", line.lsn.0, clean_line(why))
}

/// Most bytes and lines of one text: a task may have a mebibyte.
const TEXT_BYTES: usize = 16 << 10;
const TEXT_LINES: usize = 400;

/// A text of the agent or for it, with a word on the way to the rest where it is cut.
fn quoted(narrator: &Narrator, pid: Pid, text: &str) -> Vec<String> {
    let lines =
        text.char_indices().filter(|(_, one)| *one == '\n').nth(TEXT_LINES - 1).map_or(text.len(), |(at, _)| at);
    let end = text.floor_char_boundary(lines.min(TEXT_BYTES));
    let mut told = narrator.quoted(&text[..end]);
    if end < text.trim_end().len() {
        told.push(format!("… {} more bytes; all of it: aos logs {pid} --json", text.len() - end));
    }
    told
}

/// The lines for one entry, with the texts that an attached person would see elsewhere.
fn told(narrator: &mut Narrator, entry: &Entry) -> String {
    let mut lines = narrator.tell(entry);
    match &entry.body {
        Body::Spawned(spec) => {
            lines.extend(spec.task.iter().flat_map(|task| quoted(narrator, entry.pid, task)));
        }
        Body::InferenceCompleted { outcome: InferenceOutcome::Answered(reply), .. } => {
            if let Said { text, calls: false } = said(reply) {
                lines.extend(quoted(narrator, entry.pid, &text));
            }
        }
        Body::Exited { result, .. } => {
            lines.extend(
                view::result_text(result.as_ref()).iter().flat_map(|result| quoted(narrator, entry.pid, result)),
            );
        }
        _ => {}
    }
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

/// One event on one line: its number, its time, its type and the rest as JSON.
fn event_line(line: &Line, width: usize, style: Style) -> String {
    let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&line.json).unwrap_or_default();
    let kind = fields.get("type").and_then(serde_json::Value::as_str).map(clean_line).unwrap_or_default();
    let at = line.entry.as_ref().map(|entry| moment(entry.at)).unwrap_or_default();
    let rest: serde_json::Map<String, serde_json::Value> = fields
        .into_iter()
        .filter(|(key, _)| !matches!(key.as_str(), "lsn" | "at" | "pid" | "type" | "cause"))
        .collect();
    let rest = clean_line(&serde_json::Value::Object(rest).to_string());
    let head = format!("{:>6} {at} {kind:<20} ", line.lsn.0);
    format!("{}{}", style.dim(&head), cut(&rest, width.saturating_sub(head.chars().count())))
}
