//! `conformance`: critical pods are not evicted (Volcano ed72c7c81, pkg/scheduler/plugins/conformance).

use std::sync::Arc;

use crate::model::{Problem, TaskRecord, namespace_of};
use crate::plugin::{Plugin, PluginContext, PluginDef, PluginHooks, VictimQuery};
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, ReleaseRules};

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["victims"],
    ..PluginDef::new("conformance", compile)
};

/// Priority classes of critical pods.
const CRITICAL_CLASSES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];
/// Namespace of the system's own pods.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// Compiled plugin.
#[derive(Debug)]
struct Conformance {
    rules: ReleaseRules,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, DEF.name, &[], |_| false);
    Arc::new(Conformance {
        rules: compatibility.release().rules(),
    })
}

fn is_critical(task: &TaskRecord) -> bool {
    CRITICAL_CLASSES.contains(&task.priority_class()) || namespace_of(&task.name) == SYSTEM_NAMESPACE
}

impl Plugin for Conformance {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            victims: true,
            ..PluginHooks::default()
        }
    }

    fn victims(&self, _: PluginContext<'_>, query: &VictimQuery<'_>) -> Result<Option<Vec<bool>>, Problem> {
        if query.kind.is_of_gangs() && !self.rules.has_gang_actions {
            return Ok(None);
        }
        Ok(Some(query.candidates.iter().map(|task| !is_critical(task)).collect()))
    }
}
