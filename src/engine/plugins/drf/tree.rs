//! The tree of shares. An event costs its path and the rows on it; a resource that runs out or comes back, a scan of the
//! inner nodes.

use smallvec::{SmallVec, smallvec};

use super::bits::Bits;
use super::chunked::Chunked;
use super::columns::{Columns, Flip, Outlook};
use super::needs::{Known, Need, bit};
use super::shape::{Node, Place, Shape};
use super::share::{Floats, share};
use crate::engine::policy::Compatibility;

/// What a child of an inner node looks like from above.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figure {
    /// Dominant share.
    pub(super) share: f64,
    /// Wants nothing more, or nothing that is to be had.
    pub(super) saturated: bool,
    /// What it holds; of an inner node, rescaled.
    pub(super) held: Floats,
}

/// A job as the tree sees it.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    /// Dominant share.
    pub(super) share: f64,
    /// What it holds.
    pub(super) held: Floats,
    /// When it is saturated.
    pub(super) need: Need,
}

/// The jobs of one inner node, by name.
#[derive(Clone, Debug, Default)]
struct Leaves {
    shares: Vec<f64>,
    /// One stretch per job.
    held: Vec<f64>,
    needs: Vec<Need>,
    /// The same by number.
    numbers: Vec<u8>,
}

/// What the formulas depend on besides the rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rules {
    compatibility: Compatibility,
    /// Divisors of an inner node's dominant share.
    divisors: Floats,
    /// Resources of which nothing is left.
    exhausted: Bits,
}

impl Rules {
    pub(super) fn of(shape: &Shape, exhausted: Bits) -> Self {
        let none = Bits::none(shape.dims.len());
        let ignored = match shape.compatibility {
            Compatibility::Upstream => &none,
            Compatibility::Corrected => &exhausted,
        };
        Self {
            compatibility: shape.compatibility,
            divisors: shape.dims.divisors_without(ignored),
            exhausted,
        }
    }

    /// Divisors of an inner node's dominant share.
    pub(super) fn divisors(&self) -> &Floats {
        &self.divisors
    }
}

/// The tree.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// Jobs by node.
    leaves: Chunked<Leaves>,
    /// All nodes but the root, which has no parent that would look at it: it is worked out when somebody asks.
    nodes: Columns,
    known: Known,
    rules: Rules,
}

/// Numbers of needs hang on the order in which they came up.
impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        self.leaves == other.leaves && self.nodes == other.nodes && self.rules == other.rules
    }
}

impl Tree {
    /// The tree over these leaves, by number of the job.
    pub(super) fn new(shape: &Shape, rules: Rules, leaf: impl Fn(usize) -> Leaf) -> Self {
        let width = shape.dims.len();
        let mut known = Known::new();
        let mut leaves = |node: &Node| {
            let mut leaves = Leaves::of(node.jobs.len(), width);
            for (at, job) in node.jobs.iter().enumerate() {
                leaves.set(at, leaf(*job), &mut known, &rules.exhausted);
            }
            leaves
        };
        let mut tree = Self {
            leaves: shape.nodes.iter().map(&mut leaves).collect(),
            nodes: Columns::new(shape.nodes.len(), width),
            known,
            rules,
        };
        for number in (1..shape.nodes.len()).rev() {
            tree.work_out(shape, number);
        }
        tree
    }

    /// What the formulas depend on.
    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// A job as its node sees it.
    pub(super) fn job(&self, place: Place) -> Option<Figure> {
        let leaves = self.leaves.get(place.node)?;
        let width = self.nodes.width();
        Some(Figure {
            share: *leaves.shares.get(place.at)?,
            saturated: leaves.needs.get(place.at)?.is_saturated(&self.rules.exhausted),
            held: leaves.held.get(place.at * width..(place.at + 1) * width)?.into(),
        })
    }

    /// An inner node.
    pub(super) fn node(&self, shape: &Shape, number: usize) -> Option<Figure> {
        if number > 0 {
            return self.nodes.get(number);
        }
        let root = shape.nodes.first()?;
        if root.jobs.is_empty() && root.inner.is_empty() {
            // The reference never looks at a tree without jobs.
            return Some(Figure {
                held: smallvec![0.0; self.nodes.width()],
                ..Figure::default()
            });
        }
        self.evaluate(shape, 0, self.known.met())
    }

    /// Saturation and share of an inner node other than the root.
    pub(super) fn rank(&self, number: usize) -> Option<(bool, f64)> {
        self.nodes.rank(number)
    }

    /// Gives a leaf what it holds and needs now, and brings its path up to date.
    pub(super) fn set_leaf(&mut self, shape: &Shape, place: Place, leaf: Leaf) {
        if let Some(leaves) = self.leaves.get_mut(place.node) {
            leaves.set(place.at, leaf, &mut self.known, &self.rules.exhausted);
        }
        let mut number = place.node;
        while number > 0 && self.work_out(shape, number) {
            number = shape.nodes.get(number).map_or(0, |node| node.parent);
        }
    }

    /// Takes over which resources are exhausted; true if they are others than before.
    pub(super) fn set_exhausted(&mut self, shape: &Shape, exhausted: &Bits) -> bool {
        if self.rules.exhausted == *exhausted {
            return false;
        }
        let (before, divisors) = (self.known.met(), self.rules.divisors.clone());
        self.rules = Rules::of(shape, exhausted.clone());
        self.known.judge(exhausted);
        let open = self.nodes.flip(&Flip {
            before,
            now: self.known.met(),
            divisors: &self.rules.divisors,
            divides_anew: divisors != self.rules.divisors,
        });
        for (number, outlook) in open {
            if let Some(figure) = self.evaluate(shape, number, self.known.met()) {
                self.nodes.put(number, &figure);
                self.nodes.look_out(number, &outlook);
            }
        }
        for number in shape.inner.iter().rev().filter(|number| **number > 0) {
            self.work_out(shape, *number);
        }
        true
    }

