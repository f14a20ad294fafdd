//! The journal: entries made durable, in one order, chained by hash, and read back.
//!
//! Start at [`Journal::open`], then [`Journal::append`]; what is read goes through [`Reader`], what the kernel saved
//! through [`PageReader`]. Tests and the simulation use [`MemoryStore`], which shares the trait [`Store`].
//!
//! What always holds:
//! - An append is acknowledged only after the operating system confirmed it on disk (`synchronous=FULL`), all of a
//!   batch or none of it, in order of [`aos_abi::Lsn`], without a gap.
//! - Everything that waits when a commit ends goes into the next one: one sync for all, so throughput rises with load.
//! - After a commit has failed nothing more is accepted until the journal is opened again.
//! - Each entry's hash covers all entries before it ([`chain`] has the exact bytes); what was pruned keeps its place
//!   in the chain.
//! - A checkpoint is there wholly or not at all, and nothing after the last checkpoint is ever pruned.
//! - A home that had a journal is never started as if it were new.
//!
//! Deliberately absent: a clock and lsn numbers of its own (the kernel loop stamps entries), async (completion is a
//! callback), and any memory of past entries beyond SQLite's page caches (2 MiB for each connection).

mod backup;
mod barrier;
pub mod chain;
mod charges;
mod checkpoint;
mod error;
mod export;
mod head;
mod journal;
mod lock;
mod memory;
mod named;
mod open;
mod private;
mod prune;
mod reader;
mod row;
mod salvage;
mod schema;
mod store;
mod trail;
mod verify;
mod writer;

pub use backup::{Exchange, check_archive, copy_database};
pub use barrier::{Barrier, BarrierPages};
pub use chain::Hash;
pub use charges::{Charge, ChargesBy};
pub use checkpoint::{Checkpoint, PageReader, SavedPage};
pub use error::{Error, Place};
pub use export::Line;
pub use journal::{Batch, Journal, Stats};
pub use memory::{Crash, MemoryStore};
pub use open::{OpenOptions, Opened, Torn, look};
pub use prune::PrunePlan;
pub use reader::Reader;
pub use store::Store;
pub use verify::{Fault, Report};
