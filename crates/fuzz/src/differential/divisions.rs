//! Divisions of the kernels, by multiplications, against the processor's.

use pumice_kernels::division::{quotient, reciprocal};

/// Divides a number by another one.
pub fn compare_divisions(data: &[u8]) {
    let number = |at: usize| {
        let mut bytes = [0; 8];
        for (to, byte) in bytes.iter_mut().zip(data.iter().skip(at)) {
            *to = *byte;
        }
        u64::from_le_bytes(bytes)
    };
    let divisor = match data.get(16).copied().unwrap_or(0) % 3 {
        0 => (number(8) >> 16) as f64,
        1 => (number(8) >> 16) as f64 * 1_024.0,
        _ => f64::from_bits(number(8)),
    };
    let dividend = if data.get(17).is_some_and(|byte| byte % 2 == 0) {
        number(0) as f64
    } else {
        f64::from_bits(number(0))
    };
    let size = dividend.abs();
    let is_in_range = dividend == 0.0 || (size >= 2_f64.powi(-500) && size <= 2_f64.powi(500));
    let Some(reciprocal) = reciprocal(divisor).filter(|_| is_in_range && divisor != 0.0) else {
        return;
    };
    let expected = dividend / divisor;
    let fused = quotient::<true>(dividend, divisor, reciprocal);
    let plain = quotient::<false>(dividend, divisor, reciprocal);
    assert_eq!(
        (0.0 + plain).to_bits(),
        (0.0 + expected).to_bits(),
        "{dividend:e} / {divisor:e}"
    );
    assert_eq!(
        (0.0 + fused).to_bits(),
        (0.0 + expected).to_bits(),
        "{dividend:e} / {divisor:e}"
    );
}
