//! State of the plugin under the corrected rule.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use smallvec::SmallVec;

use super::holding_status::HoldingStatus;
use super::job_entry::{JobAmounts, JobContribution, JobEntry};
use super::task_need::NeedContext;
use crate::cards::CARD_NAME_ANNOTATION;
use crate::held_bytes::held_bytes;
use crate::model::{
    ClusterState, JobRecord, Problem, Reservation, ResourceId, SortedTable, StoredRecord, TableHandle, TaskClass,
    TaskRecord, find_text,
};
use crate::plugin::{NodeFilter, NodeScorer, PluginAccount, PluginAccounts, PluginContext, Shortfall, VictimQuery};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange};
use crate::plugins::capacity_card::{
    CARD_SEPARATOR, CapacityConfig, CardAccounts, CardRules, QueueAccount, QuotaAmounts, QuotaVerdict, ServiceTypes,
    TaskRequest, all_amounts, apply_events, normalize_choice,
};
use crate::policy::Compatibility;

/// State of the plugin under the corrected rule: every job in figures, and the sums of these in accounts.
#[derive(Clone, Debug)]
pub struct CapacityState {
    shared: CardAccounts,
    /// Figures of each job.
    pub(super) jobs: SortedTable<JobEntry>,
    /// How tasks that moved in this cycle stand.
    pub(super) task_holdings: SortedTable<HoldingStatus>,
    /// Reservations of jobs that are not there, or whose records say another queue or incarnation.
    pub(super) detached_reservations: SortedTable<JobEntry>,
    /// Jobs whose permits end with the next vote, unless they were kept since.
    pub(super) tentative_jobs: Arc<Vec<Arc<str>>>,
}

held_bytes! { CapacityState { shared, jobs, task_holdings, detached_reservations, tentative_jobs } }

impl Deref for CapacityState {
    type Target = CardAccounts;

    fn deref(&self) -> &CardAccounts {
        &self.shared
    }
}

impl DerefMut for CapacityState {
    fn deref_mut(&mut self) -> &mut CardAccounts {
        &mut self.shared
    }
}

impl QueueAccount {
    /// Adds a job's contribution.
    fn add(&mut self, contribution: &JobContribution) {
        self.allocated.add(&contribution.allocated);
        if !contribution.request.is_empty() {
            Arc::make_mut(&mut self.request).add(&contribution.request);
        }
        self.elastic.add(&contribution.elastic);
        self.inqueue.add(&contribution.inqueue);
        self.claims.join(&contribution.claims);
    }

    /// Subtracts a job's contribution.
    fn subtract(&mut self, contribution: &JobContribution) {
        if !contribution.request.is_empty() {
            let request = Arc::make_mut(&mut self.request);
            request.subtract(&contribution.request);
            request.drop_zero_cards();
        }
        self.claims.leave(&contribution.claims);
        let parts = [
            (&mut self.allocated, &contribution.allocated),
            (&mut self.elastic, &contribution.elastic),
            (&mut self.inqueue, &contribution.inqueue),
        ];
        for (amounts, part) in parts.into_iter().filter(|(_, part)| !part.is_empty()) {
            amounts.subtract(part);
            amounts.drop_zero_cards();
        }
    }
}

impl CapacityState {
    /// The state of a cluster state.
    pub fn of(cluster_state: &ClusterState, config: CapacityConfig) -> Self {
        let mut state = Self {
            shared: CardAccounts::of(cluster_state, config, Compatibility::Corrected),
            jobs: SortedTable::default(),
            task_holdings: SortedTable::default(),
            detached_reservations: SortedTable::default(),
            tentative_jobs: Arc::default(),
        };
        state.sum_guarantees_along_paths(cluster_state);
        state.sum_jobs(cluster_state);
        state
    }

    /// Computes the figures of all jobs, and the accounts.
    pub(super) fn sum_jobs(&mut self, cluster_state: &ClusterState) {
        self.jobs = SortedTable::default();
        for (name, job) in cluster_state.jobs().iter() {
            let entry = self.stored_job_entry(cluster_state, job);
            self.jobs.insert(Arc::clone(name), entry);
        }
        self.sum_accounts(cluster_state);
    }

