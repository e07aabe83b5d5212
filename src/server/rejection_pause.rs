//! Pauses before rejections of callers that retry too early. A retry before the end of its retry delay is rejected
//! after a short pause, which limits the cost of rejections.

use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use tonic_types::StatusExt as _;

use super::connection::CallerConnection;

/// Number of rejections that wait at the same time. Each holds some kilobytes.
const MAX_PAUSES: usize = 1_024;

/// Places of rejections that wait.
#[derive(Debug)]
pub(super) struct RejectionPauses(Semaphore);

impl Default for RejectionPauses {
    fn default() -> Self {
        Self(Semaphore::new(MAX_PAUSES))
    }
}

impl RejectionPauses {
    /// Waits before a rejection with this retry delay, if its caller retried too early, and at most until the caller's
    /// deadline. Rejections without a retry delay are sent at once.
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

/// Retry delay of a status.
pub(super) fn retry_delay(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}
