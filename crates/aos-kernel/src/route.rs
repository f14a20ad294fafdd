//! The router: which model serves a process, in which order others would, and why.
//!
//! Start at [`route`], a pure function of [`Signals`] and [`Candidate`]s. What always holds: no text is among them, so
//! nothing that an agent reads can move the tier it is served by; a model that the role may not use is never in the
//! order; what must stay on this machine is never given to a model elsewhere. What merely speaks against a model (it is
//! down, too dear, too slow) puts it behind the others and never away: a wrong guess costs time, not the task.
//! Deliberately absent: state; what is remembered of models and processes is `course` and `circuit`.

use std::collections::{BTreeMap, BTreeSet};

use aos_abi::entry::Verdict;
use aos_abi::model::{Ability, ModelSpec, TIERS, rank_of};

/// The word for whatever the router chooses.
pub const AUTO: &str = "auto";

/// What the person, the configuration or the parent asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// This model.
    Model(String),
    /// This tier: its place in [`TIERS`].
    Tier(usize),
    /// Whatever serves.
    Auto,
}

impl Asked {
    /// Reads `auto`, a model's name or a tier's; where a model and a tier have the same name it is the model.
    #[must_use]
    pub fn read(text: &str, models: &BTreeMap<String, ModelSpec>) -> Option<Asked> {
        if text == AUTO {
            return Some(Asked::Auto);
        }
        if models.contains_key(text) {
            return Some(Asked::Model(text.to_owned()));
        }
        rank_of(text).map(Asked::Tier)
    }
}

/// How a tier did in a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Tally {
    /// Stretches of work that it was given.
    pub tries: u32,
    /// Those in which a better tier had to take over.
    pub failures: u32,
    /// Until when work does not begin there.
    pub poor_until: aos_abi::Timestamp,
}

/// A model and what is known of it now.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// Its configured name.
    pub name: &'a str,
    /// What is configured of it.
    pub spec: &'a ModelSpec,
    /// What the role says to it; `Allow` also where a person has allowed its tier to this process.
    pub verdict: Verdict,
    /// Whether the budget left covers its worst case.
    pub affordable: bool,
    /// Whether the whole window of the process goes into it.
    pub holds_window: bool,
    /// Whether the whole task goes into it: what a trusted hand gave the process to do.
    pub holds_task: bool,
    /// It failed in the turn that is to be served.
    pub tried: bool,
    /// Why it is not to be asked now: an open circuit, a used up quota; with the time it ends.
    pub down: Option<String>,
    /// How long it takes to answer, in milliseconds; 0: not known.
    pub latency_ms: u64,
}

/// What is known of the process that is to be served.
#[derive(Clone, Debug)]
pub struct Signals<'a> {
    /// What was asked for.
    pub asked: Asked,
    /// Tokens that are sent in any case: who it is, its calls, and what people gave it to do.
    pub fixed_tokens: u64,
    /// What it holds may go to models of this machine alone.
    pub stay_here: bool,
    /// It has been shown an image.
    pub images: bool,
    /// What only an able model does: a program's request that says so goes to no other.
    pub needs: &'a BTreeSet<Ability>,
    /// How many tiers it was raised, and why.
    pub raised: usize,
    /// Why it was raised.
    pub raised_why: &'a str,
    /// Milliseconds until it is ended.
    pub time_left_ms: Option<u64>,
    /// How each tier did in its role.
    pub tallies: [Tally; TIERS.len()],
    /// Now.
    pub now: aos_abi::Timestamp,
    /// The fallback of the configuration.
    pub fallback: &'a [String],
}

/// A model with the reason for its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its configured name.
    pub model: String,
    /// Why it stands there, or why it stands nowhere.
    pub why: String,
}

/// What the router says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Models that may serve, the first choice first.
    pub order: Vec<Choice>,
    /// Models that may not.
    pub barred: Vec<Choice>,
    /// A tier that would be next and that a person has to allow.
    pub ask: Option<&'static str>,
    /// Raising it any further than so many tiers changes nothing.
    pub raised_max: usize,
}

