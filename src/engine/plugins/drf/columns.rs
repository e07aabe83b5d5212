//! Inner nodes in dense columns: what their parents see of them, and what a node of jobs would hold if its needs were met
//! another way. So a resource that runs out or comes back finds most of what it changes already worked out.

use std::ops::Range;
use std::sync::Arc;

use super::needs::{Known, bit};
use super::share::{Floats, share};
use super::tree::Figure;

/// Nodes that one change copies. Trees of tests are small, and spread over several all the same.
const BLOCK: usize = if cfg!(test) { 4 } else { 256 };

/// No other figure is known.
const NONE: u64 = u64::MAX;

/// The columns. Clones share the blocks that neither of them changes.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    width: usize,
    blocks: Vec<Arc<Block>>,
}

#[derive(Clone, Debug, Default)]
struct Block {
    shares: Vec<f64>,
    saturated: Vec<bool>,
    /// One stretch per node.
    held: Vec<f64>,
    /// Needs of the node's jobs; none if it has inner children, too.
    uses: Vec<u64>,
    /// Those of them that are met in the other figure.
    other: Vec<u64>,
    other_held: Vec<f64>,
}

/// Needs of a node of jobs, and what it would hold if others of them were met.
#[derive(Debug)]
pub(super) struct Outlook {
    /// Needs.
    pub(super) uses: u64,
    /// Those met otherwise, and what would be held then.
    pub(super) other: Option<(u64, Floats)>,
}

/// Some nodes that stand side by side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span<'a> {
    pub(super) shares: &'a [f64],
    pub(super) saturated: &'a [bool],
    pub(super) held: &'a [f64],
}

/// What a flip is about.
pub(super) struct Flip<'a> {
    /// Needs that were met.
    pub(super) before: u64,
    /// Needs that are met now.
    pub(super) now: u64,
    /// Divisors of an inner node's share.
    pub(super) divisors: &'a [f64],
    /// They are others than before.
    pub(super) divides_anew: bool,
}

impl Columns {
    /// So many nodes that hold nothing.
    pub(super) fn new(nodes: usize, width: usize) -> Self {
        let block = |len: usize| Block {
            shares: vec![0.0; len],
            saturated: vec![false; len],
            held: vec![0.0; len * width],
            uses: vec![0; len],
            other: vec![NONE; len],
            other_held: vec![0.0; len * width],
        };
        let starts = (0..nodes).step_by(BLOCK);
        Self {
            width,
            blocks: starts
                .map(|start| Arc::new(block((nodes - start).min(BLOCK))))
                .collect(),
        }
    }

    /// Resources of a node.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// A node as its parent sees it.
    pub(super) fn get(&self, number: usize) -> Option<Figure> {
        let (saturated, share) = self.rank(number)?;
        let held = self.blocks.get(number / BLOCK)?.held.get(self.stretch(number))?;
        Some(Figure {
            share,
            saturated,
            held: held.into(),
        })
    }

    /// Saturation and share of a node.
    pub(super) fn rank(&self, number: usize) -> Option<(bool, f64)> {
        let (block, at) = (self.blocks.get(number / BLOCK)?, number % BLOCK);
        Some((*block.saturated.get(at)?, *block.shares.get(at)?))
    }

    /// Shows a node to its parent; false if the parent sees no difference.
    pub(super) fn put(&mut self, number: usize, figure: &Figure) -> bool {
        let (at, stretch) = (number % BLOCK, self.stretch(number));
        let Some(block) = self.blocks.get_mut(number / BLOCK) else {
            return false;
        };
        let same = block.shares.get(at) == Some(&figure.share)
            && block.saturated.get(at) == Some(&figure.saturated)
            && block.held.get(stretch.clone()) == Some(&figure.held);
        if same {
            return false;
        }
        let block = Arc::make_mut(block);
        set(&mut block.shares, at, figure.share);
        set(&mut block.saturated, at, figure.saturated);
        if let Some(held) = block.held.get_mut(stretch) {
            held.copy_from_slice(&figure.held);
        }
        true
    }

