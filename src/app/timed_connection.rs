//! Connection with bounds on its silence.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

use super::server_stream::ServerStream;
use crate::server::{CallerConnection, ConnectionTable, PendingFacts};

/// Longest times for which a connection may do nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionTimeouts {
    /// Time until the first byte arrives; `None`: no limit.
    pub(super) first_byte: Option<Duration>,
    /// Time for which it may take none of the bytes written to it.
    pub(super) write: Duration,
}

/// Guard that keeps a connection in the table of open ones.
pub(super) struct ConnectionGuard {
    pub(super) table: Arc<ConnectionTable>,
    pub(super) connection: Arc<CallerConnection>,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.table.leave(&self.connection);
    }
}

/// Connection with timeouts.
pub(super) struct TimedConnection {
    stream: ServerStream,
    facts: PendingFacts,
    timeouts: ConnectionTimeouts,
    read_timer: Option<Pin<Box<Sleep>>>,
    write_timer: Option<Pin<Box<Sleep>>>,
    guard: Option<ConnectionGuard>,
}

impl TimedConnection {
    /// Connection of the HTTP front, which has its own limit for the time until a request arrives.
    pub(super) fn of_http(stream: ServerStream, facts: PendingFacts, write: Duration) -> Self {
        let timeouts = ConnectionTimeouts {
            first_byte: None,
            write,
        };
        Self::new(stream, facts, timeouts, None)
    }

    /// Connection of the gRPC services.
    pub(super) fn of_grpc(stream: ServerStream, timeouts: ConnectionTimeouts, guard: ConnectionGuard) -> Self {
        let facts = guard.connection.facts().clone();
        Self::new(stream, facts, timeouts, Some(guard))
    }

    fn new(
        stream: ServerStream,
        facts: PendingFacts,
        timeouts: ConnectionTimeouts,
        guard: Option<ConnectionGuard>,
    ) -> Self {
        Self {
            stream,
            facts,
            timeouts,
            read_timer: timeouts.first_byte.map(|time| Box::pin(sleep(time))),
            write_timer: None,
            guard,
        }
    }

    /// Pending, or a timeout of the bytes that are not written yet.
    fn poll_write_timeout<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let stalled = self.timeouts.write;
        let timer = self.write_timer.get_or_insert_with(|| Box::pin(sleep(stalled)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the connection takes no bytes",
        )))
    }

    fn poll_secured(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.stream.is_secured() {
            return Poll::Ready(Ok(()));
        }
        // The transport writes before it reads, so that this may be all that is asked of the connection.
        if self
            .guard
            .as_ref()
            .is_some_and(|guard| guard.connection.poll_closed(context).is_ready())
        {
            return Poll::Ready(Err(closed_for_others()));
        }
        self.stream.poll_secured(context, &self.facts)
    }
}

fn closed_for_others() -> io::Error {
    let message = "the connection was closed for the sake of others";
    io::Error::new(io::ErrorKind::ConnectionAborted, message)
}

impl Connected for TimedConnection {
    type ConnectInfo = Option<Arc<CallerConnection>>;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.guard.as_ref().map(|guard| Arc::clone(&guard.connection))
    }
}

impl AsyncRead for TimedConnection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(guard) = &self.guard
            && guard.connection.poll_closed(context).is_ready()
        {
            return Poll::Ready(Err(closed_for_others()));
        }
        ready!(self.poll_secured(context))?;
        let read = self.stream.poll_read(context, into);
        if read.is_ready() {
            self.read_timer = None;
            return read;
        }
        let Some(timer) = &mut self.read_timer else {
            return Poll::Pending;
        };
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the connection sends no bytes",
        )))
    }
}

impl AsyncWrite for TimedConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_secured(context))?;
        let written = self.stream.poll_write(context, bytes);
        if written.is_pending() {
            return self.poll_write_timeout(context);
        }
        self.write_timer = None;
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_secured(context))?;
        let written = self.stream.poll_write_vectored(context, slices);
        if written.is_pending() {
            return self.poll_write_timeout(context);
        }
        self.write_timer = None;
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_secured(context))?;
        self.stream.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_shutdown(context)
    }
}
