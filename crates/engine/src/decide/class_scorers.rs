//! Scorers of one task class: columns of scores, sums over plugins, and the ranges that scores must not leave.

use std::sync::Arc;

use pumice_kernels::totals::sum_parts;

use super::candidates::ChunkSlice;
use super::plugin_selection::{PluginScorer, PluginSelection};
use super::query::{ScorePart, ScoreQuery, ScoreSheet};
use crate::model::{CHUNK_SIZE, ClusterState, ErrorCode, NodeChunk, NodeMask, NodeSlot, Problem, TaskClass};
use crate::plugin::{ChunkScores, MAX_PARTS, NodeScorer, PluginContext};

/// Number of parts for which each scratch has columns.
const USUAL_PARTS: usize = 4;

/// Columns for intermediate results, each beginning at a cache line.
#[repr(C, align(64))]
pub(super) struct ScoreScratch {
    columns: [ChunkScores; USUAL_PARTS],
    plugin_sum: ChunkScores,
    pub(super) totals: ChunkScores,
    /// Columns for scorers with more parts, or with parts that are summed at the end.
    batch: Option<Box<BatchScratch>>,
}

/// Columns that few policies need.
#[repr(C, align(64))]
struct BatchScratch {
    columns: [ChunkScores; MAX_PARTS],
    plugin_sum: ChunkScores,
    /// Sum over plugins of the parts that are summed at the end.
    totals: ChunkScores,
}

impl BatchScratch {
    fn new() -> Self {
        Self {
            columns: [[0.0; CHUNK_SIZE]; MAX_PARTS],
            plugin_sum: [0.0; CHUNK_SIZE],
            totals: [0.0; CHUNK_SIZE],
        }
    }

    /// Scores a plugin and adds its parts to both totals; `whole` becomes the sum of all of them.
    fn add_plugin(
        &mut self,
        scorer: &dyn NodeScorer,
        chunk: &NodeChunk,
        weight: f64,
        whole: &mut ChunkScores,
        totals: &mut ChunkScores,
    ) -> usize {
        let count = scorer.parts().len().min(MAX_PARTS);
        let columns = self.columns.get_mut(..count).unwrap_or_default();
        scorer.score(chunk, columns);
        let (by_node, batch) = columns.split_at(scorer.node_parts().min(count));
        sum_parts(false, by_node, weight, whole, totals);
        if !batch.is_empty() {
            sum_parts(false, batch, weight, &mut self.plugin_sum, &mut self.totals);
            whole
                .iter_mut()
                .zip(&self.plugin_sum)
                .for_each(|(whole, more)| *whole += more);
        }
        count
    }
}

impl ScoreScratch {
    /// Sum over plugins at a place.
    pub(super) fn total(&self, offset: usize) -> f64 {
        self.totals.get(offset).copied().unwrap_or(0.0)
    }

    /// Sums at an offset after [`ClassScorers::score_slice_apart`]: the sum of the parts that are summed node by node,
    /// and the sum of the parts that are summed at the end.
    pub(super) fn score_apart(&self, offset: usize) -> (f64, f64) {
        let batch = self.batch.as_ref().and_then(|batch| batch.totals.get(offset));
        (self.total(offset), batch.copied().unwrap_or(0.0))
    }

    pub(super) fn new() -> Self {
        Self {
            columns: [[0.0; CHUNK_SIZE]; USUAL_PARTS],
            plugin_sum: [0.0; CHUNK_SIZE],
            totals: [0.0; CHUNK_SIZE],
            batch: None,
        }
    }

    /// Columns for the parts of a scorer.
    fn columns(&mut self, count: usize) -> &mut [ChunkScores] {
        if count <= USUAL_PARTS {
            return self.columns.get_mut(..count).unwrap_or_default();
        }
        let batch = self.batch.get_or_insert_with(|| Box::new(BatchScratch::new()));
        batch.columns.get_mut(..count).unwrap_or_default()
    }
}

/// Nodes whose score left the range of a scorer: scorer number, node name, score.
#[derive(Debug, Default)]
pub(super) struct OutOfRangeScores<'v>(Vec<(usize, &'v str, f64)>);

/// Scorers of a query for one class, and the columns to show.
pub(super) struct ClassScorers<'a> {
    pub(super) scorers: Vec<PluginScorer<'a>>,
    /// True if a plugin has more parts than the usual columns, or parts that are summed at the end.
    need_batch: bool,
    /// Columns of the result: number of the scorer, and of its part; `None`: the whole plugin.
    pub(super) shown_columns: Vec<(usize, Option<usize>)>,
}

