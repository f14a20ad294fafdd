//! Grants: what a process was spawned with, each `CALL` or `CALL PATTERN`, such as `FS_READ docs/**`.
//!
//! Start at [`Grants::parse`]. A grant only ever narrows: what the policy's role does not give, no grant gives. What
//! always holds: the text is kept as written and means the same in every release; an empty list grants nothing.

use std::fmt;
use std::str::FromStr;

use aos_abi::Name;
use serde::{Deserialize, Serialize};

use crate::scope::Scope;
use crate::target::{Action, Kind, Target, counterpart, kind};

/// Why a text is no grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{grant}` is no grant: {why}")]
pub struct GrantFault {
    /// The text.
    pub grant: String,
    /// What is wrong with it.
    pub why: String,
    /// The way out.
    pub hint: String,
}

/// One grant, valid because it exists.
#[derive(Clone, Debug)]
pub struct Grant {
    text: String,
    pub(crate) scopes: Vec<(Action, Scope)>,
}

impl PartialEq for Grant {
    fn eq(&self, other: &Grant) -> bool {
        self.text == other.text
    }
}

impl Eq for Grant {}

impl FromStr for Grant {
    type Err = GrantFault;

    /// Reads `CALL`, `CALL PATTERN`, or the same with a family such as `FS_*`.
    fn from_str(text: &str) -> Result<Grant, GrantFault> {
        let fault = |why: String, hint: String| GrantFault { grant: text.to_owned(), why, hint };
        let trimmed = text.trim();
        let (head, pattern) = match trimmed.split_once(char::is_whitespace) {
            Some((head, pattern)) => (head, Some(pattern.trim())),
            None => (trimmed, None),
        };
        let mut scopes = Vec::new();
        let mut add = |name: Name, pattern: Option<&str>| {
            // Alone it is what everybody may: whoever asks for it asks for nobody else's processes.
            if kind(name) == Kind::Process && pattern.is_none() {
                return Ok(());
            }
            let scope = Scope::grant(name, pattern).map_err(|(why, hint)| fault(why, hint))?;
            let parts: &[Action] = match name {
                Name::FsMove => &[Action::MOVE_TO, Action::MOVE_READ],
                Name::FsEdit => &[Action::EDIT_READ],
                _ => &[],
            };
            scopes.extend(parts.iter().map(|part| (*part, scope.clone())));
            scopes.push((Action::of(name), scope));
            scopes.extend(counterpart(name).map(|end| (Action::of(end), Scope::Any)));
            Ok(())
        };
        match head.strip_suffix('*') {
            Some(family) if family.ends_with('_') => {
                let members = || Name::ALL.iter().copied().filter(|name| name.as_str().starts_with(family));
                if members().next().is_none() {
                    return Err(fault(
                        format!("no call begins with `{family}`"),
                        "write `FS_*`, or name each call".into(),
                    ));
                }
                for name in members() {
                    // Members without a target, such as `FS_UNWATCH`, take no part in the pattern.
                    add(name, pattern.filter(|_| !matches!(kind(name), Kind::Bare | Kind::Always)))?;
                }
            }
            _ => {
                let name = head.parse::<Name>().map_err(|e| fault(e.message, e.hint.unwrap_or_default()))?;
                add(name, pattern)?;
            }
        }
        let text = match pattern {
            Some(pattern) => format!("{head} {pattern}"),
            None => head.to_owned(),
        };
        Ok(Grant { text, scopes })
    }
}

impl Grant {
    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is about everything that some call could be on, which is never what one call wants.
    pub(crate) fn is_boundless(&self) -> bool {
        let has_target = |name| !matches!(kind(name), Kind::Bare | Kind::Always);
        self.scopes.iter().any(|(of, scope)| has_target(of.name()) && *scope == Scope::Any)
    }

    /// Whether it is about files alone.
    pub(crate) fn is_on_files(&self) -> bool {
        self.scopes.iter().all(|(of, _)| matches!(kind(of.name()), Kind::File | Kind::Bare))
    }

    pub(crate) fn covers(&self, action: Action, target: &Target<'_>) -> bool {
        use crate::scope::Hit;
        self.scopes.iter().any(|(of, scope)| *of == action && scope.hit(target) == Hit::Fully)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Grant {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Grant {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What a process may do in a dry run, as far as its role lets it: what stays in the copy, asks, or only reads. Whatever it
/// spawns has no more. A request with another method than `GET` cannot be taken back, and neither can a message; memory and
/// timers stay.
const IN_A_DRY_RUN: &[&str] = &[
    "ASK_USER",
    "EXEC_CMD",
    "FS_DELETE",
    "FS_EDIT",
    "FS_LIST",
    "FS_MOVE",
    "FS_READ",
    "FS_SEARCH",
    "FS_WATCH",
    "FS_WRITE",
    "MEM_READ",
    "NET_FETCH",
    "PROPOSE",
    "SPAWN_AGENT",
    "TOOL_SEARCH",
];

/// The grants of one process. None at all leave it the calls that are always allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Grants(Vec<Grant>);

impl Grants {
    /// Reads each grant.
    ///
    /// # Errors
    /// The first text that is no grant.
    pub fn parse<S: AsRef<str>>(texts: &[S]) -> Result<Grants, GrantFault> {
        texts.iter().map(|text| text.as_ref().parse()).collect::<Result<_, _>>().map(Grants)
    }

    /// What a process may do that works on a copy, to show what it would change.
    ///
    /// # Panics
    /// Never: a test reads each.
    #[must_use]
    pub fn of_a_dry_run() -> Grants {
        Grants::parse(IN_A_DRY_RUN).expect("each is the name of a call")
    }

    /// Whether they are [`Grants::of_a_dry_run`].
    #[must_use]
    pub fn are_of_a_dry_run(&self) -> bool {
        self.0.iter().map(Grant::as_str).eq(IN_A_DRY_RUN.iter().copied())
    }

    /// Each grant.
    #[must_use]
    pub fn as_slice(&self) -> &[Grant] {
        &self.0
    }

    /// Whether they give nothing that not everybody may: none at all, or none but of calls that are always allowed.
    pub(crate) fn give_nothing(&self) -> bool {
        let mut of = self.0.iter().flat_map(|grant| &grant.scopes).map(|(of, _)| kind(of.name()));
        of.all(|kind| kind == Kind::Always)
    }

    /// As they are written.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(|grant| grant.text.clone()).collect()
    }
}

impl From<Vec<Grant>> for Grants {
    fn from(grants: Vec<Grant>) -> Grants {
        Grants(grants)
    }
}

impl fmt::Display for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<&str> = self.0.iter().map(Grant::as_str).collect();
        f.write_str(&texts.join(", "))
    }
}
