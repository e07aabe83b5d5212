//! One pass of equal tasks over the nodes: all nodes are judged once, and after each task only the node that took it.
//!
//! Nodes stand in the order (higher score, earlier name). Those that took nothing yet are walked in that order; those that
//! took something stand in a heap with what they score now. The better of the two heads takes the next task. A node
//! beyond the first so many as there are tasks can never be reached: at each step one of those before it is untouched.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use super::admission::Gate;
use super::ahead::Ahead;
use crate::engine::cycle::assume;
use crate::engine::decide::candidates::{Candidates, Part};
use crate::engine::decide::question::{Question, ResourceFit};
use crate::engine::decide::reduce;
use crate::engine::decide::room::Room;
use crate::engine::decide::score::{Scorers, Scratch};
use crate::engine::decide::stages::Asked;
use crate::engine::decide::top;
use crate::engine::model::{CHUNK, Chunk, Mask, NodeEntry, Problem, Slot, TaskClass, TaskRecord, TaskStatus, View};
use crate::engine::plugin::{Facts, Filterer, Verdicts};
use crate::engine::policy::{Compatibility, Policy};

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Every task of the group has a place.
    Full,
    /// No node has room in this gradient.
    Dry,
    /// Admission refuses the next task, or nodes are to be judged anew.
    Anew,
    /// Told to stop.
    Stopped,
}

/// Tasks between two looks at whether to stop.
const STOP_EVERY: usize = 256;

/// Score (higher first), name (earlier first), then a number: smaller is better.
type Key = u128;

/// Nodes that took something, as they stand now.
pub(super) type Changed = Vec<(Slot, Arc<NodeEntry>)>;

/// Everything that a pass asks, made ready.
pub(super) struct Run<'a> {
    view: &'a View,
    filterers: Vec<Box<dyn Filterer + 'a>>,
    scorers: Scorers<'a>,
    /// The task as it stands on a node.
    joined: TaskRecord,
    compatibility: Compatibility,
}

