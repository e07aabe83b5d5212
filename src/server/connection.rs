//! One connection of a caller: its calls and responses, and what it holds.

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Extensions;
use tonic::transport::server::TcpConnectInfo;

use pumice_engine::short_lock::ShortLock;
use pumice_state::ConnectionShare;

use super::memory_budget::MemoryBudget;
use super::request_body::malformed;
use super::retries::{RetryRecord, RetryTurns};
use super::shares::HeldShare;
use super::status::RpcResult;
use super::task_signal::TaskSignal;
use super::transport_facts::PendingFacts;
use super::work_queue::WorkCaller;

tokio::task_local! {
    /// Call that the present task works on.
    static CALL: Arc<CallScope>;
}

/// Ends of calls of all connections, so far: the order in which connections were used last, without a clock.
static ENDED_CALLS: AtomicU64 = AtomicU64::new(1);

/// Time for which streams must have been silent before their connection is closed for the sake of another's first one.
const STREAM_GRACE: Duration = Duration::from_secs(5);
/// One connection of a caller.
#[derive(Debug)]
pub struct CallerConnection {
    /// Number of the connection, in the order of opening.
    pub(super) number: u64,
    /// Addresses of the connection.
    pub(crate) peer: TcpConnectInfo,
    /// The transport's information about the caller.
    pub(crate) facts: PendingFacts,
    opened: Instant,
    /// Calls under way, with those whose response is not taken yet.
    calls: AtomicUsize,
    /// Number of the last call that has ended, among those of all connections; zero: none has.
    last_call: AtomicU64,
    /// Amounts held of the limits that have a share per connection.
    pub(super) held: HeldAmounts,
    /// Share of the connection in the limits of the state.
    state_share: ConnectionShare,
    responses: ShortLock<Vec<Weak<ResponseProgress>>>,
    /// Turns of its callers that were rejected because the connection held too much.
    pub(super) turns: ShortLock<RetryTurns>,
    /// Retries of its rejected callers.
    pub(super) retries: ShortLock<RetryRecord>,
    closing: TaskSignal,
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
    /// Bytes of requests that are under way, and of responses that are not taken yet.
    pub(super) bytes: AtomicUsize,
}

/// Guard of a call in progress on a connection.
#[derive(Debug)]
pub(super) struct ConnectionCall(Arc<CallerConnection>);

impl Drop for ConnectionCall {
    fn drop(&mut self) {
        let connection = &self.0;
        let number = ENDED_CALLS.fetch_add(1, Ordering::Relaxed);
        connection.last_call.store(number, Ordering::Relaxed);
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
            closing: TaskSignal::default(),
            last_stream: AtomicU64::new(0),
        })
    }

    /// Connection of a caller that is in no table, and whose address is unknown.
    pub(super) fn unknown() -> Arc<Self> {
        let nowhere = TcpConnectInfo {
            local_addr: None,
            remote_addr: None,
        };
        Self::new(u64::MAX, nowhere)
    }

    /// Share of a call's connection in the limits of the state; `None`: the call came by no connection.
    pub(super) fn state_share(extensions: &Extensions) -> Option<ConnectionShare> {
        let connection = extensions.get::<Option<Arc<Self>>>()?.as_ref()?;
        Some(connection.state_share.clone())
    }

    /// Connection of the call that the present task works on.
    pub(super) fn current() -> Option<Arc<Self>> {
        CALL.try_with(|call| Arc::clone(&call.connection)).ok()
    }

    /// Caller of a piece of work of the present task's call.
    pub(super) fn of_work(now: Instant) -> WorkCaller {
        let of = |call: &Arc<CallScope>| WorkCaller {
            connection: call.connection.number,
            is_early: call.connection.retries.with(|retries| retries.is_early(now)),
        };
        CALL.try_with(of).unwrap_or(WorkCaller {
            connection: u64::MAX,
            is_early: false,
        })
    }

    /// Adds a call in progress until the guard is dropped.
    pub(super) fn begin_call(self: &Arc<Self>) -> ConnectionCall {
        self.calls.fetch_add(1, Ordering::Relaxed);
        ConnectionCall(Arc::clone(self))
    }

    /// Makes the transport close the connection.
    pub(crate) fn close(&self) {
        self.closing.give();
    }

    /// Ready when the connection is to be closed.
    pub(crate) fn poll_closed(&self, context: &Context<'_>) -> Poll<()> {
        self.closing.poll(context)
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
        self.closing.is_given()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.calls.load(Ordering::Relaxed) == 0 && !self.is_closed()
    }

    /// Order in which idle connections make room: those without any call first, then the longest idle.
    pub(super) fn idle_rank(&self) -> (u64, u64) {
        (self.last_call.load(Ordering::Relaxed), self.number)
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
            .with(|responses| responses.iter().filter_map(Weak::upgrade).collect())
    }

    /// True if a response has made no progress for this time, as far as earlier looks saw.
    pub(super) fn is_stalled(&self, time: Duration) -> bool {
        let (responses, now) = (self.responses(), Instant::now());
        let stalled = responses.iter().map(|response| response.look(now));
        stalled.max().is_some_and(|stalled| stalled >= time)
    }
}

/// Call under way, as the work for it finds it.
#[derive(Debug)]
pub(super) struct CallScope {
    /// Connection by which the call came.
    pub(super) connection: Arc<CallerConnection>,
    /// True if its requests may be compressed.
    pub(super) inflates: bool,
    /// Time at which its caller no longer waits.
    pub(super) deadline: Option<Instant>,
    /// Bytes of the request, which count until it is decided.
    pub(super) received: ShortLock<Option<HeldShare>>,
    /// Lengths that messages will have once they are inflated, in the order of their arrival; `None`: the message is plain.
    lengths: ShortLock<VecDeque<Option<u32>>>,
    /// Budget of the call's messages.
    pub(super) memory: Arc<MemoryBudget>,
    /// Room of a large response, until its sender takes it over.
    pub(super) room: ShortLock<Option<HeldShare>>,
}

