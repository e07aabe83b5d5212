//! Text of a quantity: the canonical form of Kubernetes, and a form that never loses a factor.

use super::coefficient::{Coefficient, MAX_DIGITS};
use super::{MAX_WRITTEN_EXPONENT, Quantity, QuantityFormat};

/// Treatment of a power of ten that has no letter in `DecimalSI`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingSuffix {
    /// The power is left out, as in Kubernetes 1.36: 10^30 reads `1`.
    Omit,
    /// The power is written as an exponent.
    Exponent,
}

/// Text of the number with the suffix of its format.
pub(super) fn render(quantity: &Quantity, no_letter: MissingSuffix) -> String {
    if quantity.coefficient.is_zero() {
        return "0".to_owned();
    }
    let is_lossless = no_letter == MissingSuffix::Exponent;
    let sign = if quantity.negative { "-" } else { "" };
    if quantity.format == QuantityFormat::BinarySi
        && let Some(whole) = whole_units(quantity)
        && whole >= Coefficient::from_u64(1024)
    {
        let (number, suffix) = binary(whole);
        return format!("{sign}{number}{suffix}");
    }
    let (number, tens) = quantity.coefficient.split_tens();
    let exponent = i64::from(quantity.exponent) + i64::from(tens);
    let odd = exponent.rem_euclid(3);
    // Zeros would make a number too long to be read, and one with a huge exponent is read if it has few digits only.
    let is_long = i64::from(number.len()) + odd > i64::from(MAX_DIGITS);
    let is_huge = exponent > i64::from(MAX_WRITTEN_EXPONENT);
    let odd = if is_lossless && (is_long || is_huge) { 0 } else { odd };
    let zeros = "0".repeat(usize::try_from(odd).unwrap_or(0));
    let number = format!("{number}{zeros}");
    let exponent = exponent - odd;
    let letter = if quantity.format == QuantityFormat::DecimalExponent {
        None
    } else {
        letter(exponent)
    };
    let exponential = quantity.format == QuantityFormat::DecimalExponent || is_lossless;
    match letter {
        Some(letter) => format!("{sign}{number}{letter}"),
        None if exponent != 0 && exponential => format!("{sign}{number}e{exponent}"),
        None => format!("{sign}{number}"),
    }
}

/// Magnitude in units, if it is an integer.
fn whole_units(quantity: &Quantity) -> Option<Coefficient> {
    if let Ok(power) = u32::try_from(quantity.exponent) {
        return quantity.coefficient.times_pow10(power);
    }
    let power = u64::from(quantity.exponent.unsigned_abs());
    let (whole, exact) = quantity.coefficient.divide_pow10_up(power);
    exact.then_some(whole)
}

fn binary(whole: Coefficient) -> (Coefficient, &'static str) {
    let mut number = whole;
    let mut suffix = "";
    for next in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
        let Some(quotient) = number.divide_1024() else {
            break;
        };
        number = quotient;
        suffix = next;
    }
    (number, suffix)
}

fn letter(exponent: i64) -> Option<&'static str> {
    Some(match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        0 => "",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => return None,
    })
}
