//! Rank keys of the nodes of a pass: of every node that passes, or, with stored verdicts, of the chunks that may hold the best
//! nodes.

use super::pass::PlacePass;
use super::ranking::{NodeRankKey, keep_smallest, rank_key, rank_score};
use crate::decide::candidates::{ChunkSlice, NodeCandidates};
use crate::decide::class_scorers::{OutOfRangeScores, ScoreScratch};
use crate::decide::hook_inputs::HookInputs;
use crate::decide::query::NodeQuery;
use crate::decide::score_pass::store_totals;
use crate::decide::verdict_cache::{JudgedTasks, VerdictReuse};
use crate::model::{ClusterState, NodeMask, Problem, TaskClass, TaskStatus};
use crate::plugin::ChunkScores;
use crate::policy::Policy;

/// Number of chunks between two checks for cancellation.
const CANCEL_CHECK_INTERVAL: usize = 256;

/// Keys of nodes, and of chunks whose verdicts are stored.
#[derive(Default)]
struct KeyCollector {
    keys: Vec<NodeRankKey>,
    /// Key of the best node of a chunk, with the number of its slice.
    heads: Vec<(NodeRankKey, usize)>,
}

impl KeyCollector {
    fn add_nodes(&mut self, state: &ClusterState, slice: &ChunkSlice<'_>, totals: &ChunkScores) {
        let keys = slice
            .candidates
            .iter()
            .map(|offset| key_at(state, slice, totals, offset));
        self.keys.extend(keys);
    }
}

fn key_at(state: &ClusterState, slice: &ChunkSlice<'_>, totals: &ChunkScores, offset: usize) -> NodeRankKey {
    let slot = slice.slot(offset);
    let total = totals.get(offset).copied().unwrap_or(0.0);
    rank_key(rank_score(total), state.rank(slot), slot)
}

impl<'a> PlacePass<'a> {
    /// The pass with stored verdicts of its class, if there are some or they may be stored.
    pub(super) fn with_reuse(
        self,
        verdicts: Option<VerdictReuse<'a>>,
        policy: &Policy,
        query: &NodeQuery,
        class: &TaskClass,
    ) -> Self {
        let reuse = verdicts.and_then(|verdicts| {
            let filters = self.filterers.iter();
            let inputs = HookInputs::of(filters.map(|filter| Some(filter.outside_inputs())));
            let tasks = JudgedTasks::Placed {
                after_release: self.arriving_task.status() == TaskStatus::Pipelined,
            };
            verdicts.open(self.state, policy, query, tasks, class, inputs)
        });
        Self { reuse, ..self }
    }

    /// Rank keys of nodes that pass, including the best `count` nodes. `None`: cancelled.
    pub(super) fn rank_keys(
        &mut self,
        candidates: &NodeCandidates<'_>,
        count: usize,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<NodeRankKey>>, Problem> {
        let mut found = KeyCollector::default();
        let mut scratch = ScoreScratch::new();
        let mut outside = OutOfRangeScores::default();
        let surveyed = self.survey(candidates)?;
        match &mut self.reuse {
            Some(reuse) => reuse.set_score_inputs(self.scorers.outside_inputs()),
            None => found.keys.reserve(candidates.len()),
        }
        for (number, whole) in candidates.slices.iter().enumerate() {
            if number % CANCEL_CHECK_INTERVAL == CANCEL_CHECK_INTERVAL - 1 && stop() {
                return Ok(None);
            }
            let passing = surveyed.as_ref().and_then(|passing| passing.get(number)).copied();
            let slice = ChunkSlice {
                candidates: passing.unwrap_or_else(|| self.filter_slice(whole)),
                ..*whole
            };
            if slice.candidates.is_empty() {
                continue;
            }
            if let Some(head) = self.stored_head(whole) {
                found.heads.push((head, number));
                continue;
            }
            self.scorers
                .record_out_of_range(self.state, &slice, &mut scratch, &mut outside);
            self.scorers.score_slice(&slice, &mut scratch, |_, _, _| {});
            let stored = store_totals(self.reuse.as_mut(), self.state, whole, &slice, &scratch.totals);
            match stored {
                Some(head) => found
                    .heads
                    .push((key_at(self.state, whole, &scratch.totals, head), number)),
                None => found.add_nodes(self.state, &slice, &scratch.totals),
            }
        }
        self.scorers.reject_out_of_range(outside)?;
        self.add_best_chunks(candidates, count, &mut found);
        Ok(Some(found.keys))
    }

    /// Adds the nodes of stored chunks that may be among the best `count`, and ends the use of stored verdicts.
    fn add_best_chunks(&mut self, candidates: &NodeCandidates<'_>, count: usize, found: &mut KeyCollector) {
        let Some(reuse) = self.reuse.take() else { return };
        let mut heads = std::mem::take(&mut found.heads);
        // That many nodes are better than the best of any other chunk.
        keep_smallest(&mut heads, count);
        for (_, number) in heads {
            let slice = candidates.slices.get(number);
            let verdict = slice.and_then(|slice| Some((slice, reuse.filtered(slice)?, reuse.scored(slice)?)));
            let Some((slice, filtered, scored)) = verdict else {
                continue;
            };
            let slice = ChunkSlice {
                candidates: filtered.passed,
                ..*slice
            };
            found.add_nodes(self.state, &slice, &scored.totals);
        }
        reuse.finish();
    }

    /// Nodes of a slice that pass every filter, by the stored verdict if there is one.
    fn filter_slice(&mut self, slice: &ChunkSlice<'_>) -> NodeMask {
        if let Some(reuse) = &mut self.reuse
            && let Some(stored) = reuse.filtered(slice)
        {
            let passed = stored.passed;
            reuse.count_reused();
            return passed;
        }
        let passed = self.passing_nodes(slice.chunk, &slice.candidates);
        if let Some(reuse) = &mut self.reuse {
            reuse.put_filtered(slice, passed, &[]);
        }
        passed
    }

    /// Shows the nodes that pass to the scorers, if their scores depend on them; returns these nodes, slice by slice.
    fn survey(&mut self, candidates: &NodeCandidates<'_>) -> Result<Option<Vec<NodeMask>>, Problem> {
        if !self.scorers.need_survey() {
            return Ok(None);
        }
        let slices = &candidates.slices;
        let passing: Vec<NodeMask> = slices.iter().map(|slice| self.filter_slice(slice)).collect();
        self.scorers.survey_slices(slices, &passing, self.reuse.as_mut())?;
        Ok(Some(passing))
    }

    /// Key of the best node of a chunk whose scores are stored.
    fn stored_head(&mut self, whole: &ChunkSlice<'_>) -> Option<NodeRankKey> {
        let reuse = self.reuse.as_mut()?;
        let scored = reuse.scored(whole)?;
        let head = key_at(self.state, whole, &scored.totals, scored.head);
        reuse.count_reused();
        Some(head)
    }
}
