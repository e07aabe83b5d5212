//! Columns: one number for each of the 256 nodes of a chunk. Places without a node, or without a value, hold 0.

use crate::kernel::kernel;
use crate::mask::CHUNK_SIZE;

/// Scores of the nodes of a chunk, or other floats.
pub type ChunkScores = [f64; CHUNK_SIZE];

/// Column of one vector of one resource: thousandths of cpu, whole units of anything else. Absent values are 0.
pub type IntegerColumn = [i64; CHUNK_SIZE];

/// Amount from which hundredfold amounts are no exact floats.
pub const SMALL_LIMIT: i64 = 1 << 46;

/// Value at a place; 0 beyond the last one.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
pub fn at(values: &[f64; CHUNK_SIZE], offset: usize) -> f64 {
    values.get(offset).copied().unwrap_or(0.0)
}

kernel! {
    /// Differences of two columns of one unit: `rest` becomes `from` − `less`.
    pub fn subtract / subtract_portable(from: &[f64; CHUNK_SIZE], less: &[f64; CHUNK_SIZE], rest: &mut [f64; CHUNK_SIZE]) {
        for (rest, (from, less)) in rest.iter_mut().zip(from.iter().zip(less)) {
            *rest = from - less;
        }
    }
}

kernel! {
    /// Fills a column with one value.
    pub fn fill / fill_portable(value: f64, scores: &mut ChunkScores) {
        scores.fill(value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn every_processor_subtracts_the_same(
            nodes in prop::collection::vec((0_u64..1 << 60, 0_u64..1 << 60, 0_u32..60), CHUNK_SIZE),
        ) {
            let column = |pick: fn(&(u64, u64, u32)) -> u64| std::array::from_fn(|offset| pick(&nodes[offset]) as f64);
            let (from, less) = (column(|node| node.0 >> node.2), column(|node| node.1 >> node.2));
            let [mut chosen, mut plain] = [[0.0; CHUNK_SIZE]; 2];
            subtract(&from, &less, &mut chosen);
            subtract_portable::<false>(&from, &less, &mut plain);
            for offset in 0..CHUNK_SIZE {
                let expected = (from[offset] - less[offset]).to_bits();
                prop_assert_eq!((chosen[offset].to_bits(), plain[offset].to_bits()), (expected, expected));
            }
        }
    }
}
