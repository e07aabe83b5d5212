//! Kubernetes quantities, exact: parsed as in Kubernetes 1.36, and converted only where its result is right.

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

/// Largest exponent whose power of ten may be written out; Kubernetes would write out larger ones.
const MAX_WRITTEN_EXPONENT: u32 = 100_000;
/// Largest binary amount; Kubernetes cuts larger ones to it.
const BINARY_CAP: u64 = (1 << 63) - 1;
/// Number of characters of a rejected text that an error repeats.
const CLIP_CHARS: usize = 64;

/// Family of suffixes with which a quantity was written.
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
    /// Name that Kubernetes gives to the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::DecimalSi => "DecimalSI",
            Self::BinarySi => "BinarySI",
            Self::DecimalExponent => "DecimalExponent",
        }
    }
}

/// Error: a text that is not a quantity. Each variant carries the text, cut to 64 characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Characters that no quantity has, or that are in the wrong order.
    #[error("`{0}` is not a quantity such as `500m`, `2` or `16Gi`")]
    Format(String),
    /// Suffix that does not exist, or a broken exponent.
    #[error("`{0}` has an unknown suffix; known: n u m k M G T P E, Ki Mi Gi Ti Pi Ei, and exponents such as e3")]
    Suffix(String),
    /// Sign, point or suffix without any digit.
    #[error("`{0}` has no digits")]
    NoDigits(String),
    /// Exponent or text beyond the limits, or more than 38 digits.
    #[error("`{0}` is too large or too long for a quantity; 38 digits are the most")]
    TooLarge(String),
}

/// Error: a quantity that is not a 64-bit number of the requested unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Number outside -2^63 … 2^63-1, or a binary amount that Kubernetes cut to 2^63-1.
    #[error("does not fit in 64 bits")]
    OutOfRange,
    /// Negative fraction, or huge negative amount, in the wide form: Kubernetes rounds it wrongly.
    #[error("is negative and not a whole number of the unit")]
    NegativeFraction,
}

/// Error: a sum that would need too many digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sum of the quantities is too large")]
pub struct SumError;

/// Form in which Kubernetes holds the number; it decides how a negative fraction is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuantityForm {
    /// 64-bit integer and a power of ten.
    Fast,
    /// Integer of any length and a power of ten.
    Wide,
    /// Wide form cut to 2^63-1: the number differs from the written one.
    Capped,
}

/// Exact decimal number with its original format, for example `500m`, `16Gi` or `2e3`.
///
/// Two quantities compare with [`Quantity::cmp_value`]. The type does not implement `==`, because `1000m` and `1` are
/// equal amounts with different texts.
#[derive(Clone, Debug)]
pub struct Quantity {
    negative: bool,
    /// Magnitude: the number is ±`coefficient`·10^`exponent`.
    coefficient: Coefficient,
    exponent: i32,
    /// Power of ten of the integer that Kubernetes holds for the number.
    held_exponent: i32,
    form: QuantityForm,
    format: QuantityFormat,
    /// Written text, where Kubernetes returns it and the canonical text would differ.
    text: Option<Box<str>>,
}

/// Bound of [`Quantity::billionths`].
const MOST_BILLIONTHS: i128 = 10_i128.pow(30);

impl Quantity {
    /// Quantity 0 in the given format.
    pub fn zero(format: QuantityFormat) -> Self {
        Self::from_parts(0, 0, format)
    }

    /// Quantity of `milli` thousandths.
    pub fn from_milli(milli: i64) -> Self {
        Self::from_parts(milli.into(), -3, QuantityFormat::DecimalSi)
    }

    /// Quantity of `whole` units.
    pub fn from_whole(whole: i64, format: QuantityFormat) -> Self {
        Self::from_parts(whole.into(), 0, format)
    }

    /// Largest number of 38 digits, beyond every amount.
    pub fn largest() -> Self {
        Self::from_parts(i128::MAX, 0, QuantityFormat::DecimalSi)
    }

