//! Retries of rejected callers: when each may come back, and a pause before the rejection of a caller that comes back too early.

use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use tonic_types::StatusExt as _;

use super::connection::CallerConnection;

/// Shortest delay before a rejected caller may retry.
const LEAST_RETRY: Duration = Duration::from_millis(25);
/// Longest delay before a rejected caller may retry.
const MOST_RETRY: Duration = Duration::from_secs(10);

/// Turns of rejected callers: each is asked to come back when those before it could have been served. The delay
/// therefore grows as long as more is asked than can be done.
#[derive(Debug, Default)]
pub(super) struct RetryTurns {
    /// Turn of the last rejected caller.
    last: Option<Instant>,
}

impl RetryTurns {
    /// Turns without rejected callers.
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
    pub(super) fn are_pending(&self, now: Instant) -> bool {
        self.last.is_some_and(|turn| now < turn)
    }
}

/// Longest pause before a rejection.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Number of early retries of one connection that are rejected at once: a connection may have many callers.
const FREE_RETRIES: u32 = 8;

/// Retries of the rejected callers of one connection.
#[derive(Debug, Default)]
pub(super) struct RetryRecord {
    /// Time at which all rejected callers may have come back.
    turn: Option<Instant>,
    /// Number of rejections before that time, in a row.
    early: u32,
}

impl RetryRecord {
    /// True before the time at which all rejected callers may have come back.
    pub(super) fn is_early(&self, now: Instant) -> bool {
        self.turn.is_some_and(|turn| now < turn)
    }

    /// Records a rejection. Returns the end of the pause before it, if its caller is to wait. The retry delay begins
    /// when the rejection is sent: after the pause.
    pub(super) fn record(&mut self, delay: Duration, now: Instant) -> Option<Instant> {
        let turn = self.turn.filter(|turn| now < *turn);
        self.early = turn.map_or(0, |_| self.early.saturating_add(1));
        let pause = turn
            .filter(|_| self.early > FREE_RETRIES)
            .map(|turn| turn.min(now + LONGEST_PAUSE));
        self.turn = turn.max(Some(pause.unwrap_or(now) + delay));
        pause
    }
}

/// Number of rejections that wait at the same time. Each holds some kilobytes.
const MAX_PAUSES: usize = 1_024;

/// Places of rejections that wait, which limits their cost.
static PAUSES: Semaphore = Semaphore::const_new(MAX_PAUSES);

/// Waits before a rejection with this retry delay, if its caller retried too early, and at most until the caller's
/// deadline. Rejections without a retry delay are sent at once.
pub(super) async fn pause(connection: &CallerConnection, delay: Option<Duration>, deadline: Option<Instant>) {
    let Some(delay) = delay else { return };
    let now = Instant::now();
    let Some(end) = connection.retries.with(|retries| retries.record(delay, now)) else {
        return;
    };
    let latest = deadline.map_or(end, |deadline| deadline - (deadline - now) / 4);
    if let Ok(_place) = PAUSES.try_acquire() {
        sleep_until(end.min(latest)).await;
    }
}

/// Retry delay of a status.
pub(super) fn retry_delay(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_delay_before_a_retry_grows_with_the_overload() {
        let (mut turns, start) = (RetryTurns::default(), Instant::now());
        // Twice of what can be done, and then nothing.
        let delays: Vec<_> = (0..400_u32)
            .map(|at| turns.next_delay(10 * MS, start + at * 5 * MS))
            .collect();
        assert!(delays.is_sorted() && delays[399] > 900 * MS, "{delays:?}");
        for _ in 0..2_000 {
            turns.next_delay(10 * MS, start);
        }
        assert_eq!(turns.next_delay(10 * MS, start), MOST_RETRY);
        assert!(turns.are_pending(start + MOST_RETRY / 2));
        let after = start + 2 * MOST_RETRY;
        assert!(!turns.are_pending(after));
        assert_eq!(turns.next_delay(10 * MS, after), LEAST_RETRY);
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_callers_who_do_not_wait_are_held() {
        let (mut record, mut now) = (RetryRecord::default(), Instant::now());
        for _ in 0..100 {
            assert_eq!(record.record(SECOND, now), None, "it came when told");
            now += SECOND;
        }
        let held = (0..20).filter(|_| {
            now += Duration::from_millis(1);
            record.record(SECOND, now).is_some()
        });
        assert_eq!(held.count(), 20 - 1 - FREE_RETRIES as usize);
        let end = record.record(SECOND, now).unwrap();
        assert_eq!(end - now, LONGEST_PAUSE);
        now += 2 * SECOND;
        assert_eq!(record.record(SECOND, now), None, "it has waited since");
    }

    #[test]
    fn a_pause_is_no_part_of_the_retry_delay() {
        let (mut record, mut now) = (RetryRecord::default(), Instant::now());
        let delay = LONGEST_PAUSE / 5;
        let begin = now;
        for _ in 0..100 {
            now = record.record(delay, now).unwrap_or(now);
        }
        assert!(now - begin >= delay * (100 - 1 - FREE_RETRIES), "{:?}", now - begin);
    }
}
