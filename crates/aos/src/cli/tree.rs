//! `aos tree`.

use std::collections::BTreeMap;

use aos_abi::Pid;
use aos_abi::process::ProcessView;

use super::{Context, Exit, Failure, clean_line, cut, view};

/// Show the processes that live below their parents
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The exited ones too
    #[arg(short, long)]
    all: bool,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let processes = view::processes(&cx.client()?, self.all, None).await?;
        if cx.json {
            cx.document(&nested(&processes))?;
        } else if processes.is_empty() {
            cx.note("no process lives; aos tree -a shows those that ended");
        } else {
            let width = cx.width.unwrap_or(usize::MAX);
            let lines: String = lines(&processes).iter().map(|line| format!("{}\n", cut(line, width))).collect();
            cx.print(&lines)?;
        }
        Ok(Exit::Success)
    }
}

type Below<'p> = BTreeMap<Pid, Vec<&'p ProcessView>>;

/// The processes by parent. A process whose parent is not in the list stands at the top.
fn below(processes: &[ProcessView]) -> Below<'_> {
    let listed: std::collections::BTreeSet<Pid> = processes.iter().map(|process| process.pid).collect();
    let mut below = Below::new();
    for process in processes {
        let parent = if listed.contains(&process.parent) { process.parent } else { Pid::INIT };
        below.entry(parent).or_default().push(process);
    }
    below
}

/// The tree in lines.
pub(super) fn lines(processes: &[ProcessView]) -> Vec<String> {
    fn walk(below: &Below<'_>, of: Pid, indent: &str, lines: &mut Vec<String>) {
        let children = below.get(&of).map_or(&[][..], Vec::as_slice);
        for (place, child) in children.iter().enumerate() {
            let last = place + 1 == children.len();
            let (branch, deeper) = match (of == Pid::INIT, last) {
                (true, _) => ("", ""),
                (false, false) => ("├─ ", "│  "),
                (false, true) => ("└─ ", "   "),
            };
            lines.push(format!("{indent}{branch}{} {} [{}]", child.pid, clean_line(&child.name), view::state(child)));
            walk(below, child.pid, &format!("{indent}{deeper}"), lines);
        }
    }
    let mut lines = Vec::new();
    walk(&below(processes), Pid::INIT, "", &mut lines);
    lines
}

/// The tree as JSON: each process with its `children`.
fn nested(processes: &[ProcessView]) -> Vec<serde_json::Value> {
    fn walk(below: &Below<'_>, of: Pid) -> Vec<serde_json::Value> {
        let children = below.get(&of).map_or(&[][..], Vec::as_slice);
        children
            .iter()
            .map(|child| {
                let mut value = serde_json::to_value(child).expect("processes are plain data with string keys");
                value["children"] = walk(below, child.pid).into();
                value
            })
            .collect()
    }
    walk(&below(processes), Pid::INIT)
}
