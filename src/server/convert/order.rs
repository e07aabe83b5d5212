//! Questions and answers of Order.

use std::sync::Arc;

use crate::engine::decide::{OrderAnswer, OrderQuestion, Rank};
use crate::engine::model::{ResourceId, ResourceTable};
use crate::engine::plugins::drf::TreeNode;
use crate::server::limits::EdgeLimits;
use crate::server::pb;
use crate::server::status::Failure;

use super::amounts::answer_floats;
use super::batch::problem;
use super::question::plugins;

/// Reads a question of Order; its ground has been taken out before.
///
/// # Errors
/// Something in it is wrong.
pub fn question(request: pb::OrderRequest, limits: &EdgeLimits) -> Result<OrderQuestion, Failure> {
    let pb::OrderRequest {
        ground: _,
        queues,
        jobs,
        plugins: asked,
        with_tree,
    } = request;
    Ok(OrderQuestion {
        queues: names("queues", queues, limits)?,
        jobs: names("jobs", jobs, limits)?,
        plugins: plugins(asked, limits.plugins)?,
        with_tree,
    })
}

fn names(field: &str, set: Option<pb::NameSet>, limits: &EdgeLimits) -> Result<Option<Vec<Arc<str>>>, Failure> {
    let Some(pb::NameSet { names }) = set else {
        return Ok(None);
    };
    if names.len() > limits.order_names {
        let message = format!("{field}: {} names", names.len());
        return Err(Failure::limit(
            "TOO_MANY_NAMES",
            "order_names",
            limits.order_names,
            &message,
        ));
    }
    let limit = limits.name_bytes;
    if let Some((at, long)) = names.iter().enumerate().find(|(_, name)| name.len() > limit) {
        let message = format!(
            "{field}.names[{at}]: {} bytes; limit `name_bytes` is {limit}",
            long.len()
        );
        return Err(Failure::invalid("NAME_TOO_LONG", message));
    }
    Ok(Some(names.into_iter().map(Arc::from).collect()))
}

/// The answer of Order.
pub fn answer(answer: OrderAnswer, resources: &ResourceTable) -> pb::OrderAnswer {
    let OrderAnswer { queues, jobs, tree } = answer;
    pb::OrderAnswer {
        queues: queues.into_iter().map(|own| rank(own, "queues")).collect(),
        jobs: jobs.into_iter().map(|own| rank(own, "jobs")).collect(),
        tree: tree.into_iter().map(|own| tree_node(own, resources)).collect(),
    }
}

fn rank(rank: Rank, field: &str) -> pb::Rank {
    let Rank { name, keys } = rank;
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
    }
}

/// A node of the tree as the wire has it.
pub fn tree_node(node: TreeNode, resources: &ResourceTable) -> pb::TreeNode {
    let TreeNode {
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
        allocated: amounts(&held, resources),
    }
}

fn amounts(held: &[(ResourceId, f64)], resources: &ResourceTable) -> Vec<pb::Amount> {
    answer_floats(held.iter().copied(), resources)
}
