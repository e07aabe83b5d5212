//! Order in which victims are evicted, by all plugins of the policy.

use std::sync::Arc;

use super::super::reduce_order::{self, TieBreakKey, compare_keys};
use super::super::reduce_victims::{self, VictimJobs, VictimRelation};
use crate::model::TaskRecord;
use crate::plugin::{OrderKey, PluginContext};
use crate::policy::{Policy, PolicyHook};

/// Positions of candidates in the order in which a scheduler would evict them for a preemptor: a heap, as in the reference.
pub fn eviction_order(
    context: PluginContext<'_>,
    policy: &Policy,
    preemptor: &TaskRecord,
    candidates: &[&TaskRecord],
) -> Vec<usize> {
    let order = VictimOrder::new(context, policy, preemptor, candidates);
    let positions = (0..candidates.len()).collect();
    reduce_victims::heap_order(positions, |left, right| order.is_before(*left, *right))
}

/// Keys of all candidates, and their jobs and queues.
struct VictimOrder<'a> {
    context: PluginContext<'a>,
    policy: &'a Policy,
    preemptor_queue: Arc<str>,
    candidates: &'a [&'a TaskRecord],
    /// Queue of each candidate's job. `None`: the job does not exist.
    queues: Vec<Option<Arc<str>>>,
    /// Keys of tasks and of their jobs, hook by hook, in the order of the candidates.
    task_keys: Vec<Vec<OrderKey>>,
    job_keys: Vec<Vec<OrderKey>>,
}

impl<'a> VictimOrder<'a> {
    fn new(
        context: PluginContext<'a>,
        policy: &'a Policy,
        preemptor: &TaskRecord,
        candidates: &'a [&'a TaskRecord],
    ) -> Self {
        let queue_of = |task: &TaskRecord| {
            let stored = context.cluster_state.jobs().get(&task.job);
            stored.map(|stored| Arc::clone(&stored.record.queue))
        };
        let jobs: Vec<Arc<str>> = candidates.iter().map(|task| Arc::clone(&task.job)).collect();
        let job_orders = policy.hooks().job_orders.iter();
        let job_keys = job_orders.filter_map(|hook| hook.plugin.job_keys(context, &jobs));
        let task_orders = policy.hooks().task_orders.iter();
        let task_keys = task_orders.filter_map(|hook| hook.plugin.task_keys(context, candidates));
        Self {
            context,
            policy,
            preemptor_queue: queue_of(preemptor).unwrap_or_default(),
            candidates,
            queues: candidates.iter().map(|task| queue_of(task)).collect(),
            task_keys: task_keys.collect(),
            job_keys: job_keys.collect(),
        }
    }

    fn is_before(&self, left: usize, right: usize) -> bool {
        let (Some(one), Some(other)) = (self.candidates.get(left), self.candidates.get(right)) else {
            return false;
        };
        let queue = |position: usize| self.queues.get(position).and_then(Option::as_ref);
        let relation = match (queue(left), queue(right)) {
            _ if one.job == other.job => VictimRelation::SameJob,
            (None, _) => VictimRelation::LeftJobMissing,
            (_, None) => VictimRelation::RightJobMissing,
            (Some(own), Some(their)) if own == their => VictimRelation::SameQueue,
            _ => VictimRelation::OtherQueue,
        };
        let name = |position: usize| queue(position).map_or("", |queue| &**queue);
        reduce_victims::evicted_first(
            relation,
            || self.task_less(left, right),
            || self.compare_jobs(left, right),
            || self.queue_less(name(left), name(right)),
        )
    }

    fn compare_jobs(&self, left: usize, right: usize) -> VictimJobs {
        let value = compare_columns(&self.job_keys, left, right);
        if self.policy.compatibility().release().rules().orders_victims_by_task {
            return VictimJobs::Compared(value);
        }
        let key = |position: usize| {
            let job = self.candidates.get(position).map_or("", |task| &*task.job);
            let stored = self.context.cluster_state.jobs().get(job);
            TieBreakKey {
                creation_time: stored.and_then(|stored| stored.record.creation_time),
                name: job,
            }
        };
        let is_first = reduce_order::less(std::iter::once(value), || key(left).compare_by_age(&key(right)));
        VictimJobs::Strict(is_first)
    }

    fn task_less(&self, left: usize, right: usize) -> bool {
        let key = |position: usize| {
            let task = self.candidates.get(position);
            TieBreakKey {
                creation_time: task.and_then(|task| task.creation_time.seconds()),
                name: task.map_or("", |task| &task.name),
            }
        };
        let values = std::iter::once(compare_columns(&self.task_keys, left, right));
        reduce_order::less(values, || key(left).compare_tasks(&key(right)))
    }

    /// True if tasks of the left queue are evicted before tasks of the right queue.
    fn queue_less(&self, left: &str, right: &str) -> bool {
        let hooks = self.policy.hooks().queue_orders.iter();
        let values = hooks.filter_map(|hook| {
            hook.plugin
                .victim_queue_order(self.context, &self.preemptor_queue, left, right)
        });
        let values: Vec<i64> = values.collect();
        reduce_order::victim_queue_less(values, || self.is_served_first(left, right))
    }

    /// True if the left queue is served before the right one.
    fn is_served_first(&self, left: &str, right: &str) -> bool {
        let names: [Arc<str>; 2] = [Arc::from(left), Arc::from(right)];
        let hooks = self.policy.hooks().queue_orders.iter();
        let values = hooks.map(|hook| self.compare_by(hook, &names));
        reduce_order::less(values, || {
            let key = |name: &'_ Arc<str>| {
                let stored = self.context.cluster_state.queues().get(name);
                stored.and_then(|stored| stored.record.creation_time)
            };
            (key(&names[0]), left).cmp(&(key(&names[1]), right))
        })
    }

    fn compare_by(&self, hook: &PolicyHook, names: &[Arc<str>; 2]) -> i64 {
        if let Some(comparison) = hook.plugin.queue_comparison(self.context, names) {
            return comparison.compare(0, 1);
        }
        let keys = hook.plugin.queue_keys(self.context, names).unwrap_or_default();
        compare_columns(&[keys], 0, 1)
    }
}

/// First difference of two records' keys, hook by hook. A record without a key equals every other one.
fn compare_columns(columns: &[Vec<OrderKey>], left: usize, right: usize) -> i64 {
    let values = columns
        .iter()
        .map(|column| match (column.get(left), column.get(right)) {
            (Some(Ok(left)), Some(Ok(right))) => compare_keys(left, right) as i64,
            _ => 0,
        });
    reduce_order::compare(values)
}
