//! One connection of a caller: its calls and responses, and what it holds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Extensions;
use tonic::transport::server::TcpConnectInfo;

use pumice_engine::short_lock::ShortLock;
use pumice_state::ConnectionShare;

use super::retry_record::RetryRecord;
use super::retry_turns::RetryTurns;
use super::shares::HeldShare;
use super::transport_facts::PendingFacts;
use super::work_queue::WorkCaller;

tokio::task_local! {
    /// Connection of the call that the present task works on.
    static CALLER: Arc<CallerConnection>;
}

/// Time for which streams must have been silent before their connection is closed for the sake of another's first one.
const STREAM_GRACE: Duration = Duration::from_secs(5);
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
    /// Time from the opening to the last start of a stream or complete message of a stream, in milliseconds.
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

/// Guard of a call in progress on a connection.
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
            facts: PendingFacts::default(),
            opened: Instant::now(),
            calls: AtomicUsize::new(0),
            last_call: AtomicU64::new(0),
            held: HeldAmounts::default(),
            state_share: peer.remote_addr.map_or_else(ConnectionShare::default, |address| {
                ConnectionShare::of_peer(address.ip())
            }),
            peer,
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

    /// The transport's information about the caller.
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

    /// Adds a call in progress until the guard is dropped.
    pub(super) fn begin_call(self: &Arc<Self>) -> ConnectionCall {
        self.calls.fetch_add(1, Ordering::Relaxed);
        ConnectionCall(Arc::clone(self))
    }

    /// Turns of the connection's own rejected callers.
    pub(super) fn turns(&self) -> &ShortLock<RetryTurns> {
        &self.turns
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

    /// Order in which connections with silent streams are closed: connections without other calls first, then the
    /// longest silent. `None`: the connection has no stream, or a recently active stream.
    pub(super) fn silence_rank(&self) -> Option<(bool, u64)> {
        let streams = self.held.streams.load(Ordering::Relaxed);
        let silent = self.age_ms().saturating_sub(self.last_stream.load(Ordering::Relaxed));
        let is_silent = streams > 0 && !self.is_closed() && u128::from(silent) >= STREAM_GRACE.as_millis();
        is_silent.then(|| (self.calls.load(Ordering::Relaxed) <= streams, silent))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closing.with(|closing| closing.closed)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.calls.load(Ordering::Relaxed) == 0 && !self.is_closed()
    }

    /// Order in which idle connections make room: those without any call first, then the longest idle.
    pub(super) fn idle_rank(&self) -> (bool, std::cmp::Reverse<u64>) {
        let last = self.last_call.load(Ordering::Relaxed);
        (last > 0, std::cmp::Reverse(self.age_ms().saturating_sub(last)))
    }

    /// Time since its opening.
    pub(super) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Notes in the state that the connection has ended: what it leaves behind there gives way to others.
    pub(super) fn end_state_share(&self) {
        self.state_share.end();
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX)
    }

    fn responses(&self) -> Vec<Arc<ResponseProgress>> {
        // The end of a response takes the same lock, so that none may end under it.
        self.responses
            .with(|responses| responses.values().filter_map(Weak::upgrade).collect())
    }

    /// True if a response has made no progress for this time.
    pub(super) fn is_stalled(&self, time: Duration) -> bool {
        let responses = self.responses();
        responses.iter().any(|response| response.stalled_for() >= time)
    }
}

/// Progress of one response; ends when its last byte is taken, or its connection is gone.
#[derive(Debug)]
pub(super) struct ResponseProgress {
    number: u64,
    connection: Arc<CallerConnection>,
    begun: Instant,
    /// Time from the begin to the last progress, in milliseconds.
    last: AtomicU64,
    /// Bytes made and not taken yet.
    untaken: AtomicUsize,
    _call: ConnectionCall,
    /// Place of the call, until all of its response is taken.
    _place: Option<HeldShare>,
}

impl ResponseProgress {
    /// Progress of a partly generated response. The connection tracks it until it is dropped.
    pub(super) fn begin(
        number: u64,
        connection: &Arc<CallerConnection>,
        untaken: usize,
        (call, place): (ConnectionCall, Option<HeldShare>),
    ) -> Arc<Self> {
        let progress = Arc::new(Self {
            number,
            connection: Arc::clone(connection),
            begun: Instant::now(),
            last: AtomicU64::new(0),
            untaken: AtomicUsize::new(untaken),
            _call: call,
            _place: place,
        });
        let response = Arc::downgrade(&progress);
        connection
            .responses
            .with(|responses| responses.insert(number, response));
        progress
    }

    pub(super) fn connection(&self) -> &Arc<CallerConnection> {
        &self.connection
    }

    /// Notes bytes that were made.
    pub(super) fn make(&self, bytes: usize) {
        self.untaken.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes bytes that are no longer there to be taken.
    pub(super) fn take(&self, bytes: usize) {
        self.untaken.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Notes that there was progress.
    pub(super) fn touch(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Time for which the caller has taken none of the bytes that are there for it.
    fn stalled_for(&self) -> Duration {
        if self.untaken.load(Ordering::Relaxed) == 0 {
            return Duration::ZERO;
        }
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(last)
    }
}

impl Drop for ResponseProgress {
    fn drop(&mut self) {
        self.connection
            .responses
            .with(|responses| responses.remove(&self.number));
    }
}
