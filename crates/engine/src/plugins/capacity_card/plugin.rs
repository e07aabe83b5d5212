//! `capacity-card` as a plugin of a policy.

use std::sync::Arc;

use super::super::effective_values::value_map;
use super::amounts::CARD_SEPARATOR;
use super::annotations::{QUOTA, REQUEST, normalize_choice};
use super::config::CapacityConfig;
use super::node_order::node_order;
use super::record_rules::CardRules;
use super::reservations;
use super::state::{CapacityState, TaskEvent};
use super::task_moves::HoldingChange;
use super::votes::QuotaVerdict;
use crate::cards::{CARD_NAME_ANNOTATION, NodeCards};
use crate::model::{
    CHUNK_SIZE, ClusterState, ErrorCode, JobRecord, NodeChunk, Problem, ResourceAmounts, ResourceId, ResourceTable,
    TaskClass, TaskRecord, TaskStatus, TextMap, find_text,
};
use crate::plugin::{
    AdmitOpinion, ChunkScores, NodeFilter, NodeScorer, OrderKey, Plugin, PluginAccounts, PluginContext, PluginDef,
    PluginHooks, PreparedHook, QuotaPlugin, Shortfall, VictimKind, VictimQuery,
};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange, PluginStates};
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, PluginSwitches, YamlValue};

/// Row of the plugin in the registry.
pub(in super::super) const DEF: PluginDef = PluginDef {
    families: &["admit", "filter", "order", "score", "victims"],
    task_annotations: &[CARD_NAME_ANNOTATION],
    job_annotations: &[REQUEST],
    queue_annotations: &[QUOTA],
    node_labels: &["*.product", "*.count", "*.memory", "*.replicas"],
    keeps_quotas: true,
    gauges: true,
    record_rules: Some(&CardRules),
    ..PluginDef::new(super::PLUGIN, compile)
};

/// The plugin, compiled.
#[derive(Debug)]
struct CapacityCard {
    config: CapacityConfig,
    compatibility: Compatibility,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    Arc::new(CapacityCard {
        config: CapacityConfig::read(arguments, compatibility, report),
        compatibility,
    })
}

impl Plugin for CapacityCard {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            filter: self.compatibility == Compatibility::Corrected,
            score: true,
            order: true,
            admit: true,
            victims: self.config.victims,
            accounts: self.compatibility == Compatibility::Corrected,
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        value_map(self.config.entries())
    }

    fn prepare_filter<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeFilter + 'a> {
        let state = capacity_state(context)?;
        let filter = state.node_filter(context.cluster_state, class);
        Ok(filter.map(|filter| Box::new(filter) as Box<dyn NodeFilter>))
    }

    fn prepare_scorer<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeScorer + 'a> {
        let Some(name) =
            find_text(&class.annotations, CARD_NAME_ANNOTATION).filter(|name| name.contains(CARD_SEPARATOR))
        else {
            return Ok(None);
        };
        if self.compatibility.is_upstream() {
            return Ok(Some(Box::new(CardScorer {
                name: Arc::from(name),
                weight: self.config.node_order_weight,
                compatibility: self.compatibility,
                resources: context.cluster_state.resources(),
            })));
        }
        let state = capacity_state(context)?;
        let name = normalize_choice(name);
        Ok(name
            .contains(CARD_SEPARATOR)
            .then(|| Box::new(state.node_scorer(context.cluster_state, class, &name)) as Box<dyn NodeScorer>))
    }

    fn build_state(&self, cluster_state: &ClusterState, _: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        Some(Arc::new(CapacityState::of(
            cluster_state,
            self.config,
            self.compatibility,
        )))
    }

    fn queue_keys(&self, context: PluginContext<'_>, queues: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let state: &CapacityState = context.plugin_states.get(super::PLUGIN)?;
        let key = |queue: &Arc<str>| state.order_key(queue).map(Vec::from);
        Some(queues.iter().map(key).collect())
    }

    fn admit_job(&self, context: PluginContext<'_>, job: &JobRecord) -> Result<Option<AdmitOpinion>, Problem> {
        let verdict = capacity_state(context)?.vote_job(context.cluster_state, job)?;
        Ok(Some(admit_opinion(verdict)))
    }

    fn admit_task(
        &self,
        context: PluginContext<'_>,
        queue: &str,
        task: &TaskRecord,
    ) -> Result<Option<AdmitOpinion>, Problem> {
        let verdict = capacity_state(context)?.vote_task(context.cluster_state, queue, task)?;
        Ok(Some(admit_opinion(verdict)))
    }

    fn victims(&self, context: PluginContext<'_>, query: &VictimQuery<'_>) -> Result<Option<Vec<bool>>, Problem> {
        match query.kind {
            VictimKind::Preempt | VictimKind::Reclaim => {
                Ok(capacity_state(context)?.victim_verdicts(context.cluster_state, query))
            }
            VictimKind::GangPreempt | VictimKind::GangReclaim => Ok(None),
        }
    }

    fn quota(&self) -> Option<&dyn QuotaPlugin> {
        Some(self)
    }
}

