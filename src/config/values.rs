//! Values of settings: how each kind is read from text.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::SocketAccess;
use crate::server::probe::ExpectedPolicy;
use crate::tls::ClientAuth;
use pumice_engine::policy::Compatibility;

/// Shortest lease that etcd grants, and the longest that makes sense.
const LEASES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(10));

pub(super) fn assign<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

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

pub(super) fn path(value: &str) -> Option<PathBuf> {
    (!value.is_empty()).then(|| PathBuf::from(value))
}

pub(super) fn path_text(path: Option<&PathBuf>) -> String {
    path.map(|path| path.display().to_string()).unwrap_or_default()
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

pub(super) fn positive(value: &str) -> Result<Duration, String> {
    let time = milliseconds(value)?;
    if time.is_zero() {
        return Err("`0` is less than 1, the least".to_owned());
    }
    Ok(time)
}

pub(super) fn compatibility(value: &str) -> Result<Compatibility, String> {
    Compatibility::from_name(value).ok_or_else(|| format!("`{value}` is neither `upstream` nor `corrected`"))
}

pub(super) fn sources(values: Vec<String>) -> Result<Vec<Arc<str>>, String> {
    if values.iter().any(String::is_empty) {
        return Err("a source needs a name".to_owned());
    }
    Ok(values.into_iter().map(Arc::from).collect())
}

pub(super) fn policies(values: &[String]) -> Result<Vec<ExpectedPolicy>, String> {
    values.iter().map(|value| value.parse()).collect()
}

pub(super) fn client_auth(value: &str) -> Result<ClientAuth, String> {
    ClientAuth::from_name(value).ok_or_else(|| format!("`{value}` is neither `required` nor `optional`"))
}

/// Size of a file, in bytes.
pub(super) fn file_bytes(value: &str) -> Result<u64, String> {
    let bytes = parse_bytes(value)?;
    if (4_096..=1 << 40).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("`{value}` is not within 4Ki and 1024Gi"))
}

/// Number of files.
pub(super) fn file_count(value: &str) -> Result<usize, String> {
    let count = parse_value(value, "a whole number")?;
    if count > 1_000 {
        return Err(format!("`{value}` is more than 1000 files"));
    }
    Ok(count)
}

/// Mode of a file, in octal digits.
pub(super) fn file_mode(value: &str) -> Result<u32, String> {
    // YAML takes 0660 without quotes as the number 432: without a zero in front nobody knows what was meant.
    let digits = value.strip_prefix('0');
    let mode = digits.and_then(|digits| u32::from_str_radix(digits.trim_start_matches('o'), 8).ok());
    mode.filter(|mode| *mode <= 0o777)
        .ok_or_else(|| format!("`{value}` is not the mode of a file in quotes, such as \"0660\""))
}

/// Sets the owner of a socket: numbers of user and group, of which one may be absent.
pub(super) fn set_socket_owner(access: &mut SocketAccess, value: &str) -> Result<(), String> {
    let (user, group) = value.split_once(':').unwrap_or((value, ""));
    let number = |text: &str| match text {
        "" => Ok(None),
        text => text.parse().map(Some),
    };
    let error = |_| {
        format!("`{value}` is not an owner by number, such as 1000:2000, 1000 or :2000 (`id -u`, `id -g` tell them)")
    };
    (access.user, access.group) = (number(user).map_err(error)?, number(group).map_err(error)?);
    Ok(())
}

pub(super) fn socket_owner_text(access: &SocketAccess) -> String {
    let text = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
    match access.group {
        None => text(access.user),
        group => format!("{}:{}", text(access.user), text(group)),
    }
}

pub(super) fn filter(value: &str) -> Result<String, String> {
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

pub(super) fn service_name(value: &str) -> Result<String, String> {
    match value {
        "" => Err("a service needs a name".to_owned()),
        name => Ok(name.to_owned()),
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

/// Length of a lease.
pub(super) fn lease(value: &str) -> Result<Duration, String> {
    let length = positive(value)?;
    let (shortest, longest) = LEASES;
    if length < shortest || length > longest || length.subsec_nanos() > 0 {
        return Err(format!(
            "`{value}` is not a lease of whole seconds, from 1 to {}",
            longest.as_secs()
        ));
    }
    Ok(length)
}
