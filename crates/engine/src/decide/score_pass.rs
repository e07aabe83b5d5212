//! Scoring of one class of tasks, chunk by chunk.

use std::sync::Arc;

use pumice_kernels::selection::contenders;

use super::candidates::{ChunkSlice, NodeCandidates};
use super::class_scorers::{ClassScorers, OutOfRangeScores, ScoreScratch, append_totals};
use super::classes::{ChunkVisitor, ClassResult};
use super::filter::FilterPass;
use super::hook_inputs::HookInputs;
use super::plugin_selection::PluginSelection;
use super::query::{FilterDetail, ScorePart, ScoreQuery, ScoreSheet};
use super::top::{RankedNode, TopNodes};
use super::verdict_cache::{ClassReuse, JudgedTasks, VerdictReuse};
use crate::model::{CHUNK_SIZE, ClusterState, NodeMask, NodeSlot, Problem, TaskClass};
use crate::plugin::{ChunkScores, PluginContext};
use crate::policy::Policy;
/// Scoring of one class, which visits the nodes.
pub(super) struct ScorePass<'a> {
    state: &'a ClusterState,
    candidates: &'a NodeCandidates<'a>,
    filter_pass: Option<FilterPass<'a>>,
    scorers: ClassScorers<'a>,
    out_of_range: OutOfRangeScores<'a>,
    collector: ScoreCollector,
    /// Candidates of slices not yet scored that pass the filter, if the scorers surveyed them.
    surveyed: Option<std::vec::IntoIter<NodeMask>>,
    /// Stored verdicts. `None`: the class is evaluated without them.
    reuse: Option<ClassReuse<'a>>,
}

/// Collector of scored nodes.
enum ScoreCollector {
    All(ScoreSheet),
    Best(TopNodes),
}

impl<'a> ScorePass<'a> {
    pub(super) fn new<'p: 'a>(
        context: PluginContext<'a>,
        selection: &PluginSelection<'p>,
        query: &'a ScoreQuery,
        candidates: &'a NodeCandidates<'a>,
        class: &'a TaskClass,
    ) -> Result<Self, Problem> {
        let scorers = ClassScorers::new(selection, context, class, query)?;
        let filter_pass = if query.with_filter {
            let filter_pass = FilterPass::new(context, selection, &query.node_query, candidates, class)?;
            let with_fit = query.node_query.detail >= FilterDetail::Nodes;
            Some(if with_fit {
                filter_pass.with_fit_slots(candidates.len())
            } else {
                filter_pass
            })
        } else {
            None
        };
        let found = match query.limit {
            Some(limit) => ScoreCollector::Best(TopNodes::new(limit)),
            None => ScoreCollector::All(scorers.empty_sheet(candidates.len())),
        };
        Ok(Self {
            state: context.cluster_state,
            candidates,
            filter_pass,
            scorers,
            out_of_range: OutOfRangeScores::default(),
            collector: found,
            surveyed: None,
            reuse: None,
        })
    }

    /// True if filters and scores read nothing but the nodes that they judge.
    pub(super) fn reads_own_nodes_only(&self) -> bool {
        let is_empty = |inputs: Option<HookInputs>| inputs.is_some_and(|inputs| inputs.has_no_numbers());
        is_empty(self.filter_inputs()) && is_empty(self.scorers.outside_inputs())
    }

    /// Inputs of the filters from outside of chunks; `None`: some filter reads more.
    fn filter_inputs(&self) -> Option<HookInputs> {
        match &self.filter_pass {
            Some(filter_pass) => filter_pass.outside_inputs(),
            None => Some(HookInputs::default()),
        }
    }

    /// The pass with stored verdicts of its class, if there are some or they may be stored.
    pub(super) fn with_reuse(
        self,
        verdicts: Option<VerdictReuse<'a>>,
        policy: &Policy,
        query: &ScoreQuery,
        class: &TaskClass,
    ) -> Self {
        let reuse = verdicts.and_then(|verdicts| {
            let tasks = match &self.filter_pass {
                Some(_) => JudgedTasks::Filtered,
                None => JudgedTasks::Unfiltered,
            };
            verdicts.open(
                self.state,
                policy,
                &query.node_query,
                tasks,
                class,
                self.filter_inputs(),
            )
        });
        Self { reuse, ..self }
    }
}

