//! `aos proposals`: what waits for a person, and what was denied.
//!
//! What always holds: the list shows the beginning of each question, so that none buries the others; one that is named is
//! shown whole. A denial waits for nobody, so it is one line below the questions. What several of a tree ask in the very same
//! words is shown once, with the ids of all: each still has an answer of its own.

use std::collections::BTreeMap;

use aos_abi::api::{CallView, ProposalView};
use aos_abi::entry::{BoundFile, ProposalState, Verdict};
use aos_abi::process::ProcessView;
use aos_abi::{Pid, Timestamp};

use unicode_width::UnicodeWidthChar as _;

use super::table::{Column, Table};
use super::view::{self, question};
use super::{Context, Exit, Failure, Style, call, clean, clean_line, cut, duration, now};
use crate::client::Address;

/// So many lines of what would happen stand in the list.
const LINES_SHOWN: usize = 40;
/// And of why, which the process says.
const WHY_LINES_SHOWN: usize = 10;
/// And at most so many characters: a line has no bound.
const CHARS_SHOWN: usize = 8_000;
/// Grants in the line of a denial.
const WANTS_SHOWN: usize = 3;
/// Columns of these: names may be as long as whoever makes them up likes.
const WANTS_WIDTH: usize = 100;
/// Columns of the risk in the line of a denial.
const RISK_WIDTH: usize = 28;
/// The sign before each line: what is known of the risk, what would happen, why, what a yes is bound to, and why it is over.
const RISK: &str = "  risk: ";
pub(crate) const PREVIEW: &str = "  | ";
const WHY: &str = "  why: ";
const BOUND: &str = "  only while unchanged: ";
const UNBOUND: &str = "  not bound: ";
const RULE: &str = "  rule: ";
const WANTS: &str = "  wants: ";
const INNER: &str = "  in it: ";
const LED: &str = "  led there by: ";
const CLOSED: &str = "  closed: ";
const ENDED: &str = "  ended: ";
const SIGNS: [&str; 11] = [RISK, PREVIEW, WHY, BOUND, UNBOUND, RULE, WANTS, INNER, LED, CLOSED, ENDED];

/// List what waits for a person, and what was denied
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  aos proposals\n  aos proposals p3            all of what p3 would do\n  aos approve p3              also of one that was denied: the agent may make it then, once\n  aos reject p3 --why \"not on a Friday\"\n  aos undo p4\n\n\
Questions of agents stand below the list. They are no proposals: with --json, `aos ps` has the\n`question` of each, and `aos send` answers it."
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
        let client = cx.client()?;
        let mut proposals: Vec<ProposalView> = client.get(&address).await?;
        if let Some(id) = self.id.iter().find(|id| !proposals.iter().any(|proposal| proposal.id == **id)) {
            return Err(Failure::new(format!("there is no proposal {id}")).hint("`aos proposals --all` lists them"));
        }
        if !self.id.is_empty() {
            proposals.retain(|proposal| self.id.contains(&proposal.id));
        }
        if cx.json {
            cx.document(&proposals)?;
            return Ok(Exit::Success);
        }
        // What was changed under a yes stands there as what was asked.
        if self.id.is_empty() {
            proposals.retain(|proposal| proposal.under.is_none());
        }
        // For people, what agents ask waits beside what they want to do. It is no proposal, so programs find it where the help
        // says.
        let asking = if self.id.is_empty() { view::processes(&client, false, None).await? } else { Vec::new() };
        let (trees, questions) = (Trees::of(&asking), questions(&asking, cx.width, cx.out));
        if !questions.is_empty() && proposals.is_empty() {
            cx.print(&questions)?;
        } else if proposals.is_empty() {
            cx.note(if self.all {
                "there was no proposal yet"
            } else {
                "nothing waits for you; aos proposals --all shows what can be undone"
            });
        } else {
            let gap = if questions.is_empty() { "" } else { "\n" };
            let told = shown(&proposals, &trees, !self.id.is_empty(), now(), cx.width, cx.out);
            cx.print(&(told + gap + &questions))?;
        }
        Ok(Exit::Success)
    }
}

