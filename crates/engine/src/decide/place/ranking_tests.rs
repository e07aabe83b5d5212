//! Rankings of nodes during a cycle, compared with evaluating all nodes again for each task.

use std::sync::Arc;

use proptest::prelude::*;

use super::{IdleChoice, NodeChoice, NodeChooser, NodeGradient, NodeRankings};
use crate::cycle::{SchedulingCycle, SessionChange, TaskPlacement};
use crate::decide::tests::fixtures;
use crate::model::constraints::{
    HostPort, NodeProperties, NodeSelectorTerm, PodConstraints, PreferredTerm, SelectorRequirement, Taint, TaintEffect,
    Toleration,
};
use crate::model::{NodeRecord, NodeSlot, ResourceAmounts, ResourceId, ResourceTable, TaskFields, TaskRecord, TextMap};
use crate::plugin_state::PluginStates;
use crate::policy::Compatibility;

const POLICIES: [&str; 4] = [
    "{name: predicates}, {name: nodeorder}, {name: binpack}",
    "{name: nodeorder, arguments: {mostrequested.weight: 2, nodeaffinity.weight: 5}}, {name: predicates}",
    "{name: binpack}, {name: resource-strategy-fit}",
    "{name: nodeorder}, {name: binpack}",
];

fn labels(zone: u8) -> TextMap {
    let pairs: Vec<(Arc<str>, Arc<str>)> = vec![("zone".into(), zone.to_string().into())];
    pairs.into()
}

fn amounts(cpu: i64, memory: i64, pods: i64) -> ResourceAmounts {
    ResourceAmounts::from_iter([
        (ResourceId::CPU, cpu),
        (ResourceId::MEMORY, memory << 28),
        (ResourceId::PODS, pods),
    ])
}

fn nodes() -> impl Strategy<Value = Vec<NodeRecord>> {
    let node = (1_i64..9, 1_i64..9, 1_i64..6, 0_u8..3, 0_u8..4);
    let many = prop_oneof![4 => prop::collection::vec(node.clone(), 1..12), 1 => prop::collection::vec(node, 250..600)];
    many.prop_map(|nodes| {
        let numbered = nodes.into_iter().enumerate();
        let record = |(number, (cpu, memory, pods, zone, tainted))| {
            let effect = if tainted == 1 {
                TaintEffect::NoSchedule
            } else {
                TaintEffect::PreferNoSchedule
            };
            let taint = Taint {
                key: "spot".into(),
                value: Arc::default(),
                effect,
            };
            NodeRecord {
                name: format!("n{number:03}").into(),
                labels: labels(zone),
                allocatable: amounts(cpu * 500, memory, pods),
                properties: (tainted < 3).then(|| {
                    Arc::new(NodeProperties {
                        devices: None,
                        taints: vec![taint],
                        images: Vec::new(),
                    })
                }),
                ..NodeRecord::default()
            }
        };
        numbered.map(record).collect()
    })
}

/// Task of a class: its size, the zone that it prefers, and whether it tolerates the taints or asks for a port.
fn task() -> impl Strategy<Value = TaskRecord> {
    (
        1_i64..4,
        1_i64..3,
        prop::option::of(0_u8..3),
        any::<bool>(),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(cpu, memory, zone, tolerates, port)| {
            let preferred = zone.map(|zone| PreferredTerm {
                weight: 7,
                term: NodeSelectorTerm {
                    match_expressions: vec![SelectorRequirement {
                        key: "zone".into(),
                        operator: "In".into(),
                        values: vec![zone.to_string().into()],
                    }],
                    ..NodeSelectorTerm::default()
                },
            });
            let toleration = Toleration {
                key: "spot".into(),
                operator: "Exists".into(),
                value: Arc::default(),
                effect: Arc::default(),
            };
            let own = HostPort {
                protocol: Arc::default(),
                host_ip: Arc::default(),
                port: 80,
            };
            let constraints = PodConstraints {
                preferred_node_terms: preferred.into_iter().collect(),
                tolerations: tolerates.then_some(toleration).into_iter().collect(),
                host_ports: port.then_some(own).into_iter().collect(),
                ..PodConstraints::default()
            };
            TaskFields {
                requests: amounts(cpu * 250, memory, 1),
                constraints: Some(Arc::new(constraints)),
                ..TaskFields::default()
            }
            .into()
        })
}

