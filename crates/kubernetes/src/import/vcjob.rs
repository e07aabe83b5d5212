//! Pod group and pods that Volcano's controller would make of a Job.

use serde_json::{Map, Value, json};

use crate::object::fields::{FieldError, get, integer, list, required_text, text};

/// Maximum number of pods that a Job is split into.
const MAX_PODS: i64 = 100_000;
/// Annotation that names the pod group of a pod.
const GROUP_ANNOTATION: &str = "scheduling.k8s.io/group-name";
/// Annotation with the role of a pod.
const ROLE_ANNOTATION: &str = "volcano.sh/task-spec";

/// Pod group, and pods of all replicas. A missing `minAvailable` means all of them; a task without a name is called
/// `default` and its index, from 0.
pub(super) fn split(job: &Value) -> Result<(Value, Vec<Value>), FieldError> {
    let name = required_text(job, "metadata.name")?;
    let namespace = text(job, "metadata.namespace")?;
    let scheduler = text(job, "spec.schedulerName")?;
    let class = text(job, "spec.priorityClassName")?;
    let (mut pods, mut roles) = (Vec::new(), Map::new());
    for (place, task) in list(job, "spec.tasks")?.iter().enumerate() {
        let field = |name: &str| format!("spec.tasks[{place}].{name}");
        let replicas: i64 = integer(task, "replicas")?.unwrap_or(1).into();
        let left = MAX_PODS - i64::try_from(pods.len()).unwrap_or(MAX_PODS);
        if !(0..=left).contains(&replicas) {
            let message = format!("{replicas} is below 0, or the Job has more than {MAX_PODS} pods");
            return Err(FieldError::new(field("replicas"), message));
        }
        let own = match text(task, "name")? {
            own if own.is_empty() => format!("default{place}"),
            own => own,
        };
        let Some(template) = get(task, "template").filter(|template| template.is_object()) else {
            return Err(FieldError::new(field("template"), "is missing"));
        };
        let least = integer(task, "minAvailable")?.map_or(replicas, i64::from);
        roles.insert(own.clone(), json!(least));
        for number in 0..replicas {
            pods.push(pod(
                template,
                [(GROUP_ANNOTATION, &name), (ROLE_ANNOTATION, &own)],
                &namespace,
                &format!("{name}-{own}-{number}"),
                [("schedulerName", &scheduler), ("priorityClassName", &class)],
            ));
        }
    }
    let all = i32::try_from(pods.len()).unwrap_or(i32::MAX);
    let group = json!({
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": get(job, "metadata.annotations"),
            "creationTimestamp": get(job, "metadata.creationTimestamp"),
        },
        "spec": {
            "queue": text(job, "spec.queue")?,
            "priorityClassName": class,
            "minTaskMember": roles,
            "minMember": integer(job, "spec.minAvailable")?.unwrap_or(all),
        },
    });
    Ok((group, pods))
}

/// A pod of the template; `defaults` are fields of its spec that the Job sets where the template does not.
fn pod(
    template: &Value,
    own_annotations: [(&str, &String); 2],
    namespace: &str,
    name: &str,
    defaults: [(&str, &String); 2],
) -> Value {
    let annotations = get(template, "metadata.annotations").and_then(Value::as_object);
    let mut annotations: Map<String, Value> = annotations.cloned().unwrap_or_default();
    let own_annotations = own_annotations.map(|(key, text)| (key.to_owned(), json!(text)));
    annotations.extend(own_annotations);
    let mut spec = get(template, "spec").cloned().unwrap_or_default();
    for (field, value) in defaults {
        if let (Some(spec), false) = (spec.as_object_mut(), value.is_empty()) {
            spec.entry(field).or_insert_with(|| json!(value));
        }
    }
    let owners = json!([{"kind": "Job"}]);
    json!({
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations, "ownerReferences": owners},
        "spec": spec,
    })
}