/// What processes ask and nobody has answered, each with the way to.
fn questions(processes: &[ProcessView], width: Option<usize>, style: Style) -> String {
    let told = processes.iter().filter_map(|process| {
        let asked: String =
            question(process.question.as_ref()?).lines().map(|line| format!("{PREVIEW}{line}\n")).collect();
        let head = style.bold(&format!("process {} asks", process.pid));
        let asked = broken(&clean(&asked), width);
        Some(format!("{head}\n{asked}  answer it with: aos send {} TEXT\n", process.pid))
    });
    told.collect::<Vec<_>>().join("\n")
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
        ProposalState::Denied => "denied",
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
        text.push_str(&format!("{BOUND}{}\n", named.join(", ")));
    }
    if let Some(unbound) = unbound {
        text.push_str(&format!("{UNBOUND}{}\n", clean_line(unbound)));
    }
    text
}

/// What led to a denied call, and what was denied to a command, each in a line.
fn within(proposal: &ProposalView) -> String {
    let led = proposal.led.iter().map(|led| format!("{LED}{}\n", clean_line(led)));
    let inner = proposal.inner.iter().map(|one| {
        let unknown = match one.name.as_str() {
            "FS_WRITE" => ", whatever it writes",
            "NET_SEND" => ", whatever it sends",
            _ => "",
        };
        format!("{INNER}{}{unknown}\n", clean_line(&said(one)))
    });
    led.chain(inner).collect()
}

