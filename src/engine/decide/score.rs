//! Score: where should a task run?

use std::sync::Arc;

use super::candidates::{Candidates, Part};
use super::classes::{self, Accounts, Judged, Walk};
use super::filter::{Sieve, derived_for};
use super::question::{Detail, Effort, Items, ScorePart, ScoreQuestion, ScoreSheet};
use super::stages::{Asked, Score};
use super::top::{Ranked, Top};
use crate::engine::kernel::kernel;
use crate::engine::model::{CHUNK, Mask, Problem, ProblemKind, Slot, TaskClass, View};
use crate::engine::plugin::{Facts, MAX_PARTS, Scores};
use crate::engine::policy::Policy;

/// Scores nodes for the tasks of a question, each class once.
///
/// Without `plugins`: the sum over the tiers' plugins that are switched on, in order. With `plugins`: the sum over these,
/// each asked as in [`filter`](super::filter()); one without the hook scores 0.
///
/// # Errors
/// `plugins` names one that the policy does not have or that is not served here; nothing was judged.
pub fn score(view: &View, policy: &Policy, question: &ScoreQuestion) -> Result<Items<ScoreSheet>, Problem> {
    let derived = derived_for(view, policy, &question.question.plugins);
    let facts = Facts {
        view,
        derived: &derived,
    };
    Ok(score_with(facts, policy, question, Effort::ALONE)?.unwrap_or_default())
}

/// As [`score()`], with what plugins keep beside the state; `None` as soon as the effort is to stop.
///
/// # Errors
/// As [`score()`].
pub fn score_with(
    facts: Facts<'_>,
    policy: &Policy,
    question: &ScoreQuestion,
    effort: Effort<'_>,
) -> Result<Option<Items<ScoreSheet>>, Problem> {
    let asked = Asked::of(policy, &question.question)?;
    let candidates = Candidates::of(facts.view, question.question.candidates.as_deref());
    let accounts = Accounts::of(facts.view, policy, &question.question.plugins);
    Ok(classes::answer(&question.question, accounts, effort, |classes| {
        let walks = classes
            .iter()
            .map(|class| Search::new(facts, &asked, question, &candidates, class));
        classes::walk(walks.collect(), &candidates.parts, effort.stop)
    }))
}

/// One class on its way over the nodes.
struct Search<'a> {
    view: &'a View,
    candidates: &'a Candidates<'a>,
    sieve: Option<Sieve<'a>>,
    scorers: Scorers<'a>,
    outside: Outside<'a>,
    found: Found,
}

/// The nodes found so far.
enum Found {
    All(ScoreSheet),
    Best(Top),
}

impl<'a> Search<'a> {
    fn new<'p: 'a>(
        facts: Facts<'a>,
        asked: &Asked<'p>,
        question: &'a ScoreQuestion,
        candidates: &'a Candidates<'a>,
        class: &'a TaskClass,
    ) -> Result<Self, Problem> {
        let scorers = Scorers::new(asked, facts, class, question)?;
        let sieve = if question.with_filter {
            let sieve = Sieve::new(facts, asked, &question.question, candidates, class)?;
            let with_fit = question.question.detail >= Detail::Nodes;
            Some(if with_fit {
                sieve.with_fit(candidates.len())
            } else {
                sieve
            })
        } else {
            None
        };
        let found = match question.limit {
            Some(limit) => Found::Best(Top::new(limit)),
            None => Found::All(scorers.empty(candidates.len())),
        };
        Ok(Self {
            view: facts.view,
            candidates,
            sieve,
            scorers,
            outside: Outside::default(),
            found,
        })
    }
}

