//! What a process does, told in lines: one for each call and one for each result.
//!
//! Start at [`Narrator::tell`], which is pure. What always holds: every line is clean (see [`super::clean`]) and at most as
//! wide as asked; text that is quoted from the agent never looks like a line of ours, since each of its lines is led by a bar.

use std::collections::BTreeSet;

use aos_abi::entry::{
    CircuitState, InferenceOutcome, Lifted, Outcome, PROCESS_ENDED, ProposalState, ServedOutcome, Verdict,
};
use aos_abi::inference::{Failure, FailureKind};
use aos_abi::process::UsageView;
use aos_abi::{Body, CallId, Entry, Name, Timestamp, Usd, limits};
use serde_json::Value;

use super::clean::{clean, clean_line, cut};
use super::is_of_role;
use super::style::{Style, clock, cost, count, of};
use crate::said::{Said, said};

/// How a moment is written before a line.
pub type Times = fn(Timestamp) -> String;

/// Tells what one process does.
#[derive(Clone, Debug)]
pub struct Narrator {
    style: Style,
    width: usize,
    times: Option<Times>,
    inferences: u64,
    tokens: (u64, u64),
    cost: Usd,
    /// Something of that has no price.
    unpriced: bool,
    /// The call that was told last: a result without a name is its.
    last: Option<CallId>,
    /// Denials that were told of and that nobody has lifted.
    denied: BTreeSet<String>,
}

impl Narrator {
    /// Lines of at most `width` columns, each led by its time where `times` says how that is written.
    #[must_use]
    pub fn new(style: Style, width: usize, times: Option<Times>) -> Narrator {
        Narrator {
            style,
            width: width.max(40),
            times,
            inferences: 0,
            tokens: (0, 0),
            cost: Usd::ZERO,
            unpriced: false,
            last: None,
            denied: BTreeSet::new(),
        }
    }

    /// The same about a process that has used so much before.
    #[must_use]
    pub fn after(mut self, usage: &UsageView) -> Narrator {
        self.inferences = usage.inferences;
        self.tokens = (usage.input_tokens, usage.output_tokens);
        (self.cost, self.unpriced) = (usage.cost_usd, usage.cost_unknown);
        self
    }

    /// The lines for one entry; none where there is nothing to tell.
    pub fn tell(&mut self, entry: &Entry) -> Vec<String> {
        let lines = self.told(&entry.body, entry);
        let Some(times) = self.times else { return lines };
        let time = self.style.dim(&times(entry.at));
        lines.into_iter().map(|line| format!("{time} {line}")).collect()
    }

    /// What it used so far, in words.
    #[must_use]
    pub fn used(&self) -> String {
        let (input, output) = self.tokens;
        let cost = match cost(self.cost, self.unpriced) {
            unknown if self.unpriced => format!("cost {unknown}"),
            known => known,
        };
        format!("{}, {}+{} tokens, {cost}", of(self.inferences, "inference"), count(input), count(output))
    }

