//! Tests of the journal as its users see it, in one binary. Start at [`contract`], which runs over both stores.

#![expect(clippy::unwrap_used, reason = "what fails in a test's own preparation fails the test")]

mod backup;
mod barrier;
mod chain;
mod child;
mod contract;
mod crash;
mod opening;
mod pitfalls;
mod prune;
mod reading;
mod salvage;
mod sample;
mod torn;
