//! Expectations of a case about its result: how each is read, and what of the result it is compared with.

use std::collections::{BTreeMap, BTreeSet};

use super::compare::{
    CaseResult, ExpectedReason, Mismatch, compare_best, compare_keys, compare_numbers, compare_parts, compare_reasons,
    difference, limit_text, list_text, place_texts, rank_names,
};
use super::query::CaseQuery;
use super::yaml::{self, CaseFileError, CaseFileResult, MapFields};
use crate::cycle_outcome::CycleOutcomes;
use pumice_engine::policy::YamlNode;

/// Default tolerance of a number.
const TOLERANCE: f64 = 1e-6;
/// Key of the expectation that there is no result.
pub(super) const PROBLEM: &str = "problem";

/// Comparison of a result with what is expected. Returns both in words if they differ.
type Comparison = Box<dyn Fn(&CaseResult) -> Option<Mismatch> + Send + Sync>;

/// One expectation and its line.
pub(super) struct CaseExpectation {
    pub(super) line: u32,
    pub(super) key: &'static str,
    pub(super) compare: Comparison,
}

/// Key of an expectation, and the reader of its value. The reader gets the value, its name in messages, and the tolerance of numbers.
type ExpectationKey = (&'static str, fn(&YamlNode, &str, f64) -> CaseFileResult<Comparison>);

/// The keys that go with a question.
fn keys_of(query: &CaseQuery) -> &'static [&'static [ExpectationKey]] {
    match query {
        CaseQuery::Filter(_) => &[FILTER_KEYS],
        CaseQuery::Score(_) => &[FILTER_KEYS, SCORE_KEYS],
        CaseQuery::Place(_) => &[PLACE_KEYS],
        CaseQuery::Admit(_) => &[ADMIT_KEYS],
        CaseQuery::Order(_) => &[ORDER_KEYS],
        CaseQuery::Victims(_) => &[VICTIM_KEYS],
        CaseQuery::Cycle => &[CYCLE_KEYS],
    }
}

/// Expectations that Filter and Score share.
const FILTER_KEYS: &[ExpectationKey] = &[
    ("fit", |node, what, _| {
        let mut wanted = yaml::texts(node, what)?;
        wanted.sort();
        comparing(Ok(wanted), |wanted, result| {
            let got = result.filter().and_then(|filter| filter.fit.as_ref());
            let got = got.map(|set| set.names.as_slice()).unwrap_or_default();
            difference(&list_text(wanted), &list_text(got))
        })
    }),
    ("fitCount", |node, what, _| {
        comparing(yaml::optional_count(node, what), |wanted, result| {
            let got = result.filter().map_or(0, |filter| filter.fit_count);
            difference(&wanted.unwrap_or_default().to_string(), &got.to_string())
        })
    }),
    REASONS,
];

const REASONS: ExpectationKey = ("reasons", |node, what, _| {
    comparing(read_reasons(node, what), |wanted, result| {
        compare_reasons(wanted, &result.reasons())
    })
});

const SCORE_KEYS: &[ExpectationKey] = &[
    ("best", |node, what, _| {
        comparing(yaml::text(node, what), |wanted, result| {
            compare_best(wanted, &result.ranking())
        })
    }),
    ("ranking", |node, what, _| {
        names(node, what, |result| {
            Some(result.ranking().into_iter().map(|(name, _)| name).collect())
        })
    }),
    ("scores", |node, what, tolerance| {
        comparing(yaml::by_name(node, what, yaml::number), move |wanted, result| {
            compare_numbers(wanted, &result.ranking().into_iter().collect(), tolerance)
        })
    }),
    ("parts", |node, what, tolerance| {
        let wanted = yaml::by_name(node, what, |node, what| yaml::by_name(node, what, yaml::number));
        comparing(wanted, move |wanted, result| {
            compare_parts(wanted, &result.score_parts(), tolerance)
        })
    }),
];

/// Places of the tasks, and numbers of the devices of each, in the order of the tasks.
const PLACE_KEYS: &[ExpectationKey] = &[
    ("nodes", |node, what, _| {
        names(node, what, |result| {
            let group = result.placed()?;
            let sets = [&group.allocated, &group.pipelined].into_iter().flatten();
            Some(sets.flat_map(|set| set.names.clone()).collect())
        })
    }),
    ("devices", |node, what, _| {
        let numbers = |node: &YamlNode| {
            yaml::list(node, what)?
                .iter()
                .map(|one| yaml::integer(one, what))
                .collect()
        };
        let wanted: CaseFileResult<Vec<Vec<i64>>> = yaml::list(node, what)?.iter().map(numbers).collect();
        comparing(wanted, |wanted, result| {
            let sets = result.placed()?.devices.iter();
            let got: Vec<_> = sets.map(|set| &set.numbers).collect();
            difference(&format!("{wanted:?}"), &format!("{got:?}"))
        })
    }),
    REASONS,
];

