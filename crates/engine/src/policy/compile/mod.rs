//! Compiled policy: plugins with their hooks in the order of the tiers. It never changes.

mod hooks;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::action_arguments;
use super::args::PluginArguments;
use super::compatibility::Compatibility;
use super::diagnostics::{DiagnosticReport, ErrorCode};
use super::emit;
use super::kube;
use super::load::{LoadOptions, load};
use super::release::ReleasedScheduler;
use super::spec::{PluginSpec, PolicySpec};
use super::switch::Switch;
use super::unserved::{self, UnservedEffect};
use super::yaml::{DocumentLocation, YamlLimits};
use crate::model::LabelKinds;
use crate::plugin::{AbsentInput, Plugin, PluginDef, TimeEffect};
use crate::plugins;

/// Hook of a plugin at one place in the tiers.
#[derive(Clone, Debug)]
pub struct PolicyHook {
    /// Name of the plugin.
    pub name: Arc<str>,
    /// Plugin that implements the hook.
    pub plugin: Arc<dyn Plugin>,
    /// Factor of the scores in totals; 1 in the tiers of Volcano.
    pub weight: i32,
}

/// Plugins by kind of decision: those that are switched on, where nothing else is said. A name may appear twice.
#[derive(Clone, Debug, Default)]
pub struct PolicyHooks {
    /// Filters of nodes, in the order of the tiers.
    pub filters: Vec<PolicyHook>,
    /// Scorers of nodes, in the order of the tiers.
    pub scorers: Vec<PolicyHook>,
    /// Plugins that order jobs, in the order of the tiers.
    pub job_orders: Vec<PolicyHook>,
    /// Plugins that order queues, in the order of the tiers.
    pub queue_orders: Vec<PolicyHook>,
    /// Plugins that order tasks, in the order of the tiers.
    pub task_orders: Vec<PolicyHook>,
    /// Plugins that may mark a queue as overused, in the order of the tiers.
    pub overused_judges: Vec<PolicyHook>,
    /// Plugins that decide whether a queue may preempt, in the order of the tiers.
    pub preemptive_judges: Vec<PolicyHook>,
    /// Plugins that select victims of preemption, tier by tier.
    pub preempters: Vec<Vec<PolicyHook>>,
    /// Plugins that select victims of reclaim, tier by tier.
    pub reclaimers: Vec<Vec<PolicyHook>>,
    /// Plugins that select victims for gangs, whatever their switches are, tier by tier.
    pub gang_evicters: Vec<Vec<PolicyHook>>,
    /// Plugins that may take part in evictions without a preemptor, tier by tier.
    pub shufflers: Vec<Vec<PolicyHook>>,
    /// Plugins that vote on jobs, tier by tier.
    pub enqueuers: Vec<Vec<PolicyHook>>,
    /// Plugins that check tasks, tier by tier.
    pub allocators: Vec<Vec<PolicyHook>>,
    /// Plugins that may object to a job, whatever their switches are, in the order of the tiers.
    pub job_validators: Vec<PolicyHook>,
    /// Plugins that decide whether a job is ready, in the order of the tiers.
    pub job_ready: Vec<PolicyHook>,
    /// Plugins that vote on pipelined jobs, tier by tier.
    pub job_pipelined: Vec<Vec<PolicyHook>>,
    /// Plugins that decide whether a job is starving, tier by tier.
    pub job_starving: Vec<Vec<PolicyHook>>,
    /// Plugins that say whether a group of a job is ready, in the order of the tiers.
    pub group_ready: Vec<PolicyHook>,
    /// Plugins that vote on pipelined groups, tier by tier.
    pub group_pipelined: Vec<Vec<PolicyHook>>,
    /// Plugins that order the groups of a job, in the order of the tiers.
    pub group_orders: Vec<PolicyHook>,
}

/// Plugin of the policy, with all its hooks. Switches are ignored.
#[derive(Clone, Debug)]
pub struct RegisteredPlugin {
    /// Name of the plugin in the document, such as `binpack`.
    pub name: Arc<str>,
    /// True if this service has the plugin.
    pub is_served: bool,
    /// Filter hook, from the last entry with this name that has the hook.
    pub filter: Option<Arc<dyn Plugin>>,
    /// Score hook, from the last entry that has the hook.
    pub score: Option<Arc<dyn Plugin>>,
    /// Hook that orders jobs and queues, from the last entry that has the hook.
    pub order: Option<Arc<dyn Plugin>>,
    /// Hook that selects victims, from the last entry that has the hook.
    pub victims: Option<Arc<dyn Plugin>>,
    /// Hook that admits jobs and tasks, from the last entry that has the hook.
    pub admit: Option<Arc<dyn Plugin>>,
    /// Hook that evaluates the state of jobs, from the last entry that has the hook.
    pub job_state: Option<Arc<dyn Plugin>>,
    /// Hook that orders tasks, from the last entry that has the hook.
    pub task_order: Option<Arc<dyn Plugin>>,
    /// Factor of the scores, see [`PolicyHook::weight`].
    pub weight: i32,
    /// Kinds of records whose labels the plugin reads completely.
    pub all_labels: LabelKinds,
    /// Effect of a query without a time; `None`: the plugin reads no time.
    pub time_effect: Option<TimeEffect>,
    /// Effect of a cluster state without the records that the plugin reads; `None`: it has no such effect.
    pub absent_input: Option<&'static AbsentInput>,
}

