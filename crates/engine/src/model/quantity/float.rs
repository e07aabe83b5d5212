//! Approximate floating-point value that Kubernetes programs compute, bit for bit.

use super::Quantity;

/// Powers 10^0 to 10^31.
const ONES: [f64; 32] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31,
];
/// Powers 10^0, 10^32 … 10^288.
const THIRTY_TWOS: [f64; 10] = [1e0, 1e32, 1e64, 1e96, 1e128, 1e160, 1e192, 1e224, 1e256, 1e288];
/// Powers 10^-0, 10^-32 … 10^-320.
const NEGATIVE_THIRTY_TWOS: [f64; 11] = [
    1e0, 1e-32, 1e-64, 1e-96, 1e-128, 1e-160, 1e-192, 1e-224, 1e-256, 1e-288, 1e-320,
];

/// Nearest double of the integer that Kubernetes holds, times its power of ten.
pub(super) fn approximate(quantity: &Quantity) -> f64 {
    let shift = quantity.exponent - quantity.held_exponent;
    let base = match quantity.coefficient.to_u128() {
        value if shift == 0 => value as f64,
        // Decimal text of any length is read to the nearest double.
        _ => format!("{}e{shift}", quantity.coefficient)
            .parse()
            .unwrap_or(f64::INFINITY),
    };
    let base = if quantity.negative { -base } else { base };
    match quantity.held_exponent {
        0 => base,
        exponent => base * power_of_ten(exponent),
    }
}

/// Power 10^`exponent` of Go's `math.Pow10`: one product or quotient of two table values.
fn power_of_ten(exponent: i32) -> f64 {
    let size = usize::try_from(exponent.unsigned_abs()).unwrap_or(usize::MAX);
    let one = ONES.get(size % 32).copied();
    match exponent {
        0..=308 => one
            .zip(THIRTY_TWOS.get(size / 32))
            .map_or(f64::INFINITY, |(one, big)| big * one),
        -323..=-1 => one
            .zip(NEGATIVE_THIRTY_TWOS.get(size / 32))
            .map_or(0.0, |(one, small)| small / one),
        309.. => f64::INFINITY,
        ..=-324 => 0.0,
    }
}
