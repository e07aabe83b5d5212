//! Comparison of the result of a case with its expectations.

use std::collections::BTreeMap;

use super::expect::{CaseExpectation, PROBLEM};
use crate::cycle_outcome::CycleOutcomes;
use pumice_console::output;
use pumice_protocol::v1 as pb;

/// Expected and actual value in words.
pub(super) type Mismatch = (String, String);

/// Result that differs from the expectation.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct CaseMismatch {
    pub(super) line: u32,
    pub(super) subject: String,
    pub(super) expected: String,
    pub(super) actual: String,
}

/// Result of a query.
#[derive(Debug)]
pub(super) enum CaseResult {
    Filter(pb::FilterItem),
    Score(pb::ScoreItem),
    /// Of one group of tasks.
    Place(pb::PlacedGroup),
    Admit(pb::AdmitItem),
    Order(pb::OrderResult),
    /// With the names of the candidates.
    Victims(pb::VictimItem, Vec<String>),
    /// Of all jobs.
    Cycle(CycleOutcomes),
    /// Why there is no result: the service rejects the policy or the query, or the reference crashes in the cycle.
    Failed(pb::Problem),
}

/// Compares a result with the expectations.
pub(super) fn check(expected: &[CaseExpectation], result: &CaseResult) -> Vec<CaseMismatch> {
    let problem = result.problem();
    if let (Some(problem), Some(first)) = (problem, expected.first())
        && expected.iter().all(|one| one.key != PROBLEM)
    {
        return vec![CaseMismatch {
            line: first.line,
            subject: "answer".to_owned(),
            expected: "one".to_owned(),
            actual: format!("the problem {}", output::problem(problem)),
        }];
    }
    let mismatch = |one: &CaseExpectation| {
        let (expected, actual) = (one.compare)(result)?;
        Some(CaseMismatch {
            line: one.line,
            subject: one.key.to_owned(),
            expected,
            actual,
        })
    };
    expected.iter().filter_map(mismatch).collect()
}

impl CaseResult {
    pub(super) fn problem(&self) -> Option<&pb::Problem> {
        match self {
            CaseResult::Filter(item) => item.problem.as_ref(),
            CaseResult::Score(item) => item.problem.as_ref(),
            CaseResult::Place(group) => group.problem.as_ref(),
            CaseResult::Admit(item) => item.problem.as_ref(),
            CaseResult::Victims(item, _) => item.problem.as_ref(),
            CaseResult::Failed(problem) => Some(problem),
            CaseResult::Order(_) | CaseResult::Cycle(_) => None,
        }
    }

    /// Fields of the task and of nodes that the result leaves out.
    pub(super) fn not_evaluated(&self) -> &[pb::NotEvaluated] {
        match self {
            CaseResult::Filter(item) => &item.not_evaluated,
            CaseResult::Score(item) => &item.not_evaluated,
            CaseResult::Place(group) => &group.not_evaluated,
            CaseResult::Admit(item) => &item.not_evaluated,
            CaseResult::Victims(item, _) => &item.not_evaluated,
            CaseResult::Order(_) | CaseResult::Cycle(_) | CaseResult::Failed(_) => &[],
        }
    }

    pub(super) fn filter(&self) -> Option<&pb::FilterItem> {
        match self {
            CaseResult::Filter(item) => Some(item),
            CaseResult::Score(item) => item.filter.as_ref(),
            CaseResult::Place(_)
            | CaseResult::Admit(_)
            | CaseResult::Order(_)
            | CaseResult::Victims(..)
            | CaseResult::Cycle(_)
            | CaseResult::Failed(_) => None,
        }
    }

    pub(super) fn placed(&self) -> Option<&pb::PlacedGroup> {
        let Self::Place(group) = self else { return None };
        Some(group)
    }

    pub(super) fn admitted(&self) -> Option<&pb::AdmitItem> {
        let Self::Admit(item) = self else { return None };
        Some(item)
    }

    pub(super) fn order(&self) -> Option<&pb::OrderResult> {
        let Self::Order(order) = self else { return None };
        Some(order)
    }

    pub(super) fn victims(&self) -> Option<&pb::VictimItem> {
        let Self::Victims(item, _) = self else { return None };
        Some(item)
    }

    pub(super) fn cycle(&self) -> Option<&CycleOutcomes> {
        let Self::Cycle(outcomes) = self else { return None };
        Some(outcomes)
    }

