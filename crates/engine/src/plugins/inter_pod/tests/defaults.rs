//! Default spread constraints against the rules written down plainly, over small random clusters.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::scores::sheet;
use super::{labels, selector, state_of, texts};
use crate::model::constraints::{LabelSelector, PodConstraints, SpreadConstraint, SpreadPolicy};
use crate::model::{NodeRecord, ResourceAmounts, ResourceId, TaskFields, TaskRecord, TaskStatus, TextMap, find_text};
use crate::policy::Compatibility;

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Nodes, some without a zone or a hostname, some with an empty zone.
fn nodes() -> impl Strategy<Value = Vec<NodeRecord>> {
    let zone = prop::option::weighted(0.8, prop::sample::select(vec!["a", "b", ""]));
    let node = (zone, prop::bool::weighted(0.8));
    prop::collection::vec(node, 1..7).prop_map(|nodes| {
        let numbered = nodes.into_iter().enumerate();
        numbered
            .map(|(number, (zone, named))| {
                let mut pairs = Vec::new();
                pairs.extend(zone.map(|zone| (ZONE, zone.to_owned())));
                pairs.extend(named.then(|| (HOSTNAME, number.to_string())));
                NodeRecord {
                    name: format!("n{number}").into(),
                    labels: texts(&pairs),
                    allocatable: ResourceAmounts::from_iter([(ResourceId::PODS, 100)]),
                    ..NodeRecord::default()
                }
            })
            .collect()
    })
}

fn task(name: String, labels: TextMap, node: Arc<str>, constraints: Option<PodConstraints>) -> TaskRecord {
    let fields = TaskFields {
        name: name.into(),
        labels,
        status: if node.is_empty() {
            TaskStatus::Pending
        } else {
            TaskStatus::Running
        },
        node,
        requests: ResourceAmounts::from_iter([(ResourceId::PODS, 1)]),
        constraints: constraints.map(Arc::new),
        ..TaskFields::default()
    };
    fields.into()
}

fn matches(selector: &LabelSelector, labels: &TextMap) -> bool {
    selector.matches(labels)
}

/// Scores of the nodes with the system's defaults: pods that the owners select, by node with skew 3 and by zone with
/// skew 5. A node without the label belongs to the domain with the empty value.
fn expected(nodes: &[NodeRecord], pods: &[TaskRecord], selector: &LabelSelector) -> Vec<i64> {
    let counted = |node: &NodeRecord| {
        let on_node = pods
            .iter()
            .filter(|pod| pod.node == node.name && matches(selector, &pod.labels));
        on_node.count() as f64
    };
    let zone = |node: &NodeRecord| find_text(&node.labels, ZONE).unwrap_or_default().to_owned();
    let zones: BTreeSet<String> = nodes.iter().map(zone).collect();
    let weight = |domains: usize| (domains as f64 + 2.0).ln();
    let points = |node: &NodeRecord| {
        let mut points = 0.0;
        if find_text(&node.labels, HOSTNAME).is_some() {
            points += counted(node) * weight(nodes.len()) + 2.0;
        }
        if find_text(&node.labels, ZONE).is_some() {
            let pods: f64 = nodes
                .iter()
                .filter(|other| zone(other) == zone(node))
                .map(counted)
                .sum();
            points += pods * weight(zones.len()) + 4.0;
        }
        integer(points.round())
    };
    let raw: Vec<i64> = nodes.iter().map(points).collect();
    let (least, most) = (*raw.iter().min().unwrap(), *raw.iter().max().unwrap());
    let score = |own: &i64| {
        if most == 0 {
            100
        } else {
            100 * (most + least - own) / most
        }
    };
    raw.iter().map(score).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "it is a small integer")]
fn integer(float: f64) -> i64 {
    float as i64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn pods_with_owners_are_spread_by_default(
        nodes in nodes(),
        pods in prop::collection::vec((labels(), 0_usize..7), 0..14),
        selector in selector(),
        upstream in any::<bool>(),
        has_own in prop::bool::weighted(0.2),
    ) {
        let selector = selector.filter(|own| !own.is_empty());
        let pods = pods.into_iter().enumerate();
        let pods: Vec<TaskRecord> = pods
            .filter(|(_, (_, node))| *node < nodes.len())
            .map(|(number, (labels, node))| task(format!("x/{number}"), labels, format!("n{node}").into(), None))
            .collect();
        let state = state_of(&nodes, &pods);
        // A constraint of its own takes the place of the defaults, although it rejects no node here.
        let own = SpreadConstraint {
            max_skew: 100,
            topology_key: HOSTNAME.into(),
            is_hard: true,
            label_selector: None,
            min_domains: None,
            node_affinity_policy: SpreadPolicy::Honor,
            node_taints_policy: SpreadPolicy::Ignore,
            match_label_keys: Vec::new(),
        };
        let constraints = PodConstraints {
            owner_selector: selector.clone(),
            spread_constraints: if has_own { vec![own] } else { Vec::new() },
            ..PodConstraints::default()
        };
        let asked = task("x/own".to_owned(), TextMap::default(), Arc::default(), Some(constraints));
        let compatibility = if upstream { Compatibility::UPSTREAM } else { Compatibility::Corrected };
        let (found, warnings) = sheet(&state, asked, None, compatibility);
        prop_assert_eq!(warnings, Vec::new());
        let scores = match &selector {
            Some(selector) if !has_own => expected(&nodes, &pods, selector),
            _ => vec![0; nodes.len()],
        };
        let scores: Vec<f64> = scores.iter().map(|score| (1000 * score) as f64).collect();
        prop_assert_eq!(&found.totals, &scores, "{:?}", selector);
    }
}
