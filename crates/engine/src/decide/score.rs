//! Score: the scores of nodes for a task.

use super::ahead::add_scores_ahead;
use super::candidates::NodeCandidates;
use super::classes::{self, ClassLookup};
use super::filter::plugin_states_for;
use super::parallelism::Parallelism;
use super::plugin_selection::PluginSelection;
use super::query::{ScoreQuery, ScoreSheet, TaskResults};
use super::score_pass::ScorePass;
use crate::model::{ClusterState, Problem};
use crate::plugin::PluginContext;
use crate::policy::Policy;

/// Scores nodes for the tasks of a query, each class once.
///
/// Without `plugins` the score is the sum over the switched-on plugins of the tiers, in order. With `plugins` it is the
/// sum over these plugins, each evaluated as in [`filter`](super::filter()); a plugin without the hook scores 0.
///
/// # Errors
/// `plugins` names a plugin that the policy does not have or that is not served here; nothing was scored.
pub fn score(
    cluster_state: &ClusterState,
    policy: &Policy,
    query: &ScoreQuery,
) -> Result<TaskResults<ScoreSheet>, Problem> {
    let derived = plugin_states_for(cluster_state, policy, &query.node_query.plugins);
    let context = PluginContext::new(cluster_state, &derived, query.node_query.now);
    Ok(score_with(context, policy, query, Parallelism::SEQUENTIAL)?.unwrap_or_default())
}

/// Scores like [`score()`], with given plugin states; `None` if the execution is cancelled.
///
/// # Errors
/// The errors of [`score()`].
pub fn score_with(
    context: PluginContext<'_>,
    policy: &Policy,
    query: &ScoreQuery,
    parallelism: Parallelism<'_>,
) -> Result<Option<TaskResults<ScoreSheet>>, Problem> {
    let context = PluginContext {
        now: query.node_query.now,
        ..context
    };
    let asked = PluginSelection::of(policy, &query.node_query)?;
    if query.node_query.tasks.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let candidates = NodeCandidates::of(context.cluster_state, query.node_query.candidates.as_deref());
    let lookup = ClassLookup::of(context.cluster_state, policy, &query.node_query.plugins);
    let scored = classes::evaluate_classes(&query.node_query, lookup, parallelism, |classes| {
        let walks = classes.iter().map(|class| {
            let pass = ScorePass::new(context, &asked, query, &candidates, class)?;
            Ok(pass.with_reuse(parallelism.verdicts, policy, query, class))
        });
        classes::visit_chunks(walks.collect(), &candidates.slices, parallelism.is_cancelled)
    });
    match scored {
        Some(results) if query.ahead > 0 && query.limit.is_none() => {
            Ok(add_scores_ahead(context, policy, query, parallelism, results))
        }
        scored => Ok(scored),
    }
}
