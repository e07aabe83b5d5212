//! Pace of a gate's work: who may wait for a worker, and for how long, so that accepted work stays about as fast as
//! without overload.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use pumice_engine::short_lock::ShortLock;

/// Pieces of work per worker that wait in a harmless queue, however long it lasts.
const HARMLESS_QUEUE: usize = 4;
/// Shortest time that a piece of work may wait.
const LEAST_WAIT: Duration = Duration::from_millis(1);
/// Shortest delay before a rejected caller may retry.
const LEAST_RETRY: Duration = Duration::from_millis(25);
/// Longest delay before a rejected caller may retry.
const MOST_RETRY: Duration = Duration::from_secs(10);
/// Weight of the latest piece of work in the mean time: one of so many.
const MEAN_SHARE: u32 = 8;

/// Turns of rejected callers: each is asked to come back when those before it could have been served. The delay
/// therefore grows as long as more is asked than can be done.
#[derive(Debug, Default)]
pub(super) struct RetryTurns {
    /// Turn of the last rejected caller.
    last: Option<Instant>,
}

impl RetryTurns {
    /// Turns of nobody yet.
    pub(super) const fn new() -> Self {
        Self { last: None }
    }

    /// Delay before the next rejected caller may retry. `each`: time that serving a caller takes.
    pub(super) fn next_delay(&mut self, each: Duration, now: Instant) -> Duration {
        let first = now + LEAST_RETRY;
        let turn = self.last.map_or(first, |last| (last + each).max(first));
        let turn = turn.min(now + MOST_RETRY);
        self.last = Some(turn);
        turn.saturating_duration_since(now)
    }

    /// True if a rejected caller's turn is still to come.
    fn are_pending(&self, now: Instant) -> bool {
        self.last.is_some_and(|turn| now < turn)
    }
}

/// Limit that rejects a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PaceLimit {
    /// Number of pieces that wait.
    Queue,
    /// Time that a piece waits.
    Wait,
}

/// Rejection of a piece of work, with the delay before its caller may retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PaceRejection {
    pub(super) limit: PaceLimit,
    pub(super) retry: Duration,
}

#[derive(Debug, Default)]
struct PaceState {
    /// Mean time of the last pieces of work.
    mean: Duration,
    /// Number of pieces that wait.
    waiting: usize,
    /// Time since when more than a harmless number has waited.
    crowded_since: Option<Instant>,
    turns: RetryTurns,
}

/// Pace of a gate's work.
///
/// A burst may wait for `longest_wait`, and so may a few pieces per worker at any time. The gate is overloaded once a
/// burst is longer than that, or a longer queue does not become shorter for that time; it is until the turns of all
/// rejected callers have come. Meanwhile a piece of work waits no longer than half of what one takes: a standing queue
/// would make every accepted piece slow and let no more of them through.
#[derive(Debug)]
pub(super) struct WorkPace {
    pub(super) workers: usize,
    pub(super) queue_limit: usize,
    pub(super) longest_wait: Duration,
    state: ShortLock<PaceState>,
}

/// Place of a piece of work that waits; given back when dropped.
#[derive(Debug)]
pub(super) struct WaitingPlace {
    pace: Arc<WorkPace>,
    /// Time that the piece may wait.
    pub(super) patience: Duration,
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.pace.leave();
    }
}

/// Share of a time for each of some workers.
fn shared_time(time: Duration, workers: usize) -> Duration {
    time / u32::try_from(workers.max(1)).unwrap_or(u32::MAX)
}

impl WorkPace {
    pub(super) fn new(workers: usize, queue_limit: usize, longest_wait: Duration) -> Self {
        Self {
            workers,
            queue_limit,
            longest_wait,
            state: ShortLock::default(),
        }
    }

    /// Number of pieces that wait.
    pub(super) fn waiting(&self) -> usize {
        self.state.with(|state| state.waiting)
    }

    /// Place for one more piece of work to wait, while all workers are busy.
    ///
    /// # Errors
    /// Too many wait, or the piece would wait for too long.
    pub(super) fn enter(self: &Arc<Self>, now: Instant) -> Result<WaitingPlace, PaceRejection> {
        let patience = self.state.with(|state| {
            let patience = self
                .patience(state, now)
                .map_err(|limit| self.reject(state, limit, now))?;
            state.waiting += 1;
            if state.waiting > self.workers * HARMLESS_QUEUE {
                state.crowded_since.get_or_insert(now);
            }
            Ok(patience)
        })?;
        Ok(WaitingPlace {
            pace: Arc::clone(self),
            patience,
        })
    }

    fn leave(&self) {
        self.state.with(|state| {
            state.waiting = state.waiting.saturating_sub(1);
            if state.waiting <= self.workers * HARMLESS_QUEUE {
                state.crowded_since = None;
            }
        });
    }

