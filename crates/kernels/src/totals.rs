//! Totals of scores: sums over the parts of a plugin, and over plugins by their weights.

use crate::columns::ChunkScores;
use crate::kernel::kernel;

kernel! {
    /// Sums a plugin's parts, from 0, into `whole`, and adds the sum times the plugin's weight to the totals; the first
    /// plugin begins them. A multiplication by 1 changes no bit.
    pub fn sum_parts / sum_parts_portable(
        is_first: bool,
        parts: &[ChunkScores],
        weight: f64,
        whole: &mut ChunkScores,
        totals: &mut ChunkScores,
    ) {
        if is_first {
            sum_in_order::<true>(parts, weight, whole, totals);
        } else {
            sum_in_order::<false>(parts, weight, whole, totals);
        }
    }
}

#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn sum_in_order<const FIRST: bool>(
    parts: &[ChunkScores],
    weight: f64,
    whole: &mut ChunkScores,
    totals: &mut ChunkScores,
) {
    let before = |total: f64| if FIRST { 0.0 } else { total };
    let places = whole.iter_mut().zip(totals.iter_mut());
    match parts {
        [one] => {
            for ((whole, total), one) in places.zip(one) {
                *whole = 0.0 + one;
                *total = before(*total) + *whole * weight;
            }
        }
        [one, two] => {
            for ((whole, total), (one, two)) in places.zip(one.iter().zip(two)) {
                *whole = 0.0 + one + two;
                *total = before(*total) + *whole * weight;
            }
        }
        _ => {
            whole.fill(0.0);
            for part in parts {
                whole.iter_mut().zip(part).for_each(|(whole, part)| *whole += part);
            }
            let places = whole.iter().zip(totals);
            places.for_each(|(whole, total)| *total = before(*total) + *whole * weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mask::CHUNK_SIZE;

    fn column() -> impl Strategy<Value = Vec<f64>> {
        let score = prop_oneof![(0_u32..9).prop_map(f64::from), -1e9..1e9, Just(-0.0)];
        prop::collection::vec(score, CHUNK_SIZE)
    }

    fn array(column: &[f64]) -> ChunkScores {
        std::array::from_fn(|offset| column[offset])
    }

    /// Kernel that adds a plugin's score to the totals.
    type SumKernel = fn(bool, &[ChunkScores], f64, &mut ChunkScores, &mut ChunkScores);

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn every_processor_sums_the_same(
            parts in prop::collection::vec(column(), 0..=8),
            before in column(),
            weight in -5..9_i32,
        ) {
            let (parts, before, weight): (Vec<ChunkScores>, _, _) =
                (parts.iter().map(|part| array(part)).collect(), array(&before), f64::from(weight));
            let kernels: [SumKernel; 3] = [sum_parts, sum_parts_portable::<false>, sum_parts_portable::<true>];
            for first in [true, false] {
                for sum in kernels {
                    let (mut whole, mut totals) = ([7.0; CHUNK_SIZE], before);
                    sum(first, &parts, weight, &mut whole, &mut totals);
                    for offset in 0..CHUNK_SIZE {
                        let own = parts.iter().fold(0.0, |own, part| own + part[offset]);
                        let total = if first { 0.0 } else { before[offset] } + own * weight;
                        prop_assert_eq!(whole[offset].to_bits(), own.to_bits());
                        prop_assert_eq!(totals[offset].to_bits(), total.to_bits());
                    }
                }
            }
        }
    }
}
