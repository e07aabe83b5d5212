//! Time of a decision: data of the query, never a clock's.

/// Time of a decision, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Seconds that the scheduler's time zone is ahead of UTC at this time, such as 3600.
    pub utc_offset: i32,
}

impl DecisionTime {
    /// Nanoseconds since a time in seconds since 1970; negative: it is later.
    pub fn nanos_since(self, start: i64) -> i128 {
        (i128::from(self.seconds) - i128::from(start)) * 1_000_000_000
    }

    /// Seconds since 1970 on a clock of the scheduler's time zone.
    pub fn local_seconds(self) -> i64 {
        self.seconds.saturating_add(self.utc_offset.into())
    }
}

impl From<i64> for DecisionTime {
    /// Time in UTC.
    fn from(seconds: i64) -> Self {
        Self { seconds, utc_offset: 0 }
    }
}
