//! Tree of shares. An event costs its path and the rows on it; a resource that runs out or is freed costs a scan of the
//! inner nodes.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::DrfList;
use super::columns::{ChildColumns, ChildShare, NodeColumns, SaturationChange, SaturationOutlook};
use super::layout::{InnerNode, LeafPosition, TreeLayout};
use super::resource_set::ResourceSet;
use super::saturation::{SaturationRule, SaturationRules, rule_bit};
use super::share::{FloatAmounts, dominant_share};
use crate::held_bytes::held_bytes;
use crate::policy::Compatibility;

/// Share and held amounts of a job, with the condition of its saturation.
#[derive(Clone, Debug)]
pub(super) struct JobLeaf {
    /// Dominant share.
    pub(super) share: f64,
    /// Held amounts.
    pub(super) held: FloatAmounts,
    /// Condition under which it is saturated.
    pub(super) saturation: SaturationRule,
}

/// Jobs of one inner node, by name.
#[derive(Clone, Debug, Default)]
struct LeafColumns {
    shares: Vec<f64>,
    /// Held amounts, one range per job.
    held: Vec<f64>,
    saturation: Vec<SaturationRule>,
    /// Numbers of the saturation rules.
    rule_numbers: Vec<u8>,
}

held_bytes! { LeafColumns { shares, held, saturation, rule_numbers } }

/// Inputs of the formulas apart from the rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ShareRules {
    compatibility: Compatibility,
    /// Divisors of an inner node's dominant share.
    pub(super) divisors: FloatAmounts,
    /// Resources of which nothing is left.
    pub(super) exhausted: ResourceSet,
}

held_bytes! { ShareRules { divisors, exhausted; compatibility } }

impl ShareRules {
    pub(super) fn of(shape: &TreeLayout, exhausted: ResourceSet) -> Self {
        let none = ResourceSet::empty(shape.dimensions.len());
        let ignored = match shape.compatibility {
            Compatibility::Upstream(_) => &none,
            Compatibility::Corrected => &exhausted,
        };
        Self {
            compatibility: shape.compatibility,
            divisors: shape.dimensions.divisors_without(ignored),
            exhausted,
        }
    }
}

/// Shares of all leaves and inner nodes.
#[derive(Clone, Debug)]
pub(super) struct ShareTree {
    /// Jobs by node.
    leaves: DrfList<LeafColumns>,
    /// Columns of all nodes except the root. No parent reads the root, so it is computed on demand.
    nodes: NodeColumns,
    saturation_rules: SaturationRules,
    /// Inputs of the formulas apart from the rows.
    pub(super) rules: ShareRules,
}

held_bytes! { ShareTree { leaves, nodes, saturation_rules, rules } }

/// Numbers of rules depend on the order of their first use, so equality ignores them.
impl PartialEq for ShareTree {
    fn eq(&self, other: &Self) -> bool {
        self.leaves == other.leaves && self.nodes == other.nodes && self.rules == other.rules
    }
}

impl ShareTree {
    /// Builds the tree over these leaves, by number of the job.
    pub(super) fn new(shape: &TreeLayout, rules: ShareRules, leaf: impl Fn(usize) -> JobLeaf) -> Self {
        let width = shape.dimensions.len();
        let mut known = SaturationRules::new();
        let mut leaves = |node: &InnerNode| {
            let mut leaves = LeafColumns::of(node.jobs.len(), width);
            for (at, job) in node.jobs.iter().enumerate() {
                leaves.put_leaf(at, leaf(*job), &mut known, &rules.exhausted);
            }
            leaves
        };
        let mut tree = Self {
            leaves: shape.nodes.iter().map(|node| Arc::new(leaves(node))).collect(),
            nodes: NodeColumns::new(shape.nodes.len(), width),
            saturation_rules: known,
            rules,
        };
        for number in (1..shape.nodes.len()).rev() {
            tree.update_node(shape, number);
        }
        tree
    }

    /// Values of a job that its node reads.
    pub(super) fn job_share(&self, place: LeafPosition) -> Option<ChildShare> {
        let leaves = self.leaves.get(place.node)?;
        let width = self.nodes.width;
        Some(ChildShare {
            share: *leaves.shares.get(place.at)?,
            saturated: leaves.saturation.get(place.at)?.is_saturated(&self.rules.exhausted),
            held: leaves.held.get(place.at * width..(place.at + 1) * width)?.into(),
        })
    }