    fn told(&mut self, body: &Body, entry: &Entry) -> Vec<String> {
        let style = self.style;
        match body {
            Body::Spawned(spec) => {
                let born = style.dim(&self.fit(&format!("process {} on model {}", entry.pid, spec.model)));
                std::iter::once(born).chain(self.too_long("task", spec.task.as_deref().unwrap_or_default())).collect()
            }
            Body::Input { text, eof, untrusted, .. } => {
                let end = if *eof { " (end of input)" } else { "" };
                let by = if *untrusted { ", written by others" } else { "" };
                let told = self.lead("←", &format!("input{by}: {}{end}", clean_line(text)));
                std::iter::once(told).chain(self.too_long("input", text)).collect()
            }
            Body::Message { from_pid, content, .. } => {
                vec![self.lead("←", &format!("message from {from_pid}: {}", clean_line(content)))]
            }
            Body::Timer { prompt, missed, .. } => {
                let late = match *missed {
                    0 => String::new(),
                    1..=limits::MISSED_COUNTED_MAX => format!(" (and {missed} missed)"),
                    _ => format!(" (and more than {} missed)", limits::MISSED_COUNTED_MAX),
                };
                vec![self.lead("←", &format!("timer{late}: {}", clean_line(prompt)))]
            }
            Body::Webhook(request) => {
                vec![self.lead("←", &format!("webhook {} {}", clean_line(&request.method), clean_line(&request.path)))]
            }
            Body::Watch { paths, .. } => {
                let paths: Vec<String> = paths.iter().map(|path| clean_line(path)).collect();
                vec![self.lead("←", &format!("changed: {}", paths.join(", ")))]
            }
            Body::InferenceCompleted { outcome, .. } => self.answered(outcome),
            Body::Syscall { call_id, name, args } => {
                self.last = Some(call_id.clone());
                vec![self.lead(&style.cyan("→"), &call(name, args))]
            }
            Body::Verdict { verdict, rule, .. } => self.verdict(*verdict, rule),
            // Calls that only read run side by side: which one this is of, its name says.
            Body::Result { call_id, name, outcome, .. } => {
                let whose = self.last.as_ref().is_some_and(|last| last != call_id).then_some(name.as_str());
                vec![self.result(name, whose, outcome)]
            }
            Body::Proposal { id, state, proposal, why } => {
                if self.ends_unasked(id, *state, why.as_deref()) {
                    return vec![];
                }
                self.proposal(id, *state, proposal.as_deref(), why.as_deref())
            }
            Body::Signal { signal, from_pid, .. } => vec![self.lead("←", &format!("signal {signal} from {from_pid}"))],
            Body::GroupSignal { group, signal, .. } => {
                vec![self.lead("←", &format!("signal {signal} to the group {}", clean_line(group)))]
            }
            Body::Unscheduled { timer_id } => {
                vec![self.lead("←", &format!("timer {} cancelled by a person", clean_line(timer_id)))]
            }
            Body::Charged { usage, cost_usd, why, .. } => {
                self.tokens.0 += usage.input_tokens;
                self.tokens.1 += usage.output_tokens;
                self.cost = self.cost.plus(cost_usd.unwrap_or(Usd::ZERO));
                self.unpriced |= cost_usd.is_none();
                let most = cost(cost_usd.unwrap_or(Usd::ZERO), cost_usd.is_none());
                let why = why.as_deref().map(|why| format!("charged {most} as an estimate, the most it can be: {why}"));
                why.iter().map(|why| style.dim(&self.fit(&clean_line(why)))).collect()
            }
            Body::NearlySpent(budget) => vec![self.lead(&style.yellow("!"), &format!("nearly spent: {budget}"))],
            Body::Compacted { tokens: (before, after), .. } => {
                let text = format!(
                    "the oldest turns gave way to a summary: {} tokens became {}",
                    count(*before),
                    count(*after)
                );
                vec![style.dim(&self.fit(&text))]
            }
            Body::Forked { from_pid, from_lsn, .. } => {
                vec![
                    style.dim(
                        &self.fit(&format!("process {} from the past of {from_pid}, up to {from_lsn}", entry.pid)),
                    ),
                ]
            }
            Body::Lifted { id, reach, call, .. } => {
                let reach = match reach {
                    Lifted::Once => "once",
                    Lifted::Process => "from now on",
                    Lifted::Role => "by the policy from now on",
                };
                vec![self.lead("←", &format!("{} may be done {reach}: {}", clean_line(id), clean_line(call)))]
            }
            Body::Reaped { children } => {
                let pids: Vec<String> = children.iter().map(ToString::to_string).collect();
                let text = format!("put away, since nobody waited for them: {}", pids.join(", "));
                vec![style.dim(&self.fit(&text))]
            }
            Body::Labelled { labels } => vec![style.dim(&self.fit(&format!("it has seen {}", labels.join(", "))))],
            Body::Routed { model, was, why } => {
                let from = was.as_ref().map(|was| format!("from {was} ")).unwrap_or_default();
                vec![style.dim(&self.fit(&format!("{from}to the model {model}: {}", clean_line(why))))]
            }
            Body::Hedged { model, why, .. } => {
                let text = format!("no word yet, so the model {model} is asked too: {}", clean_line(why));
                vec![style.dim(&self.fit(&text))]
            }
            Body::Circuit { of, state, until, why } => {
                let until = until.map(|until| format!(" until {until}")).unwrap_or_default();
                let why = if why.is_empty() { String::new() } else { format!(": {}", clean_line(why)) };
                let text = match state {
                    CircuitState::Open => format!("{of} failed too often and is left alone{until}{why}"),
                    CircuitState::Quota => format!("the quota of {of} is used up{until}{why}"),
                    CircuitState::HalfOpen => format!("{of} is tried again"),
                    CircuitState::Closed => format!("{of} answers again"),
                };
                vec![self.lead(&style.yellow("!"), &text)]
            }
            Body::Stopped { reason, until } => {
                let what = until.map_or("stopped".to_owned(), |until| format!("waits until {until}"));
                vec![self.lead(&style.yellow("!"), &format!("{what}: {}", clean_line(reason)))]
            }
            Body::Exited { exit_code, reason, awaited, .. } => {
                let sign = if *exit_code == 0 { style.green("■") } else { style.red("■") };
                let end = format!("exit {exit_code}, {}: {}", clean_line(reason), self.used());
                let lost = (!awaited.is_empty()).then(|| {
                    let what = clean_line(&awaited.join(", "));
                    let text = format!(
                        "nobody will hear of {what}: it ended with its answer; `aos spawn` starts one that stays"
                    );
                    self.lead(&style.yellow("!"), &text)
                });
                lost.into_iter().chain([self.lead(&sign, &end)]).collect()
            }
            Body::Keyed(key) => {
                let owner = key.owner.as_deref().map(|owner| format!(" of {}", clean_line(owner))).unwrap_or_default();
                vec![self.lead("←", &format!("a key{owner}"))]
            }
            Body::Asked(asked) => {
                let tokens = count(asked.input_tokens);
                let more = match asked.more {
                    0 => String::new(),
                    more => format!("; {} before it were refused like others", count(more)),
                };
                let model = clean_line(&asked.model);
                vec![self.lead("←", &format!("request {} to {model}, about {tokens} tokens{more}", asked.request))]
            }
            Body::Withdrawn { request } => vec![self.lead("←", &format!("request {request} was given up"))],
            Body::Refused { request, error } => {
                let text = format!("request {request} refused: {}", clean_line(&error.message));
                vec![self.lead(&style.yellow("!"), &text)]
            }
            Body::Served { outcome, latency_ms, .. } => vec![self.served(outcome, *latency_ms)],
            Body::Faulted(what) => {
                let text = format!("the kernel failed over it, and set it aside: {}", clean_line(&what.why));
                vec![self.lead(&style.red("✗"), &text)]
            }
            Body::Changed(changed) => self.changed(changed).into_iter().collect(),
            Body::InferenceStarted { .. }
            | Body::Booted { .. }
            | Body::Configured(_)
            | Body::Measured(_)
            | Body::Tick
            | Body::Ahead { .. }
            | Body::Rested { .. }
            | Body::Silent { .. }
            | Body::Budgeted { .. }
            | Body::Requested(_)
            | Body::Examined(_)
            | Body::Pruned { .. } => vec![],
        }
    }

