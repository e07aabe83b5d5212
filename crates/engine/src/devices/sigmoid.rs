//! `int(100 / (1 + exp(-x)))` by comparison with the least `x` of each value, which are found once.

use std::sync::LazyLock;

/// Least x of each score, and where to begin to look for a score.
#[derive(Debug)]
struct Steps {
    /// Least x of the scores 1 to 100.
    least: [f64; 100],
    /// Scores of the lower ends of the cells of x.
    cells: [u8; CELLS],
}

/// Cells begin at the negative of this: the least x of the scores 1 to 99 lie between it and its opposite.
const CELLS_FROM: f64 = 5.0;
/// Cells of an x that grows by 1; the steps of scores are further apart.
const CELLS_PER_UNIT: f64 = 32.0;
const CELLS: usize = 320;

static STEPS: LazyLock<Steps> = LazyLock::new(|| {
    let mut least = [0.0; 100];
    for (number, place) in (1_i64..).zip(&mut least) {
        *place = least_of(number);
    }
    let mut cells = [0; CELLS];
    for (number, cell) in cells.iter_mut().enumerate() {
        // An x near the end of a cell may be rounded into the next one.
        let from = number as f64 / CELLS_PER_UNIT - CELLS_FROM - 1e-9;
        *cell = u8::try_from(least.partition_point(|least| *least <= from)).unwrap_or(0);
    }
    Steps { least, cells }
});

/// The formula itself.
#[expect(clippy::cast_possible_truncation, reason = "a number from 0 to 100")]
pub(super) fn formula(x: f64) -> i64 {
    (1.0 / (1.0 + (-x).exp()) * 100.0) as i64
}

/// Least float whose score is at least `score`, by bisection.
fn least_of(score: i64) -> f64 {
    // At 64 the quotient is 1 to the last bit.
    let (mut below, mut reached) = (key(-64.0), key(64.0));
    while i128::from(reached) - i128::from(below) > 1 {
        let middle = i64::midpoint(below, reached);
        if formula(float(middle)) >= score {
            reached = middle;
        } else {
            below = middle;
        }
    }
    float(reached)
}

/// Integer that orders as the float does.
fn key(float: f64) -> i64 {
    let bits = float.to_bits().cast_signed();
    if bits < 0 { i64::MIN - bits } else { bits }
}

fn float(key: i64) -> f64 {
    let bits = if key < 0 { i64::MIN - key } else { key };
    f64::from_bits(bits.cast_unsigned())
}

/// Score of x, and the least x that has it.
pub(super) fn score(x: f64) -> (i64, f64) {
    let (value, least, _) = steps(x);
    (value, least)
}

/// Score of x, the least x that has it, and the least x that has a higher one.
#[inline]
pub(super) fn steps(x: f64) -> (i64, f64, f64) {
    let Steps { least, cells } = &*STEPS;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "numbers out of range become the nearest, and there is a cell for each"
    )]
    let cell = ((x + CELLS_FROM) * CELLS_PER_UNIT) as usize;
    let mut at = usize::from(cells.get(cell).or(cells.last()).copied().unwrap_or(0));
    let mut below = at
        .checked_sub(1)
        .and_then(|below| least.get(below))
        .copied()
        .unwrap_or(f64::NEG_INFINITY);
    loop {
        let next = least.get(at).copied().unwrap_or(f64::INFINITY);
        if next > x || at == least.len() {
            return (i64::try_from(at).unwrap_or(0), below, next);
        }
        (at, below) = (at + 1, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_formula_everywhere_and_at_every_step() {
        for number in -2_000_000..2_000_000_i64 {
            let x = number as f64 * 4.7e-6;
            let (value, least, next) = steps(x);
            assert_eq!(value, formula(x), "{x}");
            assert!(least <= x && x < next, "{x}");
        }
        for (number, least) in (1_i64..).zip(STEPS.least.iter()) {
            for ulps in -300..300 {
                let x = float(key(*least) + ulps);
                assert_eq!(
                    (score(x).0, score(x).0 >= number),
                    (formula(x), ulps >= 0),
                    "{x:e} {ulps}"
                );
            }
        }
        assert_eq!((score(0.0).0, score(-0.0).0, score(-1e-3).0), (50, 50, 49));
        assert_eq!((score(-1e9).0, score(1e9).0), (0, 100));
    }
}
