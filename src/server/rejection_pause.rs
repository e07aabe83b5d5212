//! Pauses before rejections of callers who do not wait: one that comes back before the end of the delay that it was given is
//! told no again a little later, so that rejecting it costs little.

use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use tonic_types::StatusExt as _;

use super::connection::CallerConnection;

/// Longest pause before a rejection.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Number of early retries of one connection that are rejected at once: a connection may have many callers.
const FREE_RETRIES: u32 = 8;
/// Number of rejections that wait at the same time. Each holds some kilobytes.
const MAX_PAUSES: usize = 1_024;

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

    /// Records a rejection. Returns the end of the pause before it, if its caller is to wait.
    fn record(&mut self, delay: Duration, now: Instant) -> Option<Instant> {
        let turn = self.turn.filter(|turn| now < *turn);
        self.early = turn.map_or(0, |_| self.early.saturating_add(1));
        self.turn = Some(turn.map_or(now + delay, |turn| turn.max(now + delay)));
        turn.filter(|_| self.early > FREE_RETRIES)
            .map(|turn| turn.min(now + LONGEST_PAUSE))
    }
}

/// Places of rejections that wait.
#[derive(Debug)]
pub(super) struct RejectionPauses(Semaphore);

impl Default for RejectionPauses {
    fn default() -> Self {
        Self(Semaphore::new(MAX_PAUSES))
    }
}

impl RejectionPauses {
    /// Waits before a rejection with this delay before a retry, if its caller did not wait, and no longer than the caller
    /// does. Without a delay it is no such rejection.
    pub(super) async fn pause(
        &self,
        connection: &CallerConnection,
        delay: Option<Duration>,
        deadline: Option<Instant>,
    ) {
        let Some(delay) = delay else { return };
        let now = Instant::now();
        let Some(end) = connection.retries.with(|retries| retries.record(delay, now)) else {
            return;
        };
        let latest = deadline.map_or(end, |deadline| deadline - (deadline - now) / 4);
        if let Ok(_place) = self.0.try_acquire() {
            sleep_until(end.min(latest)).await;
        }
    }
}

/// Delay before a retry that a status tells.
pub(super) fn retry_delay(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
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
}
