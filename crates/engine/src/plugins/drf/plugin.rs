//! `drf` as a plugin of a policy.

use std::sync::Arc;

use super::super::effective_values::value_map;
use super::record_rules::HierarchyRules;
use super::{DrfState, HIERARCHY, WEIGHTS};
use crate::model::{ClusterState, ErrorCode, Problem};
use crate::plugin::{
    OrderKey, OrderKeyMeanings, OrderKeyPart, Plugin, PluginContext, PluginDef, PluginHooks, VictimKind, VictimQuery,
};
use crate::plugin_state::PluginState;
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, PluginSwitches, Switch, YamlValue};

/// Registry entry of the plugin.
pub(in super::super) const DEF: PluginDef = PluginDef {
    families: &["order", "victims"],
    queue_annotations: &[HIERARCHY, WEIGHTS],
    excludes: Some((Switch::Hierarchy, "proportion")),
    record_rules: Some(&HierarchyRules),
    order_keys: OrderKeyMeanings {
        jobs: &[OrderKeyPart::SHARE],
        queues: &[],
    },
    ..PluginDef::new(NAME, compile)
};

/// Name in a policy.
pub const NAME: &str = "drf";

/// Compiled plugin. It has no arguments; `enableHierarchy` is a switch.
#[derive(Debug)]
struct DrfPlugin {
    compatibility: Compatibility,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, NAME, &[], |_| false);
    Arc::new(DrfPlugin { compatibility })
}

impl Plugin for DrfPlugin {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            order: true,
            victims: true,
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        value_map([])
    }

    fn build_state(&self, cluster_state: &ClusterState, switches: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        let hierarchy = switches.is_on(Switch::Hierarchy);
        Some(Arc::new(DrfState::build(cluster_state, self.compatibility, hierarchy)))
    }

    fn job_keys(&self, context: PluginContext<'_>, jobs: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let drf: &DrfState = context.plugin_states.get(NAME)?;
        let key = |job: &Arc<str>| match (drf.job_problem(job), drf.job_share(job)) {
            (Some(problem), _) => Err(problem.clone()),
            (None, Some(share)) => Ok(vec![share]),
            (None, None) => {
                let message = format!("there is no job `{job}`");
                Err(Problem::new(ErrorCode::JobUnknown, "", message))
            }
        };
        Some(jobs.iter().map(key).collect())
    }

    fn queue_keys(&self, context: PluginContext<'_>, queues: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let drf: &DrfState = context.plugin_states.get(NAME)?;
        drf.tree
            .is_some()
            .then(|| queues.iter().map(|queue| drf.queue_key(queue)).collect())
    }

    fn victims(&self, context: PluginContext<'_>, query: &VictimQuery<'_>) -> Result<Option<Vec<bool>>, Problem> {
        let Some(drf) = context.plugin_states.get::<DrfState>(NAME) else {
            return Ok(None);
        };
        match query.kind {
            VictimKind::Preempt => {
                let rules = self.compatibility.release().rules();
                rules.check_orphans(context.cluster_state, query.candidates)?;
                drf.preempt(query.preemptor, query.candidates).map(Some)
            }
            VictimKind::Reclaim => drf.reclaim(query.preemptor, query.candidates),
            VictimKind::GangPreempt | VictimKind::GangReclaim | VictimKind::Shuffle => Ok(None),
        }
    }
}
