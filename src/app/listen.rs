//! Listeners on TCP and on a Unix socket, with bounds on the number of connections and on their silence.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{Sleep, sleep};
use tokio_stream::Stream;
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::server::{CallerConnection, ConnectionTable};
use crate::telemetry::WarningGate;

/// Pause after a failed accept, which usually means that no more files can be opened.
pub(super) const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Mode of the socket's file: the permissions of its directory alone decide who may connect.
const SOCKET_MODE: u32 = 0o666;

/// Longest times for which a connection may do nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionTimeouts {
    /// Time until the first byte arrives; `None`: no limit.
    pub(super) first_byte: Option<Duration>,
    /// Time for which it may take none of the bytes written to it.
    pub(super) write: Duration,
}

enum AcceptedStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Guard that keeps a connection in the table of open ones.
struct ConnectionGuard {
    table: Arc<ConnectionTable>,
    connection: Arc<CallerConnection>,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.table.leave(&self.connection);
    }
}

/// Connection with timeouts.
pub(super) struct TimedConnection {
    socket: AcceptedStream,
    timeouts: ConnectionTimeouts,
    read_timer: Option<Pin<Box<Sleep>>>,
    write_timer: Option<Pin<Box<Sleep>>>,
    guard: Option<ConnectionGuard>,
}

impl TimedConnection {
    /// Connection of the HTTP front, which has its own limit for the time until a request arrives.
    pub(super) fn of_http(stream: TcpStream, write: Duration) -> Self {
        let timeouts = ConnectionTimeouts {
            first_byte: None,
            write,
        };
        Self::new(AcceptedStream::Tcp(stream), timeouts, None)
    }

    fn new(socket: AcceptedStream, timeouts: ConnectionTimeouts, guard: Option<ConnectionGuard>) -> Self {
        if let AcceptedStream::Tcp(stream) = &socket {
            // Responses are written whole; waiting for more would only delay them.
            let _ = stream.set_nodelay(true);
        }
        Self {
            socket,
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
}

impl AcceptedStream {
    fn peer(&self) -> TcpConnectInfo {
        let tcp = match self {
            Self::Tcp(stream) => Some(stream),
            Self::Unix(_) => None,
        };
        TcpConnectInfo {
            local_addr: tcp.and_then(|stream| stream.local_addr().ok()),
            remote_addr: tcp.and_then(|stream| stream.peer_addr().ok()),
        }
    }
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
            let message = "the connection was closed for the sake of others";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, message)));
        }
        let read = match &mut self.socket {
            AcceptedStream::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            AcceptedStream::Unix(stream) => Pin::new(stream).poll_read(context, into),
        };
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
        let written = match &mut self.socket {
            AcceptedStream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            AcceptedStream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        };
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
        let written = match &mut self.socket {
            AcceptedStream::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            AcceptedStream::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        };
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
        match &mut self.socket {
            AcceptedStream::Tcp(stream) => Pin::new(stream).poll_flush(context),
            AcceptedStream::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            AcceptedStream::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            AcceptedStream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// Connections of the gRPC services, from both kinds of socket. A connection beyond the limit is closed at once, unless an
/// idle one makes room.
pub(super) struct GrpcListener {
    tcp: TcpListener,
    unix: Option<SocketFile>,
    table: Arc<ConnectionTable>,
    timeouts: ConnectionTimeouts,
    accept_pause: Option<Pin<Box<Sleep>>>,
    rejections: WarningGate,
    failures: WarningGate,
}

impl GrpcListener {
    pub(super) fn new(
        tcp: TcpListener,
        unix: Option<SocketFile>,
        table: Arc<ConnectionTable>,
        timeouts: ConnectionTimeouts,
    ) -> Self {
        Self {
            tcp,
            unix,
            table,
            timeouts,
            accept_pause: None,
            rejections: WarningGate::new(),
            failures: WarningGate::new(),
        }
    }

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<AcceptedStream>> {
        if let Poll::Ready(accepted) = self.tcp.poll_accept(context) {
            return Poll::Ready(accepted.map(|(stream, _)| AcceptedStream::Tcp(stream)));
        }
        let Some(unix) = &self.unix else {
            return Poll::Pending;
        };
        let (stream, _) = ready!(unix.listener.poll_accept(context))?;
        Poll::Ready(Ok(AcceptedStream::Unix(stream)))
    }
}

impl Stream for GrpcListener {
    type Item = io::Result<TimedConnection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(breath) = &mut self.accept_pause {
                ready!(breath.as_mut().poll(context));
                self.accept_pause = None;
            }
            match ready!(self.poll_accept(context)) {
                Ok(socket) => {
                    let Some(connection) = self.table.admit(socket.peer()) else {
                        if let Some(suppressed) = self.rejections.pass() {
                            tracing::warn!(limit = "connections", suppressed, "connection rejected");
                        }
                        continue;
                    };
                    let counted = ConnectionGuard {
                        table: Arc::clone(&self.table),
                        connection,
                    };
                    return Poll::Ready(Some(Ok(TimedConnection::new(socket, self.timeouts, Some(counted)))));
                }
                Err(error) => {
                    if let Some(suppressed) = self.failures.pass() {
                        tracing::warn!(%error, suppressed, "a connection cannot be accepted");
                    }
                    self.accept_pause = Some(Box::pin(sleep(ACCEPT_RETRY_DELAY)));
                }
            }
        }
    }
}

/// Unix socket and its file, which is removed with the socket.
#[derive(Debug)]
pub(super) struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// Listens on a path. A socket file that no process listens on, as a killed process leaves it, is replaced. Any
    /// other file in that place is left alone.
    pub(super) async fn bind(path: &Path) -> io::Result<Self> {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if metadata.file_type().is_socket() => {
                // Whatever else the error is, such as that of a queue that is full, somebody listens.
                let connected = UnixStream::connect(path).await;
                if !connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                    let message = "another process listens on it";
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
                }
                tracing::warn!(path = %path.display(), "a socket left behind is replaced");
                std::fs::remove_file(path)?;
            }
            Ok(_) => {
                let message = "a file that is not a socket has this name";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
            }
            Err(_) => {}
        }
        let listener = UnixListener::bind(path)?;
        // The umask would keep other users out, such as the scheduler in another container.
        std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
        Ok(Self {
            listener,
            identity: file_identity(path),
            path: path.to_owned(),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have created its own socket there.
        if self.identity.is_some() && file_identity(&self.path) == self.identity {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn file_identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_whose_queue_is_full_is_not_replaced() {
        let path = std::env::temp_dir().join(format!("pumice-busy-{}.sock", std::process::id()));
        let listener = SocketFile::bind(&path).await.unwrap();
        let mut waiting = Vec::new();
        // Nobody accepts: the queue fills up, and the next caller is told to come back.
        while let Ok(stream) = UnixStream::connect(&path).await {
            waiting.push(stream);
            assert!(waiting.len() < 10_000);
        }
        let second = SocketFile::bind(&path).await;
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists());
        // What a killed process leaves is replaced.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(SocketFile::bind(&path).await.is_ok());
    }
}
