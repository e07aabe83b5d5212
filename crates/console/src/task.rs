//! Tasks of queries on the command line, for example `--cpu 8 --request gpu=1`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::args::pair;
use crate::constraint_args::ConstraintArgs;
use crate::{CommandError, files, resource_key};
use pumice_kubernetes::import::{AmountRules, ClusterImport, own_group_queue};
use pumice_protocol::v1 as pb;

/// Task of a query: resource requests and constraints, the name of a stored task, or a file with pods.
#[derive(Debug, Args)]
#[group(
    required = true,
    multiple = true,
    args = ["cpu", "memory", "request", "annotation", "task", "file", "selector", "affinity", "toleration", "host_port"]
)]
pub struct TaskArgs {
    /// CPU that the task requests, such as 2 or 500m
    #[arg(long, value_name = "QUANTITY")]
    cpu: Option<String>,
    /// Memory that the task requests, such as 4Gi
    #[arg(long, value_name = "QUANTITY")]
    memory: Option<String>,
    /// Another requested resource, such as nvidia.com/gpu=1; `gpu` is short for nvidia.com/gpu; repeatable
    #[arg(long, value_name = "NAME=QUANTITY", value_parser = request_pair)]
    request: Vec<(String, String)>,
    /// Annotation of the task, such as volcano.sh/card.name=A100; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    annotation: Vec<(String, String)>,
    #[command(flatten)]
    constraints: ConstraintArgs,
    /// Name of a stored task, such as train/bert-worker-1
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = ["cpu", "memory", "request", "annotation", "selector", "affinity", "toleration", "host_port", "file"]
    )]
    task: Option<String>,
    /// File with pods (YAML or JSON)
    #[arg(
        short,
        long,
        value_name = "FILE",
        conflicts_with_all = ["cpu", "memory", "request", "annotation", "selector", "affinity", "toleration", "host_port"]
    )]
    pub(crate) file: Option<PathBuf>,
}

impl TaskArgs {
    /// Tasks of the question.
    pub fn tasks(&self, counting: AmountRules) -> Result<Vec<pb::Task>, CommandError> {
        if let Some(name) = &self.task {
            return Ok(vec![pb::Task {
                name: name.clone(),
                ..pb::Task::default()
            }]);
        }
        if let Some(file) = &self.file {
            return pods(file, counting);
        }
        let mut items: BTreeMap<String, String> = self.request.iter().cloned().collect();
        items.extend(self.cpu.clone().map(|amount| ("cpu".to_owned(), amount)));
        items.extend(self.memory.clone().map(|amount| ("memory".to_owned(), amount)));
        Ok(vec![pb::Task {
            annotations: self.annotation.iter().cloned().collect(),
            requests: Some(pb::ResourceList { items }),
            constraints: self.constraints.constraints(),
            ..pb::Task::default()
        }])
    }
}

/// Pods of a file, as tasks.
pub fn pods(file: &Path, counting: AmountRules) -> Result<Vec<pb::Task>, CommandError> {
    let mut import = ClusterImport::new(counting);
    import.read(&file.display().to_string(), &files::read_text(file)?)?;
    let imported = import.finish();
    if let Some(refused) = imported.rejected.first() {
        let problem = format!("{}: {}", refused.object, refused.error);
        return Err(CommandError::file_error(file, &problem));
    }
    let tasks = imported.cluster.tasks;
    if tasks.is_empty() {
        return Err(CommandError::file_error(file, &"no pod in this file"));
    }
    Ok(tasks)
}

/// Job that Volcano makes of a pod without a PodGroup: of this pod alone, in the queue that its annotation names, or in
/// `default`. It is enqueued, as its pod is there already.
pub fn job_of_one(task: &pb::Task) -> pb::Job {
    pb::Job {
        name: task.name.clone(),
        queue: own_group_queue(task).to_owned(),
        priority: task.priority,
        creation_time: task.creation_time,
        phase: pb::JobPhase::Inqueue.into(),
        min_member: 1,
        ..pb::Job::default()
    }
}

/// Tasks as groups to place, in their order. Neighbours that differ in name and age only form one group; `count` is the
/// number of tasks to place for each pod.
pub fn task_groups(tasks: Vec<pb::Task>, count: u32) -> Vec<pb::TaskGroup> {
    let mut groups: Vec<pb::TaskGroup> = Vec::new();
    for task in tasks {
        let task = pb::Task {
            uid: String::new(),
            node: String::new(),
            status: pb::TaskStatus::Unspecified.into(),
            creation_time: None,
            ..task
        };
        let nameless = |task: &pb::Task| pb::Task {
            name: String::new(),
            ..task.clone()
        };
        let last = groups
            .last_mut()
            .filter(|last| last.task.as_ref().map(nameless) == Some(nameless(&task)));
        match last {
            Some(last) => last.count = last.count.map(|before| before.saturating_add(count)),
            None => groups.push(pb::TaskGroup {
                task: Some(task),
                count: Some(count),
                ..pb::TaskGroup::default()
            }),
        }
    }
    groups
}

/// Reads `NAME=QUANTITY` of a resource.
fn request_pair(text: &str) -> Result<(String, String), String> {
    let (name, amount) = pair(text)?;
    Ok((resource_key::full_name(&name)?, amount))
}