    /// That a change cannot be taken back, where there was something to.
    fn changed(&self, changed: &aos_abi::entry::Changed) -> Option<String> {
        let lost = changed.lost.as_deref().filter(|_| !changed.changes.is_empty() && changed.undoes.is_none());
        let lost = lost.filter(|lost| *lost != aos_abi::entry::Changed::OF_A_COPY)?;
        Some(self.lead(&self.style.yellow("!"), &format!("cannot be undone: {}", clean_line(lost))))
    }

    fn served(&mut self, outcome: &ServedOutcome, latency_ms: u64) -> String {
        match outcome {
            ServedOutcome::Answered { usage, whole } => {
                self.inferences += 1;
                let cut = if *whole { "" } else { ", broken off" };
                let (input, output) = (count(usage.input_tokens), count(usage.output_tokens));
                self.lead("→", &format!("answered in {latency_ms} ms: {input} + {output} tokens{cut}"))
            }
            ServedOutcome::Failed { failure } => self.lead(&self.style.yellow("!"), &failed(failure)),
        }
    }

    fn answered(&mut self, outcome: &InferenceOutcome) -> Vec<String> {
        match outcome {
            InferenceOutcome::Failed { failure } => {
                let hint = failure.hint.as_deref().map(|hint| self.lead("  try:", &clean_line(hint)));
                std::iter::once(self.lead(&self.style.yellow("!"), &failed(failure))).chain(hint).collect()
            }
            InferenceOutcome::Answered(reply) => {
                self.inferences += 1;
                // What comes without a call is the result or the output, which is shown elsewhere.
                match said(reply) {
                    Said { text, calls: true } => self.quoted(&text),
                    Said { calls: false, .. } => vec![],
                }
            }
        }
    }

