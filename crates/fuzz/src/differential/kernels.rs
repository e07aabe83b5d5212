//! Kernels against a scorer that goes node by node.

use crate::choices::{draw, most_nodes, split_choice};

#[path = "../../../engine/src/decide/tests/fixtures.rs"]
mod fixtures;
#[path = "../../../engine/src/decide/tests/naive.rs"]
mod naive;

/// Sizes of amounts: a few units, all integers that floats hold, and all that 64 bits hold.
const SIZES: [i64; 4] = [40, 1 << 53, 1 << 62, i64::MAX];

/// Scores and filters a cluster by the kernels and by the plain rules.
pub fn compare_kernels(data: &[u8]) {
    let (choice, rest) = split_choice(data);
    let size = SIZES[usize::from(choice) % SIZES.len()];
    if let Some(case) = draw(&naive::naive_cases(size, most_nodes(choice >= 252)), rest) {
        naive::check_columns(&case).unwrap();
    }
}
