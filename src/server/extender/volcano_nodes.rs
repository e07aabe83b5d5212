//! Nodes as a scheduler's own session has them.
//!
//! A session of Volcano is evaluated with the scheduler's own usage of its nodes: both then agree even before the
//! server's source has reported all changes. Nodes that the server does not have come from the body, and the used
//! amounts of the body replace different amounts of the server. For example, if the body has 6 used GPUs and the server
//! 4, 6 are used. Jobs, queues and their shares come from the server's state.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use pumice_engine::model::{
    ClusterState, NodeEntry, NodeRecord, NodeSlot, NodeVector, ResourceAmounts, ResourceId, SortedTable,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::requests::read_json;
use crate::server::convert::inline::{INLINE_SOURCE, read_nodes};
use crate::server::convert::reader::ReadOptions;
use crate::server::pb;
use crate::server::status::RpcResult;

/// Session of the scheduler, as far as its nodes.
#[derive(Debug, Deserialize)]
struct SessionMessage<'b> {
    #[serde(rename = "Nodes", borrow, default)]
    nodes: Option<BTreeMap<String, SessionNode<'b>>>,
}

#[derive(Debug, Deserialize)]
struct SessionNode<'b> {
    #[serde(rename = "Node", borrow, default)]
    object: Option<&'b RawValue>,
    #[serde(rename = "Used", default)]
    used: Option<SessionAmounts>,
}

/// Amounts in Volcano's units, which are the engine's.
#[derive(Debug, Default, Deserialize)]
struct SessionAmounts {
    #[serde(rename = "MilliCPU", default)]
    cpu: f64,
    #[serde(rename = "Memory", default)]
    memory: f64,
    #[serde(rename = "ScalarResources", default)]
    scalars: Option<BTreeMap<String, f64>>,
}

impl SessionAmounts {
    /// Amount of a resource, by its id and name.
    fn of(&self, id: ResourceId, name: &str) -> i128 {
        let amount = match id {
            ResourceId::CPU => self.cpu,
            ResourceId::MEMORY => self.memory,
            _ => self
                .scalars
                .as_ref()
                .and_then(|all| all.get(name))
                .copied()
                .unwrap_or(0.0),
        };
        // Go counts in floats that are whole numbers, far below what an integer of this size ends at.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a float beyond 128 bits is the largest number"
        )]
        let amount = amount as i128;
        amount
    }
}

/// The state with the nodes of a session's body; `None`: it has them already.
///
/// # Errors
/// The body cannot be read.
pub(super) fn state_with_nodes(
    state: &ClusterState,
    body: &Bytes,
    options: &ReadOptions,
) -> RpcResult<Option<ClusterState>> {
    let message: SessionMessage<'_> = read_json(body)?;
    let nodes = message.nodes.unwrap_or_default();
    let unknown = |(name, node): (&String, &SessionNode<'_>)| {
        let object = node.object.filter(|_| state.slot_of(name).is_none())?;
        Some(pb::Node {
            name: name.clone(),
            object: object.get().as_bytes().to_vec(),
            ..pb::Node::default()
        })
    };
    let unknown: Vec<pb::Node> = nodes.iter().filter_map(unknown).collect();
    let mut changed = (!unknown.is_empty())
        .then(|| with_unknown(state, unknown, options))
        .transpose()?;
    for (name, node) in &nodes {
        let now = changed.as_ref().unwrap_or(state);
        let (Some(used), Some(entry)) = (&node.used, now.node_by_name(name)) else {
            continue;
        };
        if let Some(record) = with_used(entry, now, used) {
            let source = Arc::clone(&entry.source);
            changed
                .get_or_insert_with(|| state.clone())
                .put_node(Arc::new(record), &source);
        }
    }
    Ok(changed)
}

/// The state with additional nodes of the body. An unreadable node is left out and stays unknown.
fn with_unknown(state: &ClusterState, unknown: Vec<pb::Node>, options: &ReadOptions) -> RpcResult<ClusterState> {
    let (records, names) = read_nodes(unknown, state.resources(), options)?;
    let known = state.nodes().map(|(_, entry)| &entry.record.name);
    let mut index: SortedTable<NodeSlot> = SortedTable::default();
    for (slot, name) in (0..).zip(known.chain(records.iter().map(|record| &record.name))) {
        index.insert(Arc::clone(name), slot);
    }
    let mut extended = state.with_index(Arc::new(index));
    extended.set_resources(names);
    let source = Arc::from(INLINE_SOURCE);
    for record in records {
        extended.put_node(record, &source);
    }
    extended.refresh_ranks();
    Ok(extended)
}

/// Record of a node with this used amount. `None`: the node already has it.
fn with_used(entry: &NodeEntry, state: &ClusterState, used: &SessionAmounts) -> Option<NodeRecord> {
    let mut more = entry.record.unattributed_used.clone().unwrap_or_default();
    let mut more_nonzero = entry.record.unattributed_nonzero_used.clone();
    let mut differs = false;
    for (id, name) in state.resources().names() {
        let difference = used.of(id, name) - entry.exact(id, NodeVector::Used).unwrap_or(0);
        if difference == 0 {
            continue;
        }
        differs = true;
        add(&mut more, id, difference);
        if let Some(nonzero) = more_nonzero
            .as_mut()
            .filter(|_| [ResourceId::CPU, ResourceId::MEMORY].contains(&id))
        {
            add(nonzero, id, difference);
        }
    }
    differs.then(|| NodeRecord {
        unattributed_used: Some(more),
        unattributed_nonzero_used: more_nonzero,
        ..NodeRecord::clone(&entry.record)
    })
}

fn add(amounts: &mut ResourceAmounts, id: ResourceId, difference: i128) {
    let sum = i128::from(amounts.get(id).unwrap_or(0)).saturating_add(difference);
    let bounds = (i128::from(i64::MIN), i128::from(i64::MAX));
    amounts.set(id, i64::try_from(sum.clamp(bounds.0, bounds.1)).unwrap_or(i64::MAX));
}
