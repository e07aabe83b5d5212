//! Relations between records: the priorities of jobs and tasks by their classes, and the groups of a job's tasks.
//!
//! A record stores the value of its relation from the time when it was put. Code that changes a class or a job must put
//! the outdated records again.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ClusterState;
use crate::model::LabelKinds;
use crate::model::gang::{GangMember, GangMinimums, PreemptionPolicy};
use crate::model::priority_classes::{PriorityClassRecord, PriorityClasses};
use crate::model::records::{JobRecord, TaskRecord};
use crate::model::stored::StoredRecord;
use crate::model::table::SortedTable;
use crate::model::text_map::find_text;

impl ClusterState {
    /// Priority classes by name.
    pub fn priority_classes(&self) -> &SortedTable<Arc<StoredRecord<PriorityClassRecord>>> {
        &self.priority_classes
    }

    /// Values of the priority classes.
    pub fn class_values(&self) -> &PriorityClasses {
        &self.class_values
    }

    /// Puts a priority class, replacing the one of its name.
    pub fn put_priority_class(&mut self, record: PriorityClassRecord, source: &Arc<str>) {
        Arc::make_mut(&mut self.class_values).insert(&record);
        let stored = self.store_record(record, source);
        self.priority_classes.insert(Arc::clone(&stored.record.name), stored);
    }

    /// Removes a priority class. Returns false if it does not exist.
    pub fn remove_priority_class(&mut self, name: &str) -> bool {
        Arc::make_mut(&mut self.class_values).remove(name);
        self.priority_classes.remove(name).is_some()
    }

    /// Kinds of records whose labels the relations read: tasks, if a job defines the groups of its tasks by labels.
    pub fn labels_of_relations(&self) -> LabelKinds {
        LabelKinds {
            nodes: false,
            tasks: self.group_finders > 0,
        }
    }

    /// Removes a replaced or removed job from the number of group finders.
    pub(super) fn forget_group_finder(&mut self, job: Option<&StoredRecord<JobRecord>>) {
        let found = job.is_some_and(|job| job.record.finds_groups());
        self.group_finders = self.group_finders.saturating_sub(usize::from(found));
    }

    /// Gives a job the priority of its class.
    pub fn relate_job(&self, job: &mut JobRecord) {
        if let Some(class) = job.class_of_priority() {
            job.priority = self.class_priority(class);
        }
    }

    /// Gives a task the priority of its class, and the group by the policies of its job.
    pub fn relate_task(&self, task: &mut TaskRecord) {
        let priority = task.class_of_priority().map(|class| self.class_priority(class));
        if let Some(value) = priority.filter(|value| *value != task.priority) {
            Arc::make_mut(&mut task.shape).priority = value;
        }
        let Some(group) = self.group_of(task) else { return };
        if task.sub_group() != group {
            let shape = Arc::make_mut(&mut task.shape);
            let gang = GangMember {
                sub_group: group.into(),
                ..shape.gang.take().map(Arc::unwrap_or_clone).unwrap_or_default()
            };
            shape.gang = gang.into_field();
        }
    }

    /// True if no task is evicted for this one, by its pod or by its priority class.
    pub fn never_preempts(&self, task: &TaskRecord) -> bool {
        let Some(own) = &task.gang else { return false };
        match own.preemption_policy {
            PreemptionPolicy::Never => true,
            PreemptionPolicy::LowerPriority => false,
            PreemptionPolicy::OfClass => {
                let has_class = !own.priority_class.is_empty() || own.priority_from_class.is_some();
                has_class && self.class_values.never_preempts(&own.priority_class)
            }
        }
    }

    /// Priority by a class, given with the priority without it.
    fn class_priority(&self, (class, otherwise): (&str, i32)) -> i32 {
        self.class_values.value(class).unwrap_or(otherwise)
    }

    /// Group of a task whose job defines groups by labels. Empty: the task is not in a group. `None`: the task names
    /// its group itself.
    fn group_of(&self, task: &TaskRecord) -> Option<String> {
        if task.job.is_empty() {
            return None;
        }
        let gang = self.jobs.get(&task.job)?.record.gang.as_ref()?;
        let label = |key: &str| find_text(&task.labels, key);
        gang.finds_groups().then(|| gang.group_of(&label).unwrap_or_default())
    }

    /// Jobs that have another priority than their class gives now.
    pub fn outdated_jobs(&self) -> Vec<Arc<str>> {
        let jobs = self.jobs.iter();
        let outdated = jobs.filter(|(_, stored)| {
            let class = stored.record.class_of_priority();
            class.is_some_and(|class| self.class_priority(class) != stored.record.priority)
        });
        outdated.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Tasks whose priority differs from the present value of their class, or whose group differs from the present
    /// policies of its job, if the job is in `jobs`.
    pub fn outdated_tasks(&self, jobs: &BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
        let tasks = self.tasks.iter();
        let outdated = tasks.filter(|(_, stored)| {
            let task = &stored.record;
            let class = task.class_of_priority();
            let is_in_other_group = || self.group_of(task).is_some_and(|group| *group != *task.sub_group());
            class.is_some_and(|class| self.class_priority(class) != task.priority)
                || jobs.contains(&task.job) && is_in_other_group()
        });
        outdated.map(|(name, _)| Arc::clone(name)).collect()
    }
}

impl JobRecord {
    /// Class whose value is the priority of the job, and the priority without it; `None`: the job has a number of its own.
    pub fn class_of_priority(&self) -> Option<(&str, i32)> {
        let own = self.gang.as_ref()?.priority_class.as_ref()?;
        Some((&own.class, own.otherwise))
    }

    /// True if the groups of the job's tasks are found by their labels.
    pub fn finds_groups(&self) -> bool {
        self.gang.as_deref().is_some_and(GangMinimums::finds_groups)
    }
}
