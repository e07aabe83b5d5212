//! Waiting between attempts: longer each time, up to a bound, and not in step with others.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::times::paced;

/// Shortest wait.
const LEAST: Duration = paced(200);
/// Longest wait.
const MOST: Duration = paced(8_000);

/// Waits between attempts.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// Next wait: random between half and all of a limit. The limit doubles with each call, up to 8 seconds.
    pub(crate) fn next(&mut self) -> Duration {
        let longest = LEAST.saturating_mul(1 << self.attempts.min(10)).min(MOST);
        self.attempts = self.attempts.saturating_add(1);
        // A hasher with keys of its own is the randomness that the standard library has.
        let random = u32::try_from(RandomState::new().hash_one(self.attempts) & 0xffff).unwrap_or_default();
        longest / 2 + longest.mul_f64(f64::from(random) / 131_072.0)
    }

    /// The last attempt succeeded.
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_begin_again() {
        let mut backoff = Backoff::default();
        for attempt in 0..40 {
            let longest = LEAST.saturating_mul(1 << attempt.min(10)).min(MOST);
            let wait = backoff.next();
            assert!(wait >= longest / 2 && wait <= longest, "{attempt}: {wait:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= LEAST);
    }
}
