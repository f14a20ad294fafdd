//! Standing approvals: a person's yes to the same kind of call for the rest of a process's life.
//!
//! Start at [`Standing::of`]. What always holds: one covers the call that was approved, and no call that the narrowest
//! grant for that one would not cover; where a grant could not tell the calls apart (a command, a call without a target) it
//! covers these very arguments alone; it lifts a question or a wait of a role's rule, or, where it was given to a denial, that
//! the role has no rule; never a rule that denies, a grant that is wanting, a rule about labels or the floor (`decide`). One
//! that is for one run of a command, and for a call of these very arguments, stands in for a grant as well.

use aos_abi::{Name, Syscall};

use crate::decide::{Lift, narrowest};
use crate::grant::Grant;
use crate::policy::fingerprint;
use crate::target::{self, Target};

/// A yes that stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The proposal it was given to, such as `p3`.
    pub id: String,
    covers: Covers,
    lifts: Lift,
}

#[derive(Clone, Debug)]
enum Covers {
    /// Calls on what this grant is about.
    On(Grant),
    /// These very arguments.
    Exactly { print: u128, name: &'static str },
}

impl Standing {
    /// What a yes to this call covers.
    #[must_use]
    pub fn of(id: &str, call: &Syscall) -> Standing {
        let exactly =
            || Covers::Exactly { print: fingerprint(call.name().as_str(), &call.args()), name: call.name().as_str() };
        // A process is the one that its number names, whatever it is called.
        let demands = if call.name() == Name::Kill { Ok(Vec::new()) } else { target::demands(call, None) };
        let covers = match demands.as_deref() {
            Ok([(action, target @ (Target::Words { .. } | Target::Net { .. } | Target::Channel { .. }))]) => {
                let text = narrowest(*action, target);
                // What a pattern cannot write stands there as `*`, which would cover more than was shown.
                let is_it =
                    |grant: &Grant| !text.contains('*') && !grant.is_boundless() && grant.covers(*action, target);
                text.parse::<Grant>().ok().filter(is_it).map_or_else(exactly, Covers::On)
            }
            _ => exactly(),
        };
        Standing { id: id.to_owned(), covers, lifts: Lift::Nothing }
    }

    /// What a yes to one more run of a command lets this call of it do: with these very arguments, whatever was wanting.
    #[must_use]
    pub fn for_one_run(id: &str, call: &Syscall) -> Standing {
        let name = call.name().as_str();
        let covers = Covers::Exactly { print: fingerprint(name, &call.args()), name };
        Standing { id: id.to_owned(), covers, lifts: Lift::Grants }
    }

    /// The same of a yes to a call that was denied for want of a rule.
    #[must_use]
    pub fn lifting(self) -> Standing {
        Standing { lifts: Lift::Role, ..self }
    }

    /// Whether it was given to what was denied.
    pub(crate) fn is_lifting(&self) -> bool {
        self.lifts > Lift::Nothing
    }

    pub(crate) fn lifts(&self) -> Lift {
        self.lifts
    }

    /// Names what it covers: two have the same only if they cover the same.
    #[must_use]
    pub fn print(&self) -> u128 {
        match &self.covers {
            Covers::Exactly { print, .. } => *print,
            Covers::On(grant) => fingerprint("on", &grant.as_str().into()),
        }
    }

    /// Whether it covers a call.
    #[must_use]
    pub fn covers(&self, call: &Syscall) -> bool {
        match &self.covers {
            Covers::Exactly { print, .. } => *print == fingerprint(call.name().as_str(), &call.args()),
            Covers::On(grant) => target::demands(call, None).is_ok_and(|demands| {
                !demands.is_empty() && demands.iter().all(|(action, target)| grant.covers(*action, target))
            }),
        }
    }

    /// What it covers, in words: a grant, or that it is these arguments alone.
    #[must_use]
    pub fn shown(&self) -> String {
        match &self.covers {
            Covers::On(grant) => grant.to_string(),
            Covers::Exactly { name, .. } => format!("{name} with these arguments"),
        }
    }
}