    /// Nodes by score, best first, ties by name.
    pub(super) fn ranking(&self) -> Vec<(String, f64)> {
        let CaseResult::Score(item) = self else {
            return Vec::new();
        };
        let names = item.nodes.iter().flat_map(|set| set.names.clone());
        let mut ranking: Vec<(String, f64)> = names.zip(item.totals.iter().copied()).collect();
        ranking.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        ranking
    }

    pub(super) fn score_parts(&self) -> BTreeMap<String, BTreeMap<String, f64>> {
        let CaseResult::Score(item) = self else {
            return BTreeMap::new();
        };
        let names = item.nodes.iter().flat_map(|set| &set.names);
        let parts = |at: usize| {
            let part = |part: &pb::ScorePart| {
                let name = if part.part.is_empty() {
                    part.plugin.clone()
                } else {
                    format!("{}/{}", part.plugin, part.part)
                };
                Some((name, *part.scores.get(at)?))
            };
            item.parts.iter().filter_map(part).collect()
        };
        names.enumerate().map(|(at, name)| (name.clone(), parts(at))).collect()
    }

    pub(super) fn reasons(&self) -> Vec<(pb::Reason, u64)> {
        match self {
            CaseResult::Admit(item) => item.reasons.iter().map(|reason| (reason.clone(), 1)).collect(),
            CaseResult::Place(group) => group.blockers.iter().map(counted_reason).collect(),
            CaseResult::Filter(_)
            | CaseResult::Score(_)
            | CaseResult::Order(_)
            | CaseResult::Victims(..)
            | CaseResult::Cycle(_)
            | CaseResult::Failed(_) => {
                let rejections = self.filter().into_iter().flat_map(|filter| &filter.rejections);
                rejections.map(counted_reason).collect()
            }
        }
    }

    pub(super) fn victim_names(&self, at: &[u32]) -> Vec<String> {
        let CaseResult::Victims(_, candidates) = self else {
            return Vec::new();
        };
        let name = |at: &u32| candidates.get(usize::try_from(*at).ok()?).cloned();
        at.iter().filter_map(name).collect()
    }
}

/// Reason of a rejection, and the number of nodes that it is about.
fn counted_reason(one: &pb::Rejection) -> (pb::Reason, u64) {
    (one.reason.clone().unwrap_or_default(), one.count.into())
}

/// A rejection; only the fields that are written are compared.
#[derive(Debug, Default)]
pub(super) struct ExpectedReason {
    pub(super) plugin: Option<String>,
    pub(super) code: Option<String>,
    pub(super) resource: Option<String>,
    pub(super) message: Option<String>,
    pub(super) count: Option<u64>,
}

/// Names of a ranking, the first first.
pub(super) fn rank_names(ranks: &[pb::Rank]) -> Vec<String> {
    ranks.iter().map(|rank| rank.name.clone()).collect()
}

/// Names with what they have, such as a task with its node: `ns/a: n1`.
pub(super) fn place_texts(named: &BTreeMap<String, String>) -> impl Iterator<Item = String> {
    named.iter().map(|(name, own)| format!("{name}: {own}"))
}

pub(super) fn difference(wanted: &str, got: &str) -> Option<Mismatch> {
    (wanted != got).then(|| (wanted.to_owned(), got.to_owned()))
}

pub(super) fn list_text<'n>(names: impl IntoIterator<Item = &'n String>) -> String {
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    format!("[{}]", names.join(", "))
}

pub(super) fn limit_text(number: Option<u64>) -> String {
    number.map_or_else(|| "no limit".to_owned(), |number| number.to_string())
}

pub(super) fn compare_best(wanted: &str, ranking: &[(String, f64)]) -> Option<Mismatch> {
    let first = ranking.first();
    if first.is_some_and(|(name, _)| name == wanted) {
        return None;
    }
    let score = |name: &str| {
        ranking
            .iter()
            .find(|(own, _)| own == name)
            .map(|(_, score)| output::number(*score))
    };
    let shown = |name: &str| match score(name) {
        Some(score) => format!("{name} ({score})"),
        None => format!("{name} (not among the nodes)"),
    };
    let got = first.map_or_else(|| "no node".to_owned(), |(name, _)| shown(name));
    Some((shown(wanted), got))
}