impl ScorePass<'_> {
    /// Candidates of one chunk that pass the filter.
    fn filter_slice(&mut self, slice: &ChunkSlice<'_>) -> NodeMask {
        if let Some(filter_pass) = &mut self.filter_pass {
            return filter_pass.filter_slice(slice, self.reuse.as_mut());
        }
        if let Some(reuse) = self.reuse.as_mut().filter(|reuse| reuse.filtered(slice).is_none()) {
            reuse.put_filtered(slice, slice.candidates, &[]);
        }
        slice.candidates
    }

    /// Shows the candidates that pass to the scorers that depend on them.
    fn survey(&mut self, slices: &[ChunkSlice<'_>]) -> Result<(), Problem> {
        let passing: Vec<NodeMask> = slices.iter().map(|slice| self.filter_slice(slice)).collect();
        self.scorers.survey_slices(slices, &passing, self.reuse.as_mut())?;
        self.surveyed = Some(passing.into_iter());
        Ok(())
    }

    /// True if the collector reads totals only.
    fn reads_totals_only(&self) -> bool {
        match &self.collector {
            ScoreCollector::Best(_) => true,
            ScoreCollector::All(_) => self.scorers.shown_columns.is_empty(),
        }
    }

    /// Collects the candidates of a chunk by stored totals; false: none are stored.
    fn collect_stored(&mut self, whole: &ChunkSlice<'_>, slice: &ChunkSlice<'_>) -> bool {
        let Some(scored) = self.reuse.as_ref().and_then(|reuse| reuse.scored(whole)) else {
            return false;
        };
        match &mut self.collector {
            ScoreCollector::All(sheet) => append_totals(slice, &scored.totals, sheet),
            ScoreCollector::Best(top) => {
                if top.offer_head(ranked_node(self.state, slice, scored.head, &scored.totals)) {
                    offer_nodes(self.state, slice, &scored.totals, top);
                }
            }
        }
        if let Some(reuse) = &mut self.reuse {
            reuse.count_reused();
        }
        true
    }
}

impl ChunkVisitor for ScorePass<'_> {
    type Output = ScoreSheet;

    fn prepare(&mut self, slices: &[ChunkSlice<'_>]) -> Result<(), Problem> {
        if self.scorers.need_survey() {
            self.survey(slices)?;
        }
        let reads_totals_only = self.reads_totals_only();
        if let Some(reuse) = &mut self.reuse {
            let inputs = self.scorers.outside_inputs().filter(|_| reads_totals_only);
            reuse.set_score_inputs(inputs);
        }
        Ok(())
    }

    fn visit(&mut self, whole: &ChunkSlice<'_>, scratch: &mut ScoreScratch) {
        let surveyed = self
            .surveyed
            .as_mut()
            .map(|masks| masks.next().unwrap_or(NodeMask::NONE));
        let among = surveyed.unwrap_or_else(|| self.filter_slice(whole));
        if among.is_empty() {
            return;
        }
        let slice = ChunkSlice {
            candidates: among,
            ..*whole
        };
        if self.collect_stored(whole, &slice) {
            return;
        }
        self.scorers
            .record_out_of_range(self.state, &slice, scratch, &mut self.out_of_range);
        match &mut self.collector {
            ScoreCollector::All(sheet) => self.scorers.append_slice(&slice, scratch, sheet),
            ScoreCollector::Best(top) => {
                self.scorers.score_slice(&slice, scratch, |_, _, _| {});
                offer_nodes(self.state, &slice, &scratch.totals, top);
            }
        }
        store_totals(self.reuse.as_mut(), self.state, whole, &slice, &scratch.totals);
    }

    fn finish(self) -> ClassResult<ScoreSheet> {
        self.scorers.reject_out_of_range(self.out_of_range)?;
        if let Some(reuse) = self.reuse {
            reuse.finish();
        }
        let mut sheet = match self.collector {
            ScoreCollector::Best(top) => best_sheet(self.state, top, &self.scorers),
            ScoreCollector::All(sheet) => match self.candidates.caller_order(&sheet.nodes) {
                Some(indexes) => reorder(&sheet, &indexes),
                None => sheet,
            },
        };
        sheet.filter = self.filter_pass.map(FilterPass::verdict);
        Ok((sheet, self.scorers.warnings()))
    }
}

