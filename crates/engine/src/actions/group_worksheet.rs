//! Allocate for jobs with policies about groups (`subGroupPolicy`): one group after the other, and a group gets the tasks
//! that it needs or none.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::allocation_unit::{AllocationUnit, TaskHeap};
use super::session::ActionSession;
use super::statement::ActionStatement;
use crate::decide::{SchedulingHeap, is_group_pipelined, is_group_ready};
use crate::model::{JobRecord, Problem, TaskRecord};
use crate::plugin::TaskGroup;

/// Groups of a job that still get tasks, in a heap.
#[derive(Clone, Debug)]
pub(super) struct GroupWorksheet {
    heap: SchedulingHeap<usize>,
    groups: Vec<WaitingGroup>,
}

/// Group with the tasks that wait.
#[derive(Clone, Debug)]
struct WaitingGroup {
    /// Name of the group; empty: the tasks that no policy is about.
    name: Arc<str>,
    /// Name of its policy; empty: none.
    policy: Arc<str>,
    /// Number that the group's value is, 0 if it is none: groups of one priority go by it.
    value: i64,
    /// Highest priority of its tasks, at least 0.
    priority: i32,
    /// True if the job needs the group to be ready.
    is_required: bool,
    /// Number of all tasks.
    tasks: usize,
    waiting: TaskHeap,
}

impl WaitingGroup {
    fn of(name: &Arc<str>, tasks: &[&TaskRecord]) -> Self {
        let (policy, value) = name.rsplit_once('/').unwrap_or_default();
        Self {
            name: Arc::clone(name),
            policy: Arc::from(policy),
            value: value.parse().unwrap_or(0),
            priority: tasks.iter().map(|task| task.priority).max().unwrap_or(0).max(0),
            is_required: false,
            tasks: tasks.len(),
            waiting: TaskHeap::new(),
        }
    }

    /// The group as plugins judge it.
    fn judged<'a>(&'a self, job: &'a JobRecord) -> TaskGroup<'a> {
        TaskGroup {
            job,
            name: &self.name,
            priority: self.priority,
        }
    }

    /// Text by which the reference orders groups that are equal otherwise.
    fn identity(&self) -> String {
        self.name.replacen('/', "-", 1)
    }
}

impl GroupWorksheet {
    /// True if no group gets more tasks.
    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    fn push(&mut self, session: &ActionSession<'_>, job: &JobRecord, group: usize) {
        let Self { heap, groups } = self;
        heap.push(group, |left, right| session.is_group_before(job, groups, left, right));
    }

    fn pop(&mut self, session: &ActionSession<'_>, job: &JobRecord) -> Option<usize> {
        let Self { heap, groups } = self;
        heap.pop(|left, right| session.is_group_before(job, groups, left, right))
    }
}

