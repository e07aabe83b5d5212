//! Tests of `compatibility: corrected`: the numbers of the hierarchy's description, shares by weight, clear errors, and
//! victims by entitlement.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::{DrfState, NAME};
use super::cluster::{one_node_state, put_job, put_queue, put_tasks_of_job, task};
use super::tree_changes::SeededNumbers;
use crate::cycle::{SchedulingCycle, SessionChange, TaskPlacement};
use crate::decide::reduce_order::compare_keys_totally;
use crate::model::{ClusterState, NodeVector, TaskRecord, TaskStatus};
use crate::plugin::EVERY_QUEUE;
use crate::plugin_state::PluginStates;
use crate::policy::Compatibility;

use Compatibility::Corrected;

pub(super) const GPU: (i64, i64, i64) = (0, 0, 1_000);
pub(super) const CPU: (i64, i64, i64) = (1_000, 0, 0);

pub(super) fn corrected_cycle(cluster_state: ClusterState) -> SchedulingCycle {
    let mut derived = PluginStates::default();
    derived.insert(NAME.into(), Arc::new(DrfState::build(&cluster_state, Corrected, true)));
    SchedulingCycle::new(cluster_state, Corrected.into(), derived)
}

fn drf_state(cycle: &SchedulingCycle) -> &DrfState {
    cycle.plugin_states().get(NAME).unwrap()
}

/// Puts a queue of one job with this many waiting tasks.
pub(super) fn put_group(
    cluster_state: &mut ClusterState,
    path: &str,
    weights: &str,
    requests: (i64, i64, i64),
    count: usize,
) {
    let name = path.replace('/', "-");
    put_queue(cluster_state, &name, path, weights, None);
    let job = format!("ns/{name}");
    put_job(cluster_state, &job, &name);
    put_tasks_of_job(cluster_state, &job, TaskStatus::Pending, requests, count);
}

/// Serves the first queue, one task at a time, until nothing fits; returns the number of tasks per job.
pub(super) fn allocate_until_full(cycle: &mut SchedulingCycle) -> BTreeMap<String, usize> {
    let mut waiting: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
    for (name, stored) in cycle.cluster_state().tasks().iter() {
        if stored.record.status == TaskStatus::Pending {
            waiting
                .entry(Arc::clone(&stored.record.job))
                .or_default()
                .push(Arc::clone(name));
        }
    }
    while let Some(job) = next_task(cycle, &waiting) {
        let tasks = waiting.get_mut(&job).unwrap();
        let Some(task) = tasks.pop().filter(|task| fits(cycle.cluster_state(), task)) else {
            waiting.remove(&job);
            continue;
        };
        if tasks.is_empty() {
            waiting.remove(&job);
        }
        let node = "n".into();
        let card = Arc::default();
        cycle
            .apply(&[SessionChange::Allocate(TaskPlacement {
                task,
                node,
                card,
                devices: 0,
            })])
            .unwrap();
    }
    let mut got = BTreeMap::new();
    for (_, stored) in cycle
        .cluster_state()
        .tasks()
        .iter()
        .filter(|(_, stored)| stored.record.status.is_allocated())
    {
        *got.entry(stored.record.job.to_string()).or_default() += 1;
    }
    got
}

fn next_task(cycle: &SchedulingCycle, waiting: &BTreeMap<Arc<str>, Vec<Arc<str>>>) -> Option<Arc<str>> {
    let key = |job: &Arc<str>| {
        drf_state(cycle)
            .queue_key(&cycle.cluster_state().jobs().get(job).unwrap().record.queue)
            .unwrap()
    };
    let first = waiting
        .keys()
        .min_by(|left, right| compare_keys_totally(&key(left), &key(right)).then_with(|| left.cmp(right)));
    first.cloned()
}

fn fits(cluster_state: &ClusterState, task: &str) -> bool {
    let node = cluster_state.node_by_name("n").unwrap();
    let requests = &cluster_state.tasks().get(task).unwrap().record.requests;
    let left =
        |id| node.exact(id, NodeVector::Allocatable).unwrap_or(0) - node.exact(id, NodeVector::Used).unwrap_or(0);
    requests.iter().all(|(id, amount)| i128::from(amount) <= left(id))
}

fn task_counts(counts: &BTreeMap<String, usize>, jobs: &[&str]) -> Vec<usize> {
    jobs.iter()
        .map(|job| counts.get(&format!("ns/root-{job}")).copied().unwrap_or(0))
        .collect()
}

