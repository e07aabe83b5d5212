//! Order of queues in a tree.

use std::cmp::Ordering;
use std::sync::Arc;

use super::super::super::queue_accounts::testing::cluster::{
    amounts, cluster_state, job, put_job, put_queue, put_task, queue, task,
};
use super::super::super::queue_accounts::testing::histories::HistoryNumbers;
use crate::decide::reduce_order::compare_keys_totally;
use crate::model::{ClusterState, JobPhase, TaskStatus};
use crate::plugin::QueueComparison;
use crate::plugins::capacity::QueueCapacityState;
use crate::policy::Compatibility;

/// Puts a queue that deserves so much cpu, with a job that holds so much.
fn put(state: &mut ClusterState, name: &str, parent: &str, deserved: i64, held: i64) {
    let mut record = queue(name, 1);
    record.parent = Arc::from(parent);
    record.deserved = Some(amounts(deserved, 0, -1));
    put_queue(state, record);
    if held > 0 {
        let own = format!("ns/{name}");
        put_job(state, job(&own, name, None, JobPhase::Running));
        put_task(state, task(&own, &own, &amounts(held, 0, -1), TaskStatus::Running));
    }
}

fn comparison(state: &ClusterState, names: &[&str]) -> super::super::order::TreeComparison {
    let own = QueueCapacityState::of(state, Compatibility::UPSTREAM, 0, true);
    let names: Vec<Arc<str>> = names.iter().map(|name| Arc::from(*name)).collect();
    own.tree_comparison(&names).unwrap()
}

#[test]
fn leaves_compare_at_their_fork() {
    let mut state = cluster_state(&[(8000, 8000, -1)]);
    put(&mut state, "root", "", 0, 0);
    put(&mut state, "eng", "root", 4000, 0);
    put(&mut state, "sci", "root", 4000, 0);
    put(&mut state, "eng-a", "eng", 1000, 1000);
    put(&mut state, "eng-b", "eng", 1000, 500);
    put(&mut state, "sci-a", "sci", 1000, 1200);
    let compared = comparison(&state, &["eng-a", "eng-b", "sci-a", "sci", "eng"]);
    assert_eq!((compared.compare(0, 1), compared.compare(1, 0)), (1, -1));
    assert_eq!(compared.compare(0, 2), 1, "eng holds 1,500 of 4,000, sci 1,200");
    assert_eq!(
        (compared.compare(0, 3), compared.compare(3, 0)),
        (-1, 1),
        "a leaf before an inner queue"
    );
    assert_eq!(compared.compare(3, 4), -1);
    assert!(!compared.is_total(), "not all are leaves");
    assert!(comparison(&state, &["eng-a", "eng-b", "sci-a"]).is_total());
    put(&mut state, "sci-b", "sci", 1000, 300);
    let tied = comparison(&state, &["eng-a", "sci-a", "eng-b", "sci-b"]);
    assert_eq!(
        (tied.compare(0, 1), tied.compare(1, 2)),
        (0, 0),
        "eng and sci hold the same part"
    );
    assert!(!tied.is_total());
    let mut urgent = state.queues().get("sci-b").unwrap().record.clone();
    urgent.priority = 3;
    put_queue(&mut state, urgent);
    assert_eq!(comparison(&state, &["eng-b", "sci-b"]).compare(0, 1), 3);
}

#[test]
fn an_inner_queue_comes_before_those_below_it() {
    let mut state = cluster_state(&[(8000, 8000, -1)]);
    put(&mut state, "root", "", 0, 0);
    put(&mut state, "eng", "root", 4000, 0);
    put(&mut state, "eng-a", "eng", 1000, 500);
    put(&mut state, "sci", "root", 4000, 2000);
    let own = QueueCapacityState::of(&state, Compatibility::Corrected, 0, true);
    let key = |name: &str| own.order_key(name).unwrap();
    let order = |left: &str, right: &str| compare_keys_totally(&key(left), &key(right));
    assert_eq!(
        order("eng", "eng-a"),
        Ordering::Less,
        "a path comes before its extensions"
    );
    assert_eq!(order("eng-a", "sci"), Ordering::Less, "eng holds an eighth, sci a half");
    assert_eq!(
        comparison(&state, &["eng", "eng-a"]).compare(0, 1),
        1,
        "the reference takes leaves first"
    );
}

#[test]
fn a_comparison_that_says_so_is_a_total_order() {
    let mut total = 0;
    for seed in 0..300 {
        let mut numbers = HistoryNumbers(seed);
        let mut state = cluster_state(&[(8000, 8000, -1)]);
        put(&mut state, "root", "", 0, 0);
        let mut below: Vec<String> = Vec::new();
        for number in 0..8 {
            let known = numbers.below(i64::try_from(below.len()).unwrap() + 2);
            let parent = below
                .get(usize::try_from(known).unwrap())
                .map_or("root", |name| name.as_str())
                .to_owned();
            let name = format!("q{number}");
            put(&mut state, &name, &parent, numbers.below(3) * 1000, 0);
            below.push(name);
        }
        let leaves = below
            .iter()
            .filter(|name| !state.queues().iter().any(|(_, own)| *own.record.parent == ***name));
        let leaves: Vec<&str> = leaves.map(String::as_str).collect();
        for leaf in &leaves {
            let own = format!("ns/{leaf}");
            put_job(&mut state, job(&own, leaf, None, JobPhase::Running));
            let held = amounts(numbers.below(4) * 500, 0, -1);
            put_task(&mut state, task(&own, &own, &held, TaskStatus::Running));
        }
        let compared = comparison(&state, &leaves);
        if !compared.is_total() {
            continue;
        }
        total += 1;
        let less =
            |left: usize, right: usize| compared.compare(left, right).cmp(&0).then(left.cmp(&right)) == Ordering::Less;
        let all = 0..leaves.len();
        for one in all.clone() {
            for two in all.clone() {
                assert_eq!(less(one, two), one != two && !less(two, one), "seed {seed}");
                for three in all.clone() {
                    assert!(!(less(one, two) && less(two, three)) || less(one, three), "seed {seed}");
                }
            }
        }
    }
    assert!(total > 50, "{total} of 300");
}
