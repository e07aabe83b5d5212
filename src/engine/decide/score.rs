//! Score: where should a task run?

use std::sync::Arc;

use super::candidates::{ChunkSlice, NodeCandidates};
use super::classes::{self, AccountLookup, ChunkVisitor, ClassResult};
use super::filter::{FilterPass, plugin_states_for};
use super::plugin_selection::{PluginScorer, PluginSelection};
use super::query::{FilterDetail, Parallelism, ScorePart, ScoreQuery, ScoreSheet, TaskResults};
use super::top::{RankedNode, TopNodes};
use crate::engine::kernel::kernel;
use crate::engine::model::{CHUNK_SIZE, ClusterState, NodeMask, NodeSlot, Problem, ProblemKind, TaskClass};
use crate::engine::plugin::{ChunkScores, MAX_PARTS, PrepareContext};
use crate::engine::policy::Policy;

/// Scores nodes for the tasks of a question, each class once.
///
/// Without `plugins`: the sum over the tiers' plugins that are switched on, in order. With `plugins`: the sum over these,
/// each asked as in [`filter`](super::filter()); one without the hook scores 0.
///
/// # Errors
/// `plugins` names one that the policy does not have or that is not served here; nothing was judged.
pub fn score(
    cluster_state: &ClusterState,
    policy: &Policy,
    query: &ScoreQuery,
) -> Result<TaskResults<ScoreSheet>, Problem> {
    let derived = plugin_states_for(cluster_state, policy, &query.node_query.plugins);
    let facts = PrepareContext {
        state: cluster_state,
        plugin_states: &derived,
    };
    Ok(score_with(facts, policy, query, Parallelism::SEQUENTIAL)?.unwrap_or_default())
}

/// As [`score()`], with what plugins keep beside the state; `None` as soon as the effort is to stop.
///
/// # Errors
/// As [`score()`].
pub fn score_with(
    facts: PrepareContext<'_>,
    policy: &Policy,
    query: &ScoreQuery,
    parallelism: Parallelism<'_>,
) -> Result<Option<TaskResults<ScoreSheet>>, Problem> {
    let asked = PluginSelection::of(policy, &query.node_query)?;
    let candidates = NodeCandidates::of(facts.state, query.node_query.candidates.as_deref());
    let accounts = AccountLookup::of(facts.state, policy, &query.node_query.plugins);
    Ok(classes::evaluate_classes(
        &query.node_query,
        accounts,
        parallelism,
        |classes| {
            let walks = classes
                .iter()
                .map(|class| ScorePass::new(facts, &asked, query, &candidates, class));
            classes::visit_chunks(walks.collect(), &candidates.slices, parallelism.is_cancelled)
        },
    ))
}

/// One class on its way over the nodes.
struct ScorePass<'a> {
    state: &'a ClusterState,
    candidates: &'a NodeCandidates<'a>,
    filter_pass: Option<FilterPass<'a>>,
    scorers: ClassScorers<'a>,
    out_of_range: OutOfRangeScores<'a>,
    collector: ScoreCollector,
}

/// The nodes found so far.
enum ScoreCollector {
    All(ScoreSheet),
    Best(TopNodes),
}

impl<'a> ScorePass<'a> {
    fn new<'p: 'a>(
        facts: PrepareContext<'a>,
        asked: &PluginSelection<'p>,
        query: &'a ScoreQuery,
        candidates: &'a NodeCandidates<'a>,
        class: &'a TaskClass,
    ) -> Result<Self, Problem> {
        let scorers = ClassScorers::new(asked, facts, class, query)?;
        let sieve = if query.with_filter {
            let sieve = FilterPass::new(facts, asked, &query.node_query, candidates, class)?;
            let with_fit = query.node_query.detail >= FilterDetail::Nodes;
            Some(if with_fit {
                sieve.with_fit_slots(candidates.len())
            } else {
                sieve
            })
        } else {
            None
        };
        let found = match query.limit {
            Some(limit) => ScoreCollector::Best(TopNodes::new(limit)),
            None => ScoreCollector::All(scorers.empty_sheet(candidates.len())),
        };
        Ok(Self {
            state: facts.state,
            candidates,
            filter_pass: sieve,
            scorers,
            out_of_range: OutOfRangeScores::default(),
            collector: found,
        })
    }
}

