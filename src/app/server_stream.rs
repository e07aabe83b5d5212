//! Stream of an accepted connection: plain, or with TLS whose handshake is part of its first reads and writes.
//!
//! The task of the connection performs the handshake, so a stalled handshake does not delay other connections.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::server::{CallerConnection, PendingFacts, TransportFacts, TransportKind};
use crate::telemetry::{HandshakeOutcome, Metrics};
use crate::tls::CertificateNames;
use pumice_engine::short_lock::ShortLock;

/// First byte of a TLS connection; no request of HTTP begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

/// How a listener secures its connections.
#[derive(Clone)]
pub(super) struct StreamSecurity {
    /// Acceptor of this connection.
    pub(super) acceptor: TlsAcceptor,
    /// True if connections in plain text are served, too.
    pub(super) plain_too: bool,
    /// Time that a handshake has.
    pub(super) handshake_time: Duration,
    /// Metrics of handshakes.
    pub(super) metrics: Arc<Metrics>,
}

/// Handshakes under way, the oldest first. If there are too many, the oldest makes room for the newest: an honest caller is
/// through after two messages.
#[derive(Debug)]
pub(super) struct HandshakeTable {
    limit: usize,
    next: AtomicU64,
    open: ShortLock<BTreeMap<u64, Arc<CallerConnection>>>,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
pub(super) struct HandshakePlace {
    table: Arc<HandshakeTable>,
    number: u64,
}

impl HandshakeTable {
    pub(super) fn new(limit: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            limit,
            next: AtomicU64::new(0),
            open: ShortLock::default(),
            metrics,
        })
    }

    /// Place of a connection until its handshake is over.
    pub(super) fn enter(self: &Arc<Self>, connection: &Arc<CallerConnection>) -> HandshakePlace {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let oldest = self.open.with(|open| {
            open.insert(number, Arc::clone(connection));
            (open.len() > self.limit).then(|| open.pop_first()).flatten()
        });
        if let Some((_, oldest)) = oldest {
            self.metrics.record_limit_rejection("handshakes");
            oldest.close();
        }
        HandshakePlace {
            table: Arc::clone(self),
            number,
        }
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        self.table.open.with(|open| open.remove(&self.number));
    }
}

/// Stage of a connection that is not secured yet.
enum SecuringStage {
    /// Waits for the first byte, which distinguishes TLS from plain text.
    Looking(TcpStream),
    /// The handshake is under way.
    Handshake(Box<Accept<TcpStream>>),
    /// The attempt is over.
    Over,
}

/// Connection that is not secured yet.
pub(super) struct SecuringStream {
    stage: SecuringStage,
    security: StreamSecurity,
    deadline: Pin<Box<Sleep>>,
    /// Place that is given back at the end.
    _place: Option<HandshakePlace>,
}

/// Stream of an accepted connection.
pub(super) enum ServerStream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Securing(Box<SecuringStream>),
    Tls(Box<TlsStream<TcpStream>>),
    /// Nothing is left of it.
    Failed,
}

macro_rules! on_stream {
    ($stream:expr, $name:ident, $($argument:expr),*) => {
        match $stream {
            ServerStream::Tcp(stream) => Pin::new(stream).$name($($argument),*),
            ServerStream::Unix(stream) => Pin::new(stream).$name($($argument),*),
            ServerStream::Tls(stream) => Pin::new(stream.as_mut()).$name($($argument),*),
            ServerStream::Securing(_) | ServerStream::Failed => Poll::Ready(Err(not_secured())),
        }
    };
}

fn not_secured() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the connection was not secured")
}

impl ServerStream {
    /// Stream that is secured at its first use.
    pub(super) fn securing(stream: TcpStream, security: StreamSecurity, place: Option<HandshakePlace>) -> Self {
        let stage = if security.plain_too {
            SecuringStage::Looking(stream)
        } else {
            SecuringStage::Handshake(Box::new(security.acceptor.accept(stream)))
        };
        Self::Securing(Box::new(SecuringStream {
            stage,
            deadline: Box::pin(sleep(security.handshake_time)),
            security,
            _place: place,
        }))
    }

    /// True if the stream can be read and written.
    pub(super) fn is_secured(&self) -> bool {
        matches!(self, Self::Tcp(_) | Self::Unix(_) | Self::Tls(_))
    }

    /// Ready when the stream can be read and written. The facts are set then.
    pub(super) fn poll_secured(&mut self, context: &mut Context<'_>, facts: &PendingFacts) -> Poll<io::Result<()>> {
        let Self::Securing(securing) = self else {
            return Poll::Ready(Ok(()));
        };
        let (metrics, late) = (Arc::clone(&securing.security.metrics), &mut securing.deadline);
        let late = late.as_mut().poll(context).is_ready();
        let secured = match securing.poll(context) {
            Poll::Pending if late => {
                metrics.security.record_handshake(HandshakeOutcome::timed_out);
                let message = "the TLS handshake took longer than limit `handshake_ms`";
                *self = Self::Failed;
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)));
            }
            Poll::Pending => return Poll::Pending,
            Poll::Ready(secured) => secured,
        };
        match secured {
            Ok((stream, found)) => {
                if found.kind == TransportKind::Tls {
                    metrics.security.record_handshake(HandshakeOutcome::completed);
                }
                facts.set(found);
                *self = stream;
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                metrics.security.record_handshake(HandshakeOutcome::failed);
                tracing::debug!(%error, "a TLS handshake failed");
                *self = Self::Failed;
                Poll::Ready(Err(error))
            }
        }
    }

    pub(super) fn poll_read(&mut self, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, poll_read, context, into)
    }

    pub(super) fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        on_stream!(self, poll_write, context, bytes)
    }

    pub(super) fn poll_write_vectored(
        &mut self,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_stream!(self, poll_write_vectored, context, slices)
    }

    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, poll_flush, context)
    }

    pub(super) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if matches!(self, Self::Securing(_) | Self::Failed) {
            // Nothing was said that the other side could wait for the end of.
            *self = Self::Failed;
            return Poll::Ready(Ok(()));
        }
        on_stream!(self, poll_shutdown, context)
    }
}

impl SecuringStream {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<(ServerStream, TransportFacts)>> {
        if let SecuringStage::Looking(stream) = &self.stage {
            let mut first = [0];
            let seen = ready!(stream.poll_peek(context, &mut ReadBuf::new(&mut first)))?;
            let SecuringStage::Looking(stream) = std::mem::replace(&mut self.stage, SecuringStage::Over) else {
                return Poll::Ready(Err(not_secured()));
            };
            if seen == 0 || first != [TLS_HANDSHAKE] {
                let facts = TransportFacts {
                    kind: TransportKind::Plain,
                    certificate: None,
                };
                return Poll::Ready(Ok((ServerStream::Tcp(stream), facts)));
            }
            self.stage = SecuringStage::Handshake(Box::new(self.security.acceptor.accept(stream)));
        }
        let SecuringStage::Handshake(accept) = &mut self.stage else {
            return Poll::Ready(Err(not_secured()));
        };
        let stream = ready!(Pin::new(accept.as_mut()).poll(context));
        self.stage = SecuringStage::Over;
        let stream = stream?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let facts = TransportFacts {
            kind: TransportKind::Tls,
            certificate: shown.map(CertificateNames::of),
        };
        Poll::Ready(Ok((ServerStream::Tls(Box::new(stream)), facts)))
    }
}
