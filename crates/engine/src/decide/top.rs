//! Selection of the best nodes in one pass.

use crate::model::NodeSlot;

/// Node with its total. The better one sorts first: the higher total, then the earlier name, then the lower slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RankedNode {
    pub(super) total: f64,
    pub(super) rank: u32,
    pub(super) slot: NodeSlot,
}

impl RankedNode {
    /// Total order in which −0 equals 0 and values that are not numbers come last.
    fn compare_rank(&self, other: &Self) -> std::cmp::Ordering {
        comparable_total(other.total)
            .total_cmp(&comparable_total(self.total))
            .then(self.rank.cmp(&other.rank))
            .then(self.slot.cmp(&other.slot))
    }
}

/// Value for comparisons of totals. NaN comes last.
pub(super) fn comparable_total(total: f64) -> f64 {
    if total.is_nan() {
        f64::NEG_INFINITY
    } else {
        // This turns −0 into 0.
        total + 0.0
    }
}

/// Best `limit` of the offered nodes. It holds up to twice as many and discards the worse half when full. The work per
/// node is therefore constant in any order of offers.
#[derive(Debug)]
pub(super) struct TopNodes {
    limit: usize,
    capacity: usize,
    held: Vec<RankedNode>,
    /// Last of the best nodes at the latest discard; a node that is not better than it is not among the best.
    cutoff: Option<RankedNode>,
}

impl TopNodes {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            capacity: limit.saturating_mul(2),
            held: Vec::new(),
            cutoff: None,
        }
    }

    /// Total below which no node can be among the best any more.
    pub(super) fn threshold(&self) -> f64 {
        self.cutoff.map_or(f64::NEG_INFINITY, |bar| comparable_total(bar.total))
    }

    /// Offers the best node of a set. True: others of the set may be among the best, too.
    pub(super) fn offer_head(&mut self, head: RankedNode) -> bool {
        if self.limit == 1 {
            self.offer(head);
            return false;
        }
        self.cutoff.is_none_or(|bar| head.compare_rank(&bar).is_lt())
    }

    /// Keeps the node if it may be among the best.
    pub(super) fn offer(&mut self, node: RankedNode) {
        // Many nodes of a cluster are alike: among equal totals only names before the cutoff's are held.
        if self.limit == 0 || self.cutoff.is_some_and(|bar| node.compare_rank(&bar).is_ge()) {
            return;
        }
        if self.limit == 1 {
            self.held.clear();
            self.cutoff = Some(node);
        }
        self.held.push(node);
        if self.held.len() >= self.capacity {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        if self.held.len() > self.limit && self.limit > 0 {
            let last = self.limit - 1;
            let (_, worst, _) = self.held.select_nth_unstable_by(last, RankedNode::compare_rank);
            self.cutoff = Some(*worst);
            self.held.truncate(self.limit);
        }
    }

    /// Best nodes, best first.
    pub(super) fn finish(mut self) -> Vec<RankedNode> {
        self.shrink();
        self.held.sort_unstable_by(RankedNode::compare_rank);
        self.held
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equals_sorting_everything(
            totals in prop::collection::vec(prop_oneof![Just(0.0), Just(-0.0), Just(1.0), Just(f64::NAN), -9.0..9.0], 0..2_000),
            limit in 0_usize..600,
        ) {
            let mut top = TopNodes::new(limit);
            let mut all = Vec::new();
            for (slot, total) in (0..).zip(totals) {
                let node = RankedNode { total, rank: slot ^ 0x55, slot };
                all.push(node);
                if comparable_total(total) >= top.threshold() {
                    top.offer(node);
                }
            }
            all.sort_by(RankedNode::compare_rank);
            all.truncate(limit);
            let slots = |nodes: &[RankedNode]| nodes.iter().map(|node| node.slot).collect::<Vec<_>>();
            prop_assert_eq!(slots(&top.finish()), slots(&all));
        }
    }
}