    /// Text of the agent, each line led by a bar.
    #[must_use]
    pub fn quoted(&self, text: &str) -> Vec<String> {
        let bar = self.style.dim("│");
        clean(text.trim())
            .lines()
            .map(|line| format!("{bar} {}", self.style.dim(&line.replace('\t', "    "))))
            .collect()
    }

    fn verdict(&self, verdict: Verdict, rule: &str) -> Vec<String> {
        let rule = clean_line(rule);
        match verdict {
            Verdict::Allow => vec![],
            Verdict::Hold => vec![self.lead(&self.style.yellow("  …"), &format!("held by {rule}"))],
            Verdict::Ask => vec![self.lead(&self.style.yellow("  ?"), &format!("a person is asked, by {rule}"))],
            Verdict::Deny => vec![self.lead(&self.style.red("  ⊘"), &format!("denied by {rule}"))],
        }
    }

    /// `whose` names the call where its line is not the last.
    fn result(&self, name: &str, whose: Option<&str>, outcome: &Outcome) -> String {
        let of = |words: String| whose.map_or(words.clone(), |call| format!("{}: {words}", clean_line(call)));
        match outcome {
            // The call went well; the command did not.
            Outcome::Success { result } if name == "EXEC_CMD" && result["exit_code"] != 0 => {
                self.lead(&self.style.red("  ✗"), &of(outcome_in_words(name, result)))
            }
            Outcome::Success { result } => self.lead(&self.style.green("  ✓"), &of(outcome_in_words(name, result))),
            Outcome::Error { error } => {
                let hint = error.hint.as_deref().map(|hint| format!("; {hint}")).unwrap_or_default();
                self.lead(&self.style.red("  ✗"), &of(clean_line(&format!("{}: {}{hint}", error.code, error.message))))
            }
        }
    }

    /// What a person who said too much at once has to know: the model does not see all of it.
    fn too_long(&self, what: &str, text: &str) -> Option<String> {
        let most = aos_context::PERSON_TEXT_BYTES;
        (text.len() > most).then(|| {
            let words = format!(
                "of this {what} of {} KiB the model is shown {} at most; put it into a file instead",
                text.len() >> 10,
                most >> 10
            );
            self.lead(&self.style.yellow("!"), &words)
        })
    }

    /// Whether it is no more than that a denial, which nobody has lifted, is over with its process: of each of them the last lines
    /// of a run would tell, though nothing came of any.
    fn ends_unasked(&mut self, id: &str, state: ProposalState, why: Option<&str>) -> bool {
        match state {
            ProposalState::Denied => {
                self.denied.insert(id.to_owned());
                false
            }
            _ => self.denied.remove(id) && state == ProposalState::Expired && why == Some(PROCESS_ENDED),
        }
    }