    /// Brings an inner node up to date; false if its parent sees no difference.
    fn work_out(&mut self, shape: &Shape, number: usize) -> bool {
        let met = self.known.met();
        let Some(figure) = self.evaluate(shape, number, met) else {
            return false;
        };
        if shape.nodes.get(number).is_some_and(|node| node.inner.is_empty())
            && let Some(outlook) = self.outlook(shape, number, met)
        {
            self.nodes.look_out(number, &outlook);
        }
        self.nodes.put(number, &figure)
    }

    /// What a node of jobs would hold if all its needs were met, or, if some are, if none were.
    fn outlook(&self, shape: &Shape, number: usize, met: u64) -> Option<Outlook> {
        let uses = self.leaves.get(number)?.uses();
        let always = uses & bit(0);
        let key = if uses & met == always { uses } else { always };
        let can_be_told = uses & bit(Known::OTHER) == 0 && uses != always;
        let other = can_be_told.then(|| self.evaluate(shape, number, key)).flatten();
        Some(Outlook {
            uses,
            other: other.map(|figure| (key, figure.held)),
        })
    }

    /// An inner node out of its children, with these needs met. The smallest share among those that are not saturated is
    /// the measure to which these are rescaled; saturated ones count as they are. Under `corrected` the measure is a share
    /// per weight (or a heavy child would hold its siblings' entitlement down), and a child without a share may still hold
    /// what is exhausted.
    fn evaluate(&self, shape: &Shape, number: usize, met: u64) -> Option<Figure> {
        let (node, leaves) = (shape.nodes.get(number)?, self.leaves.get(number)?);
        let saturated = leaves.saturated(met, &self.rules.exhausted);
        let jobs = Row {
            shares: &leaves.shares,
            saturated: &saturated,
            held: &leaves.held,
            weights: None,
        };
        let mut weights = shape.weights.get(node.inner.clone())?;
        let spans = self.nodes.spans(node.inner.clone()).map(|span| {
            let (own, rest) = weights.split_at_checked(span.shares.len()).unwrap_or((weights, &[]));
            weights = rest;
            Row {
                shares: span.shares,
                saturated: span.saturated,
                held: span.held,
                weights: Some(own),
            }
        });
        let rows: SmallVec<[Row<'_>; 4]> = [jobs].into_iter().chain(spans).collect();
        let mut held: Floats = smallvec![0.0; self.nodes.width()];
        match self.rules.compatibility {
            Compatibility::Upstream => {
                let measure = rows.iter().fold(1.0, |least, row| row.least(least, |share, _| share));
                for row in &rows {
                    row.add_to(&mut held, |share, _| measure / share, 0.0);
                }
            }
            Compatibility::Corrected => {
                let per_weight = |share: f64, weight: f64| share / weight;
                let measure = rows
                    .iter()
                    .fold(f64::INFINITY, |least, row| row.least(least, per_weight));
                for row in &rows {
                    row.add_to(&mut held, |share, weight| measure * weight / share, 1.0);
                }
            }
        }
        Some(Figure {
            share: share(&held, &self.rules.divisors),
            saturated: rows.iter().all(|row| row.saturated.iter().all(|saturated| *saturated)),
            held,
        })
    }
}

impl Leaves {
    fn of(jobs: usize, width: usize) -> Self {
        Self {
            shares: vec![0.0; jobs],
            held: vec![0.0; jobs * width],
            needs: vec![Need::Met; jobs],
            numbers: vec![0; jobs],
        }
    }

    fn set(&mut self, at: usize, leaf: Leaf, known: &mut Known, exhausted: &Bits) {
        let width = leaf.held.len();
        if let Some(held) = self.held.get_mut(at * width..(at + 1) * width) {
            held.copy_from_slice(&leaf.held);
        }
        if let Some(share) = self.shares.get_mut(at) {
            *share = leaf.share;
        }
        if let (Some(need), Some(number)) = (self.needs.get_mut(at), self.numbers.get_mut(at))
            && *need != leaf.need
        {
            *number = known.number(&leaf.need, exhausted);
            *need = leaf.need;
        }
    }

    /// All needs, as bits.
    fn uses(&self) -> u64 {
        self.numbers.iter().fold(0, |uses, number| uses | bit(*number))
    }

    fn saturated(&self, met: u64, exhausted: &Bits) -> SmallVec<[bool; 16]> {
        let numbered = self.numbers.iter().zip(&self.needs);
        numbered
            .map(|(number, need)| {
                if *number == Known::OTHER {
                    need.is_saturated(exhausted)
                } else {
                    met & bit(*number) != 0
                }
            })
            .collect()
    }
}

impl PartialEq for Leaves {
    fn eq(&self, other: &Self) -> bool {
        (&self.shares, &self.held, &self.needs) == (&other.shares, &other.held, &other.needs)
    }
}

/// Children of an inner node, side by side.
#[derive(Debug)]
struct Row<'a> {
    shares: &'a [f64],
    saturated: &'a [bool],
    held: &'a [f64],
    /// `None`: 1 each.
    weights: Option<&'a [f64]>,
}

impl Row<'_> {
    /// The smallest measure of the children that hold something and are not saturated; `most` if it is larger.
    fn least(&self, most: f64, measure: impl Fn(f64, f64) -> f64) -> f64 {
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

    /// Adds what the children hold: saturated ones as they are, the others rescaled, those without a share times `empty`.
    fn add_to(&self, held: &mut Floats, factor: impl Fn(f64, f64) -> f64, empty: f64) {
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
