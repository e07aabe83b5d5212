//! `capacity-card` as a plugin of a policy.

use std::marker::PhantomData;
use std::sync::Arc;

use super::super::effective_values::value_map;
use super::super::queue_accounts::missing_state;
use super::amounts::CARD_SEPARATOR;
use super::annotations::{QUOTA, REQUEST};
use super::card_rules::CardRules;
use super::config::CapacityConfig;
use super::corrected::CapacityState;
use super::quota_verdict::QuotaVerdict;
use super::record_rules::CardRecordRules;
use super::service_types::{SERVICE_TYPE, ServiceTypes};
use super::upstream::UpstreamCapacityState;
use crate::cards::CARD_NAME_ANNOTATION;
use crate::model::{ClusterState, JobRecord, Problem, TaskClass, TaskRecord, find_text};
use crate::plugin::{
    AdmitOpinion, DecisionTime, NodeFilter, NodeScorer, OrderKey, Plugin, PluginContext, PluginDef, PluginHooks,
    PreparedHook, QuotaPlugin, Shortfall, VictimKind, VictimQuery,
};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStates};
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, PluginSwitches, YamlValue};

/// Row of the plugin in the registry.
pub(in super::super) const DEF: PluginDef = PluginDef {
    families: &["admit", "filter", "order", "score", "victims"],
    task_annotations: &[CARD_NAME_ANNOTATION, SERVICE_TYPE],
    job_annotations: &[REQUEST, SERVICE_TYPE],
    queue_annotations: &[QUOTA],
    node_labels: &["*.product", "*.count", "*.memory", "*.replicas"],
    keeps_quotas: true,
    gauges: true,
    record_rules: Some(&CardRecordRules),
    ..PluginDef::new(super::PLUGIN, compile)
};

/// The plugin, compiled with one of its rules.
#[derive(Debug)]
struct CapacityCard<S> {
    config: CapacityConfig,
    /// Rule about service types; `None`: they do not count.
    service_types: Option<ServiceTypes>,
    rules: PhantomData<fn() -> S>,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    let config = CapacityConfig::read(arguments, compatibility, report);
    let service_types = ServiceTypes::read(arguments, compatibility, report);
    match compatibility {
        Compatibility::Corrected => Arc::new(CapacityCard::<CapacityState>::new(config, service_types)),
        Compatibility::Upstream(_) => Arc::new(CapacityCard::<UpstreamCapacityState>::new(config, service_types)),
    }
}

impl<S: CardRules> CapacityCard<S> {
    fn new(config: CapacityConfig, service_types: Option<ServiceTypes>) -> Self {
        Self {
            config,
            service_types,
            rules: PhantomData,
        }
    }

    fn state(context: PluginContext<'_>) -> Result<&S, Problem> {
        context
            .plugin_states
            .get(super::PLUGIN)
            .ok_or_else(|| missing_state(super::PLUGIN))
    }
}

impl<S: CardRules> Plugin for CapacityCard<S> {
    fn hooks(&self) -> PluginHooks {
        let reads_accounts = S::IS_CORRECTED;
        PluginHooks {
            filter: reads_accounts,
            score: true,
            order: true,
            admit: true,
            victims: self.config.victims || self.service_types.is_some(),
            accounts: reads_accounts,
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        let entries = self.config.entries().into_iter();
        value_map(entries.chain(self.service_types.iter().map(ServiceTypes::entry)))
    }

    fn prepare_filter<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeFilter + 'a> {
        Ok(Self::state(context)?.node_filter(context.cluster_state, class))
    }

    fn prepare_scorer<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeScorer + 'a> {
        let name = find_text(&class.annotations, CARD_NAME_ANNOTATION);
        match name.filter(|name| name.contains(CARD_SEPARATOR)) {
            Some(name) => S::node_scorer(context, self.config, class, name),
            None => Ok(None),
        }
    }

    fn build_state(&self, cluster_state: &ClusterState, _: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        Some(Arc::new(S::build(cluster_state, self.config)))
    }

    fn queue_keys(&self, context: PluginContext<'_>, queues: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let state: &S = context.plugin_states.get(super::PLUGIN)?;
        let key = |queue: &Arc<str>| state.order_key(queue).map(Vec::from);
        Some(queues.iter().map(key).collect())
    }

    fn admit_job(&self, context: PluginContext<'_>, job: &JobRecord) -> Result<Option<AdmitOpinion>, Problem> {
        let verdict = Self::state(context)?.vote_job(context.cluster_state, job)?;
        Ok(Some(admit_opinion(verdict)))
    }

    fn admit_task(
        &self,
        context: PluginContext<'_>,
        queue: &str,
        task: &TaskRecord,
    ) -> Result<Option<AdmitOpinion>, Problem> {
        let verdict = Self::state(context)?.vote_task(context.cluster_state, queue, task)?;
        Ok(Some(admit_opinion(verdict)))
    }

    fn victims(&self, context: PluginContext<'_>, query: &VictimQuery<'_>) -> Result<Option<Vec<bool>>, Problem> {
        match query.kind {
            VictimKind::Preempt | VictimKind::Reclaim => {
                let state = Self::state(context)?;
                Ok(state.victim_verdicts(context.cluster_state, query, self.service_types.as_ref()))
            }
            // Which quota a whole gang needs is not asked here.
            VictimKind::GangPreempt | VictimKind::GangReclaim => {
                let types = self.service_types.as_ref();
                Ok(types.map(|types| types.permitted(context.cluster_state, query)))
            }
            VictimKind::Shuffle => Ok(None),
        }
    }

    fn quota(&self) -> Option<&dyn QuotaPlugin> {
        Some(self)
    }
}

