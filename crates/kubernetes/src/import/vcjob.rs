//! Jobs of Volcano. Pod groups and pods that the files show outrank derived ones: a Job beside them adds nothing, a Job
//! whose pods stand alone adds their pod group, and any other one the pod group and the pods that its controller would make.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::object::fields::{FieldError, get, integer, list, namespaced, required_text, text};
use pumice_protocol::v1 as pb;

/// Maximum number of pods that a Job is split into.
const MAX_PODS: i64 = 100_000;
/// Annotation that names the pod group of a pod.
const GROUP_ANNOTATION: &str = "scheduling.k8s.io/group-name";
/// Annotation with the role of a pod.
const ROLE_ANNOTATION: &str = "volcano.sh/task-spec";
/// Annotation and label of a pod that name its Job.
const JOB_NAME: &str = "volcano.sh/job-name";
/// Phases in which the controller makes no pods any more.
const LAST_PHASES: [&str; 7] = [
    "Aborting",
    "Aborted",
    "Completing",
    "Completed",
    "Terminating",
    "Terminated",
    "Failed",
];

/// Jobs of the files, and what the files have of their pod groups and pods.
#[derive(Debug, Default)]
pub(super) struct VolcanoJobs {
    objects: Vec<Value>,
    /// Jobs (`namespace/name`) that own a pod group.
    owners_of_groups: BTreeSet<String>,
    /// Groups of pods (`namespace/name`), by the Job that the pods name.
    groups_of_pods: BTreeMap<String, String>,
    /// Groups that pods name.
    named_groups: BTreeSet<String>,
}

impl VolcanoJobs {
    /// Adds a Job, whose records wait for the rest of the files.
    pub(super) fn add(&mut self, job: &Value) {
        self.objects.push(job.clone());
    }

    /// Notes the Job that owns a pod group.
    pub(super) fn observe_group(&mut self, group: &Value) {
        let owners = list(group, "metadata.ownerReferences").unwrap_or_default().iter();
        let owners = owners.filter(|owner| text(owner, "kind").is_ok_and(|kind| kind == "Job"));
        let namespace = text(group, "metadata.namespace").unwrap_or_default();
        for owner in owners {
            let name = text(owner, "name").unwrap_or_default();
            let owner = json!({"metadata": {"name": name, "namespace": namespace}});
            self.owners_of_groups.extend(namespaced(&owner));
        }
    }

    /// Notes the Job and the group of a pod.
    pub(super) fn observe_pod(&mut self, task: &pb::Task) {
        if task.job.is_empty() {
            return;
        }
        self.named_groups.insert(task.job.clone());
        let job = task.annotations.get(JOB_NAME).or_else(|| task.labels.get(JOB_NAME));
        if let (Some(job), Some((namespace, _))) = (job, task.name.split_once('/')) {
            self.groups_of_pods
                .insert(format!("{namespace}/{job}"), task.job.clone());
        }
    }

    /// Jobs with the parts that each adds to the records. `groups`: the pod groups of the files.
    pub(super) fn into_jobs(self, groups: &BTreeMap<String, pb::Job>) -> Vec<VolcanoJob> {
        let objects = self.objects.iter();
        let jobs = objects.map(|object| VolcanoJob {
            parts: self.parts(object, groups),
            object: object.clone(),
        });
        jobs.collect()
    }

    fn parts(&self, job: &Value, groups: &BTreeMap<String, pb::Job>) -> MissingParts {
        if text(job, "status.state.phase").is_ok_and(|phase| LAST_PHASES.contains(&phase.as_str())) {
            return MissingParts::NoneOfEnded;
        }
        let name = namespaced(job).unwrap_or_default();
        // Volcano names the group of a Job by both; its older releases by the name only.
        let uid = text(job, "metadata.uid").unwrap_or_default();
        let names = [format!("{name}-{uid}"), name.clone()];
        if self.owners_of_groups.contains(&name) || names.iter().any(|group| groups.contains_key(group)) {
            return MissingParts::None;
        }
        let of_pods = names.iter().find(|group| self.named_groups.contains(*group));
        match of_pods.or_else(|| self.groups_of_pods.get(&name)) {
            Some(group) => MissingParts::Group(group.clone()),
            None => MissingParts::All,
        }
    }
}

/// Parts of a Job that the files lack.
#[derive(Debug)]
enum MissingParts {
    /// The Job has ended, and nothing of it waits.
    NoneOfEnded,
    /// The pod group is in the files.
    None,
    /// Pods are in the files, which name this group.
    Group(String),
    /// The pod group and the pods.
    All,
}

/// Job, and what it adds to the records.
#[derive(Debug)]
pub(super) struct VolcanoJob {
    /// Job as the files have it.
    pub(super) object: Value,
    parts: MissingParts,
}

/// Pod group and pods that the controller would make of a Job.
#[derive(Debug, Default)]
pub(super) struct SplitJob {
    /// Pod group; `None`: it is in the files, or the Job has ended.
    pub(super) group: Option<Value>,
    /// Pods that are not in the files.
    pub(super) pods: Vec<DerivedPod>,
}

/// Pod of a Job.
#[derive(Debug)]
pub(super) struct DerivedPod {
    /// Pod as the controller would create it.
    pub(super) object: Value,
    /// Field of its role that no record has and that delays it; `None`: there is none.
    pub(super) unevaluated: Option<&'static str>,
}

impl VolcanoJob {
    /// Note for people: what the Job is read as.
    pub(super) fn note(&self) -> &'static str {
        match self.parts {
            MissingParts::NoneOfEnded => "Jobs of Volcano that have ended: not read",
            MissingParts::None => "Jobs of Volcano beside their pod groups: only the pod groups and pods are read",
            MissingParts::Group(_) => "Jobs of Volcano beside their pods: read as the pod groups that the pods name",
            MissingParts::All => "Jobs of Volcano: read as the pod groups and pods that its controller makes of them",
        }
    }

    /// Records that the Job adds. A missing `minAvailable` means all pods; a task without a name is called `default` and its
    /// index, from 0.
    ///
    /// # Errors
    /// A field cannot be used.
    pub(super) fn split(&self) -> Result<SplitJob, FieldError> {
        let split = match self.parts {
            MissingParts::NoneOfEnded | MissingParts::None => return Ok(SplitJob::default()),
            MissingParts::Group(_) | MissingParts::All => split(&self.object)?,
        };
        let MissingParts::Group(name) = &self.parts else {
            return Ok(split);
        };
        let mut group = split.group;
        if let Some(group) = &mut group {
            let own = name.split_once('/').map_or(name.as_str(), |(_, own)| own);
            if let Some(name) = group.pointer_mut("/metadata/name") {
                *name = json!(own);
            }
            if let Some(group) = group.as_object_mut() {
                group.insert("status".to_owned(), json!({"phase": "Inqueue"}));
            }
        }
        Ok(SplitJob {
            group,
            pods: Vec::new(),
        })
    }
}

fn split(job: &Value) -> Result<SplitJob, FieldError> {
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
            pods.push(DerivedPod {
                object: pod(
                    template,
                    [(GROUP_ANNOTATION, &name), (ROLE_ANNOTATION, &own)],
                    &namespace,
                    &format!("{name}-{own}-{number}"),
                    [("schedulerName", &scheduler), ("priorityClassName", &class)],
                ),
                unevaluated: get(task, "dependsOn").map(|_| "dependsOn"),
            });
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
    Ok(SplitJob {
        group: Some(group),
        pods,
    })
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
