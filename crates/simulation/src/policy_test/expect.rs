//! Expectations of a case about its result.

use std::collections::BTreeMap;

use super::query::CaseQuery;
use super::yaml::{self, CaseFileError, CaseFileResult, MapFields};
use pumice_engine::policy::YamlNode;

/// Default tolerance of a number.
const TOLERANCE: f64 = 1e-6;

/// One expectation and its line.
#[derive(Debug)]
pub(super) struct CaseExpectation {
    pub(super) line: u32,
    pub(super) key: &'static str,
    pub(super) value: ExpectedResult,
}

/// Numbers by name, with the tolerance.
pub(super) type ExpectedNumbers = (BTreeMap<String, f64>, f64);
/// Lists of numbers by name and plugin, likewise.
pub(super) type ExpectedOrderKeys = (BTreeMap<String, BTreeMap<String, Vec<f64>>>, f64);

#[derive(Debug)]
pub(super) enum ExpectedResult {
    Problem(String),
    Fit(Vec<String>),
    FitCount(u64),
    Reasons(Vec<ExpectedReason>),
    Best(String),
    Ranking(Vec<String>),
    Scores(ExpectedNumbers),
    Parts(BTreeMap<String, BTreeMap<String, f64>>, f64),
    Placement(ExpectedPlacement),
    Admission(ExpectedAdmission),
    Order(ExpectedOrder),
    Victims(ExpectedVictims),
    Cycle(ExpectedCycle),
}

/// Places of the tasks, in their order.
#[derive(Debug)]
pub(super) enum ExpectedPlacement {
    Nodes(Vec<String>),
    /// Numbers of the devices of each task.
    Devices(Vec<Vec<i64>>),
}

#[derive(Debug)]
pub(super) enum ExpectedAdmission {
    Permitted(bool),
    Headroom(Option<u64>),
    Cards(Vec<String>),
    Votes(BTreeMap<String, i64>),
}

#[derive(Debug)]
pub(super) enum ExpectedOrder {
    Queues(Vec<String>),
    Jobs(Vec<String>),
    QueueKeys(ExpectedOrderKeys),
    JobKeys(ExpectedOrderKeys),
}

#[derive(Debug)]
pub(super) enum ExpectedVictims {
    Chosen(Vec<String>),
    FitsAfter(Option<u64>),
    /// Victims that each plugin chose.
    Choices(BTreeMap<String, Vec<String>>),
}

/// Outcome of a whole cycle for all jobs; each list is complete.
#[derive(Debug)]
pub(super) enum ExpectedCycle {
    /// Jobs.
    Enqueued(Vec<String>),
    /// Nodes by task.
    Bound(BTreeMap<String, String>),
    /// Nodes by task.
    Pipelined(BTreeMap<String, String>),
    /// Tasks.
    Evicted(Vec<String>),
    /// Phases by job.
    Phases(BTreeMap<String, String>),
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

/// Reads what is expected of the answer to a question.
pub(super) fn read_expectations(node: &YamlNode, query: &CaseQuery) -> CaseFileResult<Vec<CaseExpectation>> {
    let mut fields = MapFields::of(node, "`expect`")?;
    let tolerance = fields.take("tolerance").map(|node| yaml::number(node, "`tolerance`"));
    let tolerance = tolerance.transpose()?.unwrap_or(TOLERANCE);
    let mut expected = Vec::new();
    let mut key = |fields: &mut MapFields<'_>,
                   key: &'static str,
                   read: &dyn Fn(&YamlNode, &str) -> CaseFileResult<ExpectedResult>| {
        if let Some((mark, node)) = fields.take_marked(key) {
            let wanted = read(node, &format!("`{key}`"))?;
            expected.push(CaseExpectation {
                line: mark.line,
                key,
                value: wanted,
            });
        }
        Ok::<(), CaseFileError>(())
    };
    key(&mut fields, "problem", &|n, w| {
        yaml::text(n, w).map(ExpectedResult::Problem)
    })?;
    read_query_keys(query, tolerance, &mut fields, &mut key)?;
    fields.finish()?;
    if expected.is_empty() {
        return Err(CaseFileError::at(node.mark, "`expect` expects nothing"));
    }
    expected.sort_by_key(|one| one.line);
    Ok(expected)
}

type KeyReader<'k> = dyn FnMut(
        &mut MapFields<'_>,
        &'static str,
        &dyn Fn(&YamlNode, &str) -> CaseFileResult<ExpectedResult>,
    ) -> CaseFileResult<()>
    + 'k;

