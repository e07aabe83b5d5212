//! Without `mixedCards` all tasks of a job that may use any of several cards use the same one.

use std::sync::Arc;

use super::nodes::{cluster, place, policy, task_query};
use pumice_engine::decide;
use pumice_engine::model::{ClusterState, JobRecord, TaskRecord};

fn document(mixed: bool) -> String {
    format!("actions: allocate\ntiers:\n- plugins:\n  - name: capacity-card\n    arguments: {{mixedCards: {mixed}}}\n")
}

/// Nodes on which each of these tasks may run.
fn fit(cluster_state: &ClusterState, mixed: bool, tasks: &[&str]) -> Vec<Vec<Arc<str>>> {
    let items = decide::filter(
        cluster_state,
        &policy(&document(mixed)),
        &task_query(cluster_state, tasks),
    )
    .unwrap();
    let name = |slot: &u32| Arc::clone(&cluster_state.node(*slot).unwrap().record.name);
    let verdicts = items.iter().map(|item| &item.as_ref().unwrap().result);
    verdicts.map(|verdict| verdict.fit.iter().map(name).collect()).collect()
}

fn placed(cluster_state: &ClusterState, mixed: bool, count: usize) -> Vec<Arc<str>> {
    let placing = place(cluster_state, &policy(&document(mixed)), count);
    let group = placing.groups[0].as_ref().unwrap();
    let name = |slot: &u32| Arc::clone(&cluster_state.node(*slot).unwrap().record.name);
    group.allocated.iter().map(name).collect()
}

#[test]
fn filter_passes_only_nodes_with_the_card_that_the_job_uses() {
    let tasks = [("A|B", "Running", "na"), ("A|B", "Pending", ""), ("B", "Pending", "")];
    let cluster_state = cluster(r#"{"A": 2, "B": 2}"#, &tasks);
    let asked = ["ns/j/t1", "ns/j/t2"];
    assert_eq!(fit(&cluster_state, false, &asked), [["na".into()], ["nb".into()]]);
    assert_eq!(fit(&cluster_state, true, &asked)[0], ["na".into(), "nb".into()]);
    // The job's card is used up, and the job cannot use the other one.
    let cluster_state = cluster(r#"{"A": 1, "B": 2}"#, &tasks);
    assert_eq!(fit(&cluster_state, false, &asked), [vec![], vec!["nb".into()]]);
    assert_eq!(fit(&cluster_state, true, &asked)[0], ["nb".into()]);
}

#[test]
fn equal_tasks_of_different_jobs_are_judged_apart() {
    let tasks = [("A|B", "Running", "nb"), ("A|B", "Pending", "")];
    let mut cluster_state = cluster(r#"{"A": 2, "B": 2}"#, &tasks);
    let source: Arc<str> = "test".into();
    let job = cluster_state.jobs().get("ns/j").unwrap().record.clone();
    let task = cluster_state.tasks().get("ns/j/t1").unwrap().record.clone();
    cluster_state.put_job(
        JobRecord {
            name: "ns/k".into(),
            ..job
        },
        &source,
    );
    let other = TaskRecord {
        name: "ns/k/t1".into(),
        job: "ns/k".into(),
        ..task
    };
    cluster_state.put_task(other, &source);
    assert_eq!(
        fit(&cluster_state, false, &["ns/j/t1", "ns/k/t1"]),
        [["nb".into()], ["na".into()]]
    );
}

#[test]
fn a_job_starts_on_a_card_with_free_capacity_for_its_whole_minimum() {
    let tasks = [("A|B", "Pending", ""); 6];
    let mut cluster_state = cluster(r#"{"A": 2, "B": 4}"#, &tasks);
    assert_eq!(
        placed(&cluster_state, false, 6),
        ["na", "na"].map(Arc::from),
        "one is the least: the first card has room"
    );
    assert_eq!(
        placed(&cluster_state, true, 6),
        ["na", "na", "nb", "nb", "nb", "nb"].map(Arc::from)
    );
    let job = cluster_state.jobs().get("ns/j").unwrap().record.clone();
    cluster_state.put_job(JobRecord { min_member: 3, ..job }, &"test".into());
    assert_eq!(
        placed(&cluster_state, false, 6),
        ["nb"; 4].map(Arc::from),
        "only the second has room for three"
    );
}
