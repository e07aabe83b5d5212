//! Classes that visit the nodes together, on any number of threads, have the results of each alone.

use super::fixtures::{amounts, cluster_state, node_query, policy, task};
use crate::decide::{self, FilterDetail, NodeQuery, Parallelism, ResourceFit, ScoreQuery};
use crate::model::{ClusterState, NodeRecord, ResourceTable};
use crate::plugin::PluginContext;
use crate::policy::Compatibility::Corrected;
use crate::policy::CompiledPolicy;

const PLUGINS: &str = "{name: resource-strategy-fit, arguments: {resourceStrategyFitWeight: 1, resources: {cpu: {type: \
                       LeastAllocated, weight: 1}, memory: {type: MostAllocated, weight: 2}}, sra: {enable: true, \
                       resources: nvidia.com/gpu, weight: 3}, proportional: {enable: true, resources: nvidia.com/gpu, \
                       resourceProportion: {nvidia.com/gpu.cpu: 1, nvidia.com/gpu.memory: 1}}}}, {name: \
                       NodeResourcesFitPlus, arguments: {resources: {cpu: {type: LeastAllocated, weight: 1}}}}";

/// 700 nodes of several kinds, and 21 different tasks, one of them twice.
fn cluster() -> (ClusterState, CompiledPolicy, NodeQuery) {
    let mut resources = ResourceTable::default();
    let nodes = (0..700).map(|number: u32| {
        let cpu = (4 + number % 7 * 8).to_string();
        let gpus = (number % 3 * 4).to_string();
        let all = [
            ("cpu", &*cpu),
            ("memory", "64Gi"),
            ("pods", "9"),
            ("nvidia.com/gpu", &*gpus),
        ];
        NodeRecord {
            name: format!("n{}", number * 7 % 1_000).into(),
            allocatable: amounts(&mut resources, all.into_iter().filter(|(_, quantity)| *quantity != "0")),
            ..NodeRecord::default()
        }
    });
    let nodes = nodes.collect();
    let tasks = (0..22).map(|number: u32| {
        let cpu = (1 + number % 21 * 2).to_string();
        let gpus = (number % 2).to_string();
        let all = [("cpu", &*cpu), ("memory", "8Gi"), ("nvidia.com/gpu", &*gpus)];
        let wanted = all.into_iter().filter(|(_, quantity)| *quantity != "0");
        task(amounts(&mut resources, wanted), &[])
    });
    let tasks = tasks.collect();
    let cluster_state = cluster_state(resources, nodes);
    let query = NodeQuery {
        now: None,
        resource_fit: ResourceFit::FutureIdle,
        ..node_query(cluster_state.resources(), tasks)
    };
    (cluster_state, policy(PLUGINS, Corrected), query)
}

fn alone(query: &NodeQuery, number: usize) -> NodeQuery {
    NodeQuery {
        now: None,
        tasks: vec![query.tasks[number].clone()],
        ..query.clone()
    }
}

#[test]
fn filters_match_single_task_queries() {
    let (cluster_state, compiled, all) = cluster();
    for threads in [1, 2, 3, 40] {
        let parallelism = Parallelism {
            threads,
            ..Parallelism::SEQUENTIAL
        };
        let derived = compiled.policy.compute_plugin_states(&cluster_state);
        let context = PluginContext::new(&cluster_state, &derived, None);
        let items = decide::filter_with(context, &compiled.policy, &all, parallelism)
            .unwrap()
            .unwrap();
        for (number, item) in items.iter().enumerate() {
            let one = decide::filter(&cluster_state, &compiled.policy, &alone(&all, number)).unwrap();
            assert_eq!(one, std::slice::from_ref(item), "{threads} threads, task {number}");
        }
        let passed = items.iter().filter(|item| item.as_ref().unwrap().result.fit_count > 0);
        assert!(passed.count() > 10);
    }
}

#[test]
fn scores_match_single_task_queries() {
    let (cluster_state, compiled, all) = cluster();
    let derived = compiled.policy.compute_plugin_states(&cluster_state);
    let context = PluginContext::new(&cluster_state, &derived, None);
    for (with_filter, limit, with_parts) in [
        (true, Some(1), false),
        (true, Some(16), true),
        (false, None, true),
        (true, None, false),
    ] {
        let ask = |query: NodeQuery| ScoreQuery {
            node_query: NodeQuery {
                now: None,
                detail: FilterDetail::Counts,
                ..query
            },
            with_filter,
            limit,
            with_parts,
            ahead: 0,
        };
        for threads in [1, 2, 5] {
            let parallelism = Parallelism {
                threads,
                ..Parallelism::SEQUENTIAL
            };
            let items = decide::score_with(context, &compiled.policy, &ask(all.clone()), parallelism)
                .unwrap()
                .unwrap();
            for (number, item) in items.iter().enumerate() {
                let one = decide::score(&cluster_state, &compiled.policy, &ask(alone(&all, number))).unwrap();
                assert_eq!(one, std::slice::from_ref(item), "{threads} threads, task {number}");
            }
        }
    }
}

#[test]
fn cancelled_queries_return_nothing() {
    let (cluster_state, compiled, all) = cluster();
    let derived = compiled.policy.compute_plugin_states(&cluster_state);
    let context = PluginContext::new(&cluster_state, &derived, None);
    let parallelism = Parallelism {
        threads: 2,
        is_cancelled: &|| true,
        ..Parallelism::SEQUENTIAL
    };
    assert_eq!(
        decide::filter_with(context, &compiled.policy, &all, parallelism).unwrap(),
        None
    );
}