impl RegisteredPlugin {
    /// Plugin without hooks. `def`: `None` if this service does not have it.
    pub(super) fn new(name: &str, def: Option<&PluginDef>) -> Self {
        Self {
            name: Arc::from(name),
            is_served: def.is_some(),
            filter: None,
            score: None,
            order: None,
            victims: None,
            admit: None,
            job_state: None,
            task_order: None,
            weight: 1,
            all_labels: def.map_or_else(LabelKinds::default, PluginDef::all_labels),
            time_effect: def.and_then(|def| def.time_effect),
            absent_input: def.and_then(|def| def.absent_input),
        }
    }

    /// One of the plugin's hooks for a place in the tiers.
    pub(crate) fn hook(&self, own: Option<&Arc<dyn Plugin>>) -> Option<PolicyHook> {
        Some(PolicyHook {
            name: Arc::clone(&self.name),
            plugin: Arc::clone(own?),
            weight: self.weight,
        })
    }
}

/// Error: the profile does not exist, or the name is empty and the policy has several profiles.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnknownProfileError {
    /// Name from the request; empty: none.
    pub profile: String,
    /// Names of the policy's profiles.
    pub known: Vec<Arc<str>>,
}

impl fmt::Display for UnknownProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { profile, known } = self;
        match known.as_slice() {
            [] => write!(f, "the policy has no profiles, and so none named `{profile}`"),
            _ if profile.is_empty() => write!(f, "the policy has several profiles; name one of: {}", known.join(", ")),
            _ => write!(f, "the policy has no profile `{profile}`; it has: {}", known.join(", ")),
        }
    }
}

/// Active policy.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    compatibility: Compatibility,
    spec: PolicySpec,
    /// Compiled plugins by tier and place; `None`: not served.
    compiled: Vec<Vec<Option<Arc<dyn Plugin>>>>,
    registered: BTreeMap<Arc<str>, RegisteredPlugin>,
    unserved: Vec<UnservedEffect>,
    hooks: PolicyHooks,
    /// Profiles of a `KubeSchedulerConfiguration`, by name. A single profile is this policy itself.
    profiles: Vec<(Arc<str>, Arc<Policy>)>,
    /// True for a profile.
    is_profile: bool,
}

/// Options of compilation.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompileOptions {
    /// Limits on the document.
    pub limits: YamlLimits,
    /// Compatibility of a document that does not set its own.
    pub compatibility: Compatibility,
    /// True: warnings become errors.
    pub strict: bool,
}

/// Accepted document.
#[derive(Clone, Debug)]
pub struct CompiledPolicy {
    /// Policy to evaluate.
    pub policy: Arc<Policy>,
    /// Warnings, in order, and plugins that are not served.
    pub report: DiagnosticReport,
    /// Document as it was read: typed values without defaults.
    pub loaded_document: String,
    /// Document with every default and every repair. It compiles to the same policy.
    pub effective_document: String,
}

/// Loads, checks and compiles a document.
///
/// # Errors
/// All diagnostics, if at least one is an error.
pub fn compile(document: &str, options: &CompileOptions) -> Result<CompiledPolicy, DiagnosticReport> {
    let served = plugins::served_names();
    let load_options = LoadOptions {
        limits: options.limits,
        compatibility: options.compatibility,
        served: &served,
    };
    if kube::is_kube_configuration(document, &load_options) {
        return compile_profiles(document, &load_options, options.strict);
    }
    let loaded = load(document, &load_options);
    let mut report = loaded.report;
    let policy = loaded.spec.map(|spec| {
        let asked = spec.compatibility(options.compatibility);
        let compatibility = of_scheduler(asked, ReleasedScheduler::Volcano, &mut report);
        Policy::compile(spec, compatibility, &mut report)
    });
    report.finish(options.strict);
    match policy {
        Some(policy) if !report.has_errors() => Ok(CompiledPolicy {
            loaded_document: emit::loaded_document(&policy.spec),
            effective_document: policy.effective_document(),
            policy: Arc::new(policy),
            report,
        }),
        _ => Err(report),
    }
}