#[test]
fn complementary_children_do_not_starve_each_other() {
    let mut cluster_state = one_node_state(10_000, 0, 100, 10_000);
    put_group(&mut cluster_state, "root/n1", "100/50", GPU, 20);
    put_group(&mut cluster_state, "root/n2/n21", "100/50/50", CPU, 20);
    put_group(&mut cluster_state, "root/n2/n22", "100/50/50", GPU, 20);
    let mut cycle = corrected_cycle(cluster_state);
    let counts = allocate_until_full(&mut cycle);
    assert_eq!(task_counts(&counts, &["n1", "n2-n21", "n2-n22"]), [5, 10, 5]);
}

#[test]
fn blocked_child_does_not_block_its_parent() {
    let mut cluster_state = one_node_state(12_000, 0, 100, 12_000);
    put_group(&mut cluster_state, "root/n1", "1/1", CPU, 20);
    put_group(&mut cluster_state, "root/n2", "1/1", CPU, 20);
    put_group(&mut cluster_state, "root/n3/n31", "1/1/1", CPU, 20);
    put_group(&mut cluster_state, "root/n3/n32", "1/1/1", GPU, 20);
    put_group(&mut cluster_state, "root/n4", "1/1", GPU, 20);
    let mut cycle = corrected_cycle(cluster_state);
    let counts = allocate_until_full(&mut cycle);
    assert_eq!(
        task_counts(&counts, &["n1", "n2", "n3-n31", "n3-n32", "n4"]),
        [4, 4, 4, 6, 6]
    );
}

#[test]
fn change_names_the_queues_whose_keys_moved() {
    for (cpu, moved) in [
        (10_000, vec!["root-n2-n21", "root-n2-n22"]),
        (1_000, vec![EVERY_QUEUE, "root-n2-n21"]),
    ] {
        let mut cluster_state = one_node_state(cpu, 0, 100, 10_000);
        put_group(&mut cluster_state, "root/n1", "1/1", GPU, 2);
        put_group(&mut cluster_state, "root/n2/n21", "1/1/1", CPU, 2);
        put_group(&mut cluster_state, "root/n2/n22", "1/1/1", GPU, 2);
        let mut cycle = corrected_cycle(cluster_state);
        let (task, node, card) = ("ns/root-n2-n21-000".into(), "n".into(), Arc::default());
        let outcome = cycle
            .apply(&[SessionChange::Allocate(TaskPlacement {
                task,
                node,
                card,
                devices: 0,
            })])
            .unwrap();
        let queues: Vec<&str> = outcome.queues.iter().map(|queue| &**queue).collect();
        assert_eq!(queues, moved, "of {cpu} milli-cpus one thousand are taken");
    }
}

#[test]
fn change_that_moves_many_queues_names_every_queue() {
    let mut cluster_state = one_node_state(10_000, 0, 1_000, 0);
    for number in 0..300 {
        put_queue(
            &mut cluster_state,
            &format!("q{number}"),
            &format!("root/all/q{number}"),
            "1/1/1",
            None,
        );
    }
    put_group(&mut cluster_state, "root/all/busy", "1/1/1", CPU, 2);
    let mut cycle = corrected_cycle(cluster_state);
    let (task, node, card) = ("ns/root-all-busy-000".into(), "n".into(), Arc::default());
    let outcome = cycle
        .apply(&[SessionChange::Allocate(TaskPlacement {
            task,
            node,
            card,
            devices: 0,
        })])
        .unwrap();
    let queues: Vec<&str> = outcome.queues.iter().map(|queue| &**queue).collect();
    assert_eq!(queues, [EVERY_QUEUE, "root-all-busy"]);
}

#[test]
fn weight_below_one_stays() {
    let mut cluster_state = one_node_state(9_000, 0, 100, 0);
    put_group(&mut cluster_state, "root/a", "1/0.5", CPU, 20);
    put_group(&mut cluster_state, "root/b", "1/1", CPU, 20);
    let mut cycle = corrected_cycle(cluster_state);
    let counts = allocate_until_full(&mut cycle);
    assert_eq!(task_counts(&counts, &["a", "b"]), [3, 6]);
}

