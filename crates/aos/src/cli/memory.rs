//! `aos memory`.

use std::fmt::Write as _;

use aos_abi::{Pid, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::audit::copy;
use super::style::ago;
use super::{Context, Exit, Failure, clean, clean_line, cut, now};
use crate::client::Address;

/// Search, show and forget what agents remember
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// The best hits for some words
    Search {
        /// The words
        #[arg(required = true)]
        words: Vec<String>,
        /// Only here
        #[arg(long)]
        namespace: Option<String>,
        /// At most this many
        #[arg(long, default_value_t = 6)]
        limit: u32,
    },
    /// What is remembered, newest first
    List {
        /// Only here
        #[arg(long)]
        namespace: Option<String>,
        /// At most this many
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// One memory, whole, and what it was before
    Show {
        /// Which, such as m1
        id: String,
    },
    /// Forget one memory
    Forget {
        /// Which, such as m1
        id: String,
    },
    /// Print every memory as a JSON line
    Export {
        /// Only here
        #[arg(long)]
        namespace: Option<String>,
    },
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let memory = Address::of("/v1/memory");
        let address = match &self.command {
            Command::Search { words, namespace, limit } => Address::of("/v1/memory/search")
                .with("q", words.join(" "))
                .with_some("namespace", namespace.as_ref())
                .with("limit", limit),
            Command::List { namespace, limit } => {
                memory.with_some("namespace", namespace.as_ref()).with("limit", limit)
            }
            Command::Show { id } | Command::Forget { id } => memory.then(id),
            Command::Export { namespace } => {
                return copy(cx, &Address::of("/v1/memory/export").with_some("namespace", namespace.as_ref())).await;
            }
        };
        let client = cx.client()?;
        let width = cx.width.unwrap_or(usize::MAX);
        if matches!(self.command, Command::Show { .. }) && !cx.json {
            let kept: Kept = client.get(&address).await?;
            cx.print(&kept.shown(now(), width))?;
            return Ok(Exit::Success);
        }
        let answer: Value = match &self.command {
            Command::Forget { .. } => client.delete(&address).await?,
            _ => client.get(&address).await?,
        };
        match (&self.command, cx.json) {
            (_, true) => cx.document(&answer)?,
            (Command::Forget { id }, false) => cx.note(&format!("forgot {id}")),
            (_, false) => cx.print(&list(&answer, width))?,
        }
        Ok(Exit::Success)
    }
}

/// The versions of one memory, newest first.
#[derive(Deserialize)]
struct Kept {
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    id: String,
    namespace: String,
    key: String,
    value: String,
    tags: Vec<String>,
    version: u32,
    at: Timestamp,
    expires_at: Option<Timestamp>,
    source: Source,
}

#[derive(Deserialize)]
struct Source {
    pid: Pid,
}

impl Kept {
    /// The newest one whole, then a line for each of those before.
    fn shown(&self, now: Timestamp, width: usize) -> String {
        let mut out = String::new();
        let Some((newest, before)) = self.versions.split_first() else { return out };
        let Version { id, namespace, key, value, tags, .. } = newest;
        let _ = writeln!(out, "{id}  {}  in {}", clean_line(key), clean_line(namespace));
        let _ = write!(out, "{}", newest.written(now));
        if let Some(at) = newest.expires_at {
            let _ = write!(out, ", forgotten at {at}");
        }
        if !tags.is_empty() {
            let _ = write!(out, ", tagged {}", clean_line(&tags.join(", ")));
        }
        let _ = writeln!(out, "\n\n{}", clean(value));
        if !before.is_empty() {
            out.push_str("\nbefore:\n");
        }
        for version in before {
            let line = format!("{}  {}  {}", version.id, version.written(now), clean_line(&version.value));
            let _ = writeln!(out, "{}", cut(&line, width));
        }
        out
    }
}

impl Version {
    fn written(&self, now: Timestamp) -> String {
        format!("version {}, written {} by process {}", self.version, ago(self.at, now), self.source.pid)
    }
}

/// The memories of an answer, a line each: id, key and the start of the value.
fn list(answer: &Value, width: usize) -> String {
    // The store answers with a list, or with an object that holds one.
    let items = answer.as_array().or_else(|| answer.as_object()?.values().find_map(Value::as_array));
    let items = items.map_or(&[][..], Vec::as_slice);
    if items.is_empty() {
        return "nothing is remembered that fits\n".into();
    }
    let field = |item: &Value, name: &str| item.get(name).map(text).unwrap_or_default();
    items
        .iter()
        .map(|item| {
            let line = format!("{}  {}  {}", field(item, "id"), field(item, "key"), field(item, "value"));
            format!("{}\n", cut(&clean_line(&line), width))
        })
        .collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_is_shown_as_people_read() {
        let version = |nth: u32, value: &str| {
            serde_json::json!({
                "id": format!("m{nth}"), "namespace": "self/7", "key": "tea\u{1b}[2J", "value": value, "version": nth,
                "at": "2026-11-22T00:00:00.000Z", "expires_at": null, "source": { "pid": 7, "lsn": 4 },
                "tags": if nth == 3 { vec!["drinks", "daily"] } else { Vec::new() },
            })
        };
        let answer = serde_json::json!({ "versions": [
            version(3, "green, at nine\nand black, at four"), version(2, "green\nat ten"), version(1, "none"),
        ] });
        let kept: Kept = serde_json::from_value(answer).expect("what the daemon answers");
        let told = kept.shown(Timestamp(1_795_305_600_000).plus_millis(7_200_000), 60);
        insta::assert_snapshot!(told, @r#"
            m3  tea␛[2J  in self/7
            version 3, written 2h00m ago by process 7, tagged drinks, daily

            green, at nine
            and black, at four

            before:
            m2  version 2, written 2h00m ago by process 7  green at ten
            m1  version 1, written 2h00m ago by process 7  none
            "#);
    }
}
