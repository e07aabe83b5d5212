//! One budget for the memory of messages: requests of calls and of extenders that are received or worked on, and responses that
//! their callers have not taken yet. If it is exhausted, a caller that stalls gives way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::connection::CallerConnection;
use super::connection_table::ConnectionTable;
use super::shares::{HeldShare, SharedLimit};
use super::status::RpcResult;
use super::task_signal::TaskSignal;
use crate::limits::EdgeLimits;
use pumice_engine::short_lock::ShortLock;

/// Bytes that a connection may hold of the kept part: small messages come through, and so do the names of 10,000 nodes.
const LITTLE_BYTES: usize = 256 << 10;
/// Bytes of a message that are not charged: probes and the smallest messages are always accepted.
pub(super) const FREE_BYTES: usize = 1 << 10;
/// Age of a body at which it may be given up for the sake of others.
const GIVE_UP_AGE: Duration = Duration::from_secs(1);

/// Budget for the memory of messages.
#[derive(Debug)]
pub struct MemoryBudget {
    bytes: Arc<SharedLimit>,
    pub(super) connections: Arc<ConnectionTable>,
    next: AtomicU64,
    /// Bodies that are being received and have not come at once.
    slow: ShortLock<BTreeMap<u64, Arc<SlowBody>>>,
}

impl MemoryBudget {
    /// Budget with these limits, for the messages of these connections.
    pub fn new(limits: &EdgeLimits, connections: &Arc<ConnectionTable>) -> Arc<Self> {
        let total = ("message_bytes", limits.message_bytes);
        let share = ("connection_message_bytes", limits.connection_message_bytes);
        let messages = [
            "this connection has too many bytes of requests under way, or leaves too many of responses untaken",
            "too many bytes of requests are under way, or of responses wait for their callers",
        ];
        Arc::new(Self {
            bytes: SharedLimit::new(total, share, messages, LITTLE_BYTES, |held| &held.bytes),
            connections: Arc::clone(connections),
            next: AtomicU64::new(0),
            slow: ShortLock::default(),
        })
    }

    /// Share of a connection, of nothing yet.
    pub(super) fn share(&self, connection: &Arc<CallerConnection>) -> HeldShare {
        HeldShare::none(&self.bytes, connection)
    }

    /// Bytes by which the present ones are below the most since the last call.
    pub(super) fn fallen(&self) -> usize {
        self.bytes.fallen()
    }

    /// Takes bytes. If there are none left, the connection that takes none of its responses is closed, or else the body that has
    /// held most for longest is given up. `asking`: body that the bytes are for.
    ///
    /// # Errors
    /// The connection, or all callers, hold too much.
    pub(super) async fn take(
        &self,
        share: &mut HeldShare,
        bytes: usize,
        asking: Option<&Arc<SlowBody>>,
    ) -> RpcResult<()> {
        let number = share.connection().number;
        let shed = || self.connections.close_most_stalled(number, self.bytes.name) || self.give_up_one(asking);
        share.grow_shedding(bytes, shed).await
    }

    /// Gives up the body of the largest product of bytes and age. Returns false if none is old enough.
    fn give_up_one(&self, asking: Option<&Arc<SlowBody>>) -> bool {
        let slow: Vec<_> = self.slow.with(|slow| slow.values().map(Arc::clone).collect());
        let old = slow.iter().filter_map(|body| {
            let (age, bytes) = (body.since.elapsed(), body.bytes.load(Ordering::Relaxed));
            let weight = u128::try_from(bytes).unwrap_or_default() * age.as_millis();
            let is_other = asking.is_none_or(|asking| !Arc::ptr_eq(body, asking));
            let may_go = is_other && age >= GIVE_UP_AGE && !body.given_up.is_given();
            (may_go && bytes > 0).then_some((weight, body))
        });
        let Some((_, heaviest)) = old.max_by_key(|(weight, _)| *weight) else {
            return false;
        };
        heaviest.given_up.give();
        true
    }

    /// Lists a body that may be given up for the sake of others.
    pub(super) fn list(self: &Arc<Self>, body: Arc<SlowBody>) -> SlowEntry {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.slow.with(|slow| slow.insert(number, Arc::clone(&body)));
        SlowEntry {
            memory: Arc::clone(self),
            number,
            body,
        }
    }
}

/// Body that is being received.
#[derive(Debug)]
pub(super) struct SlowBody {
    since: Instant,
    bytes: AtomicUsize,
    /// Given when the body is given up for the sake of others.
    pub(super) given_up: TaskSignal,
}

impl SlowBody {
    pub(super) fn begin() -> Arc<Self> {
        Arc::new(Self {
            since: Instant::now(),
            bytes: AtomicUsize::new(0),
            given_up: TaskSignal::default(),
        })
    }

    /// Sets the number of received bytes.
    pub(super) fn set_bytes(&self, bytes: usize) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

/// Entry of a slow body in the budget's list, until it is dropped.
#[derive(Debug)]
pub(super) struct SlowEntry {
    memory: Arc<MemoryBudget>,
    number: u64,
    pub(super) body: Arc<SlowBody>,
}

impl Drop for SlowEntry {
    fn drop(&mut self) {
        self.memory.slow.with(|slow| slow.remove(&self.number));
    }
}
