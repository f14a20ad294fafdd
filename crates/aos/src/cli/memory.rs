//! `aos memory`.

use serde_json::Value;

use super::audit::copy;
use super::{Context, Exit, Failure, clean_line, cut};
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
    /// One memory, whole
    Show {
        /// Which
        id: String,
    },
    /// Forget one memory
    Forget {
        /// Which
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
        let answer: Value = match &self.command {
            Command::Forget { .. } => client.delete(&address).await?,
            _ => client.get(&address).await?,
        };
        match (&self.command, cx.json) {
            (_, true) => cx.document(&answer)?,
            (Command::Forget { id }, false) => cx.note(&format!("forgot {id}")),
            (Command::Show { .. }, false) => cx.line(&fields(&answer))?,
            (_, false) => cx.print(&list(&answer, cx.width.unwrap_or(usize::MAX)))?,
        }
        Ok(Exit::Success)
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

fn fields(answer: &Value) -> String {
    match answer.as_object() {
        None => text(answer),
        Some(fields) => {
            fields.iter().map(|(name, value)| format!("{name:<10} {}", text(value))).collect::<Vec<_>>().join("\n")
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
