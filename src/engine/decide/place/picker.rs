//! The best nodes, and which of them takes the next task.
//!
//! Those that took nothing yet are walked in their order; those that took something stand in a heap with what they score
//! now. The better of the two heads takes the next task. A node beyond the first so many as there are tasks can never be
//! reached: at each step one of those before it is untouched.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::lookahead::LookaheadBatch;
use super::pass::PlacePass;
use super::ranking::{NodeRankKey, NodeRanking, number_of, rank_key, rank_of, score_and_name};
use crate::engine::model::{CHUNK_SIZE, NodeSlot};

/// Nodes that took something, and how many tasks.
pub(super) type NodeTaskCounts = Vec<(NodeSlot, u32)>;

/// A node that was looked at.
#[derive(Clone, Copy, Debug)]
struct ContenderNode {
    slot: NodeSlot,
    rank: u32,
    /// Tasks that it took.
    task_count: u32,
    /// What it scores when it has taken one more, two more, and so on: this part of all that was looked ahead.
    lookahead: (u32, u32),
    /// How far was looked ahead the last time.
    depth: u32,
    /// Beyond what was looked ahead, it takes nothing.
    full: bool,
}

/// The first nodes, and those of them that took something.
pub(super) struct NodePicker<'r, 'a> {
    pass: &'r PlacePass<'a>,
    /// Nodes that took nothing: slots, with scores.
    ranking: NodeRanking,
    /// How many of them are behind us.
    visited_count: usize,
    /// Those that were looked at, in that order.
    contenders: Vec<ContenderNode>,
    /// Nodes that took something and may take more: numbers of contenders, with scores.
    heap: BinaryHeap<Reverse<NodeRankKey>>,
    /// Scores that were looked ahead.
    lookahead_scores: Vec<u64>,
    lookahead: Option<LookaheadBatch<'r>>,
    /// Tasks given away.
    placed_count: usize,
    /// How many nodes are looked ahead at once.
    lookahead_width: usize,
}

/// Contenders behind the one that needs it that may be looked ahead with it.
const LOOKAHEAD_WINDOW: usize = 4 * CHUNK_SIZE;

impl<'r, 'a> NodePicker<'r, 'a> {
    pub(super) fn new(pass: &'r PlacePass<'a>, ranking: NodeRanking) -> Self {
        Self {
            pass,
            contenders: Vec::with_capacity(ranking.len()),
            ranking,
            visited_count: 0,
            heap: BinaryHeap::new(),
            lookahead_scores: Vec::new(),
            lookahead: None,
            placed_count: 0,
            lookahead_width: 4,
        }
    }

    /// Gives the next task to the best node; so many tasks follow.
    pub(super) fn pick(&mut self, left: usize) -> Option<NodeSlot> {
        let fresh = self.ranking.get(self.visited_count);
        let again = self.heap.peek().map(|Reverse(key)| *key);
        let number = match (fresh, again) {
            (None, None) => return None,
            (Some(fresh), again) if again.is_none_or(|again| score_and_name(fresh) <= score_and_name(again)) => {
                self.load_contenders(self.visited_count);
                self.visited_count += 1;
                self.visited_count - 1
            }
            (_, again) => {
                self.heap.pop();
                number_of(again?) as usize
            }
        };
        let slot = self.assign_task(number, left);
        self.placed_count += 1;
        slot
    }

    /// So far is looked ahead at once: somewhat further than nodes went until now.
    fn lookahead_depth(&self) -> u32 {
        let each = u32::try_from(self.placed_count / self.visited_count.max(1)).unwrap_or(u32::MAX);
        if each < 2 { 1 } else { (each + each / 4 + 1).min(64) }
    }

    /// Contenders are known up to this number.
    fn load_contenders(&mut self, number: usize) {
        for at in self.contenders.len()..=number {
            let Some(key) = self.ranking.get(at) else { return };
            self.contenders.push(ContenderNode {
                slot: number_of(key),
                rank: rank_of(key),
                task_count: 0,
                lookahead: (0, 0),
                depth: 0,
                full: false,
            });
        }
    }