/// A call to which a command led, whole: on what it is, and no more than that is known.
fn said(inner: &CallView) -> String {
    let text = |key: &str| inner.args[key].as_str().unwrap_or_default();
    let words = [inner.name.as_str(), text("method"), text("url"), text("path")];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// All that one should know before one answers: the risk, what would happen, why, and what a yes is bound to.
pub(crate) fn whole(proposal: &ProposalView, width: Option<usize>) -> String {
    let [risk, preview, why] = asked(proposal);
    let wants = match (proposal.grants.as_slice(), &proposal.closed) {
        ([], None) => String::new(),
        // What else is said to the call stands behind the rule that denies.
        (grants, None) => format!("{RULE}{}\n{WANTS}{}\n", clean_line(&proposal.rule), clean_line(&grants.join(", "))),
        (_, Some(why)) => format!("{RULE}{}\n{CLOSED}{}\n", clean_line(&proposal.rule), clean_line(why)),
    };
    let bound = bound(&proposal.files, proposal.unbound.as_deref());
    let ended: String = proposal.ended.iter().map(|why| format!("{ENDED}{}\n", clean_line(why))).collect();
    broken(&(risk + &preview + &why + &within(proposal) + &bound + &wants + &ended), width)
}

/// The risk, what would happen, and why. What is known stands before what the process says, and each line of what it says
/// has its sign, so that none looks like one of the daemon's.
fn asked(proposal: &ProposalView) -> [String; 3] {
    let risk = proposal.risk.as_deref().map(clean_line);
    [(RISK, risk.as_deref()), (PREVIEW, Some(proposal.preview.as_str())), (WHY, proposal.why.as_deref())].map(
        |(sign, said)| {
            said.into_iter().flat_map(str::lines).map(|line| clean(&format!("{sign}{line}\n")).into_owned()).collect()
        },
    )
}

/// Lines broken at the width, each piece with the sign of its line: what a terminal breaks begins with none.
fn broken(text: &str, width: Option<usize>) -> String {
    let pieces = |line| width.map_or_else(|| vec![String::from(line)], |width| pieces(line, width));
    text.lines().flat_map(pieces).map(|piece| piece + "\n").collect()
}

/// The pieces of one line, none wider than so many columns, each with the sign of the line.
pub(crate) fn pieces(line: &str, width: usize) -> Vec<String> {
    let sign = SIGNS.into_iter().find(|sign| line.starts_with(sign)).unwrap_or_default();
    // On a screen narrower than that there is no room for both.
    let sign = if sign.len() * 2 <= width { sign } else { "" };
    let mut pieces = Vec::new();
    let (mut piece, mut used) = (sign.to_owned(), sign.len());
    // A tab has no width of its own.
    for one in line[sign.len()..].chars().flat_map(|one| if one == '\t' { vec![' '; 4] } else { vec![one] }) {
        let wide = one.width().unwrap_or(0);
        if used + wide > width && piece.len() > sign.len() {
            pieces.push(std::mem::replace(&mut piece, sign.to_owned()));
            used = sign.len();
        }
        used += wide;
        piece.push(one);
    }
    pieces.push(piece);
    pieces
}

/// The first lines of a text, and in words how much more there is.
fn first(text: &str, lines: usize, id: &str) -> String {
    let end = text.split_inclusive('\n').take(lines).map(str::len).sum();
    let chars = text.char_indices().nth(CHARS_SHOWN).map_or(text.len(), |(at, _)| at);
    let (begun, rest) = text.split_at(chars.min(end));
    let cut = if begun.ends_with('\n') || rest.is_empty() { "" } else { "…\n" };
    match rest.lines().count() {
        0 => begun.to_owned(),
        1 => format!("{begun}{cut}  … 1 more line: aos proposals {id} shows all\n"),
        more => format!("{begun}{cut}  … {more} more lines: aos proposals {id} shows all\n"),
    }
}

/// The beginning of a question, how much more there is, and what a yes is bound to.
fn begun(proposal: &ProposalView, width: Option<usize>) -> String {
    let [risk, preview, why] = asked(proposal).map(|text| broken(&text, width));
    let id = clean_line(&proposal.id);
    let parts = [(risk, LINES_SHOWN), (preview, LINES_SHOWN), (why, WHY_LINES_SHOWN)];
    let text: String = parts.into_iter().map(|(text, lines)| first(&text, lines, &id)).collect();
    text + &broken(&bound(&proposal.files, proposal.unbound.as_deref()), width)
}

/// The tree that each process belongs to.
#[derive(Debug, Default)]
pub(super) struct Trees(BTreeMap<Pid, Pid>);

impl Trees {
    /// As far as these say.
    pub(super) fn of(processes: &[ProcessView]) -> Trees {
        Trees(processes.iter().map(|process| (process.pid, process.parent)).collect())
    }

    /// A process, its parent, and so on up to the person. A parent is older than its children, so this ends.
    pub(super) fn lineage(&self, pid: Pid) -> impl Iterator<Item = Pid> {
        std::iter::successors(Some(pid), |pid| self.0.get(pid).copied().filter(|parent| parent < pid))
    }

    /// The first of a tree; `None` of a process that nothing is known of.
    fn root(&self, pid: Pid) -> Option<Pid> {
        self.0.get(&pid)?;
        self.lineage(pid).filter(|pid| *pid != Pid::INIT).last()
    }
}

/// The same question of several of a tree, together: one that people are shown the same words of, by the same rule. All else
/// is alone.
fn alike<'p>(asked: &[&'p ProposalView], trees: &Trees) -> Vec<Vec<&'p ProposalView>> {
    let mut groups: Vec<Vec<&ProposalView>> = Vec::new();
    let mut known: BTreeMap<(&str, &str, Pid), usize> = BTreeMap::new();
    for one in asked {
        let waits = one.state == ProposalState::Pending && !one.shown.is_empty();
        let Some(root) = trees.root(one.pid).filter(|_| waits) else {
            groups.push(vec![one]);
            continue;
        };
        let group = *known.entry((&one.shown, &one.rule, root)).or_insert(groups.len());
        match groups.get_mut(group) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// Ids in a row, as after `aos approve`.
fn ids(group: &[&ProposalView]) -> String {
    group.iter().map(|one| clean_line(&one.id)).collect::<Vec<_>>().join(" ")
}

/// Whose they are, in words.
fn whose(group: &[&ProposalView]) -> String {
    match group {
        [one] => format!("{} of process {}", one.id, one.pid),
        several => {
            let pids: Vec<String> = several.iter().map(|one| one.pid.to_string()).collect();
            format!("{} of processes {}", ids(several), pids.join(" "))
        }
    }
}

/// A table of them, and below it the beginning of each question, or all of it.
pub(super) fn shown(
    proposals: &[ProposalView],
    trees: &Trees,
    in_whole: bool,
    now: Timestamp,
    width: Option<usize>,
    style: Style,
) -> String {
    let (denied, asked): (Vec<&ProposalView>, Vec<&ProposalView>) = proposals.iter().partition(|one| is_denial(one));
    let mut table = Table::new(&[
        Column::text("ID"),
        Column::number("PID"),
        Column::text("STATE"),
        Column::number("LEFT"),
        Column::text("RULE").dispensable(),
        Column::text("CALL"),
    ]);
    let groups = alike(&asked, trees);
    for group in &groups {
        let Some(proposal) = group.first() else { continue };
        let more = if group.len() > 1 { format!(" +{}", group.len() - 1) } else { String::new() };
        let until = group.iter().map(|one| one.expires_at).min().unwrap_or(proposal.expires_at);
        // What was carried out is listed for as long as it can be taken back.
        let open = match proposal.state {
            ProposalState::Pending => true,
            ProposalState::Executed => until > now,
            _ => false,
        };
        table.row([
            format!("{}{more}", proposal.id),
            format!("{}{more}", proposal.pid),
            state(proposal.state).to_owned(),
            if open { duration(until.millis_since(now) / 1_000) } else { "-".into() },
            proposal.rule.clone(),
            call(&proposal.call.name, &proposal.call.args),
        ]);
    }
    let mut text = if asked.is_empty() { String::new() } else { table.shown(width, style) };
    let begin = |text: &mut String, group: &[&ProposalView]| {
        let Some(proposal) = group.first() else { return };
        text.push_str(&format!("\n{}\n", style.bold(&whose(group))));
        text.push_str(&if in_whole { whole(proposal, width) } else { begun(proposal, width) });
        if group.len() > 1 {
            text.push_str(&format!("  the same {} times; a yes to all: aos approve {}\n", group.len(), ids(group)));
        }
    };
    let waits = |group: &[&ProposalView]| group.iter().any(|one| one.state == ProposalState::Pending);
    let told = groups.iter().filter(|group| in_whole || waits(group));
    told.for_each(|group| begin(&mut text, group));
    let (closed, open): (Vec<_>, Vec<_>) = denied.iter().copied().partition(|one| one.closed.is_some());
    let tables = [denials(&open, now, width, style), closed_denials(&closed, now, width, style)];
    for (those, table) in [&open, &closed].into_iter().zip(tables) {
        if !those.is_empty() {
            let gap = if text.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}{table}"));
            those.iter().filter(|_| in_whole).for_each(|proposal| begin(&mut text, &[*proposal]));
        }
    }
    text
}