#[test]
fn contradicting_paths_are_reported() {
    let mut cluster_state = one_node_state(10_000, 0, 100, 0);
    let queues = [
        ("first", "root/sci/dev", "1/2/3", Some(1), None),
        ("inner", "root/sci", "1/2", Some(2), Some("HIERARCHY_INNER_AND_LEAF")),
        (
            "below",
            "root/sci/dev/x",
            "1/2/3/1",
            Some(3),
            Some("HIERARCHY_INNER_AND_LEAF"),
        ),
        (
            "other",
            "root/sci/prod",
            "1/4/3",
            Some(4),
            Some("HIERARCHY_WEIGHTS_CONFLICT"),
        ),
        ("short", "root/eng/dev", "1/2", Some(5), Some("HIERARCHY_WEIGHTS_COUNT")),
        ("none", "root/eng", "", Some(5), Some("HIERARCHY_WEIGHTS_COUNT")),
        ("nan", "root/a", "1/NaN", Some(6), Some("HIERARCHY_WEIGHT_INVALID")),
        ("zero", "root/b", "1/0", Some(6), Some("HIERARCHY_WEIGHT_INVALID")),
        ("negative", "root/c", "1/-3", Some(6), Some("HIERARCHY_WEIGHT_INVALID")),
        ("word", "root/d", "1/abc", Some(6), Some("HIERARCHY_WEIGHT_INVALID")),
        (
            "infinite",
            "root/e",
            "1/1e400",
            Some(6),
            Some("HIERARCHY_WEIGHT_INVALID"),
        ),
        ("half", "root/f", "1/0.5", Some(7), None),
        ("same", "root/sci/dev", "1/2/3", Some(8), None),
        ("plain", "", "", Some(9), None),
    ];
    for (name, path, weights, creation_time, _) in queues {
        put_queue(&mut cluster_state, name, path, weights, creation_time);
        put_job(&mut cluster_state, &format!("ns/{name}"), name);
        put_tasks_of_job(&mut cluster_state, &format!("ns/{name}"), TaskStatus::Pending, CPU, 1);
    }
    let drf = DrfState::build(&cluster_state, Corrected, true);
    for (name, .., expected) in queues {
        let problem = drf.queue_key(name).err();
        assert_eq!(problem.as_ref().map(|problem| problem.code.name()), expected, "{name}");
        assert_eq!(drf.job_problem(&format!("ns/{name}")), problem.as_ref(), "{name}");
        if let Some(problem) = problem {
            let field = format!("queues[{name}].annotations[volcano.sh/hierarchy");
            assert!(problem.field.starts_with(&field), "{}", problem.field);
        }
    }
}

#[test]
fn order_of_deep_and_shallow_queues_is_total() {
    let mut cluster_state = one_node_state(10_000, 0, 100, 0);
    put_queue(&mut cluster_state, "x", "root/x", "1/1", Some(2));
    put_queue(&mut cluster_state, "p", "root/y/p", "1/1/1", Some(3));
    put_queue(&mut cluster_state, "q", "root/y/q", "1/1/1", Some(1));
    for queue in ["x", "p", "q"] {
        let job = format!("ns/{queue}");
        put_job(&mut cluster_state, &job, queue);
        put_tasks_of_job(&mut cluster_state, &job, TaskStatus::Pending, CPU, 3);
    }
    put_tasks_of_job(&mut cluster_state, "ns/q", TaskStatus::Running, CPU, 1);
    put_tasks_of_job(&mut cluster_state, "ns/x", TaskStatus::Running, CPU, 1);
    let drf = DrfState::build(&cluster_state, Corrected, true);
    let key = |queue| drf.queue_key(queue).unwrap();
    assert_eq!(
        compare_keys_totally(&key("x"), &key("p")),
        Ordering::Less,
        "equal so far, and it ends here"
    );
    assert_eq!(compare_keys_totally(&key("x"), &key("q")), Ordering::Less);
    assert_eq!(compare_keys_totally(&key("p"), &key("q")), Ordering::Less);
}

fn put_running_job(
    cluster_state: &mut ClusterState,
    job: &str,
    queue: &str,
    requests: (i64, i64, i64),
    count: usize,
) -> Vec<TaskRecord> {
    put_job(cluster_state, job, queue);
    put_tasks_of_job(cluster_state, job, TaskStatus::Running, requests, count);
    let tasks = cluster_state
        .tasks()
        .iter()
        .filter(|(_, task)| *task.record.job == *job);
    tasks.map(|(_, task)| task.record.clone()).collect()
}

fn count_true(goes: &[bool]) -> usize {
    goes.iter().filter(|goes| **goes).count()
}

