//! Nodes on which tasks may run under `corrected`, and their scores.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::case::cluster_state;
use pumice_engine::cycle::{SchedulingCycle, SessionChange};
use pumice_engine::decide::{
    self, FilterDetail, FilterVerdict, NodeQuery, PlaceGroup, PlaceQuery, PlaceResult, QueryTask, ResourceFit,
};
use pumice_engine::model::ClusterState;
use pumice_engine::plugin::{PluginContext, Resolution};
use pumice_engine::policy::{CompileOptions, Policy, compile};

const POLICY: &str = "
actions: allocate
tiers:
- plugins:
  - name: capacity-card
    arguments: {mixedCards: true}
";

pub(super) fn policy(document: &str) -> Arc<Policy> {
    compile(document, &CompileOptions::default()).unwrap().policy
}

/// Nodes `na` and `nb` with eight `A` or `B`, `none` without cards, and a queue `q` with tasks `(card name, status,
/// node)`.
pub(super) fn cluster(quota: &str, tasks: &[(&str, &str, &str)]) -> ClusterState {
    cluster_of_jobs(quota, &[("ns/j", tasks)])
}

/// Tasks `(card name, status, node)` of a job.
type JobTasks<'a> = &'a [(&'a str, &'a str, &'a str)];

/// A cluster with the same nodes and queue, and these jobs by name.
pub(super) fn cluster_of_jobs(quota: &str, jobs: &[(&str, JobTasks<'_>)]) -> ClusterState {
    let node = |name: &str, product: &str| {
        json!({"name": name, "labels": {"nvidia.com/gpu.product": product},
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}})
    };
    let task = |(number, (card, status, node)): (usize, &(&str, &str, &str))| {
        json!({"name": format!("t{number}"), "annotations": {"volcano.sh/card.name": card}, "status": status,
            "node": node, "requests": {"cpu": "1", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}})
    };
    let job = |(name, tasks): &(&str, JobTasks<'_>)| {
        let tasks: Vec<Json> = tasks.iter().enumerate().map(task).collect();
        json!({"uid": name, "queue": "q", "phase": "Inqueue", "min_member": 1, "annotations": {}, "tasks": tasks})
    };
    cluster_state(&json!({
        "nodes": [node("na", "A"), node("nb", "B"),
            {"name": "none", "labels": {}, "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}}],
        "queues": [{"name": "q", "annotations": {"volcano.sh/card.quota": quota}}],
        "jobs": jobs.iter().map(job).collect::<Vec<Json>>(),
    }))
}

pub(super) fn task_query(cluster_state: &ClusterState, tasks: &[&str]) -> NodeQuery {
    let task = |name: &&str| {
        let task = Arc::new(cluster_state.tasks().get(name).unwrap().record.clone());
        Ok(QueryTask {
            task,
            warnings: Vec::new(),
        })
    };
    NodeQuery {
        now: None,
        tasks: tasks.iter().map(task).collect(),
        resources: Arc::clone(cluster_state.resources()),
        candidates: None,
        plugins: Vec::new(),
        resource_fit: ResourceFit::None,
        samples: 1,
        detail: FilterDetail::Nodes,
    }
}

fn ask(cluster_state: &ClusterState, task: &str) -> FilterVerdict {
    let query = task_query(cluster_state, &[task]);
    let item = decide::filter(cluster_state, &policy(POLICY), &query)
        .unwrap()
        .remove(0);
    FilterVerdict::clone(&item.unwrap().result)
}

fn fit<'a>(cluster_state: &'a ClusterState, verdict: &FilterVerdict) -> Vec<&'a str> {
    let names = verdict
        .fit
        .iter()
        .map(|slot| &*cluster_state.node(*slot).unwrap().record.name);
    names.collect()
}

#[test]
fn tasks_run_only_where_their_queue_has_cards_left() {
    let tasks = [("A|B", "Running", "na"), ("A|B", "Pending", ""), ("B", "Pending", "")];
    let cluster_state = cluster(r#"{"A": 1, "B": 1}"#, &tasks);
    let verdict = ask(&cluster_state, "ns/j/t1");
    assert_eq!(fit(&cluster_state, &verdict), ["nb"]);
    let said: Vec<(&str, &str)> = verdict
        .rejections
        .iter()
        .map(|rejection| (rejection.reason.code, &*rejection.reason.message))
        .collect();
    assert_eq!(
        said,
        [
            ("CardNotOnNode", "the node has no card <A|B>"),
            (
                "InsufficientScalarQuota",
                "Queue <q> has insufficient <A> quota: requested <1 card>, total would be <2 cards>, but capability is <1 card>"
            ),
        ]
    );
    let short = &verdict.rejections[1];
    assert_eq!(short.reason.resolution, Resolution::Unschedulable);
    let measurements: Vec<(&str, f64, &str)> = short.samples[0]
        .1
        .iter()
        .map(|measurement| (&*measurement.name, measurement.value, measurement.unit))
        .collect();
    assert_eq!(
        measurements,
        [
            ("requested", 1.0, "cards"),
            ("total", 2.0, "cards"),
            ("capability", 1.0, "cards")
        ]
    );
    assert_eq!(fit(&cluster_state, &ask(&cluster_state, "ns/j/t2")), ["nb"]);
    // Without quota nothing fits; the reason names a card that no node has.
    let cluster_state = cluster(
        r#"{"A": 1}"#,
        &[("A|B", "Running", "na"), ("A|B", "Pending", ""), ("C", "Pending", "")],
    );
    assert_eq!(fit(&cluster_state, &ask(&cluster_state, "ns/j/t1")), [""; 0]);
    assert_eq!(
        ask(&cluster_state, "ns/j/t2").rejections[0].reason.code,
        "GetTaskRequestResourceFailed"
    );
}

#[test]
fn s22_a_preemptor_passes_once_its_victims_give_their_cards_back() {
    let cluster_state = cluster(r#"{"A": 1}"#, &[("A", "Running", "na"), ("A", "Pending", "")]);
    let policy = policy(POLICY);
    let mut cycle = SchedulingCycle::new(
        cluster_state.clone(),
        policy.node_change_rules(),
        policy.compute_plugin_states(&cluster_state),
    );
    let passes = |cycle: &SchedulingCycle| {
        let (cluster_state, derived) = (cycle.cluster_state(), cycle.plugin_states());
        let context = PluginContext {
            cluster_state,
            plugin_states: derived,
            now: None,
            after_release: false,
        };
        let items = decide::filter_with(
            context,
            &policy,
            &task_query(cluster_state, &["ns/j/t1"]),
            decide::Parallelism::SEQUENTIAL,
        );
        items.unwrap().unwrap().remove(0).unwrap().result.fit.len()
    };
    assert_eq!(passes(&cycle), 0);
    cycle.apply(&[SessionChange::Evict("ns/j/t0".into())]).unwrap();
    assert_eq!(passes(&cycle), 1);
    cycle.apply(&[SessionChange::Unevict("ns/j/t0".into())]).unwrap();
    assert_eq!(passes(&cycle), 0);
}

#[test]
fn equal_tasks_of_different_queues_are_judged_apart() {
    let mut cluster = json!({
        "nodes": [{"name": "na", "labels": {"nvidia.com/gpu.product": "A"}, "allocatable": {"nvidia.com/gpu": "8"}}],
        "queues": [], "jobs": [],
    });
    for (queue, quota) in [("rich", r#"{"A": 1}"#), ("poor", r#"{"A": 0}"#)] {
        let task = json!({"name": "t", "annotations": {"volcano.sh/card.name": "A"}, "status": "Pending",
            "requests": {"nvidia.com/gpu": "1"}});
        let (queues, jobs) = (
            json!({"name": queue, "annotations": {"volcano.sh/card.quota": quota}}),
            task,
        );
        cluster["queues"].as_array_mut().unwrap().push(queues);
        let job = json!({"uid": format!("ns/{queue}"), "queue": queue, "phase": "Inqueue", "tasks": [jobs]});
        cluster["jobs"].as_array_mut().unwrap().push(job);
    }
    let cluster_state = cluster_state(&cluster);
    let query = task_query(&cluster_state, &["ns/rich/t", "ns/poor/t"]);
    let items = decide::filter(&cluster_state, &policy(POLICY), &query).unwrap();
    let fit: Vec<usize> = items
        .iter()
        .map(|item| item.as_ref().unwrap().result.fit.len())
        .collect();
    assert_eq!(fit, [1, 0]);
}

/// Places `count` tasks `ns/j/t0`, `ns/j/t1`, ….
pub(super) fn place(cluster_state: &ClusterState, policy: &Policy, count: usize) -> PlaceResult {
    let names: Vec<Arc<str>> = (0..count).map(|number| format!("ns/j/t{number}").into()).collect();
    let group = PlaceGroup {
        task: Arc::new(cluster_state.tasks().get(&names[0]).unwrap().record.clone()),
        count,
        names,
        warnings: Vec::new(),
        unevaluated: Vec::new(),
    };
    let query = PlaceQuery {
        now: None,
        job: None,
        groups: vec![Ok(group)],
        resources: Arc::clone(cluster_state.resources()),
        min_available: Some(1),
        candidates: None,
        exclusions: Vec::new(),
        idle_only: true,
        samples: 1,
        max_pairs: u64::MAX,
    };
    decide::place(
        cluster_state,
        policy,
        &policy.compute_plugin_states(cluster_state),
        &query,
    )
    .unwrap()
}

#[test]
fn place_gives_the_cards_that_the_quota_has_left() {
    let tasks = [("A|B", "Pending", ""); 6];
    let cluster_state = cluster(r#"{"A": 2, "B": 3}"#, &tasks);
    // With admission, and without it: then only the filter guards the quota.
    for switch in ["", "\n    enabledAllocatable: false"] {
        let policy = policy(&format!("{POLICY}{switch}\n"));
        let placing = place(&cluster_state, &policy, 6);
        let group = placing.groups[0].as_ref().unwrap();
        let nodes: Vec<&str> = group
            .allocated
            .iter()
            .map(|slot| &*cluster_state.node(*slot).unwrap().record.name)
            .collect();
        assert_eq!(nodes, ["na", "na", "nb", "nb", "nb"], "{switch}");
        assert!(!group.blockers.is_empty());
    }
}
