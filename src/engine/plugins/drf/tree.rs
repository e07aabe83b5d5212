//! The tree of shares: rows of children in columns. An event costs its path and the rows on it; a resource that runs
//! out or comes back, a scan of the leaves.

use smallvec::{SmallVec, smallvec};

use super::bits::Bits;
use super::chunked::Chunked;
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

/// When a leaf is saturated.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Need {
    /// In any case.
    Met,
    /// As soon as one of these is exhausted.
    Any(Bits),
    /// As soon as one of each is exhausted.
    All(Vec<Bits>),
}

impl Need {
    fn is_saturated(&self, exhausted: &Bits) -> bool {
        match self {
            Self::Met => true,
            Self::Any(resources) => resources.meets(exhausted),
            Self::All(kinds) => kinds.iter().all(|resources| resources.meets(exhausted)),
        }
    }
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

/// The children of one inner node: jobs by name, then nodes by name.
#[derive(Clone, Debug, Default, PartialEq)]
struct Row {
    shares: Vec<f64>,
    saturated: Vec<bool>,
    /// One stretch per child.
    held: Vec<f64>,
    /// Of the jobs.
    needs: Vec<Need>,
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
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tree {
    rows: Chunked<Row>,
    root: Figure,
    rules: Rules,
}

impl Tree {
    /// The tree over these leaves, by number of the job.
    pub(super) fn new(shape: &Shape, rules: Rules, leaf: impl Fn(usize) -> Leaf) -> Self {
        let width = shape.dims.len();
        let row = |node: &Node| {
            let children = node.weights.len();
            let mut row = Row {
                shares: vec![0.0; children],
                saturated: vec![false; children],
                held: vec![0.0; children * width],
                needs: vec![Need::Met; node.jobs.len()],
            };
            for (at, job) in node.jobs.iter().enumerate() {
                row.set_leaf(at, leaf(*job), &rules.exhausted);
            }
            row
        };
        let mut tree = Self {
            rows: shape.nodes.iter().map(row).collect(),
            root: Figure {
                held: smallvec![0.0; width],
                ..Figure::default()
            },
            rules,
        };
        tree.evaluate_all(shape, &mut vec![true; shape.nodes.len()]);
        tree
    }

    /// What the formulas depend on.
    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// A child as its parent sees it.
    pub(super) fn child(&self, place: Place) -> Option<Figure> {
        let row = self.rows.get(place.node)?;
        Some(Figure {
            share: *row.shares.get(place.at)?,
            saturated: *row.saturated.get(place.at)?,
            held: row.held_by(place.at, self.root.held.len())?.into(),
        })
    }

    /// Share and saturation of a child.
    pub(super) fn rank(&self, place: Place) -> Option<(bool, f64)> {
        let row = self.rows.get(place.node)?;
        Some((*row.saturated.get(place.at)?, *row.shares.get(place.at)?))
    }

    /// An inner node.
    pub(super) fn node(&self, node: &Node) -> Option<Figure> {
        match node.place {
            Some(place) => self.child(place),
            None => Some(self.root.clone()),
        }
    }

    /// Gives a leaf what it holds and needs now, and brings its path up to date.
    pub(super) fn set_leaf(&mut self, shape: &Shape, place: Place, leaf: Leaf) {
        if let Some(row) = self.rows.get_mut(place.node) {
            row.set_leaf(place.at, leaf, &self.rules.exhausted);
        }
        let mut number = place.node;
        while let Some(node) = shape.nodes.get(number) {
            let Some(figure) = self.rows.get(number).map(|row| evaluate(row, node, &self.rules)) else {
                return;
            };
            match node.place {
                None => self.root = figure,
                Some(above) if self.put(above, &figure) => {
                    number = above.node;
                    continue;
                }
                Some(_) => {}
            }
            return;
        }
    }

    /// Takes over which resources are exhausted; true if they are others than before.
    pub(super) fn set_exhausted(&mut self, shape: &Shape, exhausted: &Bits) -> bool {
        if self.rules.exhausted == *exhausted {
            return false;
        }
        self.rules = Rules::of(shape, exhausted.clone());
        let everywhere = self.rules.compatibility == Compatibility::Corrected;
        let mut stale = vec![everywhere; shape.nodes.len()];
        for (number, stale) in stale.iter_mut().enumerate() {
            let Some(row) = self.rows.get(number) else { continue };
            let changed = row.leaves_that_change(exhausted);
            if changed.is_empty() {
                continue;
            }
            *stale = true;
            let Some(row) = self.rows.get_mut(number) else { continue };
            for at in changed {
                if let Some(saturated) = row.saturated.get_mut(at) {
                    *saturated = !*saturated;
                }
            }
        }
        self.evaluate_all(shape, &mut stale);
        true
    }