    /// The node takes a task.
    fn assign_task(&mut self, number: usize, left: usize) -> Option<NodeSlot> {
        let node = *self.contenders.get(number)?;
        if node.lookahead.0 == node.lookahead.1 && !node.full && left > 0 {
            self.look_ahead(number, left);
        }
        let node = self.contenders.get_mut(number)?;
        node.task_count += 1;
        if node.lookahead.0 < node.lookahead.1 {
            let score = self.lookahead_scores.get(node.lookahead.0 as usize).copied();
            node.lookahead.0 += 1;
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            self.heap
                .extend(score.map(|score| Reverse(rank_key(score, node.rank, number))));
        }
        Some(node.slot)
    }

    /// Works out what the node, and others that will want it soon, will score when they take more.
    fn look_ahead(&mut self, number: usize, left: usize) {
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        let mut ahead = self.lookahead.take().unwrap_or_else(|| LookaheadBatch::new(self.pass));
        ahead.clear();
        let habit = self.lookahead_depth();
        let fresh = self.contenders.get(number).is_none_or(|node| node.task_count == 0);
        if fresh {
            self.add_to_lookahead(&mut ahead, number, habit.min(left));
            let width = self.lookahead_width.min(CHUNK_SIZE / habit as usize).max(1);
            self.lookahead_width = (self.lookahead_width * 2).min(CHUNK_SIZE);
            let last = (number + width).min(self.ranking.len().saturating_sub(1));
            self.load_contenders(last);
            for other in number + 1..=last {
                self.add_to_lookahead(&mut ahead, other, habit.min(left));
            }
        } else {
            let last = (number + LOOKAHEAD_WINDOW).min(self.visited_count);
            self.extend_lookahead(&mut ahead, number, left);
            for other in number + 1..last {
                if ahead.remaining() == 0 {
                    break;
                }
                self.extend_lookahead(&mut ahead, other, left);
            }
        }
        let (contenders, scores) = (&mut self.contenders, &mut self.lookahead_scores);
        ahead.score_all(self.pass, |number, score| {
            let Some(node) = contenders.get_mut(number as usize).filter(|node| !node.full) else {
                return;
            };
            match score {
                Some(score) => {
                    // What is said of a node stands together: one place of it comes after the other.
                    if node.lookahead.0 == node.lookahead.1 {
                        let at = u32::try_from(scores.len()).unwrap_or(u32::MAX);
                        node.lookahead = (at, at);
                    }
                    scores.push(score);
                    node.lookahead.1 += 1;
                }
                // Beyond the first refusal there is nothing to come to.
                None => node.full = true,
            }
        });
        self.lookahead = Some(ahead);
    }

    /// Looks further ahead for a node that took something, if it is in want of it.
    fn extend_lookahead(&mut self, ahead: &mut LookaheadBatch<'_>, number: usize, left: u32) {
        let Some(node) = self.contenders.get(number) else {
            return;
        };
        if node.task_count == 0 || node.lookahead.0 < node.lookahead.1 || node.full {
            return;
        }
        let depth = (node.depth * 2).max(self.lookahead_depth()).min(256);
        self.add_to_lookahead(ahead, number, depth.min(left));
    }

    fn add_to_lookahead(&mut self, ahead: &mut LookaheadBatch<'_>, number: usize, depth: u32) {
        let node = self.contenders.get_mut(number);
        if let Some(node) = node.filter(|node| node.lookahead.0 == node.lookahead.1 && !node.full) {
            node.depth = depth;
            let at = u32::try_from(number).unwrap_or(u32::MAX);
            ahead.add(self.pass, at, node.slot, node.task_count, depth);
        }
    }

    pub(super) fn task_counts(self) -> NodeTaskCounts {
        let nodes = self.contenders.into_iter().filter(|node| node.task_count > 0);
        nodes.map(|node| (node.slot, node.task_count)).collect()
    }
}