    /// Values of an inner node.
    pub(super) fn node_share(&self, shape: &TreeLayout, number: usize) -> Option<ChildShare> {
        if number > 0 {
            return self.nodes.get(number);
        }
        let root = shape.nodes.first()?;
        if root.jobs.is_empty() && root.inner_children.is_empty() {
            // The reference never reads a tree without jobs.
            return Some(ChildShare {
                held: smallvec![0.0; self.nodes.width],
                ..ChildShare::default()
            });
        }
        self.evaluate(shape, 0, self.saturation_rules.met_bits)
    }

    /// Saturation and share of an inner node other than the root.
    pub(super) fn saturation_and_share(&self, number: usize) -> Option<(bool, f64)> {
        self.nodes.saturation_and_share(number)
    }

    /// Sets the values of a leaf, and updates its path.
    pub(super) fn set_leaf(&mut self, shape: &TreeLayout, place: LeafPosition, leaf: JobLeaf) {
        if let Some(leaves) = self.leaves.get_mut(place.node).map(Arc::make_mut) {
            leaves.put_leaf(place.at, leaf, &mut self.saturation_rules, &self.rules.exhausted);
        }
        let mut number = place.node;
        while number > 0 && self.update_node(shape, number) {
            number = shape.nodes.get(number).map_or(0, |node| node.parent);
        }
    }

    /// Sets the exhausted resources.
    pub(super) fn set_exhausted(&mut self, shape: &TreeLayout, exhausted: &ResourceSet) {
        if self.rules.exhausted == *exhausted {
            return;
        }
        let (before, divisors) = (self.saturation_rules.met_bits, self.rules.divisors.clone());
        self.rules = ShareRules::of(shape, exhausted.clone());
        self.saturation_rules.update_met(exhausted);
        let open = self.nodes.apply_saturation(&SaturationChange {
            met_before: before,
            met_now: self.saturation_rules.met_bits,
            divisors: &self.rules.divisors,
            divisors_changed: divisors != self.rules.divisors,
        });
        for (number, outlook) in open {
            if let Some(measurement) = self.evaluate(shape, number, self.saturation_rules.met_bits) {
                self.nodes.put(number, &measurement);
                self.nodes.set_outlook(number, &outlook);
            }
        }
        for number in shape.branching_nodes.iter().rev().filter(|number| **number > 0) {
            self.update_node(shape, *number);
        }
    }

    /// Updates an inner node; false if nothing changed for its parent.
    fn update_node(&mut self, shape: &TreeLayout, number: usize) -> bool {
        let met = self.saturation_rules.met_bits;
        let Some(measurement) = self.evaluate(shape, number, met) else {
            return false;
        };
        if shape
            .nodes
            .get(number)
            .is_some_and(|node| node.inner_children.is_empty())
            && let Some(outlook) = self.saturation_outlook(shape, number, met)
        {
            self.nodes.set_outlook(number, &outlook);
        }
        self.nodes.put(number, &measurement)
    }

    /// Outlook of a node of jobs: its holdings if all its rules were met or, if some are met, if none were.
    fn saturation_outlook(&self, shape: &TreeLayout, number: usize, met: u64) -> Option<SaturationOutlook> {
        let uses = self.leaves.get(number)?.rules_used();
        let always = uses & rule_bit(0);
        let key = if uses & met == always { uses } else { always };
        let is_known = uses & rule_bit(SaturationRules::UNNUMBERED) == 0 && uses != always;
        let other = is_known.then(|| self.evaluate(shape, number, key)).flatten();
        Some(SaturationOutlook {
            rules_used: uses,
            alternative: other.map(|measurement| (key, measurement.held)),
        })
    }

