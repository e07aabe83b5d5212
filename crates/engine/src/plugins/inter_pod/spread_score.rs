//! Score by topology spread constraints that reject no node.

use super::PodView;
use super::candidate_values::{CandidateValues, extremes};
use super::natural_logarithm::natural_logarithm;
use super::spread::{CountedDomains, EligibleNodes, counts_itself, domain_counts, is_among, selected_pods};
use crate::model::constraints::SpreadConstraint;
use crate::model::{NodeChunk, NodeMask, NodeSlot, Problem};
use crate::plugin::{ChunkScores, NO_DOMAIN, PeerHook, PeerKey, PeerScorer};
use crate::plugins::integer_arithmetic::MAX_SCORE;
use std::cell::Cell;

/// Topology key for which each node is a separate domain.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Prepared score of the spread constraints with `ScheduleAnyway`: pods in the domains of each node, relative to the
/// candidates. A candidate that lacks a topology key scores 0; under the system's defaults, it is one without pods in that
/// domain.
#[derive(Debug, Default)]
pub(in crate::plugins) struct SpreadScore {
    rules: Vec<SoftSpreadRule>,
    /// Candidates with all topology keys.
    candidates: Vec<NodeSlot>,
    values: CandidateValues,
    /// Least and largest points of the surveyed peers.
    extremes: Option<(i64, i64)>,
}

/// Pods by domain of one constraint.
#[derive(Debug)]
struct SoftSpreadRule {
    domains: CountedDomains,
    pods: CountedPods,
    /// Number of candidates in each domain; empty if each node is a domain.
    candidates: Vec<Cell<u32>>,
    /// Points of each pod.
    weight: f64,
    /// Points of a domain without pods.
    base: f64,
    /// Nodes on which pods of the class match, chunk by chunk. `None`: all nodes. Empty: they match nowhere.
    own: Option<Vec<NodeMask>>,
}

/// Pods that a constraint selects.
#[derive(Debug)]
enum CountedPods {
    /// Numbers by domain.
    ByDomain(Vec<i64>),
    /// Numbers on the node itself, by slot.
    ByNode(Vec<i64>),
}

impl SpreadScore {
    /// Score for a class; `None`: it has no such constraint.
    pub(in crate::plugins) fn new(view: &PodView<'_>) -> Option<Self> {
        let constraints = view.spread_constraints();
        let soft = || constraints.iter().filter(|own| !own.is_hard);
        soft().next()?;
        let all_nodes = || {
            let needs_labels = !view.scores_unlabelled();
            EligibleNodes::with_labels(view, soft().filter(|_| needs_labels))
        };
        let mut eligible = None;
        let rules = soft().map(|constraint| {
            SoftSpreadRule::new(view, constraint, || {
                let eligible = eligible.get_or_insert_with(all_nodes);
                eligible.of(constraint)
            })
        });
        Some(Self {
            rules: rules.collect(),
            ..Self::default()
        })
    }

    /// Sees the candidates of a chunk.
    pub(in crate::plugins) fn survey(&mut self, chunk: &NodeChunk, candidates: &NodeMask) {
        for slot in candidates.iter().filter_map(|offset| chunk.slot(offset)) {
            if self.rules.iter().all(|rule| rule.domains.domain(slot).is_some()) {
                self.candidates.push(slot);
                self.rules.iter().for_each(|rule| rule.add_candidate(slot));
            }
        }
    }

    /// Ends the survey.
    pub(in crate::plugins) fn finish_survey(&mut self) {
        let count = self.candidates.len();
        self.rules.iter_mut().for_each(|rule| rule.weigh(count));
        for slot in &self.candidates {
            let points = self.rules.iter().fold(0.0, |sum, rule| sum + rule.points(*slot));
            self.values.add(*slot, round(points));
        }
    }

