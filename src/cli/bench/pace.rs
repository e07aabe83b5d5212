//! When calls begin: a constant rate that no answer, however late, holds up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Longest sleep, so that an early end is noticed.
const NAP: Duration = Duration::from_millis(50);

/// Calls at a constant rate.
#[derive(Debug)]
pub(super) struct Pace {
    start: Instant,
    /// Calls per second.
    rate: f64,
    /// How many calls there are; lowered to end early.
    calls: AtomicU64,
    next: AtomicU64,
    due: Semaphore,
}

/// A call's turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    /// Number of the call, from 0.
    pub(super) number: u64,
    /// When it is to begin, whether or not anybody is free to make it.
    pub(super) due: Instant,
}

impl Pace {
    pub(super) fn new(start: Instant, rate: f64, calls: u64) -> Self {
        Pace {
            start,
            rate,
            calls: calls.into(),
            next: 0.into(),
            due: Semaphore::new(0),
        }
    }

    /// When a call is due.
    fn due(&self, number: u64) -> Instant {
        self.start + Duration::from_secs_f64(number as f64 / self.rate)
    }

    /// When the last call is due.
    pub(super) fn last(&self) -> Instant {
        self.due(self.calls.load(Ordering::Relaxed).saturating_sub(1))
    }

    /// Ends before all calls were due.
    pub(super) fn stop(&self) {
        let begun = self.next.load(Ordering::Relaxed);
        self.calls.fetch_min(begun, Ordering::Relaxed);
    }

    /// Waits for the next call's turn; none when all have had theirs.
    pub(super) async fn turn(&self) -> Option<Turn> {
        self.due.acquire().await.ok()?.forget();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.calls.load(Ordering::Relaxed)).then(|| Turn {
            number,
            due: self.due(number),
        })
    }

    /// Lets calls begin as they become due, then lets so many callers go home. It blocks: the timers of the async
    /// runtime are a thousand times coarser than what is measured.
    pub(super) fn run(&self, callers: usize) {
        let mut begun: u64 = 0;
        loop {
            let calls = self.calls.load(Ordering::Relaxed);
            if begun >= calls {
                break;
            }
            let now = Instant::now();
            let next = self.due(begun);
            if now < next {
                std::thread::sleep((next - now).min(NAP));
                continue;
            }
            while begun < calls && self.due(begun) <= now {
                self.due.add_permits(1);
                begun = begun.saturating_add(1);
            }
        }
        self.due.add_permits(callers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_one_turn_at_its_time_and_every_caller_goes_home() {
        let start = Instant::now();
        let pace = Pace::new(start, 10_000.0, 50);
        pace.run(2);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for number in 0..50 {
                let turn = pace.turn().await.unwrap();
                assert_eq!(turn.number, number);
                assert_eq!(turn.due, start + Duration::from_micros(number * 100));
            }
            assert!(pace.turn().await.is_none());
            assert!(pace.turn().await.is_none());
        });
        assert!(Instant::now() >= pace.last(), "nobody begins early");
    }
}