    /// Sums all accounts from the figures of the jobs, and the reservations that no job stands for.
    pub(super) fn sum_accounts(&mut self, cluster_state: &ClusterState) {
        self.accounts = SortedTable::default();
        for (name, queue) in cluster_state.queues().iter() {
            let account = self.empty_account(&queue.record);
            self.accounts.insert(Arc::clone(name), Arc::new(account));
        }
        for (_, entry) in self.jobs.clone().iter() {
            self.charge(entry);
        }
        self.detached_reservations = SortedTable::default();
        for (_, row) in cluster_state.reservations().iter() {
            self.add_detached_reservation(cluster_state, row);
        }
    }

    pub(super) fn need_context<'a>(&'a self, cluster_state: &'a ClusterState) -> NeedContext<'a> {
        NeedContext {
            cards: &self.cards,
            resources: cluster_state.resources(),
            unlimited_cpu_memory: self.config.unlimited_cpu_memory,
            mixed: self.config.mixed_cards,
        }
    }

    /// A job of the cluster state in figures.
    pub(super) fn stored_job_entry(
        &self,
        cluster_state: &ClusterState,
        stored: &Arc<StoredRecord<JobRecord>>,
    ) -> JobEntry {
        let job = &stored.record;
        let tasks = self.job_tasks(cluster_state, &job.name);
        let mut entry = JobEntry::of(self.need_context(cluster_state), job, tasks);
        entry.stored = Some(Arc::clone(stored));
        entry.is_of_stored = true;
        entry.set_reservation(cluster_state.reservations().get(&job.name));
        entry
    }

