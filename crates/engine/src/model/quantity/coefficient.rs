//! Unsigned integer of any length: a `u128` up to 38 digits, else decimal digits.

use std::cmp::Ordering;
use std::fmt;

/// Largest number of decimal digits in a `u128`.
const SMALL_DIGITS: usize = 38;
/// Smallest number that does not count as small.
const SMALL_LIMIT: u128 = 10_u128.pow(38);

/// Magnitude of a quantity.
///
/// INVARIANT: `Large` holds more than 38 digits, the first of which is not 0; every smaller number is `Small`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Coefficient {
    /// At most 38 digits.
    Small(u128),
    /// Digits 0 to 9, the most significant first.
    Large(Vec<u8>),
}

impl Coefficient {
    pub(super) const ZERO: Self = Self::Small(0);

    fn small(value: u128) -> Self {
        if value < SMALL_LIMIT {
            Self::Small(value)
        } else {
            Self::Large(digits_of(value))
        }
    }

    /// Number with these decimal digits (0 to 9, not ASCII), the most significant first.
    pub(super) fn from_digits(digits: impl Iterator<Item = u8> + Clone) -> Self {
        let digits = digits.skip_while(|digit| *digit == 0);
        if digits.clone().take(SMALL_DIGITS + 1).count() <= SMALL_DIGITS {
            Self::Small(digits.fold(0, |value, digit| value * 10 + u128::from(digit)))
        } else {
            Self::Large(digits.collect())
        }
    }

    pub(super) fn from_u128(value: u128) -> Self {
        Self::small(value)
    }

    pub(super) fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// Number as a `u128`, if it has at most 38 digits.
    pub(super) fn to_u128(&self) -> Option<u128> {
        match self {
            Self::Small(value) => Some(*value),
            Self::Large(_) => None,
        }
    }

