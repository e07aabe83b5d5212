//! YAML 1.1 type of a scalar: from its tag, or guessed from its text.

use super::path::truncate_text;
use super::timestamp;

/// Text that `!!` abbreviates.
pub(super) const LONG_TAG_PREFIX: &str = "tag:yaml.org,2002:";
/// Number of characters of a text that a message shows.
const MAX_SHOWN_CHARS: usize = 40;

/// Scalar with its type.
#[derive(Debug, Clone, PartialEq)]
pub enum ResolvedScalar {
    /// Null: an empty value, `~` or `null`.
    Null,
    /// True or false.
    Bool(bool),
    /// Integer within signed 64 bits.
    Int(i64),
    /// Larger integer within unsigned 64 bits.
    UInt(u64),
    /// Any other number.
    Float(f64),
    /// Text as it is written.
    Text,
    /// Content of a `!!binary` text.
    Binary(String),
}

impl ResolvedScalar {
    fn is_bool(&self) -> bool {
        matches!(self, ResolvedScalar::Bool(_))
    }

    fn is_int(&self) -> bool {
        matches!(self, ResolvedScalar::Int(_) | ResolvedScalar::UInt(_))
    }

    /// Float, or signed integer: the reference does not convert larger ones.
    fn as_float(&self) -> Option<f64> {
        match self {
            ResolvedScalar::Float(x) => Some(*x),
            ResolvedScalar::Int(n) => Some(*n as f64),
            ResolvedScalar::Null
            | ResolvedScalar::Bool(_)
            | ResolvedScalar::UInt(_)
            | ResolvedScalar::Text
            | ResolvedScalar::Binary(_) => None,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            ResolvedScalar::Null => "null",
            ResolvedScalar::Bool(_) => "a bool",
            ResolvedScalar::Int(_) | ResolvedScalar::UInt(_) => "an integer",
            ResolvedScalar::Float(_) => "a float",
            ResolvedScalar::Text | ResolvedScalar::Binary(_) => "a string",
        }
    }
}

/// Type that a tag requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum YamlTag {
    /// `!`: no type is requested, and none may be guessed.
    NonSpecific,
    Bool,
    Int,
    Float,
    Null,
    Timestamp,
    Binary,
    Merge,
    /// `!!str`, and every tag without a meaning here.
    Other,
}

impl YamlTag {
    /// Tag of this full name, given in two parts.
    pub(super) fn from_name(prefix: &str, suffix: &str) -> YamlTag {
        // A longer name is none of those below, and long names could be concatenated many times.
        if prefix.len() + suffix.len() > LONG_TAG_PREFIX.len() + "timestamp".len() {
            return YamlTag::Other;
        }
        let full = format!("{prefix}{suffix}");
        if full == "!" {
            return YamlTag::NonSpecific;
        }
        match full.strip_prefix(LONG_TAG_PREFIX).unwrap_or_default() {
            "bool" => YamlTag::Bool,
            "int" => YamlTag::Int,
            "float" => YamlTag::Float,
            "null" => YamlTag::Null,
            "timestamp" => YamlTag::Timestamp,
            "binary" => YamlTag::Binary,
            "merge" => YamlTag::Merge,
            _ => YamlTag::Other,
        }
    }
}

/// Resolves the type of a scalar. `plain`: without a tag, the type follows from the text. Otherwise the scalar is a
/// text.
///
/// # Errors
/// The text does not match its tag. The message has the reason.
pub(super) fn resolve(text: &str, tag: Option<YamlTag>, plain: bool) -> Result<ResolvedScalar, String> {
    let wrong = |name: &str| {
        let found = guess(text).kind();
        Err(format!(
            "`{}` is {found}, not what its tag `!!{name}` says",
            truncate_text(text, MAX_SHOWN_CHARS)
        ))
    };
    match tag {
        None if plain => Ok(guess(text)),
        None | Some(YamlTag::NonSpecific | YamlTag::Merge | YamlTag::Other) => Ok(ResolvedScalar::Text),
        Some(YamlTag::Bool) => Some(guess(text))
            .filter(ResolvedScalar::is_bool)
            .map_or_else(|| wrong("bool"), Ok),
        Some(YamlTag::Int) => Some(guess(text))
            .filter(ResolvedScalar::is_int)
            .map_or_else(|| wrong("int"), Ok),
        Some(YamlTag::Float) => guess(text)
            .as_float()
            .map(ResolvedScalar::Float)
            .map_or_else(|| wrong("float"), Ok),
        Some(YamlTag::Null) if guess(text) == ResolvedScalar::Null => Ok(ResolvedScalar::Null),
        Some(YamlTag::Null) => wrong("null"),
        Some(YamlTag::Timestamp) if timestamp::is_timestamp(text) => Ok(ResolvedScalar::Text),
        Some(YamlTag::Timestamp) => wrong("timestamp"),
        Some(YamlTag::Binary) => match decode_base64(text).map(String::from_utf8) {
            Some(Ok(content)) => Ok(ResolvedScalar::Binary(content)),
            Some(Err(_)) => Err("the content of `!!binary` is no UTF-8".to_owned()),
            None => wrong("binary"),
        },
    }
}

fn guess(text: &str) -> ResolvedScalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return ResolvedScalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return ResolvedScalar::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return ResolvedScalar::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return ResolvedScalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return ResolvedScalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return ResolvedScalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    match text.bytes().next() {
        Some(b'.') => guess_fraction(text),
        Some(b'0'..=b'9' | b'+' | b'-') => guess_number(text),
        _ => ResolvedScalar::Text,
    }
}

/// Number that starts with its point. Underscores must be between digits here.
fn guess_fraction(text: &str) -> ResolvedScalar {
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let bad = |(at, byte): (usize, &u8)| *byte == b'_' && !(digit(at.checked_sub(1)) && digit(at.checked_add(1)));
    if bytes.iter().enumerate().any(bad) {
        return ResolvedScalar::Text;
    }
    parse_float(&text.replace('_', "")).map_or(ResolvedScalar::Text, ResolvedScalar::Float)
}

/// Number that starts with a digit or a sign. Underscores may be anywhere after it.
fn guess_number(text: &str) -> ResolvedScalar {
    let text = text.replace('_', "");
    if let Some(whole) = parse_whole(&text) {
        return whole;
    }
    if let Some(float) = parse_float(&text) {
        return ResolvedScalar::Float(float);
    }
    // A sign may also follow the binary prefix.
    let binary = text
        .strip_prefix("0b")
        .and_then(|digits| i64::from_str_radix(digits, 2).ok());
    binary.map_or(ResolvedScalar::Text, ResolvedScalar::Int)
}

/// Integer with a prefix `0x`, `0b`, `0o` or `0` (octal), in either case.
fn parse_whole(text: &str) -> Option<ResolvedScalar> {
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
        Ok(n) => Some(ResolvedScalar::Int(if negative { -n } else { n })),
        Err(_) if negative && amount == i64::MIN.unsigned_abs() => Some(ResolvedScalar::Int(i64::MIN)),
        Err(_) if signed => None,
        Err(_) => Some(ResolvedScalar::UInt(amount)),
    }
}

/// Decimal number: digits on at least one side of the point, an exponent, a finite value.
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

/// Decodes Base64 with padding; line breaks are ignored.
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