#[test]
fn reclaim_stops_at_the_deserved_share() {
    let mut cluster_state = one_node_state(10_000, 0, 100, 0);
    for (queue, weight) in [("a", 1), ("b", 1), ("c", 2)] {
        put_queue(
            &mut cluster_state,
            queue,
            &format!("root/{queue}"),
            &format!("1/{weight}"),
            None,
        );
    }
    let b = put_running_job(&mut cluster_state, "ns/b", "b", CPU, 4);
    let c = put_running_job(&mut cluster_state, "ns/c", "c", CPU, 6);
    put_tasks_of_job(&mut cluster_state, "ns/b", TaskStatus::Pending, CPU, 10);
    put_tasks_of_job(&mut cluster_state, "ns/c", TaskStatus::Pending, CPU, 10);
    put_job(&mut cluster_state, "ns/a", "a");
    put_tasks_of_job(&mut cluster_state, "ns/a", TaskStatus::Pending, CPU, 1);
    let preemptor = task(&cluster_state, "ns/a-000", "ns/a", TaskStatus::Pending, CPU);
    let drf = DrfState::build(&cluster_state, Corrected, true);
    let candidates: Vec<&TaskRecord> = b.iter().chain(&c).collect();
    let goes = drf.reclaim(&preemptor, &candidates).unwrap().unwrap();
    // a deserves a quarter but requests only a tenth; b deserves 0.3 of the rest, c 0.6. The last task can reclaim.
    assert_eq!((count_true(&goes[..4]), count_true(&goes[4..])), (1, 0), "{goes:?}");
    let upstream = DrfState::build(&cluster_state, Compatibility::UPSTREAM, true)
        .reclaim(&preemptor, &candidates)
        .unwrap()
        .unwrap();
    assert_eq!(
        count_true(&upstream),
        10,
        "each is judged alone, and nothing is deserved"
    );
    let twice = [candidates[0], candidates[0]];
    assert_eq!(
        drf.reclaim(&preemptor, &twice).unwrap().unwrap(),
        [true, false],
        "a task goes once"
    );
}

#[test]
fn preemption_between_queues_follows_the_hierarchy() {
    let mut cluster_state = one_node_state(10_000, 0, 100, 0);
    for queue in ["a", "b"] {
        put_queue(&mut cluster_state, queue, &format!("root/{queue}"), "1/1", None);
    }
    let small = put_running_job(&mut cluster_state, "ns/b-small", "b", CPU, 1);
    put_running_job(&mut cluster_state, "ns/b-large", "b", CPU, 6);
    put_tasks_of_job(&mut cluster_state, "ns/b-small", TaskStatus::Pending, CPU, 3);
    let mine = put_running_job(&mut cluster_state, "ns/a", "a", CPU, 3);
    put_tasks_of_job(&mut cluster_state, "ns/a", TaskStatus::Pending, CPU, 2);
    let preemptor = task(&cluster_state, "ns/a-003", "ns/a", TaskStatus::Pending, CPU);
    let candidates: Vec<&TaskRecord> = small.iter().chain(&mine).collect();
    let corrected = DrfState::build(&cluster_state, Corrected, true)
        .preempt(&preemptor, &candidates)
        .unwrap();
    assert_eq!(
        corrected,
        [true, false, false, false],
        "queue a holds less than b, though the job is small"
    );
    let upstream = DrfState::build(&cluster_state, Compatibility::UPSTREAM, true)
        .preempt(&preemptor, &candidates)
        .unwrap();
    assert!(!upstream[0], "jobs only");
}

#[test]
fn spared_candidate_does_not_affect_later_ones() {
    let mut cluster_state = one_node_state(20_000, 0, 100, 0);
    put_queue(&mut cluster_state, "q", "", "", None);
    let mut theirs = put_running_job(&mut cluster_state, "ns/them", "q", (5_000, 0, 0), 1);
    theirs.extend(
        put_running_job(&mut cluster_state, "ns/them", "q", CPU, 2)
            .into_iter()
            .skip(1),
    );
    put_job(&mut cluster_state, "ns/me", "q");
    put_tasks_of_job(&mut cluster_state, "ns/me", TaskStatus::Pending, (3_000, 0, 0), 1);
    let preemptor = task(&cluster_state, "ns/me-000", "ns/me", TaskStatus::Pending, (3_000, 0, 0));
    let candidates: Vec<&TaskRecord> = theirs.iter().collect();
    let ask = |compatibility| {
        DrfState::build(&cluster_state, compatibility, false)
            .preempt(&preemptor, &candidates)
            .unwrap()
    };
    assert_eq!(ask(Corrected), [false, true, true]);
    assert_eq!(ask(Compatibility::UPSTREAM), [false, false, false]);
}