impl<S: CardRules> QuotaPlugin for CapacityCard<S> {
    fn permit_job(
        &self,
        plugin_states: &mut PluginStates,
        cluster_state: &ClusterState,
        _: Option<DecisionTime>,
        job: &JobRecord,
    ) -> Result<Option<AdmitOpinion>, Problem> {
        let permit = |state: &mut S| state.permit(cluster_state, job);
        let verdict = plugin_states.update(super::PLUGIN, permit);
        Ok(Some(admit_opinion(
            verdict.unwrap_or_else(|| Err(missing_state(super::PLUGIN)))?,
        )))
    }

    fn release_tentative(&self, plugin_states: &mut PluginStates) -> Result<(), Problem> {
        let released = plugin_states.update(super::PLUGIN, S::end_tentative);
        released.ok_or_else(|| missing_state(super::PLUGIN))
    }

    fn repeatable_admissions(&self, context: PluginContext<'_>, queue: &str, task: &TaskRecord) -> u64 {
        let state = Self::state(context).ok();
        state
            .and_then(|state| state.repeated_admit_limit(context.cluster_state, queue, task))
            .unwrap_or(1)
    }

    fn reads_job(&self, task: &TaskRecord) -> bool {
        S::reads_job(task)
    }

    fn card_on_node(
        &self,
        context: PluginContext<'_>,
        task: &TaskRecord,
        node: &str,
        admitted: &[Arc<str>],
    ) -> Option<Arc<str>> {
        let on_node = Self::state(context).ok()?.cards().node_cards(node)?;
        let has = |card: &str| on_node.cards.get_key_value(card).map(|(card, _)| Arc::clone(card));
        // Under `corrected` a task that uses cards is admitted to some; the others use none, whatever they name.
        if !admitted.is_empty() || S::IS_CORRECTED {
            return admitted.iter().find_map(|card| has(card));
        }
        let name = find_text(&task.annotations, CARD_NAME_ANNOTATION)?;
        name.split(CARD_SEPARATOR).find_map(has)
    }

    fn shortfalls(
        &self,
        context: PluginContext<'_>,
        query: &VictimQuery<'_>,
        node: &str,
    ) -> Result<Vec<Shortfall>, Problem> {
        let types = self.service_types.as_ref();
        Ok(Self::state(context)?.quota_shortfalls(context.cluster_state, query, node, types))
    }

    fn breaks_order(&self, context: PluginContext<'_>, queue: &str, other: &str) -> Option<Problem> {
        Self::state(context).ok()?.incomparable(queue, other)
    }
}

fn admit_opinion(verdict: QuotaVerdict) -> AdmitOpinion {
    let reserve = verdict.min_amounts.named();
    AdmitOpinion {
        reasons: verdict
            .rejections
            .into_iter()
            .map(|rejection| (rejection.reason, rejection.measurements))
            .collect(),
        cards: verdict.cards,
        headroom: verdict.headroom,
        reserve: reserve.map(|(name, amount)| (Arc::clone(name), amount)).collect(),
    }
}

/// Follows events of a cycle, those that move tasks of one job together. The queues whose accounts changed otherwise.
pub(super) fn apply_events<S: CardRules>(
    state: &mut S,
    cluster_state: &ClusterState,
    events: &[PlacementEvent<'_>],
) -> Result<Vec<Arc<str>>, Problem> {
    let mut queues = Vec::new();
    for of_job in events.chunk_by(PlacementEvent::moves_same_job) {
        match of_job {
            [event] if event.moved_task().is_none() => queues.append(&mut state.follow(cluster_state, event)),
            moves => state.move_tasks(cluster_state, moves)?,
        }
    }
    Ok(queues)
}
