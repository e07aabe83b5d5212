//! State of the plugin under the rule of the reference.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::job_amounts::UpstreamJobAmounts;
use super::node_scorer::CardScorer;
use super::request::{TaskPod, task_request};
use crate::cards::CARD_NAME_ANNOTATION;
use crate::held_bytes::held_bytes;
use crate::model::{
    ClusterState, ErrorCode, JobPhase, JobRecord, Problem, Reservation, SortedTable, StateDiff, TaskClass, TaskRecord,
    TaskStatus, find_text,
};
use crate::plugin::{NodeScorer, PluginAccount, PluginAccounts, PluginContext};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange};
use crate::plugins::capacity_card::{
    CapacityConfig, CardAccounts, CardRequestError, CardRules, QueueAccount, QuotaAmounts, all_amounts, apply_events,
};
use crate::policy::Compatibility;

/// State of the plugin under the rule of the reference. A queue without jobs has no account.
#[derive(Clone, Debug)]
pub struct UpstreamCapacityState {
    shared: CardAccounts,
    /// The node that the pod of a task names since it was first allocated in this cycle.
    pod_nodes: SortedTable<Arc<str>>,
    /// By job: amounts of reservations that no job's own figures stand for, and the queue that is charged.
    reserved: SortedTable<(Arc<str>, QuotaAmounts)>,
}

held_bytes! { UpstreamCapacityState { shared, pod_nodes, reserved } }

impl Deref for UpstreamCapacityState {
    type Target = CardAccounts;

    fn deref(&self) -> &CardAccounts {
        &self.shared
    }
}

impl DerefMut for UpstreamCapacityState {
    fn deref_mut(&mut self) -> &mut CardAccounts {
        &mut self.shared
    }
}

impl UpstreamCapacityState {
    /// The state of a cluster state.
    pub fn of(cluster_state: &ClusterState, config: CapacityConfig) -> Self {
        let mut state = Self {
            shared: CardAccounts::of(cluster_state, config, Compatibility::UPSTREAM),
            pod_nodes: SortedTable::default(),
            reserved: SortedTable::default(),
        };
        state.sum_accounts(cluster_state);
        state
    }

    fn sum_accounts(&mut self, cluster_state: &ClusterState) {
        let mut accounts: BTreeMap<Arc<str>, QueueAccount> = BTreeMap::new();
        for (_, job) in cluster_state.jobs().iter() {
            let job = &job.record;
            let Some(queue) = cluster_state.queues().get(&job.queue) else {
                continue;
            };
            let account = accounts.entry(Arc::clone(&job.queue));
            let account = account.or_insert_with(|| self.empty_account(&queue.record));
            // The reference reads the option only after this: here cpu and memory always count.
            let measurements = self.job_amounts(cluster_state, job, false);
            account.allocated.add(&measurements.allocated);
            account.inqueue.add(&measurements.inqueue(job));
            account.elastic.add(&measurements.elastic);
            Arc::make_mut(&mut account.request).add(&measurements.request);
        }
        self.accounts = SortedTable::default();
        for (queue, account) in accounts {
            self.accounts.insert(queue, Arc::new(account));
        }
        self.reserved = SortedTable::default();
        for (_, row) in cluster_state.reservations().iter() {
            self.add_reservation(cluster_state, row);
        }
    }

    /// The figures of a job, `unlimited` or not.
    fn job_amounts(&self, cluster_state: &ClusterState, job: &JobRecord, unlimited: bool) -> UpstreamJobAmounts {
        let pods = self.job_tasks(cluster_state, &job.name).map(|task| self.task_pod(task));
        UpstreamJobAmounts::of(&self.cards, cluster_state.resources(), unlimited, job, pods)
    }

    /// The figures of a job as they stand.
    pub fn current_job_amounts(&self, cluster_state: &ClusterState, job: &JobRecord) -> UpstreamJobAmounts {
        self.job_amounts(cluster_state, job, self.config.unlimited_cpu_memory)
    }

    /// A task with the node that its pod names.
    fn task_pod<'a>(&'a self, task: &'a TaskRecord) -> TaskPod<'a> {
        let node = match self.pod_nodes.get(&task.name) {
            Some(node) => node,
            // A pipelined pod has no nodeName yet.
            None if task.status == TaskStatus::Pipelined => "",
            None => &*task.node,
        };
        TaskPod { task, node }
    }

