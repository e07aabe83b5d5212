//! Priority classes: the numbers of pods and pod groups that name their priority by class.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ImportWarning;
use super::fields::{FieldError, boolean, get, integer, required_text, text};
use pumice_protocol::v1 as pb;

/// Classes that every cluster has.
const BUILT_IN: [(&str, i32); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];
/// The annotation that sets a task's priority under Volcano's rules.
const TASK_PRIORITY: &str = "volcano.sh/task-priority";

/// The classes of the files, and the records that wait for them: a class may stand behind its pods.
#[derive(Debug, Default)]
pub(super) struct PriorityClasses {
    values: BTreeMap<String, i32>,
    /// Value of the class with `globalDefault`; of several the least, as Kubernetes has it.
    global_default: Option<i32>,
    /// Class by task, for tasks without a number of their own; empty: no class is named.
    tasks: BTreeMap<String, String>,
    /// Class by job; empty: no class is named.
    jobs: BTreeMap<String, String>,
}

impl PriorityClasses {
    /// Reads a `PriorityClass`.
    pub(super) fn add_class(&mut self, object: &Value) -> Result<(), FieldError> {
        let name = required_text(object, "metadata.name")?;
        let value = integer(object, "value")?.ok_or_else(|| FieldError::new("value", "is missing"))?;
        if boolean(object, "globalDefault")?.unwrap_or_default() {
            self.global_default = Some(self.global_default.map_or(value, |other| other.min(value)));
        }
        self.values.insert(name, value);
        Ok(())
    }

    /// Notes the class of a pod, unless the pod has a number.
    pub(super) fn add_task(&mut self, object: &Value, task: &pb::Task) -> Result<(), FieldError> {
        let annotated = task.annotations.get(TASK_PRIORITY).and_then(|text| text.parse().ok());
        if get(object, "spec.priority").is_some() || annotated == Some(task.priority) {
            self.tasks.remove(&task.name);
        } else {
            let class = text(object, "spec.priorityClassName")?;
            self.tasks.insert(task.name.clone(), class);
        }
        Ok(())
    }

    /// Notes the class of a pod group.
    pub(super) fn add_job(&mut self, object: &Value, job: &pb::Job) -> Result<(), FieldError> {
        let class = text(object, "spec.priorityClassName")?;
        self.jobs.insert(job.name.clone(), class);
        Ok(())
    }

    /// Puts the values of the classes into the records. A record whose class is not there, or that names none, has the
    /// global default if there is one.
    pub(super) fn apply(&self, jobs: &mut BTreeMap<String, pb::Job>, tasks: &mut BTreeMap<String, pb::Task>) {
        for (name, class) in &self.jobs {
            if let (Some(job), Some(value)) = (jobs.get_mut(name), self.value_or_default(class)) {
                job.priority = value;
            }
        }
        for (name, class) in &self.tasks {
            if let (Some(task), Some(value)) = (tasks.get_mut(name), self.value_or_default(class)) {
                task.priority = value;
            }
        }
    }

    /// A warning for each record whose class is not in the files.
    pub(super) fn warnings(&self) -> impl Iterator<Item = ImportWarning> {
        let jobs = self.jobs.iter().map(|(name, class)| ("job", name, class));
        let tasks = self.tasks.iter().map(|(name, class)| ("task", name, class));
        jobs.chain(tasks)
            .filter(|(_, _, class)| !class.is_empty() && self.value(class).is_none())
            .map(|(kind, name, class)| ImportWarning {
                code: "UNKNOWN_PRIORITY_CLASS",
                subject: format!("{kind} {name}"),
                message: format!(
                    "no PriorityClass `{class}` is in the files; {}",
                    match self.global_default {
                        Some(value) => format!("the global default {value} counts"),
                        None => "the priority is that of a record without a class".to_owned(),
                    }
                ),
            })
    }

    fn value_or_default(&self, class: &str) -> Option<i32> {
        self.value(class).or(self.global_default)
    }

    fn value(&self, class: &str) -> Option<i32> {
        let built_in = || {
            BUILT_IN
                .iter()
                .find(|(name, _)| *name == class)
                .map(|(_, value)| *value)
        };
        self.values.get(class).copied().or_else(built_in)
    }
}
