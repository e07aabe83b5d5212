//! Ranking of nodes: higher score first, then by name. Only the part that is read is sorted.

use crate::decide::top;

/// Rank key: score (higher first), name (earlier first), then a number; smaller is better.
pub(super) type NodeRankKey = u128;

/// Score as an integer that is smaller for better scores.
pub(super) fn rank_score(total: f64) -> u64 {
    let bits = top::comparable_total(total).to_bits();
    // Bit patterns order numbers of one sign; negative numbers sort below, and the result is inverted.
    if bits >> 63 == 1 { bits } else { !(bits | 1 << 63) }
}

pub(super) fn rank_key(score: u64, rank: u32, number: u32) -> NodeRankKey {
    NodeRankKey::from(score) << 64 | NodeRankKey::from(rank) << 32 | NodeRankKey::from(number)
}

/// Score and name of a key, without the number.
pub(super) fn score_and_name(key: NodeRankKey) -> NodeRankKey {
    key >> 32
}

/// Number at the end of a key.
pub(super) fn number_of(key: NodeRankKey) -> u32 {
    u32::try_from(key & NodeRankKey::from(u32::MAX)).unwrap_or(u32::MAX)
}

/// Rank of the name.
pub(super) fn rank_of(key: NodeRankKey) -> u32 {
    u32::try_from(key >> 32 & NodeRankKey::from(u32::MAX)).unwrap_or(u32::MAX)
}

/// Keeps the smallest `count` items, in any order.
pub(super) fn keep_smallest<T: Ord>(items: &mut Vec<T>, count: usize) {
    if count < items.len() {
        if count > 0 {
            items.select_nth_unstable(count - 1);
        }
        items.truncate(count);
    }
}

/// Number of keys that are sorted at first.
const FIRST_SORTED: usize = 64;

/// Keys. A leading part is sorted.
pub(super) struct NodeRanking {
    keys: Vec<NodeRankKey>,
    sorted: usize,
}

impl NodeRanking {
    /// Ranking of the best `count` keys.
    pub(super) fn best(mut keys: Vec<NodeRankKey>, count: usize) -> Self {
        keep_smallest(&mut keys, count);
        Self { keys, sorted: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Key at a place. Places are read in order.
    pub(super) fn get(&mut self, at: usize) -> Option<NodeRankKey> {
        if at >= self.sorted && at < self.keys.len() {
            self.sort_more();
        }
        self.keys.get(at).copied()
    }

    /// Sorts twice as many keys as before.
    fn sort_more(&mut self) {
        let count = self.sorted.max(FIRST_SORTED);
        let Some(rest) = self.keys.get_mut(self.sorted..) else {
            return;
        };
        if count < rest.len() {
            rest.select_nth_unstable(count - 1);
        }
        let count = count.min(rest.len());
        if let Some(next) = rest.get_mut(..count) {
            next.sort_unstable();
        }
        self.sorted += count;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn scores_compare_as_their_numbers() {
        let totals = [f64::INFINITY, 9.0, 1.5, 1e-300, 0.0, -1e-300, -2.0, f64::NEG_INFINITY];
        assert!(totals.map(rank_score).is_sorted());
        assert_eq!(rank_score(-0.0), rank_score(0.0));
        assert_eq!(rank_score(f64::NAN), rank_score(f64::NEG_INFINITY));
    }

    proptest! {
        #[test]
        fn equals_sorting_everything(keys in prop::collection::vec(0_u128..900, 0..700), count in 0_usize..800) {
            let mut order = NodeRanking::best(keys.clone(), count);
            let mut plain = keys;
            plain.sort_unstable();
            plain.truncate(count);
            let read: Vec<NodeRankKey> = (0..order.len()).map_while(|at| order.get(at)).collect();
            prop_assert_eq!(read, plain);
        }
    }
}