/// The keys that go with a question.
fn read_query_keys(
    query: &CaseQuery,
    tolerance: f64,
    fields: &mut MapFields<'_>,
    key: &mut KeyReader<'_>,
) -> CaseFileResult<()> {
    let keys = |n: &YamlNode, w: &str| {
        let list = |n: &YamlNode, w: &str| yaml::list(n, w)?.iter().map(|one| yaml::number(one, w)).collect();
        yaml::by_name(n, w, |n, w| yaml::by_name(n, w, list))
    };
    match query {
        CaseQuery::Filter(_) => read_filter_keys(fields, key)?,
        CaseQuery::Score(_) => {
            read_filter_keys(fields, key)?;
            key(fields, "best", &|n, w| yaml::text(n, w).map(ExpectedResult::Best))?;
            key(fields, "ranking", &|n, w| {
                yaml::texts(n, w).map(ExpectedResult::Ranking)
            })?;
            key(fields, "scores", &|n, w| {
                Ok(ExpectedResult::Scores((yaml::by_name(n, w, yaml::number)?, tolerance)))
            })?;
            key(fields, "parts", &|n, w| {
                let parts = yaml::by_name(n, w, |n, w| yaml::by_name(n, w, yaml::number))?;
                Ok(ExpectedResult::Parts(parts, tolerance))
            })?;
        }
        CaseQuery::Place(_) => read_place_keys(fields, key)?,
        CaseQuery::Admit(_) => {
            use ExpectedAdmission::{Cards, Headroom, Permitted, Votes};
            let of = |wanted: CaseFileResult<ExpectedAdmission>| wanted.map(ExpectedResult::Admission);
            key(fields, "permitted", &|n, w| of(yaml::boolean(n, w).map(Permitted)))?;
            key(fields, "reasons", &|n, w| {
                read_reasons(n, w).map(ExpectedResult::Reasons)
            })?;
            key(fields, "headroom", &|n, w| of(yaml::optional_count(n, w).map(Headroom)))?;
            key(fields, "cards", &|n, w| of(yaml::texts(n, w).map(Cards)))?;
            key(fields, "votes", &|n, w| {
                of(yaml::by_name(n, w, yaml::integer).map(Votes))
            })?;
        }
        CaseQuery::Order(_) => {
            use ExpectedOrder::{JobKeys, Jobs, QueueKeys, Queues};
            let of = |wanted: CaseFileResult<ExpectedOrder>| wanted.map(ExpectedResult::Order);
            key(fields, "queues", &|n, w| of(yaml::texts(n, w).map(Queues)))?;
            key(fields, "jobs", &|n, w| of(yaml::texts(n, w).map(Jobs)))?;
            key(fields, "queueKeys", &|n, w| of(Ok(QueueKeys((keys(n, w)?, tolerance)))))?;
            key(fields, "jobKeys", &|n, w| of(Ok(JobKeys((keys(n, w)?, tolerance)))))?;
        }
        CaseQuery::Victims(_) => {
            use ExpectedVictims::{Choices, Chosen, FitsAfter};
            let of = |wanted: CaseFileResult<ExpectedVictims>| wanted.map(ExpectedResult::Victims);
            key(fields, "victims", &|n, w| of(yaml::texts(n, w).map(Chosen)))?;
            key(fields, "fitsAfter", &|n, w| {
                of(yaml::optional_count(n, w).map(FitsAfter))
            })?;
            key(fields, "choices", &|n, w| {
                of(yaml::by_name(n, w, yaml::texts).map(Choices))
            })?;
        }
        CaseQuery::Cycle => read_cycle_keys(fields, key)?,
    }
    Ok(())
}

/// Expectations about a whole cycle.
fn read_cycle_keys(fields: &mut MapFields<'_>, key: &mut KeyReader<'_>) -> CaseFileResult<()> {
    use ExpectedCycle::{Bound, Enqueued, Evicted, Phases, Pipelined};
    let of = |wanted: CaseFileResult<ExpectedCycle>| wanted.map(ExpectedResult::Cycle);
    key(fields, "enqueued", &|n, w| of(yaml::texts(n, w).map(Enqueued)))?;
    key(fields, "bound", &|n, w| of(yaml::by_name(n, w, yaml::text).map(Bound)))?;
    key(fields, "pipelined", &|n, w| {
        of(yaml::by_name(n, w, yaml::text).map(Pipelined))
    })?;
    key(
        fields,
        "phases",
        &|n, w| of(yaml::by_name(n, w, yaml::text).map(Phases)),
    )?;
    key(fields, "evicted", &|n, w| of(yaml::texts(n, w).map(Evicted)))
}

/// Expectations about places and devices.
fn read_place_keys(fields: &mut MapFields<'_>, key: &mut KeyReader<'_>) -> CaseFileResult<()> {
    use ExpectedPlacement::{Devices, Nodes};
    let of = |wanted: CaseFileResult<ExpectedPlacement>| wanted.map(ExpectedResult::Placement);
    let numbers = |n: &YamlNode, w: &str| yaml::list(n, w)?.iter().map(|one| yaml::integer(one, w)).collect();
    key(fields, "nodes", &|n, w| of(yaml::texts(n, w).map(Nodes)))?;
    key(fields, "devices", &|n, w| {
        let sets = yaml::list(n, w)?.iter().map(|one| numbers(one, w));
        of(sets.collect::<CaseFileResult<_>>().map(Devices))
    })?;
    key(fields, "reasons", &|n, w| {
        read_reasons(n, w).map(ExpectedResult::Reasons)
    })
}

/// Expectations that Filter and Score share.
fn read_filter_keys(fields: &mut MapFields<'_>, key: &mut KeyReader<'_>) -> CaseFileResult<()> {
    key(fields, "fit", &|n, w| yaml::texts(n, w).map(ExpectedResult::Fit))?;
    key(fields, "fitCount", &|n, w| {
        Ok(ExpectedResult::FitCount(
            yaml::optional_count(n, w)?.unwrap_or_default(),
        ))
    })?;
    key(fields, "reasons", &|n, w| {
        read_reasons(n, w).map(ExpectedResult::Reasons)
    })
}

fn read_reasons(node: &YamlNode, what: &str) -> CaseFileResult<Vec<ExpectedReason>> {
    let reason = |node: &YamlNode| {
        let mut fields = MapFields::of(node, "a reason")?;
        let mut text = |key: &'static str| fields.take(key).map(|node| yaml::text(node, key)).transpose();
        let (plugin, code, resource) = (text("plugin")?, text("code")?, text("resource")?);
        let message = text("message")?;
        let count = fields.take("count").map(|node| yaml::optional_count(node, "`count`"));
        let count = count.transpose()?.flatten();
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
