//! Quotas that cannot hold.

use std::sync::Arc;

use super::super::super::queue_accounts::testing::cluster::{amounts, cluster_state, put_queue, queue};
use crate::model::{ClusterState, QueueRecord, ResourceAmounts};
use crate::plugins::capacity::quota_rules::impossible_quotas;

/// Amounts of cpu, in cores; a negative one is missing.
fn cores(cores: i64) -> Option<ResourceAmounts> {
    (cores >= 0).then(|| amounts(cores * 1_000, -1, -1))
}

/// Puts a queue with these cores as guarantee, deserved amount and capability.
fn put(state: &mut ClusterState, name: &str, parent: &str, [guarantee, deserved, capability]: [i64; 3]) {
    put_queue(
        state,
        QueueRecord {
            parent: Arc::from(parent),
            guarantee: cores(guarantee),
            deserved: cores(deserved),
            capability: cores(capability),
            ..queue(name, 1)
        },
    );
}

/// Fields of the problems, each with its message.
fn problems(state: &ClusterState) -> Vec<(String, String)> {
    let found = impossible_quotas(state).into_iter();
    found.map(|(_, problem)| (problem.field, problem.message)).collect()
}

#[test]
fn a_queue_may_hold_what_it_is_given() {
    let mut state = cluster_state(&[(16_000, 0, 0)]);
    put(&mut state, "even", "", [4, 4, 4]);
    put(&mut state, "free", "", [4, 40, -1]);
    assert_eq!(problems(&state), []);
    put(&mut state, "high", "", [4, -1, 1]);
    put(&mut state, "owed", "", [-1, 5, 2]);
    let found = problems(&state);
    let fields: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(fields, ["queues[high].guarantee", "queues[owed].deserved"]);
    assert_eq!(
        found[0].1,
        "the `guarantee` of queue `high` is 4 of cpu, and its `capability` is 1 of cpu: lower the one or raise the other"
    );
}

#[test]
fn guarantees_fit_into_the_cluster() {
    let mut state = cluster_state(&[(8_000, 0, 0), (8_000, 0, 0)]);
    put(&mut state, "root", "", [-1, -1, -1]);
    put(&mut state, "a", "root", [6, 30, -1]);
    put(&mut state, "b", "nobody", [10, 30, -1]);
    assert_eq!(problems(&state), []);
    put(&mut state, "b", "nobody", [11, 30, -1]);
    let (field, message) = problems(&state).remove(0);
    assert_eq!(field, "queues[b].guarantee");
    assert!(
        message.contains("of all queues is 17 of cpu together, and the cluster has 16 of cpu"),
        "{message}"
    );
    assert!(message.contains(": lower it, for example for queue `b`,"), "{message}");
    // A capability of the root that is below the cluster limits the sum, also of deserved amounts.
    put(&mut state, "root", "", [-1, -1, 15]);
    let found: Vec<String> = problems(&state).into_iter().map(|(_, message)| message).collect();
    assert!(
        found[0].contains("all queues is 17 of cpu together, and queue `root` has 15 of cpu"),
        "{found:?}"
    );
    assert!(
        found[1].contains("all queues is 60 of cpu together, and queue `root` has 15 of cpu"),
        "{found:?}"
    );
    put(&mut state, "root", "", [-1, -1, 99]);
    let message = problems(&state).remove(0).1;
    assert!(message.contains("and the cluster has 16 of cpu"), "{message}");
    // Without nodes nothing is known of the cluster.
    let mut state = cluster_state(&[]);
    put(&mut state, "b", "", [11, 30, -1]);
    assert_eq!(problems(&state), []);
}

#[test]
fn children_have_no_more_than_their_parent() {
    let mut state = cluster_state(&[(64_000, 0, 0)]);
    put(&mut state, "dept", "root", [4, 20, 30]);
    put(&mut state, "limited", "root", [-1, -1, 8]);
    for (parent, child, quotas) in [
        ("dept", "d-a", [2, 10, -1]),
        ("dept", "d-b", [2, 10, -1]),
        ("limited", "l-a", [8, 8, -1]),
    ] {
        put(&mut state, child, parent, quotas);
    }
    assert_eq!(problems(&state), []);
    put(&mut state, "d-b", "dept", [3, 11, -1]);
    put(&mut state, "l-b", "limited", [1, 0, -1]);
    let found = problems(&state);
    let fields: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(
        fields,
        ["queues[d-b].guarantee", "queues[l-a].guarantee", "queues[d-b].deserved"]
    );
    assert!(
        found[0]
            .1
            .contains("below queue `dept` is 5 of cpu together, and queue `dept` has 4 of cpu"),
        "{found:?}"
    );
}