/// A node among the first, and what it took.
struct Contender {
    slot: Slot,
    /// As it stands, once it took something.
    now: Option<Arc<NodeEntry>>,
    /// What follows, as far as it was looked ahead: as it will stand, and its score then; `None`: refused.
    ahead: VecDeque<(Arc<NodeEntry>, Option<u64>)>,
    /// How far was looked ahead the last time.
    depth: usize,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        facts: Facts<'a>,
        policy: &'a Policy,
        class: &'a TaskClass,
        question: &Question,
        (task, status): (&TaskRecord, TaskStatus),
    ) -> Result<Self, Problem> {
        let asked = Asked::of(policy, question)?;
        let mut filterers = asked.filterers(facts, question, class)?;
        if status == TaskStatus::Allocated
            && let Some(room) = Room::of(class, ResourceFit::Idle)
        {
            filterers.push(Box::new(room));
        }
        Ok(Self {
            view: facts.view,
            filterers,
            scorers: Scorers::plain(&asked, facts, class)?,
            joined: TaskRecord { status, ..task.clone() },
            compatibility: policy.compatibility(),
        })
    }

    /// True if scores of all nodes must be looked at after each task.
    pub(super) fn looks_at_all(&self) -> bool {
        self.scorers.are_bounded()
    }

    /// Places up to `count` tasks. `put` is told of each, and says whether the next one may follow at once.
    pub(super) fn go(
        &self,
        candidates: &Candidates<'_>,
        count: usize,
        gate: &mut Gate<'_>,
        stop: &dyn Fn() -> bool,
        put: &mut dyn FnMut(Slot, &mut Gate<'_>) -> Result<bool, Problem>,
    ) -> Result<(Ended, Changed), Problem> {
        let want = count.saturating_sub(gate.given);
        let want = if self.looks_at_all() { want.min(1) } else { want };
        let Some(mut order) = self.order(candidates, stop)? else {
            return Ok((Ended::Stopped, Vec::new()));
        };
        first(&mut order, want);
        let mut field = Field::new(self, &order);
        let mut steps = 0;
        let ended = loop {
            if steps == want {
                break if gate.given == count { Ended::Full } else { Ended::Anew };
            }
            if steps % STOP_EVERY == STOP_EVERY - 1 && stop() {
                break Ended::Stopped;
            }
            let Some(slot) = field.take(want - steps - 1) else {
                break Ended::Dry;
            };
            steps += 1;
            if !put(slot, gate)? {
                break if gate.given == count { Ended::Full } else { Ended::Anew };
            }
        };
        Ok((ended, field.changed()))
    }

    /// Every node that passes, with its place in the order; `None`: told to stop.
    fn order(&self, candidates: &Candidates<'_>, stop: &dyn Fn() -> bool) -> Result<Option<Vec<Key>>, Problem> {
        let mut order = Vec::new();
        let mut scratch = Scratch::new();
        let ranks = self.view.ranks();
        for (number, part) in candidates.parts.iter().enumerate() {
            if number % STOP_EVERY == STOP_EVERY - 1 && stop() {
                return Ok(None);
            }
            let among = self.passing(part.chunk, &part.among);
            if among.is_empty() {
                continue;
            }
            let part = Part { among, ..*part };
            self.scorers.check(self.view, &[part])?;
            self.scorers.each(&part, &mut scratch, |_, _, _| {});
            order.extend(among.iter().map(|offset| {
                let slot = part.slot(offset);
                let rank = ranks.get(slot as usize).copied().unwrap_or(u32::MAX);
                key(score(scratch.total(offset)), rank, slot)
            }));
        }
        Ok(Some(order))
    }

    /// Nodes of a chunk that pass every filter.
    fn passing(&self, chunk: &Chunk, among: &Mask) -> Mask {
        let mut verdicts: Verdicts = [0; CHUNK];
        reduce::conjunction(&self.filterers, among, |filterer, left| {
            filterer.filter(chunk, left, &mut verdicts).and(left)
        })
    }

    /// A node after one more of the tasks.
    pub(super) fn after(&self, entry: &NodeEntry) -> Arc<NodeEntry> {
        let mut after = entry.clone();
        assume(&mut after, &self.joined, self.compatibility);
        Arc::new(after)
    }

    /// Scores of nodes in a chunk that is made of them; `None`: refused.
    pub(super) fn judge(
        &self,
        chunk: &Chunk,
        among: &Mask,
        scratch: &mut Scratch,
        mut say: impl FnMut(usize, Option<u64>),
    ) {
        let passed = self.passing(chunk, among);
        let part = Part {
            first: 0,
            chunk,
            among: passed,
        };
        if !passed.is_empty() {
            self.scorers.each(&part, scratch, |_, _, _| {});
        }
        for offset in among.iter() {
            say(offset, passed.get(offset).then(|| score(scratch.total(offset))));
        }
    }
}

/// The first nodes, and those of them that took something.
struct Field<'r, 'a> {
    run: &'r Run<'a>,
    contenders: Vec<Contender>,
    ranks: Vec<u32>,
    /// Order of those that took nothing: position, with scores.
    order: &'r [Key],
    /// How many of them are behind us.
    walked: usize,
    heap: BinaryHeap<Reverse<Key>>,
    ahead: Ahead,
    /// How many tasks nodes take, as far as seen: so far is looked ahead at once.
    habit: usize,
    /// How many nodes are looked ahead at once.
    width: usize,
}

impl<'r, 'a> Field<'r, 'a> {
    fn new(run: &'r Run<'a>, order: &'r [Key]) -> Self {
        let contenders = order.iter().map(|key| Contender {
            slot: slot_of(*key),
            now: None,
            ahead: VecDeque::new(),
            depth: 0,
        });
        Self {
            run,
            contenders: contenders.collect(),
            ranks: order.iter().map(|key| rank_of(*key)).collect(),
            order,
            walked: 0,
            heap: BinaryHeap::new(),
            ahead: Ahead::new(),
            habit: 1,
            width: 4,
        }
    }

    /// Gives the next task to the best node; so many tasks follow.
    fn take(&mut self, left: usize) -> Option<Slot> {
        let fresh = self.order.get(self.walked).map(|key| place(*key));
        let again = self.heap.peek().map(|Reverse(key)| *key);
        let number = match (fresh, again) {
            (None, None) => return None,
            (Some(fresh), again) if again.is_none_or(|again| fresh <= place(again)) => {
                self.walked += 1;
                self.walked - 1
            }
            (_, again) => {
                self.heap.pop();
                slot_of(again?) as usize
            }
        };
        let slot = self.contenders.get(number)?.slot;
        self.join(number, left);
        Some(slot)
    }

