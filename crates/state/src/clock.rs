//! Source of the time. Only this module reads it; all other code gets it as data.

use std::fmt::Debug;
use std::time::{Duration, SystemTime};

/// Clock of the state.
pub trait Clock: Debug + Send + Sync {
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// Time since 1970.
    fn wall(&self) -> Duration;
}

/// Clock of the machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl Default for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "only this module reads the clock")]
    fn default() -> Self {
        Self {
            start: std::time::Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "only this module reads the clock")]
    fn wall(&self) -> Duration {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
    }
}
