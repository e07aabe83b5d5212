//! Turns of rejected callers: when each may come back.

use std::time::Duration;

use tokio::time::Instant;

/// Shortest delay before a rejected caller may retry.
pub(super) const LEAST_RETRY: Duration = Duration::from_millis(25);
/// Longest delay before a rejected caller may retry.
pub(super) const MOST_RETRY: Duration = Duration::from_secs(10);

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
}
