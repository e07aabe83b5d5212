//! What a case expects of an answer.

use std::collections::BTreeMap;

use super::case::Question;
use super::yaml::{self, Fault, Fields, Read};
use crate::engine::policy::Node;

/// How far a number may be from the expected one, if nothing is said.
const TOLERANCE: f64 = 1e-6;

/// One expectation and its line.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) line: u32,
    pub(super) key: &'static str,
    pub(super) wanted: Wanted,
}

/// Numbers by name, with how far off they may be.
pub(super) type Numbers = (BTreeMap<String, f64>, f64);
/// Lists of numbers by name and plugin, likewise.
pub(super) type Keys = (BTreeMap<String, BTreeMap<String, Vec<f64>>>, f64);

#[derive(Debug)]
pub(super) enum Wanted {
    Problem(String),
    Fit(Vec<String>),
    FitCount(u64),
    Reasons(Vec<WantedReason>),
    Best(String),
    Ranking(Vec<String>),
    Scores(Numbers),
    Parts(BTreeMap<String, BTreeMap<String, f64>>, f64),
    Admission(Admission),
    Order(Order),
    Victims(Victims),
}

#[derive(Debug)]
pub(super) enum Admission {
    Permitted(bool),
    Headroom(Option<u64>),
    Cards(Vec<String>),
    Votes(BTreeMap<String, i64>),
}

#[derive(Debug)]
pub(super) enum Order {
    Queues(Vec<String>),
    Jobs(Vec<String>),
    QueueKeys(Keys),
    JobKeys(Keys),
}

#[derive(Debug)]
pub(super) enum Victims {
    Chosen(Vec<String>),
    FitsAfter(Option<u64>),
    /// What each plugin chose.
    Choices(BTreeMap<String, Vec<String>>),
}

/// A refusal; what is not said is not looked at.
#[derive(Debug, Default)]
pub(super) struct WantedReason {
    pub(super) plugin: Option<String>,
    pub(super) code: Option<String>,
    pub(super) resource: Option<String>,
    pub(super) count: Option<u64>,
}

/// Reads what is expected of the answer to a question.
pub(super) fn read(node: &Node, question: &Question) -> Read<Vec<Expected>> {
    let mut fields = Fields::of(node, "`expect`")?;
    let tolerance = fields.take("tolerance").map(|node| yaml::number(node, "`tolerance`"));
    let tolerance = tolerance.transpose()?.unwrap_or(TOLERANCE);
    let mut expected = Vec::new();
    let mut key = |fields: &mut Fields<'_>, key: &'static str, read: &dyn Fn(&Node, &str) -> Read<Wanted>| {
        if let Some((mark, node)) = fields.take_marked(key) {
            let wanted = read(node, &format!("`{key}`"))?;
            expected.push(Expected {
                line: mark.line,
                key,
                wanted,
            });
        }
        Ok::<(), Fault>(())
    };
    key(&mut fields, "problem", &|n, w| yaml::text(n, w).map(Wanted::Problem))?;
    asked(question, tolerance, &mut fields, &mut key)?;
    fields.end()?;
    if expected.is_empty() {
        return Err(Fault::at(node.mark, "`expect` expects nothing"));
    }
    expected.sort_by_key(|one| one.line);
    Ok(expected)
}

type ReadKey<'k> = dyn FnMut(&mut Fields<'_>, &'static str, &dyn Fn(&Node, &str) -> Read<Wanted>) -> Read<()> + 'k;

