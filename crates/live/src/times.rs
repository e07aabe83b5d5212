//! Times as the Kubernetes API writes them.

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use serde::{Deserialize, Deserializer};

/// A time in milliseconds; a hundredth of it in the tests of this crate, which wait for many.
pub(crate) const fn paced(milliseconds: u64) -> Duration {
    Duration::from_millis(if cfg!(test) { milliseconds / 100 } else { milliseconds })
}

/// Time of this machine.
#[expect(
    clippy::disallowed_methods,
    reason = "conditions, events and leases carry the time of the machine"
)]
pub(crate) fn machine_time() -> SystemTime {
    SystemTime::now()
}

/// A time in whole seconds, such as `2026-11-28T16:33:46Z`.
pub(crate) fn second_text(time: SystemTime) -> String {
    let time = Timestamp::from(time);
    Timestamp { nanos: 0, ..time }.to_string()
}

/// A time with six digits of a second, as Leases have it: `2026-11-28T16:33:46.012345Z`.
pub(crate) fn micro_text(time: SystemTime) -> String {
    let micros = Timestamp::from(time).nanos / 1_000;
    let seconds = second_text(time);
    format!("{}.{micros:06}Z", seconds.trim_end_matches('Z'))
}

/// Time between two times, whichever is earlier.
pub(crate) fn distance(one: SystemTime, other: SystemTime) -> Duration {
    one.duration_since(other).unwrap_or_else(|error| error.duration())
}

/// Reads a time that may be null.
pub(crate) fn read_time<'de, D: Deserializer<'de>>(source: D) -> Result<Option<SystemTime>, D::Error> {
    let Some(text) = Option::<String>::deserialize(source)? else {
        return Ok(None);
    };
    let unreadable = |reason: String| serde::de::Error::custom(format!("`{text}` is not a time: {reason}"));
    let time: Timestamp = text.parse().map_err(|error| unreadable(format!("{error}")))?;
    SystemTime::try_from(time)
        .map(Some)
        .map_err(|error| unreadable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_formats_of_the_api() {
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_795_883_626, 12_345_678);
        assert_eq!(second_text(time), "2026-11-28T16:33:46Z");
        assert_eq!(micro_text(time), "2026-11-28T16:33:46.012345Z");
        let whole = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_883_626);
        assert_eq!(micro_text(whole), "2026-11-28T16:33:46.000000Z");
    }
}
