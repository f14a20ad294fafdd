//! Tests of the journal as its users see it, in one binary. Start at [`contract`], which runs over both stores.

mod contract;
mod sample;
