//! Constraints of pods on nodes and on other pods, and the properties of nodes that they use.

mod node_selector;
mod pod_selector;
mod taint;
mod validity;

use std::sync::Arc;

pub use super::devices::{DeviceRequest, NodeDevices};
use super::pod_identity::PodIdentity;
use super::text_map::TextMap;
use crate::held_bytes::{HeldMemory, held_bytes};
pub use node_selector::{NodeLabels, NodeSelectorTerm, PreferredTerm, SelectorRequirement};
pub use pod_selector::{LabelSelector, PodAffinityTerm, PodTerms, SpreadConstraint, SpreadPolicy, WeightedPodTerm};
pub use taint::{Taint, TaintEffect, Toleration};
pub use validity::is_qualified_name;
pub(in crate::model) use validity::{is_name, is_subdomain};

/// Properties of a node that constraints use in addition to its labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeProperties {
    /// spec.taints.
    pub taints: Vec<Taint>,
    /// status.images.
    pub images: Vec<NodeImage>,
    /// Devices that tasks may share; `None`: none are reported.
    pub devices: Option<NodeDevices>,
}

impl NodeProperties {
    /// True if there is nothing to store.
    pub fn is_empty(&self) -> bool {
        self.taints.is_empty() && self.images.is_empty() && self.devices.is_none()
    }
}

/// Image that a node has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeImage {
    /// All names of the image.
    pub names: Vec<Arc<str>>,
    /// Size of the image in bytes, such as 104857600 for 100 MiB.
    pub size_bytes: i64,
}

/// Constraints of a pod on nodes and on other pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodConstraints {
    /// spec.nodeSelector: labels that a node must have.
    pub node_selector: TextMap,
    /// Required terms of the node affinity. At least one term must match. `None`: every node matches.
    pub required_node_terms: Option<Vec<NodeSelectorTerm>>,
    /// Preferred terms of the node affinity.
    pub preferred_node_terms: Vec<PreferredTerm>,
    /// spec.tolerations.
    pub tolerations: Vec<Toleration>,
    /// Ports that the pod takes on its node.
    pub host_ports: Vec<HostPort>,
    /// Terms that attract the pod to other pods.
    pub pod_affinity: PodTerms,
    /// Terms that keep the pod away from other pods.
    pub pod_anti_affinity: PodTerms,
    /// spec.topologySpreadConstraints.
    pub spread_constraints: Vec<SpreadConstraint>,
    /// Images of containers and init containers; a name may repeat.
    pub images: Vec<Arc<str>>,
    /// References of image volumes.
    pub image_volumes: Vec<Arc<str>>,
    /// Selector of the pods of the same workload, for default spread constraints. `None`: the pod has neither a Service
    /// nor a workload. Never empty.
    pub owner_selector: Option<LabelSelector>,
    /// Devices or shares of a device that the pod requests. `None`: none.
    pub devices: Option<DeviceRequest>,
}

/// Kinds of constraints between pods and nodes, in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConstraintKind {
    /// Ports on the node.
    HostPorts,
    /// Required terms of the node affinity.
    NodeAffinity,
    /// Preferred terms of the node affinity.
    PreferredNodeAffinity,
    /// `spec.nodeSelector`.
    NodeSelector,
    /// Required terms of the pod affinity.
    PodAffinity,
    /// Preferred terms of the pod affinity.
    PreferredPodAffinity,
    /// Required terms of the pod anti-affinity.
    PodAntiAffinity,
    /// Preferred terms of the pod anti-affinity.
    PreferredPodAntiAffinity,
    /// Taints of nodes that keep pods away.
    Taints,
    /// Topology spread constraints that reject nodes.
    TopologySpread,
    /// Topology spread constraints that change scores.
    PreferredTopologySpread,
    /// Mark of a cordoned node, which some pods tolerate.
    Unschedulable,
    /// Taints of nodes that change scores.
    PreferredTaints,
    /// Images of containers, which change scores. No pod lacks them, so no result names them.
    Images,
    /// Devices, or shares of one.
    Devices,
}

impl ConstraintKind {
    /// Name of the field. Required and preferred terms share it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::HostPorts => "hostPorts",
            Self::NodeAffinity | Self::PreferredNodeAffinity => "nodeAffinity",
            Self::NodeSelector => "nodeSelector",
            Self::PodAffinity | Self::PreferredPodAffinity => "podAffinity",
            Self::PodAntiAffinity | Self::PreferredPodAntiAffinity => "podAntiAffinity",
            Self::Taints | Self::PreferredTaints => "taints",
            Self::Images => "images",
            Self::TopologySpread | Self::PreferredTopologySpread => "topologySpreadConstraints",
            Self::Unschedulable => "unschedulable",
        }
    }
}

