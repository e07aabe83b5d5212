//! Constraints of pods, and properties of nodes that they use, for listings.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::server::pb;
use pumice_engine::devices::device_indices;
use pumice_engine::model::TextMap;
use pumice_engine::model::constraints::{
    DeviceRequest, HostPort, LabelSelector, NodeDevices, NodeImage, NodeProperties, NodeSelectorTerm, PodAffinityTerm,
    PodConstraints, PodTerms, PreferredTerm, SelectorRequirement, SpreadConstraint, SpreadPolicy, Taint, Toleration,
    WeightedPodTerm,
};

fn texts(list: &[Arc<str>]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

fn text_map(texts: &TextMap) -> BTreeMap<String, String> {
    texts
        .iter()
        .map(|(name, text)| (name.to_string(), text.to_string()))
        .collect()
}

/// Taints as the wire has them.
pub(super) fn taint_messages(properties: &NodeProperties) -> Vec<pb::Taint> {
    let taint = |Taint { key, value, effect }: &Taint| pb::Taint {
        key: key.to_string(),
        value: value.to_string(),
        effect: effect.name().to_owned(),
    };
    properties.taints.iter().map(taint).collect()
}

/// Images as the wire has them.
pub(super) fn image_messages(properties: &NodeProperties) -> Vec<pb::NodeImage> {
    let image = |NodeImage { names, size_bytes }: &NodeImage| pb::NodeImage {
        names: texts(names),
        size_bytes: *size_bytes,
    };
    properties.images.iter().map(image).collect()
}

/// Devices of a node as the wire has them.
pub(super) fn device_message(properties: &NodeProperties) -> Option<pb::NodeDevices> {
    let NodeDevices {
        model,
        count,
        memory_mib,
    } = properties.devices.as_ref()?;
    Some(pb::NodeDevices {
        model: model.to_string(),
        count: *count,
        memory_mib: *memory_mib,
    })
}

fn device_request_message(request: &DeviceRequest) -> pb::DeviceRequest {
    let DeviceRequest {
        count,
        milli,
        memory_mib,
        models,
        assigned,
    } = request;
    pb::DeviceRequest {
        count: *count,
        milli: *milli,
        memory_mib: *memory_mib,
        models: texts(models),
        assigned: device_indices(*assigned).collect(),
    }
}

fn requirement_messages(list: &[SelectorRequirement]) -> Vec<pb::SelectorRequirement> {
    let message = |SelectorRequirement { key, operator, values }: &SelectorRequirement| pb::SelectorRequirement {
        key: key.to_string(),
        operator: operator.to_string(),
        values: texts(values),
    };
    list.iter().map(message).collect()
}

fn node_term_message(term: &NodeSelectorTerm) -> pb::NodeSelectorTerm {
    let NodeSelectorTerm {
        match_expressions,
        match_fields,
    } = term;
    pb::NodeSelectorTerm {
        match_expressions: requirement_messages(match_expressions),
        match_fields: requirement_messages(match_fields),
    }
}

fn selector_message(selector: &LabelSelector) -> pb::LabelSelector {
    let LabelSelector {
        match_labels,
        match_expressions,
    } = selector;
    pb::LabelSelector {
        match_labels: text_map(match_labels),
        match_expressions: requirement_messages(match_expressions),
    }
}

fn pod_term_message(term: &PodAffinityTerm) -> pb::PodAffinityTerm {
    let PodAffinityTerm {
        label_selector,
        namespaces,
        namespace_selector,
        topology_key,
    } = term;
    pb::PodAffinityTerm {
        label_selector: label_selector.as_ref().map(selector_message),
        namespaces: texts(namespaces),
        namespace_selector: namespace_selector.as_ref().map(selector_message),
        topology_key: topology_key.to_string(),
    }
}

fn pod_terms_message(terms: &PodTerms) -> Option<pb::PodAffinity> {
    let PodTerms { required, preferred } = terms;
    let weighted = |own: &WeightedPodTerm| pb::WeightedPodAffinityTerm {
        weight: own.weight,
        term: Some(pod_term_message(&own.term)),
    };
    (!terms.is_empty()).then(|| pb::PodAffinity {
        required: required.iter().map(pod_term_message).collect(),
        preferred: preferred.iter().map(weighted).collect(),
    })
}

fn toleration_message(toleration: &Toleration) -> pb::Toleration {
    let Toleration {
        key,
        operator,
        value,
        effect,
    } = toleration;
    pb::Toleration {
        key: key.to_string(),
        operator: operator.to_string(),
        value: value.to_string(),
        effect: effect.to_string(),
    }
}

fn port_message(port: &HostPort) -> pb::HostPort {
    let HostPort {
        protocol,
        host_ip,
        port,
    } = port;
    pb::HostPort {
        protocol: protocol.to_string(),
        host_ip: host_ip.to_string(),
        port: *port,
    }
}

fn spread_message(constraint: &SpreadConstraint) -> pb::TopologySpreadConstraint {
    let SpreadConstraint {
        max_skew,
        topology_key,
        is_hard,
        label_selector,
        min_domains,
        node_affinity_policy,
        node_taints_policy,
        match_label_keys,
    } = constraint;
    let policy = |policy: SpreadPolicy| match policy {
        SpreadPolicy::Honor => "Honor".to_owned(),
        SpreadPolicy::Ignore => "Ignore".to_owned(),
    };
    let unsatisfiable = if *is_hard { "DoNotSchedule" } else { "ScheduleAnyway" };
    pb::TopologySpreadConstraint {
        max_skew: *max_skew,
        topology_key: topology_key.to_string(),
        when_unsatisfiable: unsatisfiable.to_owned(),
        label_selector: label_selector.as_ref().map(selector_message),
        min_domains: *min_domains,
        node_affinity_policy: policy(*node_affinity_policy),
        node_taints_policy: policy(*node_taints_policy),
        match_label_keys: texts(match_label_keys),
    }
}

fn affinity_message(constraints: &PodConstraints) -> Option<pb::Affinity> {
    let required = constraints.required_node_terms.as_ref().map(|terms| pb::NodeSelector {
        terms: terms.iter().map(node_term_message).collect(),
    });
    let weighted = |own: &PreferredTerm| pb::PreferredNodeTerm {
        weight: own.weight,
        preference: Some(node_term_message(&own.term)),
    };
    let preferred: Vec<_> = constraints.preferred_node_terms.iter().map(weighted).collect();
    let has_node_affinity = required.is_some() || !preferred.is_empty();
    let affinity = pb::Affinity {
        node_affinity: has_node_affinity.then_some(pb::NodeAffinity { required, preferred }),
        pod_affinity: pod_terms_message(&constraints.pod_affinity),
        pod_anti_affinity: pod_terms_message(&constraints.pod_anti_affinity),
    };
    (affinity != pb::Affinity::default()).then_some(affinity)
}

/// Constraints as the wire has them.
pub(super) fn constraint_messages(constraints: &PodConstraints) -> pb::PodConstraints {
    pb::PodConstraints {
        node_selector: text_map(&constraints.node_selector),
        affinity: affinity_message(constraints),
        tolerations: constraints.tolerations.iter().map(toleration_message).collect(),
        host_ports: constraints.host_ports.iter().map(port_message).collect(),
        topology_spread_constraints: constraints.spread_constraints.iter().map(spread_message).collect(),
        images: texts(&constraints.images),
        image_volumes: texts(&constraints.image_volumes),
        owner_selector: constraints.owner_selector.as_ref().map(selector_message),
        devices: constraints.devices.as_ref().map(device_request_message),
    }
}
