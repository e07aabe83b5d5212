//! Misspelt fields and annotations of objects, such as `volcano.sh/card.quoat`. An import ignores them, and the API
//! server would reject or drop the fields.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::object::fields::{get, list};
use pumice_engine::policy::suggestion::nearest_name;

/// A part of an object: its path and its fields.
type ObjectPart = (&'static str, &'static [&'static str]);

const TOP: &[&str] = &["apiVersion", "kind", "metadata", "spec", "status"];
const METADATA: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "annotations",
    "labels",
    "creationTimestamp",
    "generateName",
];
const POD_SPEC: &[&str] = &[
    "containers",
    "initContainers",
    "ephemeralContainers",
    "nodeName",
    "nodeSelector",
    "schedulerName",
    "priority",
    "priorityClassName",
    "overhead",
    "schedulingGates",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "resourceClaims",
    "resources",
];
const CONTAINER: &[&str] = &["image", "name", "ports", "resources", "resizePolicy", "restartPolicy"];
const RESOURCES: &[&str] = &["requests", "limits", "claims"];
const NODE: &[ObjectPart] = &[
    ("spec", &["unschedulable", "taints"]),
    ("status", &["allocatable", "capacity", "conditions", "images"]),
];
const POD: &[ObjectPart] = &[("spec", POD_SPEC)];
const QUEUE: &[ObjectPart] = &[
    (
        "spec",
        &[
            "weight",
            "priority",
            "parent",
            "reclaimable",
            "capability",
            "deserved",
            "guarantee",
            "type",
            "affinity",
            "extendClusters",
            "dequeueStrategy",
        ],
    ),
    ("spec.guarantee", &["resource"]),
    ("spec.affinity", &["nodeGroupAffinity", "nodeGroupAntiAffinity"]),
];
const POD_GROUP: &[ObjectPart] = &[(
    "spec",
    &[
        "minMember",
        "minResources",
        "minTaskMember",
        "queue",
        "priorityClassName",
        "networkTopology",
        "subGroupPolicy",
    ],
)];
const VOLCANO_JOB: &[ObjectPart] = &[(
    "spec",
    &[
        "minAvailable",
        "minSuccess",
        "queue",
        "tasks",
        "schedulerName",
        "priorityClassName",
        "maxRetry",
        "volumes",
        "plugins",
        "policies",
        "networkTopology",
    ],
)];
const JOB_TASK: &[&str] = &[
    "name",
    "replicas",
    "template",
    "minAvailable",
    "policies",
    "maxRetry",
    "topologyPolicy",
];
const PRIORITY_CLASS: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata",
    "value",
    "globalDefault",
    "description",
    "preemptionPolicy",
];
/// Annotations that an import or a plugin reads.
const ANNOTATIONS: &[&str] = &[
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "sla-waiting-time",
    "volcano.sh/card.name",
    "volcano.sh/card.quota",
    "volcano.sh/card.request",
    "volcano.sh/hierarchy",
    "volcano.sh/hierarchy-weights",
    "volcano.sh/nodegroup-resource-limits",
    "volcano.sh/oversubscription-cpu",
    "volcano.sh/oversubscription-memory",
    "volcano.sh/preemptable",
    "volcano.sh/resource-strategy-scoring-type",
    "volcano.sh/resource-strategy-weight",
    "volcano.sh/sla-waiting-time",
    "volcano.sh/task-priority",
    "volcano.sh/task-spec",
    "volcano.sh/template-uid",
];

/// Looks for misspelt names. Each name is compared once, however many objects have it.
#[derive(Debug, Default)]
pub(super) struct MisspeltFields {
    /// Nearest known name, by the list of known names (its first name and its length) and the name written.
    seen: BTreeMap<(&'static str, usize, String), Option<&'static str>>,
}

impl MisspeltFields {
    /// Fields and annotations of an object that are nearly known ones: a sentence for each.
    pub(super) fn find(&mut self, kind: &str, object: &Value) -> Vec<String> {
        let mut found = Vec::new();
        let (top, parts) = match kind {
            "Node" => (TOP, NODE),
            "Pod" => (TOP, POD),
            "Queue" => (TOP, QUEUE),
            "PodGroup" => (TOP, POD_GROUP),
            "Job" => (TOP, VOLCANO_JOB),
            "Namespace" => (TOP, [].as_slice()),
            "PriorityClass" => (PRIORITY_CLASS, [].as_slice()),
            _ => return found,
        };
        self.check(Some(object), "", top, &mut found);
        self.check(get(object, "metadata"), "metadata", METADATA, &mut found);
        self.annotations(object, "metadata", &mut found);
        for (path, known) in parts {
            self.check(get(object, path), path, known, &mut found);
        }
        self.containers(object, "spec", &mut found);
        if kind == "Job" {
            for task in list(object, "spec.tasks").unwrap_or_default() {
                self.check(Some(task), "spec.tasks[]", JOB_TASK, &mut found);
                self.annotations(task, "template.metadata", &mut found);
                self.check(
                    get(task, "template.spec"),
                    "spec.tasks[].template.spec",
                    POD_SPEC,
                    &mut found,
                );
                self.containers(task, "template.spec", &mut found);
            }
        }
        found
    }

    fn containers(&mut self, object: &Value, spec: &str, found: &mut Vec<String>) {
        for kind in ["containers", "initContainers"] {
            for container in list(object, &format!("{spec}.{kind}")).unwrap_or_default() {
                self.check(Some(container), &format!("{spec}.{kind}[]"), CONTAINER, found);
                let path = format!("{spec}.{kind}[].resources");
                self.check(get(container, "resources"), &path, RESOURCES, found);
            }
        }
    }

    fn annotations(&mut self, object: &Value, metadata: &str, found: &mut Vec<String>) {
        let path = format!("{metadata}.annotations");
        self.check(get(object, &path), &path, ANNOTATIONS, found);
    }

    /// Adds a sentence for each key of a map that is not known and near to a known one.
    fn check(&mut self, map: Option<&Value>, path: &str, known: &'static [&'static str], found: &mut Vec<String>) {
        let keys = map.and_then(Value::as_object).into_iter().flat_map(|map| map.keys());
        for key in keys.filter(|key| !known.contains(&key.as_str())) {
            let list = (known.first().copied().unwrap_or_default(), known.len());
            let seen = self.seen.entry((list.0, list.1, key.clone()));
            if let Some(near) = *seen.or_insert_with(|| nearest_name(key, known)) {
                let field = match (path, path.ends_with("annotations")) {
                    ("", _) => key.clone(),
                    (path, true) => format!("{path}[{key}]"),
                    (path, false) => format!("{path}.{key}"),
                };
                found.push(format!("field `{field}` is not read; did you mean `{near}`?"));
            }
        }
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