    /// Amounts of a task now.
    ///
    /// # Errors
    /// Its cards cannot be found out.
    pub fn task_request_amounts(&self, task: &TaskRecord) -> Result<QuotaAmounts, CardRequestError> {
        task_request(&self.cards, self.config.unlimited_cpu_memory, self.task_pod(task))
    }

    /// Follows an event that moves a task.
    ///
    /// # Errors
    /// The reference panics here, because more would be given back than was ever charged.
    fn move_task(&mut self, cluster_state: &ClusterState, event: &PlacementEvent<'_>) -> Result<(), Problem> {
        let Some((moved, is_given)) = event.moved_task() else {
            return Ok(());
        };
        let task = if is_given { moved.after } else { moved.before };
        if let (PlacementEvent::Allocate(_), None) = (event, moved.repeated) {
            self.pod_nodes.insert(Arc::clone(&task.name), Arc::clone(&task.node));
        }
        let Some(job) = cluster_state.jobs().get(&task.job) else {
            return Ok(());
        };
        let queue = &job.record.queue;
        let Ok(mut request) = self.task_request_amounts(task) else {
            return Ok(());
        };
        if let Some(times) = moved.repeated {
            request.multiply(times);
        }
        let Some(account) = self.accounts.get_mut(queue).map(Arc::make_mut) else {
            return Ok(());
        };
        if is_given {
            account.allocated.add(&request);
            return Ok(());
        }
        if !request.fits_in(&account.allocated) {
            let message = format!(
                "task `{}` would give back more than is counted for queue `{queue}`; the reference panics here",
                task.name
            );
            return Err(Problem::new(ErrorCode::ReferencePanics, "", message));
        }
        account.allocated.subtract(&request);
        Ok(())
    }

    /// Reserves in a queue what a permitted job needs. Once more for the same job: once more.
    ///
    /// # Errors
    /// The queue is not there.
    pub(super) fn reserve(&mut self, queue: &Arc<str>, min_amounts: &QuotaAmounts) -> Result<(), Problem> {
        let mut account = self.account_or_default(queue)?.into_owned();
        Arc::make_mut(&mut account).inqueue.add(min_amounts);
        self.accounts.insert(Arc::clone(queue), account);
        Ok(())
    }

    /// Charges a reservation, unless the figures of the job include it. The queue whose account changed.
    fn add_reservation(&mut self, cluster_state: &ClusterState, row: &Reservation) -> Option<Arc<str>> {
        let job = cluster_state.jobs().get(&row.job).map(|stored| &stored.record);
        let counted = |job: &JobRecord| {
            row.queue == job.queue
                && row.matches_uid(&job.uid)
                && !matches!(job.phase, JobPhase::Pending | JobPhase::Unspecified)
        };
        // A queue that is not there has no account; its rows come in with it.
        if job.is_some_and(counted) || !self.opening_state.queues().contains(&row.queue) {
            return None;
        }
        let amounts = QuotaAmounts::of_reservation(row);
        self.reserve(&row.queue, &amounts).ok()?;
        self.reserved
            .insert(Arc::clone(&row.job), (Arc::clone(&row.queue), amounts));
        Some(Arc::clone(&row.queue))
    }

    /// Compares two queues as the reference does: below 0 if `left` comes first.
    ///
    /// # Errors
    /// A queue is not there; or the reference panics: of two queues of equal priority one has no jobs.
    pub fn compare_queues(&self, left: &str, right: &str) -> Result<i64, Problem> {
        let ([_, left_share], [_, right_share]) = (self.order_key(left)?, self.order_key(right)?);
        let queues = self.opening_state.queues();
        let priority = |queue| queues.get(queue).map_or(0, |stored| i64::from(stored.record.priority));
        if priority(left) != priority(right) {
            return Ok(priority(right) - priority(left));
        }
        if let Some(queue) = [left, right].into_iter().find(|queue| self.account(queue).is_none()) {
            let message = format!("queue `{queue}` has no jobs; the reference panics here");
            return Err(Problem::new(ErrorCode::ReferencePanics, "", message));
        }
        Ok(left_share.total_cmp(&right_share) as i64)
    }
}