/// Compatibility of a document of this scheduler. A release of the other one is an error: the caller asked for it, and
/// the document names none.
fn of_scheduler(asked: Compatibility, scheduler: ReleasedScheduler, report: &mut DiagnosticReport) -> Compatibility {
    asked.of(scheduler).unwrap_or_else(|| {
        let message = format!(
            "`{}` is asked for, which is no release of {}; name one of {} in the section `pumice:`",
            asked.name(),
            scheduler.name(),
            Compatibility::names_of(scheduler).join(", ")
        );
        report.error(ErrorCode::PumiceSection, &DocumentLocation::default(), message);
        Compatibility::default()
    })
}

/// Compiles a `KubeSchedulerConfiguration`.
fn compile_profiles(
    document: &str,
    options: &LoadOptions<'_>,
    strict: bool,
) -> Result<CompiledPolicy, DiagnosticReport> {
    let mut report = DiagnosticReport::default();
    let compiled = kube::load(document, options, &mut report).map(|spec| {
        let asked = spec.compatibility(options.compatibility);
        let compatibility = of_scheduler(asked, ReleasedScheduler::KubeScheduler, &mut report);
        (compatibility, kube::compile(&spec, compatibility, &mut report))
    });
    report.finish(strict);
    match compiled {
        Some((compatibility, compiled)) if !report.has_errors() => Ok(CompiledPolicy {
            policy: Arc::new(Policy::from_profiles(compatibility, compiled.profiles)),
            report,
            loaded_document: compiled.loaded_document,
            effective_document: compiled.effective_document,
        }),
        _ => Err(report),
    }
}

impl Policy {
    pub(super) fn from_profile(compatibility: Compatibility, plugins: Vec<RegisteredPlugin>) -> Self {
        let mut policy = Self {
            compatibility,
            is_profile: true,
            ..Self::default()
        };
        for plugin in plugins {
            policy.hooks.filters.extend(plugin.hook(plugin.filter.as_ref()));
            policy.hooks.scorers.extend(plugin.hook(plugin.score.as_ref()));
            policy.registered.insert(Arc::clone(&plugin.name), plugin);
        }
        policy.unserved = policy.find_unserved();
        policy
    }

    fn from_profiles(compatibility: Compatibility, profiles: Vec<(Arc<str>, Arc<Self>)>) -> Self {
        let only = match profiles.as_slice() {
            [(_, only)] => Self::clone(only),
            _ => Self::from_profile(compatibility, Vec::new()),
        };
        Self { profiles, ..only }
    }

    /// Policy of a profile. `None`: this policy. An empty name selects the only profile.
    ///
    /// # Errors
    /// The profile does not exist, or the name is empty and the policy has several profiles.
    pub fn profile(&self, name: &str) -> Result<Option<&Arc<Self>>, UnknownProfileError> {
        if name.is_empty() && self.profiles.len() < 2 {
            return Ok(None);
        }
        let found = self.profiles.iter().find(|(own, _)| **own == *name);
        found
            .map(|(_, policy)| Some(policy))
            .ok_or_else(|| UnknownProfileError {
                profile: name.to_owned(),
                known: self.profiles.iter().map(|(name, _)| Arc::clone(name)).collect(),
            })
    }

    /// Compiles a document. After an error in the report the result is not used.
    fn compile(spec: PolicySpec, compatibility: Compatibility, report: &mut DiagnosticReport) -> Self {
        let mut policy = Self {
            compatibility,
            compiled: Vec::with_capacity(spec.tiers.len()),
            ..Self::default()
        };
        for tier in &spec.tiers {
            let tier = tier
                .iter()
                .map(|plugin| policy.register(plugin, spec.metrics.as_ref(), report));
            let tier = tier.collect();
            policy.compiled.push(tier);
        }
        policy.unserved = policy.find_unserved();
        policy.hooks = policy.find_hooks(&spec);
        policy.unserved.extend(action_arguments::unserved(&spec));
        policy.spec = spec;
        policy
    }