    /// Computes an inner node from its children, with these rules met. Children that are not saturated are rescaled to
    /// the smallest share among them; saturated children count as they are. Under `corrected` the measure is the share
    /// per weight, since a heavy child would otherwise reduce its siblings' entitlement, and a child without a share
    /// may still hold exhausted resources.
    fn evaluate(&self, shape: &TreeLayout, number: usize, met: u64) -> Option<ChildShare> {
        let (node, leaves) = (shape.nodes.get(number)?, self.leaves.get(number)?);
        let saturated = leaves.saturated(met, &self.rules.exhausted);
        let jobs = ChildColumns {
            shares: &leaves.shares,
            saturated: &saturated,
            held: &leaves.held,
            weights: None,
        };
        let mut weights = shape.weights.get(node.inner_children.clone())?;
        let spans = self.nodes.spans(node.inner_children.clone()).map(|span| {
            let (own, rest) = weights.split_at_checked(span.shares.len()).unwrap_or((weights, &[]));
            weights = rest;
            ChildColumns {
                weights: Some(own),
                ..span
            }
        });
        let rows: SmallVec<[ChildColumns<'_>; 4]> = [jobs].into_iter().chain(spans).collect();
        let mut held: FloatAmounts = smallvec![0.0; self.nodes.width];
        match self.rules.compatibility {
            Compatibility::Upstream(_) => {
                let measure = rows
                    .iter()
                    .fold(1.0, |least, row| row.min_measure(least, |share, _| share));
                for row in &rows {
                    row.add_to(&mut held, |share, _| measure / share, 0.0);
                }
            }
            Compatibility::Corrected => {
                let per_weight = |share: f64, weight: f64| share / weight;
                let measure = rows
                    .iter()
                    .fold(f64::INFINITY, |least, row| row.min_measure(least, per_weight));
                for row in &rows {
                    row.add_to(&mut held, |share, weight| measure * weight / share, 1.0);
                }
            }
        }
        Some(ChildShare {
            share: dominant_share(&held, &self.rules.divisors),
            saturated: rows.iter().all(|row| row.saturated.iter().all(|saturated| *saturated)),
            held,
        })
    }
}

impl LeafColumns {
    fn of(jobs: usize, width: usize) -> Self {
        Self {
            shares: vec![0.0; jobs],
            held: vec![0.0; jobs * width],
            saturation: vec![SaturationRule::Always; jobs],
            rule_numbers: vec![0; jobs],
        }
    }

    fn put_leaf(&mut self, at: usize, leaf: JobLeaf, known: &mut SaturationRules, exhausted: &ResourceSet) {
        let width = leaf.held.len();
        if let Some(held) = self.held.get_mut(at * width..(at + 1) * width) {
            held.copy_from_slice(&leaf.held);
        }
        if let Some(share) = self.shares.get_mut(at) {
            *share = leaf.share;
        }
        if let (Some(need), Some(number)) = (self.saturation.get_mut(at), self.rule_numbers.get_mut(at))
            && *need != leaf.saturation
        {
            *number = known.rule_number(&leaf.saturation, exhausted);
            *need = leaf.saturation;
        }
    }

    /// Bits of all rules in use.
    fn rules_used(&self) -> u64 {
        self.rule_numbers
            .iter()
            .fold(0, |uses, number| uses | rule_bit(*number))
    }

    fn saturated(&self, met: u64, exhausted: &ResourceSet) -> SmallVec<[bool; 16]> {
        let numbered = self.rule_numbers.iter().zip(&self.saturation);
        numbered
            .map(|(number, need)| {
                if *number == SaturationRules::UNNUMBERED {
                    need.is_saturated(exhausted)
                } else {
                    met & rule_bit(*number) != 0
                }
            })
            .collect()
    }
}

impl PartialEq for LeafColumns {
    fn eq(&self, other: &Self) -> bool {
        (&self.shares, &self.held, &self.saturation) == (&other.shares, &other.held, &other.saturation)
    }
}

impl ChildColumns<'_> {
    /// Smallest measure of the children that hold something and are not saturated; `most` if that is smaller.
    fn min_measure(&self, most: f64, measure: impl Fn(f64, f64) -> f64) -> f64 {
        let children = self.shares.iter().zip(self.saturated);
        let smaller = |least: f64, ((share, saturated), weight): ((&f64, &bool), f64)| {
            if *share == 0.0 || *saturated {
                return least;
            }
            let own = measure(*share, weight);
            if own < least { own } else { least }
        };
        match self.weights {
            Some(weights) => children.zip(weights.iter().copied()).fold(most, smaller),
            None => children.zip(std::iter::repeat(1.0)).fold(most, smaller),
        }
    }

    /// Adds the children's holdings: saturated children as they are, the others rescaled, those without a share times
    /// `empty`.
    fn add_to(&self, held: &mut FloatAmounts, factor: impl Fn(f64, f64) -> f64, empty: f64) {
        if held.is_empty() {
            return;
        }
        let children = self.shares.iter().zip(self.saturated);
        let children = children.zip(self.held.chunks_exact(held.len()));
        let add = |(((share, saturated), own), weight): (((&f64, &bool), &[f64]), f64)| {
            let factor = match (*share == 0.0, *saturated) {
                (true, _) => empty,
                (false, true) => 1.0,
                (false, false) => factor(*share, weight),
            };
            held.iter_mut().zip(own).for_each(|(sum, own)| *sum += own * factor);
        };
        match self.weights {
            Some(weights) => children.zip(weights.iter().copied()).for_each(add),
            None => children.zip(std::iter::repeat(1.0)).for_each(add),
        }
    }
}
