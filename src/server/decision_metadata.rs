//! Metadata of decisions: the common response metadata and the plugins that were not evaluated. Also the metrics of
//! decisions.

use std::sync::Arc;

use tokio::time::Instant;

use super::ServerContext;
use super::convert::nodes::NodeEncoding;
use super::convert::not_evaluated;
use super::evaluation::EvaluationContext;
use super::pb;
use pumice_engine::decide::NodeQuery;
use pumice_engine::plugins;
use pumice_engine::policy::DecisionKind;

impl EvaluationContext {
    /// Metadata of a decision about which the request names these plugins.
    pub(super) fn decision_metadata(
        &self,
        edge: &ServerContext,
        encoding: NodeEncoding,
        kind: DecisionKind,
        plugins: &[Arc<str>],
    ) -> pb::ResponseMetadata {
        let mut metadata = self.response_metadata(edge, encoding);
        let policy = &self.policy.policy;
        metadata.not_evaluated =
            not_evaluated::of_decision(policy, kind, plugins, Some(self.cluster_state()), self.now);
        metadata
    }
}

/// Records a decision and its evaluated plugins in metrics.
pub(super) fn record_decision(
    edge: &ServerContext,
    context: &EvaluationContext,
    rpc: &'static str,
    query: &NodeQuery,
    start: Instant,
) {
    let policy = &context.policy.policy;
    let hooks = if rpc == "Filter" {
        policy.filters()
    } else {
        policy.scorers()
    };
    let asked: Vec<&str> = if query.plugins.is_empty() {
        hooks.iter().map(|hook| &*hook.name).collect()
    } else {
        query.plugins.iter().map(|name| &**name).collect()
    };
    // Names as the registry has them: callers must not be able to invent labels.
    let served = plugins::REGISTRY.iter().map(|row| row.name);
    let plugins: Vec<&'static str> = served.filter(|name| asked.contains(name)).collect();
    edge.metrics
        .record_decision(rpc, query.tasks.len(), &plugins, start.elapsed());
}
