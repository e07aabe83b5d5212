//! `resourcequota`: jobs are enqueued as long as the `ResourceQuotas` of their namespace allow (Volcano ed72c7c81,
//! pkg/scheduler/plugins/resourcequota).

mod pending;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use pending::PendingMinimums;

use crate::model::{ClusterState, ExactQuantities, JobRecord, NamespaceQuota, Problem, namespace_of};
use crate::plugin::{
    AbsentInput, AdmitOpinion, Measurement, Plugin, PluginContext, PluginDef, PluginHooks, QuotaPlugin, Reason,
    Resolution,
};
use crate::plugin_state::{PluginState, PluginStates};
use crate::policy::{Compatibility, DecisionKind, DiagnosticReport, PluginArguments, PluginSwitches};

const NAME: &str = "resourcequota";

/// Prefix of names under which quotas limit requests, such as `requests.cpu`.
const REQUESTS: &str = "requests.";

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["admit"],
    absent_input: Some(&AbsentInput {
        decisions: &[DecisionKind::Admit],
        is_absent: |state| state.namespaces().is_empty(),
        effect: "The state has no namespaces: no ResourceQuota holds a job back.",
    }),
    ..PluginDef::new(NAME, compile)
};

/// Compiled plugin.
#[derive(Debug)]
struct NamespaceQuotaGuard {
    compatibility: Compatibility,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, NAME, &[], |_| false);
    Arc::new(NamespaceQuotaGuard { compatibility })
}

/// Name under which amounts are compared. Under `corrected` a quota on `requests.cpu` limits `cpu`, as in Kubernetes; the
/// reference compares names as they are written.
fn compared_name(name: &str, compatibility: Compatibility) -> &str {
    match name.strip_prefix(REQUESTS) {
        Some(resource) if compatibility == Compatibility::Corrected => resource,
        _ => name,
    }
}

/// Comparison of one limit of a quota.
struct QuotaCheck {
    requested: i128,
    used: i128,
    pending: i128,
    hard: i128,
}

impl QuotaCheck {
    fn is_exceeded(&self) -> bool {
        let used = self.used.saturating_add(self.pending);
        used.saturating_add(self.requested) > self.hard
    }

    fn reason(&self, quota: &NamespaceQuota, name: &Arc<str>) -> (Reason, Vec<Measurement>) {
        let [requested, used, pending, hard] =
            [self.requested, self.used, self.pending, self.hard].map(ExactQuantities::text);
        let message = format!(
            "resource quota {} insufficient for {name}: requested: {requested}, used: {used}, pending: {pending}, limited: {hard}",
            quota.name
        );
        let reason = Reason {
            resource: Arc::clone(name),
            ..Reason::new(NAME, "ResourceQuotaExceeded", message, Resolution::Unschedulable)
        };
        let measured = [
            ("requested", self.requested),
            ("used", self.used),
            ("pending", self.pending),
            ("hard", self.hard),
        ];
        // Quotas are in whole units, whatever the engine's unit of the resource is.
        let measured = measured.map(|(what, amount)| Measurement::number(what, amount as f64 / 1e9));
        (reason, measured.to_vec())
    }
}

impl NamespaceQuotaGuard {
    /// Limits of the quotas of a namespace that a job would exceed.
    fn exceeded(&self, context: PluginContext<'_>, job: &JobRecord) -> Vec<(Reason, Vec<Measurement>)> {
        let stored = context.cluster_state.namespaces().get(namespace_of(&job.name));
        let quotas = stored.map_or(&[][..], |stored| &stored.record.resource_quotas);
        if quotas.is_empty() {
            return Vec::new();
        }
        let Some(minimum) = pending::minimum(context.cluster_state, job, self.compatibility) else {
            return Vec::new();
        };
        let state: Option<&PendingMinimums> = context.plugin_states.get(NAME);
        let mut reasons = Vec::new();
        for quota in quotas {
            for (name, hard) in quota.hard.iter() {
                let compared = compared_name(name, self.compatibility);
                let Some(requested) = minimum.get(compared) else {
                    continue;
                };
                let check = QuotaCheck {
                    requested,
                    used: quota.used.get(name).unwrap_or(0),
                    pending: state.map_or(0, |state| state.pending_beside(job, compared)),
                    hard,
                };
                if check.is_exceeded() {
                    reasons.push(check.reason(quota, name));
                }
            }
        }
        reasons
    }
}

impl Plugin for NamespaceQuotaGuard {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            admit: true,
            abstains_on_tasks: true,
            ..PluginHooks::default()
        }
    }

    fn build_state(&self, cluster_state: &ClusterState, _: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        Some(Arc::new(PendingMinimums::of(cluster_state, self.compatibility)))
    }

    fn admit_job(&self, context: PluginContext<'_>, job: &JobRecord) -> Result<Option<AdmitOpinion>, Problem> {
        Ok(Some(AdmitOpinion {
            reasons: self.exceeded(context, job),
            ..AdmitOpinion::default()
        }))
    }

    fn quota(&self) -> Option<&dyn QuotaPlugin> {
        Some(self)
    }
}

impl QuotaPlugin for NamespaceQuotaGuard {
    fn enqueue_job(&self, states: &mut PluginStates, state: &ClusterState, job: &JobRecord) -> Result<(), Problem> {
        states.update(NAME, |own: &mut PendingMinimums| own.enqueue_tentatively(state, job));
        Ok(())
    }

    fn release_tentative(&self, states: &mut PluginStates) -> Result<(), Problem> {
        states.update(NAME, PendingMinimums::end_tentative);
        Ok(())
    }
}
