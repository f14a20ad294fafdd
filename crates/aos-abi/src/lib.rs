//! The contract of AOS: whatever crosses a process boundary or enters the journal, and nothing else.
//!
//! Start at [`syscall`] for what an agent may ask, at [`entry`] for what the journal holds, at
//! [`inference`] for what a model is sent and answers, and at [`limits`] for every bound that somebody can feel.
//!
//! What always holds: a value of a type in this crate is valid because it exists (parsed at the border);
//! nothing here does I/O, reads a clock or draws a random number; fields are added, never renamed.
//! Deliberately absent: effects and permits (they never leave the daemon, see `aos-kernel` and `aos-policy`).

pub mod api;
pub mod code;
pub mod decode;
pub mod entry;
pub mod ids;
pub mod inference;
pub mod limits;
pub mod model;
pub mod money;
pub mod process;
pub mod signal;
pub mod syscall;
pub mod time;

pub use code::{CallError, Code};
pub use entry::{Body, Entry};
pub use ids::{CallId, EffectId, Lsn, Pid};
pub use money::Usd;
pub use signal::Signal;
pub use syscall::{Name, Syscall};
pub use time::Timestamp;
