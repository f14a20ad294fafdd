//! What was spent, grouped as a person asks: by what stands in each charge, or by whose process it was.
//!
//! Start at [`grouped`]. What always holds: every charge is in one group; what cannot be told any more, since the process
//! was pruned, is a group of its own and not nothing.

use aos_abi::api::{CostGroup, CostView};
use aos_abi::process::{DEFAULT_ROLE, Mode, SpawnSpec, UNNAMED};
use aos_abi::{Body, Lsn, Pid};
use aos_gateway::query::CostBy;
use aos_journal::{Charge, ChargesBy, Error, Reader};

/// The group of processes that were pruned, of which only the charges are left.
const PRUNED: &str = "(pruned)";
/// Whose agents are that no key's owner answers for: those of the person whose daemon it is.
const OWNER: &str = "owner";

/// The charges of a journal in groups. Blocking.
///
/// # Errors
/// Where the journal cannot be read.
pub(crate) fn grouped(reader: &Reader, by: CostBy) -> Result<CostView, Error> {
    let mut view = CostView::default();
    let mut add = |key: String, charge: Charge| {
        for group in [view.groups.entry(key).or_default(), &mut view.total] {
            count(group, &charge);
        }
    };
    let plain = match by {
        CostBy::Day => Some(ChargesBy::Day),
        CostBy::Model => Some(ChargesBy::Model),
        CostBy::Pid => Some(ChargesBy::Pid),
        CostBy::Agent | CostBy::Entity => None,
    };
    for charge in reader.charges(plain.unwrap_or(ChargesBy::Pid), None)? {
        let key = match plain {
            Some(_) => charge.key.clone(),
            None => whose(reader, by, charge.key.parse().map_or(Pid::SYSTEM, Pid))?,
        };
        add(key, charge);
    }
    Ok(view)
}

fn count(group: &mut CostGroup, charge: &Charge) {
    group.inferences += charge.charges;
    group.input_tokens += charge.input_tokens;
    group.output_tokens += charge.output_tokens;
    group.cost_usd = group.cost_usd.plus(charge.cost_usd);
    group.cost_unknown += charge.unpriced;
    group.estimated_usd = group.estimated_usd.plus(charge.estimated_usd);
}

/// The group of a process: an agent by its name, else its role; an entity by whom it works for.
fn whose(reader: &Reader, by: CostBy, pid: Pid) -> Result<String, Error> {
    let Some((spec, owner)) = born(reader, pid)? else { return Ok(PRUNED.to_owned()) };
    Ok(match (by, spec.mode) {
        (CostBy::Entity, Mode::Program) => owner.unwrap_or_else(|| OWNER.to_owned()),
        (CostBy::Entity, Mode::OneShot | Mode::Resident) => OWNER.to_owned(),
        (CostBy::Day | CostBy::Model | CostBy::Pid | CostBy::Agent, _) => {
            spec.name.unwrap_or_else(|| match spec.role.as_str() {
                DEFAULT_ROLE => UNNAMED.to_owned(),
                role => role.to_owned(),
            })
        }
    })
}

/// How a process was made and, of a program, whose its first key was.
fn born(reader: &Reader, pid: Pid) -> Result<Option<(SpawnSpec, Option<String>)>, Error> {
    let (mut spec, mut owner) = (None, None);
    // A key is given with the program that it is for.
    for entry in reader.entries_of(pid, Lsn::ZERO, 4)? {
        match entry.body {
            Body::Spawned(made) => spec = Some(*made),
            Body::Forked { spec: made, .. } => spec = Some(*made),
            Body::Keyed(key) => owner = key.owner,
            _ => {}
        }
    }
    Ok(spec.map(|spec| (spec, owner)))
}
