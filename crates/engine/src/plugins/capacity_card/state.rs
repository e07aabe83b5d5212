//! State that the plugin works out from a cluster state and stores beside it: cards, queue accounts, and what a cycle
//! changes of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::account::QueueAccount;
use super::amounts::QuotaAmounts;
use super::cards::ClusterCards;
use super::config::CapacityConfig;
use super::holding_status::HoldingStatus;
use super::job_entry::{JobContribution, JobEntry};
use super::limits::{CardQuota, QueueLimits};
use super::problems::CardRequestError;
use super::request::{TaskPod, task_request};
use super::task_moves::HoldingChange;
use super::upstream_job::UpstreamJobAmounts;
use crate::held_bytes::held_bytes;
use crate::model::{
    ClusterState, ErrorCode, JobRecord, Problem, QueueRecord, SortedTable, StoredRecord, TaskRecord, TaskStatus,
};
use crate::policy::Compatibility;

/// The state of the plugin. A clone costs a few pointers.
#[derive(Clone, Debug)]
pub struct CapacityState {
    pub(super) config: CapacityConfig,
    pub(super) compatibility: Compatibility,
    /// The cluster state that it was worked out from.
    pub(super) opening_state: ClusterState,
    pub(super) cards: Arc<ClusterCards>,
    /// Amounts that all queues together are guaranteed.
    pub(super) total_guaranteed: Arc<QuotaAmounts>,
    /// With `cardHierarchy`: by queue, what it and all that it shares with others are guaranteed, each once.
    pub(super) guaranteed_by: Arc<BTreeMap<Arc<str>, QuotaAmounts>>,
    /// Names of tasks, by the name of their job.
    pub(super) tasks_by_job: SortedTable<Arc<Vec<Arc<str>>>>,
    /// By queue.
    pub(super) accounts: SortedTable<Arc<QueueAccount>>,
    /// Under `upstream`: the node that the pod of a task names since it was first allocated in this cycle.
    pub(super) pod_nodes: SortedTable<Arc<str>>,
    /// Under `corrected`: by job.
    pub(super) jobs: SortedTable<JobEntry>,
    /// Under `corrected`: how tasks that moved in this cycle stand.
    pub(super) task_holdings: SortedTable<HoldingStatus>,
    /// Reservations of jobs that are not there, or whose records say another queue or incarnation; and, under
    /// `upstream`, of jobs that the reference does not count yet.
    pub(super) detached_reservations: SortedTable<JobEntry>,
    /// Under `corrected`: jobs whose permits end with the next vote, unless they were kept since.
    pub(super) tentative_jobs: Arc<Vec<Arc<str>>>,
}

held_bytes! {
    CapacityState {
        cards, total_guaranteed, guaranteed_by, tasks_by_job, accounts, pod_nodes, jobs, task_holdings,
        detached_reservations, tentative_jobs; config, compatibility, opening_state
    }
}

/// A job in figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobQuotaSummary {
    /// Cards that it asks for.
    pub card_request: QuotaAmounts,
    /// Amounts that its tasks hold.
    pub allocated: QuotaAmounts,
    /// The least that it needs.
    pub min_resources: QuotaAmounts,
    /// Amounts that its queue reserves for it.
    pub inqueue: QuotaAmounts,
    /// Amounts that it holds beyond the least.
    pub elastic: QuotaAmounts,
}

/// Change that a session makes to the resources of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEvent<'a> {
    /// The task was given room on a node.
    Allocate {
        /// Name of the node that gets the task.
        node: &'a str,
        /// The card that it uses there; empty: the first acceptable one that the node has.
        card: &'a str,
    },
    /// The task was promised room that is being released.
    Pipeline {
        /// Name of the node that the task waits for.
        node: &'a str,
        /// The card that the task is to use there; empty: the first acceptable one that the node has.
        card: &'a str,
    },
    /// The task no longer counts.
    Deallocate,
}

impl<'a> TaskEvent<'a> {
    /// Node that the task holds resources on now, and the card; `None`: it holds none.
    pub(super) fn node_and_card(self) -> Option<(&'a str, &'a str)> {
        match self {
            Self::Allocate { node, card } | Self::Pipeline { node, card } => Some((node, card)),
            Self::Deallocate => None,
        }
    }
}