impl QuotaPlugin for CapacityCard {
    fn permit_job(
        &self,
        plugin_states: &mut PluginStates,
        cluster_state: &ClusterState,
        _: Option<i64>,
        job: &JobRecord,
    ) -> Result<Option<AdmitOpinion>, Problem> {
        let permit = |state: &mut CapacityState| state.permit(cluster_state, job);
        let verdict = plugin_states.update(super::PLUGIN, permit);
        Ok(Some(admit_opinion(verdict.unwrap_or_else(|| Err(missing_state()))?)))
    }

    fn release_tentative(&self, plugin_states: &mut PluginStates) -> Result<(), Problem> {
        let released = plugin_states.update(super::PLUGIN, CapacityState::end_tentative);
        released.ok_or_else(missing_state)
    }

    fn repeatable_admissions(&self, context: PluginContext<'_>, queue: &str, task: &TaskRecord) -> u64 {
        let state = capacity_state(context).ok();
        state
            .and_then(|state| state.repeated_admit_limit(context.cluster_state, queue, task))
            .unwrap_or(1)
    }

    fn reads_job(&self, task: &TaskRecord) -> bool {
        if self.compatibility != Compatibility::Corrected {
            return false;
        }
        // Cards that no name covers may be any of several, too.
        let resources = task
            .requests
            .iter()
            .chain(task.limits.iter().flat_map(|limits| limits.iter()));
        let plain = [ResourceId::CPU, ResourceId::MEMORY, ResourceId::PODS];
        let mut extended = resources.map(|(id, _)| id).filter(|id| !plain.contains(id));
        match find_text(&task.annotations, CARD_NAME_ANNOTATION).filter(|name| !name.is_empty()) {
            Some(name) if name.contains(CARD_SEPARATOR) => true,
            Some(_) => {
                let first = extended.next();
                extended.any(|id| Some(id) != first)
            }
            None => extended.next().is_some(),
        }
    }

    fn card_on_node(
        &self,
        context: PluginContext<'_>,
        task: &TaskRecord,
        node: &str,
        admitted: &[Arc<str>],
    ) -> Option<Arc<str>> {
        let on_node = capacity_state(context).ok()?.cards().node_cards(node)?;
        let has = |card: &str| on_node.cards.get_key_value(card).map(|(card, _)| Arc::clone(card));
        // Under `corrected` a task that uses cards is admitted to some; the others use none, whatever they name.
        if !admitted.is_empty() || self.compatibility == Compatibility::Corrected {
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
        Ok(capacity_state(context)?.quota_shortfalls(context.cluster_state, query, node))
    }

    fn breaks_order(&self, context: PluginContext<'_>, queue: &str, other: &str) -> Option<Problem> {
        let state = capacity_state(context).ok()?;
        state
            .account(queue)
            .is_none()
            .then(|| state.compare_queues(queue, other).err())
            .flatten()
    }
}

fn capacity_state(context: PluginContext<'_>) -> Result<&CapacityState, Problem> {
    context.plugin_states.get(super::PLUGIN).ok_or_else(missing_state)
}

fn missing_state() -> Problem {
    let message = "there is no state of `capacity-card` for this question";
    Problem::new(ErrorCode::PluginStateMissing, "", message)
}

fn admit_opinion(verdict: QuotaVerdict) -> AdmitOpinion {
    AdmitOpinion {
        reasons: verdict
            .rejections
            .into_iter()
            .map(|rejection| (rejection.reason, rejection.measurements))
            .collect(),
        cards: verdict.cards,
        headroom: verdict.headroom,
        reserve: reservations::named_amounts(&verdict.min_amounts),
    }
}

impl PluginState for CapacityState {
    fn accounts(&self) -> Option<&dyn PluginAccounts> {
        Some(self)
    }

