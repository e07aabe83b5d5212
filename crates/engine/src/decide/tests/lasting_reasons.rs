//! Reasons of nodes that several filters reject: a lasting reason has precedence over a reason that evictions remove.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fixtures;
use crate::decide::{self, FilterDetail, ResourceFit};
use crate::model::constraints::{NodeProperties, Taint, TaintEffect};
use crate::model::{NodeRecord, ResourceAmounts, ResourceId, ResourceTable};
use crate::policy::Compatibility;

const GPU_NAME: &str = "nvidia.com/gpu";

fn gpu() -> ResourceId {
    ResourceId::from_index(3)
}

/// Node of 8 cores and 4 idle devices with this many free, and a taint or none.
fn node(name: &str, free: i64, tainted: bool) -> NodeRecord {
    let taint = Taint {
        key: "team".into(),
        value: Arc::default(),
        effect: TaintEffect::NoSchedule,
    };
    let properties = NodeProperties {
        taints: vec![taint],
        ..NodeProperties::default()
    };
    let amounts = |milli, gpus| {
        let amounts = [
            (ResourceId::CPU, milli),
            (ResourceId::PODS, milli / 1_000),
            (gpu(), gpus),
        ];
        ResourceAmounts::from_iter(amounts)
    };
    NodeRecord {
        name: name.into(),
        allocatable: amounts(8_000, 4_000),
        unattributed_used: Some(amounts(8_000 - free, 0)),
        properties: tainted.then(|| Arc::new(properties)),
        ..NodeRecord::default()
    }
}

/// Reasons of rejected nodes, by slot.
fn reasons(nodes: Vec<NodeRecord>, plugins: &str, compatibility: Compatibility) -> BTreeMap<u32, Vec<&'static str>> {
    let mut resources = ResourceTable::default();
    assert_eq!(resources.intern(GPU_NAME, 8), Ok(gpu()));
    let state = fixtures::cluster_state(resources, nodes);
    let policy = fixtures::policy(plugins, compatibility).policy;
    let requests = ResourceAmounts::from_iter([(ResourceId::CPU, 2_000), (ResourceId::PODS, 1)]);
    let mut query = fixtures::node_query(state.resources(), vec![fixtures::task(requests, &[])]);
    query.resource_fit = ResourceFit::FutureIdle;
    query.detail = FilterDetail::Nodes;
    let verdict = decide::filter(&state, &policy, &query).unwrap().remove(0).unwrap();
    let mut reasons: BTreeMap<u32, Vec<&'static str>> = BTreeMap::new();
    for rejection in &verdict.result.rejections {
        assert_eq!(rejection.nodes.len(), rejection.count as usize);
        for slot in &rejection.nodes {
            reasons.entry(*slot).or_default().push(rejection.reason.code);
        }
    }
    reasons
}

#[test]
fn a_node_that_is_full_and_tainted_is_tainted_under_corrected() {
    // The reference ignores conditions of nodes.
    for (compatibility, full_and_tainted, unready) in [
        (Compatibility::Corrected, "UntoleratedTaint", "NodeNotReady"),
        (Compatibility::UPSTREAM, "InsufficientResource", "InsufficientResource"),
    ] {
        let nodes = vec![
            node("n0", 1_000, true),
            node("n1", 1_000, false),
            node("n2", 8_000, true),
            node("n3", 8_000, false),
            NodeRecord {
                ready: Some(false),
                ..node("n4", 1_000, true)
            },
        ];
        let expected = [
            (0, vec![full_and_tainted]),
            (1, vec!["InsufficientResource"]),
            (2, vec!["UntoleratedTaint"]),
            (4, vec![unready]),
        ];
        // Predicates judge the places of pods, which evictions free, beside taints.
        let found = reasons(nodes, "{name: binpack}, {name: predicates}", compatibility);
        assert_eq!(found, BTreeMap::from(expected), "{compatibility:?}");
    }
}

#[test]
fn a_full_node_is_short_of_what_evictions_free() {
    // The reserve for the devices holds only while other tasks use cpu, unlike a taint.
    let reserve = "{name: predicates}, {name: resource-strategy-fit, arguments: {proportional: {enable: true, resources: \
                   nvidia.com/gpu, resourceProportion: {nvidia.com/gpu.cpu: 1.5, nvidia.com/gpu.memory: 0}}}}";
    let nodes = vec![node("n0", 1_000, false), node("n1", 7_000, false)];
    let found = reasons(nodes, reserve, Compatibility::Corrected);
    let expected = [(0, vec!["InsufficientResource"]), (1, vec!["ProportionalReserve"])];
    assert_eq!(found, BTreeMap::from(expected));
}
