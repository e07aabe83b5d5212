//! Selections: the nodes of a chunk whose numbers reach a bound, are the best, or equal another.

use crate::columns::ChunkScores;
use crate::kernel::kernel;
use crate::mask::{CHUNK_SIZE, NodeMask};

kernel! {
    /// Places whose total may be among the best: it reaches the threshold, or is not a number.
    pub fn contenders / contenders_portable(totals: &ChunkScores, threshold: f64) -> NodeMask {
        NodeMask::gather(|offset| {
            let total = totals.get(offset).copied().unwrap_or(0.0);
            (total >= threshold) | total.is_nan()
        })
    }
}

kernel! {
    /// Largest total in a chunk, and the nodes that have it; a total is `by_node` + (`batch` + `points`). A node that is no
    /// candidate has a score of its own of −∞.
    pub fn best_totals / best_totals_portable(
        by_node: &ChunkScores,
        batch: &ChunkScores,
        points: &ChunkScores,
        totals: &mut ChunkScores,
    ) -> (f64, NodeMask) {
        let own = totals.iter_mut().zip(by_node).zip(batch.iter().zip(points));
        for ((total, by_node), (batch, points)) in own {
            *total = by_node + (batch + points);
        }
        let mut most = [f64::NEG_INFINITY; 8];
        for eight in totals.as_chunks::<8>().0 {
            for (most, total) in most.iter_mut().zip(eight) {
                *most = if *total > *most { *total } else { *most };
            }
        }
        let best = most.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let at = |offset: usize| totals.get(offset).copied().unwrap_or(f64::NEG_INFINITY);
        (best, NodeMask::gather(|offset| at(offset) == best))
    }
}

kernel! {
    /// Places with a number.
    pub fn equal_mask / equal_mask_portable(numbers: &[u16; CHUNK_SIZE], number: u16) -> NodeMask {
        NodeMask::gather(|offset| numbers.get(offset).copied().unwrap_or_default() == number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn column() -> impl Strategy<Value = Vec<f64>> {
        let score = prop_oneof![(0_u32..9).prop_map(f64::from), -1e9..1e9, Just(-0.0)];
        prop::collection::vec(score, CHUNK_SIZE)
    }

    fn array(column: &[f64]) -> ChunkScores {
        std::array::from_fn(|offset| column[offset])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn every_processor_finds_the_same_contenders(
            column in column(),
            odd in prop::collection::vec((0..CHUNK_SIZE, prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-f64::INFINITY)]), 9),
            threshold in prop_oneof![(0_u32..9).prop_map(f64::from), Just(f64::NEG_INFINITY)],
        ) {
            let mut totals = array(&column);
            for (offset, total) in odd {
                totals[offset] = total;
            }
            let chosen = contenders(&totals, threshold);
            prop_assert_eq!(chosen, contenders_portable::<false>(&totals, threshold));
            for (offset, total) in totals.iter().enumerate() {
                prop_assert_eq!(chosen.get(offset), *total >= threshold || total.is_nan());
            }
        }

        #[test]
        fn equal_mask_is_the_same_on_every_processor(
            numbers in prop::collection::vec(prop_oneof![0_u16..4, Just(u16::MAX)], CHUNK_SIZE),
            number in prop_oneof![0_u16..4, Just(u16::MAX)],
        ) {
            let column: [u16; CHUNK_SIZE] = std::array::from_fn(|offset| numbers[offset]);
            let chosen = equal_mask(&column, number);
            prop_assert_eq!(chosen, equal_mask_portable::<false>(&column, number));
            prop_assert!(chosen.iter().eq((0..CHUNK_SIZE).filter(|&offset| numbers[offset] == number)));
        }
    }
}