    /// Quantity `value`·10^`exponent`, of at most 38 digits. The exponent must be small, since it is written out.
    pub(in crate::model) fn from_parts(value: i128, exponent: i32, format: QuantityFormat) -> Self {
        let fits = i64::try_from(value).is_ok();
        Self {
            negative: value < 0,
            coefficient: Coefficient::saturating(value.unsigned_abs()),
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
    /// Texts that Kubernetes rejects, and also texts without a digit (Kubernetes reads them as 0), exponents outside 32
    /// bits (Kubernetes cuts them), and exponents that would take Kubernetes minutes.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let scanned = scan::scan(text)?;
        match parse::parse_fast(&scanned, text) {
            Some(quantity) => Ok(quantity),
            None => parse::parse_wide(&scanned, text),
        }
    }

    /// Reads the text of a JSON or YAML string or bare number. White space around it is ignored, except in JSON's
    /// escaped form, which Kubernetes does not decode.
    ///
    /// # Errors
    /// The errors of [`Quantity::parse`].
    pub fn parse_in_object(text: &str) -> Result<Self, QuantityError> {
        let raw_space = |c: char| c.is_whitespace() && !c.is_ascii_control() && !matches!(c, '\u{2028}' | '\u{2029}');
        Self::parse(text.trim_matches(raw_space))
    }

    /// Sign: -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        match (self.is_zero(), self.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }

    /// True if the amount is 0.
    pub fn is_zero(&self) -> bool {
        self.coefficient.is_zero()
    }

    /// True if the amount is below 0.
    pub fn is_negative(&self) -> bool {
        self.sign() < 0
    }

    /// Format in which the quantity was written.
    pub fn format(&self) -> QuantityFormat {
        self.format
    }

    /// Whole units, rounded away from zero.
    ///
    /// # Errors
    /// The number does not fit, or it is a negative number that Kubernetes rounds incorrectly.
    pub fn value(&self) -> Result<i64, RangeError> {
        self.scaled(0)
    }

    /// Thousandths, rounded away from zero.
    ///
    /// # Errors
    /// The number does not fit, or it is a negative number that Kubernetes rounds incorrectly.
    pub fn milli(&self) -> Result<i64, RangeError> {
        self.scaled(-3)
    }

    /// Billionths, exactly; a number beyond 10^21, which is no 64-bit amount of any unit, becomes 10^21, so that sums fit.
    pub fn billionths(&self) -> i128 {
        let power = i64::from(self.exponent) + 9;
        let magnitude = match u32::try_from(power) {
            Ok(power) => self.coefficient.times_pow10(power),
            Err(_) => Some(self.coefficient.divide_pow10_up(power.unsigned_abs()).0),
        };
        let magnitude = magnitude.and_then(|own| i128::try_from(own.to_u128()).ok());
        let magnitude = magnitude.map_or(MOST_BILLIONTHS, |own| own.min(MOST_BILLIONTHS));
        if self.negative { -magnitude } else { magnitude }
    }

    /// Number of units of 10^`unit`, rounded away from zero.
    fn scaled(&self, unit: i32) -> Result<i64, RangeError> {
        if self.is_zero() {
            return Ok(0);
        }
        if self.form == QuantityForm::Capped {
            return Err(RangeError::OutOfRange);
        }
        let power = i64::from(self.exponent) - i64::from(unit);
        let (magnitude, exact) = match u32::try_from(power) {
            // 10^19 exceeds 64 bits, so no longer product needs to be computed.
            Ok(19..) => return Err(RangeError::OutOfRange),
            Ok(power) => (self.coefficient.times_pow10(power).ok_or(RangeError::OutOfRange)?, true),
            Err(_) => self.coefficient.divide_pow10_up(power.unsigned_abs()),
        };
        if self.negative && self.form == QuantityForm::Wide && self.held_exponent < unit {
            let zeros = u32::try_from(self.exponent.saturating_sub(self.held_exponent)).unwrap_or(0);
            // With 20 zeros the held integer exceeds 64 bits whatever its digits are.
            let held = self.coefficient.times_pow10(zeros.min(20)).map(Coefficient::to_u128);
            if !exact || held.is_none_or(|held| held > BINARY_CAP.into()) {
                return Err(RangeError::NegativeFraction);
            }
        }
        let magnitude = i128::try_from(magnitude.to_u128()).ok();
        let signed = magnitude.map(|value| if self.negative { -value } else { value });
        signed
            .and_then(|value| i64::try_from(value).ok())
            .ok_or(RangeError::OutOfRange)
    }

    /// Text that Kubernetes 1.36 shows for the quantity, its losses included: 10^30 reads `1`. `to_string` returns a
    /// text that parses back to the same number.
    pub fn canonical(&self) -> String {
        match &self.text {
            Some(text) => text.to_string(),
            None => text::render(self, MissingSuffix::Omit),
        }
    }

    /// Float of Kubernetes' `AsApproximateFloat64`, bit for bit; infinite beyond the range of a double.
    pub fn approx_f64(&self) -> f64 {
        float::approximate(self)
    }

    /// Exact sum, in the format of the first summand that is not 0.
    ///
    /// # Errors
    /// The sum needs more than 38 digits.
    pub fn add(&self, other: &Self) -> Result<Self, SumError> {
        if self.is_zero() || other.is_zero() {
            let mut sum = if self.is_zero() { other.clone() } else { self.clone() };
            sum.text = None;
            return Ok(sum);
        }
        let exponent = self.exponent.min(other.exponent);
        let (left, right) = (aligned(self, exponent)?, aligned(other, exponent)?);
        let (coefficient, negative) = if self.negative == other.negative {
            (left.plus(right).ok_or(SumError)?, self.negative)
        } else {
            let negative = if left.cmp(&right).is_lt() {
                other.negative
            } else {
                self.negative
            };
            let difference = left.distance(right);
            let negative = negative && !difference.is_zero();
            (difference, negative)
        };
        let fits = coefficient.to_u128() <= BINARY_CAP.into();
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
            self.coefficient.cmp_scaled(power, other.coefficient, other_power)
        };
        match self.sign().cmp(&other.sign()) {
            Ordering::Equal if self.is_negative() => magnitude().reverse(),
            Ordering::Equal => magnitude(),
            unequal @ (Ordering::Less | Ordering::Greater) => unequal,
        }
    }

    /// Larger of two quantities; the first one if the amounts are equal.
    #[must_use]
    pub fn max<'a>(&'a self, other: &'a Self) -> &'a Self {
        if other.cmp_value(self).is_gt() { other } else { self }
    }
}

/// Text that parses back to the same number.
impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&text::render(self, MissingSuffix::Exponent))
    }
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

/// Coefficient of `quantity` when its exponent is lowered to `exponent`.
fn aligned(quantity: &Quantity, exponent: i32) -> Result<Coefficient, SumError> {
    let zeros = i64::from(quantity.exponent) - i64::from(exponent);
    let zeros = u32::try_from(zeros).map_err(|_| SumError)?;
    quantity.coefficient.times_pow10(zeros).ok_or(SumError)
}

/// Leading characters of a rejected text, for a message.
fn clip(text: &str) -> String {
    let mut start: String = text.chars().take(CLIP_CHARS).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    start
}