/// Whether it is a denial, open or lifted for a call that was not made yet.
pub(crate) fn is_denial(proposal: &ProposalView) -> bool {
    let open = matches!(proposal.state, ProposalState::Denied | ProposalState::Approved);
    open && proposal.verdict == Verdict::Deny
}

/// What a denied call wants: the first of it where it is much, which a command may want.
fn wanted(grants: &[String]) -> String {
    let more = grants.len().saturating_sub(WANTS_SHOWN);
    let first = grants[..grants.len() - more].join(", ");
    let first = cut(&clean_line(&first), WANTS_WIDTH).into_owned();
    if more == 0 { first } else { format!("{first} and {more} more") }
}

/// What was denied and no yes lifts, a line each.
fn closed_denials(denied: &[&ProposalView], now: Timestamp, width: Option<usize>, style: Style) -> String {
    let columns =
        [Column::text("ID"), Column::number("PID"), Column::number("LEFT"), Column::text("RULE"), Column::text("CALL")];
    let mut table = Table::new(&columns);
    for one in denied {
        let left = duration(one.expires_at.millis_since(now) / 1_000);
        let rule = cut(&clean_line(&one.rule), WANTS_WIDTH).into_owned();
        table.row([one.id.clone(), one.pid.to_string(), left, rule, call(&one.call.name, &one.call.args)]);
    }
    let head = style.bold("denied, and no yes lifts it; aos proposals ID says why");
    format!("{head}\n{}", table.shown(width, style))
}

