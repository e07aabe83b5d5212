//! Requests and results of Order.

use std::sync::Arc;

use crate::limits::EdgeLimits;
use crate::server::pb;
use crate::server::status::{RpcResult, check_limit};
use pumice_engine::decide::{JobState, OrderQuery, OrderRank, OrderResult};
use pumice_engine::plugin::{JobOpinion, QueueTreeNode};

use super::accounts::account_amounts;
use super::batch::problem;
use super::query::{QueryBasis, read_plugins};
use super::reader::check_name;

/// Reads a request of Order, whose `against` was taken out before.
///
/// # Errors
/// A field has a problem.
pub(crate) fn read_order(request: pb::OrderRequest, basis: QueryBasis<'_>) -> RpcResult<OrderQuery> {
    let limits = &basis.options.limits;
    let pb::OrderRequest {
        against: _,
        queues,
        jobs,
        plugins: asked,
        with_tree,
        tasks,
    } = request;
    Ok(OrderQuery {
        now: basis.now,
        queues: read_names("queues", queues, limits)?,
        jobs: read_names("jobs", jobs, limits)?,
        tasks: read_names("tasks", tasks, limits)?,
        plugins: read_plugins(asked, limits.plugins)?,
        with_tree,
    })
}

fn read_names(field: &str, set: Option<pb::NameSet>, limits: &EdgeLimits) -> RpcResult<Option<Vec<Arc<str>>>> {
    let Some(pb::NameSet { names }) = set else {
        return Ok(None);
    };
    let count = names.len();
    check_limit(count, "order_names", limits.order_names, || {
        format!("{field}: {count} names")
    })?;
    let mut numbered = names.iter().enumerate();
    if let Some((at, long)) = numbered.find(|(_, name)| name.len() > limits.name_bytes) {
        check_name(&format!("{field}.names[{at}]"), long, limits)?;
    }
    Ok(Some(names.into_iter().map(Arc::from).collect()))
}

/// Converts the ranks of Order to the wire.
pub(crate) fn order_result(result: OrderResult) -> pb::OrderResult {
    let OrderResult {
        queues,
        jobs,
        tasks,
        tree,
    } = result;
    pb::OrderResult {
        queues: queues.into_iter().map(|own| order_rank(own, "queues")).collect(),
        jobs: jobs.into_iter().map(|own| order_rank(own, "jobs")).collect(),
        tree: tree.into_iter().map(tree_node).collect(),
        tasks: tasks.into_iter().map(|own| order_rank(own, "tasks")).collect(),
    }
}

fn order_rank(rank: OrderRank, field: &str) -> pb::Rank {
    let OrderRank {
        name,
        keys,
        state,
        overused,
    } = rank;
    let (keys, problem) = match keys {
        Ok(keys) => (keys, None),
        Err(mut found) => {
            if found.field.is_empty() {
                found.field = format!("{field}.names[{name}]");
            }
            (Vec::new(), Some(problem(&found)))
        }
    };
    let key = |(plugin, values): (Arc<str>, Vec<f64>)| pb::OrderKey {
        plugin: plugin.to_string(),
        values,
    };
    pb::Rank {
        name: name.to_string(),
        problem,
        keys: keys.into_iter().map(key).collect(),
        state: state.map(|own| job_state(*own)),
        overused,
    }
}

fn job_state(state: JobState) -> pb::JobState {
    let JobState {
        objection,
        ready,
        pipelined,
        starving,
        opinions,
    } = state;
    let opinion = |(plugin, own): (Arc<str>, JobOpinion)| pb::JobOpinion {
        plugin: plugin.to_string(),
        ready: own.ready,
        pipelined: own
            .pipelined
            .map(|vote| i32::try_from(vote.signum()).unwrap_or_default()),
        starving: own.starving,
    };
    let (reason, message) = objection
        .map(|own| (own.reason.to_owned(), own.message))
        .unwrap_or_default();
    pb::JobState {
        valid: reason.is_empty(),
        reason,
        message,
        ready,
        pipelined,
        starving,
        opinions: opinions.into_iter().map(opinion).collect(),
    }
}

/// Node of the share tree as the wire has it.
pub(crate) fn tree_node(node: QueueTreeNode) -> pb::TreeNode {
    let QueueTreeNode {
        path,
        job,
        weight,
        share,
        dominant,
        saturated,
        held,
    } = node;
    let text = |text: Option<Arc<str>>| text.map_or_else(String::new, |text| text.to_string());
    pb::TreeNode {
        path: path.to_string(),
        job: text(job),
        weight,
        share,
        dominant_resource: text(dominant),
        saturated,
        allocated: account_amounts(&held),
    }
}
