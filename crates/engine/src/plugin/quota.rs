//! Contract of plugins that keep quotas: they reserve, assign cards, and say what evictions would give back.

use std::sync::Arc;

use super::{AdmitOpinion, DecisionTime, Plugin, PluginContext, VictimQuery};
use crate::model::{ClusterState, JobRecord, Problem, TaskRecord};
use crate::plugin_state::PluginStates;

/// Plugin that keeps quotas.
pub trait QuotaPlugin: Plugin {
    /// Opinion of [`Plugin::admit_job`]; a plugin whose vote alone enqueues a job reserves its needs at once, until
    /// [`Self::release_tentative`].
    ///
    /// # Errors
    /// The errors of [`Plugin::admit_job`], or nothing can be reserved.
    fn permit_job(
        &self,
        plugin_states: &mut PluginStates,
        cluster_state: &ClusterState,
        now: Option<DecisionTime>,
        job: &JobRecord,
    ) -> Result<Option<AdmitOpinion>, Problem> {
        let context = PluginContext::new(cluster_state, plugin_states, now);
        self.admit_job(context, job)
    }

    /// Every plugin permitted a job to be enqueued: the plugin reserves the job's needs until
    /// [`Self::release_tentative`].
    ///
    /// # Errors
    /// Nothing can be reserved.
    fn enqueue_job(
        &self,
        plugin_states: &mut PluginStates,
        cluster_state: &ClusterState,
        job: &JobRecord,
    ) -> Result<(), Problem> {
        let _ = (plugin_states, cluster_state, job);
        Ok(())
    }

    /// Releases the tentative reservations of jobs that were not enqueued.
    ///
    /// # Errors
    /// A reservation cannot be released.
    fn release_tentative(&self, plugin_states: &mut PluginStates) -> Result<(), Problem>;

    /// Number of equal tasks, including this task, that the plugin certainly permits one after the other on any nodes.
    /// For example, 5 if 10 GPUs are left and each task requests 2. The task is permitted and holds nothing yet. The
    /// tasks must not use cards, and each must change the plugin's state equally
    /// ([`TaskTransition::repeated`](crate::plugin_state::TaskTransition::repeated)). 1: each task must be evaluated.
    fn repeatable_admissions(&self, context: PluginContext<'_>, queue: &str, task: &TaskRecord) -> u64 {
        let _ = (context, queue, task);
        1
    }

    /// True if the filter or the score of this task depends on the holdings of the task's job. Only for plugins that
    /// declare [`PluginHooks::accounts`](super::PluginHooks::accounts).
    fn reads_job(&self, task: &TaskRecord) -> bool {
        let _ = task;
        false
    }

    /// Card that a task uses on a node; `None`: the plugin assigns no cards, or the node has none for the task.
    /// `admitted` are the cards that admission permitted, best first; empty: it named none.
    fn card_on_node(
        &self,
        context: PluginContext<'_>,
        task: &TaskRecord,
        node: &str,
        admitted: &[Arc<str>],
    ) -> Option<Arc<str>> {
        let _ = (context, task, node, admitted);
        None
    }

    /// Amounts other than the node's resources that the preemptor lacks on a node, each with the gain from every
    /// candidate. Empty: the plugin permits the preemptor on the node.
    ///
    /// # Errors
    /// The query cannot be evaluated.
    fn shortfalls(
        &self,
        context: PluginContext<'_>,
        query: &VictimQuery<'_>,
        node: &str,
    ) -> Result<Vec<Shortfall>, Problem> {
        let _ = (context, query, node);
        Ok(Vec::new())
    }

    /// Reason why the reference cannot compare two queues because the first queue lacks a property. Only under
    /// `compatibility: upstream`.
    fn breaks_order(&self, context: PluginContext<'_>, queue: &str, other: &str) -> Option<Problem> {
        let _ = (context, queue, other);
        None
    }
}

/// Amount other than the node's resources that a preemptor lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// Missing amount; above 0.
    pub missing: i128,
    /// Gain from the eviction of each candidate, in their order.
    pub gains: Vec<i128>,
}
