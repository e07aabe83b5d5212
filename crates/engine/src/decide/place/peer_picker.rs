//! Choice of the best node for each task of a class whose tasks change the verdicts on other nodes.

use super::lookahead::{LookaheadBatch, lookahead_depth};
use super::pass::PlacePass;
use super::peers::{OwnScore, PeerChoice, PeerHooks, PeerRanking};
use super::picker::NodeTaskCounts;
use crate::model::{CHUNK_SIZE, NodeSlot, Problem};

/// Node that has received tasks or was evaluated ahead.
#[derive(Clone, Copy, Debug)]
struct KnownNode {
    slot: NodeSlot,
    task_count: u32,
    /// Range of the scores that it has after one more task, two more, and so on.
    lookahead: (usize, usize),
    /// True if it takes no task beyond the lookahead.
    full: bool,
}

/// Sentinel: the node is not known.
const UNKNOWN: u32 = u32::MAX;

/// Candidates, and the nodes that took tasks.
pub(super) struct PeerPicker<'r, 'a> {
    pass: &'r PlacePass<'a>,
    hooks: PeerHooks,
    ranking: PeerRanking<'a>,
    nodes: Vec<KnownNode>,
    /// Number of the known node of each slot.
    numbers: Vec<u32>,
    lookahead: Option<LookaheadBatch<'r>>,
    scores: Vec<OwnScore>,
    /// Number of nodes in one lookahead.
    width: usize,
    placed_count: usize,
    visited_count: usize,
    changed: Vec<NodeSlot>,
    /// False: scores do not sum up exactly any more.
    is_exact: bool,
}

impl<'r, 'a> PeerPicker<'r, 'a> {
    pub(super) fn new(pass: &'r PlacePass<'a>, hooks: PeerHooks, ranking: PeerRanking<'a>) -> Self {
        Self {
            pass,
            hooks,
            ranking,
            nodes: Vec::new(),
            numbers: vec![UNKNOWN; pass.state().slots() as usize],
            lookahead: None,
            scores: Vec::new(),
            width: 8,
            placed_count: 0,
            visited_count: 0,
            changed: Vec::new(),
            is_exact: true,
        }
    }

    /// Chooses the best node for the next task; `left` tasks follow.
    ///
    /// # Errors
    /// The candidates cannot be scored.
    pub(super) fn pick(&mut self, left: usize) -> Result<PeerChoice, Problem> {
        if !self.is_exact {
            return Ok(PeerChoice::Inexact);
        }
        let choice = self.ranking.best(&mut self.hooks)?;
        if let PeerChoice::Node(slot) = choice {
            self.assign_task(slot, left);
        }
        Ok(choice)
    }

    /// Gives a node a task, and follows what that changes.
    fn assign_task(&mut self, slot: NodeSlot, left: usize) {
        let number = self.known(slot);
        let Some(node) = self.nodes.get(number).copied() else {
            return;
        };
        if node.lookahead.0 == node.lookahead.1 && !node.full && left > 0 {
            self.look_ahead(number, left);
        }
        self.placed_count += 1;
        self.visited_count += usize::from(node.task_count == 0);
        self.ranking.remove(slot);
        self.hooks.place(slot, &mut self.changed);
        if let Some(node) = self.nodes.get_mut(number) {
            node.task_count += 1;
            if node.lookahead.0 < node.lookahead.1 {
                let score = self.scores.get(node.lookahead.0).copied();
                node.lookahead.0 += 1;
                self.is_exact &= score.is_some_and(|score| self.ranking.insert(&self.hooks, slot, score));
            }
        }
        for slot in std::mem::take(&mut self.changed) {
            if let Some(score) = self.ranking.remove(slot) {
                self.ranking.insert(&self.hooks, slot, score);
            }
        }
    }

    /// Number of a node among the known ones.
    fn known(&mut self, slot: NodeSlot) -> usize {
        let Some(number) = self.numbers.get_mut(slot as usize) else {
            return usize::MAX;
        };
        if *number == UNKNOWN {
            *number = u32::try_from(self.nodes.len()).unwrap_or(UNKNOWN);
            self.nodes.push(KnownNode {
                slot,
                task_count: 0,
                lookahead: (0, 0),
                full: false,
            });
        }
        *number as usize
    }

    /// Computes the scores of a node after more tasks, and the scores of other nodes that are now among the best.
    fn look_ahead(&mut self, number: usize, left: usize) {
        let mut ahead = self.lookahead.take().unwrap_or_else(|| LookaheadBatch::new(self.pass));
        ahead.clear();
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        let depth = lookahead_depth(self.placed_count, self.visited_count).min(left);
        self.add_to_lookahead(&mut ahead, number, depth);
        let mut leaders = Vec::with_capacity(self.width);
        self.ranking.append_leaders(self.width, &mut leaders);
        self.width = (self.width * 2).min(CHUNK_SIZE);
        for slot in leaders {
            let other = self.known(slot);
            if ahead.remaining() == 0 {
                break;
            }
            if other != number {
                self.add_to_lookahead(&mut ahead, other, depth);
            }
        }
        let (nodes, scores) = (&mut self.nodes, &mut self.scores);
        self.is_exact &= ahead.score_apart(self.pass, |number, score| {
            let Some(node) = nodes.get_mut(number as usize).filter(|node| !node.full) else {
                return;
            };
            match score {
                Some(score) => {
                    // States of one node follow each other.
                    if node.lookahead.0 == node.lookahead.1 {
                        node.lookahead = (scores.len(), scores.len());
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

    fn add_to_lookahead(&mut self, ahead: &mut LookaheadBatch<'_>, number: usize, depth: u32) {
        let node = self.nodes.get(number);
        if let Some(node) = node.filter(|node| node.lookahead.0 == node.lookahead.1 && !node.full) {
            let at = u32::try_from(number).unwrap_or(u32::MAX);
            ahead.add(self.pass, at, node.slot, node.task_count, depth);
        }
    }

    pub(super) fn task_counts(self) -> NodeTaskCounts {
        let nodes = self.nodes.into_iter().filter(|node| node.task_count > 0);
        nodes.map(|node| (node.slot, node.task_count)).collect()
    }
}
