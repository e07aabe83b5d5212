//! Quantities one by one; the recorded cases of Kubernetes stand in the vectors.

use super::*;

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn sum(left: &str, right: &str) -> Quantity {
    quantity(left).add(&quantity(right)).unwrap()
}

#[test]
fn rounds_away_from_zero() {
    for (text, value, milli) in [
        ("0", 0, 0),
        ("1", 1, 1000),
        ("1n", 1, 1),
        ("1500m", 2, 1500),
        ("-1.5", -2, -1500),
        ("0.1234567891", 1, 124),
        ("1.1Gi", 1_181_116_007, 1_181_116_006_400),
        ("1e3", 1000, 1_000_000),
        ("-0.5Ki", -512, -512_000),
    ] {
        assert_eq!(
            (quantity(text).value(), quantity(text).milli()),
            (Ok(value), Ok(milli)),
            "{text}"
        );
    }
}

#[test]
fn refuses_what_does_not_fit() {
    assert_eq!(quantity("9223372036854775807").value(), Ok(i64::MAX));
    assert_eq!(quantity("9223372036854775808").value(), Err(RangeError::Beyond));
    assert_eq!(quantity("10E").value(), Err(RangeError::Beyond));
    assert_eq!(quantity("1E").milli(), Err(RangeError::Beyond));
    assert_eq!(quantity("1e2147483647").value(), Err(RangeError::Beyond));
    assert_eq!(quantity("8Ei").value(), Err(RangeError::Beyond), "cut by the parser");
    assert_eq!(quantity("-0.1n").value(), Err(RangeError::NegativeFraction));
    assert_eq!(quantity("-1.0001Ki").milli(), Err(RangeError::NegativeFraction));
}

#[test]
fn refuses_what_is_no_quantity() {
    for text in ["", " 1", "1 Gi", "1gi", "1_000", "0x10", "NaN", "1e1.5", "١", "1\0"] {
        assert!(matches!(Quantity::parse(text), Err(QuantityError::Format(_))), "{text}");
    }
    for text in ["1K", "1Kii", "1e", "1E+", "1+5", "++1", "1m5", "1e18446744073709551616"] {
        assert!(matches!(Quantity::parse(text), Err(QuantityError::Suffix(_))), "{text}");
    }
    for text in ["+", ".", "k", "Gi", "e5", "-.Ki", "Pi"] {
        assert!(
            matches!(Quantity::parse(text), Err(QuantityError::Numeric(_))),
            "{text}"
        );
    }
    let long = "1".repeat(5000);
    for text in [
        "1e2147483648",
        "1e-2147483648",
        "1e-1000000000",
        "12345678901234567890e1000000",
        &long,
    ] {
        assert!(
            matches!(Quantity::parse(text), Err(QuantityError::TooLarge(_))),
            "{text}"
        );
    }
}

#[test]
fn trims_what_json_strings_may_hold() {
    assert_eq!(Quantity::parse_in_object(" 1Gi\u{a0}").unwrap().canonical(), "1Gi");
    assert!(Quantity::parse_in_object("\t1").is_err());
    assert!(Quantity::parse_in_object(" ").is_err());
}

#[test]
fn canonical_text_keeps_or_reduces() {
    for (text, canonical) in [
        ("+5", "+5"),
        ("007", "007"),
        ("1.500", "1.500"),
        ("1.000", "1"),
        ("1000m", "1"),
        ("1024Ki", "1Mi"),
        ("0.1Ki", "102400m"),
        ("1e5", "100e3"),
        ("1E3", "1E3"),
        ("-0", "0"),
        ("1000000000000000000000", "1"),
        ("10Ei", "9223372036854775807"),
    ] {
        assert_eq!(quantity(text).canonical(), canonical, "{text}");
    }
    assert_eq!(quantity("1000000000000000000000").to_string(), "1e21");
    assert_eq!(quantity("+1.500").to_string(), "1500m");
}

#[test]
fn sums_are_exact_and_take_the_first_format() {
    assert_eq!(sum("0", "1Gi").canonical(), "1Gi");
    assert_eq!(sum("1Gi", "1").canonical(), "1073741825");
    assert_eq!(sum("0.1", "0.2").canonical(), "300m");
    assert_eq!(sum("+5", "0").canonical(), "5");
    assert_eq!(sum("1", "-1").sign(), 0);
    assert_eq!(sum("1", "-3").canonical(), "-2");
    assert_eq!(sum("1e60", "1n").to_string().len(), 73);
    assert_eq!(sum("1e60", "-1n").to_string(), format!("{}e-9", "9".repeat(69)));
    assert!(quantity("1e2147483647").add(&quantity("1")).is_err());
    assert_eq!(sum("8Ei", "1").value(), Err(RangeError::Beyond));
}

#[test]
fn compares_without_writing_out_powers() {
    let order = [
        "-1e2147483647",
        "-2",
        "-1n",
        "0",
        "1n",
        "1m",
        "999m",
        "1",
        "1Ki",
        "1e30",
        "1e2147483647",
    ];
    for (at, left) in order.iter().enumerate() {
        for (other, right) in order.iter().enumerate() {
            assert_eq!(
                quantity(left).cmp_value(&quantity(right)),
                at.cmp(&other),
                "{left} {right}"
            );
        }
    }
    assert!(quantity("1000m").cmp_value(&quantity("1")).is_eq());
    assert_eq!(quantity("+1").max(&quantity("1")).canonical(), "+1");
}

#[test]
fn formats_integers() {
    assert_eq!(format_milli(1500), "1500m");
    assert_eq!(format_milli(-2_000_000), "-2k");
    assert_eq!(format_count(3000), "3k");
    assert_eq!(format_bytes(1 << 34), "16Gi");
    assert_eq!(format_bytes(1000), "1k");
    assert_eq!(format_bytes(0), "0");
}