const ADMIT_KEYS: &[ExpectationKey] = &[
    ("permitted", |node, what, _| {
        comparing(yaml::boolean(node, what), |wanted, result| {
            let item = result.admitted()?;
            let why = item.reasons.first().map(|reason| format!(": {}", reason.message));
            difference(&wanted.to_string(), &item.permitted.to_string())
                .map(|(wanted, got)| (wanted, format!("{got}{}", why.unwrap_or_default())))
        })
    }),
    REASONS,
    ("headroom", |node, what, _| {
        comparing(yaml::optional_count(node, what), |wanted, result| {
            difference(&limit_text(*wanted), &limit_text(result.admitted()?.headroom))
        })
    }),
    ("cards", |node, what, _| {
        names(node, what, |result| {
            let cards = result.admitted()?.cards.iter();
            Some(cards.map(|choice| choice.card.clone()).collect())
        })
    }),
    ("votes", |node, what, _| {
        let vote = |node: &YamlNode, what: &str| yaml::integer(node, what).map(|vote| vote as f64);
        comparing(yaml::by_name(node, what, vote), |wanted, result| {
            let got = result.admitted()?.votes.iter();
            let got = got.map(|vote| (vote.plugin.clone(), f64::from(vote.vote)));
            compare_numbers(wanted, &got.collect(), 0.0)
        })
    }),
];

const ORDER_KEYS: &[ExpectationKey] = &[
    ("queues", |node, what, _| {
        names(node, what, |result| Some(rank_names(&result.order()?.queues)))
    }),
    ("jobs", |node, what, _| {
        names(node, what, |result| Some(rank_names(&result.order()?.jobs)))
    }),
    ("queueKeys", |node, what, tolerance| {
        comparing(order_keys(node, what), move |wanted, result| {
            compare_keys(wanted, tolerance, &result.order()?.queues)
        })
    }),
    ("jobKeys", |node, what, tolerance| {
        comparing(order_keys(node, what), move |wanted, result| {
            compare_keys(wanted, tolerance, &result.order()?.jobs)
        })
    }),
];

const VICTIM_KEYS: &[ExpectationKey] = &[
    ("victims", |node, what, _| {
        names(node, what, |result| {
            Some(result.victim_names(&result.victims()?.victims))
        })
    }),
    ("fitsAfter", |node, what, _| {
        comparing(yaml::optional_count(node, what), |wanted, result| {
            let shown = |after: Option<u64>| after.map_or_else(|| "never".to_owned(), |after| after.to_string());
            difference(&shown(*wanted), &shown(result.victims()?.fits_after.map(u64::from)))
        })
    }),
    // Victims that each plugin chose.
    ("choices", |node, what, _| {
        comparing(yaml::by_name(node, what, yaml::texts), |wanted, result| {
            let votes = &result.victims()?.votes;
            wanted.iter().find_map(|(plugin, wanted)| {
                let vote = votes.iter().find(|vote| vote.plugin == *plugin);
                let got = vote.map_or_else(
                    || "no vote".to_owned(),
                    |vote| list_text(&result.victim_names(&vote.victims)),
                );
                difference(&format!("{plugin}: {}", list_text(wanted)), &format!("{plugin}: {got}"))
            })
        })
    }),
];

/// Outcome of a whole cycle for all jobs; each list is complete.
const CYCLE_KEYS: &[ExpectationKey] = &[
    ("enqueued", |node, what, _| {
        of_cycle(name_set(node, what), |jobs| {
            let enqueued = jobs.iter().filter(|(_, own)| own.enqueued);
            enqueued.map(|(job, _)| job.clone()).collect()
        })
    }),
    ("bound", |node, what, _| {
        of_cycle(place_set(node, what), |jobs| {
            jobs.values().flat_map(|own| place_texts(&own.bound)).collect()
        })
    }),
    ("pipelined", |node, what, _| {
        of_cycle(place_set(node, what), |jobs| {
            jobs.values().flat_map(|own| place_texts(&own.pipelined)).collect()
        })
    }),
    ("phases", |node, what, _| {
        of_cycle(place_set(node, what), |jobs| {
            let phases = jobs.iter();
            phases
                .filter_map(|(job, own)| Some(format!("{job}: {}", own.phase.as_ref()?)))
                .collect()
        })
    }),
    ("evicted", |node, what, _| {
        of_cycle(name_set(node, what), |jobs| {
            jobs.values().flat_map(|own| own.evicted.iter().cloned()).collect()
        })
    }),
];