    fn apply(&mut self, change: &PluginStateChange<'_>) -> Result<Vec<Arc<str>>, Problem> {
        let (cluster_state, events) = match change {
            PluginStateChange::Events(cluster_state, events) => (cluster_state, events),
            PluginStateChange::Step(changes) => {
                *self = self.advanced(changes).ok_or_else(PluginStateChange::unfollowed)?;
                return Ok(Vec::new());
            }
        };
        let mut queues = Vec::new();
        for of_job in events.chunk_by(PlacementEvent::moves_same_job) {
            self.apply_changes(cluster_state, of_job.iter().filter_map(holding_change))?;
            for event in of_job {
                match event {
                    PlacementEvent::Enqueue(job) => self.confirm_permit(job),
                    PlacementEvent::Dequeue(job) => self.revoke_admission(job),
                    PlacementEvent::Reserve(job) => queues.append(&mut self.update_reservation(cluster_state, job)),
                    PlacementEvent::Allocate(_) | PlacementEvent::Pipeline(_) | PlacementEvent::Deallocate(_) => {}
                }
            }
        }
        Ok(queues)
    }
}

/// Change of what a task holds by an event.
fn holding_change<'a>(event: &PlacementEvent<'a>) -> Option<HoldingChange<'a>> {
    let (moved, _) = event.moved_task()?;
    let (node, card) = (&*moved.after.node, moved.card);
    let (task, change) = match event {
        PlacementEvent::Allocate(_) => (moved.after, TaskEvent::Allocate { node, card }),
        PlacementEvent::Pipeline(_) => (moved.after, TaskEvent::Pipeline { node, card }),
        PlacementEvent::Deallocate(_)
        | PlacementEvent::Enqueue(_)
        | PlacementEvent::Dequeue(_)
        | PlacementEvent::Reserve(_) => (moved.before, TaskEvent::Deallocate),
    };
    Some(HoldingChange {
        task,
        event: change,
        waits: change == TaskEvent::Deallocate && moved.after.status == TaskStatus::Pending,
        repeated: moved.repeated,
    })
}

/// Scores nodes by the first acceptable card that they have.
struct CardScorer<'a> {
    name: Arc<str>,
    weight: f64,
    compatibility: Compatibility,
    resources: &'a ResourceTable,
}

impl NodeScorer for CardScorer<'_> {
    fn parts(&self) -> &[&'static str] {
        &[""]
    }

    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]) {
        let Some(scores) = parts.first_mut() else { return };
        *scores = [0.0; CHUNK_SIZE];
        // Nodes of one pool have the same labels and the same amounts: each kind is looked into once.
        let mut kinds: Vec<(&TextMap, &ResourceAmounts, f64)> = Vec::new();
        for offset in chunk.live().iter() {
            let (Some(entry), Some(score)) = (chunk.entry(offset), scores.get_mut(offset)) else {
                continue;
            };
            let record = &entry.record;
            let known = kinds
                .iter()
                .find(|(labels, allocatable, _)| **labels == record.labels && **allocatable == record.allocatable);
            *score = if let Some((_, _, score)) = known {
                *score
            } else {
                let cards = NodeCards::of(record, self.resources, self.compatibility);
                let own = node_order(&self.name, Some(&cards), self.weight);
                kinds.push((&record.labels, &record.allocatable, own));
                own
            };
        }
    }
}