impl ChunkVisitor for ScorePass<'_> {
    type Output = ScoreSheet;

    fn visit(&mut self, part: &ChunkSlice<'_>, scratch: &mut ScoreScratch) {
        let among = self
            .filter_pass
            .as_mut()
            .map_or(part.candidates, |sieve| sieve.filter_slice(part));
        if among.is_empty() {
            return;
        }
        let part = ChunkSlice {
            candidates: among,
            ..*part
        };
        self.scorers
            .record_out_of_range(self.state, &part, scratch, &mut self.out_of_range);
        match &mut self.collector {
            ScoreCollector::All(sheet) => self.scorers.append_slice(&part, scratch, sheet),
            ScoreCollector::Best(top) => {
                self.scorers.score_slice(&part, scratch, |_, _, _| {});
                offer_nodes(self.state, &part, &scratch.totals, top);
            }
        }
    }

    fn finish(self) -> ClassResult<ScoreSheet> {
        self.scorers.reject_out_of_range(self.out_of_range)?;
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

/// Shows the nodes of one chunk that may be among the best.
fn offer_nodes(cluster_state: &ClusterState, part: &ChunkSlice<'_>, totals: &ChunkScores, top: &mut TopNodes) {
    for offset in contenders(totals, top.threshold()).and(&part.candidates).iter() {
        let slot = part.slot(offset);
        top.offer(RankedNode {
            total: totals.get(offset).copied().unwrap_or(0.0),
            rank: cluster_state.ranks().get(slot as usize).copied().unwrap_or(u32::MAX),
            slot,
        });
    }
}

/// The best nodes, best first.
fn best_sheet(cluster_state: &ClusterState, top: TopNodes, scorers: &ClassScorers<'_>) -> ScoreSheet {
    let best = top.finish();
    if scorers.shown_columns.is_empty() {
        return ScoreSheet {
            nodes: best.iter().map(|node| node.slot).collect(),
            totals: best.iter().map(|node| node.total).collect(),
            ..ScoreSheet::default()
        };
    }
    // The parts of the winners only.
    let mut by_slot: Vec<(NodeSlot, usize)> = best.iter().map(|node| node.slot).zip(0..).collect();
    by_slot.sort_unstable();
    let winners = NodeCandidates::at_slots(cluster_state, by_slot.iter().map(|&(slot, _)| slot));
    let mut indexes: Vec<(usize, usize)> = by_slot.iter().map(|&(_, place)| place).zip(0..).collect();
    indexes.sort_unstable();
    let indexes: Vec<usize> = indexes.into_iter().map(|(_, index)| index).collect();
    let (mut sheet, mut scratch) = (scorers.empty_sheet(best.len()), ScoreScratch::new());
    for part in &winners.slices {
        scorers.append_slice(part, &mut scratch, &mut sheet);
    }
    reorder(&sheet, &indexes)
}

kernel! {
    /// Places whose total may still be among the best: that reach the threshold, or are no number.
    fn contenders / contenders_portable(totals: &ChunkScores, threshold: f64) -> NodeMask {
        NodeMask::gather(|offset| {
            let total = totals.get(offset).copied().unwrap_or(0.0);
            (total >= threshold) | total.is_nan()
        })
    }
}

/// The same sheet, its row `i` being the old row `indexes[i]`.
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
    }
}

/// Columns to work in, each from the beginning of a line of the cache.
#[repr(C, align(64))]
pub(super) struct ScoreScratch {
    columns: [ChunkScores; MAX_PARTS],
    plugin_sum: ChunkScores,
    totals: ChunkScores,
}

impl ScoreScratch {
    /// The sum over plugins at a place.
    pub(super) fn total(&self, offset: usize) -> f64 {
        self.totals.get(offset).copied().unwrap_or(0.0)
    }

    pub(super) fn new() -> Self {
        Self {
            columns: [[0.0; CHUNK_SIZE]; MAX_PARTS],
            plugin_sum: [0.0; CHUNK_SIZE],
            totals: [0.0; CHUNK_SIZE],
        }
    }
}

/// Nodes on which scorers, by number, left their range, with their names and scores.
#[derive(Debug, Default)]
pub(super) struct OutOfRangeScores<'v>(Vec<(usize, &'v str, f64)>);

/// The scorers of a question for one class, and what of them to show.
pub(super) struct ClassScorers<'a> {
    scorers: Vec<PluginScorer<'a>>,
    /// Columns of the answer: which scorer, and which of its parts; `None`: the whole plugin.
    shown_columns: Vec<(usize, Option<usize>)>,
}