/// Comparison with a value that was read.
fn comparing<T: Send + Sync + 'static>(
    wanted: CaseFileResult<T>,
    compare: impl Fn(&T, &CaseResult) -> Option<Mismatch> + Send + Sync + 'static,
) -> CaseFileResult<Comparison> {
    let wanted = wanted?;
    Ok(Box::new(move |result| compare(&wanted, result)))
}

/// Comparison of names in their order; `got` gives those of a result, if it is one of this question.
fn names(node: &YamlNode, what: &str, got: fn(&CaseResult) -> Option<Vec<String>>) -> CaseFileResult<Comparison> {
    comparing(yaml::texts(node, what), move |wanted, result| {
        difference(&list_text(wanted), &list_text(&got(result)?))
    })
}

/// Comparison of a set with one of the outcomes of a cycle.
fn of_cycle(
    wanted: CaseFileResult<BTreeSet<String>>,
    got: fn(&CycleOutcomes) -> BTreeSet<String>,
) -> CaseFileResult<Comparison> {
    comparing(wanted, move |wanted, result| {
        difference(&list_text(wanted), &list_text(&got(result.cycle()?)))
    })
}

fn name_set(node: &YamlNode, what: &str) -> CaseFileResult<BTreeSet<String>> {
    Ok(yaml::texts(node, what)?.into_iter().collect())
}

fn place_set(node: &YamlNode, what: &str) -> CaseFileResult<BTreeSet<String>> {
    Ok(place_texts(&yaml::by_name(node, what, yaml::text)?).collect())
}

/// Lists of numbers by name and plugin.
type NamedNumbers = BTreeMap<String, BTreeMap<String, Vec<f64>>>;

fn order_keys(node: &YamlNode, what: &str) -> CaseFileResult<NamedNumbers> {
    let list = |node: &YamlNode, what: &str| {
        yaml::list(node, what)?
            .iter()
            .map(|one| yaml::number(one, what))
            .collect()
    };
    yaml::by_name(node, what, |node, what| yaml::by_name(node, what, list))
}

/// Reads what is expected of the answer to a question.
pub(super) fn read_expectations(node: &YamlNode, query: &CaseQuery) -> CaseFileResult<Vec<CaseExpectation>> {
    let mut fields = MapFields::of(node, "`expect`")?;
    let tolerance = fields.read("tolerance", yaml::number)?.unwrap_or(TOLERANCE);
    let problem: ExpectationKey = (PROBLEM, |node, what, _| {
        comparing(yaml::text(node, what), |wanted, result| {
            let got = result.problem();
            difference(wanted, got.map_or("none", |problem| problem.reason.as_str()))
        })
    });
    let mut expected = Vec::new();
    for (key, read) in [problem].iter().chain(keys_of(query).iter().copied().flatten()) {
        if let Some((mark, node)) = fields.take_marked(key) {
            expected.push(CaseExpectation {
                line: mark.line,
                key,
                compare: read(node, &format!("`{key}`"), tolerance)?,
            });
        }
    }
    fields.finish()?;
    if expected.is_empty() {
        return Err(CaseFileError::at(node.mark, "`expect` expects nothing"));
    }
    expected.sort_by_key(|one| one.line);
    Ok(expected)
}

fn read_reasons(node: &YamlNode, what: &str) -> CaseFileResult<Vec<ExpectedReason>> {
    let reason = |node: &YamlNode| {
        let mut fields = MapFields::of(node, "a reason")?;
        let mut text = |key: &'static str| fields.take(key).map(|node| yaml::text(node, key)).transpose();
        let (plugin, code, resource) = (text("plugin")?, text("code")?, text("resource")?);
        let message = text("message")?;
        let count = fields.read("count", yaml::optional_count)?.flatten();
        fields.finish()?;
        Ok(ExpectedReason {
            plugin,
            code,
            resource,
            message,
            count,
        })
    };
    yaml::list(node, what)?.iter().map(reason).collect()
}
