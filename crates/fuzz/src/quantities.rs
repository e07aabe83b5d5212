//! Quantities: read and written, compared with plain arithmetic, and with Kubernetes' own.

use std::cmp::Ordering;

use pumice_engine::model::quantity::{Quantity, QuantityError, QuantityFormat, RangeError};

use crate::choices::text;
use crate::go_program::GoProgram;

/// Least number with 19 digits: Kubernetes holds such a text in its wide form.
const LEAST_LONG: i128 = 1_000_000_000_000_000_000;

/// Reads one or two quantities, a line each; what is written reads as the same number.
pub fn read(data: &[u8]) {
    let text = text(data);
    let mut lines = text.split('\n');
    let first = lines.next().map(Quantity::parse_in_object);
    let second = lines.next().map(Quantity::parse_in_object);
    let read: Vec<Quantity> = [first, second].into_iter().flatten().flatten().collect();
    for quantity in &read {
        let written = quantity.to_string();
        let again = Quantity::parse(&written).unwrap_or_else(|error| panic!("{error}, of {text:?}"));
        assert_eq!(again.cmp_value(quantity), Ordering::Equal, "{written} of {text:?}");
        let _ = (quantity.canonical(), quantity.approx_f64(), quantity.format().name());
        for amount in [quantity.value(), quantity.milli()].into_iter().flatten() {
            let again = |quantity: Quantity| Quantity::parse(&quantity.to_string()).unwrap();
            let milli = again(Quantity::from_milli(amount)).milli();
            let count = again(Quantity::from_whole(amount, QuantityFormat::DecimalSi)).value();
            for read in [milli, count] {
                // Kubernetes rounds long negative numbers wrongly, so they are refused.
                let is_refused = read == Err(RangeError::NegativeFraction) && i128::from(amount) <= -LEAST_LONG;
                assert!(is_refused || read == Ok(amount), "{read:?} of {amount}");
            }
            let bytes = again(Quantity::from_whole(amount, QuantityFormat::BinarySi)).value();
            assert!(bytes.is_err() || bytes == Ok(amount), "{amount}");
        }
    }
    let [one, other] = &read[..] else { return };
    assert_eq!(one.cmp_value(other), other.cmp_value(one).reverse());
    let (sum, reverse) = (one.add(other), other.add(one));
    assert_eq!(sum.is_ok(), reverse.is_ok());
    if let (Ok(sum), Ok(reverse)) = (sum, reverse) {
        assert_eq!(sum.cmp_value(&reverse), Ordering::Equal);
        assert_eq!(
            sum.cmp_value(one),
            other.cmp_value(&Quantity::zero(other.format())),
            "{sum} = {one} + {other}"
        );
    }
}

/// Number of a plain reader: billionths, and what was left out of them by rounding away from zero.
#[derive(Clone, Copy, Debug)]
struct PlainNumber {
    billionths: i128,
    /// True for powers of two: Kubernetes cuts these at 2^63-1.
    is_binary: bool,
}

