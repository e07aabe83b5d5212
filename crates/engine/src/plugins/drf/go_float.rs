//! Floats as Go's `strconv.ParseFloat` reads them; the reference reads weights with it.

/// Number of a text; a number that is too large becomes infinite. `None`: not a number.
pub(super) fn parse(text: &str) -> Option<f64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1.0, text.get(1..)?),
        b'+' => (1.0, text.get(1..)?),
        _ => (1.0, text),
    };
    if ["inf", "infinity"].iter().any(|word| rest.eq_ignore_ascii_case(word)) {
        return Some(sign * f64::INFINITY);
    }
    if text.eq_ignore_ascii_case("nan") {
        return Some(f64::NAN);
    }
    if !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') || !has_valid_underscores(rest) {
        return None;
    }
    let digits = rest.replace('_', "");
    let magnitude = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hexadecimal) => parse_hexadecimal(hexadecimal)?,
        None => digits.parse().ok()?,
    };
    Some(sign * magnitude)
}

/// True if each underscore is between digits, or after the prefix of a base.
fn has_valid_underscores(text: &str) -> bool {
    let (prefix, text) = match text.get(..2) {
        Some("0x" | "0X" | "0b" | "0B" | "0o" | "0O") => (true, text.get(2..).unwrap_or_default()),
        _ => (false, text),
    };
    let hexadecimal = prefix;
    let is_digit = |c: char| c.is_ascii_digit() || hexadecimal && c.is_ascii_hexdigit();
    let mut before = if prefix { '0' } else { '!' };
    for c in text.chars() {
        let fits = match (before, c) {
            (before, '_') => is_digit(before),
            ('_', c) => is_digit(c),
            _ => true,
        };
        if !fits {
            return false;
        }
        before = c;
    }
    before != '_'
}

/// Hexadecimal float: a mantissa with at most one point, then `p` and a required decimal exponent of two.
fn parse_hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let mut exponent: i64 = exponent
        .parse()
        .unwrap_or(if exponent.starts_with('-') { -9_999 } else { 9_999 });
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0.0;
    for c in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(c.to_digit(16)?);
    }
    exponent -= 4 * i64::try_from(fraction.len()).ok()?;
    Some(value * 2f64.powi(i32::try_from(exponent.clamp(-9_999, 9_999)).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_reads() {
        let same = [
            ("0.5", 0.5),
            ("1.", 1.0),
            (".5", 0.5),
            ("1_000", 1_000.0),
            ("1e3", 1_000.0),
            ("+2", 2.0),
            ("-3", -3.0),
            ("1e400", f64::INFINITY),
            ("-Inf", f64::NEG_INFINITY),
            ("infinity", f64::INFINITY),
            ("0x1p4", 16.0),
            ("0x_1.8p1", 3.0),
        ];
        for (text, value) in same {
            assert_eq!(parse(text), Some(value), "{text}");
        }
        assert!(parse("NaN").is_some_and(f64::is_nan));
        for text in [
            "", " 2", "2 ", "abc", "0x10", "1__0", "_1", "1_", "1_.5", "+nan", "1e", "infin", "++1", "0b1", "p4",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
