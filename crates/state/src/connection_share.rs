//! Shares of single connections in limits that all callers share.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::error::{LimitHolder, StateError, held_limit_error};
use super::limits::StateLimits;

/// Bits of an IPv6 address that are of its network.
const NETWORK: u128 = !0 << 64;

/// Share of one connection in the limits of the state: its open sessions and their bytes. Copies are of the same connection.
#[derive(Clone, Debug, Default)]
pub struct ConnectionShare(Arc<ConnectionHoldings>);

#[derive(Debug, Default)]
struct ConnectionHoldings {
    /// Address of the caller, as far as it tells callers apart.
    peer: Option<IpAddr>,
    /// Open sessions that came by the connection.
    sessions: AtomicUsize,
    /// Bytes that these sessions hold alone.
    copied_bytes: AtomicUsize,
    /// Bytes of former states that the sessions hold, as of the last update.
    retained_bytes: AtomicUsize,
    has_ended: AtomicBool,
}

/// Peer of an address. For IPv6 it is the network, because a host has all addresses of it.
#[must_use]
pub fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK)),
        version_4 @ IpAddr::V4(_) => version_4,
    }
}

impl PartialEq for ConnectionShare {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl ConnectionShare {
    /// Share of a connection from this address.
    #[must_use]
    pub fn of_peer(address: IpAddr) -> Self {
        Self(Arc::new(ConnectionHoldings {
            peer: Some(peer_of(address)),
            ..ConnectionHoldings::default()
        }))
    }

    /// True if both are of one caller, by its address.
    pub(super) fn is_of_same_peer(&self, other: &Self) -> bool {
        self == other || (self.0.peer.is_some() && self.0.peer == other.0.peer)
    }

    /// Records that the connection has ended. Its sessions and full syncs may then be dropped in favour of others.
    pub fn end(&self) {
        self.0.has_ended.store(true, Ordering::Release);
    }

    /// True if the connection has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::Acquire)
    }

    /// Number that orders the connections of one moment, for lists by connection.
    pub(super) fn key(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Checks that the connection may open one more session.
    pub(super) fn check_sessions(&self, limits: &StateLimits) -> Result<(), StateError> {
        if self.0.sessions.load(Ordering::Acquire) < limits.connection_sessions {
            return Ok(());
        }
        Err(sessions_error(limits))
    }

    /// Adds an opened session to the total, or fails if the connection has too many sessions.
    pub(super) fn add_session(&self, limits: &StateLimits) -> Result<(), StateError> {
        let more = |sessions: usize| (sessions < limits.connection_sessions).then(|| sessions.saturating_add(1));
        let added = self.0.sessions.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        added.map(drop).map_err(|_| sessions_error(limits))
    }

    /// Checks that the connection's sessions may hold this much more.
    pub(super) fn check_session_bytes(&self, more: usize, limits: &StateLimits) -> Result<(), StateError> {
        let (bytes, most) = (
            self.session_bytes().saturating_add(more),
            limits.connection_session_bytes,
        );
        if bytes <= most || self.has_ended() {
            return Ok(());
        }
        let message = format!(
            "open sessions of the connection would hold {bytes} bytes: close those that are over, or use another connection"
        );
        Err(held_limit_error(
            LimitHolder::Connection,
            "connection_session_bytes",
            most,
            message,
        ))
    }

    fn session_bytes(&self) -> usize {
        let Self(held) = self;
        if held.sessions.load(Ordering::Acquire) == 0 {
            // Nothing is retained any more, though the last count found something.
            return 0;
        }
        let copied = held.copied_bytes.load(Ordering::Acquire);
        copied.saturating_add(held.retained_bytes.load(Ordering::Acquire))
    }

    /// Removes a session from the total.
    pub(super) fn remove_session(&self) {
        self.0.sessions.fetch_sub(1, Ordering::AcqRel);
    }

    /// Adds `more` bytes that only a session holds and subtracts `less`.
    pub(super) fn adjust_bytes(&self, more: usize, less: usize) {
        adjust(&self.0.copied_bytes, more, less);
    }

    /// Records the bytes of former states that the connection's sessions hold.
    pub(super) fn record_retained(&self, bytes: usize) {
        self.0.retained_bytes.store(bytes, Ordering::Release);
    }
}

fn sessions_error(limits: &StateLimits) -> StateError {
    let message =
        "the connection has no place for one more session: close those that are over, or use another connection";
    held_limit_error(
        LimitHolder::Connection,
        "connection_sessions",
        limits.connection_sessions,
        message.to_owned(),
    )
}

/// Adds and subtracts in one step.
pub(super) fn adjust(sum: &AtomicUsize, more: usize, less: usize) {
    let adjusted = |sum: usize| Some(sum.saturating_add(more).saturating_sub(less));
    // The update always succeeds: the closure never returns `None`.
    let _ = sum.fetch_update(Ordering::AcqRel, Ordering::Acquire, adjusted);
}
