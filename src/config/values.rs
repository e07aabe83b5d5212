//! Values of settings: how each kind is read from text.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use pumice_state::is_policy_name;

/// Longest lease that makes sense.
const MAX_LEASE: Duration = Duration::from_mins(10);

pub(super) fn parse_value<T: FromStr<Err: fmt::Display>>(value: &str, what: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{value}` is not {what}"))
}

/// Address to listen on. `localhost` is the IPv4 loopback address, and a port alone stands for all IPv4 addresses; other
/// names are not looked up, because what they mean may change while the server runs.
pub(super) fn address(value: &str) -> Result<SocketAddr, String> {
    let host = match value.rsplit_once(':') {
        Some(("localhost", port)) => Some((Ipv4Addr::LOCALHOST, port)),
        Some(("", port)) => Some((Ipv4Addr::UNSPECIFIED, port)),
        _ => None,
    };
    let error = || {
        format!(
            "`{value}` is not an IP address and a port, such as 127.0.0.1:7461, localhost:7461 or :7461 (all addresses)"
        )
    };
    match host {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            let port = port.parse().map_err(|_| error())?;
            Ok(SocketAddr::new(IpAddr::V4(host), port))
        }
        _ => value.parse().map_err(|_| error()),
    }
}

pub(super) fn milliseconds(value: &str) -> Result<Duration, String> {
    let most = 86_400_000;
    let milliseconds = parse_milliseconds(value)?;
    if milliseconds > most {
        return Err(format!("`{value}` is more than {most} ms, a day"));
    }
    Ok(Duration::from_millis(milliseconds))
}

/// Whole number of milliseconds in a time: a number alone is milliseconds, otherwise its unit is ms, s, m, h or d.
pub(super) fn parse_milliseconds(value: &str) -> Result<u64, String> {
    let error =
        || format!("`{value}` is not a time: write milliseconds as a number, or a unit as in 500ms, 30s, 5m, 2h or 1d");
    let unit_start = value.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(value.len());
    let (number, unit) = value.split_at_checked(unit_start).ok_or_else(error)?;
    let factor: u64 = match unit {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(error()),
    };
    let number: u64 = number.parse().map_err(|_| error())?;
    number.checked_mul(factor).ok_or_else(error)
}

pub(super) fn sources(values: &[String]) -> Result<Vec<Arc<str>>, String> {
    if values.iter().any(String::is_empty) {
        return Err("a source needs a name".to_owned());
    }
    Ok(values.iter().map(|value| value.as_str().into()).collect())
}

pub(super) fn policies(values: &[String]) -> Result<Vec<Arc<str>>, String> {
    match values.iter().find(|value| !is_policy_name(value)) {
        Some(other) => Err(format!("`{other}` is not the name of a policy")),
        None => sources(values),
    }
}

/// SHA-256 of documents, in hexadecimal digits.
pub(super) fn documents(values: &[String]) -> Result<Vec<Arc<str>>, String> {
    let is_hash = |value: &&String| value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    match values.iter().find(|value| !is_hash(value)) {
        Some(other) => Err(format!(
            "`{other}` is not a SHA-256, which has 64 hexadecimal digits, as `sha256sum FILE` prints them"
        )),
        None => Ok(values.iter().map(|value| value.to_ascii_lowercase().into()).collect()),
    }
}

/// Mode of a file, in octal digits.
pub(super) fn file_mode(value: &str) -> Result<u32, String> {
    // YAML takes 0660 without quotes as the number 432: without a zero in front nobody knows what was meant.
    let digits = value.strip_prefix('0');
    let mode = digits.and_then(|digits| u32::from_str_radix(digits.trim_start_matches('o'), 8).ok());
    mode.filter(|mode| *mode <= 0o777)
        .ok_or_else(|| format!("`{value}` is not the mode of a file in quotes, such as \"0660\""))
}

pub(super) fn log_filter(value: &str) -> Result<String, String> {
    match crate::telemetry::read_filter(value) {
        Ok(_) => Ok(value.to_owned()),
        Err(why) => Err(format!("`{value}` is not a log filter: {why}")),
    }
}

pub(super) fn endpoint(value: &str) -> Result<Option<String>, String> {
    let known = (value.starts_with("http://") || value.starts_with("https://"))
        && tonic::transport::Endpoint::from_shared(value.to_owned()).is_ok();
    match value {
        "" => Ok(None),
        _ if known => Ok(Some(value.to_owned())),
        _ => Err(format!(
            "`{value}` is not an address such as http://127.0.0.1:4317 or https://collector:4317"
        )),
    }
}

pub(super) fn ratio(value: &str) -> Result<f64, String> {
    let ratio: f64 = parse_value(value, "a number from 0 to 1")?;
    if (0.0..=1.0).contains(&ratio) {
        Ok(ratio)
    } else {
        Err(format!("`{value}` is not a number from 0 to 1"))
    }
}

/// Whole number of bytes: a number alone, or with the suffix `Ki`, `Mi` or `Gi`.
pub(super) fn parse_bytes(value: &str) -> Result<u64, String> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30)];
    let scaled = units
        .into_iter()
        .find_map(|(unit, shift)| Some((value.strip_suffix(unit)?, shift)));
    let (digits, shift) = scaled.unwrap_or((value, 0));
    let number = digits.parse::<u64>().ok();
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| format!("`{value}` is not a whole number of bytes; the suffix may be Ki, Mi or Gi"))
}

/// Length of a lease; zero: the default of the store.
pub(super) fn lease(value: &str) -> Result<Duration, String> {
    let length = milliseconds(value)?;
    if length > MAX_LEASE || length.subsec_nanos() > 0 {
        return Err(format!(
            "`{value}` is not a lease of whole seconds, from 1 to {}",
            MAX_LEASE.as_secs()
        ));
    }
    Ok(length)
}
