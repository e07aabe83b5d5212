//! Listeners on TCP and on a Unix socket, with bounds on the number of connections and on their silence.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::{Sleep, sleep};
use tokio_stream::Stream;
use tonic::transport::server::TcpConnectInfo;

use super::server_stream::{HandshakeTable, ServerStream, StreamSecurity};
use super::socket_file::SocketFile;
use super::timed_connection::{ConnectionGuard, ConnectionTimeouts, TimedConnection};
use crate::server::{CallerConnection, ConnectionTable, PendingFacts, TransportFacts, TransportKind};
use crate::telemetry::{Metrics, WarningGate};
use crate::tls::TlsKeeper;

/// Pause after a failed accept, which usually means that no more files can be opened.
pub(super) const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

enum AcceptedStream {
    Tcp(TcpStream),
    Unix(UnixStream),
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

/// TLS of the listeners.
#[derive(Clone, Debug)]
pub(super) struct ListenerSecurity {
    /// Keeper of certificate, key and authorities.
    pub(super) keeper: Arc<TlsKeeper>,
    /// True if connections in plain text are served, too.
    pub(super) plain_too: bool,
    /// Time that a handshake has.
    pub(super) handshake_time: Duration,
    /// Metrics of handshakes.
    pub(super) metrics: Arc<Metrics>,
    /// Handshakes under way.
    pub(super) handshakes: Arc<HandshakeTable>,
}

impl ListenerSecurity {
    /// Security of the next connection: of the gRPC services, or of probes and metrics.
    fn stream_security(&self, is_grpc: bool) -> StreamSecurity {
        StreamSecurity {
            acceptor: if is_grpc {
                self.keeper.grpc()
            } else {
                self.keeper.http()
            },
            plain_too: self.plain_too,
            handshake_time: self.handshake_time,
            metrics: Arc::clone(&self.metrics),
        }
    }
}

/// Stream of a connection of the HTTP front.
pub(super) fn http_stream(
    stream: TcpStream,
    security: Option<&ListenerSecurity>,
    facts: &PendingFacts,
) -> ServerStream {
    prepare(&stream);
    if let Some(security) = security {
        return ServerStream::securing(stream, security.stream_security(false), None);
    }
    facts.set(known(TransportKind::Plain));
    ServerStream::Tcp(stream)
}

fn prepare(stream: &TcpStream) {
    // Responses are written whole; waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
}

fn known(kind: TransportKind) -> TransportFacts {
    TransportFacts {
        kind,
        certificate: None,
    }
}

/// Connections of the gRPC services, from both kinds of socket. A connection beyond the limit is closed at once, unless an
/// idle one makes room.
pub(super) struct GrpcListener {
    tcp: TcpListener,
    unix: Option<SocketFile>,
    security: Option<ListenerSecurity>,
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
        security: Option<ListenerSecurity>,
        table: Arc<ConnectionTable>,
        timeouts: ConnectionTimeouts,
    ) -> Self {
        Self {
            tcp,
            unix,
            security,
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
        Poll::Ready(ready!(unix.poll_accept(context)).map(AcceptedStream::Unix))
    }

    fn stream(&self, accepted: AcceptedStream, connection: &Arc<CallerConnection>) -> ServerStream {
        match accepted {
            AcceptedStream::Unix(stream) => {
                connection.facts.set(known(TransportKind::Socket));
                ServerStream::Unix(stream)
            }
            AcceptedStream::Tcp(stream) => {
                prepare(&stream);
                let Some(security) = &self.security else {
                    connection.facts.set(known(TransportKind::Plain));
                    return ServerStream::Tcp(stream);
                };
                let place = security.handshakes.enter(connection);
                ServerStream::securing(stream, security.stream_security(true), Some(place))
            }
        }
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
            ready!(self.table.poll_ended(context));
            match ready!(self.poll_accept(context)) {
                Ok(accepted) => {
                    let Some(connection) = self.table.admit(accepted.peer()) else {
                        if let Some(suppressed) = self.rejections.pass() {
                            tracing::warn!(limit = "connections", suppressed, "connection rejected");
                        }
                        continue;
                    };
                    let stream = self.stream(accepted, &connection);
                    let counted = ConnectionGuard {
                        table: Arc::clone(&self.table),
                        connection,
                    };
                    return Poll::Ready(Some(Ok(TimedConnection::of_grpc(stream, self.timeouts, counted))));
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
