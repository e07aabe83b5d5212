//! Requests about all nodes of a case in one call, and their results node by node.

use std::collections::BTreeMap;

use pumice::server::pb;
use tonic::{Code, Status};

use crate::support::wire::BlockingClients;

/// Scores by node: totals, and the parts by plugin and part.
#[derive(Debug, Default)]
pub(crate) struct NodeScores {
    /// Totals by node.
    pub(crate) totals: BTreeMap<String, f64>,
    /// Parts by (plugin, part), then by node.
    pub(crate) parts: BTreeMap<(String, String), BTreeMap<String, f64>>,
}

impl NodeScores {
    /// Score of one part at one node.
    pub(crate) fn part(&self, plugin: &str, part: &str, node: &str) -> Option<f64> {
        let nodes = self.parts.get(&(plugin.to_owned(), part.to_owned()))?;
        nodes.get(node).copied()
    }
}

/// Rejection of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VectorRejection {
    /// Plugin that rejected the node.
    pub(crate) plugin: String,
    /// Message of the plugin.
    pub(crate) message: String,
    /// Resolution: whether evictions may help.
    pub(crate) resolution: pb::Resolution,
}

/// Nodes that fit, and the rejections of the others.
#[derive(Debug, Default)]
pub(crate) struct FilteredNodes {
    /// Names of the nodes that fit.
    pub(crate) fit: Vec<String>,
    /// Rejections of each other node.
    pub(crate) rejected: BTreeMap<String, Vec<VectorRejection>>,
}

/// Request about one task.
#[derive(Clone, Debug)]
pub(crate) struct TaskQuery {
    /// Reference to the cluster and policy.
    pub(crate) evaluation_ref: pb::EvaluationRef,
    /// Task of the request.
    pub(crate) task: pb::Task,
    /// Plugins of the request; none: those of the tiers.
    pub(crate) plugins: Vec<String>,
}

/// Error of a request.
pub(crate) enum QueryError {
    /// The document was rejected.
    PolicyRejected(Status),
    /// Any other error.
    Other(String),
}

impl std::fmt::Debug for QueryError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PolicyRejected(status) => write!(out, "refused policy: {}", status.message()),
            Self::Other(text) => out.write_str(text),
        }
    }
}

/// Error for the status of a call.
pub(crate) fn query_error(status: Status) -> QueryError {
    if status.code() == Code::InvalidArgument && !status_diagnostics(&status).is_empty() {
        QueryError::PolicyRejected(status)
    } else {
        QueryError::Other(status.to_string())
    }
}

/// Diagnostics among the details of an error.
pub(crate) fn status_diagnostics(status: &Status) -> Vec<pb::Diagnostic> {
    use prost::Message as _;

    /// Part of google.rpc.Status that is read here.
    #[derive(prost::Message)]
    struct StatusDetails {
        #[prost(message, repeated, tag = "3")]
        details: Vec<prost_types::Any>,
    }

    let details = StatusDetails::decode(status.details()).unwrap_or_default().details;
    let reports = details
        .iter()
        .filter(|detail| detail.type_url.ends_with("/pumice.v1.PolicyReport"))
        .map(|detail| pb::PolicyReport::decode(&*detail.value).unwrap_or_default());
    reports.flat_map(|report| report.diagnostics).collect()
}

fn single<T>(mut items: Vec<T>) -> Result<T, QueryError> {
    let (Some(item), true) = (items.pop(), items.is_empty()) else {
        return Err(QueryError::Other("the answer has not one item for one task".to_owned()));
    };
    Ok(item)
}

fn no_problem(problem: Option<&pb::Problem>) -> Result<(), QueryError> {
    problem.map_or(Ok(()), |problem| Err(QueryError::Other(format!("{problem:?}"))))
}

fn by_node(names: &[String], values: &[f64]) -> Result<BTreeMap<String, f64>, QueryError> {
    if names.len() != values.len() {
        let text = format!("{} scores for {} nodes", values.len(), names.len());
        return Err(QueryError::Other(text));
    }
    Ok(names.iter().cloned().zip(values.iter().copied()).collect())
}

/// Calls Score with parts.
///
/// # Errors
/// The call failed.
pub(crate) fn score(wire: &BlockingClients, asked: &TaskQuery) -> Result<NodeScores, QueryError> {
    let reply = wire.score(pb::ScoreRequest {
        against: Some(asked.evaluation_ref.clone()),
        tasks: vec![asked.task.clone()],
        plugins: asked.plugins.clone(),
        resource_fit: pb::ResourceFit::None.into(),
        with_parts: true,
        ..pb::ScoreRequest::default()
    });
    let item = single(reply.map_err(query_error)?.result.unwrap_or_default().items)?;
    no_problem(item.problem.as_ref())?;
    let names = item.nodes.unwrap_or_default().names;
    let mut scores = NodeScores {
        totals: by_node(&names, &item.totals)?,
        ..NodeScores::default()
    };
    for part in item.parts {
        let key = (part.plugin, part.part);
        scores.parts.insert(key, by_node(&names, &part.scores)?);
    }
    Ok(scores)
}

/// Calls Filter by plugins alone.
///
/// # Errors
/// The call failed.
pub(crate) fn filter(wire: &BlockingClients, asked: &TaskQuery) -> Result<FilteredNodes, QueryError> {
    let reply = wire.filter(pb::FilterRequest {
        against: Some(asked.evaluation_ref.clone()),
        tasks: vec![asked.task.clone()],
        plugins: asked.plugins.clone(),
        resource_fit: pb::ResourceFit::None.into(),
        ..pb::FilterRequest::default()
    });
    let item = single(reply.map_err(query_error)?.result.unwrap_or_default().items)?;
    no_problem(item.problem.as_ref())?;
    let mut fits = FilteredNodes {
        fit: item.fit.unwrap_or_default().names,
        ..FilteredNodes::default()
    };
    for rejection in item.rejections {
        let reason = rejection.reason.unwrap_or_default();
        let on_node = VectorRejection {
            resolution: reason.resolution(),
            plugin: reason.plugin,
            message: reason.message,
        };
        for node in rejection.nodes.unwrap_or_default().names {
            fits.rejected.entry(node).or_default().push(on_node.clone());
        }
    }
    Ok(fits)
}
