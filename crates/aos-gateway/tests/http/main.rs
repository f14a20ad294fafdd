//! The HTTP interface over real sockets, with an imitated system behind it.
//!
//! Start at [`fake::Fake`], the system, [`server::Server`], which serves it on both kinds of listener, and
//! [`client`]. No test depends on speed: what must happen is waited for, what must not is proven by what comes after.

#![allow(clippy::unwrap_used, reason = "clippy does not know that every file here is a test")]

mod access;
mod bounds;
mod client;
mod events;
mod fake;
mod hooks;
mod programs;
mod routes;
mod server;
