//! Open connections of callers, and what each of them holds, so that one that stalls or idles can be closed when another
//! needs its place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Extensions;
use tonic::transport::server::TcpConnectInfo;

use crate::telemetry::{Metrics, WarningGate};
use pumice_engine::short_lock::ShortLock;
use pumice_state::ConnectionShare;

use super::rejection_pause::RetryRecord;
use super::response_body::ResponseProgress;
use super::retry_turns::RetryTurns;
use super::transport_facts::PendingFacts;
use super::work_queue::WorkCaller;

tokio::task_local! {
    /// Connection of the call that the present task works on.
    static CALLER: Arc<CallerConnection>;
}

/// Number of connections beyond the limit that may be open while closed ones end. Beyond them a new connection waits in the
/// listener until one has ended.
const CLOSING_CONNECTIONS: usize = 32;
/// Time for which a response must have made no progress before its connection is closed for the sake of another.
const STALL_GRACE: Duration = Duration::from_secs(2);
/// Time for which streams must have been silent before their connection is closed for the sake of another's first one.
const STREAM_GRACE: Duration = Duration::from_secs(5);
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

/// One connection of a caller.
#[derive(Debug)]
pub struct CallerConnection {
    number: u64,
    peer: TcpConnectInfo,
    facts: PendingFacts,
    opened: Instant,
    /// Calls under way, with those whose response is not taken yet.
    calls: AtomicUsize,
    /// Time from the opening to the end of the last call, in milliseconds; zero: no call has ended.
    last_call: AtomicU64,
    /// Amounts held of the limits that have a share per connection.
    pub(super) held: HeldAmounts,
    /// Share of the connection in the limits of the state.
    state_share: ConnectionShare,
    responses: ShortLock<BTreeMap<u64, Weak<ResponseProgress>>>,
    /// Turns of its callers that were rejected because the connection held too much.
    turns: ShortLock<RetryTurns>,
    /// Retries of its rejected callers.
    pub(super) retries: ShortLock<RetryRecord>,
    closing: ShortLock<ClosingState>,
    /// Time from the opening to the last begin of a stream, or whole message of one, in milliseconds.
    last_stream: AtomicU64,
}

/// Amounts that one connection holds of shared limits.
#[derive(Debug, Default)]
pub(super) struct HeldAmounts {
    /// Places of calls.
    pub(super) calls: AtomicUsize,
    /// Places of calls that wait.
    pub(super) waits: AtomicUsize,
    /// Places of streams.
    pub(super) streams: AtomicUsize,
    /// Bytes of requests that are being received.
    pub(super) receiving: AtomicUsize,
    /// Bytes of responses that are not taken yet.
    pub(super) sending: AtomicUsize,
}

#[derive(Debug, Default)]
struct ClosingState {
    closed: bool,
    waker: Option<Waker>,
}

/// Guard that counts a call of a connection.
#[derive(Debug)]
pub(super) struct ConnectionCall(Arc<CallerConnection>);

