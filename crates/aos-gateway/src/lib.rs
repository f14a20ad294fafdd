//! The HTTP interface: the system as other programs, browsers and scripts reach it.
//!
//! Start at [`serve`], which takes listeners, a [`System`], [`Options`] and a shutdown token from outside, and at
//! [`route::ROUTES`], the one table of what there is.
//!
//! What always holds: over TCP nothing but the health check and the webhooks is answered without the token or a program's
//! key, reads included, and the socket serves its own user; every error is `{"error":{code,message,hint}}`, but on the routes
//! of programs, whose clients have forms of their own; memory is bounded however many clients come and however slowly they
//! read. What a stranger sends is parsed by [`call::Call::parse`], which is pure, but for programs' requests, which the
//! system reads. Deliberately absent: MCP and the dashboard (later issues), TLS, CORS.

pub mod call;
mod dispatch;
mod door;
mod error;
mod events;
mod hook;
mod key;
mod lines;
mod metrics;
pub mod openapi;
mod options;
pub mod query;
mod rate;
mod relay;
mod room;
pub mod route;
mod seats;
mod serve;
mod signature;
mod stall;
mod subscription;
mod system;

pub use error::ApiError;
pub use key::Key;
pub use metrics::{InferenceCounters, Metrics};
pub use options::{Clock, Options, ShortToken, Token};
pub use serve::{Drained, Listener, ServeError, serve};
pub use signature::{SEEN_MAX, WINDOW_S, sign};
pub use subscription::{Live, Next, Progress, Subscription};
pub use system::{
    Answer, Relayed, Said, System, TakenWebhook, WebhookAnswer, WebhookCall, WebhookDelivery, WebhookRoute,
};
