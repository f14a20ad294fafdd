//! Commands: `EXEC_CMD`, run by `sh -c` in the sandbox.
//!
//! Start at [`Driver::call`]. What always holds: the command runs within the walls that the [`Scene`] says or not at all;
//! its environment holds nothing of the daemon's; its output and time are bounded; where its changes go to a layer they
//! reach the workspace only after it has ended and the policy allows each of them, all or none, and can be taken back.
//!
//! Deliberately absent: which walls (policy and configuration say), and keeping others off the workspace while a layer
//! is committed: the caller runs one changing call of a workspace at a time.

mod bounds;
mod driver;
mod error;
#[cfg(test)]
mod tests;

pub use bounds::Bounds;
pub use driver::{Driver, Ran, Scene};
