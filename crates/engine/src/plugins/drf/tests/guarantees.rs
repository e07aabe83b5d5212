//! Tests of the promises of `compatibility: corrected` over random trees, each by itself: sharing incentive, the group
//! guarantee, no starvation.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::cluster::{one_node_state, put_tasks_of_job};
use super::corrected::{
    CPU, GPU, allocate_until_full, corrected_cycle, guaranteed_share, hierarchy_annotations, put_group, random_tree,
};
use super::tree_changes::SeededNumbers;
use crate::cycle::{SchedulingCycle, SessionChange};
use crate::model::TaskStatus;

/// Number of tasks in the cluster, so large that one is a small part.
const UNITS: i64 = 240;

/// Number of tasks by which a queue may miss a promise, since tasks are indivisible and the order of service matters.
const SLACK: f64 = 4.0;

/// Queue: its path, the requests of its tasks, and their number.
type QueueLoad = (Vec<usize>, (i64, i64, i64), usize);

/// Random tree whose queues all request something, some of them little.
struct RandomCluster {
    weights: BTreeMap<Vec<usize>, f64>,
    leaves: Vec<QueueLoad>,
    cycle: SchedulingCycle,
}

impl RandomCluster {
    fn new(numbers: &mut SeededNumbers, most: &[usize]) -> Self {
        let mut cluster_state = one_node_state(UNITS * 1_000, 0, 100_000, UNITS * 1_000);
        let (weights, paths) = random_tree(numbers);
        let mut leaves: Vec<QueueLoad> = Vec::new();
        for path in paths {
            let requests = numbers.pick(&[CPU, GPU, (1_000, 0, 1_000)]);
            let count = numbers.pick(most);
            let (names, written) = hierarchy_annotations(&path, &weights);
            put_group(&mut cluster_state, &names, &written, requests, count);
            leaves.push((path, requests, count));
        }
        let cycle = corrected_cycle(cluster_state);
        Self { weights, leaves, cycle }
    }

    /// Number of tasks of each queue once no task fits any more.
    fn served(&mut self) -> Vec<usize> {
        let counts = allocate_until_full(&mut self.cycle);
        let own = |(path, ..): &QueueLoad| counts.get(&job_name(path)).copied().unwrap_or(0);
        self.leaves.iter().map(own).collect()
    }

    fn description(&self) -> String {
        format!("{:?} {:?}", self.leaves, self.weights)
    }
}

fn job_name(path: &[usize]) -> String {
    path.iter()
        .fold("ns/root".to_owned(), |name, part| name + "-" + &part.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// No queue gets less than in a cluster divided by weight beforehand, except those that request less.
    #[test]
    fn sharing_incentive(seed in any::<u64>()) {
        let mut cluster = RandomCluster::new(&mut SeededNumbers::new(seed), &[3, 30, 300]);
        let served = cluster.served();
        for ((path, requests, count), own) in cluster.leaves.iter().zip(served) {
            let promised = guaranteed_share(path, &cluster.weights) * UNITS as f64;
            prop_assert!(
                own == *count || own as f64 >= promised - SLACK,
                "{path:?} asked for {count} × {requests:?}, got {own}, was promised {promised}: {}",
                cluster.description()
            );
        }
    }

    /// A group with a queue that wants more gets its part of what its parent deserves, of its largest resource: other
    /// queues of the group get what one of them leaves, before any queue outside.
    #[test]
    fn group_guarantee(seed in any::<u64>()) {
        let mut cluster = RandomCluster::new(&mut SeededNumbers::new(seed), &[3, 30, 300]);
        let served = cluster.served();
        let groups = cluster.weights.keys().filter(|path| path.len() == 1);
        for group in groups {
            let members = cluster.leaves.iter().zip(&served).filter(|((path, ..), _)| path[0] == group[0]);
            let (mut held, mut content) = ((0, 0), true);
            for ((_, (cpu, _, gpu), count), own) in members {
                held.0 += usize::from(*cpu > 0) * own;
                held.1 += usize::from(*gpu > 0) * own;
                content &= own == count;
            }
            let most = held.0.max(held.1) as f64;
            let promised = guaranteed_share(group, &cluster.weights) * UNITS as f64;
            prop_assert!(
                content || most >= promised - SLACK,
                "group {group:?} has {most}, was promised {promised}: {} {served:?}",
                cluster.description()
            );
        }
    }

    /// Every waiting queue is served in the end, whatever others hold and however small its weight. A queue that comes
    /// late to a full cluster gets a task before all tasks of the others were reclaimed once.
    #[test]
    fn no_starvation(seed in any::<u64>()) {
        const PLACES: u16 = 48;
        let mut numbers = SeededNumbers::new(seed);
        let mut cluster_state = one_node_state(i64::from(PLACES) * 1_000, 0, 100_000, i64::from(PLACES) * 1_000);
        let (weights, paths) = random_tree(&mut numbers);
        let late = paths[numbers.below(paths.len())].clone();
        for path in &paths {
            let (names, written) = hierarchy_annotations(path, &weights);
            let count = if *path == late { 5 } else { usize::from(PLACES) };
            put_group(&mut cluster_state, &names, &written, (1_000, 0, 1_000), count);
        }
        let others: Vec<String> = paths.iter().filter(|path| **path != late).map(|path| job_name(path)).collect();
        let holders = others.len().min(1 + numbers.below(3));
        for number in 0..usize::from(PLACES) {
            put_tasks_of_job(&mut cluster_state, &others[number % holders], TaskStatus::Allocated, (1_000, 0, 1_000), 1);
        }
        let tasks = cluster_state.tasks().iter();
        let held = tasks.filter(|(_, stored)| stored.record.status == TaskStatus::Allocated);
        let mut held: Vec<Arc<str>> = held.map(|(name, _)| Arc::clone(name)).collect();
        let mut cycle = corrected_cycle(cluster_state);
        let mut is_served = false;
        while let (Some(back), false) = (held.pop(), is_served) {
            cycle.apply(&[SessionChange::Unallocate(back)]).unwrap();
            is_served = allocate_until_full(&mut cycle).contains_key(&job_name(&late));
        }
        prop_assert!(is_served, "{late:?} of {weights:?} starves");
    }
}