/// Puts the models into order.
#[must_use]
pub fn route(signals: &Signals<'_>, candidates: &[Candidate<'_>]) -> Route {
    let mut barred = Vec::new();
    let able: Vec<&Candidate<'_>> = candidates
        .iter()
        .filter(|candidate| match bar(signals, candidate) {
            None => true,
            Some(why) => {
                barred.push(Choice { model: candidate.name.to_owned(), why });
                false
            }
        })
        .collect();
    let mut ladder: Vec<usize> = able.iter().map(|candidate| candidate.spec.rank()).collect();
    ladder.sort_unstable();
    ladder.dedup();
    let aim = Aim::of(signals, &ladder);
    let mut places: Vec<(u32, Place, &Candidate<'_>, String)> = able
        .into_iter()
        .filter_map(|candidate| {
            let (place, why) = aim.place(signals, candidate)?;
            Some((weight(signals, candidate), place, candidate, why))
        })
        .collect();
    places.sort_by(|a, b| (a.0, &a.1, a.2.name).cmp(&(b.0, &b.1, b.2.name)));
    // What would have gone before the first one, had nothing spoken against it.
    let before = places.first().map(|first| first.1.clone());
    let passed: Vec<String> = places
        .iter()
        .filter(|other| before.as_ref().is_some_and(|first| other.1 < *first))
        .map(|other| format!("`{}` {}", other.2.name, against(signals, other.2)))
        .take(3)
        .collect();
    let order = places
        .into_iter()
        .enumerate()
        .map(|(nth, (_, _, candidate, mut why))| {
            if nth == 0 && !passed.is_empty() {
                why = format!("{why}; {}", passed.join(", "));
            }
            // What has just failed is asked again for want of another.
            if weight(signals, candidate) > 0 && (nth > 0 || candidate.down.is_some()) {
                why = format!("{why}; it {}", against(signals, candidate));
            }
            Choice { model: candidate.name.to_owned(), why }
        })
        .collect();
    let ask = aim.wanted_above.then(|| next_to_ask(candidates, aim.rank)).flatten();
    Route { order, barred, ask, raised_max: aim.raised_max }
}

/// Why a model may not serve at all.
fn bar(signals: &Signals<'_>, candidate: &Candidate<'_>) -> Option<String> {
    let named = matches!(&signals.asked, Asked::Model(name) if name == candidate.name);
    let tier = candidate.spec.tier.as_deref();
    if candidate.spec.vectors {
        return Some("it makes vectors of texts and no answers".to_owned());
    }
    if signals.stay_here && !candidate.spec.local {
        return Some("what this process holds stays on this machine".to_owned());
    }
    match (candidate.verdict, tier) {
        (Verdict::Allow, _) => {}
        // Whoever named it has been asked, or is a person.
        (Verdict::Ask | Verdict::Hold, _) if named => {}
        (Verdict::Ask | Verdict::Hold, _) => return Some("its tier needs a person's word in this role".to_owned()),
        (Verdict::Deny, Some(tier)) => return Some(format!("the role may not use the tier `{tier}`")),
        (Verdict::Deny, None) => return Some("it has no `tier`, and the role names those it may use".to_owned()),
    }
    // Whoever names a model knows it: what the configuration does not say of it, its server does.
    if !named && let Some(lacks) = signals.needs.iter().find(|ability| !candidate.spec.can(**ability)) {
        return Some(format!("it is not said to have `{}` (`{}`)", lacks.name(), lacks.setting()));
    }
    let room = u64::from(candidate.spec.context_window.saturating_sub(candidate.spec.max_output));
    if !named && signals.fixed_tokens > room {
        return Some(format!(
            "{} tokens are sent in any case, and its window has room for {room}",
            signals.fixed_tokens
        ));
    }
    None
}

/// How much speaks against a model now; 0: nothing. What would end the task weighs most.
fn weight(signals: &Signals<'_>, candidate: &Candidate<'_>) -> u32 {
    let named = matches!(signals.asked, Asked::Model(_));
    8 * u32::from(!candidate.affordable && !named)
        + 4 * u32::from(candidate.tried)
        + 2 * u32::from(candidate.down.is_some())
        + u32::from((late(signals, candidate) || !candidate.holds_task) && !named)
}

fn late(signals: &Signals<'_>, candidate: &Candidate<'_>) -> bool {
    signals.time_left_ms.is_some_and(|left| candidate.latency_ms > left)
}

/// The same in words.
fn against(signals: &Signals<'_>, candidate: &Candidate<'_>) -> String {
    let mut words = Vec::new();
    if !candidate.affordable {
        words.push("costs more than the budget has left".to_owned());
    }
    if candidate.tried {
        words.push("has just failed".to_owned());
    }
    if let Some(down) = &candidate.down {
        words.push(down.clone());
    }
    if !candidate.holds_task {
        words.push("has no room for the whole task".to_owned());
    }
    if late(signals, candidate) {
        words.push(format!("takes about {} s, and less time is left", candidate.latency_ms.div_ceil(1000)));
    }
    words.join(" and ")
}

/// A place in the order, the least first: group, distance, then within a tier what it lacks, its price, and a fixed order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    group: u8,
    distance: usize,
    lacks: u8,
    price: (bool, u64),
    window: std::cmp::Reverse<u32>,
}

