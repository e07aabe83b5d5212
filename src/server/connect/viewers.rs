//! Number of pages of the console that are open, by their polls. Each page rests longer the more there are, so all
//! together cost the server a bounded time.

use std::time::Duration;

use axum::http::HeaderValue;
use pumice_engine::short_lock::ShortLock;
use tokio::time::Instant;

/// Method that a page polls.
pub(super) const POLL_PATH: &str = "/pumice.v1.StateService/GetServerInfo";

/// Response header with the number of pages.
pub(super) const VIEWERS_HEADER: &str = "pumice-viewers";

/// Time between two polls of a page, as `clients/console/src/pace.ts` has it.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Time over which polls are counted. It is short, because pages that come together have to learn of each other soon.
const WINDOW: Duration = Duration::from_secs(4);

/// Polls of this window of time, and of the window before it.
#[derive(Debug, Default)]
struct PollWindows {
    /// Number of the window, from the start of the server.
    number: u64,
    polls: u64,
    polls_before: u64,
}

/// Count of polls.
#[derive(Debug)]
pub(super) struct ViewerCount {
    begin: Instant,
    windows: ShortLock<PollWindows>,
}

impl ViewerCount {
    pub(super) fn new() -> Self {
        Self {
            begin: Instant::now(),
            windows: ShortLock::default(),
        }
    }

    /// Counts a poll, and returns the number of pages as a header.
    pub(super) fn record_poll(&self) -> HeaderValue {
        HeaderValue::from(self.windows.with(|windows| windows.record_poll(self.begin.elapsed())))
    }
}

impl PollWindows {
    /// Counts a poll at this time since the start, and returns the number of pages.
    fn record_poll(&mut self, elapsed: Duration) -> u64 {
        let number = elapsed.as_secs() / WINDOW.as_secs();
        match number.saturating_sub(self.number) {
            0 => {}
            1 => self.polls_before = std::mem::take(&mut self.polls),
            _ => (self.polls_before, self.polls) = (0, 0),
        }
        self.number = number;
        self.polls = self.polls.saturating_add(1);
        let polls_of_a_page = WINDOW.as_secs() / POLL_INTERVAL.as_secs();
        self.polls.max(self.polls_before).div_ceil(polls_of_a_page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_follows_the_number_of_pages() {
        let mut windows = PollWindows::default();
        let mut count_of = |pages: u64, from: u64, to: u64| {
            let mut count = 0;
            for second in (from..to).step_by(2) {
                for _ in 0..pages {
                    count = windows.record_poll(Duration::from_secs(second));
                }
            }
            count
        };
        assert_eq!(count_of(1, 0, 20), 1);
        assert_eq!(count_of(100, 20, 40), 100);
        assert_eq!(count_of(100, 40, 42), 100, "the window before counts");
        assert_eq!(count_of(3, 42, 60), 3);
        assert_eq!(count_of(1, 200, 202), 1, "polls of long ago are forgotten");
    }
}
