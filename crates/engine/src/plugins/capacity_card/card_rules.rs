//! Contract of the two rules of the plugin, that of the reference and the corrected one. The policy chooses one of them when
//! it is compiled.

use super::amounts::QuotaAmounts;
use super::card_accounts::CardAccounts;
use super::config::CapacityConfig;
use super::quota_verdict::QuotaVerdict;
use super::service_types::ServiceTypes;
use crate::model::{ClusterState, JobRecord, Problem, Reservation, TaskClass, TaskRecord};
use crate::plugin::{NodeFilter, NodeScorer, PluginAccount, PluginContext, Shortfall, VictimQuery};
use crate::plugin_state::{PlacementEvent, PluginState};
use std::ops::Deref;
use std::sync::Arc;

/// Votes under one of the rules.
pub trait CardVotes {
    /// The vote on a job: under `corrected` every reason against it, or the cards that it is given, under `upstream` the
    /// first reason. What is reserved for the job itself does not count under `corrected`. Nothing is reserved by asking.
    ///
    /// # Errors
    /// The job's queue is not there; or, under `upstream`, the reference panics.
    fn vote_job(&self, cluster_state: &ClusterState, job: &JobRecord) -> Result<QuotaVerdict, Problem>;

    /// The vote on a job; what a permitted job needs is reserved: under `upstream` once more with each permit.
    ///
    /// # Errors
    /// The errors of [`Self::vote_job`].
    fn permit(&mut self, cluster_state: &ClusterState, job: &JobRecord) -> Result<QuotaVerdict, Problem>;

    /// Ends permits that were not kept.
    fn end_tentative(&mut self) {}

    /// The check of a task of a queue: under `corrected` every reason against it, or the cards that would do.
    ///
    /// # Errors
    /// The queue is not there.
    fn vote_task(&self, cluster_state: &ClusterState, queue: &str, task: &TaskRecord) -> Result<QuotaVerdict, Problem>;
}

/// State of the plugin under one of its rules.
pub(super) trait CardRules: CardVotes + PluginState + Deref<Target = CardAccounts> + Sized {
    /// True for the corrected rule.
    const IS_CORRECTED: bool;

    /// The state of a cluster state.
    fn build(cluster_state: &ClusterState, config: CapacityConfig) -> Self;

    /// Number of tasks like this permitted task that are permitted in a row; `None`: each must be asked about.
    fn repeated_admit_limit(&self, cluster_state: &ClusterState, queue: &str, task: &TaskRecord) -> Option<u64>;

    /// Follows events that move tasks of one job.
    fn move_tasks(&mut self, cluster_state: &ClusterState, moves: &[PlacementEvent<'_>]) -> Result<(), Problem>;

    /// Follows an event that moves no task. The queues whose accounts changed.
    fn follow(&mut self, cluster_state: &ClusterState, event: &PlacementEvent<'_>) -> Vec<Arc<str>>;

    /// A job as listings show it.
    fn listed_job(&self, cluster_state: &ClusterState, job: &JobRecord) -> PluginAccount;

    /// Amounts that are still reserved by the reservation of a job.
    fn reservation_rest(&self, reservation: &Reservation) -> QuotaAmounts;

    /// True if the card quota of a queue itself counts, so that it may hold no card that the quota does not name.
    fn limits_own_cards(&self, queue: &Arc<str>) -> bool {
        let _ = queue;
        true
    }

    /// The filter for a class of tasks; `None`: the quota passes every node.
    fn node_filter<'a>(
        &'a self,
        cluster_state: &'a ClusterState,
        class: &TaskClass,
    ) -> Option<Box<dyn NodeFilter + 'a>> {
        let _ = (cluster_state, class);
        None
    }

    /// The scorer for a class of tasks that may use several cards, joined by name; `None`: all nodes are equal.
    fn node_scorer<'a>(
        context: PluginContext<'a>,
        config: CapacityConfig,
        class: &'a TaskClass,
        name: &str,
    ) -> Result<Option<Box<dyn NodeScorer + 'a>>, Problem>;

    /// True if the filter or the score of this task depends on what the task's job holds.
    fn reads_job(task: &TaskRecord) -> bool {
        let _ = task;
        false
    }

    /// For each candidate whether it may go; `None`: the preemptor belongs to no queue, or needs no cards and service types
    /// do not count.
    fn victim_verdicts(
        &self,
        cluster_state: &ClusterState,
        query: &VictimQuery<'_>,
        service_types: Option<&ServiceTypes>,
    ) -> Option<Vec<bool>> {
        let _ = (cluster_state, query, service_types);
        None
    }

    /// Shortfalls of quota for what the preemptor would hold on a node.
    fn quota_shortfalls(
        &self,
        cluster_state: &ClusterState,
        query: &VictimQuery<'_>,
        node: &str,
        service_types: Option<&ServiceTypes>,
    ) -> Vec<Shortfall> {
        let _ = (cluster_state, query, node, service_types);
        Vec::new()
    }

    /// Why a queue that has no account cannot be compared with another.
    fn incomparable(&self, queue: &str, other: &str) -> Option<Problem> {
        let _ = (queue, other);
        None
    }
}
