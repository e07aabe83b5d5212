//! Trait of the plugins that limit queues by their accounts: how listings read the accounts, how cycles and newer cluster
//! states change them, and how admission promises amounts.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use smallvec::SmallVec;

use super::account::{QueueTotals, shown_amounts};
use super::admission::unknown_queue;
use super::all_accounts::{QueueAccounts, reference_panics};
use super::gauges::account_gauges;
use super::integer_amounts::PresentTotals;
use crate::model::{ClusterState, JobRecord, Problem, ProblemKind, Reservation, ResourceVector, StateDiff};
use crate::plugin::{AccountAmounts, PluginAccount, PluginAccounts, PluginContext, QueueGauge};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStates, TaskTransition, older_as};
use crate::policy::Compatibility;

/// State of a plugin that limits queues by their accounts.
pub(crate) trait QuotaState: Clone + Debug + Send + Sync + 'static {
    /// Name of the plugin.
    const PLUGIN: &'static str;

    /// Accounts of all queues.
    fn queue_accounts(&self) -> &QueueAccounts;

    /// Accounts of all queues, to change them.
    fn queue_accounts_mut(&mut self) -> &mut QueueAccounts;

    /// Total of the ready nodes.
    fn node_totals(&self) -> &PresentTotals;

    /// Problem that keeps a queue, or what its record says, from counting.
    fn own_problem(&self, queue: &str) -> Option<&Problem>;

    /// True if the reference knows queues without jobs.
    fn knows_empty_queues(&self) -> bool;

    /// Follows the events of tasks of one job, each `times` times. Returns the queues above their own whose accounts changed.
    ///
    /// # Errors
    /// The errors of [`QueueAccounts::apply_tasks`].
    fn follow_tasks(&mut self, moved: &[TaskTransition<'_>], holds: bool, times: u64)
    -> Result<Vec<Arc<str>>, Problem>;

    /// State of the newer cluster state, if this is that of the older one, as it was computed.
    fn advanced(&self, changes: &StateDiff<'_>) -> Option<Self>;

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

    /// State of the plugin in a context.
    ///
    /// # Errors
    /// There is none.
    fn of_context(context: PluginContext<'_>) -> Result<&Self, Problem> {
        context
            .plugin_states
            .get(Self::PLUGIN)
            .ok_or_else(missing_state::<Self>)
    }

    /// Keeps what an admitted job needs, see [`QueueAccounts::enqueue`].
    ///
    /// # Errors
    /// There is no state of the plugin.
    fn enqueue(plugin_states: &mut PluginStates, job: &JobRecord) -> Result<(), Problem> {
        let enqueue = |state: &mut Self| state.queue_accounts_mut().enqueue(job);
        plugin_states
            .update(Self::PLUGIN, enqueue)
            .ok_or_else(missing_state::<Self>)
    }

    /// Withdraws what was kept and not confirmed.
    ///
    /// # Errors
    /// There is no state of the plugin.
    fn end_tentative(plugin_states: &mut PluginStates) -> Result<(), Problem> {
        let release = |state: &mut Self| state.queue_accounts_mut().end_tentative();
        plugin_states
            .update(Self::PLUGIN, release)
            .ok_or_else(missing_state::<Self>)
    }
}

fn missing_state<S: QuotaState>() -> Problem {
    let message = format!("there is no state of `{}` for this question", S::PLUGIN);
    Problem::new(ProblemKind::Unserved, "PLUGIN_STATE_MISSING", "", message)
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
        account_gauges(&accounts.resources, accounts.by_queue.iter())
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

    fn apply(&mut self, cluster_state: &ClusterState, event: &PlacementEvent<'_>) -> Result<Vec<Arc<str>>, Problem> {
        match event {
            PlacementEvent::Allocate(moved) | PlacementEvent::Pipeline(moved) => {
                return self.follow_tasks(&[*moved], true, 1);
            }
            PlacementEvent::Deallocate(moved) => return self.follow_tasks(&[*moved], false, 1),
            PlacementEvent::Enqueue(job) => self.queue_accounts_mut().confirm(job, true),
            PlacementEvent::Dequeue(job) => self.queue_accounts_mut().confirm(job, false),
            PlacementEvent::Reserve(job) => {
                return Ok(self.queue_accounts_mut().update_promise(cluster_state, job));
            }
        }
        Ok(Vec::new())
    }

    /// The sums of a job change once for its tasks, and so do the accounts of its queues.
    fn apply_batch(
        &mut self,
        cluster_state: &ClusterState,
        events: &[PlacementEvent<'_>],
    ) -> Result<BTreeSet<Arc<str>>, Problem> {
        let mut changed = BTreeSet::new();
        for of_job in events.chunk_by(PlacementEvent::counts_same_job) {
            let tasks: SmallVec<[TaskTransition<'_>; 8]> = of_job
                .iter()
                .filter_map(|event| event.counted_task().copied())
                .collect();
            if tasks.len() == of_job.len() {
                changed.extend(self.follow_tasks(&tasks, true, 1)?);
                continue;
            }
            for event in of_job {
                changed.extend(self.apply(cluster_state, event)?);
            }
        }
        Ok(changed)
    }

    fn apply_repeated(&mut self, _: &ClusterState, event: &PlacementEvent<'_>, times: u64) -> Result<(), Problem> {
        if let Some(moved) = event.counted_task() {
            self.follow_tasks(&[*moved], true, times)?;
        }
        Ok(())
    }

    fn advance(&self, changes: &StateDiff<'_>) -> Option<Arc<dyn PluginState>> {
        Some(Arc::new(self.advanced(changes)?))
    }

    fn held_bytes(&self, older: Option<&dyn PluginState>) -> usize {
        let older: Option<&Self> = older_as(older);
        let accounts = self.queue_accounts().held_bytes(older.map(Self::queue_accounts));
        size_of::<Self>() + self.node_totals().held_bytes() + accounts
    }

    fn copy(&self) -> Arc<dyn PluginState> {
        Arc::new(self.clone())
    }
}
