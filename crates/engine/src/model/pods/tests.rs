//! The index of pods and the topology domains, compared with a rebuild and with numbers computed by hand.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::model::constraints::{LabelSelector, PodAffinityTerm, PodTerms};
use crate::model::{ClusterState, NodeRecord, ResourceAmounts, ResourceId, SortedTable, TableCursor, TaskFields};

const NODES: u32 = 5;

#[derive(Clone, Debug)]
enum PodStep {
    PutNode(u32, u8),
    RemoveNode(u32),
    PutTask(TaskRecord),
    Place(u8, u32, bool),
    RemoveTask(u8),
    Ask,
}

fn terms(kind: u8) -> Option<Arc<PodConstraints>> {
    let term = PodAffinityTerm {
        label_selector: Some(LabelSelector::default()),
        topology_key: format!("k{kind}").into(),
        ..PodAffinityTerm::default()
    };
    let repels = PodTerms {
        required: vec![term],
        ..PodTerms::default()
    };
    match kind {
        0 => None,
        1 => Some(PodConstraints {
            node_selector: [("a".into(), "b".into())].into(),
            ..PodConstraints::default()
        }),
        2 => Some(PodConstraints {
            pod_affinity: repels,
            ..PodConstraints::default()
        }),
        _ => Some(PodConstraints {
            pod_anti_affinity: repels,
            ..PodConstraints::default()
        }),
    }
    .map(Arc::new)
}

fn status() -> impl Strategy<Value = TaskStatus> {
    use TaskStatus::{Bound, Failed, Pending, Pipelined, Releasing, Running, Succeeded};
    prop::sample::select(vec![Pending, Pipelined, Bound, Running, Releasing, Succeeded, Failed])
}

fn task() -> impl Strategy<Value = TaskRecord> {
    (0_u8..8, 0..=NODES, status(), 0_u8..2, 0_u8..3, 0_u8..4).prop_map(
        |(name, node, status, namespace, label, kind)| {
            let labels: Vec<(Arc<str>, Arc<str>)> =
                (0..label).map(|key| (format!("l{key}").into(), "v".into())).collect();
            TaskFields {
                // A name is in one namespace.
                name: format!("ns{}/t{name}", (name + namespace) % 2).into(),
                node: format!("n{node}").into(),
                labels: labels.into(),
                requests: ResourceAmounts::from_iter([(ResourceId::PODS, 1)]),
                constraints: terms(kind),
                status,
                ..TaskFields::default()
            }
            .into()
        },
    )
}

fn step() -> impl Strategy<Value = PodStep> {
    prop_oneof![
        2 => (0..NODES, 0_u8..3).prop_map(|(node, zone)| PodStep::PutNode(node, zone)),
        1 => (0..NODES).prop_map(PodStep::RemoveNode),
        6 => task().prop_map(PodStep::PutTask),
        2 => (0_u8..16, 0..NODES, any::<bool>()).prop_map(|(task, node, pipelined)| PodStep::Place(task, node, pipelined)),
        2 => (0_u8..16).prop_map(PodStep::RemoveTask),
        2 => Just(PodStep::Ask),
    ]
}

fn empty() -> ClusterState {
    let mut index = SortedTable::default();
    for slot in 0..NODES {
        index.insert(format!("n{slot}").into(), slot);
    }
    ClusterState::new(Arc::new(index), 1)
}

fn name(number: u8) -> String {
    format!("ns{}/t{}", number % 2, number / 2)
}

fn apply(cluster_state: &mut ClusterState, step: &PodStep) {
    let source: Arc<str> = "s".into();
    match step {
        PodStep::PutNode(node, zone) => {
            let record = NodeRecord {
                name: format!("n{node}").into(),
                labels: (0..*zone)
                    .map(|zone| (Arc::from("zone"), zone.to_string().into()))
                    .take(1)
                    .collect(),
                ..NodeRecord::default()
            };
            assert!(cluster_state.put_node(Arc::new(record), &source));
        }
        PodStep::RemoveNode(node) => drop(cluster_state.remove_node(&format!("n{node}"))),
        PodStep::PutTask(task) => cluster_state.put_task(task.clone(), &source),
        PodStep::Place(task, slot, pipelined) => {
            let status = if *pipelined {
                TaskStatus::Pipelined
            } else {
                TaskStatus::Allocated
            };
            let task = name(*task);
            let mut near = TableCursor::default();
            let stored = cluster_state.tasks().get_with_cursor(&task, &mut near).cloned();
            if let Some(stored) = stored.filter(|stored| stored.record.status == TaskStatus::Pending) {
                let placed = cluster_state.assign_node(stored, status, (*slot, 0), &near);
                cluster_state.count_placed(placed.as_slice());
            }
        }
        PodStep::RemoveTask(task) => drop(cluster_state.remove_task(&name(*task))),
        PodStep::Ask => drop(cluster_state.pods().clone()),
    }
}

