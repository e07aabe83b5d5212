//! Inner nodes in dense columns: the values that parents read, and for a node of jobs its outlook, the holdings under
//! other saturation. When a resource runs out or is freed, most changes are already computed.

use std::ops::Range;
use std::sync::Arc;

use super::saturation::{SaturationRules, rule_bit};
use super::share::{FloatAmounts, dominant_share};
use crate::held_bytes::held_bytes;

/// Number of nodes that one change copies; small in tests, so that their trees use several blocks.
const BLOCK_NODES: usize = if cfg!(test) { 4 } else { 256 };

/// Number that means: no alternative is known.
const NO_ALTERNATIVE: u64 = u64::MAX;

/// Values of a child that its parent reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ChildShare {
    /// Dominant share.
    pub(super) share: f64,
    /// True if the child wants nothing more, or nothing that is left.
    pub(super) saturated: bool,
    /// Held amounts; rescaled for an inner node.
    pub(super) held: FloatAmounts,
}

/// Columns of all inner nodes. Clones share the blocks that neither of them changes.
#[derive(Clone, Debug)]
pub(super) struct NodeColumns {
    /// Number of resources of a node.
    pub(super) width: usize,
    blocks: Vec<Arc<ColumnBlock>>,
}

held_bytes! { NodeColumns { blocks; width } }

#[derive(Clone, Debug, Default)]
struct ColumnBlock {
    shares: Vec<f64>,
    saturated: Vec<bool>,
    /// Held amounts, one range per node.
    held: Vec<f64>,
    /// Saturation rules of the node's jobs; none if the node has inner children as well.
    rules_used: Vec<u64>,
    /// Saturation rules that are met in the alternative.
    other_rules_met: Vec<u64>,
    other_held: Vec<f64>,
}

held_bytes! { ColumnBlock { shares, saturated, held, rules_used, other_rules_met, other_held } }

/// Outlook of a node of jobs: its saturation rules, and its holdings if others of them were met.
#[derive(Debug)]
pub(super) struct SaturationOutlook {
    /// Saturation rules in use.
    pub(super) rules_used: u64,
    /// Rules that are met in the alternative, and the holdings then.
    pub(super) alternative: Option<(u64, FloatAmounts)>,
}

/// Columns of consecutive children of an inner node.
#[derive(Debug)]
pub(super) struct ChildColumns<'a> {
    pub(super) shares: &'a [f64],
    pub(super) saturated: &'a [bool],
    pub(super) held: &'a [f64],
    /// Weights; `None`: each is 1.
    pub(super) weights: Option<&'a [f64]>,
}

/// Change of the saturation rules that are met.
pub(super) struct SaturationChange<'a> {
    /// Rules that were met before.
    pub(super) met_before: u64,
    /// Rules that are met now.
    pub(super) met_now: u64,
    /// Divisors of an inner node's share.
    pub(super) divisors: &'a [f64],
    /// True if the divisors changed.
    pub(super) divisors_changed: bool,
}

impl NodeColumns {
    /// Columns of `nodes` nodes that hold nothing.
    pub(super) fn new(nodes: usize, width: usize) -> Self {
        let block = |len: usize| ColumnBlock {
            shares: vec![0.0; len],
            saturated: vec![false; len],
            held: vec![0.0; len * width],
            rules_used: vec![0; len],
            other_rules_met: vec![NO_ALTERNATIVE; len],
            other_held: vec![0.0; len * width],
        };
        let starts = (0..nodes).step_by(BLOCK_NODES);
        Self {
            width,
            blocks: starts
                .map(|start| Arc::new(block((nodes - start).min(BLOCK_NODES))))
                .collect(),
        }
    }

    /// Values of a node that its parent reads.
    pub(super) fn get(&self, number: usize) -> Option<ChildShare> {
        let (saturated, share) = self.saturation_and_share(number)?;
        let held = self
            .blocks
            .get(number / BLOCK_NODES)?
            .held
            .get(self.held_range(number))?;
        Some(ChildShare {
            share,
            saturated,
            held: held.into(),
        })
    }

    /// Saturation and share of a node.
    pub(super) fn saturation_and_share(&self, number: usize) -> Option<(bool, f64)> {
        let (block, at) = (self.blocks.get(number / BLOCK_NODES)?, number % BLOCK_NODES);
        Some((*block.saturated.get(at)?, *block.shares.get(at)?))
    }

    /// Updates a node for its parent; false if nothing changed for the parent.
    pub(super) fn put(&mut self, number: usize, measurement: &ChildShare) -> bool {
        let (at, stretch) = (number % BLOCK_NODES, self.held_range(number));
        let Some(block) = self.blocks.get_mut(number / BLOCK_NODES) else {
            return false;
        };
        let same = block.shares.get(at) == Some(&measurement.share)
            && block.saturated.get(at) == Some(&measurement.saturated)
            && block.held.get(stretch.clone()) == Some(&measurement.held);
        if same {
            return false;
        }
        let block = Arc::make_mut(block);
        set_entry(&mut block.shares, at, measurement.share);
        set_entry(&mut block.saturated, at, measurement.saturated);
        if let Some(held) = block.held.get_mut(stretch) {
            held.copy_from_slice(&measurement.held);
        }
        true
    }

