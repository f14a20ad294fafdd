//! What the daemon counts, in the text format of Prometheus (exposition format 0.0.4).
//!
//! Start at [`Metrics`], what the system gives, and [`Requests`], what the gateway itself counts. Label values come
//! from the configuration and from fixed sets, never from requests, so the number of series is bounded.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use aos_abi::entry::Verdict;
use aos_abi::process::{SlotView, State};
use aos_abi::{Name, Usd};

use crate::route::ROUTES;

/// Counters and gauges of the system. Counters are since the daemon started, unless they say otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Of the program.
    pub version: String,
    /// Seconds since the daemon started.
    pub uptime_s: f64,
    /// Processes by state; states without any may be left out.
    pub processes: BTreeMap<State, u64>,
    /// Slots by configured model.
    pub model_slots: BTreeMap<String, SlotView>,
    /// Inferences by configured model.
    pub inferences: BTreeMap<String, InferenceCounters>,
    /// Entries in the journal.
    pub entries: u64,
    /// Entries appended.
    pub appends: u64,
    /// Syncs to disk, each for a batch of appends.
    pub commits: u64,
    /// Calls that agents made, by name and by what the policy said.
    pub syscalls: BTreeMap<(Name, Verdict), u64>,
    /// Calls that did not decode.
    pub syscalls_invalid: u64,
    /// Proposals that wait for a person.
    pub proposals_pending: u64,
}

/// What one model served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InferenceCounters {
    /// Inferences answered.
    pub completed: u64,
    /// Inferences that failed.
    pub failed: u64,
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens answered.
    pub output_tokens: u64,
    /// Of the tokens sent, those the provider had cached.
    pub cached_input_tokens: u64,
    /// What it cost, as far as prices are known.
    pub cost_usd: Usd,
}

/// Requests that the gateway answered, by route and class of status.
#[derive(Debug)]
pub(crate) struct Requests {
    /// One row per route and a last one for what no route takes; columns 1xx to 5xx.
    rows: Vec<[AtomicU64; 5]>,
}

impl Requests {
    pub(crate) fn new() -> Requests {
        Requests { rows: (0..=ROUTES.len()).map(|_| Default::default()).collect() }
    }

    /// Counts an answer; `row` is the route's place in [`ROUTES`], anything larger stands for no route.
    pub(crate) fn count(&self, row: usize, status: u16) {
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.rows[row.min(ROUTES.len())][class].fetch_add(1, Ordering::Relaxed);
    }

    fn write(&self, out: &mut Families) {
        out.family("aos_http_requests_total", "counter", "Requests answered, by route and class of status.");
        for (row, counts) in self.rows.iter().enumerate() {
            let (method, path) = ROUTES.get(row).map_or(("", "none"), |route| (route.verb.as_str(), route.path));
            for (class, count) in counts.iter().enumerate() {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let status = format!("{}xx", class + 1);
                    out.sample(&[("method", method), ("route", path), ("status", &status)], count as f64);
                }
            }
        }
    }
}

/// Everything as Prometheus reads it.
pub(crate) fn render(metrics: &Metrics, requests: &Requests) -> String {
    let mut out = Families { text: String::new(), name: "" };
    out.family("aos_build_info", "gauge", "The program.");
    out.sample(&[("version", &metrics.version)], 1.0);
    out.family("aos_uptime_seconds", "gauge", "Seconds since the daemon started.");
    out.sample(&[], metrics.uptime_s);
    out.family("aos_processes", "gauge", "Processes by state.");
    for state in State::ALL {
        let count = metrics.processes.get(&state).copied().unwrap_or(0);
        out.sample(&[("state", state.as_str())], count as f64);
    }
    write_models(metrics, &mut out);
    out.family("aos_journal_entries", "gauge", "Entries in the journal.");
    out.sample(&[], metrics.entries as f64);
    out.family("aos_journal_appends_total", "counter", "Entries appended.");
    out.sample(&[], metrics.appends as f64);
    out.family("aos_journal_commits_total", "counter", "Syncs to disk, each for a batch of appends.");
    out.sample(&[], metrics.commits as f64);
    out.family("aos_syscalls_total", "counter", "Calls of agents, by name and verdict.");
    for ((name, verdict), count) in &metrics.syscalls {
        out.sample(&[("name", name.as_str()), ("verdict", verdict.as_str())], *count as f64);
    }
    out.family("aos_syscalls_invalid_total", "counter", "Calls of agents that did not decode.");
    out.sample(&[], metrics.syscalls_invalid as f64);
    out.family("aos_proposals_pending", "gauge", "Proposals that wait for a person.");
    out.sample(&[], metrics.proposals_pending as f64);
    requests.write(&mut out);
    out.text
}

