//! The examples of the design documents: each stated number.

use super::fixtures::{amounts, cluster_state, node_query, parts, policy, score_query, task};
use crate::decide::{self, ResourceFit};
use crate::model::{ClusterState, NodeRecord, ResourceTable};
use crate::plugin::Resolution;
use crate::policy::Compatibility::Corrected;

fn node(resources: &mut ResourceTable, name: &str, allocatable: &[(&str, &str)]) -> NodeRecord {
    let with_pods = allocatable.iter().copied().chain([("pods", "110")]);
    NodeRecord {
        name: name.into(),
        allocatable: amounts(resources, with_pods),
        ..NodeRecord::default()
    }
}

/// The cluster and the three tasks of the SRA table.
fn sra_table() -> (ClusterState, decide::ScoreQuery) {
    let mut resources = ResourceTable::default();
    let small = [("cpu", "16"), ("memory", "32Gi"), ("nvidia.com/t4", "10")];
    let both = [
        ("cpu", "16"),
        ("memory", "32Gi"),
        ("nvidia.com/t4", "5"),
        ("nvidia.com/a10", "10"),
    ];
    let nodes = vec![
        node(&mut resources, "node1", &[("cpu", "32"), ("memory", "64Gi")]),
        node(&mut resources, "node2", &small),
        node(&mut resources, "node3", &both),
    ];
    let plain = [("cpu", "2"), ("memory", "4Gi")];
    let mut asks = |more: &[(&str, &str)]| {
        let all = plain.iter().chain(more).copied();
        task(amounts(&mut resources, all), &[])
    };
    let tasks = vec![
        asks(&[]),
        asks(&[("nvidia.com/t4", "2")]),
        asks(&[("nvidia.com/t4", "1"), ("nvidia.com/a10", "2")]),
    ];
    let cluster_state = cluster_state(resources, nodes);
    let query = score_query(node_query(cluster_state.resources(), tasks));
    (cluster_state, query)
}

#[test]
fn every_spelling_of_sra_gives_the_table() {
    let nested = "sra: {enable: true, resources: 'nvidia.com/t4, nvidia.com/a10', weight: 2, \
                  resourceWeight: {nvidia.com/t4: 1, nvidia.com/a10: 1}}";
    let flat = "sra.policy: retention, sra.resources: 'nvidia.com/t4, nvidia.com/a10', sra.retention.weight: 2, \
                sra.retention.nvidia.com/t4: 1, sra.retention.nvidia.com/a10: 1";
    let former = "sra: {policy: Retention, resources: 'nvidia.com/t4, nvidia.com/a10', \
                  retention: {weight: 2, nvidia.com/t4: 1, nvidia.com/a10: 1}}";
    let flattened = "sra.enable: true, sra.resources: 'nvidia.com/t4, nvidia.com/a10', sra.weight: 2, \
                     sra.resourceWeight.nvidia.com/t4: 1";
    for arguments in [nested, flat, former, flattened] {
        let compiled = policy(
            &format!("{{name: resource-strategy-fit, arguments: {{{arguments}}}}}"),
            Corrected,
        );
        let (cluster_state, query) = sra_table();
        let items = decide::score(&cluster_state, &compiled.policy, &query).unwrap();
        let table: Vec<Vec<f64>> = items
            .into_iter()
            .map(|item| {
                let result = item.unwrap().result;
                result
                    .parts
                    .iter()
                    .find(|part| part.part == "sra")
                    .unwrap()
                    .scores
                    .clone()
            })
            .collect();
        // Of gpu-task-0 on node3: 0, as seed 000 and seed 004 say.
        let expected = [[200.0, 100.0, 0.0], [0.0, 100.0, 0.0], [0.0, 0.0, 0.0]];
        assert_eq!(table, expected, "{arguments}");
        let again = compiled.effective_document;
        assert!(
            again.contains("resourceWeight") && !again.contains("retention"),
            "{again}"
        );
    }
}