impl<'a> ClassScorers<'a> {
    fn new<'p: 'a>(
        asked: &PluginSelection<'p>,
        facts: PrepareContext<'a>,
        class: &'a TaskClass,
        query: &ScoreQuery,
    ) -> Result<Self, Problem> {
        let scores = asked.scorers(facts, class)?;
        let mut shown = Vec::new();
        for (number, score) in scores.iter().enumerate() {
            let parts = score.scorer.as_ref().map_or(&[] as &[_], |scorer| scorer.parts());
            if query.with_parts && parts != [""] {
                shown.extend((0..parts.len()).map(|part| (number, Some(part))));
            }
            // Alone, or after its parts when the plugin was asked for by name.
            if asked.is_named() || (query.with_parts && (parts.is_empty() || parts == [""])) {
                shown.push((number, None));
            }
        }
        Ok(Self {
            scorers: scores,
            shown_columns: shown,
        })
    }

    /// Those of the policy's tiers, for totals alone.
    pub(super) fn totals_only<'p: 'a>(
        asked: &PluginSelection<'p>,
        facts: PrepareContext<'a>,
        class: &'a TaskClass,
    ) -> Result<Self, Problem> {
        Ok(Self {
            scorers: asked.scorers(facts, class)?,
            shown_columns: Vec::new(),
        })
    }

    /// True if a score may leave bounds, which must be checked for every node.
    pub(super) fn have_ranges(&self) -> bool {
        let mut scorers = self.scorers.iter().filter_map(|score| score.scorer.as_ref());
        scorers.any(|scorer| scorer.range().is_some())
    }

    fn warnings(&self) -> Vec<Problem> {
        let scorers = self.scorers.iter().filter_map(|score| score.scorer.as_ref());
        scorers.flat_map(|scorer| scorer.warnings()).collect()
    }

    /// Notes where a plugin leaves its range among nodes that are asked about.
    pub(super) fn record_out_of_range<'v>(
        &self,
        cluster_state: &'v ClusterState,
        part: &ChunkSlice<'_>,
        scratch: &mut ScoreScratch,
        outside: &mut OutOfRangeScores<'v>,
    ) {
        for (number, score) in self.scorers.iter().enumerate() {
            let Some((scorer, (low, high))) = score.scorer.as_ref().and_then(|scorer| Some((scorer, scorer.range()?)))
            else {
                continue;
            };
            let columns = scratch.columns.get_mut(..scorer.parts().len()).unwrap_or_default();
            scorer.score(part.chunk, columns);
            let sum = |offset: usize| -> f64 { columns.iter().filter_map(|column| column.get(offset)).sum() };
            let beyond = part.candidates.iter().map(|offset| (offset, sum(offset)));
            let beyond = beyond.filter(|(_, score)| !(low..=high).contains(score));
            outside.0.extend(beyond.filter_map(|(offset, score)| {
                let node = cluster_state.node(part.slot(offset))?;
                Some((number, &*node.record.name, score))
            }));
        }
    }

    /// Refuses the class if a plugin left its range somewhere, as kube-scheduler refuses the pod: the first that did.
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

    /// Scores one chunk: the sum over plugins. `show` gets each plugin's parts and sum.
    pub(super) fn score_slice(
        &self,
        part: &ChunkSlice<'_>,
        scratch: &mut ScoreScratch,
        mut show: impl FnMut(usize, &[ChunkScores], &ChunkScores),
    ) {
        let ScoreScratch {
            columns,
            plugin_sum: whole,
            totals,
        } = scratch;
        if self.scorers.is_empty() {
            totals.fill(0.0);
        }
        for (number, score) in self.scorers.iter().enumerate() {
            let count = score.scorer.as_ref().map_or(0, |scorer| scorer.parts().len());
            let columns = columns.get_mut(..count).unwrap_or_default();
            if let Some(scorer) = &score.scorer {
                scorer.score(part.chunk, columns);
            }
            if number == 0 {
                sum_parts::<true>(columns, score.weight, whole, totals);
            } else {
                sum_parts::<false>(columns, score.weight, whole, totals);
            }
            show(number, columns, whole);
        }
    }

    /// Appends the nodes of one chunk with their scores.
    fn append_slice(&self, part: &ChunkSlice<'_>, scratch: &mut ScoreScratch, sheet: &mut ScoreSheet) {
        let columns = &mut sheet.parts;
        self.score_slice(part, scratch, |number, parts, whole| {
            let shown = columns.iter_mut().zip(&self.shown_columns);
            for (column, (_, own)) in shown.filter(|(_, (of, _))| *of == number) {
                let scores = own.map_or(Some(whole), |own| parts.get(own));
                append_scores(&mut column.scores, scores.unwrap_or(whole), &part.candidates);
            }
        });
        append_scores(&mut sheet.totals, &scratch.totals, &part.candidates);
        part.push_slots(&part.candidates, &mut sheet.nodes);
    }

    fn empty_sheet(&self, count: usize) -> ScoreSheet {
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
        }
    }
}