impl<'a> ClassScorers<'a> {
    /// Scorers of a query for a class.
    ///
    /// # Errors
    /// A plugin cannot read something in the class.
    pub(super) fn new<'p: 'a>(
        selection: &PluginSelection<'p>,
        context: PluginContext<'a>,
        class: &'a TaskClass,
        query: &ScoreQuery,
    ) -> Result<Self, Problem> {
        let scores = selection.scorers(context, class)?;
        let mut shown = Vec::new();
        for (number, score) in scores.iter().enumerate() {
            let parts = score.scorer.as_ref().map_or(&[] as &[_], |scorer| scorer.parts());
            if query.with_parts && parts != [""] {
                shown.extend((0..parts.len()).map(|part| (number, Some(part))));
            }
            // A plugin's sum is shown if the plugin was named, or after its parts if it has none.
            if selection.is_named() || (query.with_parts && (parts.is_empty() || parts == [""])) {
                shown.push((number, None));
            }
        }
        Ok(Self {
            need_batch: need_batch(&scores),
            scorers: scores,
            shown_columns: shown,
        })
    }

    /// Scorers of the policy's tiers, for totals only.
    pub(super) fn totals_only<'p: 'a>(
        selection: &PluginSelection<'p>,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> Result<Self, Problem> {
        let scorers = selection.scorers(context, class)?;
        Ok(Self {
            need_batch: need_batch(&scorers),
            scorers,
            shown_columns: Vec::new(),
        })
    }

    /// True if scores depend on the candidates.
    pub(super) fn need_survey(&self) -> bool {
        let mut scorers = self.scorers.iter().filter_map(|score| score.scorer.as_ref());
        scorers.any(|scorer| scorer.needs_survey())
    }

    /// True if the scores of a node do not depend on the other candidates. A score that may leave its range makes the
    /// whole class fail.
    pub(super) fn are_independent(&self) -> bool {
        !self.need_survey() && !self.have_ranges()
    }

    /// Removes a node from the candidates. Returns true if the candidates must be surveyed again.
    pub(super) fn leave(&self, slot: NodeSlot) -> bool {
        let scorers = self.scorers.iter().filter_map(|score| score.scorer.as_ref());
        // Each scorer counts the node.
        scorers.filter(|scorer| scorer.leave(slot)).count() > 0
    }

    /// True if a score may leave its range, which must then be checked for every node.
    pub(super) fn have_ranges(&self) -> bool {
        let mut scorers = self.scorers.iter().filter_map(|score| score.scorer.as_ref());
        scorers.any(|scorer| scorer.range().is_some())
    }

    pub(super) fn warnings(&self) -> Vec<Problem> {
        let scorers = self.scorers.iter().filter_map(|score| score.scorer.as_ref());
        scorers.flat_map(|scorer| scorer.warnings()).collect()
    }

