//! Metadata of decisions: that of any response, and the plugins of the policy that took no part; and metrics of them.

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
    /// Metadata of a decision. Unserved plugins of the policy are listed unless the request names plugins.
    pub(super) fn decision_metadata(
        &self,
        edge: &ServerContext,
        encoding: NodeEncoding,
        kind: DecisionKind,
        plugins: &[Arc<str>],
    ) -> pb::ResponseMetadata {
        let mut metadata = self.response_metadata(edge, encoding);
        if plugins.is_empty() {
            metadata.not_evaluated = not_evaluated::of_policy(&self.policy.policy, kind);
            if !matches!(kind, DecisionKind::Admit | DecisionKind::Order) {
                let waiting = not_evaluated::for_labels(&self.policy.policy, self.cluster_state());
                metadata.not_evaluated.extend(waiting);
                metadata.not_evaluated.sort_by(|one, other| one.name.cmp(&other.name));
            }
        }
        if self.now.is_none() {
            let mut timeless = not_evaluated::of_time(&self.policy.policy, kind);
            timeless.retain(|own| plugins.is_empty() || plugins.iter().any(|plugin| **plugin == *own.name));
            metadata.not_evaluated.extend(timeless);
            metadata.not_evaluated.sort_by(|one, other| one.name.cmp(&other.name));
        }
        metadata
    }
}

/// Counts a decision, and the plugins that took part.
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