impl CapacityState {
    /// The state of a cluster state.
    pub fn of(cluster_state: &ClusterState, config: CapacityConfig, compatibility: Compatibility) -> Self {
        let mut state = Self {
            config,
            compatibility,
            opening_state: cluster_state.clone(),
            cards: Arc::new(ClusterCards::of(cluster_state, compatibility)),
            total_guaranteed: Arc::default(),
            guaranteed_by: Arc::default(),
            tasks_by_job: group_tasks_by_job(cluster_state),
            accounts: SortedTable::default(),
            pod_nodes: SortedTable::default(),
            jobs: SortedTable::default(),
            task_holdings: SortedTable::default(),
            detached_reservations: SortedTable::default(),
            tentative_jobs: Arc::default(),
        };
        state.sum_guarantees(cluster_state);
        match compatibility {
            Compatibility::Upstream(_) => state.build_upstream(cluster_state),
            Compatibility::Corrected => state.build_corrected(cluster_state),
        }
        state.add_detached_reservations(cluster_state);
        state
    }

    pub(super) fn sum_guarantees(&mut self, cluster_state: &ClusterState) {
        let mut guaranteed = QuotaAmounts::default();
        for (_, queue) in cluster_state.queues().iter() {
            let queue = &queue.record;
            guaranteed.add(&CardQuota::of(queue, self.compatibility).with_cpu_memory(queue.guarantee.as_ref()));
        }
        self.total_guaranteed = Arc::new(guaranteed);
        if self.compatibility == Compatibility::Corrected && self.config.hierarchy {
            self.guaranteed_by = Arc::new(self.guarantees_along_paths(cluster_state));
        }
    }

    pub(super) fn build_corrected(&mut self, cluster_state: &ClusterState) {
        for (name, job) in cluster_state.jobs().iter() {
            let entry = self.stored_job_entry(cluster_state, job);
            self.jobs.insert(Arc::clone(name), entry);
        }
        self.sum_accounts();
    }

    /// A job of the cluster state in figures.
    pub(super) fn stored_job_entry(
        &self,
        cluster_state: &ClusterState,
        stored: &Arc<StoredRecord<JobRecord>>,
    ) -> JobEntry {
        let job = &stored.record;
        let mut entry = JobEntry::of(
            self.need_context(cluster_state),
            job,
            self.job_tasks(cluster_state, &job.name),
        );
        entry.stored = Some(Arc::clone(stored));
        entry.is_of_stored = true;
        entry.set_reservation(cluster_state.reservations().get(&job.name));
        entry
    }

    /// Sums all accounts from the figures of the jobs.
    pub(super) fn sum_accounts(&mut self) {
        let mut accounts: BTreeMap<Arc<str>, QueueAccount> = BTreeMap::new();
        for (name, queue) in self.opening_state.queues().iter() {
            accounts.insert(Arc::clone(name), self.empty_account(&queue.record));
        }
        for (_, entry) in self.jobs.iter() {
            let contribution = entry.contribution();
            for (level, queue) in self.queue_chain(&entry.queue).0.into_iter().enumerate() {
                if let Some(account) = accounts.get_mut(queue) {
                    account.job_count += u32::from(level == 0);
                    account.add(&contribution);
                }
            }
        }
        self.accounts = SortedTable::default();
        for (queue, account) in accounts {
            self.accounts.insert(queue, Arc::new(account));
        }
    }

    fn insert_accounts(&mut self, accounts: BTreeMap<Arc<str>, (QueueAccount, QuotaAmounts)>) {
        for (queue, (mut account, request)) in accounts {
            account.request = Arc::new(request);
            self.accounts.insert(queue, Arc::new(account));
        }
    }

    pub(super) fn build_upstream(&mut self, cluster_state: &ClusterState) {
        let mut accounts: BTreeMap<Arc<str>, (QueueAccount, QuotaAmounts)> = BTreeMap::new();
        for (_, job) in cluster_state.jobs().iter() {
            let job = &job.record;
            let Some(queue) = cluster_state.queues().get(&job.queue) else {
                continue;
            };
            let (account, request) = accounts
                .entry(Arc::clone(&job.queue))
                .or_insert_with(|| (self.empty_account(&queue.record), QuotaAmounts::default()));
            account.job_count += 1;
            // The reference reads the option only after this: here cpu and memory always count.
            let measurements = self.upstream_job_amounts(cluster_state, job, false);
            account.allocated.add(&measurements.allocated);
            account.inqueue.add(&measurements.inqueue(job));
            account.elastic.add(&measurements.elastic);
            request.add(&measurements.request);
        }
        self.insert_accounts(accounts);
    }

    /// The limits of a queue.
    pub fn limits(&self, queue: &QueueRecord) -> QueueLimits {
        let quota = CardQuota::of(queue, self.compatibility);
        let guaranteed = self.guaranteed_beside(&queue.name);
        QueueLimits::of(queue, &quota, self.cards.total(), guaranteed, self.compatibility)
    }

