//! Constraints of the wire for the engine itself: selectors, required terms, tolerations and ports.

use std::sync::Arc;

use pumice::server::pb;
use pumice_engine::model::constraints::{
    HostPort, LabelSelector, NodeImage, NodeProperties, NodeSelectorTerm, PodAffinityTerm, PodConstraints, PodTerms,
    PreferredTerm, SelectorRequirement, SpreadConstraint, SpreadPolicy, Taint, TaintEffect, Toleration,
};
use pumice_engine::model::{NodeGroupLists, QueueAffinity};

/// Constraints of a task.
pub fn constraints(task: &pb::Task) -> Option<Arc<PodConstraints>> {
    let sent = task.constraints.as_ref()?;
    let toleration = |own: &pb::Toleration| Toleration {
        key: own.key.as_str().into(),
        operator: own.operator.as_str().into(),
        value: own.value.as_str().into(),
        effect: own.effect.as_str().into(),
    };
    let port = |own: &pb::HostPort| HostPort {
        protocol: own.protocol.as_str().into(),
        host_ip: own.host_ip.as_str().into(),
        port: own.port,
    };
    let affinity = sent.affinity.as_ref().and_then(|own| own.node_affinity.as_ref());
    let required = affinity.and_then(|own| own.required.as_ref());
    Some(Arc::new(PodConstraints {
        node_selector: sent
            .node_selector
            .iter()
            .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
            .collect(),
        required_node_terms: required.map(|selector| selector.terms.iter().map(term).collect()),
        tolerations: sent.tolerations.iter().map(toleration).collect(),
        host_ports: sent.host_ports.iter().map(port).collect(),
        pod_affinity: pod_terms(sent.affinity.as_ref().and_then(|own| own.pod_affinity.as_ref())),
        pod_anti_affinity: pod_terms(sent.affinity.as_ref().and_then(|own| own.pod_anti_affinity.as_ref())),
        spread_constraints: sent.topology_spread_constraints.iter().map(spread).collect(),
        preferred_node_terms: affinity.map_or_else(Vec::new, |own| own.preferred.iter().map(preferred).collect()),
        images: sent.images.iter().map(|image| image.as_str().into()).collect(),
        image_volumes: sent.image_volumes.iter().map(|image| image.as_str().into()).collect(),
        ..PodConstraints::default()
    }))
}

fn label_selector(selector: &pb::LabelSelector) -> LabelSelector {
    let pairs = selector.match_labels.iter();
    LabelSelector {
        match_labels: pairs
            .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
            .collect(),
        match_expressions: Vec::new(),
    }
}

/// Required terms about other pods, with labels only.
fn pod_terms(terms: Option<&pb::PodAffinity>) -> PodTerms {
    let term = |own: &pb::PodAffinityTerm| PodAffinityTerm {
        label_selector: own.label_selector.as_ref().map(label_selector),
        namespaces: own.namespaces.iter().map(|name| name.as_str().into()).collect(),
        namespace_selector: own.namespace_selector.as_ref().map(label_selector),
        topology_key: own.topology_key.as_str().into(),
    };
    PodTerms {
        required: terms.into_iter().flat_map(|own| &own.required).map(term).collect(),
        preferred: Vec::new(),
    }
}

fn spread(own: &pb::TopologySpreadConstraint) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: own.max_skew,
        topology_key: own.topology_key.as_str().into(),
        is_hard: own.when_unsatisfiable == "DoNotSchedule",
        label_selector: own.label_selector.as_ref().map(label_selector),
        min_domains: own.min_domains,
        node_affinity_policy: SpreadPolicy::Honor,
        node_taints_policy: SpreadPolicy::Ignore,
        match_label_keys: own.match_label_keys.iter().map(|key| key.as_str().into()).collect(),
    }
}

fn preferred(own: &pb::PreferredNodeTerm) -> PreferredTerm {
    PreferredTerm {
        weight: own.weight,
        term: own.preference.as_ref().map(term).unwrap_or_default(),
    }
}

fn term(term: &pb::NodeSelectorTerm) -> NodeSelectorTerm {
    let requirement = |own: &pb::SelectorRequirement| SelectorRequirement {
        key: own.key.as_str().into(),
        operator: own.operator.as_str().into(),
        values: own.values.iter().map(|value| value.as_str().into()).collect(),
    };
    NodeSelectorTerm {
        match_expressions: term.match_expressions.iter().map(requirement).collect(),
        match_fields: term.match_fields.iter().map(requirement).collect(),
    }
}

/// Taints of a node.
pub fn properties(node: &pb::Node) -> Option<Arc<NodeProperties>> {
    let taint = |own: &pb::Taint| Taint {
        key: own.key.as_str().into(),
        value: own.value.as_str().into(),
        effect: TaintEffect::from_name(&own.effect).unwrap_or_default(),
    };
    let image = |own: &pb::NodeImage| NodeImage {
        names: own.names.iter().map(|name| name.as_str().into()).collect(),
        size_bytes: own.size_bytes,
    };
    let properties = NodeProperties {
        taints: node.taints.iter().map(taint).collect(),
        images: node.images.iter().map(image).collect(),
        ..NodeProperties::default()
    };
    (!properties.is_empty()).then(|| Arc::new(properties))
}

/// Affinity of a queue.
pub fn queue_affinity(affinity: &pb::QueueAffinity) -> QueueAffinity {
    let shared = |names: &[String]| names.iter().map(|name| name.as_str().into()).collect();
    let lists = |lists: &Option<pb::NodeGroupLists>| {
        let lists = lists.clone().unwrap_or_default();
        NodeGroupLists {
            required: shared(&lists.required),
            preferred: shared(&lists.preferred),
        }
    };
    QueueAffinity {
        affinity: lists(&affinity.node_group_affinity),
        anti_affinity: lists(&affinity.node_group_anti_affinity),
    }
}
