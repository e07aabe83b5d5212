//! Start times of calls: a constant rate that no slow result holds up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Maximum sleep: an early end is noticed after at most this time.
const MAX_SLEEP: Duration = Duration::from_millis(50);

/// Calls at a constant rate.
#[derive(Debug)]
pub(super) struct CallSchedule {
    start: Instant,
    /// Calls per second.
    rate: f64,
    /// Number of calls; lowered to end early.
    calls: AtomicU64,
    next_number: AtomicU64,
    due_calls: Semaphore,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ScheduledCall {
    /// From 0, in the order of due times.
    pub(super) number: u64,
    /// Time at which the call is due, whether or not a caller is free to make it.
    pub(super) due: Instant,
}

impl CallSchedule {
    pub(super) fn new(start: Instant, rate: f64, calls: u64) -> Self {
        CallSchedule {
            start,
            rate,
            calls: calls.into(),
            next_number: 0.into(),
            due_calls: Semaphore::new(0),
        }
    }

    /// Time at which a call is due.
    fn due_time(&self, number: u64) -> Instant {
        self.start + Duration::from_secs_f64(number as f64 / self.rate)
    }

    /// Time at which the last call is due.
    pub(super) fn last_due_time(&self) -> Instant {
        self.due_time(self.calls.load(Ordering::Relaxed).saturating_sub(1))
    }

    /// Ends the schedule before all calls were due.
    pub(super) fn stop(&self) {
        let begun = self.next_number.load(Ordering::Relaxed);
        self.calls.fetch_min(begun, Ordering::Relaxed);
    }

    /// Waits until the next call is due. Returns `None` after the last one.
    pub(super) async fn next_call(&self) -> Option<ScheduledCall> {
        self.due_calls.acquire().await.ok()?.forget();
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        (number < self.calls.load(Ordering::Relaxed)).then(|| ScheduledCall {
            number,
            due: self.due_time(number),
        })
    }

    /// Releases calls as they become due, then ends as many callers as are named. This function blocks: the timers of the async
    /// runtime are a thousand times coarser than what is measured.
    pub(super) fn release_due_calls(&self, callers: usize) {
        let mut begun: u64 = 0;
        loop {
            let calls = self.calls.load(Ordering::Relaxed);
            if begun >= calls {
                break;
            }
            let now = Instant::now();
            let next = self.due_time(begun);
            if now < next {
                std::thread::sleep((next - now).min(MAX_SLEEP));
                continue;
            }
            while begun < calls && self.due_time(begun) <= now {
                self.due_calls.add_permits(1);
                begun = begun.saturating_add(1);
            }
        }
        self.due_calls.add_permits(callers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_starts_once_when_due_and_every_caller_ends() {
        let start = Instant::now();
        let pace = CallSchedule::new(start, 10_000.0, 50);
        pace.release_due_calls(2);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for number in 0..50 {
                let turn = pace.next_call().await.unwrap();
                assert_eq!(turn.number, number);
                assert_eq!(turn.due, start + Duration::from_micros(number * 100));
            }
            assert!(pace.next_call().await.is_none());
            assert!(pace.next_call().await.is_none());
        });
        assert!(Instant::now() >= pace.last_due_time(), "nobody begins early");
    }
}
