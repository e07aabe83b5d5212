//! Integers in columns of floats: which columns show them exactly, sums of them, and the way from and to integers.

use crate::columns::{IntegerColumn, SMALL_LIMIT};
use crate::division::quotient;
use crate::kernel::kernel;
use crate::mask::CHUNK_SIZE;
use crate::rounding::floor;

/// True if a float is not negative and below [`SMALL_LIMIT`].
#[inline(always)]
fn is_small(amount: f64) -> bool {
    const LIMIT: f64 = SMALL_LIMIT as f64;
    (0.0..LIMIT).contains(&amount)
}

kernel! {
    /// True if none of the leading floats is negative or beyond [`SMALL_LIMIT`].
    pub fn are_small / are_small_portable(amounts: &[f64; CHUNK_SIZE], lanes: usize) -> bool {
        let amounts = amounts.iter().take(lanes);
        amounts.fold(true, |all, amount| all & is_small(*amount))
    }
}

kernel! {
    /// True if the leading floats are integers, none of them negative or beyond [`SMALL_LIMIT`].
    pub fn are_small_integers / are_small_integers_portable(amounts: &[f64; CHUNK_SIZE], lanes: usize) -> bool {
        let amounts = amounts.iter().take(lanes);
        amounts.fold(true, |all, amount| all & is_small(*amount) & (floor(*amount) == *amount))
    }
}

kernel! {
    /// Adds the whole units, rounded up, of leading floats in thousandths; false: some are negative or beyond [`SMALL_LIMIT`].
    /// A quotient of so small an integer is as far from an integer that it is not as floats can show.
    pub fn add_units / add_units_portable(amounts: &[f64; CHUNK_SIZE], lanes: usize, sums: &mut [f64; CHUNK_SIZE]) -> bool {
        let mut small = true;
        for (sum, amount) in sums.iter_mut().zip(amounts).take(lanes) {
            small &= is_small(*amount);
            let whole = floor(*amount);
            let units = floor(quotient::<FUSED>(whole, 1_000.0, 1.0 / 1_000.0));
            *sum += if units * 1_000.0 < whole { units + 1.0 } else { units };
        }
        small
    }
}

kernel! {
    /// Adds the integer parts of leading floats; false: some are negative or beyond [`SMALL_LIMIT`].
    pub fn add_whole / add_whole_portable(amounts: &[f64; CHUNK_SIZE], lanes: usize, sums: &mut [f64; CHUNK_SIZE]) -> bool {
        let mut small = true;
        for (sum, amount) in sums.iter_mut().zip(amounts).take(lanes) {
            small &= is_small(*amount);
            *sum += floor(*amount);
        }
        small
    }
}

/// Float from which [`floor`] is not exact.
const FLOOR_LIMIT: f64 = (1_u64 << 51) as f64;

/// Bits of 2^52, whose last ones are an integer that is added to it.
const WHOLE_BITS: u64 = 0x4330 << 48;

kernel! {
    /// Cuts the fractions of floats off; false: some are negative or large, and left to the caller.
    pub fn cut_fractions / cut_fractions_portable(floats: &[f64; CHUNK_SIZE], integers: &mut IntegerColumn) -> bool {
        let mut small = true;
        for (whole, float) in integers.iter_mut().zip(floats) {
            small &= (0.0..FLOOR_LIMIT).contains(float);
            let bits = (floor(*float) + f64::from_bits(WHOLE_BITS)).to_bits();
            *whole = bits.wrapping_sub(WHOLE_BITS).cast_signed();
        }
        small
    }
}

/// Puts an integer as a float; false: it is negative or beyond [`SMALL_LIMIT`].
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "only small integers count"
)]
#[inline]
pub fn put_small(value: i128, float: &mut f64) -> bool {
    let low = value as u64 & (SMALL_LIMIT.cast_unsigned() - 1);
    *float = f64::from_bits(WHOLE_BITS | low) - f64::from_bits(WHOLE_BITS);
    value == i128::from(low)
}

kernel! {
    /// True if no integer of a column is negative or beyond [`SMALL_LIMIT`].
    pub fn is_small_column / is_small_column_portable(amounts: &IntegerColumn) -> bool {
        amounts.iter().fold(0, |all, amount| all | *amount) & !(SMALL_LIMIT - 1) == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Kernel that adds integers of a column, and says whether all amounts are small.
    type AddKernel = fn(&[f64; CHUNK_SIZE], usize, &mut [f64; CHUNK_SIZE]) -> bool;

    /// Amounts of which few are negative or not small, or have fractions.
    fn column() -> impl Strategy<Value = Vec<f64>> {
        let odd = prop_oneof![
            Just(-1.0),
            Just(SMALL_LIMIT as f64),
            Just(FLOOR_LIMIT),
            Just(f64::NAN),
            Just(2.5)
        ];
        let amount = prop_oneof![
            400 => (0_i64..SMALL_LIMIT, 0_u32..46).prop_map(|(amount, shift)| (amount >> shift) as f64),
            1 => odd,
        ];
        prop::collection::vec(amount, CHUNK_SIZE)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn every_processor_finds_the_same_integers(amounts in column(), lanes in 0..=CHUNK_SIZE) {
            let column: [f64; CHUNK_SIZE] = std::array::from_fn(|offset| amounts[offset]);
            let leading = &column[..lanes];
            let small = leading.iter().all(|amount| *amount >= 0.0 && *amount < SMALL_LIMIT as f64);
            let whole = small && leading.iter().all(|amount| amount.fract() == 0.0);
            for kernel in [are_small, are_small_portable::<false>, are_small_portable::<true>] {
                prop_assert_eq!(kernel(&column, lanes), small);
            }
            for kernel in [are_small_integers, are_small_integers_portable::<false>, are_small_integers_portable::<true>] {
                prop_assert_eq!(kernel(&column, lanes), whole);
            }
            let units: [AddKernel; 3] = [add_units, add_units_portable::<false>, add_units_portable::<true>];
            let integers: [AddKernel; 3] = [add_whole, add_whole_portable::<false>, add_whole_portable::<true>];
            for (kernels, in_thousandths) in [(units, true), (integers, false)] {
                for kernel in kernels {
                    let mut sums = [7.0; CHUNK_SIZE];
                    prop_assert_eq!(kernel(&column, lanes, &mut sums), small);
                    for (offset, (amount, sum)) in column.iter().zip(sums).enumerate().filter(|_| small) {
                        let own = if in_thousandths { (amount.floor() / 1_000.0).ceil() } else { amount.floor() };
                        prop_assert_eq!(sum, if offset < lanes { 7.0 + own } else { 7.0 });
                    }
                }
            }
            for kernel in [cut_fractions, cut_fractions_portable::<false>, cut_fractions_portable::<true>] {
                let mut integers = [0; CHUNK_SIZE];
                if kernel(&column, &mut integers) {
                    prop_assert_eq!(integers.map(|own| own as f64), column.map(f64::floor));
                } else {
                    prop_assert!(!column.iter().all(|amount| (0.0..FLOOR_LIMIT).contains(amount)));
                }
            }
        }

        #[test]
        fn small_integers_become_floats(value in prop_oneof![0..i128::from(SMALL_LIMIT), any::<i128>(), -5_i128..5]) {
            let mut float = f64::NAN;
            let is_small = put_small(value, &mut float);
            prop_assert_eq!(is_small, (0..i128::from(SMALL_LIMIT)).contains(&value));
            prop_assert!(!is_small || float == value as f64);
        }
    }
}
