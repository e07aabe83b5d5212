//! Accounts of all queues: sums of jobs, added up in the accounts of their queues and of the queues above them.
//!
//! Sums are integers, so that accounts that followed changes equal accounts that were added up again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;

use super::account::{QueueSums, QueueTotals};
use super::account_list::{AccountList, QueueAncestors, QueuePlace};
use super::integer_amounts::IntegerAmounts;
use super::job_sums::{JobRules, JobSums};
use crate::held_bytes::held_bytes;
use crate::model::{
    ClusterState, ErrorCode, JobRecord, NimbleTable, Problem, QueueRecord, RecordChange, Reservation, ResourceTable,
    SortedTable, StateDiff, TaskRecord, TaskStatus,
};
use crate::plugin_state::TaskTransition;
use crate::policy::Compatibility;

/// Accounts of all queues.
#[derive(Clone, Debug)]
pub(crate) struct QueueAccounts {
    /// Rules by which jobs count.
    pub(crate) rules: JobRules,
    /// Names of resources.
    pub(crate) resources: Arc<ResourceTable>,
    ancestors: Arc<QueueAncestors>,
    jobs: NimbleTable<Arc<JobSums>>,
    /// Accounts of all queues that exist.
    pub(crate) by_queue: AccountList,
    /// Promises to jobs that are not there, not of that incarnation, or not in that queue.
    detached: SortedTable<Arc<Reservation>>,
    /// Jobs that were enqueued until the next admission, unless the cycle confirms it; under `corrected` only.
    tentative: Arc<BTreeSet<Arc<str>>>,
}

held_bytes! { QueueAccounts { jobs, by_queue; rules, resources, ancestors, detached, tentative } }

/// Names of resources may differ where no amount does.
impl PartialEq for QueueAccounts {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules
            && self.ancestors == other.ancestors
            && self.jobs == other.jobs
            && self.by_queue == other.by_queue
            && self.detached == other.detached
            && self.tentative == other.tentative
    }
}

