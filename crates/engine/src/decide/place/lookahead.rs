//! Lookahead: nodes after more tasks. Kernels of plugins evaluate many such states at once.

use super::pass::PlacePass;
use super::peers::OwnScore;
use super::ranking::rank_score;
use crate::decide::class_scorers::ScoreScratch;
use crate::model::{CHUNK_SIZE, ClusterState, HypotheticalNodes, NodeChunk, NodeMask, NodeSlot};

/// Nodes that are evaluated together.
pub(super) struct LookaheadBatch<'r> {
    storage: LookaheadStorage<'r>,
    /// Contender of each place.
    contenders: Vec<u32>,
    scratch: Box<ScoreScratch>,
}

/// Buffers of a batch, which the next batch reuses.
#[derive(Default)]
pub(super) struct LookaheadSpare {
    chunk: Option<NodeChunk>,
    scratch: Option<Box<ScoreScratch>>,
}

enum LookaheadStorage<'r> {
    /// Columns to which each task adds the same amounts.
    Columns(Box<HypotheticalNodes<'r>>),
    /// Entries of nodes that have vectors of their own, as under `compatibility: upstream`.
    Entries {
        state: &'r ClusterState,
        chunk: Box<NodeChunk>,
    },
}

impl<'r> LookaheadBatch<'r> {
    pub(super) fn new(run: &'r PlacePass<'_>) -> Self {
        Self::with_spare(run, &mut LookaheadSpare::default())
    }

    /// Batch that takes what an earlier one allocated.
    pub(super) fn with_spare(run: &'r PlacePass<'_>, spare: &mut LookaheadSpare) -> Self {
        let storage = match run.uniform_arrival() {
            Some(arrival) => {
                let nodes = HypotheticalNodes::new(run.state(), arrival, spare.chunk.take());
                LookaheadStorage::Columns(Box::new(nodes))
            }
            None => LookaheadStorage::Entries {
                state: run.state(),
                chunk: Box::new(NodeChunk::detached()),
            },
        };
        Self {
            storage,
            contenders: Vec::with_capacity(CHUNK_SIZE),
            scratch: spare.scratch.take().unwrap_or_else(|| Box::new(ScoreScratch::new())),
        }
    }

    /// Keeps what the batch allocated.
    pub(super) fn into_spare(self) -> LookaheadSpare {
        LookaheadSpare {
            chunk: match self.storage {
                LookaheadStorage::Columns(nodes) => Some(nodes.into_chunk()),
                LookaheadStorage::Entries { .. } => None,
            },
            scratch: Some(self.scratch),
        }
    }

    pub(super) fn clear(&mut self) {
        self.contenders.clear();
        if let LookaheadStorage::Columns(hypothetical) = &mut self.storage {
            hypothetical.clear();
        }
    }

    /// Number of free places.
    pub(super) fn remaining(&self) -> usize {
        CHUNK_SIZE - self.contenders.len()
    }

    /// Adds the states of a node after one more task, two more, and so on, up to `depth` or to the free places. `taken`
    /// is the number of tasks that it took.
    pub(super) fn add(&mut self, run: &PlacePass<'_>, number: u32, slot: NodeSlot, taken: u32, depth: u32) {
        let depth = depth.min(u32::try_from(self.remaining()).unwrap_or(0));
        match &mut self.storage {
            LookaheadStorage::Columns(hypothetical) => {
                (1..=depth).for_each(|more| hypothetical.add(slot, taken + more));
            }
            LookaheadStorage::Entries {
                state: cluster_state,
                chunk,
            } => {
                let Some(mut entry) = cluster_state.node(slot).map(|entry| run.entry_after(entry, taken)) else {
                    return;
                };
                for at in self.contenders.len()..self.contenders.len() + depth as usize {
                    entry = run.entry_after(&entry, 1);
                    chunk.set_entry(at, Some(entry.clone().into()));
                    chunk.set_slot(at, slot);
                }
            }
        }
        self.contenders.extend((0..depth).map(|_| number));
    }

    /// Adds a node as it is. The number of its contender is its slot.
    pub(super) fn add_present(&mut self, slot: NodeSlot) {
        match &mut self.storage {
            LookaheadStorage::Columns(hypothetical) => hypothetical.add(slot, 0),
            LookaheadStorage::Entries {
                state: cluster_state,
                chunk,
            } => {
                chunk.set_entry(self.contenders.len(), cluster_state.node(slot).cloned());
                chunk.set_slot(self.contenders.len(), slot);
            }
        }
        self.contenders.push(slot);
    }

    /// Scores all added states, in their order.
    pub(super) fn score_all(&mut self, run: &PlacePass<'_>, mut say: impl FnMut(u32, Option<u64>)) {
        let (chunk, among) = hypothetical_chunk(&mut self.storage, self.contenders.len());
        let scratch = &mut *self.scratch;
        let passed = run.score_chunk(chunk, &among, scratch);
        for (place, number) in self.contenders.iter().enumerate() {
            say(*number, passed.get(place).then(|| rank_score(scratch.total(place))));
        }
    }

    /// Scores all added states, in their order, each by its own state. False: scores do not sum up exactly.
    pub(super) fn score_apart(&mut self, run: &PlacePass<'_>, mut say: impl FnMut(u32, Option<OwnScore>)) -> bool {
        let (chunk, among) = hypothetical_chunk(&mut self.storage, self.contenders.len());
        let scratch = &mut *self.scratch;
        let (passed, exact) = run.score_chunk_apart(chunk, &among, scratch);
        for (place, number) in self.contenders.iter().enumerate() {
            say(*number, passed.get(place).then(|| scratch.score_apart(place)));
        }
        exact
    }
}

/// Chunk of the added states.
fn hypothetical_chunk<'s>(storage: &'s mut LookaheadStorage<'_>, count: usize) -> (&'s NodeChunk, NodeMask) {
    match storage {
        LookaheadStorage::Columns(hypothetical) => hypothetical.chunk(),
        LookaheadStorage::Entries { chunk, .. } => (&**chunk, NodeMask::first_n(count)),
    }
}

/// Depth of one lookahead: somewhat more than the nodes took so far.
pub(super) fn lookahead_depth(placed: usize, visited: usize) -> u32 {
    let each = u32::try_from(placed / visited.max(1)).unwrap_or(u32::MAX);
    if each < 2 { 1 } else { (each + each / 4 + 1).min(64) }
}
