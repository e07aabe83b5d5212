//! Grammar of a quantity: sign, digits, fraction, suffix.

use super::{QuantityError, QuantityFormat, clip};

/// Largest length of a text whose number is computed; it bounds the work, and no amount needs more.
pub(super) const MAX_LABEL_BYTES: usize = 4096;

/// Parts of a quantity, before any arithmetic.
#[derive(Debug)]
pub(super) struct ScannedQuantity<'a> {
    pub(super) negative: bool,
    /// ASCII digits before the point, without leading zeros; empty for 0.
    pub(super) whole: &'a [u8],
    /// ASCII digits after the point.
    pub(super) fraction: &'a [u8],
    pub(super) suffix: QuantitySuffix,
    /// True if the text has neither a `+`, nor a point, nor leading zeros.
    pub(super) plain: bool,
}

/// Meaning of a suffix.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuantitySuffix {
    pub(super) format: QuantityFormat,
    /// Power of ten, or of two for `BinarySI`.
    pub(super) exponent: i32,
}

/// Splits `text` into its parts, as far as the grammar allows.
pub(super) fn scan(text: &str) -> Result<ScannedQuantity<'_>, QuantityError> {
    let rest = text.as_bytes();
    if rest.is_empty() {
        return Err(QuantityError::Format(clip(text)));
    }
    let (sign, rest) = take(rest, 1, |byte| matches!(byte, b'+' | b'-'));
    let (zeros, rest) = take(rest, usize::MAX, |byte| byte == b'0');
    let (whole, rest) = take(rest, usize::MAX, |byte| byte.is_ascii_digit());
    let (point, rest) = take(rest, 1, |byte| byte == b'.');
    let (fraction, rest) = match point {
        [] => (point, rest),
        [..] => take(rest, usize::MAX, |byte| byte.is_ascii_digit()),
    };
    let suffix = read_suffix(rest, text)?;
    if zeros.is_empty() && whole.is_empty() && fraction.is_empty() {
        return Err(QuantityError::NoDigits(clip(text)));
    }
    if text.len() > MAX_LABEL_BYTES {
        return Err(QuantityError::TooLarge(clip(text)));
    }
    Ok(ScannedQuantity {
        negative: sign == b"-",
        whole,
        fraction,
        suffix,
        plain: sign != b"+" && zeros.is_empty() && point.is_empty(),
    })
}

/// Splits off the longest prefix of `bytes`, at most `most` long, whose bytes all satisfy `wanted`.
fn take(bytes: &[u8], most: usize, wanted: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let length = bytes.iter().take(most).take_while(|byte| wanted(**byte)).count();
    bytes.split_at_checked(length).unwrap_or((bytes, &[]))
}

fn read_suffix(bytes: &[u8], text: &str) -> Result<QuantitySuffix, QuantityError> {
    let (letters, rest) = take(bytes, usize::MAX, |byte| b"eEinumkKMGTP".contains(&byte));
    let (_, rest) = take(rest, 1, |byte| matches!(byte, b'+' | b'-'));
    let (_, rest) = take(rest, usize::MAX, |byte| byte.is_ascii_digit());
    if !rest.is_empty() {
        return Err(QuantityError::Format(clip(text)));
    }
    let known = |format, exponent| Ok(QuantitySuffix { format, exponent });
    match bytes {
        b"n" => known(QuantityFormat::DecimalSi, -9),
        b"u" => known(QuantityFormat::DecimalSi, -6),
        b"m" => known(QuantityFormat::DecimalSi, -3),
        b"" => known(QuantityFormat::DecimalSi, 0),
        b"k" => known(QuantityFormat::DecimalSi, 3),
        b"M" => known(QuantityFormat::DecimalSi, 6),
        b"G" => known(QuantityFormat::DecimalSi, 9),
        b"T" => known(QuantityFormat::DecimalSi, 12),
        b"P" => known(QuantityFormat::DecimalSi, 15),
        b"E" => known(QuantityFormat::DecimalSi, 18),
        b"Ki" => known(QuantityFormat::BinarySi, 10),
        b"Mi" => known(QuantityFormat::BinarySi, 20),
        b"Gi" => known(QuantityFormat::BinarySi, 30),
        b"Ti" => known(QuantityFormat::BinarySi, 40),
        b"Pi" => known(QuantityFormat::BinarySi, 50),
        b"Ei" => known(QuantityFormat::BinarySi, 60),
        [b'e' | b'E', number @ ..] if letters.len() == 1 => {
            let number = std::str::from_utf8(number).unwrap_or_default();
            let number: i64 = number.parse().map_err(|_| QuantityError::Suffix(clip(text)))?;
            let exponent = i32::try_from(number).map_err(|_| QuantityError::TooLarge(clip(text)))?;
            known(QuantityFormat::DecimalExponent, exponent)
        }
        _ => Err(QuantityError::Suffix(clip(text))),
    }
}