/// Changes of one job between two cluster states.
#[derive(Debug, Default)]
struct JobChanges<'a> {
    /// Tasks as they were, and as they are (true).
    tasks: SmallVec<[(&'a TaskRecord, bool); 2]>,
    /// True if the job's own record differs.
    is_record_changed: bool,
}

impl QueueAccounts {
    /// Accounts of a cluster state. Limits, deserved amounts and shares are left to the plugin.
    pub(crate) fn of(cluster_state: &ClusterState, compatibility: Compatibility, ancestors: QueueAncestors) -> Self {
        let resources = Arc::clone(cluster_state.resources());
        let mut accounts = Self {
            rules: JobRules::of(compatibility, &resources),
            resources,
            ancestors: Arc::new(ancestors),
            jobs: NimbleTable::default(),
            by_queue: AccountList::default(),
            detached: SortedTable::default(),
            tentative: Arc::default(),
        };
        let mut sums: BTreeMap<&Arc<str>, JobSums> = BTreeMap::new();
        for (name, stored) in cluster_state.jobs().iter() {
            sums.entry(name).or_default().set_record(accounts.rules, &stored.record);
        }
        for (_, stored) in cluster_state.tasks().iter() {
            let task = &stored.record;
            if !task.job.is_empty() {
                sums.entry(&task.job)
                    .or_default()
                    .count_task(accounts.rules, task, true);
            }
        }
        for (name, mut own) in sums {
            own.set_promise(cluster_state.reservations().get(name).map(|row| &**row), |row| {
                promised_amounts(&accounts.resources, row)
            });
            accounts.jobs.insert(Arc::clone(name), Arc::new(own));
        }
        accounts.add_up(cluster_state);
        accounts
    }

    /// Adds up the accounts of the queues of a cluster state, from the sums of the jobs.
    fn add_up(&mut self, cluster_state: &ClusterState) {
        let cleared = cluster_state.queues().iter().map(|(name, _)| {
            let known = self.by_queue.get(name);
            let mut account = known.map(|old| QueueTotals::clone(old)).unwrap_or_default();
            account.clear_sums();
            (Arc::clone(name), Arc::new(account))
        });
        self.by_queue = AccountList::of(cleared, &self.ancestors);
        let jobs = self.jobs.clone();
        for (_, own) in jobs.iter() {
            self.count_job(own, true);
        }
        self.detached = SortedTable::default();
        for (_, row) in cluster_state.reservations().iter() {
            self.count_detached(row);
        }
    }

    /// Queues above a queue, from its parent upwards.
    pub(crate) fn ancestors(&self, queue: &str) -> &[Arc<str>] {
        self.ancestors.get(queue).map_or(&[], |above| above)
    }

    /// Account of a queue that exists.
    pub(crate) fn account(&self, queue: &str) -> Option<&Arc<QueueTotals>> {
        self.by_queue.get(queue)
    }

    /// Sums of a job that exists.
    pub(crate) fn job(&self, job: &str) -> Option<&Arc<JobSums>> {
        self.jobs.get(job).filter(|own| own.has_record)
    }

    /// Changes the accounts of a queue and of the queues above it.
    fn update(&mut self, queue: &str, change: impl FnMut(&mut QueueTotals)) {
        if let Some(place) = self.by_queue.find(queue) {
            self.by_queue.update_to_root(place, change);
        }
    }

    /// Accounts what a job contributes, or takes it out again.
    fn count_job(&mut self, job: &JobSums, add: bool) {
        if !job.has_record {
            return;
        }
        let contribution = job.contribution(self.rules);
        self.count_contribution(&job.queue, &contribution, add, |own| &mut own.job_count);
    }

    /// Accounts a contribution, or takes it out again, and changes this count of the queue's own account.
    fn count_contribution(
        &mut self,
        queue: &str,
        contribution: &QueueSums,
        add: bool,
        number: fn(&mut QueueTotals) -> &mut u32,
    ) {
        let Some(place) = self.by_queue.find(queue) else {
            return;
        };
        self.by_queue.update_to_root(place, |account| {
            if add {
                account.add(contribution);
            } else {
                account.subtract(contribution);
            }
        });
        if let Some(number) = self.by_queue.at_mut(place).map(number) {
            *number = count(*number, add);
        }
    }

    fn count_row(&mut self, row: &Reservation, add: bool) {
        let contribution = QueueSums {
            inqueue: promised_amounts(&self.resources, row),
            ..QueueSums::default()
        };
        self.count_contribution(&row.queue, &contribution, add, |own| &mut own.promise_count);
    }

    /// Accounts a promise that no job's own sums hold; returns its queue.
    fn count_detached(&mut self, row: &Arc<Reservation>) -> Option<Arc<str>> {
        let is_own = self.jobs.get(&row.job).is_some_and(|job| job.is_promised(row));
        if is_own || self.by_queue.find(&row.queue).is_none() {
            return None;
        }
        self.count_row(row, true);
        self.detached.insert(Arc::clone(&row.job), Arc::clone(row));
        Some(Arc::clone(&row.queue))
    }

    /// Takes out what was counted for a job under its name alone; returns its queue.
    fn discount_detached(&mut self, job: &str) -> Option<Arc<str>> {
        let row = self.detached.remove(job)?;
        self.count_row(&row, false);
        Some(Arc::clone(&row.queue))
    }

    /// Puts sums of a job in place of its former ones; the accounts follow. True if what the queue's jobs request changed.
    fn replace(&mut self, name: &Arc<str>, next: Option<Arc<JobSums>>) -> bool {
        let old = match next {
            Some(next) => {
                let old = self.jobs.insert(Arc::clone(name), Arc::clone(&next));
                if let Some(old) = old
                    .as_ref()
                    .filter(|old| next.has_record && old.has_record && old.queue == next.queue)
                {
                    let mut change = next.contribution(self.rules);
                    change.subtract(&old.contribution(self.rules));
                    self.update(&next.queue, |account| account.add(&change));
                    return !change.request.is_empty();
                }
                self.count_job(&next, true);
                old
            }
            None => self.jobs.remove(name),
        };
        if let Some(old) = old {
            self.count_job(&old, false);
        }
        true
    }

    /// Follows the promise of the ledger to a job, as the cluster state has it now; returns the queues whose accounts changed.
    pub(crate) fn update_promise(&mut self, cluster_state: &ClusterState, job: &Arc<str>) -> Vec<Arc<str>> {
        let mut moved: Vec<Arc<str>> = self.discount_detached(job).into_iter().collect();
        let row = cluster_state.reservations().get(job);
        if let Some(old) = self.jobs.get(job) {
            let mut next = Arc::clone(old);
            Arc::make_mut(&mut next).set_promise(row.map(|row| &**row), |row| promised_amounts(&self.resources, row));
            if next != *old {
                moved.push(Arc::clone(&next.queue));
                self.replace(job, Some(next));
            }
        }
        moved.extend(row.and_then(|row| self.count_detached(row)));
        let above: Vec<Arc<str>> = moved.iter().flat_map(|queue| self.ancestors(queue).to_vec()).collect();
        moved.extend(above);
        moved
    }

    /// Amounts of a reservation that its job does not hold yet.
    pub(crate) fn promise_left(&self, row: &Reservation) -> IntegerAmounts {
        let own = self.jobs.get(&row.job).filter(|own| own.promised.is_some());
        own.map_or_else(|| promised_amounts(&self.resources, row), |own| own.promise_left())
    }

    /// Follows the step to a newer cluster state in which these queues differ, and takes over the queues above each queue, if
    /// they are given; returns what changed.
    pub(crate) fn advance(
        &mut self,
        changes: &StateDiff<'_>,
        queues: &[RecordChange<'_, QueueRecord>],
        ancestors: Option<&QueueAncestors>,
    ) -> AccountChanges {
        self.resources = Arc::clone(changes.new.resources());
        self.rules = JobRules::of(self.rules.compatibility, &self.resources);
        let mut moved: BTreeMap<&Arc<str>, JobChanges<'_>> = BTreeMap::new();
        let tasks = changes.tasks();
        for task in &tasks {
            for (record, add) in [(task.before, false), (task.after, true)] {
                if let Some(record) = record.filter(|record| !record.job.is_empty()) {
                    moved.entry(&record.job).or_default().tasks.push((record, add));
                }
            }
        }
        let jobs = changes.jobs();
        for job in &jobs {
            moved.entry(job.name).or_default().is_record_changed = true;
        }
        let (old_rows, new_rows) = (changes.old.reservations(), changes.new.reservations());
        let rows = old_rows.differences(new_rows, |a, b| Arc::ptr_eq(a, b) || a == b);
        for (job, _, _) in &rows {
            moved.entry(job).or_default();
        }
        let mut touched = AccountChanges::default();
        for (name, of_job) in moved {
            self.advance_job(changes, name, &of_job, &mut touched);
        }
        touched.places.sort_unstable();
        touched.places.dedup();
        let others = ancestors.filter(|ancestors| **ancestors != *self.ancestors);
        let is_other_set = queues
            .iter()
            .any(|queue| queue.before.is_none() || queue.after.is_none());
        if others.is_some() || is_other_set {
            if let Some(ancestors) = others {
                self.ancestors = Arc::new(ancestors.clone());
            }
            self.add_up(changes.new);
        }
        touched
    }

    fn advance_job(
        &mut self,
        changes: &StateDiff<'_>,
        name: &Arc<str>,
        of_job: &JobChanges<'_>,
        touched: &mut AccountChanges,
    ) {
        if let Some(queue) = self.discount_detached(name) {
            touched.add(&self.by_queue, &queue);
        }
        let rules = self.rules;
        let old = self.jobs.get(name).cloned();
        let mut sums = old.clone().unwrap_or_default();
        let next = Arc::make_mut(&mut sums);
        for (task, add) in &of_job.tasks {
            next.count_task(rules, task, *add);
        }
        let is_known = match changes.new.jobs().get(name) {
            Some(_) if next.has_record && !of_job.is_record_changed => true,
            Some(stored) => {
                next.set_record(rules, &stored.record);
                true
            }
            None => next.clear_record(),
        };
        let row = changes.new.reservations().get(name).map(|row| &**row);
        next.set_promise(row, |row| promised_amounts(&self.resources, row));
        let next = is_known.then_some(sums);
        let moved_from = old.as_ref().map(|own| &own.queue);
        let moved_to = next.as_ref().map(|own| &own.queue);
        for queue in moved_from
            .iter()
            .chain(moved_to.iter().filter(|queue| moved_from != Some(**queue)))
        {
            touched.add(&self.by_queue, queue);
        }
        if old != next {
            touched.requests |= self.replace(name, next);
        }
        if let Some(row) = changes.new.reservations().get(name)
            && let Some(queue) = self.count_detached(row)
        {
            touched.add(&self.by_queue, &queue);
        }
    }

    /// Follows the events of tasks of one job. Under `upstream` only the holdings of its queue change, as in the reference;
    /// under `corrected` the sums of the job follow. Returns the place of its queue.
    ///
    /// # Errors
    /// Under `upstream` the queue would give back more than it holds; the reference panics there.
    pub(crate) fn apply_tasks(&mut self, moved: &[(TaskTransition<'_>, bool)]) -> Result<Option<QueuePlace>, Problem> {
        let Some(job) = moved.first().map(|(first, _)| &first.after.job) else {
            return Ok(None);
        };
        let Some(own) = self.jobs.get(job) else {
            return Ok(None);
        };
        let queue = Arc::clone(&own.queue);
        if self.rules.compatibility == Compatibility::Corrected {
            let mut next = Arc::clone(own);
            let sums = Arc::make_mut(&mut next);
            let waits = |task: &TaskRecord| task.status == TaskStatus::Pending;
            for (task, holds) in moved {
                sums.move_task(
                    task.after,
                    *holds,
                    (waits(task.before), waits(task.after)),
                    task.count(),
                );
            }
            self.replace(job, Some(next));
            return Ok(self.by_queue.find(&queue));
        }
        for (task, holds) in moved {
            self.apply_holding(&queue, task.after, *holds, task.count())?;
        }
        Ok(self.by_queue.find(&queue))
    }

    /// Counts what a task holds in its queue and those above, `times` times, or takes it out.
    fn apply_holding(&mut self, queue: &str, task: &TaskRecord, holds: bool, times: u64) -> Result<(), Problem> {
        let mut requests = IntegerAmounts::default();
        requests.add_record(&task.requests, i128::from(times));
        if !holds {
            let short = self
                .by_queue
                .get(queue)
                .and_then(|account| requests.first_beyond(&account.allocated));
            if let Some(id) = short {
                let message = format!(
                    "task `{}` would give back more {} than is counted for queue `{queue}`",
                    task.name,
                    self.resources.name(id)
                );
                return Err(reference_panics(&message));
            }
        }
        self.update(queue, |account| {
            if holds {
                account.allocated.add(&requests);
            } else {
                account.allocated.subtract(&requests);
            }
        });
        Ok(())
    }

    /// A job is enqueued: its queue keeps what it needs. Under `upstream` as often as it is told, and for good; under
    /// `corrected` once, until [`Self::end_tentative`] or [`Self::confirm`].
    pub(crate) fn enqueue(&mut self, job: &JobRecord) {
        let name = &job.name;
        let known = self.jobs.get(name).map(|known| JobSums::clone(known));
        if self.rules.compatibility.is_upstream() {
            let mut sums = known.unwrap_or_default();
            sums.set_record(self.rules, job);
            if let Some(min) = sums.min {
                let reserve = min.ungated(&sums.gated);
                self.update(&job.queue, |account| account.inqueue.add(&reserve));
            }
            return;
        }
        let Some(mut next) = known.filter(|known| known.has_record && !known.enqueued && known.queue == job.queue)
        else {
            return;
        };
        next.enqueued = true;
        self.replace(name, Some(Arc::new(next)));
        Arc::make_mut(&mut self.tentative).insert(Arc::clone(name));
    }

    /// The enqueuing of a job is confirmed by its cycle, or withdrawn.
    pub(crate) fn confirm(&mut self, job: &str, enqueued: bool) {
        if self.rules.compatibility.is_upstream() {
            return;
        }
        if self.tentative.contains(job) {
            Arc::make_mut(&mut self.tentative).remove(job);
        }
        let known = self.jobs.get_key(job).cloned().zip(self.jobs.get(job));
        if let Some((name, own)) = known.filter(|(_, own)| own.enqueued != enqueued) {
            let mut next = Arc::clone(own);
            Arc::make_mut(&mut next).enqueued = enqueued;
            self.replace(&name, Some(next));
        }
    }

    /// Withdraws what was enqueued and not confirmed.
    pub(crate) fn end_tentative(&mut self) {
        for job in std::mem::take(&mut self.tentative).iter() {
            self.confirm(job, false);
        }
    }
}

/// Changes of the accounts between two cluster states.
#[derive(Debug, Default)]
pub(crate) struct AccountChanges {
    /// Places of the accounts that may have changed, with those of the queues above, each once, as long as no queue comes or goes.
    pub(crate) places: SmallVec<[QueuePlace; 8]>,
    /// True if the requests of any job changed, or its queue.
    pub(crate) requests: bool,
}

impl AccountChanges {
    fn add(&mut self, accounts: &AccountList, queue: &str) {
        if let Some(place) = accounts.find(queue) {
            self.places.extend_from_slice(accounts.to_root(place));
        }
    }
}

fn count(number: u32, add: bool) -> u32 {
    if add {
        number.saturating_add(1)
    } else {
        number.saturating_sub(1)
    }
}

fn promised_amounts(resources: &ResourceTable, row: &Reservation) -> IntegerAmounts {
    IntegerAmounts::of_names(resources, &row.amounts)
}

/// Problem of a question at which the reference crashes.
pub(crate) fn reference_panics(message: &str) -> Problem {
    let message = format!("{message}; the reference panics here");
    Problem::new(ErrorCode::ReferencePanics, "", message)
}
