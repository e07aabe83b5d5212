//! Values of surveyed candidates, with the extremes to which scores are relative.

use std::cell::Cell;

use crate::model::{CHUNK_SIZE, NodeChunk, NodeSlot};
use crate::plugin::ChunkScores;

/// Value of the candidates, with the extremes.
#[derive(Debug, Default)]
pub(super) struct CandidateValues {
    /// Values by slot; `None`: no candidate, or one without a value.
    values: Vec<Option<i64>>,
    least: ExtremeValue,
    most: ExtremeValue,
}

/// Extreme value of the candidates.
#[derive(Debug, Default)]
struct ExtremeValue {
    value: Option<i64>,
    /// Number of candidates with this value that may still take tasks.
    count: Cell<u32>,
}

impl ExtremeValue {
    /// Adds a candidate. Its value becomes the extreme value if it exceeds the present one.
    fn add(&mut self, value: i64, exceeds: fn(&i64, &i64) -> bool) {
        match self.value {
            Some(own) if own == value => self.count.set(self.count.get() + 1),
            Some(own) if !exceeds(&value, &own) => {}
            _ => {
                self.value = Some(value);
                self.count.set(1);
            }
        }
    }

    /// Notes that a candidate takes no more tasks. True: the extreme value is another one then.
    fn leave(&self, value: i64) -> bool {
        if self.value != Some(value) {
            return false;
        }
        let left = self.count.get().saturating_sub(1);
        self.count.set(left);
        left == 0
    }
}

/// Least and largest of some values; `None`: there are none.
pub(super) fn extremes(values: impl Iterator<Item = i64>) -> Option<(i64, i64)> {
    let pairs = values.map(|value| (value, value));
    pairs.reduce(|(least, most), (value, _)| (least.min(value), most.max(value)))
}

impl CandidateValues {
    /// Adds a candidate.
    pub(super) fn add(&mut self, slot: NodeSlot, value: i64) {
        let at = slot as usize;
        if self.values.len() <= at {
            let chunks = at / CHUNK_SIZE + 1;
            self.values.resize(chunks * CHUNK_SIZE, None);
        }
        if let Some(place) = self.values.get_mut(at) {
            *place = Some(value);
        }
        self.least.add(value, i64::lt);
        self.most.add(value, i64::gt);
    }

    /// Smallest and largest value; 0 without candidates.
    pub(super) fn extremes(&self) -> (i64, i64) {
        (self.least.value.unwrap_or(0), self.most.value.unwrap_or(0))
    }

    /// Value of a candidate.
    pub(super) fn at(&self, slot: NodeSlot) -> Option<i64> {
        self.values.get(slot as usize).copied().flatten()
    }

    /// Notes that a candidate takes no more tasks. True: an extreme value is another one then.
    pub(super) fn leave(&self, slot: NodeSlot) -> bool {
        let value = self.at(slot);
        // Both extremes count the node.
        value.is_some_and(|value| self.least.leave(value) | self.most.leave(value))
    }

    /// Fills in the score of each node of a chunk by its value; a node without one scores 0.
    pub(super) fn score(&self, chunk: &NodeChunk, scores: &mut ChunkScores, score: impl Fn(i64) -> i64) {
        // Neighbours often have equal values.
        let (mut last, mut last_score) = (None, 0.0);
        for (offset, place) in scores.iter_mut().enumerate() {
            let value = chunk.slot(offset).and_then(|slot| self.at(slot));
            if value != last {
                (last, last_score) = (value, value.map_or(0.0, |value| score(value) as f64));
            }
            *place = last_score;
        }
    }
}
