//! Asks the server about all nodes of a case in one call, and reads the answers node by node.

use std::collections::BTreeMap;

use pumice::server::pb;
use tonic::{Code, Status};

use crate::support::wire::Wire;

/// Scores by node: totals, and the parts by plugin and part.
#[derive(Debug, Default)]
pub(crate) struct Scores {
    /// By node.
    pub(crate) totals: BTreeMap<String, f64>,
    /// By (plugin, part), then by node.
    pub(crate) parts: BTreeMap<(String, String), BTreeMap<String, f64>>,
}

impl Scores {
    /// One part at one node.
    pub(crate) fn part(&self, plugin: &str, part: &str, node: &str) -> Option<f64> {
        let nodes = self.parts.get(&(plugin.to_owned(), part.to_owned()))?;
        nodes.get(node).copied()
    }
}

/// A refusal, as the nodes of a case see it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    /// The plugin that refused.
    pub(crate) plugin: String,
    /// Its words.
    pub(crate) message: String,
    /// Whether evictions may help.
    pub(crate) resolution: pb::Resolution,
}

/// Nodes that fit, and why the others do not.
#[derive(Debug, Default)]
pub(crate) struct Fits {
    /// Nodes that fit.
    pub(crate) fit: Vec<String>,
    /// All refusals of a node.
    pub(crate) refused: BTreeMap<String, Vec<Refusal>>,
}

/// One question about one task.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The ground.
    pub(crate) ground: pb::Ground,
    /// The task.
    pub(crate) task: pb::Task,
    /// Plugins named; none: the tiers.
    pub(crate) plugins: Vec<String>,
}

/// A question that got no answer.
pub(crate) enum NoAnswer {
    /// The document was refused.
    PolicyRefused(Status),
    /// Anything else.
    Other(String),
}

impl std::fmt::Debug for NoAnswer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PolicyRefused(status) => write!(out, "refused policy: {}", status.message()),
            Self::Other(text) => out.write_str(text),
        }
    }
}

/// Why a call was refused.
pub(crate) fn no_answer(status: Status) -> NoAnswer {
    if status.code() == Code::InvalidArgument && !report(&status).is_empty() {
        NoAnswer::PolicyRefused(status)
    } else {
        NoAnswer::Other(status.to_string())
    }
}

/// The findings among the details of a refusal.
pub(crate) fn report(status: &Status) -> Vec<pb::Finding> {
    use prost::Message as _;

    /// google.rpc.Status, as far as it is read here.
    #[derive(prost::Message)]
    struct Details {
        #[prost(message, repeated, tag = "3")]
        details: Vec<prost_types::Any>,
    }

    let details = Details::decode(status.details()).unwrap_or_default().details;
    let reports = details
        .iter()
        .filter(|detail| detail.type_url.ends_with("/pumice.v1.PolicyReport"))
        .map(|detail| pb::PolicyReport::decode(&*detail.value).unwrap_or_default());
    reports.flat_map(|report| report.findings).collect()
}

fn single<T>(mut items: Vec<T>) -> Result<T, NoAnswer> {
    let (Some(item), true) = (items.pop(), items.is_empty()) else {
        return Err(NoAnswer::Other("the answer has not one item for one task".to_owned()));
    };
    Ok(item)
}

fn no_problem(problem: Option<&pb::Problem>) -> Result<(), NoAnswer> {
    problem.map_or(Ok(()), |problem| Err(NoAnswer::Other(format!("{problem:?}"))))
}

fn by_node(names: &[String], values: &[f64]) -> Result<BTreeMap<String, f64>, NoAnswer> {
    if names.len() != values.len() {
        let text = format!("{} scores for {} nodes", values.len(), names.len());
        return Err(NoAnswer::Other(text));
    }
    Ok(names.iter().cloned().zip(values.iter().copied()).collect())
}

/// Score with parts.
///
/// # Errors
/// The question was refused.
pub(crate) fn score(wire: &Wire, asked: &Asked) -> Result<Scores, NoAnswer> {
    let reply = wire.score(pb::ScoreRequest {
        ground: Some(asked.ground.clone()),
        tasks: vec![asked.task.clone()],
        plugins: asked.plugins.clone(),
        resource_fit: pb::ResourceFit::None.into(),
        with_parts: true,
        ..pb::ScoreRequest::default()
    });
    let item = single(reply.map_err(no_answer)?.answer.unwrap_or_default().items)?;
    no_problem(item.problem.as_ref())?;
    let names = item.nodes.unwrap_or_default().names;
    let mut scores = Scores {
        totals: by_node(&names, &item.totals)?,
        ..Scores::default()
    };
    for part in item.parts {
        let key = (part.plugin, part.part);
        scores.parts.insert(key, by_node(&names, &part.scores)?);
    }
    Ok(scores)
}

/// Filter, by plugins alone.
///
/// # Errors
/// The question was refused.
pub(crate) fn filter(wire: &Wire, asked: &Asked) -> Result<Fits, NoAnswer> {
    let reply = wire.filter(pb::FilterRequest {
        ground: Some(asked.ground.clone()),
        tasks: vec![asked.task.clone()],
        plugins: asked.plugins.clone(),
        resource_fit: pb::ResourceFit::None.into(),
        ..pb::FilterRequest::default()
    });
    let item = single(reply.map_err(no_answer)?.answer.unwrap_or_default().items)?;
    no_problem(item.problem.as_ref())?;
    let mut fits = Fits {
        fit: item.fit.unwrap_or_default().names,
        ..Fits::default()
    };
    for rejection in item.rejections {
        let reason = rejection.reason.unwrap_or_default();
        let refusal = Refusal {
            resolution: reason.resolution(),
            plugin: reason.plugin,
            message: reason.message,
        };
        for node in rejection.nodes.unwrap_or_default().names {
            fits.refused.entry(node).or_default().push(refusal.clone());
        }
    }
    Ok(fits)
}
