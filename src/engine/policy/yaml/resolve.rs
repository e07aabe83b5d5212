//! The YAML 1.1 type of a scalar: from its tag, or guessed from its text.

use super::timestamp;

const LONG_TAG_PREFIX: &str = "tag:yaml.org,2002:";

/// What a scalar turns out to be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Resolved {
    /// Null.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number within a signed 64-bit integer.
    Int(i64),
    /// A larger whole number within an unsigned one.
    UInt(u64),
    /// Any other number.
    Float(f64),
    /// The text as it is written.
    Text,
    /// The content of a `!!binary` text.
    Binary(String),
}

impl Resolved {
    fn kind(&self) -> &'static str {
        match self {
            Resolved::Null => "null",
            Resolved::Bool(_) => "a bool",
            Resolved::Int(_) | Resolved::UInt(_) => "an integer",
            Resolved::Float(_) => "a float",
            Resolved::Text | Resolved::Binary(_) => "a string",
        }
    }
}

/// Is this the tag of merge keys?
pub(super) fn is_merge_tag(tag: &str) -> bool {
    tag.strip_prefix(LONG_TAG_PREFIX) == Some("merge")
}

/// Is this the tag of null?
pub(super) fn is_null_tag(tag: &str) -> bool {
    tag.strip_prefix(LONG_TAG_PREFIX) == Some("null")
}

/// Types a scalar. `plain`: without a tag its type is guessed; otherwise it is a text.
///
/// # Errors
/// If the text cannot be what its tag says; the message says why.
pub(super) fn resolve(text: &str, tag: Option<&str>, plain: bool) -> Result<Resolved, String> {
    let Some(tag) = tag else {
        return Ok(if plain { guess(text) } else { Resolved::Text });
    };
    let name = tag.strip_prefix(LONG_TAG_PREFIX).unwrap_or_default();
    let found = match name {
        "bool" | "int" | "float" | "null" => guess(text),
        "timestamp" if timestamp::is_timestamp(text) => return Ok(Resolved::Text),
        "timestamp" => return Err(format!("`{text}` is no timestamp, as its tag says")),
        "binary" => {
            let bytes = decode_base64(text).ok_or("the text is no base64, as its tag `!!binary` says")?;
            return Ok(Resolved::Binary(lossy(&bytes)));
        }
        _ => return Ok(Resolved::Text),
    };
    match (name, &found) {
        ("bool", Resolved::Bool(_))
        | ("int", Resolved::Int(_) | Resolved::UInt(_))
        | ("float", Resolved::Float(_))
        | ("null", Resolved::Null) => Ok(found),
        ("float", Resolved::Int(n)) => Ok(Resolved::Float(*n as f64)),
        _ => Err(format!(
            "`{text}` is {}, not what its tag `!!{name}` says",
            found.kind()
        )),
    }
}

fn guess(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Resolved::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Resolved::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Resolved::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Float(f64::NEG_INFINITY),
        _ => {}
    }
    match text.bytes().next() {
        Some(b'.') => guess_fraction(text),
        Some(b'0'..=b'9' | b'+' | b'-') => guess_number(text),
        _ => Resolved::Text,
    }
}

/// A number that starts with its point. Underscores must stand between digits here.
fn guess_fraction(text: &str) -> Resolved {
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let bad = |(at, byte): (usize, &u8)| *byte == b'_' && !(digit(at.checked_sub(1)) && digit(at.checked_add(1)));
    if bytes.iter().enumerate().any(bad) {
        return Resolved::Text;
    }
    parse_float(&text.replace('_', "")).map_or(Resolved::Text, Resolved::Float)
}

/// A number that starts with a digit or a sign. Underscores may stand anywhere behind.
fn guess_number(text: &str) -> Resolved {
    let text = text.replace('_', "");
    if let Some(whole) = parse_whole(&text) {
        return whole;
    }
    if let Some(float) = parse_float(&text) {
        return Resolved::Float(float);
    }
    // A sign may stand behind the binary prefix, too.
    let binary = text
        .strip_prefix("0b")
        .and_then(|digits| i64::from_str_radix(digits, 2).ok());
    binary.map_or(Resolved::Text, Resolved::Int)
}

/// An integer with the prefixes `0x`, `0b`, `0o` or `0` (octal), in either case.
fn parse_whole(text: &str) -> Option<Resolved> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let signed = unsigned.len() != text.len();
    let negative = text.starts_with('-');
    let prefixed = |marks: [&str; 2]| {
        marks
            .iter()
            .find_map(|mark| unsigned.strip_prefix(mark))
            .filter(|d| !d.is_empty())
    };
    let (digits, radix) = if let Some(digits) = prefixed(["0x", "0X"]) {
        (digits, 16)
    } else if let Some(digits) = prefixed(["0b", "0B"]) {
        (digits, 2)
    } else if let Some(digits) = prefixed(["0o", "0O"]) {
        (digits, 8)
    } else if unsigned.len() > 1 && unsigned.starts_with('0') {
        (unsigned, 8)
    } else {
        (unsigned, 10)
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let amount = u64::from_str_radix(digits, radix).ok()?;
    match i64::try_from(amount) {
        Ok(n) => Some(Resolved::Int(if negative { -n } else { n })),
        Err(_) if negative && amount == i64::MIN.unsigned_abs() => Some(Resolved::Int(i64::MIN)),
        Err(_) if signed => None,
        Err(_) => Some(Resolved::UInt(amount)),
    }
}

/// A decimal number: digits on at least one side of the point, an exponent, a finite value.
fn parse_float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.map(|e| e.strip_prefix(['+', '-']).unwrap_or(e));
    let well_formed = digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|e| !e.is_empty() && digits(e));
    if !well_formed {
        return None;
    }
    text.parse().ok().filter(|x: &f64| x.is_finite())
}

/// Base64 with padding; line breaks inside do not count.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let symbols: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    if !symbols.len().is_multiple_of(4) {
        return None;
    }
    let padding = symbols.iter().rev().take_while(|b| **b == b'=').count();
    let content = symbols.get(..symbols.len().checked_sub(padding)?)?;
    if padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(symbols.len() / 4 * 3);
    for group in content.chunks(4) {
        let mut bits = 0_u32;
        for symbol in group {
            bits = (bits << 6) | base64_value(*symbol)?;
        }
        bits <<= 6 * (4 - group.len());
        let [_, octets @ ..] = bits.to_be_bytes();
        bytes.extend(octets.iter().take(group.len() * 3 / 4));
    }
    Some(bytes)
}

fn base64_value(symbol: u8) -> Option<u32> {
    let value = match symbol {
        b'A'..=b'Z' => symbol - b'A',
        b'a'..=b'z' => symbol - b'a' + 26,
        b'0'..=b'9' => symbol - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

/// Bytes as text; each byte that is no UTF-8 becomes U+FFFD, as it does where Go writes JSON.
fn lossy(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '\u{fffd}'));
    }
    text
}
