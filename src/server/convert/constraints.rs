//! Constraints of pods, and properties of nodes that they ask about: from the wire and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::reader::WireReader;
use crate::server::pb;
use pumice_engine::model::constraints::{
    HostPort, LabelSelector, NodeImage, NodeProperties, NodeSelectorTerm, PodAffinityTerm, PodConstraints, PodTerms,
    PreferredTerm, SelectorRequirement, SpreadConstraint, SpreadPolicy, Taint, TaintEffect, Toleration,
    WeightedPodTerm,
};
use pumice_engine::model::{ProblemKind, TextMap};

fn shared(text: String) -> Arc<str> {
    if text.is_empty() { Arc::default() } else { text.into() }
}

fn all_shared(texts: Vec<String>) -> Vec<Arc<str>> {
    texts.into_iter().map(Arc::from).collect()
}

fn shared_map(texts: BTreeMap<String, String>) -> TextMap {
    if texts.is_empty() {
        return TextMap::default();
    }
    texts
        .into_iter()
        .map(|(name, text)| (name.into(), text.into()))
        .collect()
}

fn requirement(requirement: pb::SelectorRequirement) -> SelectorRequirement {
    let pb::SelectorRequirement { key, operator, values } = requirement;
    SelectorRequirement {
        key: key.into(),
        operator: operator.into(),
        values: all_shared(values),
    }
}

fn requirements(list: Vec<pb::SelectorRequirement>) -> Vec<SelectorRequirement> {
    list.into_iter().map(requirement).collect()
}

fn node_term(term: pb::NodeSelectorTerm) -> NodeSelectorTerm {
    let pb::NodeSelectorTerm {
        match_expressions,
        match_fields,
    } = term;
    NodeSelectorTerm {
        match_expressions: requirements(match_expressions),
        match_fields: requirements(match_fields),
    }
}

fn label_selector(selector: pb::LabelSelector) -> LabelSelector {
    let pb::LabelSelector {
        match_labels,
        match_expressions,
    } = selector;
    LabelSelector {
        match_labels: shared_map(match_labels),
        match_expressions: requirements(match_expressions),
    }
}

fn pod_term(term: pb::PodAffinityTerm) -> PodAffinityTerm {
    let pb::PodAffinityTerm {
        label_selector: pods,
        namespaces,
        namespace_selector,
        topology_key,
    } = term;
    PodAffinityTerm {
        label_selector: pods.map(label_selector),
        namespaces: all_shared(namespaces),
        namespace_selector: namespace_selector.map(label_selector),
        topology_key: topology_key.into(),
    }
}

fn pod_terms(terms: Option<pb::PodAffinity>) -> PodTerms {
    let pb::PodAffinity { required, preferred } = terms.unwrap_or_default();
    let weighted = |pb::WeightedPodAffinityTerm { weight, term }| WeightedPodTerm {
        weight,
        term: pod_term(term.unwrap_or_default()),
    };
    PodTerms {
        required: required.into_iter().map(pod_term).collect(),
        preferred: preferred.into_iter().map(weighted).collect(),
    }
}

fn toleration(toleration: pb::Toleration) -> Toleration {
    let pb::Toleration {
        key,
        operator,
        value,
        effect,
    } = toleration;
    Toleration {
        key: shared(key),
        operator: shared(operator),
        value: shared(value),
        effect: shared(effect),
    }
}

fn host_port(port: pb::HostPort) -> HostPort {
    let pb::HostPort {
        protocol,
        host_ip,
        port,
    } = port;
    HostPort {
        protocol: shared(protocol),
        host_ip: shared(host_ip),
        port,
    }
}

