//! `aos undo`: taking back what was done to files.
//!
//! What would happen is shown first: the list of paths, and a diff of what is text. A person at a terminal is asked;
//! a program is not.

use std::io::{BufRead as _, Write as _};

use aos_abi::api::{UndoRequest, UndoView};

use super::{Context, Exit, Failure, clean, clean_line};
use crate::client::{Address, Client};

/// Take back what was done, while its window lasts
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  aos proposals --all\n  aos undo p4 --dry-run\n  aos undo p4\n\n\
It shows what would happen and asks, where somebody is at the terminal. What was undone\ncan be brought back: aos proposals --all names it.")]
pub struct Args {
    /// Which, such as p4; `aos proposals --all` lists them
    #[arg(required = true)]
    id: Vec<String>,
    /// Only show what would happen
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long, conflicts_with = "dry_run")]
    yes: bool,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let client = cx.client()?;
        let mut first = None;
        for id in &self.id {
            if let Err(failure) = self.one(cx, &client, id).await {
                first = first.or(Some(failure));
            }
        }
        first.map_or(Ok(Exit::Success), Err)
    }

    async fn one(&self, cx: &Context, client: &Client, id: &str) -> Result<(), Failure> {
        let address = Address::of("/v1/proposals").then(id).then("undo");
        let asks = cx.in_terminal && !self.yes && !cx.json;
        if self.dry_run || asks {
            let view: UndoView = client.post_long(&address, &UndoRequest { dry_run: true }).await?;
            if cx.json {
                return cx.document(&view);
            }
            cx.print(&shown(&view))?;
            if self.dry_run || !view.conflicts.is_empty() || !agreed(id)? {
                return Ok(());
            }
        }
        let view: UndoView = client.post_long(&address, &UndoRequest { dry_run: false }).await?;
        if cx.json {
            return cx.document(&view);
        }
        if !asks {
            cx.print(&shown(&view))?;
        }
        cx.note(&match &view.back {
            Some(back) => format!("{id} is undone; aos undo {back} brings it back"),
            None => format!("{id} is undone"),
        });
        Ok(())
    }
}

/// Asks whoever is at the terminal.
fn agreed(id: &str) -> Result<bool, Failure> {
    let failed = |error: std::io::Error| Failure::new("cannot ask").why(error.to_string());
    eprint!("undo {id}? [y/N] ");
    std::io::stderr().flush().map_err(failed)?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(failed)?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// What happens to each path, and the diff.
pub(crate) fn shown(view: &UndoView) -> String {
    let mut text = String::new();
    for change in &view.changes {
        let verb = match change.kind.as_str() {
            "created" => "brings back",
            "deleted" => "deletes",
            _ => "restores",
        };
        let leads = view.links.get(&change.path).map(super::view::leads).unwrap_or_default();
        // What people put there is not deleted with what an agent made.
        let folder = change.before.as_ref().is_some_and(|before| before.is == "folder");
        let stays = if folder && change.kind == "deleted" { ", unless something was put into it" } else { "" };
        let modes = change.before.as_ref().zip(change.after.as_ref());
        let modes = modes.filter(|(now, then)| now.is == then.is && now.mode != then.mode);
        let modes = modes.map(|(now, then)| format!(", mode {} to {}", now.mode, then.mode)).unwrap_or_default();
        text.push_str(&format!("{verb} {}{leads}{modes}{stays}\n", clean_line(&change.path)));
    }
    if view.more > 0 {
        text.push_str(&format!("and {} more\n", view.more));
    }
    text.push_str(&clean(&view.diff));
    for path in &view.conflicts {
        text.push_str(&format!("changed since, so nothing is taken back: {}\n", clean_line(path)));
    }
    text
}