    /// Time that one more piece of work may wait.
    fn patience(&self, state: &PaceState, now: Instant) -> Result<Duration, PaceLimit> {
        let few = u32::try_from(HARMLESS_QUEUE).unwrap_or(u32::MAX);
        let burst_wait = self.longest_wait.max(state.mean * few);
        let crowded = |since| now.saturating_duration_since(since) >= burst_wait;
        if state.waiting >= self.queue_limit {
            return Err(PaceLimit::Queue);
        }
        if state.turns.are_pending(now) || state.crowded_since.is_some_and(crowded) {
            // The workers take no more than that within half of the time that a piece takes.
            if state.waiting * 2 >= self.workers {
                return Err(PaceLimit::Wait);
            }
            return Ok((state.mean / 2).max(LEAST_WAIT));
        }
        let ahead = u32::try_from(state.waiting + 1).unwrap_or(u32::MAX);
        if shared_time(state.mean.saturating_mul(ahead), self.workers) > burst_wait {
            return Err(PaceLimit::Wait);
        }
        Ok(burst_wait)
    }

    fn reject(&self, state: &mut PaceState, limit: PaceLimit, now: Instant) -> PaceRejection {
        let each = shared_time(state.mean, self.workers);
        PaceRejection {
            limit,
            retry: state.turns.next_delay(each, now),
        }
    }

    /// Rejects a piece of work that has waited for too long.
    pub(super) fn reject_late(&self, now: Instant) -> PaceRejection {
        self.state.with(|state| self.reject(state, PaceLimit::Wait, now))
    }

    /// Records the time that a piece of work took.
    pub(super) fn record(&self, took: Duration) {
        self.state.with(|state| {
            state.mean = if state.mean.is_zero() {
                took
            } else {
                (state.mean * (MEAN_SHARE - 1) + took) / MEAN_SHARE
            };
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Pace of one worker whose pieces take 10 ms, and may wait for 100 ms.
    fn pace(queue_limit: usize) -> Arc<WorkPace> {
        let pace = WorkPace::new(1, queue_limit, 100 * MS);
        pace.record(10 * MS);
        Arc::new(pace)
    }

    fn enter(pace: &Arc<WorkPace>, count: usize, now: Instant) -> Vec<WaitingPlace> {
        (0..count).map(|_| pace.enter(now).unwrap()).collect()
    }

    fn rejected(limit: PaceLimit, millis: u32) -> PaceRejection {
        let retry = millis * MS;
        PaceRejection { limit, retry }
    }

    #[test]
    fn a_burst_waits_and_what_is_more_comes_back_later() {
        let (pace, start) = (pace(64), Instant::now());
        let mut waiting = enter(&pace, 10, start);
        assert!(waiting.iter().all(|place| place.patience == 100 * MS));
        for more in 0..3 {
            let rejection = pace.enter(start).unwrap_err();
            assert_eq!(
                rejection,
                rejected(PaceLimit::Wait, 25 + 10 * more),
                "a piece's time later each"
            );
        }
        waiting.truncate(1);
        assert!(
            pace.enter(start + 40 * MS).is_err(),
            "the turn of the third has not come"
        );
        drop(waiting);
        assert_eq!(pace.enter(start + 64 * MS).unwrap().patience, 5 * MS, "half a piece");
        assert_eq!(
            pace.enter(start + 66 * MS).unwrap().patience,
            100 * MS,
            "all turns have come"
        );
    }

    #[test]
    fn a_queue_that_stands_is_an_overload_unless_it_is_short() {
        for (few, overloaded) in [(HARMLESS_QUEUE, false), (HARMLESS_QUEUE + 1, true)] {
            let (pace, start) = (pace(64), Instant::now());
            let mut waiting = enter(&pace, few, start);
            for at in 1..200 {
                // Whoever is served is followed by another.
                waiting.extend(pace.enter(start + at * MS / 2));
                waiting.remove(0);
            }
            assert_eq!(pace.enter(start + 100 * MS).is_err(), overloaded, "{few}");
            assert_eq!(pace.waiting(), few);
        }
    }

    #[test]
    fn several_workers_have_several_places() {
        let (pace, start) = (Arc::new(WorkPace::new(3, 64, 100 * MS)), Instant::now());
        pace.record(30 * MS);
        pace.reject_late(start);
        let waiting = enter(&pace, 2, start);
        assert_eq!(pace.enter(start).unwrap_err(), rejected(PaceLimit::Wait, 35));
        drop(waiting);
    }

    #[test]
    fn the_delay_before_a_retry_grows_with_the_overload() {
        let (pace, start) = (pace(64), Instant::now());
        // Twice of what can be done, and then nothing.
        let delays = (0..400_u32).map(|at| pace.reject_late(start + at * 5 * MS).retry);
        let delays: Vec<_> = delays.collect();
        assert!(delays.is_sorted() && delays[399] > 900 * MS, "{delays:?}");
        for _ in 0..2_000 {
            pace.reject_late(start);
        }
        assert_eq!(pace.reject_late(start).retry, MOST_RETRY);
        assert_eq!(pace.reject_late(start + 2 * MOST_RETRY).retry, LEAST_RETRY);
    }

    #[test]
    fn places_are_bounded_and_slow_work_may_wait_for_several_pieces() {
        let (full, now) = (pace(2), Instant::now());
        let waiting = enter(&full, 2, now);
        assert_eq!(full.enter(now).unwrap_err().limit, PaceLimit::Queue);
        drop(waiting);
        let slow = Arc::new(WorkPace::new(1, 64, 100 * MS));
        assert_eq!(slow.enter(now).unwrap().patience, 100 * MS, "nothing is known yet");
        slow.record(400 * MS);
        assert_eq!(slow.enter(now).unwrap().patience, 1_600 * MS);
    }
}
