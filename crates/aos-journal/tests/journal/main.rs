//! Tests of the journal as its users see it, in one binary. Start at [`contract`], which runs over both stores.

mod backup;
mod chain;
mod child;
mod contract;
mod crash;
mod opening;
mod pitfalls;
mod prune;
mod reading;
mod sample;
mod torn;