    /// Guarantees of a queue and of those that share the cluster with it.
    pub(super) fn guaranteed_beside(&self, queue: &str) -> &QuotaAmounts {
        self.guaranteed_by.get(queue).unwrap_or(&self.total_guaranteed)
    }

    pub(super) fn empty_account(&self, queue: &QueueRecord) -> QueueAccount {
        QueueAccount {
            limits: Arc::new(self.limits(queue)),
            ..QueueAccount::default()
        }
    }

    /// The cards of the cluster.
    pub fn cards(&self) -> &ClusterCards {
        &self.cards
    }

    /// Amounts that all queues together are guaranteed.
    pub fn total_guaranteed(&self) -> &QuotaAmounts {
        &self.total_guaranteed
    }

    /// The account of a queue that has one.
    pub fn account(&self, queue: &str) -> Option<&Arc<QueueAccount>> {
        self.accounts.get(queue)
    }

    /// All accounts, by queue.
    pub fn accounts(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<QueueAccount>)> {
        self.accounts.iter()
    }

    /// The account of a queue that is there; an empty one if nothing counts in it.
    pub(super) fn account_or_default(&self, queue: &str) -> Result<Cow<'_, Arc<QueueAccount>>, Problem> {
        self.account_or_default_from(queue, self.accounts.get(queue))
    }

    /// The account of a queue, if it has one.
    pub(super) fn account_or_default_from<'a>(
        &self,
        queue: &str,
        account: Option<&'a Arc<QueueAccount>>,
    ) -> Result<Cow<'a, Arc<QueueAccount>>, Problem> {
        if let Some(account) = account {
            return Ok(Cow::Borrowed(account));
        }
        match self.opening_state.queues().get(queue) {
            Some(stored) => Ok(Cow::Owned(Arc::new(self.empty_account(&stored.record)))),
            None => Err(not_found_problem(
                ErrorCode::QueueUnknown,
                format!("there is no queue `{queue}`"),
            )),
        }
    }

    /// The figures of a job, `unlimited` or not, as the reference has them.
    pub fn upstream_job_amounts(
        &self,
        cluster_state: &ClusterState,
        job: &JobRecord,
        unlimited: bool,
    ) -> UpstreamJobAmounts {
        let pods = self.job_tasks(cluster_state, &job.name).map(|task| self.task_pod(task));
        UpstreamJobAmounts::of(&self.cards, cluster_state.resources(), unlimited, job, pods)
    }

    /// The figures of a job as they stand.
    pub fn current_job_amounts(&self, cluster_state: &ClusterState, job: &JobRecord) -> UpstreamJobAmounts {
        self.upstream_job_amounts(cluster_state, job, self.config.unlimited_cpu_memory)
    }

    /// A job as listings show it.
    pub fn job_quota_summary(&self, cluster_state: &ClusterState, job: &JobRecord) -> JobQuotaSummary {
        match self.compatibility {
            Compatibility::Upstream(_) => {
                let measurements = self.current_job_amounts(cluster_state, job);
                JobQuotaSummary {
                    inqueue: measurements.inqueue(job),
                    card_request: measurements.card_request,
                    allocated: measurements.allocated,
                    min_resources: measurements.min_resources,
                    elastic: measurements.elastic,
                }
            }
            Compatibility::Corrected => {
                let entry = self.job_entry(cluster_state, job, self.jobs.get(&job.name));
                let JobContribution { inqueue, elastic, .. } = entry.contribution();
                let mut card_request = QuotaAmounts::clone(&entry.min);
                (card_request.cpu, card_request.memory) = (0, 0);
                JobQuotaSummary {
                    card_request,
                    allocated: entry.allocated.clone(),
                    min_resources: QuotaAmounts::clone(&entry.min),
                    inqueue,
                    elastic,
                }
            }
        }
    }

    pub(super) fn job_tasks<'a>(
        &'a self,
        cluster_state: &'a ClusterState,
        job: &str,
    ) -> impl Iterator<Item = &'a TaskRecord> + use<'a> {
        let names = self.tasks_by_job.get(job).map_or(&[][..], |names| names.as_slice());
        names
            .iter()
            .filter_map(|name| Some(&cluster_state.tasks().get(name)?.record))
    }

    /// A task with the node that its pod names.
    pub(super) fn task_pod<'a>(&'a self, task: &'a TaskRecord) -> TaskPod<'a> {
        let node = match self.pod_nodes.get(&task.name) {
            Some(node) => node,
            // A pipelined pod has no nodeName yet.
            None if task.status == TaskStatus::Pipelined => "",
            None => &*task.node,
        };
        TaskPod { task, node }
    }

    /// Amounts that a task counts now under `upstream`.
    ///
    /// # Errors
    /// Its cards cannot be found out.
    pub fn task_request_amounts(&self, task: &TaskRecord) -> Result<QuotaAmounts, CardRequestError> {
        task_request(&self.cards, self.config.unlimited_cpu_memory, self.task_pod(task))
    }

    /// The permit of a job stays: it is enqueued. Under `corrected` that counts without a permit, too.
    pub fn confirm_permit(&mut self, job: &str) {
        self.clear_tentative(job);
        self.set_admitted(&Arc::from(job), true);
    }

    /// Ends permits that were not kept. Under `upstream` they all stay, as in the reference.
    pub fn end_tentative(&mut self) {
        for job in std::mem::take(&mut self.tentative_jobs).iter() {
            if self.clear_tentative(job) {
                self.revoke_admission(job);
            }
        }
    }

    /// Whatever permit a job has no longer ends by itself; true if one would have.
    fn clear_tentative(&mut self, job: &str) -> bool {
        let Some(spot) = self.jobs.find(job) else { return false };
        let was = self.jobs.at(spot).is_some_and(|entry| entry.tentative);
        if was && let Some(entry) = self.jobs.at_mut(spot) {
            entry.tentative = false;
        }
        was
    }

    /// A job is no longer admitted. Under `upstream` what was kept back for it stays, as in the reference.
    pub(super) fn revoke_admission(&mut self, job: &Arc<str>) {
        self.set_admitted(job, false);
    }

    /// Follows what happened to a task.
    ///
    /// # Errors
    /// Only under `upstream`: the reference panics here, because more would be given back than was ever counted.
    pub fn apply_task_event(
        &mut self,
        cluster_state: &ClusterState,
        task: &TaskRecord,
        event: TaskEvent<'_>,
    ) -> Result<(), Problem> {
        let change = HoldingChange {
            task,
            event,
            waits: event == TaskEvent::Deallocate && task.status == TaskStatus::Pending,
            repeated: None,
        };
        self.apply_changes(cluster_state, std::iter::once(change))
    }

    /// Follows changes of tasks of one job.
    ///
    /// # Errors
    /// The errors of [`Self::apply_task_event`].
    pub(super) fn apply_changes<'m>(
        &mut self,
        cluster_state: &ClusterState,
        mut changes: impl Iterator<Item = HoldingChange<'m>>,
    ) -> Result<(), Problem> {
        if self.compatibility == Compatibility::Corrected {
            self.move_tasks(cluster_state, changes);
            return Ok(());
        }
        changes.try_for_each(|change| {
            if let Some(times) = change.repeated {
                self.hold_repeated(cluster_state, change.task, times);
                return Ok(());
            }
            self.apply_task_event_upstream(cluster_state, change.task, change.event)
        })
    }

    fn apply_task_event_upstream(
        &mut self,
        cluster_state: &ClusterState,
        task: &TaskRecord,
        step: TaskEvent<'_>,
    ) -> Result<(), Problem> {
        if let TaskEvent::Allocate { node, .. } = step {
            self.pod_nodes.insert(Arc::clone(&task.name), Arc::from(node));
        }
        let Some(job) = cluster_state.jobs().get(&task.job) else {
            return Ok(());
        };
        let queue = Arc::clone(&job.record.queue);
        let (Some(account), Ok(request)) = (self.accounts.get(&queue), self.task_request_amounts(task)) else {
            return Ok(());
        };
        let mut account = QueueAccount::clone(account);
        if matches!(step, TaskEvent::Deallocate) {
            if !request.fits_in(&account.allocated) {
                let message = format!(
                    "task `{}` would give back more than is counted for queue `{queue}`; the reference panics here",
                    task.name
                );
                return Err(Problem::new(ErrorCode::ReferencePanics, "", message));
            }
            account.allocated.subtract(&request);
        } else {
            account.allocated.add(&request);
        }
        self.accounts.insert(queue, Arc::new(account));
        Ok(())
    }
}

pub(super) fn not_found_problem(code: ErrorCode, message: String) -> Problem {
    Problem::new(code, "", message)
}

fn group_tasks_by_job(cluster_state: &ClusterState) -> SortedTable<Arc<Vec<Arc<str>>>> {
    let mut by_job: BTreeMap<&Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
    for (name, task) in cluster_state
        .tasks()
        .iter()
        .filter(|(_, task)| !task.record.job.is_empty())
    {
        by_job.entry(&task.record.job).or_default().push(Arc::clone(name));
    }
    let mut table = SortedTable::default();
    for (job, names) in by_job {
        table.insert(Arc::clone(job), Arc::new(names));
    }
    table
}