    /// Sets the outlook of a node of jobs.
    pub(super) fn set_outlook(&mut self, number: usize, outlook: &SaturationOutlook) {
        let (at, stretch) = (number % BLOCK_NODES, self.held_range(number));
        let Some(block) = self.blocks.get_mut(number / BLOCK_NODES).map(Arc::make_mut) else {
            return;
        };
        set_entry(&mut block.rules_used, at, outlook.rules_used);
        set_entry(
            &mut block.other_rules_met,
            at,
            outlook.alternative.as_ref().map_or(NO_ALTERNATIVE, |(key, _)| *key),
        );
        if let (Some(to), Some((_, held))) = (block.other_held.get_mut(stretch), &outlook.alternative) {
            to.copy_from_slice(held);
        }
    }

    /// Columns of these nodes without their weights, in order.
    pub(super) fn spans(&self, nodes: Range<usize>) -> impl Iterator<Item = ChildColumns<'_>> {
        let blocks = nodes.start / BLOCK_NODES..nodes.end.div_ceil(BLOCK_NODES);
        let numbered = self.blocks.iter().enumerate().skip(blocks.start).take(blocks.len());
        numbered.filter_map(move |(number, block)| {
            let first = number * BLOCK_NODES;
            let own = nodes.start.saturating_sub(first)..nodes.end.saturating_sub(first).min(block.shares.len());
            Some(ChildColumns {
                shares: block.shares.get(own.clone())?,
                saturated: block.saturated.get(own.clone())?,
                held: block.held.get(own.start * self.width..own.end * self.width)?,
                weights: None,
            })
        })
    }

    /// Applies a change of the met rules to all nodes of jobs. Returns the nodes without a known alternative, with the
    /// outlook on their former values.
    pub(super) fn apply_saturation(&mut self, flip: &SaturationChange<'_>) -> Vec<(usize, SaturationOutlook)> {
        let mut open = Vec::new();
        let moved = (flip.met_before ^ flip.met_now) | rule_bit(SaturationRules::UNNUMBERED);
        for (number, block) in self.blocks.iter_mut().enumerate() {
            if flip.divisors_changed || block.rules_used.iter().any(|uses| uses & moved != 0) {
                Arc::make_mut(block).apply_saturation(flip, self.width, number * BLOCK_NODES, &mut open);
            }
        }
        open
    }

    fn held_range(&self, number: usize) -> Range<usize> {
        let at = number % BLOCK_NODES;
        at * self.width..(at + 1) * self.width
    }
}

/// Equality compares what parents read; outlooks only save work.
impl PartialEq for NodeColumns {
    fn eq(&self, other: &Self) -> bool {
        let same = |(own, other): (&Arc<ColumnBlock>, &Arc<ColumnBlock>)| {
            own.shares == other.shares && own.saturated == other.saturated && own.held == other.held
        };
        self.blocks.len() == other.blocks.len() && self.blocks.iter().zip(&other.blocks).all(same)
    }
}

impl ColumnBlock {
    fn apply_saturation(
        &mut self,
        flip: &SaturationChange<'_>,
        width: usize,
        first: usize,
        open: &mut Vec<(usize, SaturationOutlook)>,
    ) {
        let SaturationChange {
            met_before: before,
            met_now: now,
            divisors,
            divisors_changed: divides_again,
        } = *flip;
        let ranks = self.shares.iter_mut().zip(&mut self.saturated);
        let held = self.held.chunks_exact_mut(width);
        let other_held = self.other_held.chunks_exact_mut(width);
        let others = self.rules_used.iter().zip(&mut self.other_rules_met).zip(other_held);
        for (at, (((share_of, saturated), held), ((uses, other), other_held))) in
            ranks.zip(held).zip(others).enumerate()
        {
            let (was, is) = (uses & before, uses & now);
            if uses & rule_bit(SaturationRules::UNNUMBERED) != 0 || was != is && *other != is {
                let other =
                    (uses & rule_bit(SaturationRules::UNNUMBERED) == 0).then(|| (was, FloatAmounts::from_slice(held)));
                open.push((
                    first + at,
                    SaturationOutlook {
                        rules_used: *uses,
                        alternative: other,
                    },
                ));
                continue;
            }
            if was != is {
                held.swap_with_slice(other_held);
                *other = was;
                *saturated = is == *uses;
            }
            if was != is || divides_again {
                *share_of = dominant_share(held, divisors);
            }
        }
    }
}

fn set_entry<T>(column: &mut [T], at: usize, value: T) {
    if let Some(entry) = column.get_mut(at) {
        *entry = value;
    }
}
