//! Trait of the plugins that limit queues by their accounts: how listings read the accounts, how cycles and newer cluster
//! states change them, and how admission promises amounts.

use std::fmt::Debug;
use std::sync::Arc;

use smallvec::SmallVec;

use super::account::{QueueTotals, shown_amounts};
use super::admission::{QuotaLimit, missing_amount, opinion, sum_with, unknown_queue};
use super::all_accounts::{QueueAccounts, reference_panics};
use super::gauges::{help, push_account};
use super::integer_amounts::IntegerAmounts;
use crate::held_bytes::HeldMemory;
use crate::model::{ClusterState, ErrorCode, JobRecord, Problem, Reservation, ResourceVector, StateDiff, TaskRecord};
use crate::plugin::{
    AccountAmounts, AdmitOpinion, DecisionTime, Plugin, PluginAccount, PluginAccounts, PluginContext, QueueGauge,
    QuotaPlugin, Shortfall, VictimQuery,
};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange, PluginStates, TaskTransition};
use crate::policy::Compatibility;

/// Tasks of one job, each with true if its requests are added.
type MovedTasks<'a> = SmallVec<[(TaskTransition<'a>, bool); 8]>;

/// Task with the queue that it is charged to.
pub(crate) struct ChargedTask<'a> {
    /// Name of the queue.
    pub(crate) queue: &'a Arc<str>,
    /// Account of the queue.
    pub(crate) account: &'a Arc<QueueTotals>,
    /// Requests that the account includes while the task holds them.
    pub(crate) requests: IntegerAmounts,
    /// Same requests as a vector.
    pub(crate) vector: ResourceVector,
}

/// True if other queues may reclaim from a queue.
pub(crate) fn is_reclaimable(cluster_state: &ClusterState, queue: &str) -> bool {
    let stored = cluster_state.queues().get(queue);
    stored.is_some_and(|stored| stored.record.reclaimable != Some(false))
}

