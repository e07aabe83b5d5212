//! Numbers and formats as Go prints them, for messages that must be the reference's to the letter.

/// A float as `%v` prints it: the shortest digits that read back as the same float.
pub(super) fn go_float(value: f64) -> String {
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    if !value.is_finite() {
        let sign = if value < 0.0 { "-" } else { "+" };
        return if value.is_nan() {
            "NaN".to_owned()
        } else {
            format!("{sign}Inf")
        };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(-4..=5) => format!("{value}"),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        Err(_) => scientific,
    }
}

/// A text used as a format without arguments, as `Sprintf` garbles it.
pub(super) fn go_format(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        if next != '%' {
            out.push(next);
            continue;
        }
        while rest.next_if(|c| matches!(c, '+' | '-' | '#' | ' ' | '0')).is_some() {}
        while rest.next_if(char::is_ascii_digit).is_some() {}
        if rest.next_if_eq(&'.').is_some() {
            while rest.next_if(char::is_ascii_digit).is_some() {}
        }
        match rest.next() {
            None => out.push_str("%!(NOVERB)"),
            Some('%') => out.push('%'),
            Some(verb) => {
                out.push_str("%!");
                out.push(verb);
                out.push_str("(MISSING)");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_printed_as_go_prints_them() {
        for (value, text) in [
            (0.0, "0"),
            (999_999.0, "999999"),
            (1_000_000.0, "1e+06"),
            (1_048_576.0, "1.048576e+06"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (10_240.000_000_953_674, "10240.000000953674"),
            (9.536_743_164_062_5e-7, "9.5367431640625e-07"),
            (1e100, "1e+100"),
            (-1500.0, "-1500"),
        ] {
            assert_eq!(go_float(value), text);
        }
    }

    #[test]
    fn formats_without_arguments_match_go() {
        assert_eq!(go_format("a%d100"), "a%!d(MISSING)100");
        assert_eq!(go_format("100%% of 5%"), "100% of 5%!(NOVERB)");
    }
}
