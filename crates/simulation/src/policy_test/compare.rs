//! Comparison of the result of a case with its expectations.

use std::collections::{BTreeMap, BTreeSet};

use super::expect::{
    CaseExpectation, ExpectedAdmission, ExpectedCycle, ExpectedOrder, ExpectedOrderKeys, ExpectedPlacement,
    ExpectedReason, ExpectedResult, ExpectedVictims,
};
use crate::cycle_outcome::CycleOutcomes;
use pumice_console::output;
use pumice_protocol::v1 as pb;

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
        && !expected
            .iter()
            .any(|one| matches!(one.value, ExpectedResult::Problem(_)))
    {
        return vec![CaseMismatch {
            line: first.line,
            subject: "answer".to_owned(),
            expected: "one".to_owned(),
            actual: format!("the problem {}", output::problem(problem)),
        }];
    }
    expected.iter().filter_map(|one| one.check(result)).collect()
}

impl CaseResult {
    fn problem(&self) -> Option<&pb::Problem> {
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

    fn filter(&self) -> Option<&pb::FilterItem> {
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

    /// Nodes by score, best first, ties by name.
    fn ranking(&self) -> Vec<(String, f64)> {
        let CaseResult::Score(item) = self else {
            return Vec::new();
        };
        let names = item.nodes.iter().flat_map(|set| set.names.clone());
        let mut ranking: Vec<(String, f64)> = names.zip(item.totals.iter().copied()).collect();
        ranking.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        ranking
    }

    fn score_parts(&self) -> BTreeMap<String, BTreeMap<String, f64>> {
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

    fn reasons(&self) -> Vec<(pb::Reason, u64)> {
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

    fn victim_names(&self, at: &[u32]) -> Vec<String> {
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

impl CaseExpectation {
    fn check(&self, result: &CaseResult) -> Option<CaseMismatch> {
        let (expected, got) = self.compare(result)?;
        Some(CaseMismatch {
            line: self.line,
            subject: self.key.to_owned(),
            expected,
            actual: got,
        })
    }

    /// Expected and actual value in words, if they differ.
    fn compare(&self, result: &CaseResult) -> Option<(String, String)> {
        match &self.value {
            ExpectedResult::Problem(wanted) => {
                let got = result
                    .problem()
                    .map_or_else(|| "none".to_owned(), |problem| problem.reason.clone());
                difference(wanted, &got)
            }
            ExpectedResult::Fit(wanted) => {
                let mut wanted = wanted.clone();
                wanted.sort();
                let got = result.filter().and_then(|filter| filter.fit.as_ref());
                difference(
                    &list_text(&wanted),
                    &list_text(got.map(|set| set.names.as_slice()).unwrap_or_default()),
                )
            }
            ExpectedResult::FitCount(wanted) => {
                let got = result.filter().map_or(0, |filter| filter.fit_count);
                difference(&wanted.to_string(), &got.to_string())
            }
            ExpectedResult::Reasons(wanted) => compare_reasons(wanted, &result.reasons()),
            ExpectedResult::Best(wanted) => compare_best(wanted, &result.ranking()),
            ExpectedResult::Ranking(wanted) => {
                let got: Vec<String> = result.ranking().into_iter().map(|(name, _)| name).collect();
                difference(&list_text(wanted), &list_text(&got))
            }
            ExpectedResult::Scores((wanted, tolerance)) => {
                let got: BTreeMap<String, f64> = result.ranking().into_iter().collect();
                compare_numbers(wanted, &got, *tolerance)
            }
            ExpectedResult::Parts(wanted, tolerance) => {
                let got = result.score_parts();
                let empty = BTreeMap::new();
                wanted.iter().find_map(|(node, wanted)| {
                    let found = compare_numbers(wanted, got.get(node).unwrap_or(&empty), *tolerance);
                    found.map(|(wanted, got)| (format!("{node}: {wanted}"), format!("{node}: {got}")))
                })
            }
            ExpectedResult::Placement(wanted) => wanted.compare(result),
            ExpectedResult::Admission(wanted) => wanted.compare(result),
            ExpectedResult::Order(wanted) => wanted.compare(result),
            ExpectedResult::Victims(wanted) => wanted.compare(result),
            ExpectedResult::Cycle(wanted) => wanted.compare(result),
        }
    }
}

impl ExpectedPlacement {
    fn compare(&self, result: &CaseResult) -> Option<(String, String)> {
        let CaseResult::Place(group) = result else { return None };
        match self {
            ExpectedPlacement::Nodes(wanted) => {
                let sets = [&group.allocated, &group.pipelined];
                let names = sets.into_iter().flatten().flat_map(|set| &set.names);
                difference(&list_text(wanted), &list_text(&names.cloned().collect::<Vec<_>>()))
            }
            ExpectedPlacement::Devices(wanted) => {
                let sets = group.devices.iter();
                let got: Vec<Vec<i64>> = sets
                    .map(|set| set.numbers.iter().map(|own| i64::from(*own)).collect())
                    .collect();
                difference(&format!("{wanted:?}"), &format!("{got:?}"))
            }
        }
    }
}

impl ExpectedAdmission {
    fn compare(&self, result: &CaseResult) -> Option<(String, String)> {
        let CaseResult::Admit(item) = result else { return None };
        match self {
            ExpectedAdmission::Permitted(wanted) => {
                let why = item.reasons.first().map(|reason| format!(": {}", reason.message));
                difference(&wanted.to_string(), &item.permitted.to_string())
                    .map(|(wanted, got)| (wanted, format!("{got}{}", why.unwrap_or_default())))
            }
            ExpectedAdmission::Headroom(wanted) => difference(&limit_text(*wanted), &limit_text(item.headroom)),
            ExpectedAdmission::Cards(wanted) => {
                let got: Vec<String> = item.cards.iter().map(|choice| choice.card.clone()).collect();
                difference(&list_text(wanted), &list_text(&got))
            }
            ExpectedAdmission::Votes(wanted) => {
                let wanted = wanted
                    .iter()
                    .map(|(plugin, vote)| (plugin.clone(), *vote as f64))
                    .collect();
                let got = item
                    .votes
                    .iter()
                    .map(|vote| (vote.plugin.clone(), f64::from(vote.vote)));
                compare_numbers(&wanted, &got.collect(), 0.0)
            }
        }
    }
}

impl ExpectedOrder {
    fn compare(&self, result: &CaseResult) -> Option<(String, String)> {
        let CaseResult::Order(order) = result else { return None };
        let names = |ranks: &[pb::Rank]| ranks.iter().map(|rank| rank.name.clone()).collect::<Vec<_>>();
        match self {
            ExpectedOrder::Queues(wanted) => difference(&list_text(wanted), &list_text(&names(&order.queues))),
            ExpectedOrder::Jobs(wanted) => difference(&list_text(wanted), &list_text(&names(&order.jobs))),
            ExpectedOrder::QueueKeys(wanted) => compare_keys(wanted, &order.queues),
            ExpectedOrder::JobKeys(wanted) => compare_keys(wanted, &order.jobs),
        }
    }
}

impl ExpectedVictims {
    fn compare(&self, result: &CaseResult) -> Option<(String, String)> {
        let CaseResult::Victims(item, _) = result else {
            return None;
        };
        match self {
            ExpectedVictims::Chosen(wanted) => {
                difference(&list_text(wanted), &list_text(&result.victim_names(&item.victims)))
            }
            ExpectedVictims::FitsAfter(wanted) => {
                let shown = |after: Option<u64>| after.map_or_else(|| "never".to_owned(), |after| after.to_string());
                difference(&shown(*wanted), &shown(item.fits_after.map(u64::from)))
            }
            ExpectedVictims::Choices(wanted) => wanted.iter().find_map(|(plugin, wanted)| {
                let vote = item.votes.iter().find(|vote| vote.plugin == *plugin);
                let got = vote.map_or_else(
                    || "no vote".to_owned(),
                    |vote| list_text(&result.victim_names(&vote.victims)),
                );
                difference(&format!("{plugin}: {}", list_text(wanted)), &format!("{plugin}: {got}"))
            }),
        }
    }
}

impl ExpectedCycle {
    fn compare(&self, result: &CaseResult) -> Option<(String, String)> {
        let CaseResult::Cycle(jobs) = result else { return None };
        let outcomes = jobs.values();
        let (wanted, got): (BTreeSet<String>, BTreeSet<String>) = match self {
            ExpectedCycle::Enqueued(wanted) => {
                let enqueued = jobs.iter().filter(|(_, own)| own.enqueued);
                let enqueued = enqueued.map(|(job, _)| job.clone());
                (wanted.iter().cloned().collect(), enqueued.collect())
            }
            ExpectedCycle::Evicted(wanted) => {
                let evicted = outcomes.flat_map(|own| own.evicted.iter().cloned());
                (wanted.iter().cloned().collect(), evicted.collect())
            }
            ExpectedCycle::Bound(wanted) => {
                let bound = outcomes.flat_map(|own| place_texts(&own.bound));
                (place_texts(wanted).collect(), bound.collect())
            }
            ExpectedCycle::Phases(wanted) => {
                let phases = jobs
                    .iter()
                    .filter_map(|(job, own)| Some(format!("{job}: {}", own.phase.as_ref()?)));
                (place_texts(wanted).collect(), phases.collect())
            }
            ExpectedCycle::Pipelined(wanted) => {
                let pipelined = outcomes.flat_map(|own| place_texts(&own.pipelined));
                (place_texts(wanted).collect(), pipelined.collect())
            }
        };
        difference(&list_text(&wanted), &list_text(&got))
    }
}

/// Names with what they have, such as a task with its node: `ns/a: n1`.
fn place_texts(named: &BTreeMap<String, String>) -> impl Iterator<Item = String> {
    named.iter().map(|(name, own)| format!("{name}: {own}"))
}

fn difference(wanted: &str, got: &str) -> Option<(String, String)> {
    (wanted != got).then(|| (wanted.to_owned(), got.to_owned()))
}

fn list_text<'n>(names: impl IntoIterator<Item = &'n String>) -> String {
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    format!("[{}]", names.join(", "))
}

fn limit_text(number: Option<u64>) -> String {
    number.map_or_else(|| "no limit".to_owned(), |number| number.to_string())
}

fn compare_best(wanted: &str, ranking: &[(String, f64)]) -> Option<(String, String)> {
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

/// Compares the named entries only.
fn compare_numbers(
    wanted: &BTreeMap<String, f64>,
    got: &BTreeMap<String, f64>,
    tolerance: f64,
) -> Option<(String, String)> {
    let off = |(name, wanted): &(&String, &f64)| {
        let near = got.get(*name).is_some_and(|got| (got - *wanted).abs() <= tolerance);
        !near
    };
    let (name, wanted) = wanted.iter().find(off)?;
    let got = got.get(name).map_or_else(|| "nothing".to_owned(), ToString::to_string);
    Some((format!("{name} {wanted}"), format!("{name} {got}")))
}

fn compare_keys((wanted, tolerance): &ExpectedOrderKeys, ranks: &[pb::Rank]) -> Option<(String, String)> {
    for (name, plugins) in wanted {
        let rank = ranks.iter().find(|rank| rank.name == *name);
        for (plugin, wanted) in plugins {
            let key = rank.and_then(|rank| rank.keys.iter().find(|key| key.plugin == *plugin));
            let got = key.map(|key| key.values.as_slice());
            let near = got.is_some_and(|got| {
                got.len() == wanted.len() && got.iter().zip(wanted).all(|(a, b)| (a - b).abs() <= *tolerance)
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
fn compare_reasons(wanted: &[ExpectedReason], got: &[(pb::Reason, u64)]) -> Option<(String, String)> {
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
