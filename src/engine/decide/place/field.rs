//! The best nodes, and which of them takes the next task.
//!
//! Those that took nothing yet are walked in their order; those that took something stand in a heap with what they score
//! now. The better of the two heads takes the next task. A node beyond the first so many as there are tasks can never be
//! reached: at each step one of those before it is untouched.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::ahead::Ahead;
use super::order::{Key, Order, key, number_of, place, rank_of};
use super::run::Run;
use crate::engine::model::{CHUNK, Slot};

/// Nodes that took something, and how many tasks.
pub(super) type Taken = Vec<(Slot, u32)>;

/// A node that was looked at.
#[derive(Clone, Copy, Debug)]
struct Contender {
    slot: Slot,
    rank: u32,
    /// Tasks that it took.
    taken: u32,
    /// What it scores when it has taken one more, two more, and so on: this part of all that was looked ahead.
    ahead: (u32, u32),
    /// How far was looked ahead the last time.
    depth: u32,
    /// Beyond what was looked ahead, it takes nothing.
    full: bool,
}

/// The first nodes, and those of them that took something.
pub(super) struct Field<'r, 'a> {
    run: &'r Run<'a>,
    /// Nodes that took nothing: slots, with scores.
    order: Order,
    /// How many of them are behind us.
    walked: usize,
    /// Those that were looked at, in that order.
    contenders: Vec<Contender>,
    /// Nodes that took something and may take more: numbers of contenders, with scores.
    heap: BinaryHeap<Reverse<Key>>,
    /// Scores that were looked ahead.
    scores: Vec<u64>,
    ahead: Option<Ahead<'r>>,
    /// Tasks given away.
    given: usize,
    /// How many nodes are looked ahead at once.
    width: usize,
}

/// Contenders behind the one that needs it that may be looked ahead with it.
const NEAR: usize = 4 * CHUNK;

impl<'r, 'a> Field<'r, 'a> {
    pub(super) fn new(run: &'r Run<'a>, order: Order) -> Self {
        Self {
            run,
            contenders: Vec::with_capacity(order.len()),
            order,
            walked: 0,
            heap: BinaryHeap::new(),
            scores: Vec::new(),
            ahead: None,
            given: 0,
            width: 4,
        }
    }

    /// Gives the next task to the best node; so many tasks follow.
    pub(super) fn take(&mut self, left: usize) -> Option<Slot> {
        let fresh = self.order.get(self.walked);
        let again = self.heap.peek().map(|Reverse(key)| *key);
        let number = match (fresh, again) {
            (None, None) => return None,
            (Some(fresh), again) if again.is_none_or(|again| place(fresh) <= place(again)) => {
                self.see(self.walked);
                self.walked += 1;
                self.walked - 1
            }
            (_, again) => {
                self.heap.pop();
                number_of(again?) as usize
            }
        };
        let slot = self.join(number, left);
        self.given += 1;
        slot
    }

    /// So far is looked ahead at once: somewhat further than nodes went until now.
    fn habit(&self) -> u32 {
        let each = u32::try_from(self.given / self.walked.max(1)).unwrap_or(u32::MAX);
        if each < 2 { 1 } else { (each + each / 4 + 1).min(64) }
    }

    /// Contenders are known up to this number.
    fn see(&mut self, number: usize) {
        for at in self.contenders.len()..=number {
            let Some(key) = self.order.get(at) else { return };
            self.contenders.push(Contender {
                slot: number_of(key),
                rank: rank_of(key),
                taken: 0,
                ahead: (0, 0),
                depth: 0,
                full: false,
            });
        }
    }

    /// The node takes a task.
    fn join(&mut self, number: usize, left: usize) -> Option<Slot> {
        let node = *self.contenders.get(number)?;
        if node.ahead.0 == node.ahead.1 && !node.full && left > 0 {
            self.look_ahead(number, left);
        }
        let node = self.contenders.get_mut(number)?;
        node.taken += 1;
        if node.ahead.0 < node.ahead.1 {
            let score = self.scores.get(node.ahead.0 as usize).copied();
            node.ahead.0 += 1;
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            self.heap
                .extend(score.map(|score| Reverse(key(score, node.rank, number))));
        }
        Some(node.slot)
    }

    /// Works out what the node, and others that will want it soon, will score when they take more.
    fn look_ahead(&mut self, number: usize, left: usize) {
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        let mut ahead = self.ahead.take().unwrap_or_else(|| Ahead::new(self.run));
        ahead.clear();
        let habit = self.habit();
        let fresh = self.contenders.get(number).is_none_or(|node| node.taken == 0);
        if fresh {
            self.take_in(&mut ahead, number, habit.min(left));
            let width = self.width.min(CHUNK / habit as usize).max(1);
            self.width = (self.width * 2).min(CHUNK);
            let last = (number + width).min(self.order.len().saturating_sub(1));
            self.see(last);
            for other in number + 1..=last {
                self.take_in(&mut ahead, other, habit.min(left));
            }
        } else {
            let last = (number + NEAR).min(self.walked);
            self.deepen(&mut ahead, number, left);
            for other in number + 1..last {
                if ahead.room() == 0 {
                    break;
                }
                self.deepen(&mut ahead, other, left);
            }
        }
        let (contenders, scores) = (&mut self.contenders, &mut self.scores);
        ahead.judge(self.run, |number, score| {
            let Some(node) = contenders.get_mut(number as usize).filter(|node| !node.full) else {
                return;
            };
            match score {
                Some(score) => {
                    // What is said of a node stands together: one place of it comes after the other.
                    if node.ahead.0 == node.ahead.1 {
                        let at = u32::try_from(scores.len()).unwrap_or(u32::MAX);
                        node.ahead = (at, at);
                    }
                    scores.push(score);
                    node.ahead.1 += 1;
                }
                // Beyond the first refusal there is nothing to come to.
                None => node.full = true,
            }
        });
        self.ahead = Some(ahead);
    }

    /// Looks further ahead for a node that took something, if it is in want of it.
    fn deepen(&mut self, ahead: &mut Ahead<'_>, number: usize, left: u32) {
        let Some(node) = self.contenders.get(number) else {
            return;
        };
        if node.taken == 0 || node.ahead.0 < node.ahead.1 || node.full {
            return;
        }
        let depth = (node.depth * 2).max(self.habit()).min(256);
        self.take_in(ahead, number, depth.min(left));
    }

    fn take_in(&mut self, ahead: &mut Ahead<'_>, number: usize, depth: u32) {
        let node = self.contenders.get_mut(number);
        if let Some(node) = node.filter(|node| node.ahead.0 == node.ahead.1 && !node.full) {
            node.depth = depth;
            let at = u32::try_from(number).unwrap_or(u32::MAX);
            ahead.add(self.run, at, node.slot, node.taken, depth);
        }
    }

    pub(super) fn taken(self) -> Taken {
        let nodes = self.contenders.into_iter().filter(|node| node.taken > 0);
        nodes.map(|node| (node.slot, node.taken)).collect()
    }
}