    /// The node takes a task.
    fn join(&mut self, number: usize, left: usize) {
        if self.contenders.get(number).is_some_and(|node| node.ahead.is_empty()) {
            self.look_ahead(number, left);
        }
        let rank = self.ranks.get(number).copied().unwrap_or(u32::MAX);
        let Some(node) = self.contenders.get_mut(number) else {
            return;
        };
        let Some((entry, score)) = node.ahead.pop_front() else {
            // Nothing follows: how it stands is all that is wanted.
            let before = node.now.clone().or_else(|| self.run.view.node(node.slot).cloned());
            node.now = before.map(|before| self.run.after(&before));
            return;
        };
        node.now = Some(entry);
        if let Some(score) = score {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            self.heap.push(Reverse(key(score, rank, number)));
        }
    }

    /// Works out what the node, and if it is fresh its successors, will score when they take more.
    fn look_ahead(&mut self, number: usize, left: usize) {
        let Some(node) = self.contenders.get_mut(number) else {
            return;
        };
        let fresh = node.now.is_none();
        let depth = if fresh {
            self.habit
        } else {
            (node.depth * 2).clamp(1, CHUNK)
        };
        self.habit = self.habit.max(depth.min(CHUNK / 4));
        let mut wanted = vec![(number, depth.min(left))];
        if fresh {
            let width = self.width.min(CHUNK / self.habit.max(1)).max(1);
            self.width = (self.width * 2).min(CHUNK);
            let next = (self.walked..self.order.len()).take(width.min(left));
            wanted.extend(next.map(|number| (number, self.habit.min(left))));
        }
        self.ahead.clear();
        for (number, depth) in wanted {
            let Some(node) = self.contenders.get_mut(number).filter(|node| node.ahead.is_empty()) else {
                continue;
            };
            let Some(mut entry) = node.now.clone().or_else(|| self.run.view.node(node.slot).cloned()) else {
                continue;
            };
            node.depth = depth;
            for _ in 0..depth {
                entry = self.run.after(&entry);
                if !self.ahead.add(number, &entry) {
                    break;
                }
            }
        }
        let contenders = &mut self.contenders;
        self.ahead.judge(self.run, |number, entry, score| {
            // Beyond the first refusal there is nothing to come to.
            if let Some(node) = contenders.get_mut(number)
                && node.ahead.back().is_none_or(|(_, score)| score.is_some())
            {
                node.ahead.push_back((entry, score));
            }
        });
    }

    fn changed(self) -> Changed {
        let nodes = self.contenders.into_iter();
        nodes.filter_map(|node| Some((node.slot, node.now?))).collect()
    }
}

/// Keeps the best so many, best first.
fn first(order: &mut Vec<Key>, want: usize) {
    if want < order.len() {
        if want > 0 {
            order.select_nth_unstable(want - 1);
        }
        order.truncate(want);
    }
    order.sort_unstable();
}

/// A score as a number that is smaller the better it is.
fn score(total: f64) -> u64 {
    let bits = top::key(total).to_bits();
    // As numbers of the same sign compare, and the negative ones below: then turned round.
    if bits >> 63 == 1 { bits } else { !(bits | 1 << 63) }
}

fn key(score: u64, rank: u32, number: u32) -> Key {
    Key::from(score) << 64 | Key::from(rank) << 32 | Key::from(number)
}

/// Score and name alone.
fn place(key: Key) -> Key {
    key >> 32
}

fn slot_of(key: Key) -> u32 {
    u32::try_from(key & Key::from(u32::MAX)).unwrap_or(u32::MAX)
}

fn rank_of(key: Key) -> u32 {
    u32::try_from(key >> 32 & Key::from(u32::MAX)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_compare_as_their_numbers() {
        let totals = [f64::INFINITY, 9.0, 1.5, 1e-300, 0.0, -1e-300, -2.0, f64::NEG_INFINITY];
        assert!(totals.map(score).is_sorted());
        assert_eq!(score(-0.0), score(0.0));
        assert_eq!(score(f64::NAN), score(f64::NEG_INFINITY));
    }
}
