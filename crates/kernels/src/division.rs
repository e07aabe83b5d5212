//! Exact division without the processor's divider: by three fused multiplications and a stored reciprocal.

/// Significant bits that a divisor may have.
const DIVISOR_BITS: u32 = 48;

/// Reciprocal of a divisor for [`quotient`]: 1 / divisor, rounded to the nearest, and 0 for 0. `None`: callers must
/// divide.
///
/// A divisor has a reciprocal if it is 0, or a number from 1 to 2^200 with at most 48 significant bits: every integer
/// up to 2^48, and whole KiB up to 2^58.
#[inline]
pub fn reciprocal(divisor: f64) -> Option<f64> {
    const LARGEST: f64 = (1_u128 << 100) as f64 * (1_u128 << 100) as f64;
    if divisor == 0.0 {
        return Some(0.0);
    }
    let short = divisor.to_bits().trailing_zeros() > f64::MANTISSA_DIGITS - DIVISOR_BITS - 1;
    (short && (1.0..=LARGEST).contains(&divisor)).then(|| 1.0 / divisor)
}

/// `dividend / divisor`, to the last bit; with `FUSED` by three multiplications instead of a division, and then 0 where
/// the divisor is 0.
///
/// `reciprocal` is the reciprocal of the divisor; the dividend is 0, or lies between 2^-500 and 2^500. Then with u =
/// 2^-53:
///
/// - y = (1/b)(1 + ε₁), q₀ = a·y rounded = (a/b)(1 + δ) with |δ| ≤ 2u + u², r = a − b·q₀ rounded = −a·δ·(1 + ε₃), all
///   |ε| ≤ u, nothing under- or overflows. The sum q₀ + r·y before it is rounded is (a/b)(1 − δ(ε₁ + ε₃ + ε₁ε₃)): off by
///   less than 4.01·u² of a/b, which is less than 2^-50 units in the last place of a/b.
/// - Let b = B·2^β with a whole B < 2^48, and m be a number half way between two neighbouring doubles of the size of a/b:
///   an odd multiple of h, half a unit in the last place. a and b·m are both multiples of h·2^β, and they differ, for
///   b·m has more significant bits than any double. So a/b and m are at least h·2^β / b = h / B apart: more than 2^-49
///   units in the last place.
/// - So no such m lies between a/b and the sum, or on either, and both round to the same double.
///
/// The sign of a zero may be lost; a sum that starts at +0 does not show it.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
pub fn quotient<const FUSED: bool>(dividend: f64, divisor: f64, reciprocal: f64) -> f64 {
    if FUSED {
        let first = dividend * reciprocal;
        let rest = (-divisor).mul_add(first, dividend);
        rest.mul_add(reciprocal, first)
    } else {
        dividend / divisor
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Divisors that kernels meet: integers of any length, whole KiB, and powers of two with their neighbours.
    fn divisor() -> impl Strategy<Value = f64> {
        let near = |power: u32| (-1..=1_i64).prop_map(move |off| ((1_i64 << power) + off).max(1) as f64);
        prop_oneof![
            (0_u32..48, any::<u64>()).prop_map(|(length, bits)| ((bits >> (63 - length)) | 1) as f64),
            (0_u32..48, any::<u64>()).prop_map(|(length, bits)| ((bits >> (63 - length)) | 1) as f64 * 1024.0),
            (1_u32..48).prop_flat_map(near),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn quotients_are_those_of_the_divider(
            divisor in divisor(),
            bits in any::<u64>(),
            (length, shift) in (0_u32..63, 0_u32..40),
            whole in 1_u32..4_000,
            exponent in 600_u64..1_400,
        ) {
            let Some(reciprocal) = reciprocal(divisor) else { return Ok(()) };
            // A multiple of the divisor and a number half way between two doubles, cut to a double.
            let half_way = (bits >> 10) | 1 | 1 << 53;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and above zero")]
            let whole_divisor = divisor.min(9e14) as u128;
            let product = (whole_divisor * u128::from(half_way)) >> shift;
            let multiple = f64::from(whole) * divisor;
            for dividend in [
                (bits >> length) as f64,
                product as f64,
                multiple,
                multiple + 1.0,
                multiple - 1.0,
                f64::from_bits(bits >> 12 | exponent << 52),
                0.0,
            ] {
                for dividend in [dividend, -dividend] {
                    let fused = quotient::<true>(dividend, divisor, reciprocal);
                    let plain = quotient::<false>(dividend, divisor, reciprocal);
                    prop_assert_eq!(fused + 0.0, plain + 0.0, "{} / {}", dividend, divisor);
                }
            }
        }
    }

    #[test]
    fn divisors_that_are_too_long_are_left_to_the_divider() {
        let long = ((1_u64 << 48) + 1) as f64;
        assert_eq!(reciprocal(long), None);
        assert_eq!(reciprocal(long * 1024.0), None);
        for excluded in [-1.0, 0.5, 1e300, f64::INFINITY, f64::NAN] {
            assert_eq!(reciprocal(excluded), None);
        }
        let whole = (1_u64 << 48) as f64;
        assert_eq!(reciprocal(whole - 1.0), Some(1.0 / (whole - 1.0)));
        assert_eq!(reciprocal(whole * 1024.0), Some(1.0 / (whole * 1024.0)));
        let by_nothing = quotient::<true>(5.0, 0.0, reciprocal(0.0).unwrap());
        assert_eq!(by_nothing.to_bits(), 0.0_f64.to_bits());
    }
}
