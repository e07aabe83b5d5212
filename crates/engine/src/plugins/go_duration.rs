//! Durations as Go writes and reads them (`time.ParseDuration`).

/// Nanoseconds of the units.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Largest sum of a duration; a positive one is one below.
const LARGEST: u64 = 1 << 63;

/// Nanoseconds of a duration such as `1h30m`; `None`: it is none, or too long.
pub(super) fn parse_go_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut sum: u64 = 0;
    while !rest.is_empty() {
        let (part, behind) = parse_part(rest)?;
        sum = sum.checked_add(part).filter(|sum| *sum <= LARGEST)?;
        rest = behind;
    }
    if negative {
        return Some(0_i64.wrapping_sub_unsigned(sum));
    }
    i64::try_from(sum).ok()
}

/// Nanoseconds of the first number with its unit, and the text behind it.
fn parse_part(text: &str) -> Option<(u64, &str)> {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let (whole, behind) = split_digits(text);
    let (fraction, behind) = match behind.strip_prefix('.') {
        Some(behind) => split_digits(behind),
        None => ("", behind),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = behind.find(is_number).unwrap_or(behind.len());
    let (name, behind) = behind.split_at_checked(end)?;
    let (_, unit) = UNITS.iter().find(|(unit, _)| *unit == name)?;
    let mut nanos = parse_digits(whole)?;
    if nanos > LARGEST / unit {
        return None;
    }
    nanos *= unit;
    let (fraction, scale) = parse_fraction(fraction);
    if fraction > 0 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "below one unit, as Go cuts it"
        )]
        let part = (fraction as f64 * (*unit as f64 / scale)) as u64;
        nanos = nanos.checked_add(part).filter(|nanos| *nanos <= LARGEST)?;
    }
    Some((nanos, behind))
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// Number of at most 2^63; 0 without digits.
fn parse_digits(digits: &str) -> Option<u64> {
    let next = |number: u64, digit: u8| {
        let number = number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
        (number <= LARGEST).then_some(number)
    };
    digits.bytes().try_fold(0, next)
}

/// Digits after the point as a number, and its power of ten. Digits beyond 63 bits are ignored.
fn parse_fraction(digits: &str) -> (u64, f64) {
    let (mut number, mut scale) = (0_u64, 1.0);
    for digit in digits.bytes() {
        if number > (LARGEST - 1) / 10 {
            break;
        }
        let next = number * 10 + u64::from(digit - b'0');
        if next > LARGEST {
            break;
        }
        (number, scale) = (next, scale * 10.0);
    }
    (number, scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_does() {
        let hour = 3_600_000_000_000;
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("1h", hour),
            ("+1h", hour),
            ("-1.5h", -hour * 3 / 2),
            (".5h", hour / 2),
            ("1.h", hour),
            ("1h1m1.5s", 3_661_500_000_000),
            ("1ns2us3\u{b5}s4\u{3bc}s", 9_001),
            ("0.3333333333333333333h", 1_200_000_000_000),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
            ("0.100000000000000000000h", 360_000_000_000),
        ] {
            assert_eq!(parse_go_duration(text), Some(nanos), "{text}");
        }
        let (long, longest) = ("9223372036854775808ns", "88888888888888888888888888888h");
        for text in [
            "", "-", "+", ".", "1", "1d", "x", "1h ", " 1h", "h", ".h", "1e3s", long, longest, "3000000h", "1h-1m",
            "1S",
        ] {
            assert_eq!(parse_go_duration(text), None, "{text}");
        }
    }
}
