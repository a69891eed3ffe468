//! A connection that breaks off when its client does not go on reading: an answer that nobody takes would hold its memory and
//! its file for good.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// A stream of which no write may wait for longer than a limit.
#[derive(Debug)]
pub struct Unstalled {
    stream: TcpStream,
    limit: Duration,
    /// Runs while `waits`.
    deadline: Pin<Box<Sleep>>,
    waits: bool,
}

impl Unstalled {
    /// Puts the limit on a stream.
    #[must_use]
    pub fn new(stream: TcpStream, limit: Duration) -> Self {
        Self { stream, limit, deadline: Box::pin(sleep(limit)), waits: false }
    }

    /// What a write came to, or the error that it has waited too long.
    fn within_limit<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !self.waits {
            self.waits = true;
            self.deadline.as_mut().reset(Instant::now() + self.limit);
        }
        self.deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Unstalled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Unstalled {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within_limit(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.within_limit(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Both ends of a connection.
    async fn pair(limit: Duration) -> (Unstalled, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Unstalled::new(listener.accept().await.unwrap().0, limit), client)
    }

    #[tokio::test]
    async fn writing_to_a_client_that_does_not_read_ends_at_the_limit() {
        let (mut server, _client) = pair(Duration::from_millis(200)).await;
        // More than the buffers of both ends hold.
        let error = server.write_all(&vec![0; 64 << 20]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_client_that_reads_gets_everything() {
        let (mut server, mut client) = pair(Duration::from_secs(30)).await;
        let writes = tokio::spawn(async move { server.write_all(&vec![0; 64 << 20]).await });
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        writes.await.unwrap().unwrap();
        assert_eq!(received.len(), 64 << 20);
    }
}
