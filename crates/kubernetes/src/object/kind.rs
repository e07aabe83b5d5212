//! Kinds of objects that are read, and their API groups.

use pumice_protocol::v1 as pb;

/// API group of Volcano's queues and pod groups.
const VOLCANO_GROUP: &str = "scheduling.volcano.sh";
/// The API group of priority classes, and of the pod groups that Kubernetes has itself.
const SCHEDULING_GROUP: &str = "scheduling.k8s.io";
/// The API group of workloads.
const APPS_GROUP: &str = "apps";
/// API group of slices and claims of devices.
const DEVICE_GROUP: &str = "resource.k8s.io";
/// API group of disruption budgets.
const POLICY_GROUP: &str = "policy";

/// Kind of an object that becomes a record, that owns pods, or that describes devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// Node of `v1`.
    Node,
    /// Pod of `v1`.
    Pod,
    /// Queue of Volcano.
    Queue,
    /// Pod group of Volcano.
    PodGroup,
    /// Pod group of `scheduling.k8s.io`.
    WorkloadPodGroup,
    /// Priority class of Kubernetes.
    PriorityClass,
    /// Namespace of `v1`.
    Namespace,
    /// Service of `v1`, which becomes no record.
    Service,
    /// Replication controller of `v1`, which becomes no record.
    ReplicationController,
    /// Replica set of `apps`, which becomes no record.
    ReplicaSet,
    /// Stateful set of `apps`, which becomes no record.
    StatefulSet,
    /// Slice of the devices of a node, which becomes no record.
    ResourceSlice,
    /// Claim of devices, which becomes no record.
    ResourceClaim,
    /// Template of claims of devices, which becomes no record.
    ResourceClaimTemplate,
    /// Quota of a namespace, which is a part of its record.
    ResourceQuota,
    /// Disruption budget of `policy`, which is a part of the record of its namespace.
    PodDisruptionBudget,
}

impl ObjectKind {
    /// Kinds that are read.
    pub const ALL: [ObjectKind; 16] = [
        ObjectKind::Node,
        ObjectKind::Pod,
        ObjectKind::Queue,
        ObjectKind::PodGroup,
        ObjectKind::WorkloadPodGroup,
        ObjectKind::PriorityClass,
        ObjectKind::Namespace,
        ObjectKind::Service,
        ObjectKind::ReplicationController,
        ObjectKind::ReplicaSet,
        ObjectKind::StatefulSet,
        ObjectKind::ResourceSlice,
        ObjectKind::ResourceClaim,
        ObjectKind::ResourceClaimTemplate,
        ObjectKind::ResourceQuota,
        ObjectKind::PodDisruptionBudget,
    ];

    /// Name of the kind in the API.
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::Node => "Node",
            ObjectKind::Pod => "Pod",
            ObjectKind::Queue => "Queue",
            ObjectKind::PodGroup | ObjectKind::WorkloadPodGroup => "PodGroup",
            ObjectKind::PriorityClass => "PriorityClass",
            ObjectKind::Namespace => "Namespace",
            ObjectKind::Service => "Service",
            ObjectKind::ReplicationController => "ReplicationController",
            ObjectKind::ReplicaSet => "ReplicaSet",
            ObjectKind::StatefulSet => "StatefulSet",
            ObjectKind::ResourceSlice => "ResourceSlice",
            ObjectKind::ResourceClaim => "ResourceClaim",
            ObjectKind::ResourceClaimTemplate => "ResourceClaimTemplate",
            ObjectKind::ResourceQuota => "ResourceQuota",
            ObjectKind::PodDisruptionBudget => "PodDisruptionBudget",
        }
    }

    /// API group of the kind; empty: `v1`.
    fn group(self) -> &'static str {
        match self {
            ObjectKind::Node
            | ObjectKind::Pod
            | ObjectKind::Namespace
            | ObjectKind::Service
            | ObjectKind::ReplicationController
            | ObjectKind::ResourceQuota => "",
            ObjectKind::PodDisruptionBudget => POLICY_GROUP,
            ObjectKind::Queue | ObjectKind::PodGroup => VOLCANO_GROUP,
            ObjectKind::PriorityClass | ObjectKind::WorkloadPodGroup => SCHEDULING_GROUP,
            ObjectKind::ReplicaSet | ObjectKind::StatefulSet => APPS_GROUP,
            ObjectKind::ResourceSlice | ObjectKind::ResourceClaim | ObjectKind::ResourceClaimTemplate => DEVICE_GROUP,
        }
    }

    /// Kind of a record of this kind of object; unspecified: objects of the kind become no records.
    pub fn record_kind(self) -> pb::RecordKind {
        match self {
            ObjectKind::Node => pb::RecordKind::Node,
            ObjectKind::Pod => pb::RecordKind::Task,
            ObjectKind::Queue => pb::RecordKind::Queue,
            ObjectKind::PodGroup | ObjectKind::WorkloadPodGroup => pb::RecordKind::Job,
            ObjectKind::PriorityClass => pb::RecordKind::PriorityClass,
            ObjectKind::Namespace => pb::RecordKind::Namespace,
            ObjectKind::Service
            | ObjectKind::ReplicationController
            | ObjectKind::ReplicaSet
            | ObjectKind::StatefulSet
            | ObjectKind::ResourceSlice
            | ObjectKind::ResourceClaim
            | ObjectKind::ResourceClaimTemplate
            | ObjectKind::ResourceQuota
            | ObjectKind::PodDisruptionBudget => pb::RecordKind::Unspecified,
        }
    }

    /// True if objects of the kind tell the devices that nodes have and pods claim.
    pub fn tells_devices(self) -> bool {
        self.group() == DEVICE_GROUP
    }

    /// True if objects of the kind own pods.
    pub fn owns_pods(self) -> bool {
        self.record_kind() == pb::RecordKind::Unspecified && self.tells_by_itself()
    }

    /// True if objects of the kind are parts of the record of their namespace.
    pub fn is_namespace_part(self) -> bool {
        matches!(self, Self::ResourceQuota | Self::PodDisruptionBudget)
    }

    /// True if an object of the kind tells what it means without other objects.
    pub fn tells_by_itself(self) -> bool {
        !self.tells_devices() && !self.is_namespace_part()
    }

    /// True if objects of the kind belong to a namespace.
    pub fn is_namespaced(self) -> bool {
        match self {
            ObjectKind::Node
            | ObjectKind::Queue
            | ObjectKind::PriorityClass
            | ObjectKind::Namespace
            | ObjectKind::ResourceSlice => false,
            ObjectKind::Pod
            | ObjectKind::PodGroup
            | ObjectKind::WorkloadPodGroup
            | ObjectKind::Service
            | ObjectKind::ReplicationController
            | ObjectKind::ReplicaSet
            | ObjectKind::StatefulSet
            | ObjectKind::ResourceClaim
            | ObjectKind::ResourceClaimTemplate
            | ObjectKind::ResourceQuota
            | ObjectKind::PodDisruptionBudget => true,
        }
    }

    /// Name of the record of an object. An empty namespace is `default`.
    pub fn record_name(self, namespace: &str, name: &str) -> String {
        match (self.is_namespaced(), namespace) {
            (false, _) => name.to_owned(),
            (true, "") => format!("default/{name}"),
            (true, _) => format!("{namespace}/{name}"),
        }
    }
}

/// Kind of an object by its `apiVersion` and `kind`; `None`: it is not read.
pub fn object_kind(version: &str, kind: &str) -> Option<ObjectKind> {
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let known = ObjectKind::ALL.into_iter();
    known.into_iter().find(|own| own.name() == kind && own.group() == group)
}
