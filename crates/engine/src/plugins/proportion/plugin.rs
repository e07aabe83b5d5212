//! `proportion` as a plugin of a policy.

use std::sync::Arc;

use super::super::effective_values::value_map;
use super::super::queue_accounts::{
    IntegerAmounts, QueueTotals, QuotaLimit, QuotaReason, QuotaState, not_open, opinion, permit_by_vote,
};
use super::PLUGIN;
use super::record_rules::WeightRules;
use super::state::ProportionState;
use crate::model::{ClusterState, JobRecord, Problem, ResourceVector, TaskRecord};
use crate::plugin::{
    AdmitOpinion, OrderKey, OrderKeyMeanings, OrderKeyPart, Plugin, PluginContext, PluginDef, PluginHooks, QuotaPlugin,
    Shortfall, VictimKind, VictimQuery,
};
use crate::plugin_state::{PluginState, PluginStates};
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
/// Code of a queue that would hold and keep more than it may.
const OVER_CAPABILITY: &str = "QueueOverCapability";

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
        let mut requests = IntegerAmounts::default();
        for task in tasks {
            requests.add_record(&task.requests, 1);
        }
        let state = ProportionState::of_context(context)?;
        let account = state.known_account(queue)?;
        // As Admit judges the task, which need not wait in the state yet.
        let deserved = match (self.compatibility, tasks) {
            (Compatibility::Corrected, [task]) => state.deserved_for(context.cluster_state, queue, task),
            _ => Arc::clone(&account.deserved),
        };
        let limit = deserved_limit(queue, &deserved, account);
        Ok(Some(reasons_against(state, limit, &requests)?.is_empty()))
    }

    fn admit_job(&self, context: PluginContext<'_>, job: &JobRecord) -> Result<Option<AdmitOpinion>, Problem> {
        let state = ProportionState::of_context(context)?;
        let account = state.existing_account(&job.queue)?;
        if !account.limits.is_open {
            return Ok(Some(opinion(vec![not_open(PLUGIN, &job.queue)], None)));
        }
        let Some(demand) = state.accounts.job_demand(job) else {
            return Ok(Some(AdmitOpinion::default()));
        };
        let limit = QuotaLimit {
            plugin: PLUGIN,
            code: OVER_CAPABILITY,
            name: "real capability",
            measured_as: "capability",
            queue: &job.queue,
            amounts: &account.limits.real_capability,
            bound: None,
        };
        let names = &state.accounts.resources;
        let reasons = state.accounts.reasons_against_job(limit, account, &demand)?;
        Ok(Some(AdmitOpinion {
            reserve: demand.reserve.named(names),
            ..opinion(reasons, None)
        }))
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
        Ok(Some(opinion(reasons_against(state, limit, &requests)?, headroom)))
    }

    fn victims(&self, context: PluginContext<'_>, query: &VictimQuery<'_>) -> Result<Option<Vec<bool>>, Problem> {
        match query.kind {
            VictimKind::Reclaim => ProportionState::of_context(context)?
                .reclaimable(context.cluster_state, query)
                .map(Some),
            VictimKind::Preempt | VictimKind::GangPreempt | VictimKind::GangReclaim => Ok(None),
        }
    }

    fn quota(&self) -> Option<&dyn QuotaPlugin> {
        Some(self)
    }
}

impl QuotaPlugin for Proportion {
    fn permit_job(
        &self,
        plugin_states: &mut PluginStates,
        cluster_state: &ClusterState,
        now: Option<i64>,
        job: &JobRecord,
    ) -> Result<Option<AdmitOpinion>, Problem> {
        permit_by_vote::<ProportionState>(self, self.compatibility, plugin_states, cluster_state, now, job)
    }

    fn enqueue_job(&self, plugin_states: &mut PluginStates, _: &ClusterState, job: &JobRecord) -> Result<(), Problem> {
        ProportionState::enqueue_after_votes(self.compatibility, plugin_states, job)
    }

    fn release_tentative(&self, plugin_states: &mut PluginStates) -> Result<(), Problem> {
        ProportionState::end_tentative(plugin_states)
    }

    fn repeatable_admissions(&self, context: PluginContext<'_>, queue: &str, task: &TaskRecord) -> u64 {
        let room = ProportionState::of_context(context).and_then(|state| {
            let account = state.known_account(queue)?;
            let deserved = state.deserved_for(context.cluster_state, queue, task);
            let requests = IntegerAmounts::from(&task.requests);
            Ok(deserved_limit(queue, &deserved, account).headroom(&account.allocated, &requests))
        });
        room.map_or(1, |room| room.unwrap_or(u64::MAX).max(1))
    }

    fn shortfalls(
        &self,
        context: PluginContext<'_>,
        query: &VictimQuery<'_>,
        _: &str,
    ) -> Result<Vec<Shortfall>, Problem> {
        Ok(ProportionState::of_context(context)?.shortfalls(query))
    }
}

/// Reasons against more requests in a queue.
fn reasons_against(
    state: &ProportionState,
    limit: QuotaLimit<'_>,
    requests: &IntegerAmounts,
) -> Result<Vec<QuotaReason>, Problem> {
    let account = state.known_account(limit.queue)?;
    if !account.limits.is_open {
        return Ok(vec![not_open(PLUGIN, limit.queue)]);
    }
    Ok(limit.reasons(&state.accounts.resources, &account.allocated, requests))
}

fn deserved_limit<'a>(queue: &'a str, deserved: &'a ResourceVector, account: &'a QueueTotals) -> QuotaLimit<'a> {
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
