//! What agents remember across tasks and restarts.
//!
//! Start at [`call`], which carries out a permitted call on a [`MemoryStore`]; [`WordStore`] is the store that needs
//! nothing but a file.
//!
//! What always holds: a namespace is never searched, shown, overwritten or forgotten through another one; a key that is
//! written again gets a new version and the newest alone is found; an effect that is carried out twice writes once;
//! the text of a query is never read as query syntax. The time is given with every request; a clock is looked at only so
//! that a search ends, whatever the records hold.
//!
//! Deliberately absent: verdicts on namespaces (`aos-policy`), which text may become memory (the kernel's labels), and
//! embeddings: search works without any service.

mod call;
mod error;
mod record;
mod segment;
mod store;
mod words;

pub use call::{Occasion, call};
pub use error::Error;
pub use record::{Forget, Hit, Note, Record, Search, Source, Stats, What};
pub use store::MemoryStore;
pub use words::WordStore;
