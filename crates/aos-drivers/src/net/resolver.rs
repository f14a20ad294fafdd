//! From a host's name to addresses, once per hop, and how a connection is held to them.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve as ReqwestResolve, Resolving as ReqwestResolving};
use tokio::sync::Semaphore;

/// The addresses of a name, when they come.
pub type Resolving<'r> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'r>>;

/// Something that knows the addresses of names. What it says is checked, so it need not be trusted.
pub trait Resolve: Send + Sync {
    /// All addresses of a name, in the order to try them in.
    fn resolve<'r>(&'r self, host: &'r str) -> Resolving<'r>;
}

/// Lookups at once: each takes a thread until the system gives up, whether or not somebody still waits for it, and the
/// threads for such work are everybody's (512).
const LOOKUPS_MAX: usize = 128;

/// The operating system's resolver.
#[derive(Clone, Debug)]
pub struct SystemResolver {
    room: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> SystemResolver {
        SystemResolver { room: Arc::new(Semaphore::new(LOOKUPS_MAX)) }
    }
}

impl Resolve for SystemResolver {
    fn resolve<'r>(&'r self, host: &'r str) -> Resolving<'r> {
        Box::pin(async move {
            let permit = Arc::clone(&self.room).acquire_owned().await.map_err(io::Error::other)?;
            let host = host.to_owned();
            let looked = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                (host.as_str(), 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect())
            });
            looked.await?
        })
    }
}

/// Answers one name with the addresses that were checked, and nothing else.
#[derive(Clone, Debug)]
pub(super) struct Pinned {
    host: String,
    addresses: Vec<IpAddr>,
}

impl Pinned {
    pub(super) fn new(host: &str, addresses: Vec<IpAddr>) -> Pinned {
        Pinned { host: host.to_owned(), addresses }
    }

    /// The addresses, in the order to try them in.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().copied()
    }
}

impl ReqwestResolve for Pinned {
    fn resolve(&self, name: Name) -> ReqwestResolving {
        let asked = name.as_str().strip_suffix('.').unwrap_or(name.as_str());
        let answer = if asked.eq_ignore_ascii_case(&self.host) {
            // The port is the one of the URL; 0 stands for it.
            let addresses: Vec<SocketAddr> = self.addresses.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        } else {
            Err(format!("`{asked}` was not checked").into())
        };
        Box::pin(std::future::ready(answer))
    }
}
