//! `capacity` as a plugin of a policy.

use std::sync::Arc;

use smallvec::SmallVec;

use super::super::effective_values::{map_entry, value_map};
use super::super::queue_accounts::{
    IntegerAmounts, QueueLimiter, QueueTotals, QuotaLimit, QuotaReason, QuotaState, lasting_reason, not_open, opinion,
};
use super::PLUGIN;
use super::config::{RECLAIM_LEVEL, read_reclaim_level};
use super::record_rules::ParentRules;
use super::state::QueueCapacityState;
use crate::model::{ClusterState, JobRecord, Problem, TaskRecord};
use crate::plugin::{
    AdmitOpinion, OrderKey, OrderKeyMeanings, OrderKeyPart, Plugin, PluginContext, PluginDef, PluginHooks,
    QueueComparison, QuotaPlugin, VictimKind, VictimQuery,
};
use crate::plugin_state::PluginState;
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, PluginSwitches, Switch, YamlValue};

/// Registry entry of the plugin.
pub(in super::super) const DEF: PluginDef = PluginDef {
    families: &["admit", "order", "victims"],
    keeps_quotas: true,
    gauges: true,
    record_rules: Some(&ParentRules),
    order_keys: OrderKeyMeanings {
        jobs: &[],
        queues: &[
            OrderKeyPart::PRIORITY,
            OrderKeyPart::SHARE,
            OrderKeyPart::flag("without deserved amounts"),
        ],
    },
    ..PluginDef::new(PLUGIN, compile)
};

/// Code of a queue that has queues below it, and takes no jobs.
const NOT_A_LEAF: &str = "QueueNotALeaf";
/// Code of a tree of queues in which something is wrong, so that the reference decides nothing.
const TREE_NOT_READY: &str = "QueueTreeNotReady";

/// Compiled plugin.
#[derive(Debug)]
struct Capacity {
    reclaim_level: usize,
    compatibility: Compatibility,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    Arc::new(Capacity {
        reclaim_level: read_reclaim_level(arguments, compatibility, report),
        compatibility,
    })
}

impl Plugin for Capacity {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            order: true,
            admit: true,
            victims: true,
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        let level = i64::try_from(self.reclaim_level).unwrap_or(i64::MAX);
        value_map([map_entry(RECLAIM_LEVEL, YamlValue::Int(level))])
    }

    fn build_state(&self, cluster_state: &ClusterState, switches: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        let hierarchy = switches.is_on(Switch::Hierarchy);
        let state = QueueCapacityState::of(cluster_state, self.compatibility, self.reclaim_level, hierarchy);
        Some(Arc::new(state))
    }

    fn queue_keys(&self, context: PluginContext<'_>, queues: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let state = QueueCapacityState::of_context(context).ok()?;
        if state.unready_reason().is_some() {
            return None;
        }
        Some(queues.iter().map(|queue| state.order_key(queue)).collect())
    }

    fn queue_comparison<'a>(
        &'a self,
        context: PluginContext<'a>,
        queues: &[Arc<str>],
    ) -> Option<Box<dyn QueueComparison + 'a>> {
        let comparison = QueueCapacityState::of_context(context).ok()?.tree_comparison(queues)?;
        Some(Box::new(comparison))
    }

    fn victim_queue_order(&self, context: PluginContext<'_>, preemptor: &str, left: &str, right: &str) -> Option<i64> {
        let state = QueueCapacityState::of_context(context).ok()?;
        let tree = state.tree.as_ref().filter(|_| state.has_ready_tree())?;
        let level = |queue: &str| i64::try_from(tree.common_level(queue, preemptor)).unwrap_or(i64::MAX);
        Some((level(right) - level(left)).signum())
    }

    fn may_preempt(
        &self,
        context: PluginContext<'_>,
        queue: &str,
        tasks: &[&TaskRecord],
    ) -> Result<Option<bool>, Problem> {
        QueueCapacityState::of_context(context)?
            .may_preempt(context.cluster_state, queue, tasks)
            .map(Some)
    }

    fn admit_job(&self, context: PluginContext<'_>, job: &JobRecord) -> Result<Option<AdmitOpinion>, Problem> {
        let state = QueueCapacityState::of_context(context)?;
        let levels = state.levels(&job.queue)?;
        let reasons = state.reasons_against_levels(&levels);
        if !reasons.is_empty() {
            return Ok(Some(opinion(reasons, None)));
        }
        state.opinion_on_job(job, levels).map(Some)
    }

    fn admit_task(
        &self,
        context: PluginContext<'_>,
        queue: &str,
        task: &TaskRecord,
    ) -> Result<Option<AdmitOpinion>, Problem> {
        let state = QueueCapacityState::of_context(context)?;
        state.known_account(queue)?;
        let requests = IntegerAmounts::from(&task.requests);
        let mut reasons = state.reasons_against_levels(&state.levels(queue)?);
        if reasons.is_empty() {
            reasons = state.reasons_against_sum(queue, &requests, usize::MAX);
        }
        Ok(Some(opinion(reasons, state.room_for(queue, &requests))))
    }

    fn victims(&self, context: PluginContext<'_>, query: &VictimQuery<'_>) -> Result<Option<Vec<bool>>, Problem> {
        let chosen = self.ordered_victims(context, query)?;
        Ok(chosen.map(|chosen| (0..query.candidates.len()).map(|at| chosen.contains(&at)).collect()))
    }

    fn ordered_victims(
        &self,
        context: PluginContext<'_>,
        query: &VictimQuery<'_>,
    ) -> Result<Option<Vec<usize>>, Problem> {
        let state = QueueCapacityState::of_context(context)?;
        match query.kind {
            VictimKind::Preempt | VictimKind::Shuffle => Ok(None),
            kind if kind.is_of_gangs() && !self.compatibility.release().rules().has_gang_actions => Ok(None),
            VictimKind::GangPreempt => Ok(Some((0..query.candidates.len()).collect())),
            VictimKind::GangReclaim => state.reclaimable_in_turn(query, None).map(Some),
            VictimKind::Reclaim => state.reclaimable(context.cluster_state, query).map(Some),
        }
    }

    fn quota(&self) -> Option<&dyn QuotaPlugin> {
        Some(self)
    }
}

