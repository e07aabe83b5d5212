//! Random clusters and changes, over which the fast tree equals the plain one.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::{DrfState, NAME};
use super::cluster::{one_node_state, put_job, put_queue, put_tasks_of_job};
use super::plain_tree::{self, TreeLine};
use crate::cycle::{NodeChangeRules, SchedulingCycle, SessionChange, TaskPlacement};
use crate::model::{ClusterState, TaskStatus};
use crate::plugin::EVERY_QUEUE;
use crate::plugin::PluginAccounts as _;
use crate::plugin_state::PluginStates;
use crate::policy::Compatibility;

/// Random numbers of one seed.
pub(crate) struct SeededNumbers(u64);

impl SeededNumbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Random number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Weight of a level, equal for every queue through it.
fn weight_of_path(path: &str) -> &'static str {
    let sum: usize = path.bytes().map(usize::from).sum();
    ["0.5", "1", "2", "3.5", "10"][sum % 5]
}

/// Cluster in which resources run out, with queues at several levels, some with equal paths.
pub(crate) fn random_cluster_state(numbers: &mut SeededNumbers) -> ClusterState {
    let mut cluster_state = one_node_state(8_000, 10 << 30, 40, 4_000);
    let queues = 1 + numbers.below(6);
    for number in 0..queues {
        let (mut path, mut weights) = ("root".to_owned(), "1".to_owned());
        for _ in 0..numbers.below(3) {
            path = format!("{path}/{}", numbers.pick(&["x", "y"]));
            weights = format!("{weights}/{}", weight_of_path(&path));
        }
        path = format!("{path}/q{}", numbers.below(4));
        weights = format!("{weights}/{}", weight_of_path(&path));
        put_queue(&mut cluster_state, &format!("queue{number}"), &path, &weights, Some(1));
        for job in 0..numbers.below(3) {
            let job = format!("ns/job{number}-{job}");
            put_job(&mut cluster_state, &job, &format!("queue{number}"));
            for _ in 0..=numbers.below(2) {
                let requests = numbers.pick(&[
                    (1_000, 0, 0),
                    (1_000, 3 << 30, 0),
                    (500, 0, 1_000),
                    (0, 1 << 30, 0),
                    (0, 0, 2_000),
                ]);
                put_tasks_of_job(
                    &mut cluster_state,
                    &job,
                    TaskStatus::Running,
                    requests,
                    numbers.below(2),
                );
                put_tasks_of_job(
                    &mut cluster_state,
                    &job,
                    TaskStatus::Pending,
                    requests,
                    numbers.below(4),
                );
            }
        }
    }
    cluster_state
}

fn random_change(
    numbers: &mut SeededNumbers,
    cluster_state: &ClusterState,
    compatibility: Compatibility,
) -> Option<SessionChange> {
    let names: Vec<Arc<str>> = cluster_state.tasks().iter().map(|(name, _)| Arc::clone(name)).collect();
    if names.is_empty() {
        return None;
    }
    let task = Arc::clone(&names[numbers.below(names.len())]);
    let to = TaskPlacement {
        task: Arc::clone(&task),
        node: "n".into(),
        card: Arc::default(),
        devices: 0,
    };
    match cluster_state.tasks().get(&task).unwrap().record.status {
        TaskStatus::Pending if compatibility == Compatibility::Corrected && numbers.below(3) == 0 => {
            Some(SessionChange::Pipeline(to))
        }
        TaskStatus::Pending => Some(SessionChange::Allocate(to)),
        TaskStatus::Allocated if numbers.below(2) == 0 => Some(SessionChange::Unallocate(task)),
        TaskStatus::Allocated | TaskStatus::Running => Some(SessionChange::Evict(task)),
        TaskStatus::Pipelined => Some(SessionChange::Unpipeline(task)),
        TaskStatus::Releasing => Some(SessionChange::Unevict(task)),
        TaskStatus::Binding | TaskStatus::Bound | TaskStatus::Succeeded | TaskStatus::Failed | TaskStatus::Unknown => {
            None
        }
    }
}

fn tree_lines(drf: &DrfState) -> Vec<TreeLine> {
    let lines = drf.queue_tree().into_iter().map(|node| {
        let held = node.held.iter().map(|(name, amount)| (name.to_string(), *amount));
        let mut held: Vec<(String, f64)> = held.collect();
        held.sort_by(|a, b| a.0.cmp(&b.0));
        (
            node.path.to_string(),
            node.job.map(|job| job.to_string()),
            node.share,
            node.saturated,
            held,
        )
    });
    sorted_lines(lines.collect())
}

fn sorted_lines(mut lines: Vec<TreeLine>) -> Vec<TreeLine> {
    lines.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    lines
}