/// Set of kinds of constraints, such as the constraints that a policy evaluates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConstraintSet(u16);

impl ConstraintSet {
    /// Set without a kind.
    pub const NONE: Self = Self(0);

    /// This set with one kind more.
    #[must_use]
    pub const fn with(self, kind: ConstraintKind) -> Self {
        Self(self.0 | 1 << kind as u16)
    }

    /// This set without a kind.
    #[must_use]
    pub const fn without(self, kind: ConstraintKind) -> Self {
        Self(self.0 & !(1 << kind as u16))
    }

    /// All kinds of this set and of another one.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if the set has no kind.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if some kind is about other pods.
    pub const fn selects_pods(self) -> bool {
        let about_pods = Self::NONE
            .with(ConstraintKind::PodAffinity)
            .with(ConstraintKind::PreferredPodAffinity)
            .with(ConstraintKind::PodAntiAffinity)
            .with(ConstraintKind::PreferredPodAntiAffinity)
            .with(ConstraintKind::TopologySpread)
            .with(ConstraintKind::PreferredTopologySpread);
        self.0 & about_pods.0 != 0
    }

    /// True if the set has this kind.
    pub const fn contains(self, kind: ConstraintKind) -> bool {
        self.0 >> kind as u16 & 1 == 1
    }
}

impl PodConstraints {
    /// True if no node can match: every required term names nodes, and none in common.
    pub fn has_conflicting_terms(&self) -> bool {
        let terms = self.required_node_terms.as_deref().unwrap_or_default();
        let mut names = terms.iter().map(NodeSelectorTerm::bound_names);
        !terms.is_empty() && names.all(|names| names.is_some_and(|names| names.is_empty()))
    }

    /// True if the pod constrains nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// True if some constraint is about other pods.
    pub fn selects_pods(&self) -> bool {
        !(self.pod_affinity.is_empty() && self.pod_anti_affinity.is_empty() && self.spread_constraints.is_empty())
    }

    /// True if placing a pod with these constraints may change the verdict of constraints of these `kinds` on an equal
    /// pod. For example, anti-affinity to its own labels.
    pub fn selects_itself(&self, pod: &PodIdentity, kinds: ConstraintSet) -> bool {
        let matches = |term: &PodAffinityTerm| term.may_match(&pod.namespace, pod);
        let preferred = |terms: &PodTerms| terms.preferred.iter().any(|preferred| matches(&preferred.term));
        let attracts = &self.pod_affinity;
        let by_default = self.default_spread_selector();
        let spread = |hard| {
            let mut own = self.spread_constraints.iter();
            by_default.is_some_and(|selector| selector.matches(&pod.labels))
                || own.any(|constraint| constraint.is_hard == hard && constraint.selects(&pod.labels, &pod.labels))
        };
        let changed = [
            (
                ConstraintKind::PodAffinity,
                !attracts.required.is_empty() && attracts.required.iter().all(matches),
            ),
            (
                ConstraintKind::PodAntiAffinity,
                self.pod_anti_affinity.required.iter().any(matches),
            ),
            (
                ConstraintKind::PreferredPodAffinity,
                // Some scores give points for required terms, too.
                preferred(attracts) || attracts.required.iter().any(matches),
            ),
            (
                ConstraintKind::PreferredPodAntiAffinity,
                preferred(&self.pod_anti_affinity),
            ),
            (ConstraintKind::TopologySpread, spread(true)),
            (ConstraintKind::PreferredTopologySpread, spread(false)),
        ];
        changed.iter().any(|(kind, changed)| *changed && kinds.contains(*kind))
    }

    /// Selector of the pods for default spread constraints. `None`: they do not apply to the pod.
    pub fn default_spread_selector(&self) -> Option<&LabelSelector> {
        let selector = self.owner_selector.as_ref();
        selector.filter(|_| self.spread_constraints.is_empty())
    }

