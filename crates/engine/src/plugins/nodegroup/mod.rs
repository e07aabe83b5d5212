//! `nodegroup`: the groups of nodes that queues use and avoid (Volcano ed72c7c81, pkg/scheduler/plugins/nodegroup).

mod arguments;
mod group_limits;
mod group_rules;
mod record_rules;
mod state;

use std::sync::Arc;

use arguments::NodeGroupArguments;
use group_rules::{GroupFilter, GroupLimitVerdict, group_scorer};
use state::NodeGroupState;

use super::effective_values::{map_entry, value_map};
use crate::model::{ClusterState, QueueAffinity, QueueRecord, TaskClass};
use crate::plugin::{NodeFilter, NodeScorer, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook};
use crate::plugin_state::PluginState;
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, PluginSwitches, YamlValue};

/// Name of the plugin.
const NAME: &str = "nodegroup";

/// Label of a node with the name of its group.
const GROUP_LABEL: &str = "volcano.sh/nodegroup-name";

/// Name of the queue above all others, which a queue without a parent is below.
const ROOT: &str = "root";

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["filter", "score"],
    queue_annotations: &[group_limits::LIMITS],
    node_labels: &[GROUP_LABEL],
    record_rules: Some(&record_rules::LimitRules),
    ..PluginDef::new(NAME, compile)
};

/// Compiled plugin.
#[derive(Debug)]
struct NodeGroup {
    arguments: NodeGroupArguments,
    compatibility: Compatibility,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    Arc::new(NodeGroup {
        arguments: NodeGroupArguments::read(arguments, compatibility, report),
        compatibility,
    })
}

/// Non-empty affinity of the queue of a class: its own affinity or the affinity of its nearest ancestor.
fn affinity<'a>(context: PluginContext<'a>, class: &TaskClass) -> Option<&'a QueueAffinity> {
    let charge = class.charge.as_ref()?;
    let inherits = context
        .plugin_states
        .get::<NodeGroupState>(NAME)
        .is_some_and(|state| state.inherits);
    let affinity = queue_affinity(context.cluster_state, &charge.queue, inherits)?;
    (!affinity.is_empty()).then_some(affinity)
}

/// Affinity of a queue, or with `inherits` the affinity of its nearest ancestor with an affinity. In a cyclic tree the
/// search ends at the first repeated queue.
fn queue_affinity<'a>(cluster_state: &'a ClusterState, name: &str, inherits: bool) -> Option<&'a QueueAffinity> {
    let queue = |name: &str| Some(&cluster_state.queues().get(name)?.record);
    let mut next: Option<&QueueRecord> = queue(name);
    // A path without a cycle has no more queues than there are.
    for _ in 0..cluster_state.queues().len() {
        let record = next?;
        if let Some(own) = &record.affinity {
            return Some(own);
        }
        if !inherits || *record.name == *ROOT {
            return None;
        }
        next = queue(if record.parent.is_empty() { ROOT } else { &record.parent });
    }
    None
}

impl Plugin for NodeGroup {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            filter: true,
            score: true,
            accounts: true,
            ..PluginHooks::default()
        }
    }

    /// Only limits count what the tasks of a queue hold.
    fn heeds_placements(&self, context: PluginContext<'_>, queue: &str) -> bool {
        let state = context.plugin_states.get::<NodeGroupState>(NAME);
        state.is_some_and(|state| state.queue(queue).is_some())
    }

    fn effective_arguments(&self) -> YamlValue {
        let own = self.arguments;
        value_map([
            map_entry(arguments::STRICT, YamlValue::Bool(own.strict)),
            map_entry(arguments::PREFERRED_ORDER, YamlValue::Bool(own.preferred_order)),
        ])
    }

    fn build_state(&self, cluster_state: &ClusterState, switches: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        Some(Arc::new(NodeGroupState::of(
            cluster_state,
            switches,
            self.compatibility,
        )))
    }

    fn prepare_filter<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeFilter + 'a> {
        Ok(Some(Box::new(GroupFilter {
            limits: GroupLimitVerdict::of(context, class),
            affinity: affinity(context, class),
            strict: self.arguments.strict,
            compatibility: self.compatibility,
        })))
    }

    fn prepare_scorer<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeScorer + 'a> {
        let Some(affinity) = affinity(context, class) else {
            return Ok(None);
        };
        let scores = group_rules::group_scores(affinity, self.arguments.preferred_order, self.compatibility);
        Ok(Some(Box::new(group_scorer(context.cluster_state, scores))))
    }
}

#[cfg(test)]
mod limit_tests;
#[cfg(test)]
mod tests;
