//! Constraints of the wire for the engine itself: selectors, required terms, tolerations and ports.

use std::sync::Arc;

use pumice::server::pb;
use pumice_engine::model::constraints::{
    HostPort, NodeProperties, NodeSelectorTerm, PodConstraints, SelectorRequirement, Taint, TaintEffect, Toleration,
};

/// Constraints of a task.
pub(crate) fn constraints(task: &pb::Task) -> Option<Arc<PodConstraints>> {
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
        ..PodConstraints::default()
    }))
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
pub(crate) fn properties(node: &pb::Node) -> Option<Arc<NodeProperties>> {
    let taint = |own: &pb::Taint| Taint {
        key: own.key.as_str().into(),
        value: own.value.as_str().into(),
        effect: TaintEffect::from_name(&own.effect).unwrap_or_default(),
    };
    let properties = NodeProperties {
        taints: node.taints.iter().map(taint).collect(),
        images: Vec::new(),
    };
    (!properties.is_empty()).then(|| Arc::new(properties))
}