    /// A job in figures: the existing entry, or one computed again for a job that is only asked about.
    pub(super) fn job_entry<'a>(
        &self,
        cluster_state: &ClusterState,
        job: &JobRecord,
        existing: Option<&'a JobEntry>,
    ) -> Cow<'a, JobEntry> {
        let is_stored = existing.is_some_and(|existing| {
            let stored = existing.stored.as_ref();
            stored.is_some_and(|stored| stored.record.same_as(job))
        });
        if let Some(existing) = existing.filter(|existing| is_stored && existing.is_of_stored) {
            return Cow::Borrowed(existing);
        }
        let tasks = self.job_tasks(cluster_state, &job.name);
        let mut computed = JobEntry::of(self.need_context(cluster_state), job, tasks);
        let entry: &mut JobAmounts = &mut computed;
        entry.stored = existing.and_then(|existing| existing.stored.clone());
        entry.is_of_stored = is_stored;
        if let Some(existing) = existing.filter(|existing| existing.queue == job.queue) {
            entry.allocated = existing.allocated.clone();
            entry.in_use.clone_from(&existing.in_use);
            entry.reserved.clone_from(&existing.reserved);
        }
        Cow::Owned(computed)
    }

    /// Reserves what a permitted job needs, whose figures are at a handle if they are kept; once more for the same job:
    /// instead of the former.
    pub(super) fn reserve(&mut self, job: &Arc<str>, known: Option<TableHandle>, verdict: &QuotaVerdict) {
        let existing = known.and_then(|known| self.jobs.at(known));
        if existing.is_none_or(|own| !own.tentative && !own.admitted) {
            Arc::make_mut(&mut self.tentative_jobs).push(Arc::clone(job));
        }
        let permit = |entry: &mut JobEntry| {
            if let Some(amounts) = &verdict.amounts {
                entry.amounts = Arc::clone(amounts);
            }
            let chooses = entry.minimum.min.choices().next().is_some();
            entry.tentative |= !entry.admitted;
            entry.admitted = true;
            entry.chosen = chooses.then(|| Arc::clone(&verdict.min_amounts));
        };
        if let Some(known) = known {
            return self.change_job(known, permit);
        }
        let mut entry = JobEntry::default();
        permit(&mut entry);
        self.replace_job(job, Some(entry));
    }

    /// The permit of a job stays: it is enqueued. That is true without a permit, too; then its cards are chosen now.
    pub fn confirm_permit(&mut self, cluster_state: &ClusterState, job: &str) {
        let Some(known) = self.jobs.find(job) else { return };
        if self.jobs.at(known).is_some_and(|entry| entry.tentative)
            && let Some(entry) = self.jobs.at_mut(known)
        {
            entry.tentative = false;
        }
        let Some(entry) = self.jobs.at(known).filter(|entry| !entry.admitted) else {
            return;
        };
        let stored = entry
            .stored
            .as_ref()
            .filter(|_| entry.minimum.min.choices().next().is_some());
        let verdict = stored.and_then(|stored| self.vote_beside(cluster_state, &stored.record, Some(entry)).ok());
        let verdict = verdict.filter(QuotaVerdict::is_permitted);
        self.change_job(known, |entry| {
            entry.admitted = true;
            entry.chosen = verdict.map(|verdict| verdict.min_amounts);
        });
    }

    /// A job is no longer admitted, and has no card that none of its tasks uses.
    pub(super) fn revoke_admission(&mut self, job: &str) {
        let known = self.jobs.find(job);
        let admitted = known.filter(|known| self.jobs.at(*known).is_some_and(|entry| entry.admitted));
        if let Some(known) = admitted {
            self.change_job(known, |entry| (entry.admitted, entry.chosen) = (false, None));
        }
    }

    /// Changes the accounts of a queue and, with `cardHierarchy`, of those above it. Queues that are not there have none:
    /// when they come, all is summed again.
    fn update_accounts(&mut self, queue: &Arc<str>, change: impl Fn(&mut QueueAccount)) {
        let line: SmallVec<[Arc<str>; 1]> = self.queue_chain(queue).0.into_iter().map(Arc::clone).collect();
        for queue in line {
            if let Some(account) = self.accounts.get_mut(&queue) {
                change(Arc::make_mut(account));
            }
        }
    }

    /// Adds the contribution of a job, or of a reservation, to the accounts of its queue's line.
    pub(super) fn charge(&mut self, entry: &JobEntry) {
        let contribution = entry.contribution();
        self.update_accounts(&entry.queue, |account| account.add(&contribution));
    }

    /// Takes the contribution of a job, or of a reservation, out of the accounts of its queue's line.
    pub(super) fn uncharge(&mut self, entry: &JobEntry) {
        let contribution = entry.contribution();
        self.update_accounts(&entry.queue, |account| account.subtract(&contribution));
    }

    /// Puts a job's figures in the place of the former ones, or removes them (`None`); the accounts of its queues follow.
    pub(super) fn replace_job(&mut self, job: &Arc<str>, next: Option<JobEntry>) {
        match (self.jobs.find(job), next) {
            (Some(known), Some(next)) => self.change_job(known, |entry| *entry = next),
            (None, Some(next)) => {
                self.charge(&next);
                self.jobs.insert(Arc::clone(job), next);
            }
            (_, None) => {
                if let Some(old) = self.jobs.remove(job) {
                    self.uncharge(&old);
                }
            }
        }
    }

    /// Changes figures of a job that are there; the accounts of the job's queues follow.
    pub(super) fn change_job(&mut self, known: TableHandle, change: impl FnOnce(&mut JobEntry)) {
        let Some(entry) = self.jobs.at_mut(known) else { return };
        let old = entry.clone();
        change(entry);
        if entry.queue != old.queue {
            let next = entry.clone();
            self.uncharge(&old);
            return self.charge(&next);
        }
        // A permit changes nothing but what is reserved.
        let contribution = if Arc::ptr_eq(&entry.amounts, &old.amounts) {
            JobEntry::promise_and_rest
        } else {
            JobEntry::contribution
        };
        let (mut added, mut taken) = (contribution(entry), contribution(&old));
        if added.request == taken.request {
            (added.request, taken.request) = Default::default();
        }
        self.update_accounts(&old.queue, |account| {
            account.subtract(&taken);
            account.add(&added);
        });
    }
}

impl CardRules for CapacityState {
    const IS_CORRECTED: bool = true;

    fn build(cluster_state: &ClusterState, config: CapacityConfig) -> Self {
        Self::of(cluster_state, config)
    }

    fn repeated_admit_limit(&self, cluster_state: &ClusterState, queue: &str, task: &TaskRecord) -> Option<u64> {
        let wanted = self.cards.node_independent_holding(task)?;
        if self.task_holding(&task.name).is_some() {
            return None;
        }
        let queue = Arc::from(queue);
        let path = self.queue_path(&queue).ok()?;
        // Tasks of jobs without figures are counted nowhere.
        let counts = cluster_state.jobs().contains(&task.job) && self.jobs.contains(&task.job);
        let room = path.usage_for_task().task_headroom(&wanted).filter(|_| counts);
        Some(room.unwrap_or(u64::MAX))
    }

