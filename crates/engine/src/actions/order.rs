//! Order of queues, jobs and tasks in the present state. Keys are computed once, until a change may have changed them.

use std::cmp::Ordering;
use std::sync::Arc;

use super::order_keys::{HookKeys, KeyCaches, tie_break};
use super::session::ActionSession;
use crate::cycle::ChangeOutcome;
use crate::decide::reduce_order::{compare_keys, compare_keys_totally};
use crate::plugin::EVERY_QUEUE;
use crate::policy::Compatibility;

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
        for pair in own.order.keys.iter().zip(&other.order.keys) {
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
        self.known_keys(
            queue,
            |caches| &mut caches.queues,
            || {
                let name = self.queues.get(queue).map(|own| Arc::clone(&own.name));
                let hooks = self.policy.hooks().queue_orders.iter();
                let keys = hooks.map(|hook| hook.plugin.queue_keys(self.context(), name.as_slice())?.pop());
                keys.collect()
            },
        )
    }

    /// Keys of a job, one for each plugin that orders jobs.
    fn job_keys(&self, job: usize) -> Arc<HookKeys> {
        self.known_keys(
            job,
            |caches| &mut caches.jobs,
            || {
                let name = self.jobs.get(job).map(|own| Arc::clone(&own.name));
                let hooks = self.policy.hooks().job_orders.iter();
                let keys = hooks.map(|hook| hook.plugin.job_keys(self.context(), name.as_slice())?.pop());
                keys.collect()
            },
        )
    }

    /// Keys of the cache, which are computed if they are not known.
    fn known_keys(
        &self,
        number: usize,
        cache: fn(&mut KeyCaches) -> &mut Vec<Option<Arc<HookKeys>>>,
        compute: impl FnOnce() -> HookKeys,
    ) -> Arc<HookKeys> {
        let known = cache(&mut self.keys.borrow_mut()).get(number).cloned().flatten();
        known.unwrap_or_else(|| {
            let keys = Arc::new(compute());
            if let Some(place) = cache(&mut self.keys.borrow_mut()).get_mut(number) {
                *place = Some(Arc::clone(&keys));
            }
            keys
        })
    }

    /// Notes what a change of a job changed: nodes, and keys that must be computed again.
    pub(super) fn note_change(&mut self, job: Option<usize>, outcome: &ChangeOutcome) {
        self.changed_nodes.extend(&outcome.nodes);
        let caches = self.keys.get_mut();
        if let Some(place) = job.and_then(|job| caches.jobs.get_mut(job)) {
            *place = None;
        }
        let queue = job.and_then(|job| self.jobs.get(job)).map(|job| job.queue);
        if let Some(place) = queue.and_then(|queue| caches.queues.get_mut(queue)) {
            *place = None;
        }
        for name in &outcome.queues {
            if **name == *EVERY_QUEUE {
                caches.queues.fill(None);
                break;
            }
            let number = self.queues.binary_search_by(|queue| queue.name.cmp(name));
            if let Some(place) = number.ok().and_then(|number| caches.queues.get_mut(number)) {
                *place = None;
            }
        }
    }
}
