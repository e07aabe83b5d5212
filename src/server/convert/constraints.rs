//! Constraints of pods, and properties of nodes that they use, from the wire.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::reader::WireReader;
use crate::server::pb;
use pumice_engine::devices::{DeviceMask, MAX_DEVICES, WHOLE_DEVICE};
use pumice_engine::model::constraints::{
    DeviceRequest, HostPort, LabelSelector, NodeDevices, NodeImage, NodeProperties, NodeSelectorTerm, PodAffinityTerm,
    PodConstraints, PodTerms, PreferredTerm, SelectorRequirement, SpreadConstraint, SpreadPolicy, Taint, TaintEffect,
    Toleration, WeightedPodTerm,
};
use pumice_engine::model::{ProblemKind, TextMap};

/// Set of devices with these numbers; numbers that no node has are left out.
pub(super) fn device_mask(numbers: &[u32]) -> DeviceMask {
    let known = numbers.iter().filter(|number| (**number as usize) < MAX_DEVICES);
    known.fold(0, |mask, number| mask | 1 << number)
}

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
        devices: Option<pb::NodeDevices>,
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
            devices: devices.and_then(|devices| self.node_devices(devices)),
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
            owner_selector,
            devices,
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
            // An empty selector belongs to no owner.
            owner_selector: owner_selector.map(label_selector).filter(|own| !own.is_empty()),
            devices: devices.and_then(|devices| self.device_request(devices)),
        };
        self.warn_of_invalid_terms(&read);
        (!read.is_empty()).then(|| Arc::new(read))
    }

    /// Warns of required terms that match no node because they are invalid, which Kubernetes passes over in silence.
    fn warn_of_invalid_terms(&mut self, read: &PodConstraints) {
        let terms = read.required_node_terms.iter().flatten().enumerate();
        for (number, _) in terms.filter(|(_, term)| !term.is_valid()) {
            let message = "the term is invalid, so that no node matches it: correct its operators, keys and values (`Gt` and \
                           `Lt` take no sign)";
            self.warning(
                "NODE_TERM_INVALID",
                format!("constraints.affinity.node_affinity.required[{number}]"),
                message.to_owned(),
            );
        }
    }

    /// Reads the devices of a node.
    fn node_devices(&mut self, devices: pb::NodeDevices) -> Option<NodeDevices> {
        let pb::NodeDevices {
            model,
            count,
            memory_mib,
        } = devices;
        if count as usize > MAX_DEVICES {
            let message = format!("{count} devices: a node has at most {MAX_DEVICES}");
            self.problem(
                ProblemKind::Invalid,
                "INVALID_DEVICES",
                "devices.count".to_owned(),
                message,
            );
            return None;
        }
        (count > 0).then(|| NodeDevices {
            model: shared(model),
            count,
            memory_mib,
        })
    }

    /// Reads the devices that a task asks for.
    fn device_request(&mut self, request: pb::DeviceRequest) -> Option<DeviceRequest> {
        let pb::DeviceRequest {
            count,
            milli,
            memory_mib,
            models,
            assigned,
        } = request;
        let misfit = if count == 0 || count as usize > MAX_DEVICES {
            Some((
                "count",
                format!("{count} devices: write 1 to {MAX_DEVICES}, or leave the request out"),
            ))
        } else if milli > WHOLE_DEVICE.cast_unsigned() {
            Some((
                "milli",
                format!("{milli} thousandths of one device: write at most {WHOLE_DEVICE}, and more devices"),
            ))
        } else if !assigned.is_empty() && assigned.len() != count as usize {
            Some((
                "assigned",
                format!("{} devices are assigned, and the task asks for {count}", assigned.len()),
            ))
        } else if assigned.iter().any(|device| *device as usize >= MAX_DEVICES) {
            Some(("assigned", format!("devices have numbers below {MAX_DEVICES}")))
        } else {
            None
        };
        if let Some((field, message)) = misfit {
            let field = format!("constraints.devices.{field}");
            self.problem(ProblemKind::Invalid, "INVALID_DEVICES", field, message);
            return None;
        }
        let whole = milli == 0 && memory_mib == 0;
        Some(DeviceRequest {
            count,
            milli: if whole { WHOLE_DEVICE.cast_unsigned() } else { milli },
            memory_mib,
            models: all_shared(models),
            assigned: device_mask(&assigned),
        })
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
            owner_selector,
            devices,
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
            ("owner_selector", selector_parts(owner_selector.as_ref())),
            (
                "devices",
                devices.as_ref().map_or(0, |own| own.models.len() + own.assigned.len()),
            ),
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
