//! `overcommit`: jobs are enqueued as long as the cluster, times a factor, has room for their minimums (Volcano
//! ed72c7c81, pkg/scheduler/plugins/overcommit).

mod nodes;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use self::state::OvercommitState;
use super::effective_values::{map_entry, value_map};
use super::queue_accounts::IntegerAmounts;
use crate::model::{ClusterState, JobRecord, NamedAmounts, Problem, ResourceVector};
use crate::plugin::{
    AdmitOpinion, Measurement, Plugin, PluginContext, PluginDef, PluginHooks, QuotaPlugin, Reason, Resolution,
};
use crate::plugin_state::{PluginState, PluginStates};
use crate::policy::{Compatibility, DiagnosticReport, ErrorCode, PluginArguments, PluginSwitches, YamlValue};

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["admit"],
    ..PluginDef::new(NAME, compile)
};

const NAME: &str = "overcommit";
const FACTOR: &str = "overcommit-factor";
const DEFAULT_FACTOR: f64 = 1.2;

/// Compiled plugin.
#[derive(Debug)]
struct Overcommit {
    factor: f64,
    compatibility: Compatibility,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, NAME, &[FACTOR], |_| false);
    let factor = arguments.get(FACTOR).map_or(DEFAULT_FACTOR, |argument| {
        let given = argument.lenient_float();
        let is_usable = |factor: &f64| match compatibility {
            // Not a number is not below 1.
            Compatibility::Upstream(_) => *factor >= 1.0 || factor.is_nan(),
            Compatibility::Corrected => factor.is_finite() && *factor >= 1.0,
        };
        given.filter(is_usable).unwrap_or_else(|| {
            let found = given.map_or_else(|| argument.value().kind().to_string(), |factor| factor.to_string());
            let message = format!("expected a number from 1, found {found}; the default {DEFAULT_FACTOR} counts");
            report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
            DEFAULT_FACTOR
        })
    });
    Arc::new(Overcommit { factor, compatibility })
}

fn missing_state() -> Problem {
    let message = "the state of plugin overcommit is missing";
    Problem::new(ErrorCode::PluginStateMissing, "", message)
}

/// Names of amounts for the ledger.
fn named(context: PluginContext<'_>, amounts: &IntegerAmounts) -> NamedAmounts {
    let names = context.cluster_state.resources();
    let present = amounts.iter().filter(|(_, amount)| *amount > 0);
    let mut promised: NamedAmounts = present
        .filter_map(|(id, amount)| Some((Arc::clone(names.shared_name(id)?), amount)))
        .collect();
    promised.sort();
    promised
}

impl Plugin for Overcommit {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            admit: true,
            abstains_on_tasks: true,
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        value_map([map_entry(FACTOR, YamlValue::Float(self.factor))])
    }

    fn build_state(&self, cluster_state: &ClusterState, _: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        let state = OvercommitState::of(cluster_state, self.factor, self.compatibility);
        Some(Arc::new(state))
    }

    fn admit_job(&self, context: PluginContext<'_>, job: &JobRecord) -> Result<Option<AdmitOpinion>, Problem> {
        let state: &OvercommitState = context.plugin_states.get(NAME).ok_or_else(missing_state)?;
        let Some(min_resources) = &job.min_resources else {
            return Ok(Some(AdmitOpinion::default()));
        };
        let minimum = ResourceVector::from(min_resources);
        let (needed, idle) = (state.inqueue_with(context.cluster_state, job), state.idle());
        let names = context.cluster_state.resources();
        let reasons = needed.misfits(&idle, &minimum).map(|id| {
            let resource = names.name(id);
            let reason = Reason {
                plugin: Arc::from(NAME),
                code: "ResourceOveruse",
                message: format!("resource in cluster is overused: overused {resource}"),
                resolution: Resolution::Unschedulable,
                resource: Arc::from(resource),
            };
            let measured = [
                ("requested", minimum.amount(id)),
                ("inqueue", needed.amount(id)),
                ("idle", idle.amount(id)),
            ];
            let measured = measured.map(|(name, amount)| Measurement::of_resource(name, resource, amount));
            (reason, measured.to_vec())
        });
        let reasons: Vec<_> = reasons.collect();
        let reserve = if reasons.is_empty() {
            named(context, &state.reserve_of(job))
        } else {
            NamedAmounts::new()
        };
        Ok(Some(AdmitOpinion {
            reasons,
            reserve,
            ..AdmitOpinion::default()
        }))
    }

    fn quota(&self) -> Option<&dyn QuotaPlugin> {
        Some(self)
    }
}

impl QuotaPlugin for Overcommit {
    fn enqueue_job(
        &self,
        plugin_states: &mut PluginStates,
        cluster_state: &ClusterState,
        job: &JobRecord,
    ) -> Result<(), Problem> {
        let enqueue = |state: &mut OvercommitState| state.enqueue_tentatively(cluster_state, job);
        plugin_states.update(NAME, enqueue).ok_or_else(missing_state)
    }

    fn release_tentative(&self, plugin_states: &mut PluginStates) -> Result<(), Problem> {
        let end = OvercommitState::end_tentative;
        plugin_states.update(NAME, end).ok_or_else(missing_state)
    }
}
