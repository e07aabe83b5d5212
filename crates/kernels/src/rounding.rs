//! Rounding of floats to integers, without an instruction for it where a processor has none.

/// Largest integer below a float from 0 to 2^51, in operations that every processor has for several floats at once.
#[inline(always)]
pub(crate) fn floor(float: f64) -> f64 {
    // Floats from 2^52 on have no fractions: the sum is rounded to an integer.
    const WHOLE: f64 = (1_u64 << 52) as f64;
    let rounded = (float + WHOLE) - WHOLE;
    if rounded > float { rounded - 1.0 } else { rounded }
}

/// From here to twice this, the floats are exactly the integers.
const TWO_POW_52: f64 = (1_u64 << 52) as f64;

/// Rounds down a value from 0 to 2^51. `INSTRUCTION`: the processor has an instruction for it.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
pub(crate) fn round_down<const INSTRUCTION: bool>(value: f64) -> f64 {
    if INSTRUCTION {
        return value.trunc();
    }
    let near = value + TWO_POW_52 - TWO_POW_52;
    near - if near > value { 1.0 } else { 0.0 }
}

/// Rounds up a value from 0 to 2^51.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
pub(crate) fn round_up<const INSTRUCTION: bool>(value: f64) -> f64 {
    if INSTRUCTION {
        return value.ceil();
    }
    let near = value + TWO_POW_52 - TWO_POW_52;
    near + if near < value { 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn floors_are_exact_up_to_their_limit() {
        let limit = (1_u64 << 51) as f64;
        for float in [
            0.0,
            0.1,
            0.5,
            0.999,
            1.0,
            1.5,
            2.5,
            99.5,
            1e15 + 0.5,
            limit - 0.5,
            limit - 1.0,
            limit,
        ] {
            assert_eq!(floor(float).to_bits(), float.floor().to_bits(), "{float}");
            let below = f64::from_bits(float.to_bits().saturating_sub(1));
            assert_eq!(floor(below), below.floor(), "{below}");
        }
    }

    proptest! {
        #[test]
        fn portable_rounding_equals_the_instruction(whole in 0_u64..1 << 46, part in 1_u64..1_000, divisor in 2_u64..1_000_000) {
            for value in [whole as f64, (whole * 1_000 + part) as f64 / 1_000.0, whole as f64 / divisor as f64] {
                prop_assert_eq!(round_down::<false>(value).to_bits(), value.trunc().to_bits());
                prop_assert_eq!(round_up::<false>(value).to_bits(), value.ceil().to_bits());
            }
        }
    }
}
