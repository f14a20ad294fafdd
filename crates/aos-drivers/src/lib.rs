//! Drivers: what carries out an allowed system call, one folder per driver.
//!
//! Start at [`fs`], [`net`], [`exec`] and [`watch`]. Each driver of a call has one entry point that takes a permit, which only the dispatch after policy can make,
//! so a path round the policy does not compile. A driver trusts none of its arguments all the same: paths, addresses
//! and patterns are parsed here once more, at the place that touches the machine.
//!
//! A watch takes none: it outlives the call that asked for it, and the daemon starts it anew after a restart.
//!
//! Deliberately absent: verdicts (`aos-policy`), the journal, and any state that outlives a call.

mod content;
pub mod exec;
pub mod fs;
pub mod net;
pub mod watch;
