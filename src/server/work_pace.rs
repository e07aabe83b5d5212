//! Pace of a gate's work: how long a piece may wait, so that accepted work stays about as fast as without overload.

use std::time::Duration;

use tokio::time::Instant;

use crate::engine::short_lock::ShortLock;

/// Time without a refusal after which the gate is no longer strict.
const STRICT_TIME: Duration = Duration::from_secs(1);
/// Pieces of work whose time a burst may wait, however long each takes.
const BURST: u32 = 4;
/// Shortest time that a piece of work may wait while the gate is strict.
const LEAST_WAIT: Duration = Duration::from_millis(1);
/// Shortest delay before a rejected caller may retry.
const LEAST_RETRY: Duration = Duration::from_millis(250);
/// Longest delay before a rejected caller may retry.
const MOST_RETRY: Duration = Duration::from_secs(10);
/// Weight of the latest piece of work in the mean time: one of so many.
const MEAN_SHARE: u32 = 8;

/// Refusal of a piece of work that would wait for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooSlow {
    /// Delay before the caller may retry. It grows as long as the overload lasts.
    pub(super) retry: Duration,
}

#[derive(Debug, Default)]
struct PaceState {
    /// Mean time of the last pieces of work.
    mean: Duration,
    /// Begin of the overload, and its last refusal.
    overload: Option<(Instant, Instant)>,
}

/// Pace of a gate's work. A burst may wait for `longest_wait`. The first refusal makes the gate strict: until a second
/// has passed without one, a piece of work waits no longer than one takes. A standing queue would make every accepted
/// piece slow and let no more of them through.
#[derive(Debug)]
pub(super) struct WorkPace {
    longest_wait: Duration,
    state: ShortLock<PaceState>,
}

impl PaceState {
    fn is_strict(&self, now: Instant) -> bool {
        self.overload
            .is_some_and(|(_, last)| now.saturating_duration_since(last) < STRICT_TIME)
    }

    fn refuse(&mut self, now: Instant) -> TooSlow {
        let since = match self.overload {
            Some((since, _)) if self.is_strict(now) => since,
            Some(_) | None => now,
        };
        self.overload = Some((since, now));
        let retry = now.saturating_duration_since(since).clamp(LEAST_RETRY, MOST_RETRY);
        TooSlow { retry }
    }
}

impl WorkPace {
    pub(super) fn new(longest_wait: Duration) -> Self {
        Self {
            longest_wait,
            state: ShortLock::default(),
        }
    }

    /// Time that one more piece of work may wait behind `waiting` others for one of `workers`.
    ///
    /// # Errors
    /// It would wait for longer than that.
    pub(super) fn admit(&self, waiting: usize, workers: usize, now: Instant) -> Result<Duration, TooSlow> {
        self.state.with(|state| {
            let patience = if state.is_strict(now) {
                state.mean.max(LEAST_WAIT)
            } else {
                self.longest_wait.max(state.mean * BURST)
            };
            let ahead = u32::try_from(waiting + 1).unwrap_or(u32::MAX);
            let workers = u32::try_from(workers.max(1)).unwrap_or(u32::MAX);
            if state.mean.saturating_mul(ahead) / workers > patience {
                return Err(state.refuse(now));
            }
            Ok(patience)
        })
    }

    /// Refuses a piece of work that has waited for too long, or that finds no place to wait.
    pub(super) fn refuse(&self, now: Instant) -> TooSlow {
        self.state.with(|state| state.refuse(now))
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

    #[test]
    fn a_burst_waits_and_a_lasting_queue_does_not() {
        let (pace, start) = (WorkPace::new(100 * MS), Instant::now());
        assert_eq!(pace.admit(1_000, 1, start), Ok(100 * MS), "nothing is known yet");
        for _ in 0..100 {
            pace.record(10 * MS);
        }
        assert_eq!(pace.admit(9, 1, start), Ok(100 * MS), "100 ms of work with this one");
        assert_eq!(pace.admit(10, 1, start), Err(TooSlow { retry: LEAST_RETRY }));
        // Strict now: one piece of work ahead for each worker.
        let now = start + 10 * MS;
        assert_eq!(pace.admit(0, 1, now), Ok(10 * MS));
        assert!(pace.admit(1, 1, now).is_err() && pace.admit(3, 4, now).is_ok() && pace.admit(4, 4, now).is_err());
        // A second after the last refusal a burst may wait again.
        assert_eq!(pace.admit(9, 1, now + STRICT_TIME), Ok(100 * MS));
    }

    #[test]
    fn the_delay_before_a_retry_grows_with_the_overload() {
        let (pace, start) = (WorkPace::new(100 * MS), Instant::now());
        let retries = [0, 500, 1_000, 1_900].map(|at| pace.refuse(start + at * MS).retry);
        assert_eq!(retries, [250 * MS, 500 * MS, 1_000 * MS, 1_900 * MS]);
        assert_eq!(pace.refuse(start + 4_000 * MS).retry, LEAST_RETRY, "another overload");
        for second in 4..40 {
            pace.refuse(start + second * 1_000 * MS - MS * second);
        }
        assert_eq!(pace.refuse(start + 39_500 * MS).retry, MOST_RETRY);
    }

    #[test]
    fn slow_work_may_wait_for_several_pieces() {
        let (pace, now) = (WorkPace::new(100 * MS), Instant::now());
        pace.record(400 * MS);
        assert_eq!(pace.admit(1, 1, now), Ok(1_600 * MS));
    }
}