/// Stores the totals of a chunk. Returns the place of its best node; `None`: they cannot be stored.
pub(super) fn store_totals(
    reuse: Option<&mut ClassReuse<'_>>,
    cluster_state: &ClusterState,
    whole: &ChunkSlice<'_>,
    slice: &ChunkSlice<'_>,
    totals: &ChunkScores,
) -> Option<usize> {
    let reuse = reuse.filter(|reuse| reuse.stores_scores(whole))?;
    let mut first = TopNodes::new(1);
    offer_nodes(cluster_state, slice, totals, &mut first);
    let head = first.finish().first()?.slot as usize % CHUNK_SIZE;
    reuse.put_scores(whole, totals, head);
    Some(head)
}

/// Offers the nodes of one chunk that may be among the best.
fn offer_nodes(cluster_state: &ClusterState, slice: &ChunkSlice<'_>, totals: &ChunkScores, top: &mut TopNodes) {
    for offset in contenders(totals, top.threshold()).and(&slice.candidates).iter() {
        top.offer(ranked_node(cluster_state, slice, offset, totals));
    }
}

/// Node at a place with its total.
fn ranked_node(
    cluster_state: &ClusterState,
    slice: &ChunkSlice<'_>,
    offset: usize,
    totals: &ChunkScores,
) -> RankedNode {
    let slot = slice.slot(offset);
    RankedNode {
        total: totals.get(offset).copied().unwrap_or(0.0),
        rank: cluster_state.rank(slot),
        slot,
    }
}

/// Sheet of the best nodes, best first.
fn best_sheet(cluster_state: &ClusterState, top: TopNodes, scorers: &ClassScorers<'_>) -> ScoreSheet {
    let best = top.finish();
    if scorers.shown_columns.is_empty() {
        return ScoreSheet {
            nodes: best.iter().map(|node| node.slot).collect(),
            totals: best.iter().map(|node| node.total).collect(),
            independent: scorers.are_independent(),
            ..ScoreSheet::default()
        };
    }
    // Parts are computed for the best nodes only.
    let mut by_slot: Vec<(NodeSlot, usize)> = best.iter().map(|node| node.slot).zip(0..).collect();
    by_slot.sort_unstable();
    let winners = NodeCandidates::at_slots(cluster_state, by_slot.iter().map(|&(slot, _)| slot));
    let mut indexes: Vec<(usize, usize)> = by_slot.iter().map(|&(_, place)| place).zip(0..).collect();
    indexes.sort_unstable();
    let indexes: Vec<usize> = indexes.into_iter().map(|(_, index)| index).collect();
    let (mut sheet, mut scratch) = (scorers.empty_sheet(best.len()), ScoreScratch::new());
    for slice in &winners.slices {
        scorers.append_slice(slice, &mut scratch, &mut sheet);
    }
    reorder(&sheet, &indexes)
}

/// Same sheet in another order: row `i` is the old row `indexes[i]`.
fn reorder(sheet: &ScoreSheet, indexes: &[usize]) -> ScoreSheet {
    fn pick<T: Copy>(rows: &[T], indexes: &[usize]) -> Vec<T> {
        indexes.iter().filter_map(|&index| rows.get(index).copied()).collect()
    }
    ScoreSheet {
        nodes: pick(&sheet.nodes, indexes),
        totals: pick(&sheet.totals, indexes),
        parts: sheet
            .parts
            .iter()
            .map(|part| ScorePart {
                plugin: Arc::clone(&part.plugin),
                part: part.part,
                scores: pick(&part.scores, indexes),
            })
            .collect(),
        filter: None,
        independent: sheet.independent,
        ahead: Vec::new(),
    }
}