    /// Notes that a candidate takes no more tasks. True: scores of others change by that.
    pub(in crate::plugins) fn leave(&self, slot: NodeSlot) -> bool {
        if self.values.at(slot).is_none() {
            return false;
        }
        // Each rule counts the node.
        let emptied = self.rules.iter().filter(|rule| rule.remove_candidate(slot)).count() > 0;
        self.values.leave(slot) | emptied
    }

    /// Fills in the score of each candidate of a chunk.
    pub(in crate::plugins) fn score(&self, chunk: &NodeChunk, scores: &mut ChunkScores) {
        let extremes = self.values.extremes();
        self.values.score(chunk, scores, |points| relative(points, extremes));
    }

    /// Points of nodes with these numbers; `None`: the nodes lack a topology key.
    fn points_of(&self, key: &[i64]) -> Option<i64> {
        let mut numbered = self.rules.iter().zip(key);
        let points = numbered.try_fold(0.0, |sum, (rule, number)| {
            let count = match &rule.pods {
                _ if *number == NO_DOMAIN => return None,
                _ if *number < 0 => return Some(sum),
                CountedPods::ByNode(_) => *number,
                CountedPods::ByDomain(counts) => {
                    let domain = usize::try_from(*number).ok();
                    domain.and_then(|domain| counts.get(domain)).copied().unwrap_or(0)
                }
            };
            Some(sum + rule.points_of(count))
        });
        points.map(round)
    }
}

/// Score of points among candidates with these extremes.
fn relative(points: i64, (least, most): (i64, i64)) -> i64 {
    if most > 0 {
        MAX_SCORE.wrapping_mul(most.wrapping_add(least).wrapping_sub(points)) / most
    } else {
        MAX_SCORE
    }
}

impl PeerHook for SpreadScore {
    fn append_key(&self, slot: NodeSlot, key: &mut PeerKey) {
        for rule in &self.rules {
            let Some(domain) = rule.domains.domain(slot) else {
                key.push(NO_DOMAIN);
                continue;
            };
            let number = match &rule.pods {
                CountedPods::ByNode(counts) => counts.get(slot as usize).copied().unwrap_or(0),
                // The number of domains among the candidates decides, too.
                CountedPods::ByDomain(_) => i64::try_from(domain).unwrap_or(i64::MAX),
            };
            // A node without the label has no points, whatever pods its domain has: its number is negative.
            let is_labelled = rule.domains.domains.domain(slot).is_some();
            key.push(if is_labelled { number } else { !number });
        }
    }

    fn place(&mut self, slot: NodeSlot, _: &mut Vec<NodeSlot>) {
        for rule in &mut self.rules {
            if rule.own.as_ref().is_some_and(|own| !is_among(own, slot)) {
                continue;
            }
            let place = match &mut rule.pods {
                CountedPods::ByNode(counts) => counts.get_mut(slot as usize),
                CountedPods::ByDomain(counts) => {
                    let domain = rule.domains.domain(slot);
                    domain.and_then(|domain| counts.get_mut(domain))
                }
            };
            if let Some(count) = place {
                *count += 1;
            }
        }
    }
}

impl PeerScorer for SpreadScore {
    fn survey(&mut self, peers: &mut dyn Iterator<Item = (&[i64], usize)>) -> Result<(), Problem> {
        let complete = |key: &[i64]| !key.contains(&NO_DOMAIN);
        let peers: Vec<(&[i64], usize)> = peers.filter(|(key, _)| complete(key)).collect();
        let candidates = peers.iter().map(|(_, count)| count).sum();
        for (position, rule) in self.rules.iter_mut().enumerate() {
            rule.candidates.iter().for_each(|count| count.set(0));
            let numbers = peers
                .iter()
                .filter_map(|(key, _)| key.get(position))
                .filter_map(|number| usize::try_from(if *number < 0 { !*number } else { *number }).ok());
            for number in numbers {
                if let Some(count) = rule.candidates.get(number) {
                    count.set(1);
                }
            }
            rule.weigh(candidates);
        }
        let points = peers.iter().filter_map(|(key, _)| self.points_of(key));
        self.extremes = extremes(points);
        Ok(())
    }