impl ActionSession<'_> {
    /// Groups of a job with these tasks that wait; `None`: the job has no policies about groups.
    pub(super) fn group_worksheet(&self, job: usize, pending: &[usize]) -> Option<GroupWorksheet> {
        let record = self.job_record(job)?;
        let policies = &record.gang.as_ref()?.sub_groups;
        if policies.is_empty() {
            return None;
        }
        let mut sheet = GroupWorksheet {
            heap: SchedulingHeap::new(),
            groups: self.groups_of(job),
        };
        self.mark_required(record, &mut sheet.groups);
        for task in pending {
            let name = self.tasks.get(*task).map_or("", |task| task.stored.record.sub_group());
            let group = sheet.groups.binary_search_by(|group| (*group.name).cmp(name));
            if let Some(group) = group.ok().and_then(|group| sheet.groups.get_mut(group)) {
                group
                    .waiting
                    .push(*task, |left, right| self.numbered_task_less(left, right));
            }
        }
        for group in 0..sheet.groups.len() {
            if sheet.groups.get(group).is_some_and(|group| !group.waiting.is_empty()) {
                sheet.push(self, record, group);
            }
        }
        Some(sheet)
    }

    /// All groups of a job, by name.
    fn groups_of(&self, job: usize) -> Vec<WaitingGroup> {
        let mut groups: BTreeMap<Arc<str>, Vec<&TaskRecord>> = BTreeMap::new();
        for task in self.jobs.get(job).map_or(&[][..], |job| &job.tasks) {
            if let Some(task) = self.tasks.get(*task).map(|task| &task.stored.record) {
                groups.entry(Arc::from(task.sub_group())).or_default().push(task);
            }
        }
        groups
            .iter()
            .map(|(name, tasks)| WaitingGroup::of(name, tasks))
            .collect()
    }

    /// Marks the first groups of each policy that must become ready before the job can start.
    fn mark_required(&self, job: &JobRecord, groups: &mut [WaitingGroup]) {
        let policies = job.gang.iter().flat_map(|gang| &gang.sub_groups);
        // Of two policies of one name the last number counts.
        let mut missing: BTreeMap<&str, i32> = policies
            .map(|policy| (&*policy.name, policy.min_groups.unwrap_or(0)))
            .collect();
        let is_ready = |group: &WaitingGroup| is_group_ready(self.policy, self.context(), group.judged(job));
        let mut waiting: Vec<usize> = Vec::new();
        for (number, group) in groups.iter().enumerate() {
            if !is_ready(group) {
                waiting.push(number);
            } else if let Some(missing) = missing.get_mut(&*group.policy).filter(|_| !group.name.is_empty()) {
                *missing = missing.saturating_sub(1);
            }
        }
        let compare = |left: &usize, right: &usize| match (groups.get(*left), groups.get(*right)) {
            (Some(own), Some(other)) => self.compare_groups(job, own, other),
            _ => Ordering::Equal,
        };
        waiting.sort_by(compare);
        for number in waiting {
            let Some(group) = groups.get_mut(number).filter(|group| !group.name.is_empty()) else {
                continue;
            };
            if let Some(missing) = missing.get_mut(&*group.policy).filter(|missing| **missing > 0) {
                *missing -= 1;
                group.is_required = true;
            }
        }
    }

    /// True if a group gets tasks before another group. Groups that the job needs come first.
    fn is_group_before(&self, job: &JobRecord, groups: &[WaitingGroup], left: usize, right: usize) -> bool {
        let (Some(own), Some(other)) = (groups.get(left), groups.get(right)) else {
            return false;
        };
        let required = other.is_required.cmp(&own.is_required);
        required.then_with(|| self.compare_groups(job, own, other)).is_lt()
    }

    /// Order of two groups of a job: by the plugins, by the number that their value is, by name.
    fn compare_groups(&self, job: &JobRecord, own: &WaitingGroup, other: &WaitingGroup) -> Ordering {
        let key = |group: &WaitingGroup| {
            let hooks = self.policy.hooks().group_orders.iter();
            let keys = hooks.filter_map(|hook| hook.plugin.group_key(self.context(), group.judged(job)));
            keys.flatten().collect::<Vec<f64>>()
        };
        let (keys, others) = (key(own), key(other));
        let mut pairs = keys.iter().zip(&others).map(|(own, other)| own.total_cmp(other));
        let by_plugins = pairs.find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
        by_plugins.then_with(|| (own.value, own.identity()).cmp(&(other.value, other.identity())))
    }

    /// Places tasks of a job group by group until the job is ready; true: it is, and groups with tasks are left.
    pub(super) fn allocate_groups(&mut self, job: usize, sheet: &mut GroupWorksheet) -> Result<bool, Problem> {
        let Some(record) = self.job_record(job).cloned() else {
            return Ok(false);
        };
        let mut left = sheet.clone();
        let mut statement = ActionStatement::default();
        while let Some(number) = left.pop(self, &record) {
            let Some(group) = left.groups.get_mut(number) else {
                continue;
            };
            let Some((part, waiting)) = self.allocate_group(job, &record, group)? else {
                continue;
            };
            group.waiting = waiting;
            let has_more = !group.waiting.is_empty();
            statement.append(part);
            if has_more {
                left.push(self, &record, number);
            }
            if self.is_ready(job) {
                break;
            }
        }
        if statement.is_empty() {
            return Ok(false);
        }
        let is_ready = self.is_ready(job);
        if !is_ready && !self.is_pipelined(job) {
            self.discard(statement)?;
            return Ok(false);
        }
        *sheet = left;
        // The places of a job that is pipelined stay taken, and no bind is sent.
        if !is_ready {
            self.report_waiting(statement);
            return Ok(false);
        }
        self.commit_ready(job, statement);
        Ok(!sheet.is_empty())
    }

    /// Places tasks of a group until it is ready: the changes, and the tasks that still wait. `None`: nothing was placed, or
    /// the group is neither ready nor pipelined, and all changes were undone.
    fn allocate_group(
        &mut self,
        job: usize,
        record: &JobRecord,
        group: &WaitingGroup,
    ) -> Result<Option<(ActionStatement, TaskHeap)>, Problem> {
        if let Some(job) = self.jobs.get_mut(job) {
            // Failures count within one attempt of one group.
            job.failed_roles = BTreeSet::new();
        }
        let mut statement = ActionStatement::default();
        let mut waiting = group.waiting.clone();
        let size = record.gang.as_ref().map_or(1, |gang| gang.group_size(&group.name));
        let job_tasks = self.jobs.get(job).map_or(0, |job| job.tasks.len());
        let unit = AllocationUnit {
            job,
            group: Some(group.judged(record)),
            needs_all_tasks: usize::try_from(record.min_member) == Ok(job_tasks)
                || usize::try_from(size).is_ok_and(|size| size >= group.tasks),
        };
        self.allocate_one_by_one(unit, &mut waiting, &mut statement)?;
        let judged = group.judged(record);
        let keeps = is_group_ready(self.policy, self.context(), judged)
            || is_group_pipelined(self.policy, self.context(), judged);
        if keeps && !statement.is_empty() {
            return Ok(Some((statement, waiting)));
        }
        self.discard(statement)?;
        Ok(None)
    }
}
