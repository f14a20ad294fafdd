//! What an agent may do: the policy file compiled to verdicts with reasons, and permits that only a verdict makes.
//!
//! Start at [`Policy`]: [`Policy::parse`] a file, [`Policy::authorize`] a call of a [`Subject`], hand the [`Permit`] to
//! a driver. The order to read in: [`pattern`], then `target` (what a call acts on), `scope` (what a rule is about),
//! `table` (a role's rules), [`given`] (what people asked for), `decide` (all layers), `child` (attenuation), `file` (the language).
//!
//! What always holds: what is not granted is denied, and so is everything where the file is missing or broken; a
//! layer only ever lowers a verdict; a child never exceeds its parent; no permit is made elsewhere. Deliberately
//! absent: I/O, clocks, chance, regular expressions and negation in authorization, and enforcement of settings.

pub mod pattern;

pub mod address;
mod target;

mod scope;

pub mod given;
pub mod label;
mod named;
mod negation;
mod passage;
mod sought;
pub mod terms;
mod tunnel;
mod url;

mod grant;

mod table;

pub mod packages;
pub mod settings;

mod role;

mod decide;

mod mounts;
mod standing;

mod child;

mod permit;

mod policy;

pub mod diff;
pub mod expect;
pub mod loosen;

mod fault;
mod file;
mod read;
mod yaml;

pub use child::Exceeds;
pub use decide::{Allowed, Explanation, OF_A_DRY_RUN, Subject};
pub use fault::{Fault, text_of};
pub use given::{Given, Lacking};
pub use grant::{Grant, GrantFault, Grants};
pub use label::Labels;
pub use named::Named;
pub use passage::marked_texts;
pub use permit::Permit;
pub use policy::{Approval, Policy, Ruling, Wanting, fingerprint};
pub use role::Role;
pub use standing::Standing;
pub use target::{is_home, namespace, segments};
pub use terms::{Obligations, Rate, Terms};
pub use yaml::FILE_BYTES_MAX;
