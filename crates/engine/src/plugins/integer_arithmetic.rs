//! Integers of scores that do not fit in 64 bits.

use crate::policy::Compatibility;

/// Largest score that a plugin, or a part of one, gives a node with weight 1.
pub(super) const MAX_SCORE: i64 = 100;

/// Treatment of integers that do not fit in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntegerArithmetic {
    /// Computed in 128 bits.
    Exact,
    /// Wrapped integers, as in the reference.
    Wrapping,
}

impl IntegerArithmetic {
    pub(super) fn of(compatibility: Compatibility) -> Self {
        match compatibility {
            Compatibility::Upstream(_) => Self::Wrapping,
            Compatibility::Corrected => Self::Exact,
        }
    }

    /// Hundredfold amount divided by a capacity above 0, cut toward 0.
    pub(super) fn percent(self, amount: i64, capacity: i64) -> i64 {
        match (self, amount.checked_mul(MAX_SCORE)) {
            (_, Some(product)) => product / capacity,
            (Self::Wrapping, None) => amount.wrapping_mul(MAX_SCORE) / capacity,
            (Self::Exact, None) => {
                let wide = i128::from(amount) * i128::from(MAX_SCORE) / i128::from(capacity);
                i64::try_from(wide).unwrap_or(if wide < 0 { i64::MIN } else { i64::MAX })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_products_wrap_only_under_upstream() {
        let (peta, exa) = (1_000_000_000_000_000, 1_000_000_000_000_000_000);
        assert_eq!(IntegerArithmetic::Wrapping.percent(200 * peta, exa), 1);
        assert_eq!(IntegerArithmetic::Exact.percent(200 * peta, exa), 20);
        assert_eq!(IntegerArithmetic::Wrapping.percent(2, 3), 66);
    }
}