/// Equal records in a state of their own, nodes after tasks.
fn rebuilt(cluster_state: &ClusterState) -> ClusterState {
    let mut again = empty();
    for (_, stored) in cluster_state.tasks().iter() {
        again.put_task(stored.record.clone(), &stored.source);
    }
    for (_, entry) in cluster_state.nodes() {
        again.put_node(Arc::clone(&entry.record), &entry.source);
    }
    again
}

fn check(cluster_state: &ClusterState) {
    let again = rebuilt(cluster_state);
    assert_eq!(cluster_state.pods(), again.pods());
    assert_eq!(cluster_state.has_repelling_pods(), again.has_repelling_pods());
    let zone = Arc::from("zone");
    let (domains, others) = (cluster_state.topology_domains(&zone), again.topology_domains(&zone));
    assert_eq!(domains.count(), others.count());
    assert!((0..NODES).all(|slot| domains.domain(slot) == others.domain(slot)));
    let mut counted: BTreeMap<(String, NodeSlot), u32> = BTreeMap::new();
    let describe = |class: &PodClass| format!("{class:?}");
    let (mut repelling, mut held) = (0, BTreeMap::new());
    for (_, stored) in cluster_state.tasks().iter() {
        let task = &stored.record;
        if !task.status.is_on_node() {
            continue;
        }
        repelling += usize::from(task.constraints == terms(3));
        if let Some(slot) = cluster_state.slot_of(&task.node) {
            *counted.entry((describe(&PodClass::of(task)), slot)).or_default() += 1;
        }
    }
    for (class, counts) in cluster_state.pods().classes() {
        assert!(!counts.is_empty());
        for (slot, count) in counts {
            assert_eq!(held.insert((describe(class), *slot), *count), None);
        }
    }
    assert_eq!(held, counted);
    assert_eq!(cluster_state.has_repelling_pods(), repelling > 0);
}

proptest! {
    #[test]
    fn changes_equal_a_rebuild(steps in prop::collection::vec(step(), 0..80)) {
        let (mut cluster_state, mut earlier) = (empty(), None);
        for (number, step) in steps.iter().enumerate() {
            apply(&mut cluster_state, step);
            if number == steps.len() / 2 {
                earlier = Some((cluster_state.clone(), rebuilt(&cluster_state)));
            }
        }
        check(&cluster_state);
        // A clone does not see later changes, whether or not its index was computed before them.
        if let Some((clone, then)) = earlier {
            prop_assert_eq!(clone.pods(), then.pods());
            check(&clone);
        }
    }
}

#[test]
fn an_eviction_under_upstream_takes_the_pod_off_and_an_older_one_stays() {
    for asked in [false, true] {
        let mut cluster_state = empty();
        apply(&mut cluster_state, &PodStep::PutNode(0, 1));
        for (task, status) in [("a/runs", TaskStatus::Running), ("a/leaves", TaskStatus::Releasing)] {
            let record = TaskFields {
                name: task.into(),
                node: "n0".into(),
                status,
                ..TaskFields::default()
            };
            cluster_state.put_task(record.into(), &"s".into());
        }
        cluster_state.begin_upstream_cycle(true);
        if asked {
            assert_eq!(cluster_state.pods().classes().count(), 2);
        }
        let evicted = TaskRecord {
            status: TaskStatus::Releasing,
            ..cluster_state.tasks().get("a/runs").unwrap().record.clone()
        };
        cluster_state.set_task(evicted.clone());
        let left: Vec<_> = cluster_state
            .pods()
            .classes()
            .map(|(class, counts)| (class.is_releasing, counts.to_vec()))
            .collect();
        assert_eq!(left, [(true, vec![(0, 1)])]);
        let undone = TaskRecord {
            status: TaskStatus::Running,
            ..evicted
        };
        cluster_state.set_task(undone);
        assert_eq!(cluster_state.pods().classes().count(), 2);
    }
}

#[test]
fn hypothetical_pods_count_whether_or_not_the_index_exists() {
    for asked in [false, true] {
        let mut cluster_state = empty();
        apply(&mut cluster_state, &PodStep::PutNode(3, 0));
        if asked {
            assert_eq!(cluster_state.pods().classes().count(), 0);
        }
        let before = cluster_state.clone();
        let task = TaskFields {
            name: "a/t".into(),
            constraints: terms(3),
            ..TaskFields::default()
        };
        let class = Arc::new(PodClass::of(&task.into()));
        for count in [2, 3] {
            cluster_state.add_hypothetical_pods(&class, 3, count);
        }
        let counts: Vec<_> = cluster_state
            .pods()
            .classes()
            .map(|(_, counts)| counts.to_vec())
            .collect();
        assert_eq!(counts, [vec![(3, 5)]]);
        assert!(cluster_state.has_repelling_pods() && !before.has_repelling_pods());
        assert_eq!(before.pods().classes().count(), 0);
    }
}