impl WireReader<'_> {
    /// Reads the properties of a node.
    pub(super) fn node_properties(
        &mut self,
        taints: Vec<pb::Taint>,
        images: Vec<pb::NodeImage>,
    ) -> Option<Arc<NodeProperties>> {
        let names = images.iter().map(|image| image.names.len().max(1)).sum::<usize>();
        if !self.check_count("taints", taints.len()) || !self.check_count("images", names) {
            return None;
        }
        let mut read = Vec::with_capacity(taints.len());
        for (number, pb::Taint { key, value, effect }) in taints.into_iter().enumerate() {
            let known = TaintEffect::from_name(&effect);
            if known.is_none() {
                let message = format!("effect `{effect}` is none that Kubernetes knows: the taint has no effect");
                self.warning("TAINT_IGNORED", format!("taints[{number}].effect"), message);
            }
            read.push(Taint {
                key: key.into(),
                value: shared(value),
                effect: known.unwrap_or_default(),
            });
        }
        let image = |pb::NodeImage { names, size_bytes }| NodeImage {
            names: all_shared(names),
            size_bytes,
        };
        let properties = NodeProperties {
            taints: read,
            images: images.into_iter().map(image).collect(),
        };
        (!properties.is_empty()).then(|| Arc::new(properties))
    }

    /// Reads the constraints of a pod.
    pub(super) fn pod_constraints(
        &mut self,
        constraints: Option<Box<pb::PodConstraints>>,
    ) -> Option<Arc<PodConstraints>> {
        let constraints = *constraints?;
        if !self.check_counts(&constraints) {
            return None;
        }
        let pb::PodConstraints {
            node_selector,
            affinity,
            tolerations,
            host_ports,
            topology_spread_constraints,
            images,
            image_volumes,
        } = constraints;
        let pb::Affinity {
            node_affinity,
            pod_affinity,
            pod_anti_affinity,
        } = affinity.unwrap_or_default();
        let pb::NodeAffinity { required, preferred } = node_affinity.unwrap_or_default();
        let preferred_term = |pb::PreferredNodeTerm { weight, preference }| PreferredTerm {
            weight,
            term: node_term(preference.unwrap_or_default()),
        };
        let spread = topology_spread_constraints.into_iter().enumerate();
        let read = PodConstraints {
            node_selector: shared_map(node_selector),
            required_node_terms: required.map(|selector| selector.terms.into_iter().map(node_term).collect()),
            preferred_node_terms: preferred.into_iter().map(preferred_term).collect(),
            tolerations: tolerations.into_iter().map(toleration).collect(),
            host_ports: host_ports.into_iter().map(host_port).collect(),
            pod_affinity: pod_terms(pod_affinity),
            pod_anti_affinity: pod_terms(pod_anti_affinity),
            spread_constraints: spread.map(|(at, own)| self.spread_constraint(at, own)).collect(),
            images: all_shared(images),
            image_volumes: all_shared(image_volumes),
        };
        (!read.is_empty()).then(|| Arc::new(read))
    }

    fn spread_constraint(&mut self, number: usize, constraint: pb::TopologySpreadConstraint) -> SpreadConstraint {
        let pb::TopologySpreadConstraint {
            max_skew,
            topology_key,
            when_unsatisfiable,
            label_selector: pods,
            min_domains,
            node_affinity_policy,
            node_taints_policy,
            match_label_keys,
        } = constraint;
        let field = |name: &str| format!("topology_spread_constraints[{number}].{name}");
        let mut choose = |name: &str, text: &str, choices: &[(&str, bool)]| {
            let found = choices.iter().find(|(choice, _)| *choice == text);
            if found.is_none() {
                let choices: Vec<String> = choices.iter().map(|(choice, _)| format!("`{choice}`")).collect();
                let message = format!("`{text}` is none of {}", choices.join(", "));
                self.problem(ProblemKind::Invalid, "INVALID_CONSTRAINT", field(name), message);
            }
            found.is_some_and(|(_, chosen)| *chosen)
        };
        let is_hard = choose(
            "when_unsatisfiable",
            &when_unsatisfiable,
            &[("DoNotSchedule", true), ("ScheduleAnyway", false)],
        );
        let policy = |honored: bool| {
            if honored {
                SpreadPolicy::Honor
            } else {
                SpreadPolicy::Ignore
            }
        };
        let honor_affinity = choose(
            "node_affinity_policy",
            &node_affinity_policy,
            &[("Honor", true), ("Ignore", false), ("", true)],
        );
        let honor_taints = choose(
            "node_taints_policy",
            &node_taints_policy,
            &[("Honor", true), ("Ignore", false), ("", false)],
        );
        SpreadConstraint {
            max_skew,
            topology_key: topology_key.into(),
            is_hard,
            label_selector: pods.map(label_selector),
            min_domains,
            node_affinity_policy: policy(honor_affinity),
            node_taints_policy: policy(honor_taints),
            match_label_keys: all_shared(match_label_keys),
        }
    }

    /// True if the constraints have no more parts than one record may have.
    fn check_counts(&mut self, constraints: &pb::PodConstraints) -> bool {
        let pb::PodConstraints {
            node_selector,
            affinity,
            tolerations,
            host_ports,
            topology_spread_constraints,
            images,
            image_volumes,
        } = constraints;
        let counts = [
            ("node_selector", node_selector.len()),
            ("affinity", affinity.as_ref().map_or(0, affinity_parts)),
            ("tolerations", tolerations.len()),
            ("host_ports", host_ports.len()),
            (
                "topology_spread_constraints",
                topology_spread_constraints.iter().map(spread_parts).sum(),
            ),
            ("images", images.len()),
            ("image_volumes", image_volumes.len()),
        ];
        counts.into_iter().all(|(field, count)| self.check_count(field, count))
    }

    fn check_count(&mut self, field: &'static str, count: usize) -> bool {
        let limit = self.options.limits.texts;
        if count > limit {
            let message = format!("{count} entries; limit `labels` is {limit}");
            self.problem(
                ProblemKind::Exhausted,
                "TOO_MANY_CONSTRAINTS",
                field.to_owned(),
                message,
            );
        }
        count <= limit
    }
}

