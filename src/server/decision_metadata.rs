//! Metadata of decisions: that of any response, and the plugins of the policy that took no part.

use std::sync::Arc;

use super::ServerContext;
use super::convert::nodes::NodeEncoding;
use super::convert::not_evaluated;
use super::evaluation::EvaluationContext;
use super::pb;
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
        }
        metadata
    }
}
