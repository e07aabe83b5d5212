//! Fields of objects that records are derived from. The reader of JSON keeps no others; a test compares what is derived with
//! what the whole object gives.

/// Fields of a value that are kept.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReadFields {
    /// The value is kept whole.
    Whole,
    /// Fields of an object, or of each object of a list, that are kept.
    Fields(&'static [(&'static str, ReadFields)]),
}

impl ReadFields {
    /// Fields that are kept of the value of a field; `None`: the field is left out.
    pub(super) fn field(self, name: &str) -> Option<Self> {
        match self {
            Self::Whole => Some(Self::Whole),
            Self::Fields(fields) => fields.iter().find(|(known, _)| *known == name).map(|(_, own)| *own),
        }
    }
}

use ReadFields::{Fields, Whole};

/// Fields of an object of any kind that is read: no two kinds have fields of one name and different shapes.
pub(super) const OBJECT: &[(&str, ReadFields)] = &[
    ("apiVersion", Whole),
    ("kind", Whole),
    ("metadata", Fields(METADATA)),
    ("spec", Fields(SPEC)),
    ("status", Fields(STATUS)),
    // PriorityClass.
    ("value", Whole),
    ("globalDefault", Whole),
    ("preemptionPolicy", Whole),
];

const METADATA: &[(&str, ReadFields)] = &[
    ("name", Whole),
    ("namespace", Whole),
    ("uid", Whole),
    ("labels", Whole),
    ("annotations", Whole),
    ("creationTimestamp", Whole),
    ("deletionTimestamp", Whole),
    ("ownerReferences", Fields(OWNER_REFERENCE)),
];

const OWNER_REFERENCE: &[(&str, ReadFields)] = &[
    ("apiVersion", Whole),
    ("controller", Whole),
    ("kind", Whole),
    ("name", Whole),
];

const SPEC: &[(&str, ReadFields)] = &[
    // Pod.
    ("affinity", Whole),
    ("containers", Fields(CONTAINER)),
    ("hostNetwork", Whole),
    ("initContainers", Fields(CONTAINER)),
    ("nodeName", Whole),
    ("nodeSelector", Whole),
    ("overhead", Whole),
    ("preemptionPolicy", Whole),
    ("priority", Whole),
    ("priorityClassName", Whole),
    ("resourceClaims", Whole),
    ("resources", Whole),
    ("schedulerName", Whole),
    ("schedulingGates", Whole),
    ("schedulingGroup", Whole),
    ("tolerations", Whole),
    ("topologySpreadConstraints", Whole),
    ("volumes", Fields(VOLUME)),
    // Node.
    ("taints", Whole),
    ("unschedulable", Whole),
    // Queue.
    ("capability", Whole),
    ("deserved", Whole),
    ("guarantee", Whole),
    ("parent", Whole),
    ("reclaimable", Whole),
    ("weight", Whole),
    // PodGroup.
    ("minMember", Whole),
    ("minResources", Whole),
    ("minTaskMember", Whole),
    ("queue", Whole),
    ("subGroupPolicy", Whole),
    ("schedulingPolicy", Whole),
    // Service, ReplicationController, ReplicaSet and StatefulSet.
    ("selector", Whole),
    // ResourceSlice: its devices are a list; ResourceClaim: an object.
    ("devices", Fields(DEVICES)),
    ("driver", Whole),
    ("pool", Whole),
    // ResourceClaimTemplate.
    ("spec", Fields(&[("devices", Fields(DEVICES))])),
];

const DEVICES: &[(&str, ReadFields)] = &[
    // ResourceSlice; v1beta1 has one level more.
    ("attributes", Whole),
    ("basic", Fields(&[("attributes", Whole), ("capacity", Whole)])),
    ("capacity", Whole),
    ("name", Whole),
    // ResourceClaim.
    ("constraints", Whole),
    ("requests", Whole),
];

const CONTAINER: &[(&str, ReadFields)] = &[
    ("image", Whole),
    ("name", Whole),
    ("ports", Whole),
    ("resources", Whole),
    ("restartPolicy", Whole),
];

const VOLUME: &[(&str, ReadFields)] = &[
    ("image", Fields(&[("reference", Whole)])),
    // Volumes that may limit the nodes of their pod.
    ("awsElasticBlockStore", Fields(&[])),
    ("azureDisk", Fields(&[])),
    ("cinder", Fields(&[])),
    ("csi", Fields(&[])),
    ("ephemeral", Fields(&[])),
    ("fc", Fields(&[])),
    ("gcePersistentDisk", Fields(&[])),
    ("iscsi", Fields(&[])),
    ("persistentVolumeClaim", Fields(&[])),
    ("portworxVolume", Fields(&[])),
    ("rbd", Fields(&[])),
    ("vsphereVolume", Fields(&[])),
];

const STATUS: &[(&str, ReadFields)] = &[
    // Pod.
    ("allocatedResources", Whole),
    ("conditions", Fields(CONDITION)),
    ("containerStatuses", Fields(CONTAINER_STATUS)),
    ("initContainerStatuses", Fields(CONTAINER_STATUS)),
    ("nominatedNodeName", Whole),
    ("phase", Whole),
    ("qosClass", Whole),
    ("resources", Whole),
    ("resourceClaimStatuses", Whole),
    // Node.
    ("allocatable", Whole),
    ("images", Whole),
    // Queue.
    ("state", Whole),
    // ResourceQuota.
    ("hard", Whole),
    ("used", Whole),
    // PodDisruptionBudget.
    ("disruptedPods", Whole),
    ("disruptionsAllowed", Whole),
    // ResourceClaim.
    (
        "allocation",
        Fields(&[("devices", Fields(&[("results", Fields(ALLOCATED_DEVICE))]))]),
    ),
];

const ALLOCATED_DEVICE: &[(&str, ReadFields)] = &[("device", Whole), ("driver", Whole), ("pool", Whole)];

const CONDITION: &[(&str, ReadFields)] = &[
    ("lastTransitionTime", Whole),
    ("reason", Whole),
    ("status", Whole),
    ("type", Whole),
];

const CONTAINER_STATUS: &[(&str, ReadFields)] = &[("allocatedResources", Whole), ("name", Whole), ("resources", Whole)];
