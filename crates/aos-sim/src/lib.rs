//! The whole kernel on one thread from a seed: virtual time, faults, crashes, checkers. For tests only.
//!
//! Start at [`Simulation::run`]. A world of random models, drivers and people lives around a real kernel and a journal
//! that loses what was not synced; checkers look after every entry. What always holds: every choice comes from the seed,
//! so a seed reproduces its run to the byte; nothing here asks for the wall clock, the network or a second thread.
//!
//! Reading order: `world` for the loop, `arrival` for what comes back, `recovery` for crashes, `mind`, `outside`, `files`,
//! `person` and `mischief` for who acts, `witness` and `check` for what must hold of the kernel's account of itself, `desk`
//! and `bill` for what must hold of what was really said and done, `proposals` for questions gone through in every order. Deliberately absent: the prompt's text (`aos-context` tests it) and real drivers.

mod arrival;
mod bill;
mod chance;
mod check;
mod desk;
mod drain;
mod files;
mod mind;
mod mischief;
mod need;
mod outside;
mod person;
pub mod proposals;
mod recovery;
mod report;
pub mod servers;
mod setup;
mod witness;
mod world;

pub use aos_journal::Crash;
pub use report::{Broken, Failure, Report};
pub use world::Simulation;
