//! Drivers: what carries out an allowed system call, one folder per driver.
//!
//! Start at [`fs`]. Each driver has one entry point that takes a permit, which only the dispatch after policy can make,
//! so a path round the policy does not compile. A driver trusts none of its arguments all the same: paths, addresses
//! and patterns are parsed here once more, at the place that touches the machine.
//!
//! Deliberately absent: verdicts (`aos-policy`), the journal, and any state that outlives a call.

pub mod fs;
