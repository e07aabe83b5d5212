//! Queue of a gate's work. It limits the number and the time of waiting requests and chooses the next request. Accepted
//! work therefore stays about as fast as without overload, and a single caller cannot occupy all workers.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use pumice_engine::short_lock::ShortLock;

use super::retries::RetryTurns;

/// Pieces of work per worker that wait in a harmless queue, however long it lasts.
const HARMLESS_QUEUE: usize = 4;
/// Shortest time that a piece of work may wait.
const LEAST_WAIT: Duration = Duration::from_millis(1);
/// Weight of the latest piece of work in the mean time: one of so many.
const MEAN_SHARE: u32 = 8;

/// Limit that rejects a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueLimit {
    /// Number of pieces that wait.
    Places,
    /// Time that a piece waits.
    Wait,
}

/// Rejection of a piece of work, with the delay before its caller may retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueRejection {
    pub(super) limit: QueueLimit,
    pub(super) retry: Duration,
}

/// Caller of a piece of work, as far as its turn depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkCaller {
    /// Number of its connection.
    pub(super) connection: u64,
    /// True if the request is a retry before the end of its retry delay.
    pub(super) is_early: bool,
}

/// Worker that a piece of work holds. Work that waits for the disk drops it, so other work can run.
#[derive(Debug)]
pub(super) struct HeldWorker {
    queue: Arc<WorkQueue>,
    connection: u64,
    /// Time at which the work began. `None`: the worker has not been taken yet.
    begun: Option<Instant>,
}

impl HeldWorker {
    fn begin(mut self, now: Instant) -> Self {
        self.begun = Some(now);
        self
    }
}

impl Drop for HeldWorker {
    fn drop(&mut self) {
        let now = Instant::now();
        let took = self.begun.map(|begun| now.saturating_duration_since(begun));
        if let Some((granted, connection)) = self.queue.release(self.connection, took, now) {
            let worker = Self {
                queue: Arc::clone(&self.queue),
                connection,
                begun: None,
            };
            // A piece that is gone returns the worker, which is then the next one's.
            drop(granted.send(Ok(worker)));
        }
    }
}

type Grant = Result<HeldWorker, QueueRejection>;

/// Piece of work that waits.
#[derive(Debug)]
struct WaitingWork {
    number: u64,
    caller: WorkCaller,
    since: Instant,
    grant: oneshot::Sender<Grant>,
}

/// Order in which pieces of work give way, the greatest first; among equals the oldest does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WorkRank {
    /// True if the piece has waited for longer than what a piece takes: to serve it late would make all late.
    is_stale: bool,
    is_early: bool,
    /// Pieces of its connection that are under way or wait, with itself.
    pieces: usize,
    /// True if the piece has waited for longer than half of that.
    is_late: bool,
}

#[derive(Debug, Default)]
struct WaitingState {
    /// Mean time of the last pieces of work.
    mean: Duration,
    /// Connections of the pieces under way.
    running: Vec<u64>,
    /// Pieces that wait, in the order of their arrival.
    waiting: Vec<WaitingWork>,
    next: u64,
    /// Time since when more than a harmless number has waited.
    crowded_since: Option<Instant>,
    /// Turns of rejected callers that observed their retry delay, and of callers that did not.
    turns: RetryTurns,
    early_turns: RetryTurns,
}

impl WaitingState {
    fn pieces(&self, connection: u64) -> usize {
        let waiting = self.waiting.iter().map(|work| work.caller.connection);
        let all = waiting.chain(self.running.iter().copied());
        all.filter(|other| *other == connection).count()
    }

    /// Rank of a piece that waits, under overload.
    fn rank(&self, work: &WaitingWork, now: Instant) -> WorkRank {
        let waited = now.saturating_duration_since(work.since);
        WorkRank {
            is_stale: waited > self.mean,
            is_early: work.caller.is_early,
            pieces: self.pieces(work.caller.connection),
            is_late: waited > self.mean / 2,
        }
    }

    /// Position of the piece that gives way to one of this caller under overload, if any does.
    fn giving_way(&self, caller: WorkCaller, now: Instant) -> Option<usize> {
        let ranked = self.waiting.iter().enumerate();
        let ranked = ranked.map(|(at, work)| (self.rank(work, now), Reverse(at)));
        let (rank, Reverse(at)) = ranked.max()?;
        let own = WorkRank {
            is_stale: false,
            is_early: caller.is_early,
            pieces: self.pieces(caller.connection) + 1,
            is_late: false,
        };
        (rank > own).then_some(at)
    }