    /// Takes over what becomes of a node of jobs if its needs are met another way.
    pub(super) fn look_out(&mut self, number: usize, outlook: &Outlook) {
        let (at, stretch) = (number % BLOCK, self.stretch(number));
        let Some(block) = self.blocks.get_mut(number / BLOCK).map(Arc::make_mut) else {
            return;
        };
        set(&mut block.uses, at, outlook.uses);
        set(
            &mut block.other,
            at,
            outlook.other.as_ref().map_or(NONE, |(key, _)| *key),
        );
        if let (Some(to), Some((_, held))) = (block.other_held.get_mut(stretch), &outlook.other) {
            to.copy_from_slice(held);
        }
    }

    /// These nodes, in order.
    pub(super) fn spans(&self, nodes: Range<usize>) -> impl Iterator<Item = Span<'_>> {
        let blocks = nodes.start / BLOCK..nodes.end.div_ceil(BLOCK);
        let numbered = self.blocks.iter().enumerate().skip(blocks.start).take(blocks.len());
        numbered.filter_map(move |(number, block)| {
            let first = number * BLOCK;
            let own = nodes.start.saturating_sub(first)..nodes.end.saturating_sub(first).min(block.shares.len());
            Some(Span {
                shares: block.shares.get(own.clone())?,
                saturated: block.saturated.get(own.clone())?,
                held: block.held.get(own.start * self.width..own.end * self.width)?,
            })
        })
    }

    /// Changes which needs are met for all nodes of jobs alone. Answers those that nobody has worked out yet, with the
    /// outlook on what they were.
    pub(super) fn flip(&mut self, flip: &Flip<'_>) -> Vec<(usize, Outlook)> {
        let mut open = Vec::new();
        let moved = (flip.before ^ flip.now) | bit(Known::OTHER);
        for (number, block) in self.blocks.iter_mut().enumerate() {
            if flip.divides_anew || block.uses.iter().any(|uses| uses & moved != 0) {
                Arc::make_mut(block).flip(flip, self.width, number * BLOCK, &mut open);
            }
        }
        open
    }

    fn stretch(&self, number: usize) -> Range<usize> {
        let at = number % BLOCK;
        at * self.width..(at + 1) * self.width
    }
}

/// What parents see is what counts: outlooks are only ever a short cut.
impl PartialEq for Columns {
    fn eq(&self, other: &Self) -> bool {
        let same = |(own, other): (&Arc<Block>, &Arc<Block>)| {
            own.shares == other.shares && own.saturated == other.saturated && own.held == other.held
        };
        self.blocks.len() == other.blocks.len() && self.blocks.iter().zip(&other.blocks).all(same)
    }
}

impl Block {
    fn flip(&mut self, flip: &Flip<'_>, width: usize, first: usize, open: &mut Vec<(usize, Outlook)>) {
        let Flip {
            before,
            now,
            divisors,
            divides_anew,
        } = *flip;
        let ranks = self.shares.iter_mut().zip(&mut self.saturated);
        let held = self.held.chunks_exact_mut(width);
        let other_held = self.other_held.chunks_exact_mut(width);
        let others = self.uses.iter().zip(&mut self.other).zip(other_held);
        for (at, (((share_of, saturated), held), ((uses, other), other_held))) in
            ranks.zip(held).zip(others).enumerate()
        {
            let (was, is) = (uses & before, uses & now);
            if uses & bit(Known::OTHER) != 0 || was != is && *other != is {
                let other = (uses & bit(Known::OTHER) == 0).then(|| (was, Floats::from_slice(held)));
                open.push((first + at, Outlook { uses: *uses, other }));
                continue;
            }
            if was != is {
                held.swap_with_slice(other_held);
                *other = was;
                *saturated = is == *uses;
            }
            if was != is || divides_anew {
                *share_of = share(held, divisors);
            }
        }
    }
}

fn set<T>(column: &mut [T], at: usize, value: T) {
    if let Some(entry) = column.get_mut(at) {
        *entry = value;
    }
}
