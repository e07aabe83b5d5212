//! Choice of the best node for each task.
//!
//! Untouched nodes are visited in the order of their rank; nodes that took tasks are in a heap by their present score.
//! The better of the two heads takes the next task. With n tasks only the first n nodes can be chosen, since at each
//! step one of them is untouched.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::lookahead::{LookaheadBatch, lookahead_depth};
use super::pass::PlacePass;
use super::ranking::{NodeRankKey, NodeRanking, number_of, rank_key, rank_of, score_and_name};
use crate::model::{CHUNK_SIZE, NodeSlot};

/// Nodes that took tasks, and the number of tasks.
pub(super) type NodeTaskCounts = Vec<(NodeSlot, u32)>;

/// Evaluated node.
#[derive(Clone, Copy, Debug)]
struct ContenderNode {
    slot: NodeSlot,
    rank: u32,
    /// Number of tasks that it took.
    task_count: u32,
    /// Range of the lookahead scores that hold its scores after one more task, two more, and so on.
    lookahead: (u32, u32),
    /// Depth of its last lookahead.
    depth: u32,
    /// True if it takes no task beyond the lookahead.
    full: bool,
}

/// Best untouched nodes, and the nodes that took tasks.
pub(super) struct NodePicker<'r, 'a> {
    pass: &'r PlacePass<'a>,
    /// Untouched nodes: slots, with scores.
    ranking: NodeRanking,
    /// Number of visited nodes of the ranking.
    visited_count: usize,
    /// Evaluated nodes, in order.
    contenders: Vec<ContenderNode>,
    /// Nodes that took tasks and may take more: numbers of contenders, with scores.
    heap: BinaryHeap<Reverse<NodeRankKey>>,
    /// One per node of the batch; reused between batches.
    lookahead_scores: Vec<u64>,
    lookahead: Option<LookaheadBatch<'r>>,
    /// Number of tasks placed.
    placed_count: usize,
    /// Number of nodes in one lookahead.
    lookahead_width: usize,
    /// True if the node that took the last task takes no more.
    last_is_full: bool,
}

/// Number of contenders after the present contender that may share its lookahead.
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
            last_is_full: false,
        }
    }

    /// True if the node of the last task cannot take another task. Unknown after the last task of the group.
    pub(super) fn last_is_full(&self) -> bool {
        self.last_is_full
    }

    /// Chooses the best node for the next task; `left` tasks follow.
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

    /// Loads contenders up to this number.
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

    /// Gives the node a task.
    fn assign_task(&mut self, number: usize, left: usize) -> Option<NodeSlot> {
        let node = *self.contenders.get(number)?;
        if node.lookahead.0 == node.lookahead.1 && !node.full && left > 0 {
            self.look_ahead(number, left);
        }
        let node = self.contenders.get_mut(number)?;
        node.task_count += 1;
        self.last_is_full = node.lookahead.0 == node.lookahead.1 && node.full;
        if node.lookahead.0 < node.lookahead.1 {
            let score = self.lookahead_scores.get(node.lookahead.0 as usize).copied();
            node.lookahead.0 += 1;
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            self.heap
                .extend(score.map(|score| Reverse(rank_key(score, node.rank, number))));
        }
        Some(node.slot)
    }

    /// Computes the scores of the node, and of others that will need it soon, after more tasks.
    fn look_ahead(&mut self, number: usize, left: usize) {
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        let mut ahead = self.lookahead.take().unwrap_or_else(|| LookaheadBatch::new(self.pass));
        ahead.clear();
        let usual_depth = lookahead_depth(self.placed_count, self.visited_count);
        let fresh = self.contenders.get(number).is_none_or(|node| node.task_count == 0);
        if fresh {
            self.add_to_lookahead(&mut ahead, number, usual_depth.min(left));
            let width = self.lookahead_width.min(CHUNK_SIZE / usual_depth as usize).max(1);
            self.lookahead_width = (self.lookahead_width * 2).min(CHUNK_SIZE);
            let last = (number + width).min(self.ranking.len().saturating_sub(1));
            self.load_contenders(last);
            for other in number + 1..=last {
                self.add_to_lookahead(&mut ahead, other, usual_depth.min(left));
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
                    // States of one node follow each other.
                    if node.lookahead.0 == node.lookahead.1 {
                        let at = u32::try_from(scores.len()).unwrap_or(u32::MAX);
                        node.lookahead = (at, at);
                    }
                    scores.push(score);
                    node.lookahead.1 += 1;
                }
                // No state after the first rejection can be reached.
                None => node.full = true,
            }
        });
        self.lookahead = Some(ahead);
    }

    /// Extends the lookahead of a node that took tasks, if it needs more.
    fn extend_lookahead(&mut self, ahead: &mut LookaheadBatch<'_>, number: usize, left: u32) {
        let Some(node) = self.contenders.get(number) else {
            return;
        };
        if node.task_count == 0 || node.lookahead.0 < node.lookahead.1 || node.full {
            return;
        }
        let depth = (node.depth * 2)
            .max(lookahead_depth(self.placed_count, self.visited_count))
            .min(256);
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
