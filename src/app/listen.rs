//! Listeners: TCP and a Unix socket, and connections that can neither be too many nor hang for ever.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tokio_stream::Stream;
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::telemetry::Metrics;

/// Pause after a failed accept, which usually means that no more files can be opened.
const BREATH: Duration = Duration::from_millis(50);

/// How long a connection may do nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Until the first byte comes.
    pub(super) greeting: Duration,
    /// Between bytes; `None`: for ever.
    pub(super) silence: Option<Duration>,
    /// While it takes none of what is written.
    pub(super) stalled: Duration,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Counts an open connection.
struct Counted {
    metrics: Option<Arc<Metrics>>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(metrics) = &self.metrics {
            metrics.connections().dec();
        }
    }
}

/// A connection.
pub(super) struct Connection {
    socket: Socket,
    patience: Patience,
    reading: Option<Pin<Box<Sleep>>>,
    writing: Option<Pin<Box<Sleep>>>,
    info: TcpConnectInfo,
    _counted: Counted,
}

impl Connection {
    fn new(socket: Socket, patience: Patience, counted: Counted) -> Self {
        let info = match &socket {
            Socket::Tcp(stream) => {
                // Answers are written whole; to wait for more would only delay them.
                let _ = stream.set_nodelay(true);
                TcpConnectInfo {
                    local_addr: stream.local_addr().ok(),
                    remote_addr: stream.peer_addr().ok(),
                }
            }
            Socket::Unix(_) => TcpConnectInfo {
                local_addr: None,
                remote_addr: None,
            },
        };
        Self {
            socket,
            patience,
            reading: Some(Box::pin(sleep(patience.greeting))),
            writing: None,
            info,
            _counted: counted,
        }
    }

    /// Pending, or the end of the patience with what has not been written.
    fn stalled<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let stalled = self.patience.stalled;
        let timer = self.writing.get_or_insert_with(|| Box::pin(sleep(stalled)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "nothing is taken")))
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.info.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            Socket::Unix(stream) => Pin::new(stream).poll_read(context, into),
        };
        if read.is_ready() {
            self.reading = self.patience.silence.map(|silence| Box::pin(sleep(silence)));
            return read;
        }
        let Some(timer) = &mut self.reading else {
            return Poll::Pending;
        };
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "nothing is said")))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Socket::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        if written.is_pending() {
            return self.stalled(context);
        }
        self.writing = None;
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Socket::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        };
        if written.is_pending() {
            return self.stalled(context);
        }
        self.writing = None;
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// Connections of the gRPC services, from both kinds of socket. Beyond the limit they are closed at once.
pub(super) struct Incoming {
    tcp: TcpListener,
    unix: Option<SocketFile>,
    places: Arc<Semaphore>,
    patience: Patience,
    metrics: Arc<Metrics>,
    breath: Option<Pin<Box<Sleep>>>,
}

impl Incoming {
    pub(super) fn new(
        tcp: TcpListener,
        unix: Option<SocketFile>,
        most: usize,
        patience: Patience,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            tcp,
            unix,
            places: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            patience,
            metrics,
            breath: None,
        }
    }

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Socket>> {
        if let Poll::Ready(accepted) = self.tcp.poll_accept(context) {
            return Poll::Ready(accepted.map(|(stream, _)| Socket::Tcp(stream)));
        }
        let Some(unix) = &self.unix else {
            return Poll::Pending;
        };
        let (stream, _) = ready!(unix.listener.poll_accept(context))?;
        Poll::Ready(Ok(Socket::Unix(stream)))
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(breath) = &mut self.breath {
                ready!(breath.as_mut().poll(context));
                self.breath = None;
            }
            match ready!(self.poll_accept(context)) {
                Ok(socket) => {
                    let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() else {
                        tracing::warn!(limit = "connections", "connection refused");
                        self.metrics.refused("connections");
                        continue;
                    };
                    self.metrics.connections().inc();
                    let counted = Counted {
                        metrics: Some(Arc::clone(&self.metrics)),
                        _permit: permit,
                    };
                    return Poll::Ready(Some(Ok(Connection::new(socket, self.patience, counted))));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    self.breath = Some(Box::pin(sleep(BREATH)));
                }
            }
        }
    }
}

/// Connections of probes and metrics. Beyond the limit they wait.
pub(super) struct Pages {
    tcp: TcpListener,
    places: Arc<Semaphore>,
    patience: Patience,
}

impl Pages {
    pub(super) fn new(tcp: TcpListener, most: usize, patience: Patience) -> Self {
        Self {
            tcp,
            places: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            patience,
        }
    }
}

impl axum::serve::Listener for Pages {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let Ok(permit) = Arc::clone(&self.places).acquire_owned().await else {
                std::future::pending::<()>().await;
                continue;
            };
            match self.tcp.accept().await {
                Ok((stream, address)) => {
                    let counted = Counted {
                        metrics: None,
                        _permit: permit,
                    };
                    return (Connection::new(Socket::Tcp(stream), self.patience, counted), address);
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    sleep(BREATH).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

/// A Unix socket and its file, which goes when the socket goes.
#[derive(Debug)]
pub(super) struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// Listens there. A socket that nobody listens on any more, as a killed process leaves it, is replaced; anything else
    /// in that place is not touched.
    pub(super) async fn bind(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::FileTypeExt as _;
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if metadata.file_type().is_socket() => {
                if UnixStream::connect(path).await.is_ok() {
                    let message = "another process listens there";
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
                }
                tracing::warn!(path = %path.display(), "a socket left behind is replaced");
                std::fs::remove_file(path)?;
            }
            Ok(_) => {
                let message = "something that is no socket stands there";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
            }
            Err(_) => {}
        }
        Ok(Self {
            listener: UnixListener::bind(path)?,
            identity: identity(path),
            path: path.to_owned(),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have put its own there.
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}
