//! Scripted cases: a journal's inputs in, entries and effects out, as text.
//!
//! Start at [`rig`] for the language of the scripts. `stories` tells how each part of the kernel behaves, `pitfalls`
//! what it must never do, `mended` what once went wrong.

#![expect(clippy::unwrap_used, reason = "a script that does not parse is a fault of the test")]

mod mended;
mod pitfalls;
mod rig;
mod stories;
