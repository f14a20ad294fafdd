//! `aos inspect`.

use std::fmt::Write as _;

use aos_abi::process::{ProcessDetail, Workspace};
use aos_abi::{Pid, Timestamp};

use super::{Context, Exit, Failure, ago, clean, clean_line, cost_of, count, money, now, of, view};

/// Show everything about a process
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which
    pid: Pid,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let detail: ProcessDetail = cx.client()?.get(&view::process(self.pid)).await?;
        if cx.json {
            cx.document(&detail)?;
        } else {
            cx.print(&shown(&detail, now()))?;
        }
        Ok(Exit::Success)
    }
}

/// The process in lines.
pub(super) fn shown(detail: &ProcessDetail, now: Timestamp) -> String {
    let process = &detail.process;
    let mut text = String::new();
    let mut line = |label: &str, value: String| {
        // Only what the agent or a person wrote can hold more than one line.
        for (place, part) in clean(&value).lines().enumerate() {
            let _ = writeln!(text, "{:<10} {part}", if place == 0 { label } else { "" });
        }
    };
    line("process", format!("{} {}", process.pid, clean_line(&process.name)));
    line("state", view::state(process));
    if let Some(reason) = &process.reason {
        line("reason", reason.clone());
    }
    if let Some(question) = &process.question {
        line("asks", view::question(question));
        line("", format!("answer it with: aos send {} TEXT", process.pid));
    }
    if let Some(group) = &process.group {
        line("group", group.clone());
    }
    line("parent", process.parent.to_string());
    let pids: Vec<String> = detail.children.iter().map(Pid::to_string).collect();
    if !pids.is_empty() {
        line("children", pids.join(" "));
    }
    line("model", process.model.clone());
    let usage = &process.usage;
    line(
        "used",
        format!(
            "{}, {}, {}+{} tokens ({} cached), {}{}",
            of(usage.inferences, "inference"),
            of(usage.syscalls, "call"),
            count(usage.input_tokens),
            count(usage.output_tokens),
            count(usage.cached_input_tokens),
            cost_of(usage.cost_usd, usage.cost_unknown),
            if usage.cost_unknown { ", since a model has no price" } else { "" }
        ),
    );
    let budget = &process.budget;
    let left: Vec<String> = [
        budget.usd.zip(budget.usd_left).map(|(of, left)| format!("{} of {}", money(left), money(of))),
        budget.tokens.zip(budget.tokens_left).map(|(of, left)| format!("{} of {} tokens", count(left), count(of))),
        budget.calls.zip(budget.calls_left).map(|(of, left)| format!("{left} of {of} calls")),
        budget.ends_at.map(|at| format!("until {at}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    line("left", if left.is_empty() { "no limits of its own".into() } else { left.join(", ") });
    line("window", format!("{} of {} tokens", count(detail.window.tokens), count(detail.window.tokens_max)));
    line("started", format!("{} ({})", process.started_at, ago(process.started_at, now)));
    if let Some(at) = process.exited_at {
        line("ended", format!("{at} ({})", ago(at, now)));
    }
    line(
        "workspace",
        match &detail.workspace {
            Workspace::Home(pid) => format!("workspaces/{pid}"),
            Workspace::Folder(folder) => folder.clone(),
        },
    );
    match &detail.grants {
        None => line("grants", "what the policy's role grants".into()),
        Some(grants) if grants.is_empty() => line("grants", "none".into()),
        Some(grants) => line("grants", grants.join("\n")),
    }
    if !detail.labels.is_empty() {
        line("labels", detail.labels.join(", "));
    }
    for standing in &detail.standing {
        let (id, covers) = (&standing.id, &standing.covers);
        line("approved", format!("{id} {covers}, while it lives; `aos reject {id}` withdraws it"));
    }
    if let Some(pid) = detail.pipe_to {
        line("output", format!("to process {pid}"));
    }
    if detail.inbox > 0 {
        line("inbox", format!("{} unread", detail.inbox));
    }
    for timer in &detail.timers {
        line(
            "timer",
            format!("{} {}, next {}: {}", timer.timer_id, timer.schedule, timer.next_at, clean_line(&timer.prompt)),
        );
    }
    for path in &detail.webhooks {
        line("webhook", path.clone());
    }
    for watch in &detail.watches {
        line("watch", watch.clone());
    }
    line("role", detail.role.clone());
    if let Some(result) = view::result_text(process.result.as_ref()) {
        line("result", result);
    }
    text
}
