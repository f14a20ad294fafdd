//! The binary `aos`: the daemon and its client in one.
//!
//! Start at [`cli::main`]. `home` says where everything is, `config` what `aos.toml` means, `secrets` where secrets are, `archive` backs it up, `client` talks to the daemon,
//! `cli` is a file per command, `top` is the full-screen view, `daemon` is what all of them talk to;
//! `difference` tells two folders apart.

pub mod archive;
pub mod cli;
pub mod client;
pub mod config;
pub mod daemon;
pub mod difference;
pub mod env;
pub mod home;
mod listeners;
mod local;
mod log;
pub mod mounts;
mod said;
pub mod secrets;
pub mod top;
