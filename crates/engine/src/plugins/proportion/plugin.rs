//! `proportion` as a plugin of a policy.

use std::sync::Arc;

use super::super::effective_values::value_map;
use super::super::queue_accounts::{
    IntegerAmounts, QueueLimiter, QueueTotals, QuotaLimit, QuotaReason, QuotaState, not_open, opinion,
};
use super::PLUGIN;
use super::record_rules::WeightRules;
use super::state::ProportionState;
use crate::model::{ClusterState, JobRecord, Problem, ResourceVector, TaskRecord};
use crate::plugin::{
    AdmitOpinion, OrderKey, OrderKeyMeanings, OrderKeyPart, Plugin, PluginContext, PluginDef, PluginHooks, QuotaPlugin,
    VictimKind, VictimQuery,
};
use crate::plugin_state::PluginState;
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, PluginSwitches, YamlValue};

/// Registry entry of the plugin.
pub(in super::super) const DEF: PluginDef = PluginDef {
    families: &["admit", "order", "victims"],
    keeps_quotas: true,
    gauges: true,
    record_rules: Some(&WeightRules),
    order_keys: OrderKeyMeanings {
        jobs: &[],
        queues: &[OrderKeyPart::PRIORITY, OrderKeyPart::SHARE],
    },
    ..PluginDef::new(PLUGIN, compile)
};

/// Code of a queue that would hold more than it deserves.
const OVER_DESERVED: &str = "QueueOverDeserved";

/// Compiled plugin. It has no arguments.
#[derive(Debug)]
struct Proportion {
    compatibility: Compatibility,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, PLUGIN, &[], |_| false);
    Arc::new(Proportion { compatibility })
}

impl Plugin for Proportion {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            order: true,
            admit: true,
            victims: true,
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        value_map([])
    }

    fn build_state(&self, cluster_state: &ClusterState, _: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        Some(Arc::new(ProportionState::of(cluster_state, self.compatibility)))
    }

    fn queue_keys(&self, context: PluginContext<'_>, queues: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let state = ProportionState::of_context(context).ok()?;
        let key = |queue: &Arc<str>| {
            let account = state.known_account(queue)?;
            Ok(vec![-f64::from(account.limits.priority), account.share])
        };
        Some(queues.iter().map(key).collect())
    }

    fn overused(&self, context: PluginContext<'_>, queue: &str) -> Result<Option<bool>, Problem> {
        let account = ProportionState::of_context(context)?.known_account(queue)?;
        Ok(Some(
            account.deserved.is_at_most(&ResourceVector::from(&account.allocated)),
        ))
    }

    fn may_preempt(
        &self,
        context: PluginContext<'_>,
        queue: &str,
        tasks: &[&TaskRecord],
    ) -> Result<Option<bool>, Problem> {
        let requests = IntegerAmounts::of_tasks(tasks);
        let state = ProportionState::of_context(context)?;
        let account = state.known_account(queue)?;
        // As Admit judges the task, which need not wait in the state yet.
        let deserved = match (self.compatibility, tasks) {
            (Compatibility::Corrected, [task]) => state.deserved_for(context.cluster_state, queue, task),
            _ => Arc::clone(&account.deserved),
        };
        let limit = deserved_limit(queue, &deserved, account);
        Ok(Some(reasons_against(state, account, limit, &requests).is_empty()))
    }

    fn admit_job(&self, context: PluginContext<'_>, job: &JobRecord) -> Result<Option<AdmitOpinion>, Problem> {
        let state = ProportionState::of_context(context)?;
        let account = state.existing_account(&job.queue)?;
        if !account.limits.is_open {
            return Ok(Some(opinion(vec![not_open(PLUGIN, &job.queue)], None)));
        }
        state.opinion_on_job(job, [(&*job.queue, account)]).map(Some)
    }

    fn admit_task(
        &self,
        context: PluginContext<'_>,
        queue: &str,
        task: &TaskRecord,
    ) -> Result<Option<AdmitOpinion>, Problem> {
        let state = ProportionState::of_context(context)?;
        let requests = IntegerAmounts::from(&task.requests);
        let account = state.known_account(queue)?;
        let deserved = state.deserved_for(context.cluster_state, queue, task);
        let limit = deserved_limit(queue, &deserved, account);
        let headroom = limit.headroom(&account.allocated, &requests);
        let reasons = reasons_against(state, account, limit, &requests);
        Ok(Some(opinion(reasons, headroom)))
    }

    fn victims(&self, context: PluginContext<'_>, query: &VictimQuery<'_>) -> Result<Option<Vec<bool>>, Problem> {
        match query.kind {
            VictimKind::Reclaim => ProportionState::of_context(context)?
                .reclaimable(context.cluster_state, query)
                .map(Some),
            VictimKind::Preempt | VictimKind::GangPreempt | VictimKind::GangReclaim | VictimKind::Shuffle => Ok(None),
        }
    }

    fn quota(&self) -> Option<&dyn QuotaPlugin> {
        Some(self)
    }
}

impl QueueLimiter for Proportion {
    type State = ProportionState;

    fn compatibility(&self) -> Compatibility {
        self.compatibility
    }
}

/// Reasons against more requests in a queue.
fn reasons_against(
    state: &ProportionState,
    account: &QueueTotals,
    limit: QuotaLimit<'_>,
    requests: &IntegerAmounts,
) -> Vec<QuotaReason> {
    if !account.limits.is_open {
        return vec![not_open(PLUGIN, limit.queue)];
    }
    limit.reasons(&state.accounts.resources, &account.allocated, requests)
}

/// Limit of a queue by what it deserves.
pub(super) fn deserved_limit<'a>(
    queue: &'a str,
    deserved: &'a ResourceVector,
    account: &'a QueueTotals,
) -> QuotaLimit<'a> {
    QuotaLimit {
        plugin: PLUGIN,
        code: OVER_DESERVED,
        name: "deserved amount",
        measured_as: "deserved",
        queue,
        amounts: deserved,
        bound: Some(&account.limits.real_capability),
    }
}