    /// True if some term of this kind is wanted.
    pub fn has_term(&self, kind: ConstraintKind, is_wanted: impl Fn(&PodAffinityTerm) -> bool) -> bool {
        let required = |terms: &PodTerms| terms.required.iter().any(&is_wanted);
        let preferred = |terms: &PodTerms| terms.preferred.iter().any(|own| is_wanted(&own.term));
        match kind {
            ConstraintKind::PodAffinity => required(&self.pod_affinity),
            ConstraintKind::PreferredPodAffinity => preferred(&self.pod_affinity),
            ConstraintKind::PodAntiAffinity => required(&self.pod_anti_affinity),
            ConstraintKind::PreferredPodAntiAffinity => preferred(&self.pod_anti_affinity),
            ConstraintKind::HostPorts
            | ConstraintKind::Devices
            | ConstraintKind::NodeAffinity
            | ConstraintKind::PreferredNodeAffinity
            | ConstraintKind::NodeSelector
            | ConstraintKind::Images
            | ConstraintKind::Taints
            | ConstraintKind::PreferredTaints
            | ConstraintKind::TopologySpread
            | ConstraintKind::PreferredTopologySpread
            | ConstraintKind::Unschedulable => false,
        }
    }

    /// True if a node that the pod may use now may not do any more once tasks that are being released are gone: their
    /// labels attract the pod, or even out its spread.
    pub fn may_fail_after_release(&self) -> bool {
        let spreads = self.spread_constraints.iter().any(|constraint| constraint.is_hard);
        // A policy may have default constraints that reject nodes.
        spreads || self.default_spread_selector().is_some() || !self.pod_affinity.required.is_empty()
    }

    /// Kinds of constraints that the pod has, in their order. Tolerations and images reject no node, so they are none.
    pub fn kinds(&self) -> impl Iterator<Item = ConstraintKind> {
        let (attracts, repels) = (&self.pod_affinity, &self.pod_anti_affinity);
        let has_spread = |hard: bool| {
            self.spread_constraints
                .iter()
                .any(|constraint| constraint.is_hard == hard)
        };
        let kinds = [
            (ConstraintKind::Devices, self.devices.is_some()),
            (ConstraintKind::HostPorts, !self.host_ports.is_empty()),
            (ConstraintKind::NodeAffinity, self.required_node_terms.is_some()),
            (
                ConstraintKind::PreferredNodeAffinity,
                !self.preferred_node_terms.is_empty(),
            ),
            (ConstraintKind::NodeSelector, !self.node_selector.is_empty()),
            (ConstraintKind::PodAffinity, !attracts.required.is_empty()),
            (ConstraintKind::PreferredPodAffinity, !attracts.preferred.is_empty()),
            (ConstraintKind::PodAntiAffinity, !repels.required.is_empty()),
            (ConstraintKind::PreferredPodAntiAffinity, !repels.preferred.is_empty()),
            (ConstraintKind::TopologySpread, has_spread(true)),
            (ConstraintKind::PreferredTopologySpread, has_spread(false)),
        ];
        kinds.into_iter().filter(|(_, present)| *present).map(|(kind, _)| kind)
    }

    /// Bytes of the constraints beside their own structure: texts with their places in lists.
    pub fn text_bytes(&self) -> usize {
        let mut bytes = 0;
        // The copy shares the texts and takes the lists, which is cheap where constraints are rare.
        self.clone().each_text(&mut |text| bytes += text_weight(text));
        bytes
    }

    /// Every text of the constraints, for an interner or a weight.
    pub fn each_text(&mut self, visit: &mut dyn FnMut(&mut Arc<str>)) {
        let Self {
            node_selector,
            required_node_terms,
            preferred_node_terms,
            tolerations,
            host_ports,
            pod_affinity,
            pod_anti_affinity,
            spread_constraints,
            images,
            image_volumes,
            owner_selector,
            devices,
        } = self;
        each_pair(node_selector, visit);
        let terms = required_node_terms.iter_mut().flatten();
        let preferred = preferred_node_terms.iter_mut().map(|preferred| &mut preferred.term);
        terms.chain(preferred).for_each(|term| term.each_text(visit));
        for toleration in tolerations {
            toleration.each_text(visit);
        }
        for port in host_ports {
            visit(&mut port.protocol);
            visit(&mut port.host_ip);
        }
        pod_affinity.each_text(visit);
        pod_anti_affinity.each_text(visit);
        for constraint in spread_constraints {
            constraint.each_text(visit);
        }
        let models = devices.iter_mut().flat_map(|devices| &mut devices.models);
        images
            .iter_mut()
            .chain(image_volumes)
            .chain(models)
            .for_each(&mut *visit);
        if let Some(selector) = owner_selector {
            selector.each_text(visit);
        }
    }
}

impl HeldMemory for PodConstraints {
    const IS_INTERNED: bool = true;