#[test]
fn the_best_practice_spreads_cpu_and_packs_devices() {
    let compiled = policy(
        "{name: resource-strategy-fit, arguments: {resourceStrategyFitWeight: 10, resources: {nvidia.com/gpu: {type: \
         MostAllocated, weight: 2}, cpu: {type: LeastAllocated, weight: 1}}, sra: {enable: true, resources: \
         nvidia.com/gpu, weight: 10, resourceWeight: {nvidia.com/gpu: 1}}}}",
        Corrected,
    );
    let mut resources = ResourceTable::default();
    let used = amounts(&mut resources, [("cpu", "8"), ("nvidia.com/gpu", "4")]);
    let gpu = [("cpu", "16"), ("nvidia.com/gpu", "8")];
    let mut nodes = vec![
        node(&mut resources, "cpu", &[("cpu", "16")]),
        node(&mut resources, "gpu-half", &gpu),
        node(&mut resources, "gpu-idle", &gpu),
    ];
    nodes[1].unattributed_used = Some(used);
    let cpu_task = task(amounts(&mut resources, [("cpu", "4")]), &[]);
    let gpu_task = task(amounts(&mut resources, [("cpu", "4"), ("nvidia.com/gpu", "2")]), &[]);
    let cluster_state = cluster_state(resources, nodes);
    let query = score_query(node_query(cluster_state.resources(), vec![cpu_task, gpu_task]));
    let items = decide::score(&cluster_state, &compiled.policy, &query).unwrap();
    let totals = |at: usize| items[at].as_ref().unwrap().result.totals.clone();
    // (16 − 4)/16 · 1000 + 1000; (16 − 12)/16 · 1000 + 0; (16 − 4)/16 · 1000 + 0.
    assert_eq!(totals(0), [1750.0, 250.0, 750.0]);
    // (0.75 + 0)/3 · 1000, no device there; (0.25 + 2 · 0.75)/3 · 1000; (0.75 + 2 · 0.25)/3 · 1000.
    assert_eq!(totals(1), [250.0, 1.75 / 3.0 * 1000.0, 1.25 / 3.0 * 1000.0]);
}

#[test]
fn the_second_job_leaves_the_devices_their_cores() {
    let compiled = policy(
        "{name: resource-strategy-fit, arguments: {proportional: {enable: true, resources: \
         'nvidia.com/gpu,nvidia.com/v100-sxm2-16gb', resourceProportion: {nvidia.com/gpu.cpu: 8, \
         nvidia.com/gpu.memory: 8, nvidia.com/v100-sxm2-16gb.cpu: 16, nvidia.com/v100-sxm2-16gb.memory: 16}}}}",
        Corrected,
    );
    let verdict = |used: &[(&str, &str)]| {
        let mut resources = ResourceTable::default();
        let allocatable = [("cpu", "74"), ("memory", "128G"), ("nvidia.com/gpu", "8")];
        let mut node = node(&mut resources, "nodeC0-0", &allocatable);
        node.unattributed_used = Some(amounts(&mut resources, used.iter().copied()));
        let asks = [("cpu", "8"), ("memory", "8G"), ("nvidia.com/gpu", "0")];
        let asked = task(amounts(&mut resources, asks), &[]);
        let cluster_state = cluster_state(resources, vec![node]);
        let mut query = node_query(cluster_state.resources(), vec![asked]);
        query.resource_fit = ResourceFit::FutureIdle;
        let items = decide::filter(&cluster_state, &compiled.policy, &query).unwrap();
        items.into_iter().next().unwrap().unwrap().result
    };
    assert_eq!(verdict(&[]).fit, [0]);
    let second = verdict(&[("cpu", "8"), ("memory", "8G"), ("pods", "1")]);
    assert_eq!(second.fit, [] as [u32; 0]);
    let rejection = &second.rejections[0];
    assert_eq!(
        rejection.reason.message,
        "proportional of resource nvidia.com/gpu check failed"
    );
    assert_eq!(rejection.reason.resolution, Resolution::Unresolvable);
    let measurements: Vec<(&str, f64, &str)> = rejection.samples[0]
        .1
        .iter()
        .map(|measurement| (&*measurement.name, measurement.value, measurement.unit))
        .collect();
    assert_eq!(
        measurements,
        [
            ("requested cpu", 8.0, "cores"),
            ("idle cpu", 66.0, "cores"),
            ("reserved cpu", 64.0, "cores"),
            ("requested memory", 8e9, "bytes"),
            ("idle memory", 120e9, "bytes"),
            ("reserved memory", 64e9, "bytes"),
            ("idle nvidia.com/gpu", 8.0, ""),
        ]
    );
}

#[test]
fn patterns_cover_the_devices_of_a_vendor() {
    let compiled = policy(
        "{name: resource-strategy-fit, arguments: {resourceStrategyFitWeight: 1, resources: {nvidia.com/gpu-v100: \
         {type: LeastAllocated, weight: 3}, nvidia.com/gpu/*: {type: MostAllocated, weight: 2}, amd.com/gpu/*: {type: \
         MostAllocated, weight: 2}}}}",
        Corrected,
    );
    for (device, expected) in [
        ("nvidia.com/gpu-v100", 75.0),
        ("nvidia.com/gpu-a100", 25.0),
        ("amd.com/gpu-mi100", 25.0),
        ("intel.com/gpu", 0.0),
    ] {
        let mut resources = ResourceTable::default();
        let node = node(&mut resources, "n", &[(device, "8")]);
        let asked = task(amounts(&mut resources, [(device, "2")]), &[]);
        let cluster_state = cluster_state(resources, vec![node]);
        let query = score_query(node_query(cluster_state.resources(), vec![asked]));
        assert_eq!(
            parts(&cluster_state, &compiled.policy, &query),
            [("rsf", vec![expected])],
            "{device}"
        );
    }
}