impl CallScope {
    /// Call of a connection.
    pub(super) fn new(
        connection: &Arc<CallerConnection>,
        memory: &Arc<MemoryBudget>,
        inflates: bool,
        deadline: Option<Instant>,
    ) -> Arc<Self> {
        Arc::new(Self {
            connection: Arc::clone(connection),
            inflates,
            deadline,
            received: ShortLock::default(),
            lengths: ShortLock::default(),
            memory: Arc::clone(memory),
            room: ShortLock::default(),
        })
    }

    /// Runs a future for this call.
    pub(super) async fn run<F: Future>(self: Arc<Self>, work: F) -> F::Output {
        CALL.scope(self, work).await
    }

    /// Call that the present task works on.
    pub(super) fn current() -> Option<Arc<Self>> {
        CALL.try_with(Arc::clone).ok()
    }

    /// Result of work for this call, if there is one.
    pub(super) fn work_for<T>(call: Option<Arc<Self>>, work: impl FnOnce() -> T) -> T {
        match call {
            Some(call) => CALL.sync_scope(call, work),
            None => work(),
        }
    }

    /// Notes a message that arrives: the length that its gzip says at its end, if it is one.
    pub(super) fn expect_message(&self, length: Option<u32>) {
        self.lengths.with(|lengths| lengths.push_back(length));
    }

    /// Charges the present call with a message that tonic may have inflated, instead of what has arrived of it.
    ///
    /// # Errors
    /// Bytes follow the gzip of the message, or too many bytes of requests are being received.
    pub(super) fn charge_inflated(bytes: usize) -> RpcResult<()> {
        let charge = |call: &Arc<Self>| {
            if !call.inflates {
                return Ok(());
            }
            let length = call.lengths.with(VecDeque::pop_front).flatten();
            if length.is_some_and(|length| u32::try_from(bytes) != Ok(length)) {
                return Err(malformed("the message goes on behind its gzip"));
            }
            call.received.with(|share| match share {
                Some(share) => share.resize(bytes).map_err(|error| share.rejection(error)),
                None => Ok(()),
            })
        };
        CALL.try_with(charge).unwrap_or(Ok(()))
    }
}

/// Progress of one response; ends when its last byte is taken, or its connection is gone.
#[derive(Debug)]
pub(super) struct ResponseProgress {
    /// Steps of progress so far.
    steps: AtomicUsize,
    /// Bytes made and not taken yet.
    untaken: AtomicUsize,
    /// Steps at the last look that found new ones, and its time.
    seen: ShortLock<Option<(usize, Instant)>>,
    call: ConnectionCall,
    /// Place of the call, until all of its response is taken.
    _place: Option<HeldShare>,
}

impl ResponseProgress {
    /// Progress of a partly generated response. The connection tracks it until it is dropped.
    pub(super) fn begin(untaken: usize, call: ConnectionCall, place: Option<HeldShare>) -> Arc<Self> {
        let progress = Arc::new(Self {
            steps: AtomicUsize::new(0),
            untaken: AtomicUsize::new(untaken),
            seen: ShortLock::default(),
            call,
            _place: place,
        });
        let response = Arc::downgrade(&progress);
        progress
            .connection()
            .responses
            .with(|responses| responses.push(response));
        progress
    }

    pub(super) fn connection(&self) -> &Arc<CallerConnection> {
        let ConnectionCall(connection) = &self.call;
        connection
    }

    /// Notes bytes that were made.
    pub(super) fn make(&self, bytes: usize) {
        self.untaken.fetch_add(bytes, Ordering::Relaxed);
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes bytes that are no longer there to be taken.
    pub(super) fn take(&self, bytes: usize) {
        self.untaken.fetch_sub(bytes, Ordering::Relaxed);
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Time for which the caller has taken none of the bytes that are there for it, as far as earlier looks saw.
    fn look(&self, now: Instant) -> Duration {
        let steps = self.steps.load(Ordering::Relaxed);
        if self.untaken.load(Ordering::Relaxed) == 0 {
            return Duration::ZERO;
        }
        self.seen.with(|seen| match seen {
            Some((before, since)) if *before == steps => now.saturating_duration_since(*since),
            other => {
                *other = Some((steps, now));
                Duration::ZERO
            }
        })
    }
}

impl Drop for ResponseProgress {
    fn drop(&mut self) {
        let own = ptr::from_ref(self);
        self.connection().responses.with(|responses| {
            if let Some(at) = responses.iter().position(|other| ptr::eq(other.as_ptr(), own)) {
                responses.swap_remove(at);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_response_stalls_if_nothing_is_taken_between_two_looks() {
        let nowhere = TcpConnectInfo {
            local_addr: None,
            remote_addr: None,
        };
        let (connection, start) = (CallerConnection::new(1, nowhere), Instant::now());
        let response = ResponseProgress::begin(100, connection.begin_call(), None);
        assert_eq!(response.look(start), Duration::ZERO, "nobody has looked before");
        assert_eq!(response.look(start + 2 * SECOND), 2 * SECOND);
        response.take(40);
        assert_eq!(response.look(start + 3 * SECOND), Duration::ZERO);
        assert_eq!(response.look(start + 5 * SECOND), 2 * SECOND);
        response.take(60);
        assert_eq!(
            response.look(start + 9 * SECOND),
            Duration::ZERO,
            "there is nothing to take"
        );
        assert_eq!(connection.responses().len(), 1);
        drop(response);
        assert!(connection.responses().is_empty() && connection.is_idle());
    }
}
