//! Jobs of Volcano. Pod groups and pods that the files show outrank derived ones: a Job beside them adds nothing, a Job
//! whose pods stand alone adds their pod group, and any other one the pod group and the pods that its controller would make.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::names::{GROUP_NAME, INHERITED_ANNOTATIONS, TASK_ROLE};
use crate::object::ObjectKind;
use crate::object::fields::{FieldError, get, integer, list, namespaced, required_text, text};
use pumice_protocol::v1 as pb;

/// API group of Volcano's jobs.
const VOLCANO_BATCH_GROUP: &str = "batch.volcano.sh";
/// Maximum number of pods that a Job is split into.
const MAX_PODS: i64 = 100_000;
/// Annotation and label of a pod that name its Job.
const JOB_NAME: &str = "volcano.sh/job-name";
/// Field of a role that makes its pods wait for those of other roles. No record has it.
pub(super) const DEPENDS_ON: &str = "dependsOn";
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

/// True of the version and the kind of a Job of Volcano.
pub(super) fn is_volcano_job(version: &str, kind: &str) -> bool {
    kind == "Job"
        && version
            .split_once('/')
            .is_some_and(|(group, _)| group == VOLCANO_BATCH_GROUP)
}

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

    /// Notes the Jobs of Volcano that own a pod group.
    pub(super) fn observe_group(&mut self, group: &Value) {
        let namespace = text(group, "metadata.namespace").unwrap_or_default();
        for owner in list(group, "metadata.ownerReferences").unwrap_or_default() {
            let of = |field| text(owner, field).unwrap_or_default();
            if is_volcano_job(&of("apiVersion"), &of("kind")) {
                let name = ObjectKind::PodGroup.record_name(&namespace, &of("name"));
                self.owners_of_groups.insert(name);
            }
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

    /// Jobs with the parts that each adds to the records. `has_group`: whether the files have a pod group of this name.
    pub(super) fn into_jobs(mut self, has_group: impl Fn(&str) -> bool) -> Vec<VolcanoJob> {
        let objects = std::mem::take(&mut self.objects).into_iter();
        let jobs = objects.map(|object| VolcanoJob {
            parts: self.parts(&object, &has_group),
            object,
        });
        jobs.collect()
    }

    fn parts(&self, job: &Value, has_group: impl Fn(&str) -> bool) -> MissingParts {
        if text(job, "status.state.phase").is_ok_and(|phase| LAST_PHASES.contains(&phase.as_str())) {
            return MissingParts::NoneOfEnded;
        }
        let name = namespaced(job).unwrap_or_default();
        // Volcano names the group of a Job by both; its older releases by the name only.
        let uid = text(job, "metadata.uid").unwrap_or_default();
        let names = [format!("{name}-{uid}"), name.clone()];
        if self.owners_of_groups.contains(&name) || names.iter().any(|group| has_group(group)) {
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
    /// The Job has ended: the controller makes no pods of it.
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
    /// True if its role [depends on](DEPENDS_ON) others.
    pub(super) waits_for_others: bool,
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

    /// Parts of the records that the Job adds. A missing `minAvailable` means all pods; a task without a name is called `default`
    /// and its index, from 0.
    ///
    /// # Errors
    /// A field cannot be used.
    pub(super) fn split(&self) -> Result<SplitJob, FieldError> {
        let job = &self.object;
        let (group, with_pods) = match &self.parts {
            MissingParts::NoneOfEnded | MissingParts::None => return Ok(SplitJob::default()),
            MissingParts::Group(name) => (
                name.split_once('/').map_or(name.as_str(), |(_, own)| own).to_owned(),
                false,
            ),
            MissingParts::All => (required_text(job, "metadata.name")?, true),
        };
        let roles = roles(job)?;
        Ok(SplitJob {
            // Pods that are there were made after the group was enqueued.
            group: Some(pod_group(job, &roles, &group, (!with_pods).then_some("Inqueue"))?),
            pods: if with_pods { pods(job, &roles)? } else { Vec::new() },
        })
    }
}

/// Pods of one template, which `spec.tasks` of a Job lists.
struct JobRole<'j> {
    name: String,
    replicas: i64,
    /// Number of pods without which the Job does not start.
    least: i64,
    template: &'j Value,
    waits_for_others: bool,
}

fn roles(job: &Value) -> Result<Vec<JobRole<'_>>, FieldError> {
    let mut roles: Vec<JobRole<'_>> = Vec::new();
    let mut left = MAX_PODS;
    for (place, task) in list(job, "spec.tasks")?.iter().enumerate() {
        let field = |name: &str| format!("spec.tasks[{place}].{name}");
        let replicas: i64 = integer(task, "replicas")?.unwrap_or(1).into();
        if !(0..=left).contains(&replicas) {
            let message = format!("{replicas} is below 0, or the Job has more than {MAX_PODS} pods");
            return Err(FieldError::new(field("replicas"), message));
        }
        left -= replicas;
        let name = match text(task, "name")? {
            own if own.is_empty() => format!("default{place}"),
            own => own,
        };
        let Some(template) = get(task, "template").filter(|template| template.is_object()) else {
            return Err(FieldError::new(field("template"), "is missing"));
        };
        roles.push(JobRole {
            name,
            replicas,
            least: integer(task, "minAvailable")?.map_or(replicas, i64::from),
            template,
            waits_for_others: get(task, DEPENDS_ON).is_some(),
        });
    }
    Ok(roles)
}

fn pod_group(job: &Value, roles: &[JobRole<'_>], name: &str, phase: Option<&str>) -> Result<Value, FieldError> {
    let least: Map<String, Value> = roles
        .iter()
        .map(|role| (role.name.clone(), json!(role.least)))
        .collect();
    let all: i64 = roles.iter().map(|role| role.replicas).sum();
    Ok(json!({
        "metadata": {
            "name": name,
            "namespace": text(job, "metadata.namespace")?,
            "annotations": get(job, "metadata.annotations"),
            "labels": get(job, "metadata.labels"),
            "creationTimestamp": get(job, "metadata.creationTimestamp"),
        },
        "spec": {
            "queue": text(job, "spec.queue")?,
            "priorityClassName": text(job, "spec.priorityClassName")?,
            "minTaskMember": least,
            "minMember": integer(job, "spec.minAvailable")?.map_or(all, i64::from),
        },
        "status": {"phase": phase},
    }))
}

/// Pods of all replicas. The Job sets fields of their specs that the templates do not have.
fn pods(job: &Value, roles: &[JobRole<'_>]) -> Result<Vec<DerivedPod>, FieldError> {
    let name = required_text(job, "metadata.name")?;
    let namespace = text(job, "metadata.namespace")?;
    let defaults = [
        ("schedulerName", text(job, "spec.schedulerName")?),
        ("priorityClassName", text(job, "spec.priorityClassName")?),
    ];
    let annotations = get(job, "metadata.annotations");
    let own = |key: &&str| Some(((*key).to_owned(), annotations?.get(*key)?.clone()));
    let inherited: Map<String, Value> = INHERITED_ANNOTATIONS.iter().filter_map(own).collect();
    let mut pods = Vec::new();
    for role in roles {
        let mut annotations = inherited.clone();
        let of_template = get(role.template, "metadata.annotations").and_then(Value::as_object);
        annotations.extend(of_template.cloned().unwrap_or_default());
        annotations.insert(GROUP_NAME.to_owned(), json!(name));
        annotations.insert(TASK_ROLE.to_owned(), json!(role.name));
        let mut spec = get(role.template, "spec").cloned().unwrap_or_default();
        for (field, value) in &defaults {
            if let (Some(spec), false) = (spec.as_object_mut(), value.is_empty()) {
                spec.entry(*field).or_insert_with(|| json!(value));
            }
        }
        pods.extend((0..role.replicas).map(|number| DerivedPod {
            object: json!({
                "metadata": {
                    "name": format!("{name}-{}-{number}", role.name),
                    "namespace": namespace,
                    "annotations": annotations,
                    "labels": get(role.template, "metadata.labels"),
                    "ownerReferences": [{"kind": "Job"}],
                },
                "spec": spec,
            }),
            waits_for_others: role.waits_for_others,
        }));
    }
    Ok(pods)
}
