//! Constraints of pods by kind.

use std::collections::BTreeMap;

use pumice::server::pb;

/// Topology key by which each node is a domain.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Number of kinds of constraints.
pub(super) const KINDS: u8 = 20;

/// Constraints by kind; most kinds have none.
pub(super) fn constraints(kind: u8) -> Option<Box<pb::PodConstraints>> {
    let mut own = pb::PodConstraints::default();
    if matches!(kind, 1 | 4) {
        own.node_selector.insert("zone".to_owned(), "1".to_owned());
    }
    if matches!(kind, 2 | 5) {
        own.tolerations.push(pb::Toleration {
            operator: "Exists".to_owned(),
            ..pb::Toleration::default()
        });
    }
    if matches!(kind, 1 | 6) {
        own.affinity = Some(preferred_zones());
        own.images.push("train".to_owned());
    }
    if matches!(kind, 3..=5) {
        own.host_ports.push(pb::HostPort {
            port: 80,
            ..pb::HostPort::default()
        });
    }
    if kind < 9 {
        return (kind < 7 && kind > 0).then(|| Box::new(own));
    }
    if (14..19).contains(&kind) {
        prefer_pods(kind, &mut own);
        return Some(Box::new(own));
    }
    // Terms about pods of the same kind; the last kind wants to be near those of kind 9.
    let selector = pb::LabelSelector {
        match_labels: labels(if kind == 13 { 9 } else { kind }),
        ..pb::LabelSelector::default()
    };
    let required = vec![pb::PodAffinityTerm {
        label_selector: Some(selector.clone()),
        topology_key: if kind == 19 { HOSTNAME } else { "zone" }.to_owned(),
        ..pb::PodAffinityTerm::default()
    }];
    let terms = Some(pb::PodAffinity {
        required,
        ..pb::PodAffinity::default()
    });
    let affinity = |attracts: bool| pb::Affinity {
        pod_affinity: terms.clone().filter(|_| attracts),
        pod_anti_affinity: terms.clone().filter(|_| !attracts),
        ..pb::Affinity::default()
    };
    match kind {
        9 | 13 => own.affinity = Some(affinity(true)),
        10 | 19 => own.affinity = Some(affinity(false)),
        _ => own.topology_spread_constraints.push(pb::TopologySpreadConstraint {
            max_skew: i32::from(kind) - 10,
            topology_key: "zone".to_owned(),
            when_unsatisfiable: "DoNotSchedule".to_owned(),
            label_selector: Some(selector),
            ..pb::TopologySpreadConstraint::default()
        }),
    }
    Some(Box::new(own))
}

/// Adds preferences for pods of the same kind, or of kind 14, by kind.
fn prefer_pods(kind: u8, own: &mut pb::PodConstraints) {
    let selector = |kind: u8| pb::LabelSelector {
        match_labels: labels(kind),
        ..pb::LabelSelector::default()
    };
    let preferring = |weight: i32, kind: u8, key: &str| pb::WeightedPodAffinityTerm {
        weight,
        term: Some(pb::PodAffinityTerm {
            label_selector: Some(selector(kind)),
            topology_key: key.to_owned(),
            ..pb::PodAffinityTerm::default()
        }),
    };
    let affinity = |attracts: Vec<_>, repels: Vec<_>| pb::Affinity {
        pod_affinity: Some(pb::PodAffinity {
            preferred: attracts,
            ..pb::PodAffinity::default()
        }),
        pod_anti_affinity: Some(pb::PodAffinity {
            preferred: repels,
            ..pb::PodAffinity::default()
        }),
        ..pb::Affinity::default()
    };
    let spread = |max_skew: i32, kind: u8, key: &str| pb::TopologySpreadConstraint {
        max_skew,
        topology_key: key.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: Some(selector(kind)),
        ..pb::TopologySpreadConstraint::default()
    };
    match kind {
        14 => own.affinity = Some(affinity(vec![preferring(10, 14, "zone")], Vec::new())),
        15 => {
            let repels = vec![preferring(3, 15, "zone"), preferring(7, 0, HOSTNAME)];
            own.affinity = Some(affinity(vec![preferring(1, 14, "zone")], repels));
        }
        16 => own.topology_spread_constraints = vec![spread(1, 16, "zone"), spread(2, 16, HOSTNAME)],
        // Equal pods change nothing for each other.
        17 => own.topology_spread_constraints = vec![spread(1, 14, "zone")],
        _ => {
            own.affinity = Some(affinity(
                vec![preferring(10, 14, "zone")],
                vec![preferring(5, 0, "zone")],
            ));
            own.topology_spread_constraints = vec![spread(3, 0, HOSTNAME), spread(1, 16, "zone")];
        }
    }
}

/// Preferences for zones.
fn preferred_zones() -> pb::Affinity {
    let preferred = ["0", "1", "2"].into_iter().zip([1, 30, 10]);
    let preferred = preferred.map(|(zone, weight)| pb::PreferredNodeTerm {
        weight,
        preference: Some(pb::NodeSelectorTerm {
            match_expressions: vec![pb::SelectorRequirement {
                key: "zone".to_owned(),
                operator: "In".to_owned(),
                values: vec![zone.to_owned()],
            }],
            ..pb::NodeSelectorTerm::default()
        }),
    });
    pb::Affinity {
        node_affinity: Some(pb::NodeAffinity {
            preferred: preferred.collect(),
            ..pb::NodeAffinity::default()
        }),
        ..pb::Affinity::default()
    }
}

/// Labels of pods of a kind.
pub(super) fn labels(kind: u8) -> BTreeMap<String, String> {
    BTreeMap::from([("app".to_owned(), kind.to_string())])
}
