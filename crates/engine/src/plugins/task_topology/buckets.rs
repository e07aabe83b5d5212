//! Buckets of a job: tasks that the affinities of their roles put together, preferably on one node.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::affinities::RoleAffinities;
use super::task_role;
use crate::held_bytes::held_bytes;
use crate::model::{JobRecord, ResourceAmounts, ResourceId, TaskRecord, TaskStatus};
use crate::policy::Compatibility;

const MIB: f64 = 1024.0 * 1024.0;

/// Tasks that belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TaskBucket {
    /// Requests of the waiting tasks, by name.
    pub(super) waiting: BTreeMap<Arc<str>, ResourceAmounts>,
    /// Sum of their requests.
    pub(super) request: BTreeMap<ResourceId, i128>,
    /// Numbers of tasks by role, the placed ones included.
    roles: BTreeMap<Arc<str>, i64>,
    /// Numbers of placed tasks by node.
    nodes: BTreeMap<Arc<str>, i64>,
}

held_bytes! { TaskBucket { waiting, request, roles, nodes } }

impl TaskBucket {
    /// Measure of the waiting tasks' requests: 1 for 1m of cpu, 1 MiB of memory, or one unit of anything else.
    fn weight(&self) -> f64 {
        let weight = |(id, amount): (&ResourceId, &i128)| {
            if *id == ResourceId::MEMORY {
                *amount as f64 / MIB
            } else {
                *amount as f64
            }
        };
        self.request.iter().map(weight).sum()
    }

    fn size(&self) -> i64 {
        self.nodes.values().sum::<i64>() + i64::try_from(self.waiting.len()).unwrap_or(i64::MAX)
    }

    fn change_request(&mut self, requests: &ResourceAmounts, joins: bool) {
        for (id, amount) in requests.iter() {
            let sum = self.request.entry(id).or_default();
            *sum = if joins {
                *sum + i128::from(amount)
            } else {
                (*sum - i128::from(amount)).max(0)
            };
        }
    }

    fn add(&mut self, role: &Arc<str>, task: &TaskRecord) {
        *self.roles.entry(Arc::clone(role)).or_default() += 1;
        if !task.node.is_empty() {
            *self.nodes.entry(Arc::clone(&task.node)).or_default() += 1;
            return;
        }
        self.waiting.insert(Arc::clone(&task.name), task.requests.clone());
        self.change_request(&task.requests, true);
    }
}

/// Buckets of one job, and the affinities by which its tasks are divided.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct JobBuckets {
    pub(super) affinities: RoleAffinities,
    pub(super) buckets: Vec<TaskBucket>,
    /// Number of the bucket of each task that is in one.
    of_task: BTreeMap<Arc<str>, usize>,
    /// Number of tasks of the largest bucket when the buckets were made.
    pub(super) max_size: i64,
    /// Numbers of tasks by node and role that affinities of other tasks regard as placed there.
    on_node: BTreeMap<Arc<str>, BTreeMap<Arc<str>, i64>>,
}

held_bytes! { JobBuckets { affinities, buckets, of_task, on_node; max_size } }

impl JobBuckets {
    /// Buckets of a job with these tasks; `None`: no task waits, or the job has no topology that can be used.
    pub(super) fn of(job: &JobRecord, tasks: &[&TaskRecord], compatibility: Compatibility) -> Option<Self> {
        if !tasks.iter().any(|task| task.status == TaskStatus::Pending) {
            return None;
        }
        // The check of names reads the role of the label, too.
        let affinities = RoleAffinities::of(&job.annotations, |role| tasks.iter().any(|task| task.role() == role))?;
        let mut own = Self {
            affinities,
            ..Self::default()
        };
        let has_topology = |task: &&&TaskRecord| {
            let role = task_role(task, compatibility);
            !role.is_empty() && own.affinities.has_topology(role)
        };
        let mut in_buckets: Vec<&TaskRecord> = tasks.iter().filter(has_topology).copied().collect();
        let key = |task: &&TaskRecord| {
            let order = own.affinities.order_of(task_role(task, compatibility));
            let order = order.map(|number| if task.node.is_empty() { usize::MAX - number } else { 0 });
            (
                task.node.is_empty(),
                Arc::clone(&task.node),
                order,
                Arc::clone(&task.name),
            )
        };
        in_buckets.sort_by_cached_key(key);
        let mut by_node: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for task in in_buckets {
            let role = Arc::from(task_role(task, compatibility));
            let known = if task.node.is_empty() {
                own.best_bucket(&role)
            } else {
                by_node.get(&task.node).copied()
            };
            let at = known.unwrap_or(own.buckets.len());
            if known.is_none() {
                own.buckets.push(TaskBucket::default());
                if !task.node.is_empty() {
                    by_node.insert(&task.node, at);
                }
            }
            own.of_task.insert(Arc::clone(&task.name), at);
            if let Some(bucket) = own.buckets.get_mut(at) {
                bucket.add(&role, task);
                own.max_size = own.max_size.max(bucket.size());
            }
        }
        if compatibility == Compatibility::Corrected {
            for task in tasks.iter().filter(|task| task.status.is_on_node()) {
                own.count_on_node(task, 1, compatibility);
            }
        }
        Some(own)
    }