impl CardRules for UpstreamCapacityState {
    const IS_CORRECTED: bool = false;

    fn build(cluster_state: &ClusterState, config: CapacityConfig) -> Self {
        Self::of(cluster_state, config)
    }

    fn repeated_admit_limit(&self, _: &ClusterState, queue: &str, task: &TaskRecord) -> Option<u64> {
        let wanted = self.cards.node_independent_holding(task)?;
        let account = self.accounts.get(queue)?;
        Some(account.plain_headroom(&wanted))
    }

    fn move_tasks(&mut self, cluster_state: &ClusterState, moves: &[PlacementEvent<'_>]) -> Result<(), Problem> {
        let mut moves = moves.iter();
        moves.try_for_each(|event| self.move_task(cluster_state, event))
    }

    /// The reservation of a job that is no longer admitted stays, as in the reference.
    fn follow(&mut self, cluster_state: &ClusterState, event: &PlacementEvent<'_>) -> Vec<Arc<str>> {
        let PlacementEvent::Reserve(job) = event else {
            return Vec::new();
        };
        let mut moved = Vec::new();
        if let Some((queue, amounts)) = self.reserved.remove(job) {
            if let Some(account) = self.accounts.get_mut(&queue) {
                Arc::make_mut(account).inqueue.subtract(&amounts);
            }
            moved.push(queue);
        }
        if let Some(row) = cluster_state.reservations().get(job) {
            moved.extend(self.add_reservation(cluster_state, row));
        }
        moved
    }

    fn listed_job(&self, cluster_state: &ClusterState, job: &JobRecord) -> PluginAccount {
        let measurements = self.current_job_amounts(cluster_state, job);
        PluginAccount {
            allocated: all_amounts(&measurements.allocated),
            request: all_amounts(&measurements.card_request),
            inqueue: all_amounts(&measurements.inqueue(job)),
            elastic: all_amounts(&measurements.elastic),
            min_resources: all_amounts(&measurements.min_resources),
            ..PluginAccount::default()
        }
    }

    fn reservation_rest(&self, reservation: &Reservation) -> QuotaAmounts {
        QuotaAmounts::of_reservation(reservation)
    }

    fn node_scorer<'a>(
        context: PluginContext<'a>,
        config: CapacityConfig,
        class: &'a TaskClass,
        _: &str,
    ) -> Result<Option<Box<dyn NodeScorer + 'a>>, Problem> {
        let name = find_text(&class.annotations, CARD_NAME_ANNOTATION).unwrap_or_default();
        Ok(Some(Box::new(CardScorer {
            name,
            weight: config.node_order_weight,
            resources: context.cluster_state.resources(),
        })))
    }

    fn incomparable(&self, queue: &str, other: &str) -> Option<Problem> {
        let has_none = self.account(queue).is_none();
        has_none.then(|| self.compare_queues(queue, other).err()).flatten()
    }
}

impl PluginState for UpstreamCapacityState {
    fn accounts(&self) -> Option<&dyn PluginAccounts> {
        Some(self)
    }

    fn apply(&mut self, change: &PluginStateChange<'_>) -> Result<Vec<Arc<str>>, Problem> {
        match change {
            PluginStateChange::Events(cluster_state, events) => apply_events(self, cluster_state, events),
            PluginStateChange::Step(changes) => self.advance(changes).map(|()| Vec::new()),
        }
    }
}

impl UpstreamCapacityState {
    /// Follows the step to a newer cluster state: the accounts are summed again.
    ///
    /// # Errors
    /// Nodes have other slots.
    pub(in super::super) fn advance(&mut self, changes: &StateDiff<'_>) -> Result<(), Problem> {
        if !changes.same_slots() {
            return Err(PluginStateChange::unfollowed());
        }
        self.opening_state = changes.new.clone();
        self.advance_cards(&changes.nodes());
        self.advance_tasks_by_job(&changes.tasks());
        if !changes.queues().is_empty() {
            self.sum_guarantees(changes.new);
        }
        self.sum_accounts(changes.new);
        Ok(())
    }
}