    /// Compiles one entry. Upstream stores functions by name, so an entry replaces the hooks of earlier entries, even
    /// if it is switched off. A hook that the entry lacks is not replaced.
    fn register(
        &mut self,
        spec: &PluginSpec,
        metrics: Option<&BTreeMap<String, String>>,
        report: &mut DiagnosticReport,
    ) -> Option<Arc<dyn Plugin>> {
        let name = spec.name.as_str();
        let def = plugins::find(name);
        let place = self.registered.entry(Arc::from(name));
        let registered = place.or_insert_with(|| RegisteredPlugin::new(name, def));
        let none = PluginArguments::default();
        let arguments = spec.arguments.as_ref().unwrap_or(&none);
        let beside_metrics = metrics.map(|metrics| arguments.beside(metrics));
        let arguments = beside_metrics.as_ref().unwrap_or(arguments);
        let plugin = (def?.compile)(arguments, self.compatibility, report);
        let hooks = plugin.hooks();
        let places = [
            (hooks.filter, &mut registered.filter),
            (hooks.score, &mut registered.score),
            (hooks.order, &mut registered.order),
            (hooks.victims, &mut registered.victims),
            (hooks.admit, &mut registered.admit),
            (hooks.job_state, &mut registered.job_state),
            (hooks.task_order, &mut registered.task_order),
        ];
        for (_, place) in places.into_iter().filter(|(has, _)| *has) {
            *place = Some(Arc::clone(&plugin));
        }
        Some(plugin)
    }

    fn find_hooks(&self, spec: &PolicySpec) -> PolicyHooks {
        let job_states = |switch| self.hooks_by_tier(spec, switch, |own| own.job_state.as_ref());
        let orders = |switch| {
            self.hooks_by_tier(spec, Some(switch), |own| own.order.as_ref())
                .concat()
        };
        let victims = |switch| self.hooks_by_tier(spec, switch, |own| own.victims.as_ref());
        let admits = |switch| self.hooks_by_tier(spec, Some(switch), |own| own.admit.as_ref());
        let filters = self.hooks_by_tier(spec, Some(Switch::Predicate), |own| own.filter.as_ref());
        let scorers = self.hooks_by_tier(spec, Some(Switch::NodeOrder), |own| own.score.as_ref());
        let task_orders = self.hooks_by_tier(spec, Some(Switch::TaskOrder), |own| own.task_order.as_ref());
        PolicyHooks {
            filters: filters.concat(),
            scorers: scorers.concat(),
            job_orders: orders(Switch::JobOrder),
            queue_orders: orders(Switch::QueueOrder),
            task_orders: task_orders.concat(),
            overused_judges: orders(Switch::Overused),
            preemptive_judges: orders(Switch::Preemptive),
            preempters: victims(Some(Switch::Preemptable)),
            reclaimers: victims(Some(Switch::Reclaimable)),
            gang_evicters: victims(None),
            shufflers: victims(Some(Switch::Victim)),
            enqueuers: admits(Switch::JobEnqueued),
            allocators: admits(Switch::Allocatable),
            job_validators: job_states(None).concat(),
            job_ready: job_states(Some(Switch::JobReady)).concat(),
            job_pipelined: job_states(Some(Switch::JobPipelined)),
            job_starving: job_states(Some(Switch::JobStarving)),
            group_ready: job_states(Some(Switch::SubJobReady)).concat(),
            group_pipelined: job_states(Some(Switch::SubJobPipelined)),
            group_orders: job_states(Some(Switch::SubJobOrder)).concat(),
        }
    }

    /// Hooks of the tiers, for entries that have the hook and are switched on. `switch`: `None`, whatever the switches
    /// are.
    fn hooks_by_tier(
        &self,
        spec: &PolicySpec,
        switch: Option<Switch>,
        own: fn(&RegisteredPlugin) -> Option<&Arc<dyn Plugin>>,
    ) -> Vec<Vec<PolicyHook>> {
        let hook = |plugin: &PluginSpec| {
            let registered = self.registered.get(plugin.name.as_str())?;
            registered.hook(own(registered))
        };
        let tier = |tier: &Vec<PluginSpec>| {
            let is_on = |plugin: &&PluginSpec| switch.is_none_or(|switch| plugin.switches.is_on(switch));
            let on = tier.iter().filter(is_on);
            on.filter_map(hook).collect()
        };
        spec.tiers.iter().map(tier).collect()
    }

    /// Plugins by kind of decision.
    pub fn hooks(&self) -> &PolicyHooks {
        &self.hooks
    }

    /// Compatibility that decisions of the policy follow.
    pub fn compatibility(&self) -> Compatibility {
        self.compatibility
    }

    /// Document as it was read.
    pub fn spec(&self) -> &PolicySpec {
        &self.spec
    }

    fn find_unserved(&self) -> Vec<UnservedEffect> {
        let unserved = self.registered.values().filter(|own| !own.is_served);
        unserved::effects(unserved.map(|own| &*own.name))
    }

    fn effective_document(&self) -> String {
        emit::effective_document(&self.spec, self.compatibility, &|tier, place, _| {
            let plugin = self.compiled.get(tier)?.get(place)?.as_ref()?;
            Some(plugin.effective_arguments())
        })
    }
}
