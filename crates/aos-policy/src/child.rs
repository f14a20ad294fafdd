//! Attenuation: a child's grants must lie within what its parent may do.
//!
//! Start at [`check`]. Inclusion is decided exactly, against the union of what each of the parent's layers grants, and
//! a refusal carries a call that the child could make and the parent could not. What a rule with `verdict: deny`, a
//! label or the floor takes away needs no check here: the child's own calls pass the same layers again.

use aos_abi::Name;

use crate::address::{Address, Class};
use crate::decide::{Subject, narrowest};
use crate::grant::{Grant, Grants};
use crate::pattern::{Pattern, filler};
use crate::policy::Tables;
use crate::scope::{Hit, NetScope, Scope};
use crate::settings::OWN_PROGRAMS;
use crate::target::{Action, Kind, METHODS, Reach, Target, kind};

/// A grant of a child goes beyond its parent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the grant `{grant}` exceeds its parent: `{example}` would be allowed to the child and is not to {limit}")]
pub struct Exceeds {
    /// The grant.
    pub grant: String,
    /// A call that the child could make and the parent could not, in the form of a grant.
    pub example: String,
    /// The parent's layer that lacks it.
    pub limit: String,
    /// The way out.
    pub hint: String,
}

/// One layer of a parent: what it grants for some action.
struct Layer<'p> {
    name: String,
    scopes: Vec<&'p Scope>,
}

pub(crate) fn check(tables: &Tables, parent: &Subject<'_>, child: &[Grant]) -> Result<(), Exceeds> {
    for grant in child {
        for (action, scope) in &grant.scopes {
            if kind(action.name()) == Kind::Always {
                continue;
            }
            for layer in layers(tables, parent, *action) {
                if let Some(example) = beyond(*action, scope, &layer.scopes) {
                    return Err(Exceeds {
                        grant: grant.to_string(),
                        example,
                        limit: layer.name,
                        hint: hint(&layer.scopes, *action),
                    });
                }
            }
        }
    }
    Ok(())
}

fn hint(scopes: &[&Scope], action: Action) -> String {
    let name = action.name();
    if scopes.is_empty() {
        return format!("leave {name} out: the parent may not make it at all");
    }
    let texts: Vec<String> = scopes.iter().take(5).map(|scope| scope.show(name)).collect();
    format!("stay within {}", texts.join(", "))
}

fn layers<'p>(tables: &'p Tables, parent: &Subject<'p>, action: Action) -> Vec<Layer<'p>> {
    let role = tables.role(parent.role);
    let by_role = Layer {
        name: format!("the role {}", role.map_or(parent.role, |role| &role.name)),
        scopes: role.into_iter().flat_map(|role| role.table(action).granting()).map(|rule| &rule.scope).collect(),
    };
    let of_grants = |(depth, grants): (usize, &'p Grants)| Layer {
        name: if depth == 0 { "the parent's own grants".to_owned() } else { "the grants of an ancestor".to_owned() },
        scopes: grants
            .as_slice()
            .iter()
            .flat_map(|grant| &grant.scopes)
            .filter(|(of, _)| *of == action)
            .map(|(_, scope)| scope)
            .collect(),
    };
    std::iter::once(by_role).chain(parent.chain.iter().enumerate().map(of_grants)).collect()
}

/// A target in `scope` that none of the others holds, as a grant; `None` where there is none.
pub(crate) fn beyond(action: Action, scope: &Scope, others: &[&Scope]) -> Option<String> {
    let name = action.name();
    if matches!(scope, Scope::Any) && others.iter().any(|other| matches!(other, Scope::Any)) {
        return None;
    }
    match (scope, Scope::everything(name)) {
        // A call without a target is granted or not; which command lines a role takes is decided at the call.
        (Scope::Any, None) => others.is_empty().then(|| name.to_string()),
        (Scope::Any, Some(everything)) => witness(action, &everything, others),
        (scope, _) => witness(action, scope, others),
    }
}