/// Reads a quantity by its grammar; `None`: it is none, or too long for 128 bits.
fn plain_number(text: &str) -> Option<PlainNumber> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let digits_end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(digits_end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + part.len() == 0 || part.contains('.') {
        return None;
    }
    let digits: i128 = format!("0{whole}{part}").parse().ok()?;
    let (ten, two): (i32, u32) = match suffix {
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "" => (0, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => (suffix.strip_prefix(['e', 'E'])?.parse().ok()?, 0),
    };
    let power = ten.checked_add(9)?.checked_sub(i32::try_from(part.len()).ok()?)?;
    let scaled = digits.checked_mul(1 << two)?;
    let billionths = if let Ok(up) = u32::try_from(power) {
        scaled.checked_mul(if scaled == 0 { 1 } else { 10_i128.checked_pow(up)? })?
    } else {
        match 10_i128.checked_pow(power.unsigned_abs()) {
            Some(divisor) => scaled / divisor + i128::from(scaled % divisor != 0),
            None => i128::from(scaled != 0),
        }
    };
    Some(PlainNumber {
        billionths: if negative { -billionths } else { billionths },
        is_binary: two > 0,
    })
}

impl PlainNumber {
    /// Number of units of this size, in billionths, rounded away from zero.
    fn units(self, unit: i128) -> i128 {
        let size = self.billionths.abs();
        let units = size / unit + i128::from(size % unit != 0);
        if self.billionths < 0 { -units } else { units }
    }

    /// Most billionths that Kubernetes holds of a power of two.
    fn is_cut(self) -> bool {
        self.is_binary && self.billionths.abs() > i128::from(i64::MAX) * 1_000_000_000
    }
}

/// Compares conversions, sums and comparisons of one or two quantities with plain arithmetic.
pub fn compare_plain(data: &[u8]) {
    let text = text(data);
    let pairs = text.split('\n').take(2).filter_map(|line| {
        let plain = plain_number(line).filter(|number| !number.is_cut())?;
        Some((Quantity::parse(line).ok()?, plain))
    });
    let pairs: Vec<(Quantity, PlainNumber)> = pairs.collect();
    for (own, plain) in &pairs {
        assert_eq!(
            own.sign(),
            i32::try_from(plain.billionths.signum()).unwrap(),
            "{text:?}"
        );
        for (converted, expected) in [
            (own.value(), plain.units(1_000_000_000)),
            (own.milli(), plain.units(1_000_000)),
        ] {
            match converted {
                Ok(amount) => assert_eq!(i128::from(amount), expected, "{text:?}"),
                Err(RangeError::OutOfRange) => assert!(i64::try_from(expected).is_err(), "{text:?}: {expected}"),
                Err(RangeError::NegativeFraction) => assert!(plain.billionths < 0, "{text:?}"),
            }
        }
        let float = plain.billionths as f64 / 1e9;
        let error = (own.approx_f64() - float).abs();
        // Kubernetes multiplies by a power of ten, which may be infinite.
        let is_extreme = !own.approx_f64().is_finite();
        assert!(
            is_extreme || error <= float.abs() * 1e-12,
            "{text:?}: {} and {float}",
            own.approx_f64()
        );
    }
    let [(one, plain), (other, other_plain)] = &pairs[..] else {
        return;
    };
    let expected = plain.billionths.cmp(&other_plain.billionths);
    assert_eq!(one.cmp_value(other), expected, "{text:?}");
    let (Ok(sum), Some(expected)) = (one.add(other), plain.billionths.checked_add(other_plain.billionths)) else {
        return;
    };
    let written = sum.to_string();
    if let Some(plain) = plain_number(&written) {
        assert_eq!(plain.billionths, expected, "{written} of {text:?}");
    }
}

/// Longest exponent that Kubernetes is asked about.
const MAX_EXPONENT_DIGITS: usize = 3;

/// Compares a quantity with k8s.io/apimachinery.
pub fn compare_go(data: &[u8]) {
    let text = text(data);
    // Kubernetes takes minutes for some exponents, which are refused or told apart here without writing their zeros.
    let exponent = text.rsplit_once(['e', 'E']).map_or("", |(_, exponent)| exponent);
    if exponent.trim_start_matches(['+', '-', '0']).len() > MAX_EXPONENT_DIGITS {
        return;
    }
    let own = match Quantity::parse(&text) {
        Ok(quantity) => written(&quantity),
        Err(QuantityError::NoDigits(_) | QuantityError::TooLarge(_)) => return,
        Err(QuantityError::Format(_) | QuantityError::Suffix(_)) => "error".to_owned(),
    };
    GoProgram::compare("quantity", &text, own, agree);
}

/// A quantity in the notation of the Go program: canonical text, sign, float, whole units and thousandths; `-` for an amount that
/// has none here.
fn written(quantity: &Quantity) -> String {
    let amount = |amount: Result<i64, RangeError>| amount.map_or_else(|_| "-".to_owned(), |amount| amount.to_string());
    let float = quantity.approx_f64();
    let float = if float.is_nan() {
        "nan".to_owned()
    } else {
        format!("{:016x}", float.to_bits())
    };
    format!(
        "{} {} {} {} {}",
        quantity.canonical(),
        quantity.sign(),
        float,
        amount(quantity.value()),
        amount(quantity.milli())
    )
}

/// True if both agree, but for amounts that this reader refuses to name: there Kubernetes overflows or rounds wrongly.
fn agree(own: &str, theirs: &str, _: &str) -> bool {
    let (own, theirs): (Vec<&str>, Vec<&str>) = (own.split(' ').collect(), theirs.split(' ').collect());
    own.len() == theirs.len()
        && own
            .iter()
            .zip(&theirs)
            .all(|(own, theirs)| own == theirs || *own == "-")
}
