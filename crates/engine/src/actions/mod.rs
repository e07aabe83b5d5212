//! Actions of a scheduling cycle, as a scheduler of Volcano performs them (Volcano ed72c7c81, pkg/scheduler/actions):
//! enqueue, allocate, backfill, preempt, reclaim and shuffle, in the order that the caller gives, over one private cluster state.
//!
//! The order of queues, jobs and tasks, admission, filters, scores and the state of jobs come from the policy. Among
//! nodes with equal scores the first name is chosen, where the reference chooses at random.

mod allocate;
mod allocation_unit;
mod backfill;
mod claims;
#[cfg(test)]
mod claims_tests;
mod closing_phase;
mod enqueue;
mod error_cache;
mod eviction;
mod gang_start;
mod group_worksheet;
mod order;
mod order_keys;
mod preempt;
mod queued_jobs;
mod reclaim;
mod session;
mod shuffle;
mod statement;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use self::claims::CycleClaims;
pub use self::closing_phase::closing_phase;
use self::session::ActionSession;
use crate::cycle::SchedulingCycle;
use crate::decide::LastRounds;
use crate::model::{ClusterState, Problem};
use crate::plugin::DecisionTime;
use crate::plugin_state::PluginStates;
use crate::policy::Policy;

/// Action of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CycleAction {
    /// Waiting jobs are enqueued.
    Enqueue,
    /// Tasks of enqueued jobs are placed.
    Allocate,
    /// Tasks that request nothing are placed.
    Backfill,
    /// Jobs that starve evict tasks of their queue.
    Preempt,
    /// Jobs that starve evict tasks of other queues.
    Reclaim,
    /// Tasks are evicted for no other one, as plugins name them.
    Shuffle,
}

impl CycleAction {
    /// All actions.
    pub const ALL: [Self; 6] = [
        Self::Enqueue,
        Self::Allocate,
        Self::Backfill,
        Self::Preempt,
        Self::Reclaim,
        Self::Shuffle,
    ];

    /// Name of the action in a policy document.
    pub fn name(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Allocate => "allocate",
            Self::Backfill => "backfill",
            Self::Preempt => "preempt",
            Self::Reclaim => "reclaim",
            Self::Shuffle => "shuffle",
        }
    }

    /// True if the action places tasks.
    fn places(self) -> bool {
        !matches!(self, Self::Enqueue | Self::Shuffle)
    }

    /// Action of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// Event of a cycle, in the order in which actions committed them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CycleEvent {
    /// Job that was enqueued.
    Enqueued(Arc<str>),
    /// Task whose bind was sent.
    Bound {
        /// Name of the task.
        task: Arc<str>,
        /// Name of the node.
        node: Arc<str>,
    },
    /// Task that waits on its node for amounts that are being released.
    Pipelined {
        /// Name of the task.
        task: Arc<str>,
        /// Name of the node.
        node: Arc<str>,
        /// Action that placed it.
        action: CycleAction,
    },
    /// Task whose place is kept for the next cycle, because others were evicted for its job.
    Nominated {
        /// Name of the task.
        task: Arc<str>,
        /// Name of the node.
        node: Arc<str>,
    },
    /// Task that was evicted.
    Evicted {
        /// Name of the task.
        task: Arc<str>,
        /// Name of its node.
        node: Arc<str>,
        /// Name of the task that needs its place; empty: none.
        preemptor: Arc<str>,
    },
    /// Queue, job or task that a plugin cannot judge, and the problem; actions pass it over.
    PassedOver {
        /// Name of the queue, job or task.
        name: Arc<str>,
        /// Reason why the subject cannot be evaluated.
        problem: Problem,
    },
}

impl CycleEvent {
    /// Task that the event is about; `None`: it is about a job, or something that a plugin cannot judge.
    pub fn task(&self) -> Option<&Arc<str>> {
        match self {
            Self::Bound { task, .. }
            | Self::Pipelined { task, .. }
            | Self::Nominated { task, .. }
            | Self::Evicted { task, .. } => Some(task),
            Self::Enqueued(_) | Self::PassedOver { .. } => None,
        }
    }
}

/// Report of a cycle.
#[derive(Clone, Debug)]
pub struct CycleReport {
    /// State after the cycle, with all changes.
    pub cycle: SchedulingCycle,
    /// Events, in order.
    pub events: Vec<CycleEvent>,
    /// Names of the plugins that made a round of evictions without a preemptor.
    pub rounds: Vec<Arc<str>>,
}

/// Query of a cycle: its actions, time and claims.
#[derive(Clone, Copy, Debug)]
pub struct CycleQuery<'a> {
    /// Actions, in order.
    pub actions: &'a [CycleAction],
    /// Time in seconds since 1970; `None`: unknown.
    pub now: Option<DecisionTime>,
    /// Claims that earlier cycles left. Only a policy under `corrected` honours them.
    pub claims: &'a CycleClaims,
    /// Last rounds of evictions without a preemptor.
    pub last_rounds: &'a LastRounds,
}

/// Runs one cycle of these actions, at a time in seconds since 1970, as if no other had been before.
///
/// # Errors
/// A plugin cannot apply a change. The reference panics in this case.
pub fn run_cycle(
    cluster_state: ClusterState,
    policy: &Policy,
    actions: &[CycleAction],
    now: Option<DecisionTime>,
) -> Result<CycleReport, Problem> {
    let (claims, last_rounds) = (&CycleClaims::default(), &LastRounds::default());
    let plugin_states = policy.compute_plugin_states(&cluster_state);
    run_cycle_with(
        cluster_state,
        plugin_states,
        policy,
        CycleQuery {
            actions,
            now,
            claims,
            last_rounds,
        },
    )
}

/// Runs a cycle like [`run_cycle`], with the plugin states of the cluster state, after other cycles.
///
/// Under `corrected` idle amounts are given away before anything is evicted, wherever `allocate` stands.
///
/// # Errors
/// The errors of [`run_cycle`].
pub fn run_cycle_with(
    cluster_state: ClusterState,
    plugin_states: PluginStates,
    policy: &Policy,
    query: CycleQuery<'_>,
) -> Result<CycleReport, Problem> {
    let cycle = SchedulingCycle::new(cluster_state, policy.node_change_rules(), plugin_states);
    let mut session = ActionSession::new(cycle, policy, query);
    let actions = query.actions;
    let enqueues = actions.contains(&CycleAction::Enqueue);
    let mut allocates_first = !session.is_upstream() && actions.contains(&CycleAction::Allocate);
    if !session.is_upstream() && actions.iter().any(|action| action.places()) {
        claims::run(&mut session)?;
    }
    for action in actions {
        if allocates_first && matches!(action, CycleAction::Preempt | CycleAction::Reclaim) {
            allocate::run(&mut session, enqueues)?;
        }
        allocates_first &= !action.places() || *action == CycleAction::Backfill;
        session.action = *action;
        match action {
            CycleAction::Enqueue => enqueue::run(&mut session)?,
            CycleAction::Allocate => allocate::run(&mut session, enqueues)?,
            CycleAction::Backfill => backfill::run(&mut session)?,
            CycleAction::Preempt => preempt::run(&mut session)?,
            CycleAction::Reclaim => reclaim::run(&mut session)?,
            CycleAction::Shuffle => shuffle::run(&mut session)?,
        }
    }
    claims::use_idle_amounts(&mut session)?;
    Ok(session.into_report())
}
