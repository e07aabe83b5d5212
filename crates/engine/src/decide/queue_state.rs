//! State of queues, by reductions of Volcano over the plugins of the policy (Volcano ed72c7c81, `Overused` and `Preemptive` in
//! `pkg/scheduler/framework/session_plugins.go`).

use crate::model::{Problem, TaskRecord};
use crate::plugin::PluginContext;
use crate::policy::Policy;

/// True if a plugin holds that a queue has so much that it is served no more tasks; `None`: all plugins abstain.
///
/// # Errors
/// A plugin cannot evaluate the queue.
pub fn queue_overused(policy: &Policy, context: PluginContext<'_>, queue: &str) -> Result<Option<bool>, Problem> {
    let mut judges = policy.hooks().overused_judges.iter();
    judges.try_fold(None, |overused, judge| {
        let own = judge.plugin.overused(context, queue)?;
        Ok(own.map_or(overused, |own| Some(own || overused.unwrap_or(false))))
    })
}

/// True if no plugin objects that a queue evicts tasks of other queues for a task; `None`: all plugins abstain.
///
/// # Errors
/// A plugin cannot evaluate the queue.
pub fn may_queue_reclaim(
    policy: &Policy,
    context: PluginContext<'_>,
    queue: &str,
    task: &TaskRecord,
) -> Result<Option<bool>, Problem> {
    let mut judges = policy.hooks().preemptive_judges.iter();
    judges.try_fold(None, |may, judge| {
        let own = judge.plugin.may_preempt(context, queue, &[task])?;
        Ok(own.map_or(may, |own| Some(own && may.unwrap_or(true))))
    })
}