/// State of a plugin that limits queues by their accounts.
pub(crate) trait QuotaState: Clone + Debug + HeldMemory + Send + Sync + 'static {
    /// Name of the plugin.
    const PLUGIN: &'static str;

    /// Accounts of all queues.
    fn queue_accounts(&self) -> &QueueAccounts;

    /// Accounts of all queues, to change them.
    fn queue_accounts_mut(&mut self) -> &mut QueueAccounts;

    /// Problem that keeps a queue, or what its record says, from counting.
    fn own_problem(&self, queue: &str) -> Option<&Problem>;

    /// True if the reference knows queues without jobs.
    fn knows_empty_queues(&self) -> bool;

    /// Limit of what the tasks of a queue may hold.
    fn task_limit(account: &QueueTotals) -> &ResourceVector;

    /// Number of equal tasks that a queue, and those above it that limit it, still admit; `None`: any number.
    ///
    /// # Errors
    /// The plugin does not know the queue, where it asks for its account.
    fn headroom(&self, cluster_state: &ClusterState, queue: &str, task: &TaskRecord) -> Result<Option<u64>, Problem>;

    /// Follows the events of tasks of one job. Returns the queues above their own whose accounts changed.
    ///
    /// # Errors
    /// The errors of [`QueueAccounts::apply_tasks`].
    fn follow_tasks(&mut self, moved: &[(TaskTransition<'_>, bool)]) -> Result<Vec<Arc<str>>, Problem>;

    /// Steps from the state of the older cluster state, as it was computed, to that of the newer one.
    fn step(&mut self, changes: &StateDiff<'_>);

    /// Compatibility of the policy.
    fn compatibility(&self) -> Compatibility {
        self.queue_accounts().rules.compatibility
    }

    /// Account of a queue that exists.
    ///
    /// # Errors
    /// There is no such queue, or it cannot count.
    fn existing_account(&self, queue: &str) -> Result<&Arc<QueueTotals>, Problem> {
        if let Some(problem) = self.own_problem(queue) {
            return Err(problem.clone());
        }
        self.queue_accounts().account(queue).ok_or_else(|| unknown_queue(queue))
    }

    /// Account of a queue that the plugin knows.
    ///
    /// # Errors
    /// The errors of [`Self::existing_account`]; under `upstream` the reference does not know a queue without jobs, and panics.
    fn known_account(&self, queue: &str) -> Result<&Arc<QueueTotals>, Problem> {
        let account = self.existing_account(queue)?;
        let knows = self.compatibility() == Compatibility::Corrected || self.knows_empty_queues();
        if knows || account.job_count + account.promise_count > 0 {
            return Ok(account);
        }
        Err(reference_panics(&format!("queue `{queue}` has no jobs")))
    }

    /// Accounts of a queue and of the queues above it, from below, with their names.
    fn chain<'a>(&'a self, queue: &'a str) -> impl Iterator<Item = (&'a str, &'a Arc<QueueTotals>)> {
        let above = self.queue_accounts().ancestors(queue).iter().map(|name| &**name);
        let names = std::iter::once(queue).chain(above);
        names.filter_map(|name| Some((name, self.queue_accounts().account(name)?)))
    }

    /// Task with the queue that it is charged to. `None`: no queue counts it.
    fn charged_task(&self, task: &TaskRecord) -> Option<ChargedTask<'_>> {
        let queue = &self.queue_accounts().job(&task.job)?.queue;
        let requests = IntegerAmounts::from(&task.requests);
        Some(ChargedTask {
            queue,
            account: self.queue_accounts().account(queue)?,
            vector: ResourceVector::from(&requests),
            requests,
        })
    }

    /// Opinion on a job by the real capabilities of these accounts.
    ///
    /// # Errors
    /// The errors of [`QueueAccounts::reasons_against_job`].
    fn opinion_on_job<'a>(
        &self,
        job: &JobRecord,
        levels: impl IntoIterator<Item = (&'a str, &'a Arc<QueueTotals>)>,
    ) -> Result<AdmitOpinion, Problem> {
        let accounts = self.queue_accounts();
        let Some(demand) = accounts.job_demand(job) else {
            return Ok(AdmitOpinion::default());
        };
        let mut reasons = Vec::new();
        for (queue, account) in levels {
            // The reference looks no further than the first limit, and so crashes at none above it.
            if self.compatibility().is_upstream() && !reasons.is_empty() {
                break;
            }
            let limit = QuotaLimit::real_capability(Self::PLUGIN, queue, account);
            reasons.extend(accounts.reasons_against_job(limit, account, &demand)?);
        }
        Ok(AdmitOpinion {
            reserve: demand.reserve.named(&accounts.resources),
            ..opinion(reasons, None)
        })
    }

    /// Amounts that the preemptor's queue, and those above it, would hold beyond their limits, each with the gains from
    /// candidates below the same queue; under `corrected` only.
    fn shortfalls(&self, query: &VictimQuery<'_>) -> Vec<Shortfall> {
        let Some(preemptor) = self.charged_task(query.preemptor) else {
            return Vec::new();
        };
        if self.compatibility().is_upstream() {
            return Vec::new();
        }
        let mut shortfalls = Vec::new();
        for (queue, account) in self.chain(preemptor.queue) {
            let limit = Self::task_limit(account);
            let sum = sum_with(account, &preemptor.requests);
            for id in sum.misfits(limit, &preemptor.vector) {
                let gains = query.candidates.iter().map(|task| {
                    let own = self.charged_task(task);
                    let own = own.filter(|own| self.chain(own.queue).any(|(name, _)| name == queue));
                    own.map_or(0, |own| own.requests.get(id))
                });
                let held = account.allocated.get(id) + preemptor.requests.get(id);
                shortfalls.push(Shortfall {
                    missing: missing_amount(held, limit.amount(id)),
                    gains: gains.collect(),
                });
            }
        }
        shortfalls
    }

    /// State of the plugin in a context.
    ///
    /// # Errors
    /// There is none.
    fn of_context(context: PluginContext<'_>) -> Result<&Self, Problem> {
        context
            .plugin_states
            .get(Self::PLUGIN)
            .ok_or_else(|| missing_state(Self::PLUGIN))
    }

    /// Keeps what a job needs, see [`QueueAccounts::enqueue`].
    ///
    /// # Errors
    /// There is no state of the plugin.
    fn enqueue(plugin_states: &mut PluginStates, job: &JobRecord) -> Result<(), Problem> {
        let enqueue = |state: &mut Self| state.queue_accounts_mut().enqueue(job);
        let enqueued = plugin_states.update(Self::PLUGIN, enqueue);
        enqueued.ok_or_else(|| missing_state(Self::PLUGIN))
    }
}

/// Plugin that limits queues by their accounts.
pub(crate) trait QueueLimiter: Plugin {
    /// State of the plugin.
    type State: QuotaState;

    /// Rules by which the plugin decides.
    fn compatibility(&self) -> Compatibility;

    /// True if what a job needs is kept after all votes, false if with the plugin's own vote.
    fn reserves_after_votes(&self) -> bool {
        self.compatibility().release().rules().reserves_after_votes
    }
}

impl<P: QueueLimiter> QuotaPlugin for P {
    /// In releases whose votes reserve, a vote for the job keeps what it needs, also if another plugin is against it
    /// afterwards.
    fn permit_job(
        &self,
        plugin_states: &mut PluginStates,
        cluster_state: &ClusterState,
        now: Option<DecisionTime>,
        job: &JobRecord,
    ) -> Result<Option<AdmitOpinion>, Problem> {
        let opinion = self.admit_job(PluginContext::new(cluster_state, plugin_states, now), job)?;
        let permits = opinion.as_ref().is_some_and(|opinion| opinion.reasons.is_empty());
        if permits && !self.reserves_after_votes() {
            P::State::enqueue(plugin_states, job)?;
        }
        Ok(opinion)
    }

