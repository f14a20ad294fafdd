//! A model server whose answers are data: real HTTP on loopback in the wire formats of OpenAI, Anthropic and Gemini.
//!
//! Start at [`Script`], what it answers, and [`Server::start`]. `conversation` reads as much of a request as the rules ask
//! for, `template` fills what earlier results said into an answer, `render` writes it in a wire format.
//! What always holds: which answer comes follows from the request alone, so that a daemon that is restarted in the
//! middle goes on rightly (only [`Rule::times`] counts, for faults that pass); a request is read no further than the
//! rules need. Deliberately absent: a model.

mod body;
mod conversation;
mod render;
mod script;
mod server;
mod template;

pub use script::{Answer, Call, Fault, Page, Rule, Script, StopAs, UsageAs, When};
pub use server::{Error, RECORDED_MAX, Recorded, Server};
