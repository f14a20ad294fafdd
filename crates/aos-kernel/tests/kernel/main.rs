//! Scripted cases: a journal's inputs in, entries and effects out, as text.
//!
//! Start at [`rig`] for the language of the scripts. `stories` tells how each part of the kernel behaves, `pitfalls`
//! what it must never do, `mended` what once went wrong.

mod mended;
mod pitfalls;
mod rig;
mod stories;