    fn proposal(
        &self,
        id: &str,
        state: ProposalState,
        proposal: Option<&aos_abi::entry::Proposal>,
        why: Option<&str>,
    ) -> Vec<String> {
        let of = proposal.map(|p| format!(": {}", call(p.name.as_str(), &p.args))).unwrap_or_default();
        let because = why.filter(|why| !why.is_empty()).map(|why| format!(", {}", clean_line(why))).unwrap_or_default();
        let words = match state {
            ProposalState::Pending => return vec![self.lead(&self.style.yellow("?"), &format!("proposal {id}{of}"))],
            ProposalState::Denied => {
                let id = clean_line(id);
                let lead = |words: &str| self.lead(&self.style.dim("  ?"), words);
                if let Some((denied, why)) = proposal.and_then(|denied| Some((denied, denied.closed.as_deref()?))) {
                    let listed = lead(&format!("listed as {id}; {}", clean_line(why)));
                    let gives = format!("`aos approve {id} --for role` shows that, and with --yes puts it there");
                    let given = is_given_to_a_role(denied).then(|| lead(&gives));
                    return std::iter::once(listed).chain(given).collect();
                }
                let once = format!("`aos approve {id}` would let it be done");
                let after = proposal.and_then(|denied| for_the_next(&id, denied));
                return std::iter::once(lead(&once)).chain(after.as_deref().map(lead)).collect();
            }
            ProposalState::Approved => "approved",
            ProposalState::Standing => "approved for the process",
            ProposalState::Rejected => "rejected",
            ProposalState::Expired if because.is_empty() => "expired: nobody answered in time",
            ProposalState::Expired => "expired",
            ProposalState::Executed => match proposal.filter(|proposal| proposal.verdict == Verdict::Allow) {
                // The call itself was told in the line before.
                Some(undoable) => {
                    let words =
                        format!("until {} `aos undo {}` takes it back", clock(undoable.expires_at), clean_line(id));
                    return vec![self.lead(&self.style.dim("  ↶"), &words)];
                }
                // What comes of it is told by its result: files may have changed since the yes.
                None => "goes ahead",
            },
            ProposalState::Undone => "undone",
            ProposalState::Vetoed => "vetoed",
        };
        vec![self.lead("  •", &format!("proposal {} {words}{because}{of}", clean_line(id)))]
    }

    fn lead(&self, sign: &str, text: &str) -> String {
        format!("{sign} {}", self.fit(text))
    }

    fn fit(&self, text: &str) -> String {
        // Room for the sign and the time.
        let time = self.times.map_or(0, |times| times(Timestamp(0)).len() + 1);
        cut(text, self.width.saturating_sub(4 + time)).into_owned()
    }
}

