//! Order of queues, jobs and tasks in the present state. Keys are computed once, until a change may have changed them.

use std::cmp::Ordering;
use std::slice;
use std::sync::Arc;

use super::order_keys::{HookKeys, KeyCache, task_order_keys, tie_break};
use super::session::ActionSession;
use crate::cycle::ChangeOutcome;
use crate::decide::reduce_order::{compare_keys, compare_keys_totally};
use crate::model::TaskRecord;
use crate::plugin::{EVERY_QUEUE, OrderKey, Plugin};
use crate::policy::{Compatibility, PolicyHook};

impl ActionSession<'_> {
    /// True if the left queue is served before the right one.
    pub(super) fn queue_less(&self, left: usize, right: usize) -> bool {
        let (Some(own), Some(other)) = (self.queues.get(left), self.queues.get(right)) else {
            return false;
        };
        let hooks = &self.policy.hooks().queue_orders;
        let names = [Arc::clone(&own.name), Arc::clone(&other.name)];
        let (keys, others) = (self.queue_keys(left), self.queue_keys(right));
        for (number, hook) in hooks.iter().enumerate() {
            let order = match hook.plugin.queue_comparison(self.context(), &names) {
                Some(comparison) => comparison.compare(0, 1).cmp(&0),
                None => self.compare(&keys, &others, number),
            };
            if order.is_ne() {
                return order.is_lt();
            }
        }
        (own.creation_time, &own.name) < (other.creation_time, &other.name)
    }

    /// True if the left job is served before the right one.
    pub(super) fn job_less(&self, left: usize, right: usize) -> bool {
        let (Some(own), Some(other)) = (self.jobs.get(left), self.jobs.get(right)) else {
            return false;
        };
        let order = self.compare_jobs(left, right);
        let tie = || (own.creation_time, &own.name).cmp(&(other.creation_time, &other.name));
        order.then_with(tie).is_lt()
    }

    /// Compares two jobs by the plugins alone.
    pub(super) fn compare_jobs(&self, left: usize, right: usize) -> Ordering {
        let (keys, others) = (self.job_keys(left), self.job_keys(right));
        let mut hooks = 0..self.policy.hooks().job_orders.len();
        let order = hooks.find_map(|number| Some(self.compare(&keys, &others, number)).filter(|order| order.is_ne()));
        order.unwrap_or(Ordering::Equal)
    }

    /// True if the left task of the session is served before the right one.
    pub(super) fn numbered_task_less(&self, left: usize, right: usize) -> bool {
        let (Some(own), Some(other)) = (self.tasks.get(left), self.tasks.get(right)) else {
            return false;
        };
        let records: [&TaskRecord; 2] = [&own.stored.record, &other.stored.record];
        let context = self.has_moving_orders.then(|| self.context());
        let present = context.map(|context| task_order_keys(self.policy, context, &records));
        let (keys, others) = match present.as_deref() {
            Some([keys, others]) => (&keys.keys, &others.keys),
            _ => (&own.order.keys, &other.order.keys),
        };
        for pair in keys.iter().zip(others) {
            if let (Some(own), Some(other)) = pair {
                let order = compare_keys_totally(own, other);
                if order.is_ne() {
                    return order.is_lt();
                }
            }
        }
        let (one, next) = (tie_break(&own.stored.record), tie_break(&other.stored.record));
        one.compare_numbered(own.order.index, &next, other.order.index).is_lt()
    }

    /// Compares the keys of one hook; a record without a key equals every other one.
    fn compare(&self, keys: &HookKeys, others: &HookKeys, hook: usize) -> Ordering {
        let compare = match self.policy.compatibility() {
            Compatibility::Upstream(_) => compare_keys,
            Compatibility::Corrected => compare_keys_totally,
        };
        match (keys.get(hook), others.get(hook)) {
            (Some(Some(Ok(own))), Some(Some(Ok(other)))) => compare(own, other),
            _ => Ordering::Equal,
        }
    }

    /// Keys of a queue, one for each plugin that orders queues.
    fn queue_keys(&self, queue: usize) -> Arc<HookKeys> {
        let (cache, hooks) = (&self.keys.queues, &self.policy.hooks().queue_orders);
        known_keys(cache, queue, hooks, |plugin| {
            plugin.queue_keys(self.context(), slice::from_ref(&self.queues.get(queue)?.name))
        })
    }

    /// Keys of a job, one for each plugin that orders jobs.
    fn job_keys(&self, job: usize) -> Arc<HookKeys> {
        let (cache, hooks) = (&self.keys.jobs, &self.policy.hooks().job_orders);
        known_keys(cache, job, hooks, |plugin| {
            plugin.job_keys(self.context(), slice::from_ref(&self.jobs.get(job)?.name))
        })
    }

    /// Notes what a change of a job changed: nodes, and keys that must be computed again.
    pub(super) fn note_change(&mut self, job: Option<usize>, outcome: &ChangeOutcome) {
        self.changed_nodes.extend(&outcome.nodes);
        let (queues, jobs) = (self.keys.queues.get_mut(), self.keys.jobs.get_mut());
        if let Some(place) = job.and_then(|job| jobs.get_mut(job)) {
            *place = None;
        }
        let queue = job.and_then(|job| self.jobs.get(job)).map(|job| job.queue);
        if let Some(place) = queue.and_then(|queue| queues.get_mut(queue)) {
            *place = None;
        }
        for name in &outcome.queues {
            if **name == *EVERY_QUEUE {
                queues.fill(None);
                break;
            }
            let number = self.queues.binary_search_by(|queue| queue.name.cmp(name));
            if let Some(place) = number.ok().and_then(|number| queues.get_mut(number)) {
                *place = None;
            }
        }
    }
}

/// Keys of a record by these hooks: from the cache, or asked for.
fn known_keys(
    cache: &KeyCache,
    number: usize,
    hooks: &[PolicyHook],
    ask: impl Fn(&dyn Plugin) -> Option<Vec<OrderKey>>,
) -> Arc<HookKeys> {
    let known = cache.borrow().get(number).cloned().flatten();
    known.unwrap_or_else(|| {
        let keys = hooks.iter().map(|hook| ask(&*hook.plugin)?.pop());
        let keys = Arc::new(keys.collect::<HookKeys>());
        if let Some(place) = cache.borrow_mut().get_mut(number) {
            *place = Some(Arc::clone(&keys));
        }
        keys
    })
}
