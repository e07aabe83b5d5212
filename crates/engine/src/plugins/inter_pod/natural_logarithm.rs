//! Natural logarithm with the operations of Go's `math.Log`. Its last bit therefore does not depend on a library.

/// Parts of the logarithm of 2.
const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
/// Coefficients of the odd and of the even powers, the highest one first.
const ODD: [f64; 4] = [
    0.147_981_986_051_165_86,
    0.181_835_721_616_180_5,
    0.285_714_287_436_623_9,
    0.666_666_666_666_673_5,
];
const EVEN: [f64; 3] = [
    0.153_138_376_992_093_73,
    0.222_221_984_321_497_84,
    0.399_999_999_994_094_2,
];

/// Natural logarithm of a number from 1.
pub(super) fn natural_logarithm(number: u32) -> f64 {
    let bits = f64::from(number).to_bits();
    let mut fraction = f64::from_bits(bits & ((1 << 52) - 1) | 0x3FE << 52);
    // A number of 32 bits has a small exponent.
    let mut exponent = f64::from(i32::try_from(bits >> 52).unwrap_or(0) - 0x3FE);
    if fraction < std::f64::consts::FRAC_1_SQRT_2 {
        fraction *= 2.0;
        exponent -= 1.0;
    }
    let f = fraction - 1.0;
    let s = f / (2.0 + f);
    let square = s * s;
    let fourth = square * square;
    let sum = |coefficients: &[f64]| coefficients.iter().fold(0.0, |sum, own| own + fourth * sum);
    let rest = square * sum(&ODD) + fourth * sum(&EVEN);
    let half_square = 0.5 * f * f;
    exponent * LN_2_HIGH - ((half_square - (s * (half_square + rest) + exponent * LN_2_LOW)) - f)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hash of the bits that Go 1.26 gives on amd64 for the numbers from 1 to 1,000,000.
    const GO_HASH: u64 = 0x2F76_8130_17D7_7857;

    #[test]
    fn logarithms_have_the_bits_of_gos() {
        for (number, bits) in [
            (2, 0x3FE6_2E42_FEFA_39EF),
            (3, 0x3FF1_93EA_7AAD_030A),
            (10_002, 0x4022_6BCB_F1EC_7998),
            (u32::MAX, 0x4036_2E42_FEF9_39EF),
        ] {
            assert_eq!(natural_logarithm(number).to_bits(), bits, "{number}");
        }
        let bytes = (1..=1_000_000).flat_map(|number| natural_logarithm(number).to_bits().to_le_bytes());
        let hash = bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
        assert_eq!(hash, GO_HASH);
    }
}
