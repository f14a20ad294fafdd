//! The model edge: it turns a prompt into a provider's HTTP request, and what comes back into a reply or a failure.
//!
//! Start at [`Pool::infer`]. [`config`] is a model as it stands in `aos.toml`; `target` and `exchange` send one request and
//! read what comes; `turns`, `tools`, `wishes`, `written` and one file per wire (`openai`, `anthropic`, `gemini`) write requests; `sse`
//! and `answer` read what comes back; `failure` and `retry` say what a fault means and whether to try again; `relay` serves
//! other programs in the formats that they speak; [`engine`] is the place for a runtime that is not HTTP, and [`mod@pull`]
//! fetches files for it; [`embed`] has vectors made of texts; [`discover`] finds models for `aos init`; [`scripted`] is a model server whose answers are data, for
//! tests, benchmarks and a first run without any model.
//!
//! What always holds: every wait has a deadline; nothing that a server sends can make memory grow without bound; a key is
//! read when it is needed, and stands in no error, log or `Debug`; a permanent failure is never tried again.
//! Deliberately absent: choosing a model, metering against budgets and rate limits between calls, which the kernel does;
//! and a runtime of our own, which comes in as an [`engine::Engine`].

mod answer;
mod anthropic;
mod client;
pub mod config;
pub mod discover;
pub mod embed;
pub mod engine;
mod exchange;
mod failure;
mod gemini;
mod listing;
mod openai;
mod pool;
pub mod pull;
mod relay;
mod retry;
pub mod scripted;
mod sse;
mod target;
mod tools;
mod tries;
mod turns;
mod wire;
mod wishes;
mod written;

pub use client::Timeouts;
pub use config::{ModelConfig, Provider, Tier};
pub use pool::{Checked, Delta, Env, Options, Pool, environment};
pub use relay::{Asked, Ended, Misfit, Refusal, Relayed, Veil};
pub use retry::Retries;
pub use tries::Tries;
pub use written::Written;
