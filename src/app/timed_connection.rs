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

/// Bytes that a connection reads and writes before the tasks of others have their turn: some
/// 50 microseconds of work. Without such a bound one poll moves up to two mebibytes.
const TURN_BYTES: usize = 128 << 10;

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
    /// Bytes that were read and written in this turn.
    turn_bytes: usize,
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
        let facts = guard.connection.facts.clone();
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
            turn_bytes: 0,
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

    /// Pending at the end of a turn; the next one begins when other tasks had theirs.
    fn poll_turn(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.turn_bytes < TURN_BYTES {
            return Poll::Ready(());
        }
        self.turn_bytes = 0;
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn note_written(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.turn_bytes = self.turn_bytes.saturating_add(*bytes);
        }
        self.write_timer = None;
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
        ready!(self.poll_turn(context));
        let before = into.filled().len();
        let read = self.stream.poll_read(context, into);
        if read.is_ready() {
            self.turn_bytes = self
                .turn_bytes
                .saturating_add(into.filled().len().saturating_sub(before));
            self.read_timer = None;
            return read;
        }
        self.turn_bytes = 0;
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
        ready!(self.poll_turn(context));
        let written = self.stream.poll_write(context, bytes);
        if written.is_pending() {
            return self.poll_write_timeout(context);
        }
        self.note_written(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_secured(context))?;
        ready!(self.poll_turn(context));
        let written = self.stream.poll_write_vectored(context, slices);
        if written.is_pending() {
            return self.poll_write_timeout(context);
        }
        self.note_written(&written);
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Bytes that one poll of a task moves, and whether the task was woken for more.
    fn moved(
        step: impl Fn(Pin<&mut TimedConnection>, &mut Context<'_>) -> Poll<usize>,
        connection: &mut TimedConnection,
    ) -> (usize, bool) {
        use std::sync::atomic::{AtomicBool, Ordering};
        struct Woken(AtomicBool);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Arc::clone(&woken).into();
        let mut context = Context::from_waker(&waker);
        let mut all = 0;
        while let Poll::Ready(bytes) = step(Pin::new(connection), &mut context) {
            all += bytes;
        }
        (all, woken.0.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_turn_of_a_connection_ends_before_much_is_moved() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut other = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let sending = tokio::spawn(async move {
            other.write_all(&vec![7; 8 << 20]).await.unwrap();
            other
        });
        sleep(Duration::from_millis(100)).await;
        let mut own = TimedConnection::of_http(
            ServerStream::Tcp(stream),
            PendingFacts::default(),
            Duration::from_secs(9),
        );
        let read = |own: Pin<&mut TimedConnection>, context: &mut Context<'_>| {
            let mut buffer = [0; 16 << 10];
            let mut into = ReadBuf::new(&mut buffer);
            own.poll_read(context, &mut into)
                .map(|read| read.map(|()| into.filled().len()).unwrap())
        };
        let (bytes, is_woken) = moved(read, &mut own);
        assert!(bytes <= TURN_BYTES + (16 << 10) && bytes > 0, "{bytes}");
        assert!(is_woken || bytes < TURN_BYTES, "the rest is read in a later turn");
        let mut rest = 0;
        while bytes + rest < 8 << 20 {
            rest += moved(read, &mut own).0;
            tokio::task::yield_now().await;
        }
        let _other = sending.await.unwrap();
        let write = |own: Pin<&mut TimedConnection>, context: &mut Context<'_>| {
            own.poll_write(context, &[9; 16 << 10]).map(|written| written.unwrap())
        };
        let (bytes, _) = moved(write, &mut own);
        assert!(bytes <= TURN_BYTES + (16 << 10) && bytes > 0, "{bytes}");
    }
}