/// Full cluster of many queues, deep and shallow, whose jobs wait for one or several kinds of task. So little is left
/// that almost any change makes a resource run out or frees it.
pub(crate) fn full_cluster_state(numbers: &mut SeededNumbers) -> ClusterState {
    let kinds = [
        (1_000, 1 << 20, 0),
        (1_000, 2 << 20, 1_000),
        (1_000, 0, 500),
        (0, 1 << 20, 0),
        (0, 0, 1_000),
    ];
    let queues = 12 + numbers.below(12);
    let (mut jobs, mut held) = (Vec::new(), (0, 0, 0, 0));
    for number in 0..queues {
        let above = numbers.pick(&["root", "root", "root/x", "root/y", "root/x/z"]);
        let path = format!("{above}/q{number}");
        let mut at = String::from("root");
        let weights = path.split('/').skip(1).map(|name| {
            at = format!("{at}/{name}");
            weight_of_path(&at)
        });
        let weights = weights.fold(String::from("1"), |all, weight| format!("{all}/{weight}"));
        for job in 0..=numbers.below(3) {
            let requests = numbers.pick(&kinds);
            let running = numbers.below(3);
            held.0 += requests.0 * i64::try_from(running).unwrap();
            held.1 += requests.1 * i64::try_from(running).unwrap();
            held.2 += i64::try_from(running).unwrap();
            held.3 += requests.2 * i64::try_from(running).unwrap();
            let others = (numbers.below(3) == 0).then(|| numbers.pick(&kinds));
            jobs.push((
                format!("queue{number}"),
                path.clone(),
                weights.clone(),
                job,
                requests,
                running,
                others,
            ));
        }
    }
    let spare = |numbers: &mut SeededNumbers| i64::try_from(numbers.below(2)).unwrap();
    let mut cluster_state = one_node_state(
        held.0 + 1_000 * spare(numbers),
        held.1 + (spare(numbers) << 20),
        held.2 + 1 + spare(numbers),
        held.3 + 500 * spare(numbers),
    );
    for (queue, path, weights, job, requests, running, others) in jobs {
        put_queue(&mut cluster_state, &queue, &path, &weights, Some(1));
        let job = format!("ns/{queue}-{job}");
        put_job(&mut cluster_state, &job, &queue);
        put_tasks_of_job(&mut cluster_state, &job, TaskStatus::Running, requests, running);
        put_tasks_of_job(&mut cluster_state, &job, TaskStatus::Pending, requests, 1);
        if let Some(others) = others {
            put_tasks_of_job(&mut cluster_state, &job, TaskStatus::Pending, others, 1);
        }
    }
    cluster_state
}

/// Applies random changes, and compares the tree after each with the plain one; the number of changes by which a resource ran
/// out or became free.
pub(crate) fn check_random_changes(
    cluster_state: ClusterState,
    (numbers, steps): (&mut SeededNumbers, usize),
    compatibility: Compatibility,
) -> Result<usize, TestCaseError> {
    let built = DrfState::build(&cluster_state, compatibility, true);
    prop_assert!(
        cluster_state
            .jobs()
            .iter()
            .all(|(job, _)| built.job_problem(job).is_none())
    );
    let mut derived = PluginStates::default();
    derived.insert(NAME.into(), Arc::new(built));
    let rules = NodeChangeRules {
        compatibility,
        moves_pods: true,
    };
    let mut cycle = SchedulingCycle::new(cluster_state, rules, derived);
    let (mut marks, mut flips) = (Vec::new(), 0);
    for step in 0..steps {
        if let Some(change) = random_change(numbers, cycle.cluster_state(), compatibility) {
            let outcome = cycle.apply(&[change]).unwrap();
            flips += usize::from(outcome.queues.contains(EVERY_QUEUE));
        }
        let drf: &DrfState = cycle.plugin_states().get(NAME).unwrap();
        let (expected, got) = (
            sorted_lines(plain_tree::plain_tree_lines(cycle.cluster_state(), compatibility)),
            tree_lines(drf),
        );
        prop_assert_eq!(format!("{expected:?}"), format!("{got:?}"), "step {}", step);
        prop_assert_eq!(
            drf,
            &DrfState::build(cycle.cluster_state(), compatibility, true),
            "a rebuild at step {}",
            step
        );
        if step % 10 == 0 {
            let name: Arc<str> = format!("mark{step}").into();
            cycle.apply(&[SessionChange::Savepoint(Arc::clone(&name))]).unwrap();
            marks.push((name, tree_lines(cycle.plugin_states().get(NAME).unwrap())));
        }
    }
    for (name, lines) in marks.into_iter().rev() {
        cycle.apply(&[SessionChange::RollbackTo(name)]).unwrap();
        prop_assert_eq!(lines, tree_lines(cycle.plugin_states().get(NAME).unwrap()));
    }
    Ok(flips)
}