/// The keys that go with a question.
fn asked(question: &Question, tolerance: f64, fields: &mut Fields<'_>, key: &mut ReadKey<'_>) -> Read<()> {
    let keys = |n: &Node, w: &str| {
        let list = |n: &Node, w: &str| yaml::list(n, w)?.iter().map(|one| yaml::number(one, w)).collect();
        yaml::by_name(n, w, |n, w| yaml::by_name(n, w, list))
    };
    match question {
        Question::Filter(_) => filtered(fields, key)?,
        Question::Score(_) => {
            filtered(fields, key)?;
            key(fields, "best", &|n, w| yaml::text(n, w).map(Wanted::Best))?;
            key(fields, "ranking", &|n, w| yaml::texts(n, w).map(Wanted::Ranking))?;
            key(fields, "scores", &|n, w| {
                Ok(Wanted::Scores((yaml::by_name(n, w, yaml::number)?, tolerance)))
            })?;
            key(fields, "parts", &|n, w| {
                let parts = yaml::by_name(n, w, |n, w| yaml::by_name(n, w, yaml::number))?;
                Ok(Wanted::Parts(parts, tolerance))
            })?;
        }
        Question::Admit(_) => {
            use Admission::{Cards, Headroom, Permitted, Votes};
            let of = |wanted: Read<Admission>| wanted.map(Wanted::Admission);
            key(fields, "permitted", &|n, w| of(yaml::flag(n, w).map(Permitted)))?;
            key(fields, "reasons", &|n, w| reasons(n, w).map(Wanted::Reasons))?;
            key(fields, "headroom", &|n, w| of(yaml::optional_count(n, w).map(Headroom)))?;
            key(fields, "cards", &|n, w| of(yaml::texts(n, w).map(Cards)))?;
            key(fields, "votes", &|n, w| of(yaml::by_name(n, w, yaml::whole).map(Votes)))?;
        }
        Question::Order(_) => {
            use Order::{JobKeys, Jobs, QueueKeys, Queues};
            let of = |wanted: Read<Order>| wanted.map(Wanted::Order);
            key(fields, "queues", &|n, w| of(yaml::texts(n, w).map(Queues)))?;
            key(fields, "jobs", &|n, w| of(yaml::texts(n, w).map(Jobs)))?;
            key(fields, "queueKeys", &|n, w| of(Ok(QueueKeys((keys(n, w)?, tolerance)))))?;
            key(fields, "jobKeys", &|n, w| of(Ok(JobKeys((keys(n, w)?, tolerance)))))?;
        }
        Question::Victims(_) => {
            use Victims::{Choices, Chosen, FitsAfter};
            let of = |wanted: Read<Victims>| wanted.map(Wanted::Victims);
            key(fields, "victims", &|n, w| of(yaml::texts(n, w).map(Chosen)))?;
            key(fields, "fitsAfter", &|n, w| {
                of(yaml::optional_count(n, w).map(FitsAfter))
            })?;
            key(fields, "choices", &|n, w| {
                of(yaml::by_name(n, w, yaml::texts).map(Choices))
            })?;
        }
    }
    Ok(())
}

/// What Filter and Score have in common.
fn filtered(fields: &mut Fields<'_>, key: &mut ReadKey<'_>) -> Read<()> {
    key(fields, "fit", &|n, w| yaml::texts(n, w).map(Wanted::Fit))?;
    key(fields, "fitCount", &|n, w| {
        Ok(Wanted::FitCount(yaml::optional_count(n, w)?.unwrap_or_default()))
    })?;
    key(fields, "reasons", &|n, w| reasons(n, w).map(Wanted::Reasons))
}

fn reasons(node: &Node, what: &str) -> Read<Vec<WantedReason>> {
    let reason = |node: &Node| {
        let mut fields = Fields::of(node, "a reason")?;
        let mut text = |key: &'static str| fields.take(key).map(|node| yaml::text(node, key)).transpose();
        let (plugin, code, resource) = (text("plugin")?, text("code")?, text("resource")?);
        let count = fields.take("count").map(|node| yaml::optional_count(node, "`count`"));
        let count = count.transpose()?.flatten();
        fields.end()?;
        Ok(WantedReason {
            plugin,
            code,
            resource,
            count,
        })
    };
    yaml::list(node, what)?.iter().map(reason).collect()
}