/// A call on one line: its name and what matters most of its arguments.
#[must_use]
pub fn call(name: &str, args: &Value) -> String {
    const MAIN: [&str; 15] = [
        "cmd", "path", "url", "query", "pattern", "key", "question", "task", "text", "content", "from", "prompt",
        "name", "seconds", "pid",
    ];
    let main = MAIN.iter().find_map(|key| args.get(key));
    let text = match main.unwrap_or(args) {
        Value::String(text) => text.clone(),
        Value::Object(fields) if fields.is_empty() => String::new(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    clean_line(format!("{name} {text}").trim_end())
}

/// What a call came to, in a few words.
/// Why there is no answer. What the policy keeps here is no failure of the model.
fn failed(failure: &Failure) -> String {
    let message = clean_line(&failure.message);
    match failure.kind {
        FailureKind::Withheld => message,
        _ => format!("the model failed: {message}"),
    }
}

fn outcome_in_words(name: &str, result: &Value) -> String {
    let number = |key: &str| result.get(key).and_then(Value::as_u64);
    let items = |key: &str| result.get(key).and_then(Value::as_array).map(|all| all.len() as u64);
    let text = |key: &str| result.get(key).and_then(Value::as_str);
    let words = match name {
        "FS_READ" => number("size").map(|size| of(size, "byte")),
        "FS_WRITE" => number("bytes").map(|bytes| of(bytes, "byte")),
        "FS_EDIT" => text("diff").map(|diff| {
            // Behind the names of the file before and after.
            let count = |sign: char| diff.lines().skip(2).filter(|line| line.starts_with(sign)).count();
            format!("+{} -{} lines", count('+'), count('-'))
        }),
        "FS_LIST" => items("entries").map(|count| of(count, "entry")),
        "FS_SEARCH" => items("matches").map(|count| of(count, "match")),
        "MEM_READ" => items("hits").map(|count| of(count, "hit")),
        "MEM_WRITE" => text("id").map(str::to_owned),
        "MEM_FORGET" => number("forgotten").map(|count| format!("{count} forgotten")),
        "SEND_MSG" => text("message_id").map(str::to_owned),
        "RECV_MSG" => items("messages").map(|count| of(count, "message")),
        "ASK_USER" => text("answer").map(str::to_owned),
        "SYS_SCHEDULE" => text("timer_id").zip(text("next_at")).map(|(timer, at)| format!("{timer}, next at {at}")),
        "FS_WATCH" => text("watch_id").map(str::to_owned),
        "SYS_REGISTER_WEBHOOK" => text("url").map(str::to_owned),
        "SLEEP" => result.get("slept_s").and_then(Value::as_f64).map(|seconds| {
            let early = text("interrupted").map(|why| format!(", woken early: {why}")).unwrap_or_default();
            format!("{seconds:.1} s{early}")
        }),
        "WAIT" => number("pid").zip(result.get("exit_code")).map(|(pid, code)| format!("process {pid}: exit {code}")),
        "SYS_READ_STDIN" if result["eof"] == true => Some("end of input".to_owned()),
        "SYS_READ_STDIN" => text("text").map(str::to_owned),
        "NET_FETCH" | "NET_SEND" => number("status").map(|status| format!("status {status}")),
        "SPAWN_AGENT" => number("pid").map(|pid| format!("process {pid}")),
        "EXEC_CMD" => result.get("exit_code").map(|code| {
            let first = |key: &str| {
                result.get(key).and_then(Value::as_str).and_then(|text| text.lines().find(|l| !l.trim().is_empty()))
            };
            let line = first("stdout").or_else(|| first("stderr")).map(|line| format!(": {line}")).unwrap_or_default();
            // Before what it printed, which is cut where the line ends.
            let left_out =
                result["left_out"].as_array().and_then(|paths| Some((paths.first()?.as_str()?, paths.len())));
            let left_out =
                left_out.map(|(first, named)| match named as u64 - 1 + number("left_out_more").unwrap_or(0) {
                    0 => format!(" (left out {first})"),
                    more => format!(" (left out {first}, and {more} more)"),
                });
            format!("exit {code}{}{line}", left_out.unwrap_or_default())
        }),
        _ => None,
    };
    let words = words.unwrap_or_else(|| match result {
        Value::Null => String::new(),
        Value::Object(fields) if fields.is_empty() => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    let words = clean_line(&words);
    if words.is_empty() { "done".into() } else { words }
}

/// Whether a denial that no yes lifts is one of a command for which a role lacks its programs alone.
fn is_given_to_a_role(denied: &aos_abi::entry::Proposal) -> bool {
    let takes_a_program =
        denied.closed.as_ref().is_some_and(|why| why.contains("programs") && !why.contains("plain words"));
    denied.name == Name::ExecCmd && denied.inner.is_empty() && denied.rule.ends_with(": no rule") && takes_a_program
}

/// What lets the next process do it, as this one may be over before anybody has read of it; nothing where neither its role nor its
/// grants are all that stood in the way.
fn for_the_next(id: &str, denied: &aos_abi::entry::Proposal) -> Option<String> {
    if is_of_role(&denied.rule) {
        return Some(format!("`aos approve {id} --for role` is for good, also when this one has ended"));
    }
    let grants: Vec<String> = denied.grants.iter().map(|grant| format!("--grant \"{grant}\"")).collect();
    (denied.rule.starts_with("grant: ") && !grants.is_empty())
        .then(|| format!("the next one may with {}", clean_line(&grants.join(" "))))
}
