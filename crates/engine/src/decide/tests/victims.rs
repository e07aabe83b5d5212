//! Tests of `SelectVictims`: fit, irreducible sets, assumptions, and the votes of plugins.

use std::sync::Arc;

use proptest::prelude::*;

use super::fixtures::{amounts, cluster_state, policy};
use crate::cycle::{SchedulingCycle, SessionChange, TaskPlacement};
use crate::decide::{self, LastRounds, VictimGroup, VictimVerdict, VictimsQuery};
use crate::model::{
    ClusterState, JobRecord, NodeRecord, Problem, QueueRecord, ResourceId, ResourceTable, TaskFields, TaskRecord,
    TaskStatus,
};
use crate::plugin::VictimKind;
use crate::policy::{Compatibility, Policy};

fn task(cluster_state: &ClusterState, job: &str, number: usize, cpu: &str, status: TaskStatus) -> TaskRecord {
    let mut resources = ResourceTable::clone(cluster_state.resources());
    let mut requests = amounts(&mut resources, [("cpu", cpu)]);
    requests.set(ResourceId::PODS, 1);
    TaskRecord::from(TaskFields {
        name: format!("{job}-{number}").into(),
        job: job.into(),
        status,
        node: if status == TaskStatus::Pending { "" } else { "n" }.into(),
        requests,
        ..TaskFields::default()
    })
}

/// Ten cpus, all held: `ns/big` runs five tasks of one and one of three, `ns/mid` one of two; `ns/new` waits.
fn cluster() -> ClusterState {
    let mut resources = ResourceTable::default();
    let node = NodeRecord {
        name: "n".into(),
        allocatable: amounts(&mut resources, [("cpu", "10"), ("pods", "110")]),
        ..NodeRecord::default()
    };
    let (mut cluster_state, source) = (cluster_state(resources, vec![node]), Arc::from("test"));
    cluster_state.put_queue(
        QueueRecord {
            name: "q".into(),
            ..QueueRecord::default()
        },
        &source,
    );
    let running = [
        ("ns/big", 0, "1"),
        ("ns/big", 1, "1"),
        ("ns/big", 2, "1"),
        ("ns/big", 3, "1"),
        ("ns/big", 4, "1"),
    ];
    let running = running.into_iter().chain([("ns/big", 5, "3"), ("ns/mid", 0, "2")]);
    for job in ["ns/big", "ns/mid", "ns/new"] {
        let record = JobRecord {
            name: job.into(),
            queue: "q".into(),
            ..JobRecord::default()
        };
        cluster_state.put_job(record, &source);
    }
    for (job, number, cpu) in running {
        let task = task(&cluster_state, job, number, cpu, TaskStatus::Running);
        cluster_state.put_task(task, &source);
    }
    let waiting = task(&cluster_state, "ns/new", 0, "2", TaskStatus::Pending);
    cluster_state.put_task(waiting, &source);
    cluster_state
}

fn named(cluster_state: &ClusterState, names: &[&str]) -> Vec<TaskRecord> {
    let stored = |name: &&str| cluster_state.tasks().get(name).unwrap().record.clone();
    names.iter().map(stored).collect()
}

fn ask(
    cluster_state: &ClusterState,
    policy: &Policy,
    group: VictimGroup,
    irreducible: bool,
) -> Result<VictimVerdict, Problem> {
    let cycle = SchedulingCycle::new(
        cluster_state.clone(),
        policy.node_change_rules(),
        policy.compute_plugin_states(cluster_state),
    );
    let query = VictimsQuery {
        now: None,
        kind: VictimKind::Preempt,
        groups: vec![Ok(group)],
        plugins: Vec::new(),
        irreducible,
        last_rounds: LastRounds::new(),
    };
    decide::victims(&cycle, policy, &query).unwrap().remove(0)
}