    fn enqueue_job(&self, plugin_states: &mut PluginStates, _: &ClusterState, job: &JobRecord) -> Result<(), Problem> {
        if self.reserves_after_votes() {
            P::State::enqueue(plugin_states, job)?;
        }
        Ok(())
    }

    fn release_tentative(&self, plugin_states: &mut PluginStates) -> Result<(), Problem> {
        let release = |state: &mut P::State| state.queue_accounts_mut().end_tentative();
        plugin_states
            .update(P::State::PLUGIN, release)
            .ok_or_else(|| missing_state(P::State::PLUGIN))
    }

    fn repeatable_admissions(&self, context: PluginContext<'_>, queue: &str, task: &TaskRecord) -> u64 {
        P::State::of_context(context)
            .and_then(|state| state.headroom(context.cluster_state, queue, task))
            .map_or(1, |room| room.unwrap_or(u64::MAX).max(1))
    }

    fn shortfalls(
        &self,
        context: PluginContext<'_>,
        query: &VictimQuery<'_>,
        _: &str,
    ) -> Result<Vec<Shortfall>, Problem> {
        Ok(P::State::of_context(context)?.shortfalls(query))
    }
}

/// Problem of a plugin whose state is missing.
pub(crate) fn missing_state(plugin: &str) -> Problem {
    let message = format!("there is no state of `{plugin}` for this question");
    Problem::new(ErrorCode::PluginStateMissing, "", message)
}

impl<S: QuotaState> PluginAccounts for S {
    fn job_account(&self, _: &ClusterState, job: &JobRecord) -> Option<PluginAccount> {
        let accounts = self.queue_accounts();
        Some(accounts.job(&job.name)?.shown(accounts.rules, &accounts.resources))
    }

    fn queue_account(&self, queue: &str) -> Option<PluginAccount> {
        let account = self.known_account(queue).ok()?;
        Some(account.shown(&self.queue_accounts().resources))
    }

    fn queue_problem(&self, queue: &str) -> Option<&Problem> {
        self.own_problem(queue)
    }

    fn queue_gauges(&self, _: &ClusterState) -> Vec<QueueGauge> {
        let accounts = self.queue_accounts();
        let mut gauges = Vec::new();
        for (queue, account) in accounts.by_queue.iter() {
            let shown = account.shown(&accounts.resources);
            push_account(&mut gauges, queue, &shown, |name| {
                help(name, "thousandths of a resource, or pods")
            });
        }
        gauges
    }

    fn remaining_reservation(&self, reservation: &Reservation) -> Option<AccountAmounts> {
        let accounts = self.queue_accounts();
        let left = ResourceVector::from(&accounts.promise_left(reservation));
        let mut left = shown_amounts(&accounts.resources, &left);
        left.retain(|(_, amount)| *amount != 0.0);
        Some(left)
    }
}

impl<S: QuotaState> PluginState for S {
    fn accounts(&self) -> Option<&dyn PluginAccounts> {
        Some(self)
    }

    /// The sums of a job change once for its tasks, and so do the accounts of its queues.
    fn apply(&mut self, change: &PluginStateChange<'_>) -> Result<Vec<Arc<str>>, Problem> {
        let (cluster_state, events) = match change {
            PluginStateChange::Events(cluster_state, events) => (cluster_state, events),
            PluginStateChange::Step(changes) => {
                let follows = changes.same_slots();
                follows
                    .then(|| self.step(changes))
                    .ok_or_else(PluginStateChange::unfollowed)?;
                return Ok(Vec::new());
            }
        };
        let mut queues = Vec::new();
        for of_job in events.chunk_by(PlacementEvent::moves_same_job) {
            let moved: MovedTasks<'_> = of_job.iter().filter_map(PlacementEvent::moved_task).collect();
            if !moved.is_empty() {
                queues.append(&mut self.follow_tasks(&moved)?);
                continue;
            }
            for event in of_job {
                match event {
                    PlacementEvent::Enqueue(job) => self.queue_accounts_mut().confirm(job, true),
                    PlacementEvent::Dequeue(job) => self.queue_accounts_mut().confirm(job, false),
                    PlacementEvent::Reserve(job) => {
                        queues.append(&mut self.queue_accounts_mut().update_promise(cluster_state, job));
                    }
                    PlacementEvent::Allocate(_) | PlacementEvent::Pipeline(_) | PlacementEvent::Deallocate(_) => {}
                }
            }
        }
        Ok(queues)
    }
}
