//! Small clusters for tests.

use std::sync::Arc;

use crate::decide::{self, FilterDetail, NodeQuery, QueryTask, ResourceFit, ScoreQuery};
use crate::model::quantity::Quantity;
use crate::model::resource_name::{ResourceKind, amount};
use crate::model::{
    ClusterState, NodeRecord, NodeSlot, ResourceAmounts, ResourceId, ResourceTable, SortedTable, TaskFields,
    TaskRecord, TextMap,
};
use crate::policy::{Compatibility, CompileOptions, CompiledPolicy, Policy, compile};

/// Amounts of named quantities, read like a client's: uncounted resources are left out.
pub(crate) fn amounts<'a>(
    resources: &mut ResourceTable,
    quantities: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> ResourceAmounts {
    let counted = quantities
        .into_iter()
        .filter(|(name, _)| ResourceKind::of(name).counted_by_volcano());
    counted
        .map(|(name, quantity)| {
            let amount = amount(name, &Quantity::parse(quantity).unwrap()).unwrap();
            (resources.intern(name, 1000).unwrap(), amount)
        })
        .collect()
}

/// Cluster state with these nodes.
pub(crate) fn cluster_state(resources: ResourceTable, nodes: Vec<NodeRecord>) -> ClusterState {
    let mut index: SortedTable<NodeSlot> = SortedTable::default();
    for (slot, node) in (0..).zip(&nodes) {
        index.insert(Arc::clone(&node.name), slot);
    }
    let mut cluster_state = ClusterState::new(Arc::new(index), 1);
    cluster_state.set_resources(Arc::new(resources));
    for node in nodes {
        assert!(cluster_state.put_node(Arc::new(node), &Arc::from("test")));
    }
    cluster_state.refresh_ranks();
    cluster_state
}

/// Task with these requests and its pod.
pub(crate) fn task(mut requests: ResourceAmounts, annotations: &[(&str, &str)]) -> TaskRecord {
    requests.set(ResourceId::PODS, 1);
    let mut texts: Vec<_> = annotations
        .iter()
        .map(|(name, text)| (Arc::from(*name), Arc::from(*text)))
        .collect();
    texts.sort();
    TaskRecord::from(TaskFields {
        name: "default/task".into(),
        requests,
        annotations: TextMap::from(texts),
        ..TaskFields::default()
    })
}

/// Query about these tasks on all nodes, without a check of resources.
pub(crate) fn node_query(resources: &Arc<ResourceTable>, tasks: Vec<TaskRecord>) -> NodeQuery {
    let item = |task| {
        Ok(QueryTask {
            task: Arc::new(task),
            warnings: Vec::new(),
        })
    };
    NodeQuery {
        now: None,
        tasks: tasks.into_iter().map(item).collect(),
        resources: Arc::clone(resources),
        candidates: None,
        plugins: Vec::new(),
        resource_fit: ResourceFit::None,
        samples: 3,
        detail: FilterDetail::Nodes,
    }
}

/// Query of Score with these nodes and tasks, and with parts.
pub(crate) fn score_query(query: NodeQuery) -> ScoreQuery {
    ScoreQuery {
        ahead: 0,
        node_query: query,
        with_filter: false,
        limit: None,
        with_parts: true,
    }
}

/// A policy of one tier, its plugins written in YAML flow style.
pub(crate) fn policy(plugins: &str, compatibility: Compatibility) -> CompiledPolicy {
    let document = format!("actions: allocate\ntiers:\n- plugins: [{plugins}]\n");
    let options = CompileOptions {
        compatibility,
        ..CompileOptions::default()
    };
    compile(&document, &options).unwrap_or_else(|report| panic!("{document}\n{:?}", report.diagnostics))
}

/// The parts of the first task's scores, by name.
pub(crate) fn parts(
    cluster_state: &ClusterState,
    policy: &Policy,
    query: &ScoreQuery,
) -> Vec<(&'static str, Vec<f64>)> {
    let sheet = decide::score(cluster_state, policy, query).unwrap().remove(0).unwrap();
    let parts = sheet.result.parts.iter();
    parts.map(|part| (part.part, part.scores.clone())).collect()
}