impl QueueLimiter for Capacity {
    type State = QueueCapacityState;

    fn compatibility(&self) -> Compatibility {
        self.compatibility
    }
}

/// Accounts of a queue and of those above it, with their names.
pub(super) type QueueLevels<'a> = SmallVec<[(&'a str, &'a Arc<QueueTotals>); 4]>;

impl QueueCapacityState {
    /// Accounts of a queue that exists and of those above it, from below, with their names: each is looked up once.
    pub(super) fn levels<'a>(&'a self, queue: &'a str) -> Result<QueueLevels<'a>, Problem> {
        let own = (queue, self.existing_account(queue)?);
        let above = self.accounts.ancestors(queue).iter();
        let above = above.filter_map(|name| Some((&**name, self.accounts.account(name)?)));
        Ok(std::iter::once(own).chain(above).collect())
    }

    /// Reasons against everything new in the queue of the lowest level.
    pub(super) fn reasons_against_levels(&self, levels: &[(&str, &Arc<QueueTotals>)]) -> Vec<QuotaReason> {
        if let Some(why) = self.unready_reason() {
            let message = format!("the tree of queues is not ready: {why}");
            return vec![lasting_reason(PLUGIN, TREE_NOT_READY, message)];
        }
        let mut reasons = Vec::new();
        let lowest = levels.first().map(|(queue, _)| *queue);
        if let Some(queue) = lowest.filter(|queue| self.tree.as_ref().is_some_and(|tree| !tree.is_leaf(queue))) {
            let message = format!("Queue <{queue}> has queues below it and takes no jobs; use one of them");
            reasons.push(lasting_reason(PLUGIN, NOT_A_LEAF, message));
        }
        let corrected = self.compatibility() == Compatibility::Corrected;
        for (name, account) in levels.iter().take(if corrected { usize::MAX } else { 1 }) {
            if !account.limits.is_open {
                reasons.push(not_open(PLUGIN, name));
            }
        }
        reasons
    }

    /// Reasons against more requests, of a queue and of so many above it.
    pub(super) fn reasons_against_sum(&self, queue: &str, requests: &IntegerAmounts, above: usize) -> Vec<QuotaReason> {
        let levels = self.chain(queue).take(above.saturating_add(1));
        let reasons = levels.flat_map(|(name, account)| {
            let limit = QuotaLimit::real_capability(PLUGIN, name, account);
            limit.reasons(&self.accounts.resources, &account.allocated, requests)
        });
        reasons.collect()
    }

    /// Number of tasks with these requests that a queue, and those above it, still admit; `None`: any number.
    pub(super) fn room_for(&self, queue: &str, requests: &IntegerAmounts) -> Option<u64> {
        let levels = self.chain(queue);
        let rooms = levels.filter_map(|(name, account)| {
            QuotaLimit::real_capability(PLUGIN, name, account).headroom(&account.allocated, requests)
        });
        rooms.min()
    }
}