fn write_models(metrics: &Metrics, out: &mut Families) {
    type Slot = fn(&SlotView) -> u32;
    let slots: [(&'static str, &str, Slot); 3] = [
        ("aos_model_slots_used", "Inferences under way.", |slot| slot.used),
        ("aos_model_slots_limit", "Most inferences at once.", |slot| slot.limit),
        ("aos_model_slots_waiting", "Processes that wait for a slot.", |slot| slot.waiting),
    ];
    for (name, help, read) in slots {
        out.family(name, "gauge", help);
        for (model, slot) in &metrics.model_slots {
            out.sample(&[("model", model)], f64::from(read(slot)));
        }
    }
    type Counter = fn(&InferenceCounters) -> f64;
    let counters: [(&'static str, &str, Counter); 6] = [
        ("aos_inferences_total", "Inferences answered.", |of| of.completed as f64),
        ("aos_inferences_failed_total", "Inferences that failed.", |of| of.failed as f64),
        ("aos_input_tokens_total", "Tokens sent.", |of| of.input_tokens as f64),
        ("aos_output_tokens_total", "Tokens answered.", |of| of.output_tokens as f64),
        ("aos_cached_input_tokens_total", "Tokens sent that were cached.", |of| of.cached_input_tokens as f64),
        ("aos_cost_usd_total", "US dollars, as far as prices are known.", |of| of.cost_usd.dollars()),
    ];
    for (name, help, read) in counters {
        out.family(name, "counter", help);
        for (model, of) in &metrics.inferences {
            out.sample(&[("model", model)], read(of));
        }
    }
}

/// The text as it grows; samples belong to the family that was begun last.
struct Families {
    text: String,
    name: &'static str,
}

impl Families {
    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.text.push_str(self.name);
        for (nth, (label, of)) in labels.iter().enumerate() {
            let escaped = of.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            let _ = write!(self.text, "{}{label}=\"{escaped}\"", if nth == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_labelled_and_escaped() {
        let requests = Requests::new();
        requests.count(0, 200);
        requests.count(usize::MAX, 404);
        let metrics = Metrics {
            processes: BTreeMap::from([(State::Running, 2)]),
            inferences: BTreeMap::from([(
                "a\"b".to_owned(),
                InferenceCounters { cost_usd: Usd(500_000_000), ..InferenceCounters::default() },
            )]),
            syscalls: BTreeMap::from([((Name::FsRead, Verdict::Deny), 3)]),
            ..Metrics::default()
        };
        let text = render(&metrics, &requests);
        for line in [
            "aos_processes{state=\"running\"} 2",
            "aos_processes{state=\"exited\"} 0",
            "aos_cost_usd_total{model=\"a\\\"b\"} 0.5",
            "aos_syscalls_total{name=\"FS_READ\",verdict=\"deny\"} 3",
            "aos_http_requests_total{method=\"GET\",route=\"/healthz\",status=\"2xx\"} 1",
            "aos_http_requests_total{method=\"\",route=\"none\",status=\"4xx\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "no `{line}` in\n{text}");
        }
    }
}