/// Part of the cluster that a path deserves at least while all siblings request more.
pub(super) fn guaranteed_share(path: &[usize], weights: &BTreeMap<Vec<usize>, f64>) -> f64 {
    (1..=path.len())
        .map(|depth| {
            let siblings = weights
                .iter()
                .filter(|(other, _)| other.len() == depth && other[..depth - 1] == path[..depth - 1]);
            weights[&path[..depth]] / siblings.map(|(_, weight)| weight).sum::<f64>()
        })
        .product()
}

/// Random tree of one or two levels: weights by path, and the paths of its queues.
pub(super) fn random_tree(numbers: &mut SeededNumbers) -> (BTreeMap<Vec<usize>, f64>, Vec<Vec<usize>>) {
    let (mut weights, mut paths) = (BTreeMap::new(), Vec::new());
    for top in 0..2 + numbers.below(3) {
        weights.insert(vec![top], numbers.pick(&[0.5, 1.0, 2.0]));
        let below = numbers.below(3);
        if below == 0 {
            paths.push(vec![top]);
            continue;
        }
        for sub in 0..=below {
            weights.insert(vec![top, sub], numbers.pick(&[1.0, 2.0, 3.0]));
            paths.push(vec![top, sub]);
        }
    }
    (weights, paths)
}

/// Path and weights of a queue as annotations.
pub(super) fn hierarchy_annotations(path: &[usize], weights: &BTreeMap<Vec<usize>, f64>) -> (String, String) {
    let (mut names, mut written) = ("root".to_owned(), "1".to_owned());
    for depth in 1..=path.len() {
        names = format!("{names}/{}", path[depth - 1]);
        written = format!("{written}/{}", weights[&path[..depth]]);
    }
    (names, written)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// In a full cluster of equal tasks, repeated reclaim ends, with every queue near what it deserves, whatever it
    /// held before.
    #[test]
    fn reclaim_gives_every_queue_its_deserved_share(seed in any::<u64>()) {
        const TASKS: usize = 24;
        let mut numbers = SeededNumbers::new(seed);
        let mut cluster_state = one_node_state(i64::try_from(TASKS).unwrap() * 1_000, 0, 100_000, 0);
        let (weights, paths) = random_tree(&mut numbers);
        let mut jobs = Vec::new();
        for path in &paths {
            let (names, written) = hierarchy_annotations(path, &weights);
            put_group(&mut cluster_state, &names, &written, CPU, 2 * TASKS);
            jobs.push(format!("ns/{}", names.replace('/', "-")));
        }
        for _ in 0..TASKS {
            let job = numbers.below(jobs.len());
            put_tasks_of_job(&mut cluster_state, &jobs[job], TaskStatus::Running, CPU, 1);
        }
        let mut cycle = corrected_cycle(cluster_state);
        let mut rounds = 0;
        while let Some((taken, given)) = jobs.iter().find_map(|job| reclaim_victim(&cycle, job)) {
            let (node, card) = ("n".into(), Arc::default());
            cycle.apply(&[SessionChange::Evict(taken), SessionChange::Allocate(TaskPlacement { task: given, node, card, devices: 0 })]).unwrap();
            rounds += 1;
            prop_assert!(rounds <= TASKS, "{weights:?} go round in circles");
        }
        for (path, job) in paths.iter().zip(&jobs) {
            let own = held_tasks(&cycle, job).len();
            let promised = guaranteed_share(path, &weights) * TASKS as f64;
            prop_assert!(own as f64 >= promised - 4.0, "{path:?} of {weights:?} holds {own}, deserves {promised}");
        }
    }
}

fn held_tasks(cycle: &SchedulingCycle, job: &str) -> Vec<Arc<str>> {
    let tasks = cycle.cluster_state().tasks().iter();
    let own = tasks.filter(|(_, task)| *task.record.job == *job && task.record.status.is_allocated());
    own.map(|(name, _)| Arc::clone(name)).collect()
}

/// Victim that a waiting task of this job may reclaim, and that task.
fn reclaim_victim(cycle: &SchedulingCycle, job: &str) -> Option<(Arc<str>, Arc<str>)> {
    let cluster_state = cycle.cluster_state();
    let all = || cluster_state.tasks().iter().map(|(_, task)| &task.record);
    let waiting = all().find(|task| *task.job == *job && task.status == TaskStatus::Pending)?;
    let candidates: Vec<&TaskRecord> = all()
        .filter(|task| *task.job != *job && task.status.is_allocated())
        .collect();
    let goes = drf_state(cycle).reclaim(waiting, &candidates).unwrap().unwrap();
    let taken = candidates.iter().zip(goes).find(|(_, goes)| *goes)?.0;
    Some((Arc::clone(&taken.name), Arc::clone(&waiting.name)))
}
