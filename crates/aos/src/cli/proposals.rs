//! `aos proposals`.

use aos_abi::Timestamp;
use aos_abi::api::ProposalView;
use aos_abi::entry::{BoundFile, ProposalState};

use super::table::{Column, Table};
use super::{Context, Exit, Failure, Style, call, clean, clean_line, duration, now};
use crate::client::Address;

/// List the calls that wait for a person
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  aos proposals\n  aos approve p3\n  aos reject p3 --why \"not on a Friday\"\n  aos undo p4"
)]
pub struct Args {
    /// Also those that are over, and those that were carried out and can still be undone
    #[arg(short, long)]
    all: bool,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let address = Address::of("/v1/proposals");
        let address = if self.all { address.with("all", true) } else { address };
        let proposals: Vec<ProposalView> = cx.client()?.get(&address).await?;
        if cx.json {
            cx.document(&proposals)?;
        } else if proposals.is_empty() {
            cx.note(if self.all {
                "there was no proposal yet"
            } else {
                "nothing waits for you; aos proposals --all shows what can be undone"
            });
        } else {
            cx.print(&shown(&proposals, now(), cx.width, cx.out))?;
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
    let mut text = String::new();
    for (label, value) in
        [("why", proposal.why.as_deref()), ("risk", proposal.risk.as_deref()), ("", Some(proposal.preview.as_str()))]
    {
        for line in value.into_iter().flat_map(str::lines) {
            text.push_str(&clean(&format!("  {label}{}{line}\n", if label.is_empty() { "" } else { ": " })));
        }
    }
    text.push_str(&bound(&proposal.files, proposal.unbound.as_deref()));
    text
}

fn shown(proposals: &[ProposalView], now: Timestamp, width: Option<usize>, style: Style) -> String {
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
    // What one is asked to say yes to is shown whole.
    for proposal in proposals.iter().filter(|proposal| proposal.state == ProposalState::Pending) {
        text.push_str(&format!("\n{}\n", style.bold(&format!("{} of process {}", proposal.id, proposal.pid))));
        text.push_str(&whole(proposal));
    }
    text
}
