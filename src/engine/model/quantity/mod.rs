//! Kubernetes quantities, exact: parsed as Kubernetes 1.36 does, converted only where the answer is right.

mod coefficient;
mod float;
mod parse;
mod scan;
#[cfg(test)]
mod tests;
mod text;

use std::cmp::Ordering;
use std::fmt;

use coefficient::Coefficient;
use text::MissingSuffix;

/// Larger exponents are refused where Kubernetes would write the power of ten out.
const MAX_WRITTEN_EXPONENT: u32 = 100_000;
/// Sums that would need more digits than this are refused.
const MAX_SUM_DIGITS: i64 = 1_000;
/// A binary amount above this is cut to it by Kubernetes.
const BINARY_CAP: u128 = (1 << 63) - 1;
/// How much of a refused text an error repeats.
const CLIP_CHARS: usize = 64;

/// Which family of suffixes a quantity was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityFormat {
    /// `n u m`, none, `k M G T P E`: powers of 1000.
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`: powers of 1024.
    BinarySi,
    /// `e3`, `E-6`.
    DecimalExponent,
}

impl QuantityFormat {
    /// The name that Kubernetes gives to the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::DecimalSi => "DecimalSI",
            Self::BinarySi => "BinarySI",
            Self::DecimalExponent => "DecimalExponent",
        }
    }
}

/// A text that is not a quantity. Each variant carries the text, cut to 64 characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Characters that no quantity has, or in the wrong order.
    #[error("`{0}` is not a quantity such as `500m`, `2` or `16Gi`")]
    Format(String),
    /// A suffix that does not exist, or a broken exponent.
    #[error("`{0}` has an unknown suffix; known: n u m k M G T P E, Ki Mi Gi Ti Pi Ei, and exponents such as e3")]
    Suffix(String),
    /// A sign, point or suffix without any digit.
    #[error("`{0}` has no digits")]
    NoDigits(String),
    /// An exponent or a text beyond all reason.
    #[error("`{0}` is too large or too long for a quantity")]
    TooLarge(String),
}

/// A quantity that is not a 64-bit number of the asked unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Outside -2^63 … 2^63-1, or a binary amount that Kubernetes cut to 2^63-1.
    #[error("does not fit in 64 bits")]
    OutOfRange,
    /// A negative amount in the wide form that is not whole, or huge: Kubernetes rounds it wrongly.
    #[error("is negative and not a whole number of the unit")]
    NegativeFraction,
}

/// A sum that would need too many digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sum of the quantities is too large")]
pub struct SumError;

/// How Kubernetes holds the number; it decides how a negative fraction is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuantityForm {
    /// A 64-bit integer and a power of ten.
    Fast,
    /// An integer of any length and a power of ten.
    Wide,
    /// Wide, and cut to 2^63-1: the number is no longer the one that was written.
    Capped,
}

/// An exact decimal number with the format that it was written in.
///
/// Two quantities are compared with [`Quantity::cmp_value`]; there is no `==`, because `1000m` and `1` are
/// the same amount and different texts.
#[derive(Clone, Debug)]
pub struct Quantity {
    negative: bool,
    /// The number is ±`coefficient`·10^`exponent`.
    coefficient: Coefficient,
    exponent: i32,
    /// The power of ten of the integer that Kubernetes holds for it.
    held_exponent: i32,
    form: QuantityForm,
    format: QuantityFormat,
    /// The text as written, where Kubernetes keeps it and the canonical text would differ.
    text: Option<Box<str>>,
}

impl Quantity {
    /// 0, in the given format.
    pub fn zero(format: QuantityFormat) -> Self {
        Self::from_parts(0, 0, format)
    }

    /// `milli` thousandths.
    pub fn from_milli(milli: i64) -> Self {
        Self::from_parts(milli.into(), -3, QuantityFormat::DecimalSi)
    }

    /// `whole` units.
    pub fn from_whole(whole: i64, format: QuantityFormat) -> Self {
        Self::from_parts(whole.into(), 0, format)
    }

    /// `value`·10^`exponent`. The exponent must be small: it is written out.
    pub(in crate::engine::model) fn from_parts(value: i128, exponent: i32, format: QuantityFormat) -> Self {
        let fits = i64::try_from(value).is_ok();
        Self {
            negative: value < 0,
            coefficient: Coefficient::from_u128(value.unsigned_abs()),
            exponent,
            held_exponent: exponent,
            form: if fits { QuantityForm::Fast } else { QuantityForm::Wide },
            format,
            text: None,
        }
    }

    /// Reads a quantity.
    ///
    /// # Errors
    /// What Kubernetes refuses, and also texts without a digit (Kubernetes reads them as 0), exponents outside
    /// 32 bits (Kubernetes cuts them), and exponents that Kubernetes would spend minutes on.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let scanned = scan::scan(text)?;
        match parse::parse_fast(&scanned, text) {
            Some(quantity) => Ok(quantity),
            None => parse::parse_wide(&scanned, text),
        }
    }

    /// Reads the text of a JSON or YAML string or bare number: white space around it is dropped, except such as JSON
    /// writes as an escape, which Kubernetes does not decode.
    ///
    /// # Errors
    /// As for [`Quantity::parse`].
    pub fn parse_in_object(text: &str) -> Result<Self, QuantityError> {
        let raw_space = |c: char| c.is_whitespace() && !c.is_ascii_control() && !matches!(c, '\u{2028}' | '\u{2029}');
        Self::parse(text.trim_matches(raw_space))
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        match (self.is_zero(), self.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }

    /// The amount is 0.
    pub fn is_zero(&self) -> bool {
        self.coefficient.is_zero()
    }

    /// The amount is below 0.
    pub fn is_negative(&self) -> bool {
        self.sign() < 0
    }

    /// The format that the quantity was written in.
    pub fn format(&self) -> QuantityFormat {
        self.format
    }

    /// Whole units, rounded away from zero.
    ///
    /// # Errors
    /// If the number does not fit, or is a negative one that Kubernetes gets wrong.
    pub fn value(&self) -> Result<i64, RangeError> {
        self.scaled(0)
    }

    /// Thousandths, rounded away from zero.
    ///
    /// # Errors
    /// If the number does not fit, or is a negative one that Kubernetes gets wrong.
    pub fn milli(&self) -> Result<i64, RangeError> {
        self.scaled(-3)
    }

    /// The number of 10^`unit`, rounded away from zero.
    fn scaled(&self, unit: i32) -> Result<i64, RangeError> {
        if self.is_zero() {
            return Ok(0);
        }
        if self.form == QuantityForm::Capped {
            return Err(RangeError::OutOfRange);
        }
        let power = i64::from(self.exponent) - i64::from(unit);
        let (magnitude, exact) = match u32::try_from(power) {
            // 10^19 has no place in 64 bits, so no longer product needs to be built.
            Ok(19..) => return Err(RangeError::OutOfRange),
            Ok(power) => (self.coefficient.times_pow10(power), true),
            Err(_) => self.coefficient.divide_pow10_up(power.unsigned_abs()),
        };
        if self.negative && self.form == QuantityForm::Wide && self.held_exponent < unit {
            let zeros = u32::try_from(self.exponent.saturating_sub(self.held_exponent)).unwrap_or(0);
            // With 20 zeros the held integer is beyond 64 bits whatever its digits are.
            let held = self.coefficient.times_pow10(zeros.min(20)).to_u128();
            if !exact || held.is_none_or(|held| held > BINARY_CAP) {
                return Err(RangeError::NegativeFraction);
            }
        }
        let magnitude = magnitude.to_u128().and_then(|value| i128::try_from(value).ok());
        let signed = magnitude.map(|value| if self.negative { -value } else { value });
        signed
            .and_then(|value| i64::try_from(value).ok())
            .ok_or(RangeError::OutOfRange)
    }

    /// The text that Kubernetes 1.36 shows for the quantity, its losses included: 10^30 written out reads `1`. Use
    /// `to_string` for a text that parses back to the same number.
    pub fn canonical(&self) -> String {
        match &self.text {
            Some(text) => text.to_string(),
            None => text::render(self, MissingSuffix::Omit),
        }
    }

    /// The float that Kubernetes' `AsApproximateFloat64` gives, bit for bit; infinite beyond the range of a double.
    pub fn approx_f64(&self) -> f64 {
        float::approximate(self)
    }

    /// The exact sum. Its format is that of the first summand that is not 0.
    ///
    /// # Errors
    /// If the sum would need more than about a thousand digits.
    pub fn add(&self, other: &Self) -> Result<Self, SumError> {
        if self.is_zero() || other.is_zero() {
            let mut sum = if self.is_zero() { other.clone() } else { self.clone() };
            sum.text = None;
            return Ok(sum);
        }
        let exponent = self.exponent.min(other.exponent);
        let (left, right) = (aligned(self, exponent)?, aligned(other, exponent)?);
        let (coefficient, negative) = if self.negative == other.negative {
            (left.plus(&right), self.negative)
        } else {
            let negative = if left.cmp(&right).is_lt() {
                other.negative
            } else {
                self.negative
            };
            let difference = left.distance(&right);
            let negative = negative && !difference.is_zero();
            (difference, negative)
        };
        let fits = coefficient.to_u128().is_some_and(|value| value <= BINARY_CAP);
        let form = match (self.form, other.form) {
            (QuantityForm::Capped, _) | (_, QuantityForm::Capped) => QuantityForm::Capped,
            (QuantityForm::Fast, QuantityForm::Fast) if fits => QuantityForm::Fast,
            (QuantityForm::Fast | QuantityForm::Wide, QuantityForm::Fast | QuantityForm::Wide) => QuantityForm::Wide,
        };
        let held_exponent = self.held_exponent.min(other.held_exponent);
        let format = self.format;
        Ok(Self {
            negative,
            coefficient,
            exponent,
            held_exponent,
            form,
            format,
            text: None,
        })
    }

    /// Compares two amounts.
    pub fn cmp_value(&self, other: &Self) -> Ordering {
        let magnitude = || {
            let (power, other_power) = (i64::from(self.exponent), i64::from(other.exponent));
            self.coefficient.cmp_scaled(power, &other.coefficient, other_power)
        };
        match self.sign().cmp(&other.sign()) {
            Ordering::Equal if self.is_negative() => magnitude().reverse(),
            Ordering::Equal => magnitude(),
            unequal @ (Ordering::Less | Ordering::Greater) => unequal,
        }
    }

    /// The larger of two quantities; the first one if they are the same amount.
    #[must_use]
    pub fn max<'a>(&'a self, other: &'a Self) -> &'a Self {
        if other.cmp_value(self).is_gt() { other } else { self }
    }
}

/// A text that parses back to the same number.
impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&text::render(self, MissingSuffix::Exponent))
    }
}

/// Thousandths as quantity text: 1500 is `1500m`, 2000 is `2`.
pub fn format_milli(milli: i128) -> String {
    Quantity::from_parts(milli, -3, QuantityFormat::DecimalSi).to_string()
}

/// Whole units as quantity text: 3000 is `3k`.
pub fn format_count(count: i128) -> String {
    Quantity::from_parts(count, 0, QuantityFormat::DecimalSi).to_string()
}

/// Bytes as quantity text: 1073741824 is `1Gi`.
pub fn format_bytes(bytes: i128) -> String {
    Quantity::from_parts(bytes, 0, QuantityFormat::BinarySi).to_string()
}

/// Bytes for people, in the largest unit that leaves at most three digits after the point: binary (`64Gi`), or decimal
/// (`8G`) where only that shows the amount exactly, rounded to two digits where neither does.
pub fn readable_bytes(bytes: f64) -> String {
    let scaled = |base: f64, units: [&'static str; 6]| {
        let mut value = bytes;
        let mut unit = units.iter();
        let mut suffix = unit.next().copied().unwrap_or_default();
        while value.abs() >= base {
            let Some(next) = unit.next() else { break };
            value /= base;
            suffix = next;
        }
        let rounded = (value * 100.0).round() / 100.0;
        (rounded == value, format!("{rounded}{suffix}"))
    };
    let (exact, binary) = scaled(1024.0, ["", "Ki", "Mi", "Gi", "Ti", "Pi"]);
    let (exact_decimal, decimal) = scaled(1000.0, ["", "k", "M", "G", "T", "P"]);
    let text = if !exact && exact_decimal { decimal } else { binary };
    if text == "-0" { "0".to_owned() } else { text }
}

/// The coefficient of `quantity` when its exponent is lowered to `exponent`.
fn aligned(quantity: &Quantity, exponent: i32) -> Result<Coefficient, SumError> {
    let zeros = i64::from(quantity.exponent) - i64::from(exponent);
    let digits = i64::try_from(quantity.coefficient.len()).unwrap_or(i64::MAX);
    if zeros > 0 && zeros.saturating_add(digits) > MAX_SUM_DIGITS {
        return Err(SumError);
    }
    Ok(quantity.coefficient.times_pow10(u32::try_from(zeros).unwrap_or(0)))
}

/// The start of a refused text, short enough for a message.
fn clip(text: &str) -> String {
    let mut start: String = text.chars().take(CLIP_CHARS).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    start
}
