//! The interface, served on a TCP port and on a socket.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aos_abi::Timestamp;
use aos_gateway::{Drained, Listener, Options, Token, serve};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::Door;
use crate::fake::Fake;

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

pub(crate) struct Server {
    pub(crate) fake: Arc<Fake>,
    pub(crate) address: SocketAddr,
    socket: PathBuf,
    pub(crate) shutdown: CancellationToken,
    pub(crate) task: JoinHandle<Drained>,
    _end: DropGuard,
    _folder: tempfile::TempDir,
}

impl Server {
    pub(crate) async fn start() -> Server {
        Server::with(64, |_| {}).await
    }

    /// `live`: how many things a subscriber may be behind.
    pub(crate) async fn with(live: usize, change: impl FnOnce(&mut Options)) -> Server {
        let fake = Arc::new(Fake::new(live));
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("aos.sock");
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let listeners = vec![Listener::Tcp(tcp), Listener::Unix(UnixListener::bind(&socket).unwrap())];
        let mut options = Options::new(Token::new(TOKEN).unwrap());
        let clock = Arc::clone(&fake);
        options.clock = Arc::new(move || Timestamp(clock.now.load(Ordering::SeqCst)));
        change(&mut options);
        let shutdown = CancellationToken::new();
        let (system, token) = (Arc::clone(&fake), shutdown.clone());
        let task = tokio::spawn(async move { serve(listeners, system, options, token).await.unwrap() });
        Server { fake, address, socket, _end: shutdown.clone().drop_guard(), shutdown, task, _folder: folder }
    }

    pub(crate) fn tcp(&self) -> Door {
        Door::Tcp(self.address)
    }

    pub(crate) fn unix(&self) -> Door {
        Door::Unix(self.socket.clone())
    }
}