/// What was denied and a yes lifts, a line each: nobody waits for it.
fn denials(denied: &[&ProposalView], now: Timestamp, width: Option<usize>, style: Style) -> String {
    let risky = denied.iter().any(|one| one.risk.is_some());
    // What is known of the risk comes last but for the call, which is cut first where there is no room.
    let risk = risky.then_some(Column::text("RISK"));
    let columns = [
        Column::text("ID"),
        Column::number("PID"),
        Column::text("STATE"),
        Column::number("LEFT"),
        Column::text("RULE").dispensable(),
        Column::text("WANTS"),
    ];
    let mut table = Table::new(&columns.into_iter().chain(risk).chain([Column::text("CALL")]).collect::<Vec<_>>());
    for one in denied {
        let known = || cut(&clean_line(one.risk.as_deref().unwrap_or("-")), RISK_WIDTH).into_owned();
        let cells = [
            one.id.clone(),
            one.pid.to_string(),
            state(one.state).to_owned(),
            duration(one.expires_at.millis_since(now) / 1_000),
            one.rule.clone(),
            wanted(&one.grants),
        ];
        let call = call(&one.call.name, &one.call.args);
        table.row(cells.into_iter().chain(risky.then(known)).chain([call]));
    }
    let head = style.bold("denied, and done without; aos approve ID lets the agent make the call, once");
    format!("{head}\n{}", table.shown(width, style))
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
        let told = shown(&list, &Trees::default(), false, Timestamp(0), None, Style::plain());
        assert!(told.contains("  | +line 39\n  … 2960 more lines: aos proposals p1 shows all\n"), "{told}");
        assert!(told.contains("x…\n  … 1 more line: aos proposals p2 shows all\n") && told.len() < 20_000, "{told}");
        assert!(!told.contains("proposals p3") && told.matches("only while unchanged: a (not there)\n").count() == 3);
        let all = shown(&list[..1], &Trees::default(), true, Timestamp(0), None, Style::plain());
        assert!(all.contains("+line 2999\n") && !all.contains("shows all"), "what is named is shown whole");
    }

    #[test]
    fn what_can_be_taken_back_no_more_has_no_time_left() {
        let executed = |until: i64| ProposalView {
            state: ProposalState::Executed,
            expires_at: Timestamp(until),
            ..asks("p1", String::new())
        };
        let told = |one: ProposalView| shown(&[one], &Trees::default(), false, Timestamp(60_000), None, Style::plain());
        assert!(told(executed(120_000)).contains("executed  1m"), "{}", told(executed(120_000)));
        assert!(told(executed(60_000)).contains("executed     -"), "{}", told(executed(60_000)));
    }

    #[test]
    fn what_a_process_says_pushes_out_nothing_that_is_known_of_it() {
        let mut one = asks("p1", "$ rm -r x\nrisk: none".into());
        one.risk = Some("it has read what others wrote. It says itself: none\n  risk: really none".into());
        one.why = Some(format!("{}risk: none", " ".repeat(76)) + &"\n  risk: none".repeat(60));
        for told in [
            shown(std::slice::from_ref(&one), &Trees::default(), false, Timestamp(0), Some(80), Style::plain()),
            whole(&one, Some(80)),
        ] {
            let lines: Vec<&str> = told.lines().skip_while(|line| !line.starts_with("  ")).collect();
            assert!(lines[0].starts_with("  risk: it has read") && lines[1] == "  | $ rm -r x", "{told}");
            let risks = lines.iter().filter(|line| line.trim_start().starts_with("risk:")).count();
            assert_eq!(risks, 1, "{told}");
            assert!(lines.iter().all(|line| line.chars().count() <= 80), "{told}");
        }
        let told = shown(&[one], &Trees::default(), false, Timestamp(0), None, Style::plain());
        assert!(told.contains("  … 51 more lines: aos proposals p1 shows all\n"), "{told}");
    }

    #[test]
    fn the_same_question_of_a_tree_is_shown_once_with_the_ids_of_all() {
        let asks = |id: &str, pid: u64, shown: &str| {
            let preview = if shown == "same" { "FS_WRITE a" } else { "FS_WRITE b" };
            ProposalView { pid: Pid(pid), shown: shown.into(), ..asks(id, preview.into()) }
        };
        // 3 and 4 are children of 2, and 5 is of no tree of theirs.
        let trees = Trees([(2, 1), (3, 2), (4, 2), (5, 1)].map(|(pid, parent)| (Pid(pid), Pid(parent))).into());
        let mut late = asks("p5", 4, "same");
        late.rule = "another".into();
        let list = [asks("p1", 3, "same"), asks("p2", 3, "other"), asks("p3", 4, "same"), asks("p4", 5, "same"), late];
        let told = shown(&list, &trees, false, Timestamp(0), None, Style::plain());
        let rows: Vec<&str> = told.lines().skip(1).take(4).map(|line| line.split("  ").next().unwrap()).collect();
        assert_eq!(rows, ["p1 +1", "p2", "p4", "p5"], "{told}");
        let once = "p1 p3 of processes 3 4\n  | FS_WRITE a\n  only while unchanged: a (not there)\n  the same 2 times; a yes to \
                    all: aos approve p1 p3\n";
        assert!(told.contains(once), "{told}");
        assert_eq!(told.matches("| FS_WRITE a\n").count(), 3, "{told}");
        assert!(!shown(&list, &Trees::default(), false, Timestamp(0), None, Style::plain()).contains("the same"));
    }
}
