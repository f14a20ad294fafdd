//! The network: `NET_FETCH` and `NET_SEND`.
//!
//! Start at [`Driver::call`]; `destination` says where a request may go. Commands reach the same through a [`Proxy`].
//!
//! What always holds:
//! - A name is resolved once per hop, every address of it is checked, and the connection goes to exactly those
//!   addresses; no connection is kept for another call. So neither a name that changes its mind (DNS rebinding) nor one
//!   caller's exception for a private address serves another caller. Nor does any of them lead to the daemon itself.
//! - Every redirect is a new request: parsed, decided by the caller and checked like the first. Only `NET_FETCH` follows
//!   redirects; what cannot be taken back is sent once, and a redirect is its answer.
//! - One deadline holds for everything together, and the body is bounded after decompression.
//! - A secret is put in after the decision, for the one host and port it is made for, and covered in what comes back.
//! - No proxy from the environment, no cookies, no credentials from a URL, no retry.
//!
//! Deliberately absent: HTTP/2, caching, and where secrets are kept (the daemon knows).

mod authority;
mod body;
mod destination;
mod driver;
mod error;
mod headers;
mod methods;
mod names;
mod own;
mod pace;
mod proxy;
mod resolver;
mod secret;
#[cfg(test)]
mod tests;
mod through;
mod tls;
mod tunnel;

pub use authority::Authority;
pub use destination::HostPort;
pub use driver::{Driver, Options, Trip};
pub use own::Own;
pub use proxy::{Gate, Proxy, Seen};
pub use resolver::{Resolve, Resolving, SystemResolver};
pub use secret::{Secret, covered};
pub use tunnel::Tunnel;
