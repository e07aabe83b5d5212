//! Conversion of a scanned quantity to its number, in the two forms of Kubernetes.

use super::coefficient::Coefficient;
use super::scan::ScannedQuantity;
use super::{BINARY_CAP, MAX_WRITTEN_EXPONENT, Quantity, QuantityError, QuantityForm, QuantityFormat, clip};

/// Largest number of digits in Kubernetes' fast form.
const FAST_DIGITS: usize = 18;
/// Finest exponent: 10^-9.
const NANO: i32 = -9;

/// Quantity, if Kubernetes holds it as a 64-bit integer and a power of ten.
pub(super) fn parse_fast(scanned: &ScannedQuantity<'_>, text: &str) -> Option<Quantity> {
    let ScannedQuantity {
        negative,
        whole,
        fraction,
        suffix,
        plain,
    } = *scanned;
    let whole_digits = whole.len().max(1);
    let fraction_digits = i32::try_from(fraction.len()).ok()?;
    let digits = digits(scanned);
    let last = |count: usize| whole.iter().chain(fraction).rev().take(count);
    let (coefficient, exponent, keeps_text) = match suffix.format {
        QuantityFormat::BinarySi => {
            let most = match suffix.exponent {
                10 => 11,
                20 => 8,
                30 => 5,
                40 => 2,
                _ => 0,
            };
            if fraction_digits != 0 || whole_digits > most {
                return None;
            }
            let power = u32::try_from(suffix.exponent).ok()?;
            let written = Coefficient::from_digits(digits)?;
            let keeps_text = !written.to_u128().is_multiple_of(8);
            (written.times_pow2(power)?, 0, keeps_text)
        }
        QuantityFormat::DecimalSi | QuantityFormat::DecimalExponent => {
            let exponent = suffix.exponent.checked_sub(fraction_digits)?;
            if whole_digits + fraction.len() > FAST_DIGITS || exponent < NANO {
                return None;
            }
            let tidy = last(3).count() < 3 || last(3).any(|digit| *digit != b'0');
            (
                Coefficient::from_digits(digits)?,
                exponent,
                exponent % 3 == 0 && tidy && !whole.is_empty(),
            )
        }
    };
    let spelled = !plain || suffix.format == QuantityFormat::DecimalExponent;
    Some(Quantity {
        negative: negative && !coefficient.is_zero(),
        coefficient,
        exponent,
        held_exponent: exponent,
        form: QuantityForm::Fast,
        format: suffix.format,
        text: (keeps_text && spelled).then(|| text.into()),
    })
}

/// Quantity, if Kubernetes needs an integer of any length: rounded away from zero to 10^-9.
///
/// # Errors
/// The number has more than 38 digits, or its exponent is beyond the limits.
pub(super) fn parse_wide(scanned: &ScannedQuantity<'_>, text: &str) -> Result<Quantity, QuantityError> {
    let ScannedQuantity {
        negative,
        fraction,
        suffix,
        ..
    } = *scanned;
    let too_large = || QuantityError::TooLarge(clip(text));
    let fraction_digits = i32::try_from(fraction.len()).map_err(|_| too_large())?;
    let written = Coefficient::from_digits(digits(scanned)).ok_or_else(too_large)?;
    let (coefficient, exponent) = match suffix.format {
        QuantityFormat::BinarySi => {
            let exponent = 0_i32.saturating_sub(fraction_digits).max(NANO);
            let dropped = u32::try_from(fraction_digits.saturating_add(exponent)).unwrap_or(0);
            let twos = suffix.exponent.unsigned_abs();
            // A product of more than 38 digits is beyond the cap, which 19 digits and nine more behind the point hold.
            let product = written.times_pow2_over_pow10_up(twos, dropped);
            (product.unwrap_or_else(|| Coefficient::saturating(u128::MAX)), exponent)
        }
        QuantityFormat::DecimalSi | QuantityFormat::DecimalExponent => {
            (written, suffix.exponent.saturating_sub(fraction_digits))
        }
    };
    let mut quantity = Quantity {
        negative: negative && !coefficient.is_zero(),
        coefficient,
        exponent,
        held_exponent: exponent,
        form: QuantityForm::Wide,
        format: suffix.format,
        text: None,
    };
    if quantity.is_zero() {
        return Ok(quantity);
    }
    if suffix.exponent.unsigned_abs() > MAX_WRITTEN_EXPONENT {
        return Err(too_large());
    }
    quantity.held_exponent = NANO;
    if exponent < NANO {
        let dropped = u64::from(exponent.abs_diff(NANO));
        quantity.coefficient = quantity.coefficient.divide_pow10_up(dropped).0;
        quantity.exponent = NANO;
    }
    if suffix.format == QuantityFormat::BinarySi {
        apply_binary_rules(&mut quantity);
    }
    Ok(quantity)
}

/// Applies the two rules for binary suffixes: the cap, and decimal suffixes for less than one unit.
fn apply_binary_rules(quantity: &mut Quantity) {
    let power = i64::from(quantity.exponent);
    let cap = Coefficient::from_u64(BINARY_CAP);
    if quantity.coefficient.cmp_scaled(power, cap, 0).is_gt() {
        quantity.coefficient = cap;
        quantity.exponent = 0;
        quantity.held_exponent = 0;
        quantity.form = QuantityForm::Capped;
    } else if quantity
        .coefficient
        .cmp_scaled(power, Coefficient::from_u64(1), 0)
        .is_lt()
    {
        quantity.format = QuantityFormat::DecimalSi;
    }
}

/// Digits of the number, 0 to 9.
fn digits<'a>(scanned: &ScannedQuantity<'a>) -> impl Iterator<Item = u8> + Clone + use<'a> {
    scanned.whole.iter().chain(scanned.fraction).map(|digit| digit - b'0')
}