kernel! {
    /// Sums up a plugin's parts, from 0, and adds its sum times its weight to the totals, which the first plugin begins.
    /// Multiplying by 1 changes no bit.
    fn sum_parts / sum_parts_portable<const FIRST: bool>(
        parts: &[ChunkScores],
        weight: f64,
        whole: &mut ChunkScores,
        totals: &mut ChunkScores,
    ) {
        let before = |total: f64| if FIRST { 0.0 } else { total };
        let places = whole.iter_mut().zip(totals.iter_mut());
        match parts {
            [one] => {
                for ((whole, total), one) in places.zip(one) {
                    *whole = 0.0 + one;
                    *total = before(*total) + *whole * weight;
                }
            }
            [one, two] => {
                for ((whole, total), (one, two)) in places.zip(one.iter().zip(two)) {
                    *whole = 0.0 + one + two;
                    *total = before(*total) + *whole * weight;
                }
            }
            _ => {
                whole.fill(0.0);
                for part in parts {
                    whole.iter_mut().zip(part).for_each(|(whole, part)| *whole += part);
                }
                let places = whole.iter().zip(totals);
                places.for_each(|(whole, total)| *total = before(*total) + *whole * weight);
            }
        }
    }
}

/// Appends the scores of the nodes in the set.
fn append_scores(rows: &mut Vec<f64>, scores: &ChunkScores, among: &NodeMask) {
    if *among == NodeMask::ALL {
        rows.extend_from_slice(scores);
    } else {
        rows.extend(among.iter().filter_map(|offset| scores.get(offset).copied()));
    }
}

/// The first so many nodes are named.
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
    Problem::new(ProblemKind::FailedPrecondition, "SCORE_OUT_OF_RANGE", "", message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn column() -> impl Strategy<Value = Vec<f64>> {
        let score = prop_oneof![(0_u32..9).prop_map(f64::from), -1e9..1e9, Just(-0.0)];
        prop::collection::vec(score, CHUNK_SIZE)
    }

    fn array(column: &[f64]) -> ChunkScores {
        std::array::from_fn(|offset| column[offset])
    }

    /// What the kernel makes of totals.
    type SumKernel = fn(&[ChunkScores], f64, &mut ChunkScores, &mut ChunkScores);

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn every_processor_finds_the_same_contenders(
            column in column(),
            odd in prop::collection::vec((0..CHUNK_SIZE, prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-f64::INFINITY)]), 9),
            threshold in prop_oneof![(0_u32..9).prop_map(f64::from), Just(f64::NEG_INFINITY)],
        ) {
            let mut totals = array(&column);
            for (offset, total) in odd {
                totals[offset] = total;
            }
            let chosen = contenders(&totals, threshold);
            prop_assert_eq!(chosen, contenders_portable::<false>(&totals, threshold));
            for (offset, total) in totals.iter().enumerate() {
                prop_assert_eq!(chosen.get(offset), *total >= threshold || total.is_nan());
            }
        }

        #[test]
        fn every_processor_sums_the_same(
            parts in prop::collection::vec(column(), 0..=MAX_PARTS),
            before in column(),
            weight in -5..9_i32,
        ) {
            let (parts, before, weight): (Vec<ChunkScores>, _, _) =
                (parts.iter().map(|part| array(part)).collect(), array(&before), f64::from(weight));
            let kernels: [(bool, [SumKernel; 3]); 2] = [
                (true, [sum_parts::<true>, sum_parts_portable::<false, true>, sum_parts_portable::<true, true>]),
                (false, [sum_parts::<false>, sum_parts_portable::<false, false>, sum_parts_portable::<true, false>]),
            ];
            for (first, kernels) in kernels {
                for sum in kernels {
                    let (mut whole, mut totals) = ([7.0; CHUNK_SIZE], before);
                    sum(&parts, weight, &mut whole, &mut totals);
                    for offset in 0..CHUNK_SIZE {
                        let own = parts.iter().fold(0.0, |own, part| own + part[offset]);
                        let total = if first { 0.0 } else { before[offset] } + own * weight;
                        prop_assert_eq!(whole[offset].to_bits(), own.to_bits());
                        prop_assert_eq!(totals[offset].to_bits(), total.to_bits());
                    }
                }
            }
        }
    }
}
