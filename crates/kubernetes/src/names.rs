//! Annotations and labels that more than one reader of objects needs.

use pumice_engine::model::PREEMPTABLE;

/// Annotation that names the pod group of a pod.
pub(crate) const GROUP_NAME: &str = "scheduling.k8s.io/group-name";
/// Annotation, or label where the API has no field for it, that names the queue of a pod group.
pub(crate) const QUEUE_NAME: &str = "scheduling.volcano.sh/queue-name";
/// Annotation or label with the time in which a pod that runs is not evicted.
pub(crate) const COOLDOWN: &str = "volcano.sh/cooldown-time";
/// Annotation with the zone of revocable nodes that a pod may use.
pub(crate) const REVOCABLE_ZONE: &str = "volcano.sh/revocable-zone";
/// Annotation, and else label, with the role of a pod in its job.
pub(crate) const TASK_ROLE: &str = "volcano.sh/task-spec";

/// Annotations that a pod group has from its pod, and a pod from its Job of Volcano.
pub(crate) const INHERITED_ANNOTATIONS: [&str; 5] = [
    PREEMPTABLE,
    COOLDOWN,
    REVOCABLE_ZONE,
    "volcano.sh/jdb-min-available",
    "volcano.sh/jdb-max-unavailable",
];
