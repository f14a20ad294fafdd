//! Models that run inside the daemon, on the CPU: GGUF files of the llama architecture, and encoders that make vectors.
//!
//! Start at [`Runtime::ask`]. `weights` opens a file and checks it; `vocabulary` turns text into tokens; `form` writes a
//! prompt as a model reads it; `grammar` and `guide` hold an answer to the system calls that its process may make; `nano`
//! does all three for aos-nano; `llama` and `attention` compute, behind the trait in `decoder`; `kv` is what a process has read, and
//! `worker` the thread that serves all processes of one model; `voices` has aos-nano read a prompt several times. [`Runtime::embed`] has vectors made of texts: `encoder` is
//! the thread of such a model, `bert` computes.
//!
//! What always holds: nothing that a file or a prompt holds makes this panic, and a panic in a library ends one answer,
//! not the daemon; text never becomes a control token; one process's cache is only ever continued by a prompt that begins
//! with the very same tokens. Deliberately absent: accelerators, other architectures, sampling (the likeliest token is
//! taken, so that the same prompt gives the same answer), and fetching files.

mod attention;
mod bert;
pub mod decoder;
mod encoder;
mod fault;
mod form;
mod grammar;
mod guide;
mod kv;
mod llama;
mod nano;
mod runtime;
#[cfg(test)]
mod tests;
mod vocabulary;
mod voices;
mod weights;
mod worker;

pub use encoder::Embedded;
pub use fault::Fault;
pub use kv::Kv;
pub use llama::Llama;
pub use runtime::{Answering, Options, Runtime};
pub use worker::Answered;
