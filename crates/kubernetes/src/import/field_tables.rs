//! Fields of the objects that an import reads, and what Pumice does with each. A field that is not in these tables, such as
//! `spec.capabilities` of a queue, is probably misspelt: the API server would reject or drop it. The fields come from Kubernetes
//! v1.37 (`api/core/v1`) and Volcano ed72c7c81 (`staging/src/volcano.sh/apis`).

use crate::object::ObjectKind;

/// Use of a field by Pumice.
#[derive(Debug, Clone, Copy)]
pub(super) enum FieldUse {
    /// The record has it, or says that it is not evaluated.
    Read,
    /// The record has parts of the value, or of each item of a list.
    Parts(&'static [FieldGroup]),
    /// The keys are free. The record has those that a plugin reads.
    Annotations,
    /// No decision depends on it, for this reason.
    Irrelevant(&'static str),
    /// Pumice does not evaluate the field, which may change decisions. The text names the effect.
    NotEvaluated(&'static str),
}

use FieldUse::{Annotations, Irrelevant, NotEvaluated, Parts, Read};

/// Fields with one use.
pub(super) type FieldGroup = (FieldUse, &'static [&'static str]);

const TOP: FieldGroup = (Read, &["apiVersion", "kind"]);
const METADATA: FieldGroup = (
    Parts(&[
        (
            Read,
            &[
                "name",
                "namespace",
                "uid",
                "labels",
                "creationTimestamp",
                "deletionTimestamp",
                "ownerReferences",
            ],
        ),
        (Annotations, &["annotations"]),
        (
            Irrelevant("it is for the API server and its clients"),
            &[
                "deletionGracePeriodSeconds",
                "finalizers",
                "generateName",
                "generation",
                "managedFields",
                "resourceVersion",
                "selfLink",
            ],
        ),
    ]),
    &["metadata"],
);
/// Users do not write it.
const STATUS: FieldGroup = (Read, &["status"]);

const RESOURCES: FieldGroup = (Parts(&[(Read, &["requests", "limits", "claims"])]), &["resources"]);
const CONTAINER: &[FieldGroup] = &[
    (Read, &["image", "name", "ports", "restartPolicy"]),
    RESOURCES,
    (
        Irrelevant("it is for the kubelet"),
        &[
            "args",
            "command",
            "env",
            "envFrom",
            "imagePullPolicy",
            "lifecycle",
            "livenessProbe",
            "readinessProbe",
            "resizePolicy",
            "restartPolicyRules",
            "securityContext",
            "startupProbe",
            "stdin",
            "stdinOnce",
            "terminationMessagePath",
            "terminationMessagePolicy",
            "tty",
            "volumeDevices",
            "volumeMounts",
            "workingDir",
        ],
    ),
];
const EXPRESSIONS: FieldUse = Parts(&[(Read, &["key", "operator", "values"])]);
const LABEL_SELECTOR: FieldUse = Parts(&[(Read, &["matchLabels"]), (EXPRESSIONS, &["matchExpressions"])]);
const NODE_SELECTOR_TERM: FieldUse = Parts(&[(EXPRESSIONS, &["matchExpressions", "matchFields"])]);
const POD_AFFINITY_TERM: &[FieldGroup] = &[
    (Read, &["topologyKey", "namespaces"]),
    (
        Irrelevant("the API server puts it into the label selector of a stored pod"),
        &["matchLabelKeys", "mismatchLabelKeys"],
    ),
    (LABEL_SELECTOR, &["labelSelector", "namespaceSelector"]),
];
const REQUIRED: &[&str] = &["requiredDuringSchedulingIgnoredDuringExecution"];
const PREFERRED: &[&str] = &["preferredDuringSchedulingIgnoredDuringExecution"];
const POD_AFFINITY: FieldUse = Parts(&[
    (Parts(POD_AFFINITY_TERM), REQUIRED),
    (
        Parts(&[(Read, &["weight"]), (Parts(POD_AFFINITY_TERM), &["podAffinityTerm"])]),
        PREFERRED,
    ),
]);
const NODE_AFFINITY: FieldUse = Parts(&[
    (Parts(&[(NODE_SELECTOR_TERM, &["nodeSelectorTerms"])]), REQUIRED),
    (
        Parts(&[(Read, &["weight"]), (NODE_SELECTOR_TERM, &["preference"])]),
        PREFERRED,
    ),
]);
const TOPOLOGY_SPREAD: FieldUse = Parts(&[
    (
        Read,
        &[
            "maxSkew",
            "topologyKey",
            "whenUnsatisfiable",
            "minDomains",
            "nodeAffinityPolicy",
            "nodeTaintsPolicy",
            "matchLabelKeys",
        ],
    ),
    (LABEL_SELECTOR, &["labelSelector"]),
]);
const POD_SPEC: &[FieldGroup] = &[
    (Parts(CONTAINER), &["containers", "initContainers"]),
    (
        Read,
        &[
            "hostNetwork",
            "nodeName",
            "nodeSelector",
            "overhead",
            "preemptionPolicy",
            "priority",
            "priorityClassName",
            "resourceClaims",
            "schedulerName",
            "schedulingGates",
            "schedulingGroup",
            "volumes",
        ],
    ),
    RESOURCES,
    (
        Parts(&[
            (NODE_AFFINITY, &["nodeAffinity"]),
            (POD_AFFINITY, &["podAffinity", "podAntiAffinity"]),
        ]),
        &["affinity"],
    ),
    (
        Parts(&[
            (Read, &["key", "operator", "value", "effect"]),
            (
                Irrelevant("it is for the eviction of running pods"),
                &["tolerationSeconds"],
            ),
        ]),
        &["tolerations"],
    ),
    (TOPOLOGY_SPREAD, &["topologySpreadConstraints"]),
    (
        Irrelevant("it is for the API server, the kubelet and controllers"),
        &[
            "activeDeadlineSeconds",
            "automountServiceAccountToken",
            "dnsConfig",
            "dnsPolicy",
            "enableServiceLinks",
            "ephemeralContainers",
            "evictionResponders",
            "hostAliases",
            "hostIPC",
            "hostPID",
            "hostUsers",
            "hostname",
            "hostnameOverride",
            "imagePullSecrets",
            "os",
            "readinessGates",
            "restartPolicy",
            "runtimeClassName",
            "securityContext",
            "serviceAccount",
            "serviceAccountName",
            "setHostnameAsFQDN",
            "shareProcessNamespace",
            "subdomain",
            "terminationGracePeriodSeconds",
        ],
    ),
];
const POD: &[FieldGroup] = &[TOP, METADATA, STATUS, (Parts(POD_SPEC), &["spec"])];
const NODE: &[FieldGroup] = &[
    TOP,
    METADATA,
    STATUS,
    (
        Parts(&[
            (Read, &["unschedulable", "taints"]),
            (
                Irrelevant("it is for the network, the cloud and the kubelet"),
                &[
                    "configSource",
                    "externalID",
                    "podCIDR",
                    "podCIDRs",
                    "podPreemptionPolicy",
                    "providerID",
                ],
            ),
        ]),
        &["spec"],
    ),
];
const NODE_GROUPS: FieldUse = Parts(&[(Read, REQUIRED), (Read, PREFERRED)]);
const QUEUE: &[FieldGroup] = &[
    TOP,
    METADATA,
    STATUS,
    (
        Parts(&[
            (
                Read,
                &["weight", "priority", "parent", "reclaimable", "capability", "deserved"],
            ),
            (Parts(&[(Read, &["resource"])]), &["guarantee"]),
            (
                Parts(&[(NODE_GROUPS, &["nodeGroupAffinity", "nodeGroupAntiAffinity"])]),
                &["affinity"],
            ),
            (
                Irrelevant("Volcano's scheduler does not read it either"),
                &["type", "extendClusters", "dequeueStrategy"],
            ),
        ]),
        &["spec"],
    ),
];
const NETWORK_TOPOLOGY: FieldGroup = (
    NotEvaluated("The network topology may limit a job to nodes near each other."),
    &["networkTopology"],
);
const POD_GROUP: &[FieldGroup] = &[
    TOP,
    METADATA,
    STATUS,
    (
        Parts(&[
            (
                Read,
                &[
                    "minMember",
                    "minResources",
                    "minTaskMember",
                    "queue",
                    "priorityClassName",
                ],
            ),
            NETWORK_TOPOLOGY,
            (
                Parts(&[
                    (Read, &["name", "subGroupSize", "minSubGroups", "matchLabelKeys"]),
                    (LABEL_SELECTOR, &["labelSelector"]),
                    NETWORK_TOPOLOGY,
                ]),
                &["subGroupPolicy"],
            ),
        ]),
        &["spec"],
    ),
];
const FOR_JOB_CONTROLLER: FieldUse = Irrelevant("it is for Volcano's job controller");
pub(super) const VOLCANO_JOB: &[FieldGroup] = &[
    TOP,
    METADATA,
    STATUS,
    (
        Parts(&[
            (Read, &["minAvailable", "queue", "schedulerName", "priorityClassName"]),
            NETWORK_TOPOLOGY,
            (
                NotEvaluated("Volumes may reject nodes that cannot attach them."),
                &["volumes"],
            ),
            (
                FOR_JOB_CONTROLLER,
                &[
                    "maxRetry",
                    "minSuccess",
                    "plugins",
                    "policies",
                    "runningEstimate",
                    "ttlSecondsAfterFinished",
                ],
            ),
            (
                Parts(&[
                    (Read, &["name", "replicas", "minAvailable"]),
                    (Parts(&[METADATA, (Parts(POD_SPEC), &["spec"])]), &["template"]),
                    (FOR_JOB_CONTROLLER, &["policies", "maxRetry"]),
                    (
                        NotEvaluated("Pods of the role may have to fit on the NUMA topology of a node."),
                        &["topologyPolicy"],
                    ),
                    (
                        NotEvaluated("The pods of the role are made after those of others."),
                        &["dependsOn"],
                    ),
                    (
                        NotEvaluated("The pods of the role may have to start in groups."),
                        &["partitionPolicy"],
                    ),
                ]),
                &["tasks"],
            ),
        ]),
        &["spec"],
    ),
];
const PRIORITY_CLASS: &[FieldGroup] = &[
    TOP,
    METADATA,
    (Read, &["value", "globalDefault", "preemptionPolicy"]),
    (Irrelevant("it is for people"), &["description"]),
];
const NAMESPACE: &[FieldGroup] = &[
    TOP,
    METADATA,
    STATUS,
    (Irrelevant("it is for the API server"), &["spec"]),
];
/// Annotations that an import or a plugin reads.
pub(super) const ANNOTATIONS: &[&str] = &[
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "scheduling.volcano.sh/queue-name",
    "sla-waiting-time",
    "volcano.sh/card.name",
    "volcano.sh/card.quota",
    "volcano.sh/card.request",
    "volcano.sh/cooldown-time",
    "volcano.sh/hierarchy",
    "volcano.sh/hierarchy-weights",
    "volcano.sh/jdb-max-unavailable",
    "volcano.sh/jdb-min-available",
    "volcano.sh/job-name",
    "volcano.sh/nodegroup-resource-limits",
    "volcano.sh/oversubscription-cpu",
    "volcano.sh/oversubscription-memory",
    "volcano.sh/preemptable",
    "volcano.sh/resource-strategy-scoring-type",
    "volcano.sh/resource-strategy-weight",
    "volcano.sh/revocable-zone",
    "volcano.sh/service.type",
    "volcano.sh/sla-waiting-time",
    "volcano.sh/task-priority",
    "volcano.sh/task-spec",
    "volcano.sh/task-topology-affinity",
    "volcano.sh/task-topology-anti-affinity",
    "volcano.sh/task-topology-task-order",
    "volcano.sh/template-uid",
];

/// Fields of a kind; `None`: they are not checked.
pub(super) fn fields_of(kind: ObjectKind) -> Option<&'static [FieldGroup]> {
    match kind {
        ObjectKind::Node => Some(NODE),
        ObjectKind::Pod => Some(POD),
        ObjectKind::Queue => Some(QUEUE),
        ObjectKind::PodGroup => Some(POD_GROUP),
        ObjectKind::PriorityClass => Some(PRIORITY_CLASS),
        ObjectKind::Namespace => Some(NAMESPACE),
        ObjectKind::WorkloadPodGroup
        | ObjectKind::Service
        | ObjectKind::ReplicationController
        | ObjectKind::ReplicaSet
        | ObjectKind::StatefulSet
        | ObjectKind::ResourceSlice
        | ObjectKind::ResourceClaim
        | ObjectKind::ResourceClaimTemplate
        | ObjectKind::ResourceQuota
        | ObjectKind::PodDisruptionBudget => None,
    }
}

/// Kinds whose fields are checked, with their tables.
const KINDS: [(&str, &[FieldGroup]); 7] = [
    ("Node", NODE),
    ("Pod", POD),
    ("Queue", QUEUE),
    ("PodGroup", POD_GROUP),
    ("Job (Volcano)", VOLCANO_JOB),
    ("PriorityClass", PRIORITY_CLASS),
    ("Namespace", NAMESPACE),
];

/// All fields of all kinds, as tables of Markdown: paths, and what Pumice does with each.
pub fn field_tables() -> String {
    let mut page = String::new();
    for (kind, fields) in KINDS {
        page.extend(["## ", kind, "\n\n| Fields | Pumice |\n|---|---|\n"]);
        add_rows(fields, "", &mut page);
        page.push('\n');
    }
    page.truncate(page.trim_end().len());
    page + "\n"
}

/// Adds a row for each group of fields below a path.
fn add_rows(fields: &[FieldGroup], path: &str, page: &mut String) {
    for (field_use, names) in fields {
        let paths: Vec<String> = names.iter().map(|name| format!("{path}{name}")).collect();
        let text = match field_use {
            Read => "reads it".to_owned(),
            Annotations => "reads its own and Volcano's annotations".to_owned(),
            Irrelevant(reason) => format!("ignores it: {reason}"),
            NotEvaluated(effect) => format!("does not evaluate it. {effect}"),
            Parts(parts) => {
                for path in paths {
                    add_rows(parts, &format!("{path}."), page);
                }
                continue;
            }
        };
        let paths: Vec<String> = paths.iter().map(|path| format!("`{path}`")).collect();
        page.extend(["| ", &paths.join(", "), " | ", &text, " |\n"]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ANNOTATIONS;
    use pumice_engine::plugins::REGISTRY;

    #[test]
    fn annotations_of_all_plugins_are_known() {
        let of_plugins = REGISTRY.iter().flat_map(|plugin| {
            [
                plugin.task_annotations,
                plugin.job_annotations,
                plugin.queue_annotations,
            ]
            .concat()
        });
        let known: BTreeSet<&str> = ANNOTATIONS.iter().copied().collect();
        for annotation in of_plugins {
            assert!(known.contains(annotation), "{annotation}");
        }
    }
}