fn group(cluster_state: &ClusterState, candidates: &[&str]) -> VictimGroup {
    VictimGroup {
        preemptor: named(cluster_state, &["ns/new-0"]).remove(0),
        node: "n".into(),
        candidates: named(cluster_state, candidates),
        assumptions: Vec::new(),
    }
}

#[test]
fn verdict_counts_the_victims_needed_and_spares_the_rest() {
    let (cluster_state, policy) = (cluster(), policy("{name: drf}", Compatibility::Corrected).policy);
    let verdict = ask(
        &cluster_state,
        &policy,
        group(&cluster_state, &["ns/mid-0", "ns/big-0", "ns/big-1", "ns/big-2"]),
        false,
    )
    .unwrap();
    assert_eq!(verdict.victims, [1, 2, 3], "mid would hold less than the new one");
    assert_eq!(verdict.fits_after, Some(2));
    assert_eq!(
        (&*verdict.votes[0].plugin, &verdict.votes[0].victims),
        ("drf", &Some(vec![1, 2, 3]))
    );
    let nowhere = VictimGroup {
        node: "elsewhere".into(),
        ..group(&cluster_state, &[])
    };
    assert_eq!(ask(&cluster_state, &policy, nowhere, false).unwrap_err().field, "node");
}

#[test]
fn no_victim_of_an_irreducible_set_can_be_left_out() {
    let (cluster_state, policy) = (cluster(), policy("{name: drf}", Compatibility::Corrected).policy);
    let candidates = ["ns/big-0", "ns/big-5", "ns/big-1"];
    let all = ask(&cluster_state, &policy, group(&cluster_state, &candidates), false).unwrap();
    assert_eq!((all.victims, all.fits_after), (vec![0, 1, 2], Some(2)));
    let few = ask(&cluster_state, &policy, group(&cluster_state, &candidates), true).unwrap();
    assert_eq!(
        (few.victims, few.fits_after),
        (vec![1], Some(1)),
        "the large one alone makes room"
    );
    let none = ask(&cluster_state, &policy, group(&cluster_state, &["ns/big-0"]), true).unwrap();
    assert_eq!((none.victims, none.fits_after), (vec![], None), "one is not enough");
    let anywhere = VictimGroup {
        node: Arc::default(),
        ..group(&cluster_state, &candidates)
    };
    assert_eq!(
        ask(&cluster_state, &policy, anywhere, true).unwrap_err().code.name(),
        "NODE_MISSING"
    );
}

#[test]
fn a_candidate_that_frees_nothing_is_none() {
    let cluster_state = cluster();
    let ask = |compatibility| {
        let mut group = group(&cluster_state, &["ns/big-0", "ns/big-1", "ns/big-2"]);
        group.candidates[0].status = TaskStatus::Releasing;
        group.candidates[1].status = TaskStatus::Pending;
        let policy = policy("{name: drf}", compatibility).policy;
        ask(&cluster_state, &policy, group, false).unwrap().victims
    };
    assert_eq!(ask(Compatibility::Corrected), [2]);
    assert_eq!(ask(Compatibility::UPSTREAM), [0, 1, 2]);
}

#[test]
fn assumptions_count_in_their_group_only() {
    let (cluster_state, policy) = (cluster(), policy("{name: drf}", Compatibility::Corrected).policy);
    let assumed = VictimGroup {
        assumptions: vec![
            SessionChange::Evict("ns/big-5".into()),
            SessionChange::Evict("ns/nobody".into()),
        ],
        ..group(&cluster_state, &["ns/big-0"])
    };
    let verdict = ask(&cluster_state, &policy, assumed, false).unwrap();
    assert_eq!(verdict.fits_after, Some(0), "what is being released already is enough");
    assert_eq!(verdict.warnings[0].field, "assumptions[1].evict");
    let alone = ask(&cluster_state, &policy, group(&cluster_state, &["ns/big-0"]), false).unwrap();
    assert_eq!(alone.fits_after, None);
}

