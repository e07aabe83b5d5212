//! Scores in two parts: from each node's own state, and from its peers, which hooks about other nodes evaluate
//! together.

use super::candidates::ChunkSlice;
use super::class_scorers::{ClassScorers, ScoreScratch};
use crate::plugin::PeerScorer;

/// Scorer of peers with the weights of its plugin and of its part.
pub(super) struct WeightedPeerScorer {
    pub(super) scorer: Box<dyn PeerScorer>,
    /// Weight of the part in its plugin.
    of_part: i64,
    of_plugin: f64,
}

impl WeightedPeerScorer {
    /// Points that the part adds to the total of nodes with these numbers; `None`: the order of sums may matter.
    pub(super) fn points(&self, key: &[i64]) -> Option<f64> {
        let score = self.scorer.score(key).checked_mul(self.of_part)?;
        let small = score.unsigned_abs() <= MAX_EXACT_ADDEND;
        let points = score as f64 * self.of_plugin;
        (small && is_exact_addend(points)).then_some(points)
    }
}

/// Largest integer score for which the sum over all scores of a policy is exact.
const MAX_EXACT_ADDEND: u64 = 1 << 44;

/// True if sums of such numbers are exact in any order: of at most 512, each an integer.
#[expect(clippy::cast_possible_truncation, reason = "an integer of this size is no longer")]
fn is_exact_addend(number: f64) -> bool {
    number.abs() <= MAX_EXACT_ADDEND as f64 && number as i64 as f64 == number
}

impl ClassScorers<'_> {
    /// Splits off the parts that depend on other nodes or on the candidates.
    pub(super) fn split_peers(&mut self) -> Vec<WeightedPeerScorer> {
        let scorers = self.scorers.iter_mut();
        let scorers = scorers.filter_map(|score| Some((score.weight, score.scorer.as_mut()?)));
        let split = scorers.flat_map(|(weight, scorer)| {
            let parts = scorer.split_peers().into_iter();
            parts.map(move |(of_part, scorer)| WeightedPeerScorer {
                scorer,
                of_part,
                of_plugin: weight,
            })
        });
        split.collect()
    }

    /// Leaves out the parts that [`Self::split_peers`] splits off, and returns their number.
    pub(super) fn drop_peers(&mut self) -> usize {
        let scorers = self.scorers.iter_mut().filter_map(|score| score.scorer.as_mut());
        scorers.map(|scorer| scorer.drop_peers()).sum()
    }

    /// Scores one chunk without the parts that were split off; [`ScoreScratch::score_apart`] reads the result. False: some
    /// score that is summed at the end is so large, or has such a fraction, that the order of sums may matter, or a sum is not
    /// finite.
    pub(super) fn score_slice_apart(&self, slice: &ChunkSlice<'_>, scratch: &mut ScoreScratch) -> bool {
        let mut exact = true;
        self.sum_apart(slice, scratch, |number, columns, _| {
            let Some(score) = self.scorers.get(number) else { return };
            let by_node = score.scorer.as_ref().map_or(0, |scorer| scorer.node_parts());
            for column in columns.iter().skip(by_node) {
                let mut scores = slice.candidates.iter().filter_map(|offset| column.get(offset));
                exact &= scores.all(|own| is_exact_addend(own * score.weight));
            }
        });
        exact && slice.candidates.iter().all(|offset| scratch.total(offset).is_finite())
    }
}