/// Number of texts in a list of requirements.
fn requirement_parts(list: &[pb::SelectorRequirement]) -> usize {
    list.iter().map(|own| 1 + own.values.len()).sum()
}

fn node_term_parts(term: &pb::NodeSelectorTerm) -> usize {
    1 + requirement_parts(&term.match_expressions) + requirement_parts(&term.match_fields)
}

fn selector_parts(selector: Option<&pb::LabelSelector>) -> usize {
    selector.map_or(0, |own| {
        own.match_labels.len() + requirement_parts(&own.match_expressions)
    })
}

fn pod_term_parts(term: &pb::PodAffinityTerm) -> usize {
    let selectors = [&term.label_selector, &term.namespace_selector];
    let selectors: usize = selectors.into_iter().map(|own| selector_parts(own.as_ref())).sum();
    1 + selectors + term.namespaces.len()
}

fn spread_parts(constraint: &pb::TopologySpreadConstraint) -> usize {
    1 + selector_parts(constraint.label_selector.as_ref()) + constraint.match_label_keys.len()
}

fn affinity_parts(affinity: &pb::Affinity) -> usize {
    let pb::Affinity {
        node_affinity,
        pod_affinity,
        pod_anti_affinity,
    } = affinity;
    let nodes = node_affinity.as_ref().map_or(0, |own| {
        let required = own.required.iter().flat_map(|selector| &selector.terms);
        let preferred = own
            .preferred
            .iter()
            .map(|own| own.preference.as_ref().map_or(1, node_term_parts));
        required.map(node_term_parts).sum::<usize>() + preferred.sum::<usize>()
    });
    let pods = [pod_affinity, pod_anti_affinity].into_iter().flatten().map(|own| {
        let preferred = own
            .preferred
            .iter()
            .map(|own| own.term.as_ref().map_or(1, pod_term_parts));
        own.required.iter().map(pod_term_parts).sum::<usize>() + preferred.sum::<usize>()
    });
    nodes + pods.sum::<usize>()
}

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
    }
}
