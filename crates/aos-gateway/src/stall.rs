//! A connection that is cut off when its other end takes nothing for too long.
//!
//! A client that asks for an event stream and never reads it would otherwise hold its place for ever. What always
//! holds: the clock runs only while something is to be written and cannot be; reads have deadlines elsewhere.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A stream whose writes fail with `TimedOut` once its peer has taken nothing for `within`.
pub(crate) struct Stall<IO> {
    inner: IO,
    within: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<IO> Stall<IO> {
    pub(crate) fn new(inner: IO, within: Duration) -> Stall<IO> {
        Stall { inner, within, timer: None }
    }

    fn watch<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.timer = None;
            return written;
        }
        let within = self.within;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        match timer.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing"))),
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Stall<IO> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Stall<IO> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, pieces);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A flush of a socket is ready at once and says nothing of the peer, so it must not reset the clock.
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_cut_off_and_a_slow_one_is_not() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = Stall::new(near, Duration::from_secs(60));
        let slow = tokio::spawn(async move {
            let mut taken = [0; 1];
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_secs(59)).await;
                far.read_exact(&mut taken).await.unwrap();
            }
            far
        });
        near.write_all(&[0; 12]).await.unwrap();
        let _far = slow.await.unwrap();
        assert_eq!(near.write_all(&[0; 12]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