    /// Position of the piece whose turn is next. While few wait, the oldest is. Otherwise the newest is, of the callers who
    /// have least: the others are late already, and if each were served late, all would be.
    fn next_turn(&self, is_crowded: bool, now: Instant) -> Option<usize> {
        if !is_crowded {
            return (!self.waiting.is_empty()).then_some(0);
        }
        let ranked = self.waiting.iter().enumerate();
        let ranked = ranked.map(|(at, work)| (self.rank(work, now), Reverse(at)));
        ranked.min().map(|(_, Reverse(at))| at)
    }
}

/// Queue of a gate's work.
///
/// A burst may wait for `longest_wait`, and so may a few pieces per worker at any time. The gate is overloaded when a
/// burst lasts longer, or when a longer queue does not shrink for this time. The overload ends when the turns of all
/// rejected callers have come. During overload one piece per two workers waits, at most for the duration of one piece.
/// Callers with fewer requests, and callers that observed their retry delay, have precedence. A standing queue would
/// only delay every accepted piece without more throughput.
#[derive(Debug)]
pub(super) struct WorkQueue {
    pub(super) workers: usize,
    pub(super) places: usize,
    pub(super) longest_wait: Duration,
    state: ShortLock<WaitingState>,
}

/// Start of a piece of work.
#[derive(Debug)]
pub(super) enum Admission {
    /// Worker for a piece that begins at once.
    Begun(HeldWorker),
    /// Place of a piece that waits for one.
    Waiting(WaitingPlace),
}

/// Place of a piece of work that waits; given back when dropped.
#[derive(Debug)]
pub(super) struct WaitingPlace {
    queue: Arc<WorkQueue>,
    number: u64,
    is_early: bool,
    /// Time that the piece may wait.
    patience: Duration,
    granted: oneshot::Receiver<Grant>,
}

impl WaitingPlace {
    /// Waits for the worker.
    ///
    /// # Errors
    /// The wait is too long, or the piece has given way to another.
    pub(super) async fn worker(mut self) -> Result<HeldWorker, QueueRejection> {
        match tokio::time::timeout(self.patience, &mut self.granted).await {
            Ok(Ok(granted)) => granted.map(|worker| worker.begin(Instant::now())),
            Ok(Err(_)) | Err(_) => Err(self.queue.reject_late(self.is_early, Instant::now())),
        }
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.queue.leave(self.number);
    }
}

/// Share of a time for each of some workers.
fn shared_time(time: Duration, workers: usize) -> Duration {
    time / u32::try_from(workers.max(1)).unwrap_or(u32::MAX)
}

impl WorkQueue {
    pub(super) fn new(workers: usize, places: usize, longest_wait: Duration) -> Self {
        Self {
            workers,
            places,
            longest_wait,
            state: ShortLock::default(),
        }
    }

    /// Number of pieces under way.
    pub(super) fn running(&self) -> usize {
        self.state.with(|state| state.running.len())
    }

    /// Number of pieces that wait.
    pub(super) fn waiting(&self) -> usize {
        self.state.with(|state| state.waiting.len())
    }

    /// Worker for a piece of work, or a place to wait for one.
    ///
    /// # Errors
    /// Too many wait, or the piece would wait for too long.
    pub(super) fn enter(self: &Arc<Self>, caller: WorkCaller, now: Instant) -> Result<Admission, QueueRejection> {
        let entered = self.state.with(|state| {
            if state.running.len() < self.workers {
                state.running.push(caller.connection);
                return Ok(None);
            }
            self.queue_up(state, caller, now).map(Some)
        })?;
        let Some((place, displaced)) = entered else {
            let worker = HeldWorker {
                queue: Arc::clone(self),
                connection: caller.connection,
                begun: Some(now),
            };
            return Ok(Admission::Begun(worker));
        };
        if let Some((displaced, rejection)) = displaced {
            drop(displaced.grant.send(Err(rejection)));
        }
        Ok(Admission::Waiting(place))
    }