    /// Records the queried nodes on which a plugin's score leaves its range.
    pub(super) fn record_out_of_range<'v>(
        &self,
        cluster_state: &'v ClusterState,
        slice: &ChunkSlice<'_>,
        scratch: &mut ScoreScratch,
        outside: &mut OutOfRangeScores<'v>,
    ) {
        for (number, score) in self.scorers.iter().enumerate() {
            let Some((scorer, (low, high))) = score.scorer.as_ref().and_then(|scorer| Some((scorer, scorer.range()?)))
            else {
                continue;
            };
            let columns = scratch.columns(scorer.parts().len());
            scorer.score(slice.chunk, columns);
            let sum = |offset: usize| -> f64 { columns.iter().filter_map(|column| column.get(offset)).sum() };
            let beyond = slice.candidates.iter().map(|offset| (offset, sum(offset)));
            let beyond = beyond.filter(|(_, score)| !(low..=high).contains(score));
            outside.0.extend(beyond.filter_map(|(offset, score)| {
                let node = cluster_state.node(slice.slot(offset))?;
                Some((number, &*node.record.name, score))
            }));
        }
    }

    /// Rejects the class if a score left its range, as kube-scheduler rejects the pod; the first such node is named.
    pub(super) fn reject_out_of_range(&self, outside: OutOfRangeScores<'_>) -> Result<(), Problem> {
        let Some(first) = outside.0.iter().map(|(number, ..)| *number).min() else {
            return Ok(());
        };
        let nodes = outside.0.into_iter().filter(|(number, ..)| *number == first);
        let nodes = nodes.map(|(_, name, score)| (name, score)).collect();
        let score = self.scorers.get(first);
        let range = score.and_then(|score| score.scorer.as_ref()?.range());
        match (score, range) {
            (Some(score), Some(range)) => Err(out_of_range(score.plugin, range, nodes)),
            _ => Ok(()),
        }
    }

    /// Scores one chunk: the sum over plugins. `show` receives each plugin's parts and sum.
    pub(super) fn score_slice(
        &self,
        slice: &ChunkSlice<'_>,
        scratch: &mut ScoreScratch,
        mut show: impl FnMut(usize, &[ChunkScores], &ChunkScores),
    ) {
        if self.need_batch {
            return self.score_slice_in_batch(slice, scratch, show);
        }
        let ScoreScratch {
            columns,
            plugin_sum: whole,
            totals,
            batch: _,
        } = scratch;
        if self.scorers.is_empty() {
            totals.fill(0.0);
        }
        for (number, score) in self.scorers.iter().enumerate() {
            let count = score.scorer.as_ref().map_or(0, |scorer| scorer.parts().len());
            let columns = columns.get_mut(..count).unwrap_or_default();
            if let Some(scorer) = &score.scorer {
                scorer.score(slice.chunk, columns);
            }
            sum_parts(number == 0, columns, score.weight, whole, totals);
            show(number, columns, whole);
        }
    }

    /// Scores one chunk like [`Self::score_slice`], in the order of sums that parts need which are summed at the end.
    fn score_slice_in_batch(
        &self,
        slice: &ChunkSlice<'_>,
        scratch: &mut ScoreScratch,
        show: impl FnMut(usize, &[ChunkScores], &ChunkScores),
    ) {
        self.sum_apart(slice, scratch, show);
        let ScoreScratch { totals, batch, .. } = scratch;
        if let Some(batch) = batch {
            totals
                .iter_mut()
                .zip(&batch.totals)
                .for_each(|(total, more)| *total += more);
        }
    }

    /// Separate sums: of the parts that are summed node by node, and of the parts that are summed at the end.
    pub(super) fn sum_apart(
        &self,
        slice: &ChunkSlice<'_>,
        scratch: &mut ScoreScratch,
        mut show: impl FnMut(usize, &[ChunkScores], &ChunkScores),
    ) {
        let ScoreScratch {
            columns: _,
            plugin_sum: whole,
            totals,
            batch,
        } = scratch;
        let batch = batch.get_or_insert_with(|| Box::new(BatchScratch::new()));
        totals.fill(0.0);
        batch.totals.fill(0.0);
        for (number, score) in self.scorers.iter().enumerate() {
            whole.fill(0.0);
            let count = score.scorer.as_ref().map_or(0, |scorer| {
                batch.add_plugin(&**scorer, slice.chunk, score.weight, whole, totals)
            });
            show(number, batch.columns.get(..count).unwrap_or_default(), whole);
        }
    }

    /// Appends the nodes of one chunk with their scores.
    pub(super) fn append_slice(&self, slice: &ChunkSlice<'_>, scratch: &mut ScoreScratch, sheet: &mut ScoreSheet) {
        let columns = &mut sheet.parts;
        self.score_slice(slice, scratch, |number, parts, whole| {
            let shown = columns.iter_mut().zip(&self.shown_columns);
            for (column, (_, own)) in shown.filter(|(_, (of, _))| *of == number) {
                let scores = own.map_or(Some(whole), |own| parts.get(own));
                append_scores(&mut column.scores, scores.unwrap_or(whole), &slice.candidates);
            }
        });
        append_totals(slice, &scratch.totals, sheet);
    }

    pub(super) fn empty_sheet(&self, count: usize) -> ScoreSheet {
        let column = |&(number, own): &(usize, Option<usize>)| {
            let score = self.scorers.get(number)?;
            let parts = score.scorer.as_ref().map_or(&[] as &[_], |scorer| scorer.parts());
            Some(ScorePart {
                plugin: Arc::clone(score.plugin),
                part: own.and_then(|own| parts.get(own).copied()).unwrap_or_default(),
                scores: Vec::with_capacity(count),
            })
        };
        ScoreSheet {
            nodes: Vec::with_capacity(count),
            totals: Vec::with_capacity(count),
            parts: self.shown_columns.iter().filter_map(column).collect(),
            filter: None,
            independent: self.are_independent(),
            ahead: Vec::new(),
        }
    }
}

/// True if a plugin has more parts than the usual columns, or parts that are summed at the end.
fn need_batch(scorers: &[PluginScorer<'_>]) -> bool {
    let mut scorers = scorers.iter().filter_map(|score| score.scorer.as_ref());
    scorers.any(|scorer| scorer.parts().len() > USUAL_PARTS.min(scorer.node_parts()))
}

/// Appends the nodes of one chunk with their totals.
pub(super) fn append_totals(slice: &ChunkSlice<'_>, totals: &ChunkScores, sheet: &mut ScoreSheet) {
    append_scores(&mut sheet.totals, totals, &slice.candidates);
    slice.push_slots(&slice.candidates, &mut sheet.nodes);
}

/// Appends the scores of the nodes in the set.
fn append_scores(rows: &mut Vec<f64>, scores: &ChunkScores, among: &NodeMask) {
    if *among == NodeMask::ALL {
        rows.extend_from_slice(scores);
    } else {
        rows.extend(among.iter().filter_map(|offset| scores.get(offset).copied()));
    }
}

/// Largest number of nodes that a message names.
const MAX_NAMED_NODES: usize = 10;

fn out_of_range(plugin: &str, (low, high): (f64, f64), mut outside: Vec<(&str, f64)>) -> Problem {
    outside.sort_unstable_by(|a, b| a.0.cmp(b.0));
    let named: Vec<String> = outside
        .iter()
        .take(MAX_NAMED_NODES)
        .map(|(node, score)| format!("{score} on `{node}`"))
        .collect();
    let more = match outside.len().saturating_sub(MAX_NAMED_NODES) {
        0 => String::new(),
        more => format!(" and more on {more} other nodes"),
    };
    let message = format!("scores of `{plugin}` leave {low} to {high}: {}{more}", named.join(", "));
    Problem::new(ErrorCode::ScoreOutOfRange, "", message)
}
