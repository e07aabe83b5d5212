//! Constraints of pods, and properties of nodes that they use, both ways.

use std::sync::Arc;

use super::reader::WireReader;
use super::wire::Wire;
use crate::server::pb;
use pumice_engine::devices::{MAX_DEVICES, WHOLE_DEVICE};
use pumice_engine::model::ErrorCode;
use pumice_engine::model::constraints::{
    DeviceRequest, LabelSelector, NodeDevices, NodeProperties, PodConstraints, PodTerms, SpreadConstraint,
    SpreadPolicy, Taint, TaintEffect,
};

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
                self.warning(ErrorCode::TaintIgnored, format!("taints[{number}].effect"), message);
            }
            read.push(Taint {
                key: Wire::read(key),
                value: Wire::read(value),
                effect: known.unwrap_or_default(),
            });
        }
        let properties = NodeProperties {
            taints: read,
            images: Wire::read(images),
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
        let spread = topology_spread_constraints.into_iter().enumerate();
        let read = PodConstraints {
            node_selector: Wire::read(node_selector),
            required_node_terms: Wire::read(required.map(|selector| selector.terms)),
            preferred_node_terms: Wire::read(preferred),
            tolerations: Wire::read(tolerations),
            host_ports: Wire::read(host_ports),
            pod_affinity: Wire::read(pod_affinity.unwrap_or_default()),
            pod_anti_affinity: Wire::read(pod_anti_affinity.unwrap_or_default()),
            spread_constraints: spread.map(|(at, own)| self.spread_constraint(at, own)).collect(),
            images: Wire::read(images),
            image_volumes: Wire::read(image_volumes),
            // An empty selector belongs to no owner.
            owner_selector: Option::read(owner_selector).filter(|own: &LabelSelector| !own.is_empty()),
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
                ErrorCode::NodeTermInvalid,
                format!("constraints.affinity.node_affinity.required[{number}]"),
                message.to_owned(),
            );
        }
    }

    /// Reads the devices of a node.
    fn node_devices(&mut self, devices: pb::NodeDevices) -> Option<NodeDevices> {
        let devices = NodeDevices::read(devices);
        if devices.count as usize > MAX_DEVICES {
            let message = format!("{} devices: a node has at most {MAX_DEVICES}", devices.count);
            self.problem(ErrorCode::DevicesInvalid, "devices.count".to_owned(), message);
            return None;
        }
        (devices.count > 0).then_some(devices)
    }

    /// Reads the devices that a task asks for.
    fn device_request(&mut self, request: pb::DeviceRequest) -> Option<DeviceRequest> {
        let pb::DeviceRequest {
            count,
            milli,
            memory_mib,
            models: _,
            ref assigned,
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
            self.problem(ErrorCode::DevicesInvalid, field, message);
            return None;
        }
        let whole = milli == 0 && memory_mib == 0;
        Some(DeviceRequest {
            milli: if whole { WHOLE_DEVICE.cast_unsigned() } else { milli },
            ..DeviceRequest::read(request)
        })
    }

    fn spread_constraint(&mut self, number: usize, constraint: pb::TopologySpreadConstraint) -> SpreadConstraint {
        let pb::TopologySpreadConstraint {
            max_skew,
            topology_key,
            when_unsatisfiable,
            label_selector,
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
                self.problem(ErrorCode::ConstraintInvalid, field(name), message);
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
            topology_key: Wire::read(topology_key),
            is_hard,
            label_selector: Wire::read(label_selector),
            min_domains,
            node_affinity_policy: policy(honor_affinity),
            node_taints_policy: policy(honor_taints),
            match_label_keys: Wire::read(match_label_keys),
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

    pub(super) fn check_count(&mut self, field: &'static str, count: usize) -> bool {
        let limit = self.options.limits.labels;
        if count > limit {
            let message = format!("{count} entries; limit `labels` is {limit}");
            self.problem(ErrorCode::LimitExceeded, field.to_owned(), message);
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

pub(super) fn selector_parts(selector: Option<&pb::LabelSelector>) -> usize {
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

/// Taints as the wire has them.
pub(super) fn taint_messages(properties: &NodeProperties) -> Vec<pb::Taint> {
    let taint = |Taint { key, value, effect }: &Taint| pb::Taint {
        key: key.write(),
        value: value.write(),
        effect: effect.name().to_owned(),
    };
    properties.taints.iter().map(taint).collect()
}

fn pod_terms_message(terms: &PodTerms) -> Option<pb::PodAffinity> {
    (!terms.is_empty()).then(|| terms.write())
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
        topology_key: topology_key.write(),
        when_unsatisfiable: unsatisfiable.to_owned(),
        label_selector: label_selector.write(),
        min_domains: *min_domains,
        node_affinity_policy: policy(*node_affinity_policy),
        node_taints_policy: policy(*node_taints_policy),
        match_label_keys: match_label_keys.write(),
    }
}

fn affinity_message(constraints: &PodConstraints) -> Option<pb::Affinity> {
    let required = constraints.required_node_terms.write();
    let required = required.map(|terms| pb::NodeSelector { terms });
    let preferred = constraints.preferred_node_terms.write();
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
        node_selector: constraints.node_selector.write(),
        affinity: affinity_message(constraints),
        tolerations: constraints.tolerations.write(),
        host_ports: constraints.host_ports.write(),
        topology_spread_constraints: constraints.spread_constraints.iter().map(spread_message).collect(),
        images: constraints.images.write(),
        image_volumes: constraints.image_volumes.write(),
        owner_selector: constraints.owner_selector.write(),
        devices: constraints.devices.write(),
    }
}