    /// Brings the stale nodes up to date, and those above them that change with them.
    fn evaluate_all(&mut self, shape: &Shape, stale: &mut [bool]) {
        for (number, node) in shape.nodes.iter().enumerate().rev() {
            // The reference never looks at a tree without jobs.
            if stale.get(number) != Some(&true) || node.weights.is_empty() {
                continue;
            }
            let Some(figure) = self.rows.get(number).map(|row| evaluate(row, node, &self.rules)) else {
                continue;
            };
            match node.place {
                None => self.root = figure,
                Some(above) => {
                    if self.put(above, &figure)
                        && let Some(stale) = stale.get_mut(above.node)
                    {
                        *stale = true;
                    }
                }
            }
        }
    }

    /// Shows an inner node to its parent; false if the parent sees no difference.
    fn put(&mut self, place: Place, figure: &Figure) -> bool {
        let width = self.root.held.len();
        let same = self.rows.get(place.node).is_some_and(|row| {
            row.shares.get(place.at) == Some(&figure.share)
                && row.saturated.get(place.at) == Some(&figure.saturated)
                && row.held_by(place.at, width) == Some(&figure.held)
        });
        if same {
            return false;
        }
        if let Some(row) = self.rows.get_mut(place.node) {
            row.set(place.at, figure.share, figure.saturated, &figure.held);
        }
        true
    }
}

impl Row {
    fn held_by(&self, at: usize, width: usize) -> Option<&[f64]> {
        self.held.get(at * width..(at + 1) * width)
    }

    fn set(&mut self, at: usize, share: f64, saturated: bool, held: &Floats) {
        if let Some(entry) = self.shares.get_mut(at) {
            *entry = share;
        }
        if let Some(entry) = self.saturated.get_mut(at) {
            *entry = saturated;
        }
        if let Some(entry) = self.held.get_mut(at * held.len()..(at + 1) * held.len()) {
            entry.copy_from_slice(held);
        }
    }

    fn set_leaf(&mut self, at: usize, leaf: Leaf, exhausted: &Bits) {
        self.set(at, leaf.share, leaf.need.is_saturated(exhausted), &leaf.held);
        if let Some(entry) = self.needs.get_mut(at) {
            *entry = leaf.need;
        }
    }

    fn leaves_that_change(&self, exhausted: &Bits) -> SmallVec<[usize; 8]> {
        let leaves = self.needs.iter().zip(&self.saturated).enumerate();
        leaves
            .filter(|(_, (need, saturated))| need.is_saturated(exhausted) != **saturated)
            .map(|(at, _)| at)
            .collect()
    }
}

/// An inner node out of its children. The smallest share among those that are not saturated is the measure to which
/// these are rescaled; saturated ones count as they are. Under `corrected` the measure is a share per weight (or a heavy
/// child would hold its siblings' entitlement down), and a child without a share may still hold what is exhausted.
fn evaluate(row: &Row, node: &Node, rules: &Rules) -> Figure {
    let width = rules.divisors.len();
    let mut figure = Figure {
        share: 0.0,
        saturated: row.saturated.iter().all(|saturated| *saturated),
        held: smallvec![0.0; width],
    };
    match rules.compatibility {
        Compatibility::Upstream => {
            let measure = least(row, &node.weights, 1.0, |share, _| share);
            sum(row, &node.weights, &mut figure.held, |share, _| measure / share, 0.0);
        }
        Compatibility::Corrected => {
            let measure = least(row, &node.weights, f64::INFINITY, |share, weight| share / weight);
            let factor = |share: f64, weight: f64| measure * weight / share;
            sum(row, &node.weights, &mut figure.held, factor, 1.0);
        }
    }
    figure.share = share(&figure.held, &rules.divisors);
    figure
}

/// The smallest measure of the children that hold something and are not saturated; `most` if it is larger.
fn least(row: &Row, weights: &[f64], most: f64, measure: impl Fn(f64, f64) -> f64) -> f64 {
    let children = row.shares.iter().zip(&row.saturated).zip(weights);
    let counted = children.filter(|((share, saturated), _)| **share != 0.0 && !**saturated);
    counted.fold(most, |least, ((share, _), weight)| {
        let own = measure(*share, *weight);
        if own < least { own } else { least }
    })
}

/// Adds what the children hold: saturated ones as they are, the others rescaled, those without a share times `empty`.
fn sum(row: &Row, weights: &[f64], held: &mut Floats, factor: impl Fn(f64, f64) -> f64, empty: f64) {
    if held.is_empty() {
        return;
    }
    let children = row.shares.iter().zip(&row.saturated).zip(weights);
    for (((share, saturated), weight), own) in children.zip(row.held.chunks_exact(held.len())) {
        let factor = match (*share == 0.0, *saturated) {
            (true, _) => empty,
            (false, true) => 1.0,
            (false, false) => factor(*share, *weight),
        };
        held.iter_mut().zip(own).for_each(|(sum, own)| *sum += own * factor);
    }
}
