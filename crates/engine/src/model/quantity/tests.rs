//! Tests of single quantities; the vectors have the recorded cases of Kubernetes.

use proptest::prelude::*;

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
fn rejects_what_does_not_fit() {
    assert_eq!(quantity("9223372036854775807").value(), Ok(i64::MAX));
    assert_eq!(quantity("9223372036854775808").value(), Err(RangeError::OutOfRange));
    assert_eq!(quantity("10E").value(), Err(RangeError::OutOfRange));
    assert_eq!(quantity("1E").milli(), Err(RangeError::OutOfRange));
    assert_eq!(quantity("1e2147483647").value(), Err(RangeError::OutOfRange));
    assert_eq!(
        quantity("8Ei").value(),
        Err(RangeError::OutOfRange),
        "cut by the parser"
    );
    assert_eq!(quantity("-0.1n").value(), Err(RangeError::NegativeFraction));
    assert_eq!(quantity("-1.0001Ki").milli(), Err(RangeError::NegativeFraction));
}

#[test]
fn rejects_what_is_no_quantity() {
    for text in ["", " 1", "1 Gi", "1gi", "1_000", "0x10", "NaN", "1e1.5", "١", "1\0"] {
        assert!(matches!(Quantity::parse(text), Err(QuantityError::Format(_))), "{text}");
    }
    for text in ["1K", "1Kii", "1e", "1E+", "1+5", "++1", "1m5", "1e18446744073709551616"] {
        assert!(matches!(Quantity::parse(text), Err(QuantityError::Suffix(_))), "{text}");
    }
    for text in ["+", ".", "k", "Gi", "e5", "-.Ki", "Pi"] {
        assert!(
            matches!(Quantity::parse(text), Err(QuantityError::NoDigits(_))),
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
        &"9".repeat(39),
        &format!("0.{}1", "9".repeat(38)),
    ] {
        assert!(
            matches!(Quantity::parse(text), Err(QuantityError::TooLarge(_))),
            "{text}"
        );
    }
}

#[test]
fn numbers_of_38_digits_are_exact() {
    let most = "9".repeat(38);
    assert_eq!(quantity(&most).to_string(), most);
    assert_eq!(
        quantity(&format!("000{most}")).to_string(),
        most,
        "zeros in front do not count"
    );
    assert_eq!(
        quantity(&format!("{most}Ki")).canonical(),
        "9223372036854775807",
        "Kubernetes cuts it"
    );
    // Rounded up at the ninth digit behind the point, although the product alone has 47 digits.
    let binary = quantity("2.4713233653770070561079232Ei");
    assert_eq!(binary.canonical(), "2849241852780515613143739034n");
    assert_eq!(
        quantity("99999999999999999999.999999999999999999Mi").canonical(),
        "9223372036854775807"
    );
    assert_eq!(
        quantity(&format!("0.{}1Ei", "0".repeat(60))).canonical(),
        "1n",
        "rounded up"
    );
    assert_eq!(
        quantity(&format!("0.{}1Ei", "0".repeat(15))).canonical(),
        "115292150461n"
    );
    assert!(quantity(&most).add(&quantity("1")).is_err(), "a sum of 39 digits");
    assert!(quantity("1e30").add(&quantity("1n")).is_err(), "a sum of 40 digits");
    assert!(quantity("1e28").add(&quantity("1n")).is_ok());
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
    assert_eq!(sum("1e28", "1n").to_string(), format!("1{}1e-9", "0".repeat(36)));
    assert_eq!(sum("1e28", "-1n").to_string(), format!("{}e-9", "9".repeat(37)));
    assert!(quantity("1e60").add(&quantity("1n")).is_err(), "a sum of 70 digits");
    assert!(quantity("1e2147483647").add(&quantity("1")).is_err());
    assert_eq!(sum("8Ei", "1").value(), Err(RangeError::OutOfRange));
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
    let whole = |amount, format| Quantity::from_whole(amount, format).to_string();
    assert_eq!(Quantity::from_milli(1500).to_string(), "1500m");
    assert_eq!(Quantity::from_milli(-2_000_000).to_string(), "-2k");
    assert_eq!(whole(3000, QuantityFormat::DecimalSi), "3k");
    assert_eq!(whole(1 << 34, QuantityFormat::BinarySi), "16Gi");
    assert_eq!(whole(1000, QuantityFormat::BinarySi), "1k");
    assert_eq!(whole(0, QuantityFormat::BinarySi), "0");
}

/// A text of a sign, digits, a fraction and a suffix, with the number of nanos in it, rounded away from zero as the
/// parser does.
fn texts() -> impl Strategy<Value = (String, i128)> {
    const SUFFIXES: [(&str, u128, u32); 11] = [
        ("n", 1, 0),
        ("u", 1, 3),
        ("m", 1, 6),
        ("", 1, 9),
        ("k", 1, 12),
        ("M", 1, 15),
        ("G", 1, 18),
        ("e-2", 1, 7),
        ("Ki", 1 << 10, 9),
        ("Mi", 1 << 20, 9),
        ("Gi", 1 << 30, 9),
    ];
    let parts = (any::<bool>(), 0_u128..1_000_000_000, 0_usize..12, 0..SUFFIXES.len());
    parts.prop_map(|(negative, number, places, suffix)| {
        let (suffix, factor, tens) = SUFFIXES[suffix];
        let mut text = format!("{number:0width$}", width = places + 1);
        text.insert(text.len() - places, '.');
        let nanos = (number * factor * 10_u128.pow(tens)).div_ceil(10_u128.pow(u32::try_from(places).unwrap()));
        let nanos = i128::try_from(nanos).unwrap();
        if negative {
            (format!("-{text}{suffix}"), -nanos)
        } else {
            (format!("{text}{suffix}"), nanos)
        }
    })
}

fn away_from_zero(nanos: i128, unit: i128) -> i128 {
    nanos / unit + (nanos % unit).signum()
}

#[test]
fn a_number_with_many_digits_or_a_huge_exponent_reads_back() {
    // With zeros behind its digits it would have more than are read.
    for text in [
        "922318060921092231806092092600921039.51",
        "-9.2231806092109223180609209260092103951e40",
        "92023714159767677e3775808",
        "-92023714159767677e3775807",
        "999999999999999999e2147483646",
    ] {
        let shown = quantity(text).to_string();
        assert!(quantity(&shown).cmp_value(&quantity(text)).is_eq(), "{shown}");
    }
}

proptest! {
    #[test]
    fn agrees_with_nanos((text, nanos) in texts()) {
        let quantity = quantity(&text);
        prop_assert_eq!(i128::from(quantity.sign()), nanos.signum());
        for (got, unit) in [(quantity.value(), 1_000_000_000), (quantity.milli(), 1_000_000)] {
            let exact = away_from_zero(nanos, unit);
            match got {
                Ok(got) => prop_assert_eq!(i128::from(got), exact),
                Err(RangeError::OutOfRange) => prop_assert!(i64::try_from(exact).is_err()),
                Err(RangeError::NegativeFraction) => prop_assert!(nanos < 0),
            }
        }
    }

    #[test]
    fn texts_read_back_as_the_same_amount((text, _) in texts()) {
        let original = quantity(&text);
        for shown in [original.to_string(), original.canonical()] {
            prop_assert!(quantity(&shown).cmp_value(&original).is_eq(), "{} as {}", text, shown);
        }
    }

    #[test]
    fn sums_and_order_agree_with_nanos((left, left_nanos) in texts(), (right, right_nanos) in texts()) {
        let (left, right) = (quantity(&left), quantity(&right));
        prop_assert_eq!(left.cmp_value(&right), left_nanos.cmp(&right_nanos));
        let nanos = Quantity::from_parts(left_nanos + right_nanos, -9, QuantityFormat::DecimalSi);
        prop_assert!(left.add(&right).unwrap().cmp_value(&nanos).is_eq());
        prop_assert!(right.add(&left).unwrap().cmp_value(&nanos).is_eq());
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[-+0-9.eEinumkKMGTP ]{0,40}|\\PC{0,12}") {
        if let Ok(quantity) = Quantity::parse(&text) {
            let _ = (quantity.value(), quantity.milli(), quantity.approx_f64());
            let shown = Quantity::parse(&quantity.to_string());
            prop_assert!(shown.is_ok_and(|shown| shown.cmp_value(&quantity).is_eq()), "{}", text);
        }
    }

    #[test]
    fn long_numbers_come_back_from_a_sum(left in "[1-9][0-9]{20,36}", right in "[1-9][0-9]{20,29}(Mi)?") {
        let (number, other) = (quantity(&left), quantity(&right));
        let minus = quantity(&format!("-{right}"));
        prop_assert!(other.add(&minus).unwrap().is_zero());
        let back = number.add(&other).unwrap().add(&minus).unwrap();
        prop_assert!(back.cmp_value(&number).is_eq());
        prop_assert!(quantity(&back.to_string()).cmp_value(&number).is_eq());
    }
}