/// Compares the named parts of the named nodes only.
pub(super) fn compare_parts(
    wanted: &BTreeMap<String, BTreeMap<String, f64>>,
    got: &BTreeMap<String, BTreeMap<String, f64>>,
    tolerance: f64,
) -> Option<Mismatch> {
    let empty = BTreeMap::new();
    wanted.iter().find_map(|(node, wanted)| {
        let found = compare_numbers(wanted, got.get(node).unwrap_or(&empty), tolerance);
        found.map(|(wanted, got)| (format!("{node}: {wanted}"), format!("{node}: {got}")))
    })
}

/// Compares the named entries only.
pub(super) fn compare_numbers(
    wanted: &BTreeMap<String, f64>,
    got: &BTreeMap<String, f64>,
    tolerance: f64,
) -> Option<Mismatch> {
    let off = |(name, wanted): &(&String, &f64)| {
        let near = got.get(*name).is_some_and(|got| (got - *wanted).abs() <= tolerance);
        !near
    };
    let (name, wanted) = wanted.iter().find(off)?;
    let got = got.get(name).map_or_else(|| "nothing".to_owned(), ToString::to_string);
    Some((format!("{name} {wanted}"), format!("{name} {got}")))
}

/// Compares the named keys only.
pub(super) fn compare_keys(
    wanted: &BTreeMap<String, BTreeMap<String, Vec<f64>>>,
    tolerance: f64,
    ranks: &[pb::Rank],
) -> Option<Mismatch> {
    for (name, plugins) in wanted {
        let rank = ranks.iter().find(|rank| rank.name == *name);
        for (plugin, wanted) in plugins {
            let key = rank.and_then(|rank| rank.keys.iter().find(|key| key.plugin == *plugin));
            let got = key.map(|key| key.values.as_slice());
            let near = got.is_some_and(|got| {
                got.len() == wanted.len() && got.iter().zip(wanted).all(|(a, b)| (a - b).abs() <= tolerance)
            });
            if !near {
                let got = got.map_or_else(|| "nothing".to_owned(), |got| format!("{got:?}"));
                return Some((format!("{name} {plugin} {wanted:?}"), format!("{name} {plugin} {got}")));
            }
        }
    }
    None
}

/// Compares sets: each expected entry must occur, and no other.
pub(super) fn compare_reasons(wanted: &[ExpectedReason], got: &[(pb::Reason, u64)]) -> Option<Mismatch> {
    let mut left: Vec<&(pb::Reason, u64)> = got.iter().collect();
    let mut missing = Vec::new();
    for one in wanted {
        match left.iter().position(|(reason, count)| one.matches(reason, *count)) {
            Some(at) => drop(left.swap_remove(at)),
            None => missing.push(one.to_string()),
        }
    }
    if missing.is_empty() && left.is_empty() {
        return None;
    }
    let shown = |reason: &pb::Reason, count: u64| {
        let resource = if reason.resource.is_empty() {
            String::new()
        } else {
            format!(" {}", reason.resource)
        };
        let message = Some(format!(" ({})", reason.message)).filter(|_| wanted.iter().any(|one| one.message.is_some()));
        let message = message.unwrap_or_default();
        format!("{} {}{resource}{message} ×{count}", reason.plugin, reason.code)
    };
    let got: Vec<String> = got.iter().map(|(reason, count)| shown(reason, *count)).collect();
    let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
    Some((list_text(&wanted), list_text(&got)))
}

impl ExpectedReason {
    fn matches(&self, reason: &pb::Reason, count: u64) -> bool {
        let same = |wanted: &Option<String>, got: &str| wanted.as_ref().is_none_or(|wanted| wanted == got);
        same(&self.plugin, &reason.plugin)
            && same(&self.code, &reason.code)
            && same(&self.resource, &reason.resource)
            && same(&self.message, &reason.message)
            && self.count.is_none_or(|wanted| wanted == count)
    }
}

impl std::fmt::Display for ExpectedReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let any = |text: &Option<String>| text.clone().unwrap_or_else(|| "any".to_owned());
        write!(f, "{} {}", any(&self.plugin), any(&self.code))?;
        if let Some(resource) = &self.resource {
            write!(f, " {resource}")?;
        }
        if let Some(message) = &self.message {
            write!(f, " ({message})")?;
        }
        match self.count {
            Some(count) => write!(f, " ×{count}"),
            None => Ok(()),
        }
    }
}
