//! Unsigned integer of at most 38 digits: every such number and no other is held in a `u128`.

use std::cmp::Ordering;
use std::fmt;

/// Largest number of decimal digits. Amounts of Kubernetes have 19 at most in any unit that it converts to.
pub(super) const MAX_DIGITS: u32 = 38;
/// Smallest number with more digits.
const LIMIT: u128 = 10_u128.pow(MAX_DIGITS);

/// Magnitude of a quantity, below 10^38.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Coefficient(u128);

impl Coefficient {
    /// Number, if it has at most 38 digits.
    pub(super) fn new(value: u128) -> Option<Self> {
        (value < LIMIT).then_some(Self(value))
    }

    /// Number with these decimal digits (0 to 9, not ASCII), the most significant first. `None` with more than 38
    /// significant digits.
    pub(super) fn from_digits(digits: impl Iterator<Item = u8>) -> Option<Self> {
        let value = digits.into_iter().try_fold(0_u128, |value, digit| {
            let value = value.checked_mul(10)?.checked_add(u128::from(digit))?;
            (value < LIMIT).then_some(value)
        });
        value.map(Self)
    }

    /// Number, or the largest one.
    pub(super) fn saturating(value: u128) -> Self {
        Self(value.min(LIMIT - 1))
    }

    /// Number of 64 bits or less.
    pub(super) fn from_u64(value: u64) -> Self {
        Self(u128::from(value))
    }

    pub(super) fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Number as a `u128`.
    pub(super) fn to_u128(self) -> u128 {
        self.0
    }

    /// Number of decimal digits; 0 has none.
    pub(super) fn len(self) -> u32 {
        self.0.checked_ilog10().map_or(0, |log| log + 1)
    }

    /// Number without its factors of ten, and how many it had. 0 has none.
    pub(super) fn split_tens(self) -> (Self, u32) {
        let (mut value, mut tens) = (self.0, 0);
        while value != 0 && value.is_multiple_of(10) {
            value /= 10;
            tens += 1;
        }
        (Self(value), tens)
    }

    /// Number times 10^`power`.
    pub(super) fn times_pow10(self, power: u32) -> Option<Self> {
        if self.is_zero() {
            return Some(self);
        }
        Self::new(self.0.checked_mul(10_u128.checked_pow(power)?)?)
    }

    /// Number times 2^`power`.
    pub(super) fn times_pow2(self, power: u32) -> Option<Self> {
        self.times_pow2_over_pow10_up(power, 0)
    }

    /// Number times 2^`twos` over 10^`tens`, rounded up; the product alone may have more than 38 digits.
    pub(super) fn times_pow2_over_pow10_up(self, twos: u32, tens: u32) -> Option<Self> {
        // Rounding up twice, first over this power and then over the others, equals rounding up once.
        let first = tens.min(MAX_DIGITS - 1);
        let divisor = 10_u128.pow(first);
        // Quotient and remainder are doubled together, so that neither leaves 128 bits.
        let (mut quotient, mut rest) = (self.0 / divisor, self.0 % divisor);
        for _ in 0..twos {
            rest *= 2;
            quotient = Self::new(quotient)?.0 * 2 + rest / divisor;
            rest %= divisor;
        }
        let rounded = Self::new(quotient + u128::from(rest > 0))?;
        Some(rounded.divide_pow10_up(u64::from(tens - first)).0)
    }

    /// Number divided by 10^`power`, rounded up, and whether the division was exact.
    pub(super) fn divide_pow10_up(self, power: u64) -> (Self, bool) {
        let divisor = u32::try_from(power).ok().and_then(|power| 10_u128.checked_pow(power));
        match divisor {
            Some(divisor) => (Self(self.0.div_ceil(divisor)), self.0.is_multiple_of(divisor)),
            None => (Self(u128::from(self.0 != 0)), self.0 == 0),
        }
    }

    /// Number divided by 1024, if the remainder is 0.
    pub(super) fn divide_1024(self) -> Option<Self> {
        self.0.is_multiple_of(1024).then_some(Self(self.0 / 1024))
    }

    pub(super) fn plus(self, other: Self) -> Option<Self> {
        Self::new(self.0.checked_add(other.0)?)
    }

    /// Distance of two numbers.
    pub(super) fn distance(self, other: Self) -> Self {
        Self(self.0.abs_diff(other.0))
    }

    /// Compares `self`·10^`power` with `other`·10^`other_power` without computing either.
    pub(super) fn cmp_scaled(self, power: i64, other: Self, other_power: i64) -> Ordering {
        if self.is_zero() || other.is_zero() {
            return self.cmp(&other);
        }
        let end = |number: Self, power: i64| i64::from(number.len()).saturating_add(power);
        // Of numbers that end at one place, the digits decide, brought to one length.
        let digits = |number: Self| number.0 * 10_u128.pow(MAX_DIGITS.saturating_sub(number.len()));
        end(self, power)
            .cmp(&end(other, other_power))
            .then_with(|| digits(self).cmp(&digits(other)))
    }
}

impl fmt::Display for Coefficient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, out)
    }
}