    fn move_tasks(&mut self, cluster_state: &ClusterState, moves: &[PlacementEvent<'_>]) -> Result<(), Problem> {
        self.follow_moves(cluster_state, moves);
        Ok(())
    }

    fn follow(&mut self, cluster_state: &ClusterState, event: &PlacementEvent<'_>) -> Vec<Arc<str>> {
        match event {
            PlacementEvent::Enqueue(job) => self.confirm_permit(cluster_state, job),
            PlacementEvent::Dequeue(job) => self.revoke_admission(job),
            PlacementEvent::Reserve(job) => return self.update_reservation(cluster_state, job),
            PlacementEvent::Allocate(_) | PlacementEvent::Pipeline(_) | PlacementEvent::Deallocate(_) => {}
        }
        Vec::new()
    }

    fn listed_job(&self, cluster_state: &ClusterState, job: &JobRecord) -> PluginAccount {
        let entry = self.job_entry(cluster_state, job, self.jobs.get(&job.name));
        let promised = entry.promise_and_rest();
        let mut card_request = QuotaAmounts::clone(&entry.minimum.min);
        (card_request.cpu, card_request.memory) = (0, 0);
        PluginAccount {
            allocated: all_amounts(&entry.allocated),
            request: all_amounts(&card_request),
            inqueue: all_amounts(&promised.inqueue),
            elastic: all_amounts(&promised.elastic),
            min_resources: all_amounts(&entry.minimum.min),
            ..PluginAccount::default()
        }
    }

    fn reservation_rest(&self, reservation: &Reservation) -> QuotaAmounts {
        let own = self.jobs.get(&reservation.job).and_then(JobEntry::reservation_rest);
        own.unwrap_or_else(|| QuotaAmounts::of_reservation(reservation))
    }

    fn limits_own_cards(&self, queue: &Arc<str>) -> bool {
        let path = self.queue_path(queue);
        path.is_ok_and(|path| path.levels.first().is_some_and(|level| level.limits_cards))
    }

    fn node_filter<'a>(
        &'a self,
        cluster_state: &'a ClusterState,
        class: &TaskClass,
    ) -> Option<Box<dyn NodeFilter + 'a>> {
        let filter = self.card_filter(cluster_state, class)?;
        Some(Box::new(filter))
    }

    fn node_scorer<'a>(
        context: PluginContext<'a>,
        _: CapacityConfig,
        class: &'a TaskClass,
        name: &str,
    ) -> Result<Option<Box<dyn NodeScorer + 'a>>, Problem> {
        let state: Option<&Self> = context.plugin_states.get(crate::plugins::capacity_card::PLUGIN);
        let name = normalize_choice(name);
        let state = state.filter(|_| name.contains(CARD_SEPARATOR));
        Ok(state.map(|state| {
            let scorer = state.kind_scorer(context.cluster_state, class, &name);
            Box::new(scorer) as Box<dyn NodeScorer>
        }))
    }

    fn reads_job(task: &TaskRecord) -> bool {
        // Cards that no name covers may be any of several, too.
        let plain = [ResourceId::CPU, ResourceId::MEMORY, ResourceId::PODS];
        let resources = TaskRequest::from(task).requested_resources();
        let mut extended = resources.filter(|id| !plain.contains(id));
        match find_text(&task.annotations, CARD_NAME_ANNOTATION).filter(|name| !name.is_empty()) {
            Some(name) if name.contains(CARD_SEPARATOR) => true,
            Some(_) => {
                let first = extended.next();
                extended.any(|id| Some(id) != first)
            }
            None => extended.next().is_some(),
        }
    }

    fn victim_verdicts(
        &self,
        cluster_state: &ClusterState,
        query: &VictimQuery<'_>,
        service_types: Option<&ServiceTypes>,
    ) -> Option<Vec<bool>> {
        self.card_victims(cluster_state, query, service_types)
    }

    fn quota_shortfalls(
        &self,
        cluster_state: &ClusterState,
        query: &VictimQuery<'_>,
        node: &str,
        service_types: Option<&ServiceTypes>,
    ) -> Vec<Shortfall> {
        self.card_shortfalls(cluster_state, query, node, service_types.is_none())
    }
}

impl PluginState for CapacityState {
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