/// Best node with enough idle, by judging all nodes.
fn plain_choice(chooser: &NodeChooser<'_>, cycle: &SchedulingCycle, task: &TaskRecord) -> Option<NodeSlot> {
    let context = cycle.plugin_context(None);
    let later = chooser.passing(context, task, NodeGradient::FutureIdle, None).unwrap();
    let idle = chooser
        .passing(context, task, NodeGradient::Idle, Some(&later))
        .unwrap();
    match chooser.rank(context, task, NodeGradient::Idle, &idle, true) {
        NodeChoice::Ranked(slots) => slots.first().copied(),
        NodeChoice::NoneFits => None,
        NodeChoice::Unscored(problem) => panic!("{problem:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn rankings_follow_the_changes_of_a_cycle(
        nodes in nodes(),
        classes in prop::collection::vec(task(), 1..5),
        steps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0_u8..5), 1..60),
        number_of_policy in 0..POLICIES.len(),
        upstream in any::<bool>(),
    ) {
        let compatibility = if upstream { Compatibility::UPSTREAM } else { Compatibility::Corrected };
        let policy = fixtures::policy(POLICIES[number_of_policy], compatibility).policy;
        let mut state = fixtures::cluster_state(ResourceTable::default(), nodes);
        for number in 0..steps.len() {
            for (class, task) in classes.iter().enumerate() {
                let name = format!("ns/t{class}-{number}").into();
                state.put_task(TaskRecord { name, ..task.clone() }, &Arc::from("test"));
            }
        }
        let mut cycle = SchedulingCycle::new(state, policy.node_change_rules(), PluginStates::default());
        let (chooser, mut rankings) = (NodeChooser::new(&policy), NodeRankings::default());
        let (mut changes, mut placed): (Vec<NodeSlot>, Vec<Arc<str>>) = (Vec::new(), Vec::new());
        for (number, (class, other, what)) in steps.into_iter().enumerate() {
            let change = if what == 0 && !placed.is_empty() {
                // A task leaves its node.
                SessionChange::Unallocate(placed.swap_remove(other.index(placed.len())))
            } else {
                let name = format!("ns/t{}-{number}", class.index(classes.len()));
                let stored = Arc::clone(cycle.cluster_state().tasks().get(&name).unwrap());
                let expected = plain_choice(&chooser, &cycle, &stored.record);
                match chooser.best_idle(&mut rankings, cycle.plugin_context(None), &stored, &changes) {
                    IdleChoice::Node(slot) => prop_assert_eq!(Some(slot), expected),
                    IdleChoice::NoneIdle => prop_assert_eq!(expected, None),
                    IdleChoice::Unscored(problem) => prop_assert!(false, "{:?}", problem),
                    // Ports are in no column; the last policies read none.
                    IdleChoice::Unranked => {
                        prop_assert!(number_of_policy < 2 && !stored.record.host_ports().is_empty());
                    }
                }
                let Some(slot) = expected else { continue };
                placed.push(Arc::clone(&stored.record.name));
                SessionChange::Allocate(TaskPlacement {
    devices: 0,
                    task: Arc::clone(&stored.record.name),
                    node: cycle.cluster_state().name_of(slot).unwrap(),
                    card: Arc::default(),
                })
            };
            let outcome = cycle.apply_in_place(&change).unwrap();
            assert_eq!(outcome.warnings, []);
            changes.extend(&outcome.nodes);
        }
    }
}