impl Walk for Search<'_> {
    type Answer = ScoreSheet;

    fn step(&mut self, part: &Part<'_>, scratch: &mut Scratch) {
        let among = self.sieve.as_mut().map_or(part.among, |sieve| sieve.pass(part));
        if among.is_empty() {
            return;
        }
        let part = Part { among, ..*part };
        self.scorers.check(self.view, &part, scratch, &mut self.outside);
        match &mut self.found {
            Found::All(sheet) => self.scorers.extend(&part, scratch, sheet),
            Found::Best(top) => {
                self.scorers.each(&part, scratch, |_, _, _| {});
                offer(self.view, &part, &scratch.totals, top);
            }
        }
    }

    fn end(self) -> Judged<ScoreSheet> {
        self.scorers.refuse(self.outside)?;
        let mut sheet = match self.found {
            Found::Best(top) => best(self.view, top, &self.scorers),
            Found::All(sheet) => match self.candidates.callers_order(&sheet.nodes) {
                Some(indexes) => reorder(&sheet, &indexes),
                None => sheet,
            },
        };
        sheet.filter = self.sieve.map(Sieve::verdict);
        Ok((sheet, self.scorers.warnings()))
    }
}

/// Shows the nodes of one chunk that may be among the best.
fn offer(view: &View, part: &Part<'_>, totals: &Scores, top: &mut Top) {
    for offset in contenders(totals, top.threshold()).and(&part.among).iter() {
        let slot = part.slot(offset);
        top.offer(Ranked {
            total: totals.get(offset).copied().unwrap_or(0.0),
            rank: view.ranks().get(slot as usize).copied().unwrap_or(u32::MAX),
            slot,
        });
    }
}

/// The best nodes, best first.
fn best(view: &View, top: Top, scorers: &Scorers<'_>) -> ScoreSheet {
    let best = top.finish();
    if scorers.shown.is_empty() {
        return ScoreSheet {
            nodes: best.iter().map(|node| node.slot).collect(),
            totals: best.iter().map(|node| node.total).collect(),
            ..ScoreSheet::default()
        };
    }
    // The parts of the winners only.
    let mut by_slot: Vec<(Slot, usize)> = best.iter().map(|node| node.slot).zip(0..).collect();
    by_slot.sort_unstable();
    let winners = Candidates::at(view, by_slot.iter().map(|&(slot, _)| slot));
    let mut indexes: Vec<(usize, usize)> = by_slot.iter().map(|&(_, place)| place).zip(0..).collect();
    indexes.sort_unstable();
    let indexes: Vec<usize> = indexes.into_iter().map(|(_, index)| index).collect();
    let (mut sheet, mut scratch) = (scorers.empty(best.len()), Scratch::new());
    for part in &winners.parts {
        scorers.extend(part, &mut scratch, &mut sheet);
    }
    reorder(&sheet, &indexes)
}