impl Drop for ConnectionCall {
    fn drop(&mut self) {
        let connection = &self.0;
        connection
            .last_call
            .store(connection.age_ms().max(1), Ordering::Relaxed);
        connection.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl CallerConnection {
    /// Connection that is in no table.
    pub(super) fn new(number: u64, peer: TcpConnectInfo) -> Arc<Self> {
        Arc::new(Self {
            number,
            peer,
            facts: PendingFacts::default(),
            opened: Instant::now(),
            calls: AtomicUsize::new(0),
            last_call: AtomicU64::new(0),
            held: HeldAmounts::default(),
            state_share: ConnectionShare::default(),
            responses: ShortLock::default(),
            turns: ShortLock::default(),
            retries: ShortLock::default(),
            closing: ShortLock::default(),
            last_stream: AtomicU64::new(0),
        })
    }

    /// Addresses of the connection.
    pub(crate) fn peer(&self) -> &TcpConnectInfo {
        &self.peer
    }

    /// What the transport knows about the caller.
    pub(crate) fn facts(&self) -> &PendingFacts {
        &self.facts
    }

    /// Share of a call's connection in the limits of the state; `None`: the call came by no connection.
    pub(super) fn state_share(extensions: &Extensions) -> Option<ConnectionShare> {
        let connection = extensions.get::<Option<Arc<Self>>>()?.as_ref()?;
        Some(connection.state_share.clone())
    }

    /// Call whose work is this connection's.
    pub(super) async fn scope<F: Future>(connection: Arc<Self>, call: F) -> F::Output {
        CALLER.scope(connection, call).await
    }

    /// Connection of the call that the present task works on.
    pub(super) fn current() -> Option<Arc<Self>> {
        CALLER.try_with(Arc::clone).ok()
    }

    /// Result of work for this connection, if there is one.
    pub(super) fn work_for<T>(connection: Option<Arc<Self>>, work: impl FnOnce() -> T) -> T {
        match connection {
            Some(connection) => CALLER.sync_scope(connection, work),
            None => work(),
        }
    }

    /// Caller of a piece of work of the present task's call.
    pub(super) fn of_work(now: Instant) -> WorkCaller {
        let of = |connection: &Arc<Self>| WorkCaller {
            connection: connection.number,
            is_early: connection.retries.with(|retries| retries.is_early(now)),
        };
        CALLER.try_with(of).unwrap_or(WorkCaller {
            connection: u64::MAX,
            is_early: false,
        })
    }

    /// Number of the connection, in the order of opening.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Counts a call until the guard is dropped.
    pub(super) fn begin_call(self: &Arc<Self>) -> ConnectionCall {
        self.calls.fetch_add(1, Ordering::Relaxed);
        ConnectionCall(Arc::clone(self))
    }

    /// Turns of the connection's own rejected callers.
    pub(super) fn turns(&self) -> &ShortLock<RetryTurns> {
        &self.turns
    }

    /// Follows a response until it is dropped.
    pub(super) fn watch_response(&self, number: u64, response: Weak<ResponseProgress>) {
        self.responses.with(|responses| responses.insert(number, response));
    }

    /// Forgets a response.
    pub(super) fn forget_response(&self, number: u64) {
        self.responses.with(|responses| responses.remove(&number));
    }

    /// Makes the transport close the connection.
    pub(crate) fn close(&self) {
        let waker = self.closing.with(|closing| {
            closing.closed = true;
            closing.waker.take()
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready when the connection is to be closed.
    pub(crate) fn poll_closed(&self, context: &Context<'_>) -> Poll<()> {
        self.closing.with(|closing| {
            if closing.closed {
                return Poll::Ready(());
            }
            match &mut closing.waker {
                Some(waker) if waker.will_wake(context.waker()) => {}
                other => *other = Some(context.waker().clone()),
            }
            Poll::Pending
        })
    }

    /// Notes that a stream of the connection has begun, or has brought a message.
    pub(super) fn touch_stream(&self) {
        self.last_stream.store(self.age_ms(), Ordering::Relaxed);
    }

    /// Order in which connections with silent streams make room: those without any other call first, then the longest
    /// silent. `None`: it has no stream, or one that was heard of lately.
    fn silence_rank(&self) -> Option<(bool, u64)> {
        let streams = self.held.streams.load(Ordering::Relaxed);
        let silent = self.age_ms().saturating_sub(self.last_stream.load(Ordering::Relaxed));
        let is_silent = streams > 0 && !self.is_closed() && u128::from(silent) >= STREAM_GRACE.as_millis();
        is_silent.then(|| (self.calls.load(Ordering::Relaxed) <= streams, silent))
    }

    fn is_closed(&self) -> bool {
        self.closing.with(|closing| closing.closed)
    }

    fn is_idle(&self) -> bool {
        self.calls.load(Ordering::Relaxed) == 0 && !self.is_closed()
    }

    /// Order in which idle connections make room: those without any call first, then the longest idle.
    fn idle_rank(&self) -> (bool, std::cmp::Reverse<u64>) {
        let last = self.last_call.load(Ordering::Relaxed);
        (last > 0, std::cmp::Reverse(self.age_ms().saturating_sub(last)))
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn responses(&self) -> Vec<Arc<ResponseProgress>> {
        // The end of a response takes the same lock, so that none may end under it.
        self.responses
            .with(|responses| responses.values().filter_map(Weak::upgrade).collect())
    }

    /// True if a response has made no progress for this time.
    fn is_stalled(&self, time: Duration) -> bool {
        let responses = self.responses();
        responses.iter().any(|response| response.stalled_for() >= time)
    }
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

    /// Admits a new connection. If the table is full, an idle connection makes room; `None`: there is none.
    pub(crate) fn admit(&self, peer: TcpConnectInfo) -> Option<Arc<CallerConnection>> {
        let open = self.open();
        if open.len() >= self.limit {
            let idle = open.iter().filter(|connection| connection.is_idle());
            let longest = idle.min_by_key(|connection| connection.idle_rank());
            self.metrics.record_limit_rejection("connections");
            self.close(longest?, "it was idle, and a new connection needs its place");
        }
        let connection = CallerConnection::new(self.next.fetch_add(1, Ordering::Relaxed), peer);
        let count = self.open.with(|open| {
            open.by_number.insert(connection.number, Arc::clone(&connection));
            open.by_number.len()
        });
        self.peak.fetch_max(count, Ordering::Relaxed);
        self.metrics.connections().inc();
        Some(connection)
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
        connection.state_share.end();
        let (removed, waiting) = self
            .open
            .with(|open| (open.by_number.remove(&connection.number), open.waiting.take()));
        if removed.is_some() {
            self.metrics.connections().dec();
        }
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    /// Closes the connection that holds the most among those of other callers with a response that stalls. Returns false if
    /// there is none.
    pub(super) fn close_most_stalled(&self, asking: u64, limit: &'static str) -> bool {
        let open = self.open();
        let stalled = open.iter().filter(|connection| {
            connection.number != asking && !connection.is_closed() && connection.is_stalled(STALL_GRACE)
        });
        let most = stalled.max_by_key(|connection| {
            let held = &connection.held;
            (held.sending.load(Ordering::Relaxed), held.calls.load(Ordering::Relaxed))
        });
        let Some(most) = most else { return false };
        self.metrics.record_limit_rejection(limit);
        self.close(most, "it takes none of its responses, and another call needs the room");
        true
    }

    /// Closes the connection whose streams are silent for longest, among those of other callers. Returns false if there is
    /// none.
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

    /// Closes connections of this age, as long as the table is in use. Their callers have been told to open others.
    pub async fn close_old(table: Weak<Self>, age: Duration) {
        loop {
            tokio::time::sleep((age / 4).min(WATCH_INTERVAL)).await;
            let Some(table) = table.upgrade() else { return };
            for connection in table.open() {
                if !connection.is_closed() && connection.opened.elapsed() >= age {
                    tracing::debug!(peer = ?connection.peer.remote_addr, "an old connection is closed");
                    connection.close();
                }
            }
        }
    }

    /// Closes connections with a response of which no byte is taken for this time, as long as the table is in use.
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
