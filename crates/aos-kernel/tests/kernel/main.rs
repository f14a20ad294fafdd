//! Scripted cases: a journal's inputs in, entries and effects out, as text.
//!
//! Start at [`rig`] for the language of the scripts. `stories` tells how each part of the kernel behaves, `pitfalls`
//! what it must never do, `mended` what once went wrong; `money`, `bounds`, `waits` and `limits` go into what is scarce,
//! what is full, who waits for whom, and what the policy limits; `groups` into whom a signal reaches; `glance` into reads of many; `models` into which model serves, `programs` into those outside that ask models, `labels` into where content came from, `files` into what it did to files, `proposals` into
//! crashes around a person's word, `denials` into what a person lifts, `inside` into what a call led to of that, `faults` into what the kernel does where it fails.

#![expect(clippy::unwrap_used, reason = "a script that does not parse is a fault of the test")]

mod bounds;
mod denials;
mod faults;
mod files;
mod flood;
mod given;
mod glance;
mod groups;
mod hedging;
mod inside;
mod labels;
mod limits;
mod mended;
mod models;
mod money;
mod outside;
mod personal;
mod pitfalls;
mod probes;
mod programs;
mod proposals;
mod quarantine;
mod reload;
mod rig;
mod seams;
mod signals;
mod stories;
mod table;
mod waits;
mod worst;
