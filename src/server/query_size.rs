//! Sizes of queries and of their responses, as far as they are known before the evaluation.

use pumice_engine::decide::NodeQuery;

use super::evaluation::EvaluationContext;
use super::pb;

/// Number of task-node pairs of a query.
pub(super) fn pair_count(context: &EvaluationContext, query: &NodeQuery) -> usize {
    let nodes = query
        .candidates
        .as_ref()
        .map_or(context.cluster_state().slots() as usize, Vec::len);
    query.tasks.len().saturating_mul(nodes)
}

/// Maximum number of nodes in the set.
pub(super) fn max_nodes(set: &pb::NodeSet) -> usize {
    set.names.len() + set.slots.len() + set.bitmap.len().saturating_mul(8)
}

/// Minimum number of bytes of a response: the bytes of the scores. The number of nodes of a filtered query is not known
/// in advance.
pub(super) fn least_score_bytes(request: &pb::ScoreRequest, context: &EvaluationContext) -> usize {
    if request.with_filter {
        return 0;
    }
    let all = context.cluster_state().node_count() as usize;
    let width = request.candidates.as_ref().map_or(all, |set| all.min(max_nodes(set)));
    let shown = request.limit.map_or(width, |limit| width.min(limit as usize));
    request
        .tasks
        .len()
        .saturating_mul(shown)
        .saturating_mul(size_of::<f64>())
}