    /// Bucket with the largest affinity of a role, and among those one that requests less than those before it; `None`: a new one.
    fn best_bucket(&self, role: &str) -> Option<usize> {
        let mut best: Option<(usize, i64, f64)> = None;
        for (number, bucket) in self.buckets.iter().enumerate() {
            let affinity = self.affinities.affinity(role, &bucket.roles, false);
            let weight = bucket.weight();
            let is_better = best
                .is_none_or(|(_, known, known_weight)| affinity > known || affinity == known && weight < known_weight);
            if is_better {
                best = Some((number, affinity, weight));
            }
        }
        best.filter(|(_, affinity, _)| *affinity >= 0)
            .map(|(number, ..)| number)
    }

    /// Bucket of a task, with its number.
    pub(super) fn bucket_of(&self, task: &str) -> Option<(usize, &TaskBucket)> {
        let number = *self.of_task.get(task)?;
        Some((number, self.buckets.get(number)?))
    }

    /// Score of each node with tasks of the bucket, or with tasks that a role is kept from, before the waiting ones.
    pub(super) fn node_scores(&self, bucket: &TaskBucket, role: &str) -> BTreeMap<Arc<str>, i64> {
        let mut scores = bucket.nodes.clone();
        for (node, roles) in &self.on_node {
            let apart = self.affinities.affinity(role, roles, true);
            *scores.entry(Arc::clone(node)).or_default() += apart;
        }
        scores
    }

    fn count_on_node(&mut self, task: &TaskRecord, change: i64, compatibility: Compatibility) {
        let role = task_role(task, compatibility);
        if role.is_empty() {
            return;
        }
        let roles = self.on_node.entry(Arc::clone(&task.node)).or_default();
        *roles.entry(Arc::from(role)).or_default() += change;
    }

    /// Follows a task that was placed on its node.
    pub(super) fn place(&mut self, task: &TaskRecord, compatibility: Compatibility) {
        self.count_on_node(task, 1, compatibility);
        let at = self.of_task.get(&task.name).copied();
        let Some(bucket) = at.and_then(|at| self.buckets.get_mut(at)) else {
            return;
        };
        *bucket.nodes.entry(Arc::clone(&task.node)).or_default() += 1;
        let waited = bucket.waiting.remove(&task.name).is_some();
        // The reference subtracts the request of a task that it placed before once more.
        if waited || compatibility.is_upstream() {
            bucket.change_request(&task.requests, false);
        }
    }

    /// Follows a task that was taken off a node, under `corrected`.
    pub(super) fn withdraw(&mut self, before: &TaskRecord, after: &TaskRecord, compatibility: Compatibility) {
        self.count_on_node(before, -1, compatibility);
        let at = self.of_task.get(&before.name).copied();
        let Some(bucket) = at.and_then(|at| self.buckets.get_mut(at)) else {
            return;
        };
        *bucket.nodes.entry(Arc::clone(&before.node)).or_default() -= 1;
        if after.status == TaskStatus::Pending {
            bucket.waiting.insert(Arc::clone(&before.name), before.requests.clone());
            bucket.change_request(&before.requests, true);
        }
    }
}