    /// Number of decimal digits; 0 has none.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Small(0) => 0,
            Self::Small(value) => usize::try_from(value.ilog10()).unwrap_or(SMALL_DIGITS) + 1,
            Self::Large(digits) => digits.len(),
        }
    }

    fn digits(&self) -> Vec<u8> {
        match self {
            Self::Small(value) => digits_of(*value),
            Self::Large(digits) => digits.clone(),
        }
    }

    /// Number without its factors of ten, and how many it had. 0 has none.
    pub(super) fn split_tens(&self) -> (Self, u32) {
        match self {
            Self::Small(0) => (Self::ZERO, 0),
            Self::Small(value) => {
                let (mut value, mut tens) = (*value, 0);
                while value.is_multiple_of(10) {
                    value /= 10;
                    tens += 1;
                }
                (Self::Small(value), tens)
            }
            Self::Large(digits) => {
                let tens = digits.iter().rev().take_while(|digit| **digit == 0).count();
                let left = digits.len() - tens;
                let rest = Self::from_digits(digits.iter().copied().take(left));
                (rest, u32::try_from(tens).unwrap_or(u32::MAX))
            }
        }
    }

    /// Number times 10^`power`. The caller bounds `power`.
    pub(super) fn times_pow10(&self, power: u32) -> Self {
        if self.is_zero() || power == 0 {
            return self.clone();
        }
        if let Self::Small(value) = self
            && let Some(factor) = 10_u128.checked_pow(power)
            && let Some(product) = value.checked_mul(factor)
        {
            return Self::small(product);
        }
        let mut digits = self.digits();
        let zeros = usize::try_from(power).unwrap_or(usize::MAX);
        digits.resize(digits.len().saturating_add(zeros), 0);
        Self::Large(digits)
    }

    /// Number times 2^`power`; `power` is at most 60.
    pub(super) fn times_pow2(&self, power: u32) -> Self {
        let factor = 1_u64 << power.min(60);
        if let Self::Small(value) = self
            && let Some(product) = value.checked_mul(u128::from(factor))
        {
            return Self::small(product);
        }
        let mut carry = 0_u64;
        let mut reversed = Vec::new();
        for digit in self.digits().into_iter().rev() {
            // The sum is at most 9·2^60 + 2^60, so it fits in 64 bits.
            let sum = u64::from(digit) * factor + carry;
            reversed.push(low_digit(sum));
            carry = sum / 10;
        }
        while carry > 0 {
            reversed.push(low_digit(carry));
            carry /= 10;
        }
        Self::from_digits(reversed.into_iter().rev())
    }

    /// Number divided by 10^`power`, rounded up, and whether the division was exact.
    pub(super) fn divide_pow10_up(&self, power: u64) -> (Self, bool) {
        if let Self::Small(value) = self {
            let divisor = u32::try_from(power).ok().and_then(|power| 10_u128.checked_pow(power));
            return match divisor {
                Some(divisor) => (Self::Small(value.div_ceil(divisor)), value.is_multiple_of(divisor)),
                None => (Self::Small(u128::from(*value != 0)), *value == 0),
            };
        }
        let digits = self.digits();
        let dropped = usize::try_from(power).unwrap_or(usize::MAX).min(digits.len());
        let left = digits.len() - dropped;
        let exact = digits.iter().skip(left).all(|digit| *digit == 0);
        let quotient = Self::from_digits(digits.into_iter().take(left));
        if exact {
            (quotient, true)
        } else {
            (quotient.plus(&Self::Small(1)), false)
        }
    }

    /// Number divided by 1024, if there is no remainder.
    pub(super) fn divide_1024(&self) -> Option<Self> {
        match self {
            Self::Small(value) => value.is_multiple_of(1024).then(|| Self::Small(value / 1024)),
            Self::Large(digits) => {
                let mut remainder = 0_u32;
                let mut quotient = Vec::with_capacity(digits.len());
                for digit in digits {
                    remainder = remainder * 10 + u32::from(*digit);
                    quotient.push(low_digit(u64::from(remainder / 1024)));
                    remainder %= 1024;
                }
                (remainder == 0).then(|| Self::from_digits(quotient.into_iter()))
            }
        }
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        if let (Self::Small(left), Self::Small(right)) = (self, other) {
            return Self::small(left + right);
        }
        let (left, right) = (self.digits(), other.digits());
        let mut carry = 0;
        let mut reversed = Vec::with_capacity(left.len().max(right.len()) + 1);
        let (mut left, mut right) = (left.into_iter().rev(), right.into_iter().rev());
        loop {
            let (a, b) = (left.next(), right.next());
            if a.is_none() && b.is_none() {
                break;
            }
            let sum = a.unwrap_or(0) + b.unwrap_or(0) + carry;
            reversed.push(sum % 10);
            carry = sum / 10;
        }
        reversed.push(carry);
        Self::from_digits(reversed.into_iter().rev())
    }

    /// Distance of two numbers.
    pub(super) fn distance(&self, other: &Self) -> Self {
        if let (Self::Small(left), Self::Small(right)) = (self, other) {
            return Self::Small(left.abs_diff(*right));
        }
        let (larger, smaller) = if self.cmp(other) == Ordering::Less {
            (other, self)
        } else {
            (self, other)
        };
        let mut smaller = smaller.digits().into_iter().rev();
        let mut borrow = 0;
        let mut reversed = Vec::with_capacity(larger.len());
        for digit in larger.digits().into_iter().rev() {
            let taken = smaller.next().unwrap_or(0) + borrow;
            borrow = u8::from(digit < taken);
            reversed.push(digit + 10 * borrow - taken);
        }
        Self::from_digits(reversed.into_iter().rev())
    }

    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Small(left), Self::Small(right)) => left.cmp(right),
            (Self::Large(left), Self::Large(right)) => left.len().cmp(&right.len()).then_with(|| left.cmp(right)),
            (Self::Small(_), Self::Large(_)) => Ordering::Less,
            (Self::Large(_), Self::Small(_)) => Ordering::Greater,
        }
    }

    /// Compares `self`·10^`power` with `other`·10^`other_power` without computing either.
    pub(super) fn cmp_scaled(&self, power: i64, other: &Self, other_power: i64) -> Ordering {
        match (self.is_zero(), other.is_zero()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            (false, false) => {}
        }
        let end = |number: &Self, power: i64| i64::try_from(number.len()).unwrap_or(i64::MAX).saturating_add(power);
        end(self, power).cmp(&end(other, other_power)).then_with(|| {
            let (left, right) = (self.split_tens().0.digits(), other.split_tens().0.digits());
            left.cmp(&right)
        })
    }
}

impl fmt::Display for Coefficient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Small(value) => write!(out, "{value}"),
            Self::Large(digits) => {
                let text: String = digits.iter().map(|digit| char::from(b'0' + digit)).collect();
                out.write_str(&text)
            }
        }
    }
}

fn low_digit(value: u64) -> u8 {
    u8::try_from(value % 10).unwrap_or(0)
}

fn digits_of(mut value: u128) -> Vec<u8> {
    let mut reversed = Vec::with_capacity(SMALL_DIGITS + 1);
    while value > 0 {
        reversed.push(u8::try_from(value % 10).unwrap_or(0));
        value /= 10;
    }
    reversed.reverse();
    reversed
}
