//! `aos proposals`: what waits for a person.
//!
//! What always holds: the list shows the beginning of each question, so that none buries the others; one that is named is
//! shown whole.

use aos_abi::Timestamp;
use aos_abi::api::ProposalView;
use aos_abi::entry::{BoundFile, ProposalState};

use super::table::{Column, Table};
use super::{Context, Exit, Failure, Style, call, clean, clean_line, duration, now};
use crate::client::Address;

/// So many lines of a question stand in the list.
const LINES_SHOWN: usize = 40;
/// And at most so many characters: a line has no bound.
const CHARS_SHOWN: usize = 8_000;

/// List the calls that wait for a person
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  aos proposals\n  aos proposals p3            all of what p3 would do\n  aos approve p3\n  aos reject p3 --why \"not on a Friday\"\n  aos undo p4"
)]
pub struct Args {
    /// Only these, such as p3, each shown whole
    id: Vec<String>,
    /// Also those that are over, and those that were carried out and can still be undone
    #[arg(short, long)]
    all: bool,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let address = Address::of("/v1/proposals");
        let address = if self.all || !self.id.is_empty() { address.with("all", true) } else { address };
        let mut proposals: Vec<ProposalView> = cx.client()?.get(&address).await?;
        if let Some(id) = self.id.iter().find(|id| !proposals.iter().any(|proposal| proposal.id == **id)) {
            return Err(Failure::new(format!("there is no proposal {id}")).hint("`aos proposals --all` lists them"));
        }
        if !self.id.is_empty() {
            proposals.retain(|proposal| self.id.contains(&proposal.id));
        }
        if cx.json {
            cx.document(&proposals)?;
        } else if proposals.is_empty() {
            cx.note(if self.all {
                "there was no proposal yet"
            } else {
                "nothing waits for you; aos proposals --all shows what can be undone"
            });
        } else {
            cx.print(&shown(&proposals, !self.id.is_empty(), now(), cx.width, cx.out))?;
        }
        Ok(Exit::Success)
    }
}

/// The name of a state.
pub(super) fn state(state: ProposalState) -> &'static str {
    match state {
        ProposalState::Pending => "pending",
        ProposalState::Approved => "approved",
        ProposalState::Standing => "standing",
        ProposalState::Rejected => "rejected",
        ProposalState::Expired => "expired",
        ProposalState::Executed => "executed",
        ProposalState::Undone => "undone",
        ProposalState::Vetoed => "vetoed",
    }
}

/// What a yes holds for, in a line; nothing where it is about no file.
pub(super) fn bound(files: &[BoundFile], unbound: Option<&str>) -> String {
    let named: Vec<String> = files
        .iter()
        .map(|file| match file.is.as_str() {
            "nothing" => format!("{} (not there)", clean_line(&file.path)),
            _ => clean_line(&file.path),
        })
        .collect();
    let mut text = String::new();
    if !named.is_empty() {
        text.push_str(&format!("  only while unchanged: {}\n", named.join(", ")));
    }
    if let Some(unbound) = unbound {
        text.push_str(&format!("  not bound: {}\n", clean_line(unbound)));
    }
    text
}

/// All that one should know before one answers: why, the risk, what would happen, and what a yes is bound to.
pub(crate) fn whole(proposal: &ProposalView) -> String {
    asked(proposal) + &bound(&proposal.files, proposal.unbound.as_deref())
}

/// The same without what a yes is bound to.
fn asked(proposal: &ProposalView) -> String {
    let mut text = String::new();
    for (label, value) in
        [("why", proposal.why.as_deref()), ("risk", proposal.risk.as_deref()), ("", Some(proposal.preview.as_str()))]
    {
        for line in value.into_iter().flat_map(str::lines) {
            text.push_str(&clean(&format!("  {label}{}{line}\n", if label.is_empty() { "" } else { ": " })));
        }
    }
    text
}

/// The beginning of a question, how much more there is, and what a yes is bound to.
fn begun(proposal: &ProposalView) -> String {
    let asked = asked(proposal);
    let lines = asked.split_inclusive('\n').take(LINES_SHOWN).map(str::len).sum();
    let chars = asked.char_indices().nth(CHARS_SHOWN).map_or(asked.len(), |(at, _)| at);
    let (mut text, rest) = (asked[..chars.min(lines)].to_owned(), &asked[chars.min(lines)..]);
    if !rest.is_empty() {
        if !text.ends_with('\n') {
            text.push_str("…\n");
        }
        let more = match rest.lines().count() {
            1 => "1 more line".to_owned(),
            more => format!("{more} more lines"),
        };
        text.push_str(&format!("  … {more}: aos proposals {} shows all\n", proposal.id));
    }
    text + &bound(&proposal.files, proposal.unbound.as_deref())
}

/// A table of them, and below it the beginning of each question, or all of it.
pub(super) fn shown(
    proposals: &[ProposalView],
    in_whole: bool,
    now: Timestamp,
    width: Option<usize>,
    style: Style,
) -> String {
    let mut table = Table::new(&[
        Column::text("ID"),
        Column::number("PID"),
        Column::text("STATE"),
        Column::number("LEFT"),
        Column::text("RULE").dispensable(),
        Column::text("CALL"),
    ]);
    for proposal in proposals {
        let open = matches!(proposal.state, ProposalState::Pending | ProposalState::Executed);
        table.row([
            proposal.id.clone(),
            proposal.pid.to_string(),
            state(proposal.state).to_owned(),
            if open { duration(proposal.expires_at.millis_since(now) / 1_000) } else { "-".into() },
            proposal.rule.clone(),
            call(&proposal.call.name, &proposal.call.args),
        ]);
    }
    let mut text = table.shown(width, style);
    for proposal in proposals.iter().filter(|proposal| in_whole || proposal.state == ProposalState::Pending) {
        text.push_str(&format!("\n{}\n", style.bold(&format!("{} of process {}", proposal.id, proposal.pid))));
        text.push_str(&if in_whole { whole(proposal) } else { begun(proposal) });
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asks(id: &str, preview: String) -> ProposalView {
        let view = json!({
            "id": id, "pid": 2, "call": { "name": "FS_WRITE", "args": { "path": "a" } }, "verdict": "ask",
            "rule": "fs[0]", "why": null, "risk": null, "preview": preview, "state": "pending",
            "expires_at": Timestamp(1_000),
            "files": [{ "path": "a", "is": "nothing", "mode": "", "bytes": 0, "sha256": null }],
        });
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn one_question_does_not_bury_the_next() {
        let lines = |count: usize| (0..count).map(|nth| format!("+line {nth}\n")).collect::<String>();
        let list = [asks("p1", lines(3_000)), asks("p2", "x".repeat(1 << 20)), asks("p3", lines(40))];
        let told = shown(&list, false, Timestamp(0), None, Style::plain());
        assert!(told.contains("+line 39\n  … 2960 more lines: aos proposals p1 shows all\n"), "{told}");
        assert!(told.contains("x…\n  … 1 more line: aos proposals p2 shows all\n") && told.len() < 20_000, "{told}");
        assert!(!told.contains("proposals p3") && told.matches("only while unchanged: a (not there)\n").count() == 3);
        let all = shown(&list[..1], true, Timestamp(0), None, Style::plain());
        assert!(all.contains("+line 2999\n") && !all.contains("shows all"), "what is named is shown whole");
    }
}