fn witness(action: Action, scope: &Scope, others: &[&Scope]) -> Option<String> {
    let patterns = || others.iter().flat_map(|other| other.patterns()).chain(scope.patterns());
    let filler = filler(patterns().flat_map(Pattern::pieces));
    let longest = patterns().map(|pattern| pattern.segments().len()).max().unwrap_or(0);
    let not_held = |target: &Target<'_>| !others.iter().any(|other| other.hit(target) == Hit::Fully);
    targets(scope, &filler, longest, others).into_iter().find(|target| not_held(target)).map(|t| narrowest(action, &t))
}

/// A command that takes a shell.
const SHELL: &str = "sh -c 'x'";

/// Targets that tell policies apart: what each scope holds beyond all the others, and where it meets one of them.
pub(crate) fn samples<'t>(action: Action, scopes: &[&'t Scope]) -> Vec<Target<'t>> {
    let pieces = scopes.iter().flat_map(|scope| scope.patterns()).flat_map(Pattern::pieces);
    let filler = filler(pieces);
    let longest = scopes.iter().flat_map(|scope| scope.patterns()).map(|p| p.segments().len()).max().unwrap_or(0);
    let mut samples = Vec::new();
    for (at, scope) in scopes.iter().enumerate() {
        match (scope, Scope::everything(action.name())) {
            (Scope::Commands { plain }, None) => {
                let named = plain.iter().flatten().map(|program| match program.as_str() {
                    // What lies in the workspace is named by its path.
                    OWN_PROGRAMS => "./x",
                    program => program,
                });
                samples.extend(named.chain([SHELL]).map(Target::Command));
            }
            (Scope::Any, None) => samples.push(match action.name() {
                Name::ExecCmd => Target::Command(SHELL),
                _ => Target::Bare,
            }),
            (Scope::Any | Scope::Commands { .. }, Some(everything)) => {
                samples.extend(targets(&everything, &filler, longest, scopes));
            }
            _ => samples.extend(targets(scope, &filler, longest, scopes)),
        }
        for other in &scopes[..at] {
            samples.extend(scope.meeting(other, &filler).iter().flat_map(|met| targets(met, &filler, 0, scopes)));
        }
    }
    samples
}

/// Targets that decide inclusion of a scope: see [`Pattern::witnesses`].
fn targets(scope: &Scope, filler: &str, longest: usize, others: &[&Scope]) -> Vec<Target<'static>> {
    let owned = |words: Vec<String>| words.into_iter().map(std::borrow::Cow::Owned).collect();
    match scope {
        Scope::Any | Scope::Commands { .. } => Vec::new(),
        Scope::Words(pattern) => pattern
            .witnesses(filler, longest)
            .into_iter()
            .map(|words| Target::Words { words: owned(words), reach: Reach::Itself })
            .collect(),
        Scope::Net(net) => net_targets(net, filler, longest, others),
        // The receiver of a channel is one segment, so its filler needs no length.
        Scope::Channel { channel, to } => {
            let receivers = to.witnesses(filler, 0);
            let channels = channel.witnesses(filler, longest);
            let pairs = channels.iter().flat_map(|channel| receivers.iter().map(move |to| (channel, to)));
            pairs
                .map(|(channel, to)| Target::Channel { channel: owned(channel.clone()), to: to.concat().into() })
                .collect()
        }
    }
}

fn net_targets(net: &NetScope, filler: &str, longest: usize, others: &[&Scope]) -> Vec<Target<'static>> {
    let named: Vec<u16> =
        others.iter().filter_map(|other| if let Scope::Net(other) = other { other.port } else { None }).collect();
    let port = net.port.or_else(|| (1..=u16::MAX).rev().find(|port| !named.contains(port))).unwrap_or(443);
    let hosts = net.host.witnesses(filler, longest);
    let paths = net.path.witnesses(filler, longest);
    let mut targets = Vec::new();
    for (_, method) in METHODS.iter().filter(|(_, bit)| net.methods & bit != 0) {
        for host in &hosts {
            for path in &paths {
                let address = Address { host: host.join("."), port, path: path.clone(), class: Class::Public };
                targets.push(Target::Net { method: *method, address });
            }
        }
    }
    targets
}