    /// Place at the end of the queue, and the piece that has given way for it.
    fn queue_up(
        self: &Arc<Self>,
        state: &mut WaitingState,
        caller: WorkCaller,
        now: Instant,
    ) -> Result<(WaitingPlace, Option<(WaitingWork, QueueRejection)>), QueueRejection> {
        let displaced = match self.lack(state, now) {
            None => None,
            Some(limit) => {
                let Some(at) = state.giving_way(caller, now) else {
                    return Err(self.reject(state, limit, caller.is_early, now));
                };
                let gone = state.waiting.remove(at);
                let rejection = self.reject(state, limit, gone.caller.is_early, now);
                Some((gone, rejection))
            }
        };
        let (grant, granted) = oneshot::channel();
        let number = state.next;
        state.next += 1;
        state.waiting.push(WaitingWork {
            number,
            caller,
            since: now,
            grant,
        });
        if self.is_crowded(state) {
            state.crowded_since.get_or_insert(now);
        }
        let place = WaitingPlace {
            queue: Arc::clone(self),
            number,
            is_early: caller.is_early,
            patience: self.patience(state, now),
            granted,
        };
        Ok((place, displaced))
    }

    fn leave(&self, number: u64) {
        // Its sender is dropped after the lock.
        let _gone = self.state.with(|state| {
            let at = state.waiting.iter().position(|work| work.number == number)?;
            let gone = state.waiting.remove(at);
            self.note_departure(state);
            Some(gone)
        });
    }

    /// Ends a piece of work of this connection, which took this time. Returns the piece whose turn is next.
    fn release(&self, connection: u64, took: Option<Duration>, now: Instant) -> Option<(oneshot::Sender<Grant>, u64)> {
        self.state.with(|state| {
            if let Some(took) = took {
                Self::record(state, took);
            }
            if let Some(at) = state.running.iter().position(|other| *other == connection) {
                state.running.swap_remove(at);
            }
            let is_crowded = self.is_crowded(state) || self.is_overloaded(state, now);
            let at = state.next_turn(is_crowded, now)?;
            let next = state.waiting.remove(at);
            self.note_departure(state);
            state.running.push(next.caller.connection);
            Some((next.grant, next.caller.connection))
        })
    }

    fn note_departure(&self, state: &mut WaitingState) {
        if !self.is_crowded(state) {
            state.crowded_since = None;
        }
    }

    fn is_crowded(&self, state: &WaitingState) -> bool {
        state.waiting.len() > self.workers * HARMLESS_QUEUE
    }

    fn burst_wait(&self, state: &WaitingState) -> Duration {
        let few = u32::try_from(HARMLESS_QUEUE).unwrap_or(u32::MAX);
        self.longest_wait.max(state.mean.saturating_mul(few))
    }

    fn is_overloaded(&self, state: &WaitingState, now: Instant) -> bool {
        let crowded = |since| now.saturating_duration_since(since) >= self.burst_wait(state);
        let pending = state.turns.are_pending(now) || state.early_turns.are_pending(now);
        pending || state.crowded_since.is_some_and(crowded)
    }

    /// Limit that one more piece would exceed.
    fn lack(&self, state: &WaitingState, now: Instant) -> Option<QueueLimit> {
        let waiting = state.waiting.len();
        if waiting >= self.places {
            return Some(QueueLimit::Places);
        }
        let is_full = if self.is_overloaded(state, now) {
            // The workers take no more than that within half of the time that a piece takes.
            waiting * 2 >= self.workers
        } else {
            let ahead = u32::try_from(waiting + 1).unwrap_or(u32::MAX);
            shared_time(state.mean.saturating_mul(ahead), self.workers) > self.burst_wait(state)
        };
        is_full.then_some(QueueLimit::Wait)
    }

    /// Time that a new piece may wait.
    fn patience(&self, state: &WaitingState, now: Instant) -> Duration {
        if self.is_overloaded(state, now) {
            // A little less than what a piece takes, so that the two together take no longer than two pieces.
            (state.mean / 8 * 7).max(LEAST_WAIT)
        } else {
            self.burst_wait(state)
        }
    }

    fn reject(&self, state: &mut WaitingState, limit: QueueLimit, is_early: bool, now: Instant) -> QueueRejection {
        let each = shared_time(state.mean, self.workers);
        // Those that do not wait make no delay of the others longer.
        let turns = if is_early {
            &mut state.early_turns
        } else {
            &mut state.turns
        };
        QueueRejection {
            limit,
            retry: turns.next_delay(each, now),
        }
    }

    /// Rejects a piece of work that has waited for too long.
    fn reject_late(&self, is_early: bool, now: Instant) -> QueueRejection {
        self.state
            .with(|state| self.reject(state, QueueLimit::Wait, is_early, now))
    }

    fn record(state: &mut WaitingState, took: Duration) {
        state.mean = if state.mean.is_zero() {
            took
        } else {
            (state.mean * (MEAN_SHARE - 1) + took) / MEAN_SHARE
        };
    }
}

#[cfg(test)]
#[path = "work_queue_tests.rs"]
mod tests;