    fn held_bytes(&self, _: Option<&Self>) -> usize {
        self.text_bytes()
    }
}

impl HeldMemory for NodeProperties {
    const IS_INTERNED: bool = true;

    fn held_bytes(&self, _: Option<&Self>) -> usize {
        self.text_bytes()
    }
}

impl NodeProperties {
    /// Bytes of the properties beside their own structure.
    pub fn text_bytes(&self) -> usize {
        let taints = self.taints.iter().flat_map(|taint| [&taint.key, &taint.value]);
        let names = self.images.iter().flat_map(|image| &image.names);
        let model = self.devices.iter().map(|devices| &devices.model);
        taints.chain(names).chain(model).map(text_weight).sum()
    }

    /// Every text of the properties.
    pub fn each_text(&mut self, visit: &mut dyn FnMut(&mut Arc<str>)) {
        for Taint { key, value, .. } in &mut self.taints {
            visit(key);
            visit(value);
        }
        let names = self.images.iter_mut().flat_map(|image| &mut image.names);
        let model = self.devices.iter_mut().map(|devices| &mut devices.model);
        names.chain(model).for_each(visit);
    }
}

/// Bytes of a text in a list: its pointer, its reference counts and its characters.
fn text_weight(text: &Arc<str>) -> usize {
    size_of::<Arc<str>>() + TEXT_BLOCK_BYTES + text.len()
}

/// Bytes of a separate text besides its characters: two reference counts and the allocator's overhead.
const TEXT_BLOCK_BYTES: usize = 24;

/// Visits the texts of a map, which is copied.
fn each_pair(texts: &mut TextMap, visit: &mut dyn FnMut(&mut Arc<str>)) {
    if texts.is_empty() {
        return;
    }
    let mut own = texts.to_vec();
    for (name, text) in &mut own {
        visit(name);
        visit(text);
    }
    *texts = own.into();
}

/// Port that a pod takes on its node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Protocol; empty: TCP.
    pub protocol: Arc<str>,
    /// Address; empty: 0.0.0.0, all.
    pub host_ip: Arc<str>,
    /// Number of the port.
    pub port: i32,
}

held_bytes! { HostPort { protocol, host_ip; port } }

/// Address that conflicts with every other one.
const EVERY_ADDRESS: &str = "0.0.0.0";

impl HostPort {
    /// Protocol, `TCP` if the pod names none.
    pub fn protocol(&self) -> &str {
        if self.protocol.is_empty() {
            "TCP"
        } else {
            &self.protocol
        }
    }

    /// Address, `0.0.0.0` if the pod names none.
    pub fn host_ip(&self) -> &str {
        if self.host_ip.is_empty() {
            EVERY_ADDRESS
        } else {
            &self.host_ip
        }
    }

    /// True if two pods with these ports cannot be on one node. As in Kubernetes `::` is an address like any other.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let (own_ip, other_ip) = (self.host_ip(), other.host_ip());
        self.port == other.port
            && self.protocol() == other.protocol()
            && (own_ip == other_ip || own_ip == EVERY_ADDRESS || other_ip == EVERY_ADDRESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(protocol: &str, host_ip: &str, port: i32) -> HostPort {
        HostPort {
            protocol: protocol.into(),
            host_ip: host_ip.into(),
            port,
        }
    }

    #[test]
    fn ports_conflict_by_number_protocol_and_address() {
        let all = port("", "", 80);
        assert!(all.conflicts_with(&port("TCP", "10.0.0.1", 80)));
        assert!(port("TCP", "10.0.0.1", 80).conflicts_with(&port("", "0.0.0.0", 80)));
        assert!(!all.conflicts_with(&port("UDP", "", 80)) && !all.conflicts_with(&port("", "", 81)));
        assert!(!port("", "10.0.0.1", 80).conflicts_with(&port("", "10.0.0.2", 80)));
        assert!(!port("", "10.0.0.1", 80).conflicts_with(&port("", "::", 80)));
    }

    #[test]
    fn kinds_are_in_the_order_of_their_names() {
        let constraints = PodConstraints {
            node_selector: [("a".into(), "b".into())].into(),
            required_node_terms: Some(Vec::new()),
            host_ports: vec![port("", "", 1)],
            ..PodConstraints::default()
        };
        let names: Vec<&str> = constraints.kinds().map(ConstraintKind::name).collect();
        assert_eq!(names, ["hostPorts", "nodeAffinity", "nodeSelector"]);
        assert!(!constraints.is_empty() && PodConstraints::default().is_empty());
    }
}