/// Which tier is aimed at, and why.
struct Aim {
    rank: usize,
    why: String,
    /// A higher tier was wanted than there is.
    wanted_above: bool,
    raised_max: usize,
}

impl Aim {
    fn of(signals: &Signals<'_>, ladder: &[usize]) -> Aim {
        let last = ladder.len().saturating_sub(1);
        let (start, why) = match &signals.asked {
            Asked::Model(_) => (0, String::new()),
            Asked::Tier(tier) => {
                let at = ladder.iter().position(|rank| rank >= tier).unwrap_or(last);
                let why = match ladder.get(at) {
                    Some(rank) if rank == tier => format!("the tier `{}` was asked for", TIERS[*tier]),
                    _ => format!("the nearest to the tier `{}`, which was asked for", TIERS[*tier]),
                };
                (at, why)
            }
            Asked::Auto => {
                let good = |rank: &usize| signals.tallies[*rank].poor_until <= signals.now;
                let at = ladder.iter().position(good).unwrap_or(0);
                let skipped: Vec<&str> = ladder.iter().take(at).map(|rank| TIERS[*rank]).collect();
                let tier = ladder.get(at).map_or("", |rank| TIERS[*rank]);
                let mut why = format!("`{tier}` is the lowest tier that may serve");
                if !skipped.is_empty() {
                    why = format!(
                        "`{tier}` is the lowest tier that does well in this role, `{}` does not",
                        skipped.join("`, `")
                    );
                }
                (at, why)
            }
        };
        let wanted = start + signals.raised;
        let at = wanted.min(last);
        let why = match at > start {
            true => format!("raised to `{}`: {}", TIERS[ladder[at]], signals.raised_why),
            false => why,
        };
        Aim {
            rank: ladder.get(at).copied().unwrap_or(0),
            why,
            wanted_above: wanted > last,
            raised_max: last + 1 - start.min(last),
        }
    }

    /// The place of a model that may serve, with the reason; `None`: it is not meant here.
    fn place(&self, signals: &Signals<'_>, candidate: &Candidate<'_>) -> Option<(Place, String)> {
        let spec = candidate.spec;
        let rank = spec.rank();
        let fallback = signals.fallback.iter().position(|name| name == candidate.name);
        let tier = spec.tier.as_deref().unwrap_or("none");
        let (group, distance, why) = match (&signals.asked, fallback) {
            (Asked::Model(name), _) if name == candidate.name => (0, 0, "it was asked for by name".to_owned()),
            (Asked::Tier(_) | Asked::Auto, _) if rank == self.rank => (0, 0, self.why.clone()),
            (_, Some(at)) => (1, at, "it is next in `fallback` of aos.toml".to_owned()),
            (Asked::Model(_), None) if signals.stay_here => (2, 0, "it is on this machine".to_owned()),
            (Asked::Model(_), None) => return None,
            (_, None) if rank > self.rank => (2, rank - self.rank, format!("the next tier up, `{tier}`")),
            (_, None) => (3, self.rank - rank, format!("a lower tier, `{tier}`")),
        };
        let lacks = 2 * u8::from(signals.images && !spec.images) + u8::from(!candidate.holds_window);
        // What is not known is not zero: it comes after every known price.
        let price = spec.price.map_or((true, 0), |price| (false, price.input.0.saturating_add(price.output.0)));
        let price = if group == 2 && signals.stay_here { (false, 0) } else { price };
        Some((Place { group, distance, lacks, price, window: std::cmp::Reverse(spec.context_window) }, why))
    }
}

/// The lowest tier above `rank` that a person may allow.
fn next_to_ask(candidates: &[Candidate<'_>], rank: usize) -> Option<&'static str> {
    let above = candidates.iter().filter(|of| of.verdict == Verdict::Ask && of.spec.rank() > rank);
    above.map(|of| of.spec.rank()).min().map(|rank| TIERS[rank])
}
