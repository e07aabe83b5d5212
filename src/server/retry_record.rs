//! Retries of the rejected callers of one connection, to detect retries that are too early.

use std::time::Duration;

use tokio::time::Instant;

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

#[cfg(test)]
mod tests {
    use super::*;

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