kernel! {
    /// Places whose total may still be among the best: that reach the threshold, or are no number.
    fn contenders / contenders_plainly(totals: &Scores, threshold: f64) -> Mask {
        Mask::gather(|offset| {
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
pub(super) struct Scratch {
    columns: [Scores; MAX_PARTS],
    whole: Scores,
    totals: Scores,
}

impl Scratch {
    /// The sum over plugins at a place.
    pub(super) fn total(&self, offset: usize) -> f64 {
        self.totals.get(offset).copied().unwrap_or(0.0)
    }

    pub(super) fn new() -> Self {
        Self {
            columns: [[0.0; CHUNK]; MAX_PARTS],
            whole: [0.0; CHUNK],
            totals: [0.0; CHUNK],
        }
    }
}

/// Nodes on which scorers, by number, left their range, with their names and scores.
#[derive(Debug, Default)]
pub(super) struct Outside<'v>(Vec<(usize, &'v str, f64)>);

/// The scorers of a question for one class, and what of them to show.
pub(super) struct Scorers<'a> {
    scores: Vec<Score<'a>>,
    /// Columns of the answer: which scorer, and which of its parts; `None`: the whole plugin.
    shown: Vec<(usize, Option<usize>)>,
}

impl<'a> Scorers<'a> {
    fn new<'p: 'a>(
        asked: &Asked<'p>,
        facts: Facts<'a>,
        class: &'a TaskClass,
        question: &ScoreQuestion,
    ) -> Result<Self, Problem> {
        let scores = asked.scorers(facts, class)?;
        let mut shown = Vec::new();
        for (number, score) in scores.iter().enumerate() {
            let parts = score.scorer.as_ref().map_or(&[] as &[_], |scorer| scorer.parts());
            if question.with_parts && parts != [""] {
                shown.extend((0..parts.len()).map(|part| (number, Some(part))));
            }
            // Alone, or after its parts when the plugin was asked for by name.
            if asked.is_each() || (question.with_parts && (parts.is_empty() || parts == [""])) {
                shown.push((number, None));
            }
        }
        Ok(Self { scores, shown })
    }

    /// Those of the policy's tiers, for totals alone.
    pub(super) fn plain<'p: 'a>(asked: &Asked<'p>, facts: Facts<'a>, class: &'a TaskClass) -> Result<Self, Problem> {
        Ok(Self {
            scores: asked.scorers(facts, class)?,
            shown: Vec::new(),
        })
    }

    /// True if a score may leave bounds, which must be checked for every node.
    pub(super) fn are_bounded(&self) -> bool {
        let mut scorers = self.scores.iter().filter_map(|score| score.scorer.as_ref());
        scorers.any(|scorer| scorer.range().is_some())
    }

    fn warnings(&self) -> Vec<Problem> {
        let scorers = self.scores.iter().filter_map(|score| score.scorer.as_ref());
        scorers.flat_map(|scorer| scorer.warnings()).collect()
    }

    /// Notes where a plugin leaves its range among nodes that are asked about.
    pub(super) fn check<'v>(&self, view: &'v View, part: &Part<'_>, scratch: &mut Scratch, outside: &mut Outside<'v>) {
        for (number, score) in self.scores.iter().enumerate() {
            let Some((scorer, (low, high))) = score.scorer.as_ref().and_then(|scorer| Some((scorer, scorer.range()?)))
            else {
                continue;
            };
            let columns = scratch.columns.get_mut(..scorer.parts().len()).unwrap_or_default();
            scorer.score(part.chunk, columns);
            let sum = |offset: usize| -> f64 { columns.iter().filter_map(|column| column.get(offset)).sum() };
            let beyond = part.among.iter().map(|offset| (offset, sum(offset)));
            let beyond = beyond.filter(|(_, score)| !(low..=high).contains(score));
            outside.0.extend(beyond.filter_map(|(offset, score)| {
                let node = view.node(part.slot(offset))?;
                Some((number, &*node.record.name, score))
            }));
        }
    }

    /// Refuses the class if a plugin left its range somewhere, as kube-scheduler refuses the pod: the first that did.
    pub(super) fn refuse(&self, outside: Outside<'_>) -> Result<(), Problem> {
        let Some(first) = outside.0.iter().map(|(number, ..)| *number).min() else {
            return Ok(());
        };
        let nodes = outside.0.into_iter().filter(|(number, ..)| *number == first);
        let nodes = nodes.map(|(_, name, score)| (name, score)).collect();
        let score = self.scores.get(first);
        let range = score.and_then(|score| score.scorer.as_ref()?.range());
        match (score, range) {
            (Some(score), Some(range)) => Err(out_of_range(score.plugin, range, nodes)),
            _ => Ok(()),
        }
    }

    /// Scores one chunk: the sum over plugins. `show` gets each plugin's parts and sum.
    pub(super) fn each(&self, part: &Part<'_>, scratch: &mut Scratch, mut show: impl FnMut(usize, &[Scores], &Scores)) {
        let Scratch { columns, whole, totals } = scratch;
        if self.scores.is_empty() {
            totals.fill(0.0);
        }
        for (number, score) in self.scores.iter().enumerate() {
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
    fn extend(&self, part: &Part<'_>, scratch: &mut Scratch, sheet: &mut ScoreSheet) {
        let columns = &mut sheet.parts;
        self.each(part, scratch, |number, parts, whole| {
            let shown = columns.iter_mut().zip(&self.shown);
            for (column, (_, own)) in shown.filter(|(_, (of, _))| *of == number) {
                let scores = own.map_or(Some(whole), |own| parts.get(own));
                extend(&mut column.scores, scores.unwrap_or(whole), &part.among);
            }
        });
        extend(&mut sheet.totals, &scratch.totals, &part.among);
        part.push_slots(&part.among, &mut sheet.nodes);
    }

    fn empty(&self, count: usize) -> ScoreSheet {
        let column = |&(number, own): &(usize, Option<usize>)| {
            let score = self.scores.get(number)?;
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
            parts: self.shown.iter().filter_map(column).collect(),
            filter: None,
        }
    }
}

kernel! {
    /// Sums up a plugin's parts, from 0, and adds its sum times its weight to the totals, which the first plugin begins.
    /// Multiplying by 1 changes no bit.
    fn sum_parts / sum_parts_plainly<const FIRST: bool>(
        parts: &[Scores],
        weight: f64,
        whole: &mut Scores,
        totals: &mut Scores,
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
fn extend(rows: &mut Vec<f64>, scores: &Scores, among: &Mask) {
    if *among == Mask::ALL {
        rows.extend_from_slice(scores);
    } else {
        rows.extend(among.iter().filter_map(|offset| scores.get(offset).copied()));
    }
}

/// The first so many nodes are named.
const NAMED: usize = 10;

fn out_of_range(plugin: &str, (low, high): (f64, f64), mut outside: Vec<(&str, f64)>) -> Problem {
    outside.sort_unstable_by(|a, b| a.0.cmp(b.0));
    let named: Vec<String> = outside
        .iter()
        .take(NAMED)
        .map(|(node, score)| format!("{score} on `{node}`"))
        .collect();
    let more = match outside.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and more on {more} other nodes"),
    };
    let message = format!("scores of `{plugin}` leave {low} to {high}: {}{more}", named.join(", "));
    Problem::new(ProblemKind::Refused, "SCORE_OUT_OF_RANGE", "", message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn column() -> impl Strategy<Value = Vec<f64>> {
        let score = prop_oneof![(0_u32..9).prop_map(f64::from), -1e9..1e9, Just(-0.0)];
        prop::collection::vec(score, CHUNK)
    }

    fn array(column: &[f64]) -> Scores {
        std::array::from_fn(|offset| column[offset])
    }

    /// What the kernel makes of totals.
    type Sum = fn(&[Scores], f64, &mut Scores, &mut Scores);

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn every_processor_finds_the_same_contenders(
            column in column(),
            odd in prop::collection::vec((0..CHUNK, prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-f64::INFINITY)]), 9),
            threshold in prop_oneof![(0_u32..9).prop_map(f64::from), Just(f64::NEG_INFINITY)],
        ) {
            let mut totals = array(&column);
            for (offset, total) in odd {
                totals[offset] = total;
            }
            let chosen = contenders(&totals, threshold);
            prop_assert_eq!(chosen, contenders_plainly::<false>(&totals, threshold));
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
            let (parts, before, weight): (Vec<Scores>, _, _) =
                (parts.iter().map(|part| array(part)).collect(), array(&before), f64::from(weight));
            let kernels: [(bool, [Sum; 3]); 2] = [
                (true, [sum_parts::<true>, sum_parts_plainly::<false, true>, sum_parts_plainly::<true, true>]),
                (false, [sum_parts::<false>, sum_parts_plainly::<false, false>, sum_parts_plainly::<true, false>]),
            ];
            for (first, kernels) in kernels {
                for sum in kernels {
                    let (mut whole, mut totals) = ([7.0; CHUNK], before);
                    sum(&parts, weight, &mut whole, &mut totals);
                    for offset in 0..CHUNK {
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