    fn score(&self, key: &[i64]) -> i64 {
        let points = self.points_of(key);
        points.map_or(0, |points| relative(points, self.extremes.unwrap_or_default()))
    }
}

impl SoftSpreadRule {
    fn new(view: &PodView<'_>, constraint: &SpreadConstraint, eligible: impl FnOnce() -> Vec<NodeMask>) -> Self {
        let domains = CountedDomains {
            domains: view.cluster_state.topology_domains(&constraint.topology_key),
            with_unlabelled: view.scores_unlabelled(),
        };
        let by_node = *constraint.topology_key == *HOSTNAME;
        // Releases that score a node by itself show it without its pods.
        let sees_pods = view.compatibility.release().rules().scores_candidates_together;
        let (pods, nodes) = if by_node && !sees_pods {
            let none = vec![0; view.cluster_state.slots() as usize];
            (CountedPods::ByNode(none), Some(Vec::new()))
        } else if by_node {
            (CountedPods::ByNode(node_counts(view, constraint)), None)
        } else {
            let nodes = eligible();
            let counts = domain_counts(view, constraint, &domains, &nodes);
            let counts = counts.into_iter().map(Option::unwrap_or_default).collect();
            (CountedPods::ByDomain(counts), Some(nodes))
        };
        let tracked = if by_node { 0 } else { domains.count() };
        Self {
            domains,
            pods,
            candidates: vec![Cell::new(0); tracked],
            weight: 0.0,
            base: f64::from(constraint.max_skew.wrapping_sub(1)),
            own: if counts_itself(view, constraint) {
                nodes
            } else {
                Some(Vec::new())
            },
        }
    }

    /// Number of candidates in a node's domain; `None`: the node is one of its own.
    fn candidates_beside(&self, slot: NodeSlot) -> Option<&Cell<u32>> {
        self.candidates.get(self.domains.domain(slot)?)
    }

    fn add_candidate(&self, slot: NodeSlot) {
        if let Some(count) = self.candidates_beside(slot) {
            count.set(count.get() + 1);
        }
    }

    /// Removes a candidate. True: the number of domains is another one then.
    fn remove_candidate(&self, slot: NodeSlot) -> bool {
        self.candidates_beside(slot).is_none_or(|count| {
            count.set(count.get().saturating_sub(1));
            count.get() == 0
        })
    }

    /// Computes the weight from the number of domains among the candidates.
    fn weigh(&mut self, candidates: usize) {
        let domains = match &self.pods {
            CountedPods::ByNode(_) => candidates,
            CountedPods::ByDomain(_) => self.candidates.iter().filter(|count| count.get() > 0).count(),
        };
        self.weight = natural_logarithm(u32::try_from(domains).unwrap_or(u32::MAX).saturating_add(2));
    }

    /// Points of a node.
    fn points(&self, slot: NodeSlot) -> f64 {
        if self.domains.domains.domain(slot).is_none() {
            return 0.0;
        }
        let count = match &self.pods {
            CountedPods::ByNode(counts) => counts.get(slot as usize),
            CountedPods::ByDomain(counts) => self.domains.domain(slot).and_then(|domain| counts.get(domain)),
        };
        self.points_of(count.copied().unwrap_or(0))
    }

    /// Points of a number of pods.
    fn points_of(&self, count: i64) -> f64 {
        count as f64 * self.weight + self.base
    }
}

/// Number of pods that a constraint selects on each node, by slot. Policies about nodes do not apply.
fn node_counts(view: &PodView<'_>, constraint: &SpreadConstraint) -> Vec<i64> {
    let mut counts = vec![0; view.cluster_state.slots() as usize];
    for (slot, count) in selected_pods(view, constraint) {
        if let Some(place) = counts.get_mut(*slot as usize) {
            *place += i64::from(*count);
        }
    }
    counts
}

/// Points, rounded half away from 0.
#[expect(clippy::cast_possible_truncation, reason = "points are far below 2^53")]
fn round(points: f64) -> i64 {
    points.round() as i64
}
