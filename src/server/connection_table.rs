//! Table of open connections. It closes a stalled or idle connection when another connection needs its place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tonic::transport::server::TcpConnectInfo;

use super::connection::CallerConnection;
use crate::telemetry::{Metrics, WarningGate};
use pumice_engine::short_lock::ShortLock;

/// Number of connections beyond the limit that may be open while closed ones end. Beyond them a new connection waits in the
/// listener until one has ended.
const CLOSING_CONNECTIONS: usize = 32;
/// Time for which a response must have made no progress before its connection is closed for the sake of another.
const STALL_GRACE: Duration = Duration::from_secs(2);
/// Longest time between two looks for stalled responses.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Table of open connections.
#[derive(Debug)]
pub struct ConnectionTable {
    limit: usize,
    next: AtomicU64,
    open: ShortLock<OpenConnections>,
    /// Largest number of open connections since the last call of `fallen`.
    peak: AtomicUsize,
    metrics: Arc<Metrics>,
    closings: WarningGate,
}

/// Connections that have not ended, by number, and the listener that waits for one to end.
#[derive(Debug, Default)]
struct OpenConnections {
    by_number: BTreeMap<u64, Arc<CallerConnection>>,
    waiting: Option<Waker>,
}

impl ConnectionTable {
    /// Table without connections.
    pub fn new(limit: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            limit,
            next: AtomicU64::new(0),
            open: ShortLock::default(),
            peak: AtomicUsize::new(0),
            metrics,
            closings: WarningGate::new(),
        })
    }

    /// Is ready when a new connection can be admitted or rejected: closed ones end first if there are too many of them.
    pub(crate) fn poll_ended(&self, context: &Context<'_>) -> Poll<()> {
        self.open.with(|open| {
            if open.by_number.len() < self.limit.saturating_add(CLOSING_CONNECTIONS) {
                return Poll::Ready(());
            }
            open.waiting = Some(context.waker().clone());
            Poll::Pending
        })
    }

    /// A new connection, which has no place yet.
    pub(crate) fn connection(&self, peer: TcpConnectInfo) -> Arc<CallerConnection> {
        CallerConnection::new(self.next.fetch_add(1, Ordering::Relaxed), peer)
    }

    /// Admits a new connection. If the table is full, an idle connection makes room; `None`: there is none.
    pub(crate) fn admit(&self, peer: TcpConnectInfo) -> Option<Arc<CallerConnection>> {
        let connection = self.connection(peer);
        self.enlist(&connection).then_some(connection)
    }

    /// Gives a connection a place. If the table is full, an idle connection makes room; false: there is none.
    pub(crate) fn enlist(&self, connection: &Arc<CallerConnection>) -> bool {
        let open = self.open();
        if open.len() >= self.limit {
            let idle = open.iter().filter(|connection| connection.is_idle());
            let longest = idle.min_by_key(|connection| connection.idle_rank());
            self.metrics.record_limit_rejection("connections");
            let is_crowded = open.len() >= self.limit.saturating_add(CLOSING_CONNECTIONS);
            let Some(longest) = longest.filter(|_| !is_crowded) else {
                return false;
            };
            self.close(longest, "it was idle, and a new connection needs its place");
        }
        let count = self.open.with(|open| {
            open.by_number.insert(connection.number, Arc::clone(connection));
            open.by_number.len()
        });
        self.peak.fetch_max(count, Ordering::Relaxed);
        self.metrics.connections.inc();
        true
    }

    /// Number by which the open connections are fewer than the most since the last call.
    pub(super) fn fallen(&self) -> usize {
        let open = self.open.with(|open| open.by_number.len());
        self.peak.swap(open, Ordering::Relaxed).saturating_sub(open)
    }

    fn open(&self) -> Vec<Arc<CallerConnection>> {
        self.open.with(|open| open.by_number.values().map(Arc::clone).collect())
    }

    /// Removes a connection that has ended.
    pub(crate) fn leave(&self, connection: &CallerConnection) {
        connection.end_state_share();
        let (removed, waiting) = self
            .open
            .with(|open| (open.by_number.remove(&connection.number), open.waiting.take()));
        if removed.is_some() {
            self.metrics.connections.dec();
        }
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    /// Closes the connection that holds the most, among connections of other callers with a stalled response. Returns
    /// false if there is none.
    pub(super) fn close_most_stalled(&self, asking: u64, limit: &'static str) -> bool {
        let open = self.open();
        let stalled = open.iter().filter(|connection| {
            connection.number != asking && !connection.is_closed() && connection.is_stalled(STALL_GRACE)
        });
        let most = stalled.max_by_key(|connection| {
            let held = &connection.held;
            (held.bytes.load(Ordering::Relaxed), held.calls.load(Ordering::Relaxed))
        });
        let Some(most) = most else { return false };
        self.metrics.record_limit_rejection(limit);
        self.close(most, "it takes none of its responses, and another call needs the room");
        true
    }

    /// Closes the connection with the longest silent streams, among connections of other callers. Returns false if
    /// there is none.
    pub(super) fn close_most_silent(&self, asking: u64, limit: &'static str) -> bool {
        let open = self.open();
        let others = open.iter().filter(|connection| connection.number != asking);
        let ranked = others.filter_map(|connection| Some((connection.silence_rank()?, connection)));
        let Some((_, longest)) = ranked.max_by_key(|(rank, _)| *rank) else {
            return false;
        };
        self.metrics.record_limit_rejection(limit);
        self.close(
            longest,
            "its streams are silent, and a caller without any needs the place",
        );
        true
    }

    fn close(&self, connection: &CallerConnection, reason: &'static str) {
        connection.close();
        if let Some(suppressed) = self.closings.pass() {
            let peer = connection.peer.remote_addr;
            tracing::warn!(?peer, reason, suppressed, "connection closed");
        }
    }

    /// Closes connections of this age, while the table is in use. Their callers have already been asked to reconnect.
    pub async fn close_old(table: Weak<Self>, age: Duration) {
        loop {
            tokio::time::sleep((age / 4).min(WATCH_INTERVAL)).await;
            let Some(table) = table.upgrade() else { return };
            for connection in table.open() {
                if !connection.is_closed() && connection.age() >= age {
                    tracing::debug!(peer = ?connection.peer.remote_addr, "an old connection is closed");
                    connection.close();
                }
            }
        }
    }

    /// Closes connections whose response was not read at all for this time, while the table is in use.
    pub async fn close_stalled(table: Weak<Self>, stalled: Duration) {
        loop {
            tokio::time::sleep((stalled / 4).min(WATCH_INTERVAL)).await;
            let Some(table) = table.upgrade() else { return };
            for connection in table.open() {
                if !connection.is_closed() && connection.is_stalled(stalled) {
                    table.metrics.record_limit_rejection("stalled_ms");
                    table.close(&connection, "it took none of a response for `stalled_ms`");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_connections_wait_until_closed_ones_have_ended() {
        let table = ConnectionTable::new(2, Arc::new(Metrics::new()));
        let context = Context::from_waker(Waker::noop());
        let admit = || {
            table.admit(TcpConnectInfo {
                local_addr: None,
                remote_addr: None,
            })
        };
        let mut open = Vec::new();
        while table.poll_ended(&context).is_ready() {
            open.push(admit().expect("an idle connection makes room"));
        }
        assert_eq!(open.len(), 2 + CLOSING_CONNECTIONS);
        let closed = open.iter().filter(|connection| connection.is_closed()).count();
        assert_eq!(closed, CLOSING_CONNECTIONS);
        table.leave(&open[0]);
        assert!(table.poll_ended(&context).is_ready(), "one has ended");
        assert!(table.open.with(|open| open.waiting.is_none()), "the listener was woken");
    }
}