/// A job: its name, what a large task of it holds, and how many small ones it has.
type JobSketch<'a> = (&'a str, [(&'a str, &'a str); 2], usize);

/// Ten of each resource, and a queue. Jobs by name: what one task of each holds, and then how many small tasks of one cpu.
fn jobs(jobs: &[JobSketch<'_>]) -> ClusterState {
    let mut resources = ResourceTable::default();
    let node = NodeRecord {
        name: "n".into(),
        allocatable: amounts(
            &mut resources,
            [
                ("cpu", "10"),
                ("memory", "10Gi"),
                ("example.com/gpu", "10"),
                ("pods", "1k"),
            ],
        ),
        ..NodeRecord::default()
    };
    let (mut cluster_state, source) = (cluster_state(resources, vec![node]), Arc::from("test"));
    let queue = QueueRecord {
        name: "q".into(),
        ..QueueRecord::default()
    };
    cluster_state.put_queue(queue, &source);
    for (job, holds, small) in jobs {
        let record = JobRecord {
            name: (*job).into(),
            queue: "q".into(),
            ..JobRecord::default()
        };
        cluster_state.put_job(record, &source);
        let mut resources = ResourceTable::clone(cluster_state.resources());
        let mut large = task(&cluster_state, job, 0, "0", TaskStatus::Running);
        large.requests = amounts(&mut resources, *holds);
        cluster_state.put_task(large, &source);
        for number in 1..=*small {
            let small = task(&cluster_state, job, number, "1", TaskStatus::Running);
            cluster_state.put_task(small, &source);
        }
    }
    let waiting = task(&cluster_state, "ns/new", 9, "1", TaskStatus::Pending);
    cluster_state.put_task(waiting, &source);
    cluster_state
}

fn wants_back(cluster_state: &ClusterState, candidates: &[&str]) -> VictimGroup {
    VictimGroup {
        preemptor: named(cluster_state, &["ns/new-9"]).remove(0),
        node: "n".into(),
        candidates: named(cluster_state, candidates),
        assumptions: Vec::new(),
    }
}

#[test]
fn a_victim_that_would_win_its_place_straight_back_is_left_alone() {
    // The one dominates by its gpus, the other by its memory, and a cpu more or less moves neither share: they would take
    // the place from each other for ever. The third holds more than both.
    let cluster_state = jobs(&[
        ("ns/new", [("cpu", "0"), ("example.com/gpu", "5")], 0),
        ("ns/like", [("cpu", "0"), ("memory", "5Gi")], 3),
        ("ns/more", [("cpu", "0"), ("memory", "8Gi")], 7),
    ]);
    let policy = policy("{name: drf}", Compatibility::Corrected).policy;
    let ask = |candidates: &[&str], irreducible| {
        ask(
            &cluster_state,
            &policy,
            wants_back(&cluster_state, candidates),
            irreducible,
        )
        .unwrap()
    };
    let all = ask(&["ns/like-1", "ns/like-2", "ns/more-1"], false);
    assert_eq!(
        (all.victims, all.fits_after),
        (vec![0, 1, 2], Some(1)),
        "drf would have them all go"
    );
    let lasting = ask(&["ns/like-1", "ns/like-2", "ns/more-1"], true);
    assert_eq!((lasting.victims, lasting.fits_after), (vec![2], Some(1)));
    let none = ask(&["ns/like-1", "ns/like-2"], true);
    assert_eq!(
        (none.victims, none.fits_after),
        (vec![], None),
        "rather nobody than for nothing"
    );
}

#[test]
fn a_job_that_would_return_for_many_gives_as_many_as_it_can_spare() {
    // Of eight cpus, five are wanted. A job that lost them all would hold less than the new one, and another has to help.
    let cluster_state = jobs(&[
        ("ns/new", [("cpu", "0"), ("example.com/gpu", "4")], 0),
        ("ns/some", [("cpu", "0"), ("memory", "4Gi")], 5),
        ("ns/more", [("cpu", "0"), ("memory", "8Gi")], 5),
    ]);
    let policy = policy("{name: drf}", Compatibility::Corrected).policy;
    let names: Vec<String> = ["some", "more"]
        .iter()
        .flat_map(|job| (1..=5).map(move |number| format!("ns/{job}-{number}")))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut group = wants_back(&cluster_state, &names);
    group.preemptor = task(&cluster_state, "ns/new", 9, "4", TaskStatus::Pending);
    let verdict = ask(&cluster_state, &policy, group, true).unwrap();
    assert_eq!(verdict.fits_after, Some(4));
    assert!(verdict.victims.iter().any(|victim| *victim >= 5), "{verdict:?}");
}

/// Random numbers of one seed.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed | 1;
    move |end| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % end
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Checks both guarantees of an irreducible set: every victim is necessary, and no victim could preempt the
    /// preemptor afterwards.
    #[test]
    fn irreducible_victims_are_never_in_vain(seed in any::<u64>()) {
        let mut below = numbers(seed);
        let names = ["ns/new", "ns/a", "ns/b", "ns/c"];
        let (mut left, mut list) = (10, Vec::new());
        for name in names {
            let small = below(5).min(left);
            left -= small;
            let holds = [("example.com/gpu", ["0", "1", "2"][below(3)]), ("memory", ["0", "1Gi", "2Gi", "4Gi"][below(4)])];
            list.push((name, holds, small));
        }
        let cluster_state = jobs(&list);
        let policy = policy("{name: drf}", Compatibility::Corrected).policy;
        let candidates: Vec<String> = list[1..]
            .iter()
            .flat_map(|(job, _, small)| (1..=*small).map(move |number| format!("{job}-{number}")))
            .collect();
        let candidates: Vec<&str> = candidates.iter().map(String::as_str).collect();
        let wanted = ["1", "2", "3", "4"][below(4)];
        let group = VictimGroup {
            preemptor: task(&cluster_state, "ns/new", 9, wanted, TaskStatus::Pending),
            ..wants_back(&cluster_state, &candidates)
        };
        let verdict = ask(&cluster_state, &policy, group.clone(), true).unwrap();
        prop_assert_eq!(verdict.fits_after.unwrap_or(0), verdict.victims.len());
        let of = |positions: &[usize]| VictimGroup {
            candidates: positions.iter().map(|at| group.candidates[*at].clone()).collect(),
            ..group.clone()
        };
        for at in 0..verdict.victims.len() {
            let mut fewer = verdict.victims.clone();
            fewer.remove(at);
            let without = ask(&cluster_state, &policy, of(&fewer), false).unwrap();
            prop_assert_eq!(without.fits_after, None, "{:?} makes room without number {}", &verdict, at);
        }
        let mut after = cluster_state;
        let source = Arc::from("test");
        after.put_task(group.preemptor.clone(), &source);
        let mut assumptions: Vec<SessionChange> = verdict
            .victims
            .iter()
            .map(|at| SessionChange::Evict(Arc::clone(&group.candidates[*at].name)))
            .collect();
        assumptions.push(SessionChange::Pipeline(TaskPlacement {
            task: Arc::clone(&group.preemptor.name),
            node: "n".into(),
            card: Arc::default(),
            devices: 0,
        }));
        for at in &verdict.victims {
            let back = VictimGroup {
                preemptor: group.candidates[*at].clone(),
                node: Arc::default(),
                candidates: vec![TaskRecord {
                    status: TaskStatus::Allocated,
                    ..group.preemptor.clone()
                }],
                assumptions: assumptions.clone(),
            };
            let verdict = ask(&after, &policy, back, false).unwrap();
            prop_assert_eq!(&verdict.warnings, &Vec::new());
            prop_assert_eq!(verdict.victims, Vec::<usize>::new(), "number {} would return", at);
        }
    }
}
