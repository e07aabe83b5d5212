//! Compiled policy: plugins with their hooks in the order of the tiers. It never changes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::args::PluginArguments;
use super::diagnostics::DiagnosticReport;
use super::emit;
use super::kube;
use super::load::{LoadOptions, load};
use super::spec::{Compatibility, PluginSpec, PolicySpec, Switch};
use super::unserved::{self, UnservedEffect};
use super::yaml::YamlLimits;
use crate::model::constraints::ConstraintSet;
use crate::model::{ClusterState, StateDiff, TaskRecord};
use crate::plugin::{Plugin, PluginContext, VictimKind};
use crate::plugin_state::PluginStates;
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

/// Plugins that judge the state of jobs, as far as they are switched on. A name may appear twice.
#[derive(Clone, Debug, Default)]
pub struct JobStateHooks {
    /// Plugins that may object to a job, in the order of the tiers.
    pub validators: Vec<PolicyHook>,
    /// Plugins that say whether a job is ready, likewise.
    pub ready: Vec<PolicyHook>,
    /// Plugins that vote on pipelined jobs, tier by tier.
    pub pipelined: Vec<Vec<PolicyHook>>,
    /// Plugins that say whether a job is starving, likewise.
    pub starving: Vec<Vec<PolicyHook>>,
}

/// Plugin of the policy by name, with its hooks whatever its switches say.
#[derive(Clone, Debug)]
pub struct RegisteredPlugin {
    /// Name of the plugin.
    pub name: Arc<str>,
    /// True if this service has the plugin.
    pub is_served: bool,
    /// Filter hook: that of the last entry of the name that has it.
    pub filter: Option<Arc<dyn Plugin>>,
    /// Score hook, likewise.
    pub score: Option<Arc<dyn Plugin>>,
    /// Hook that orders jobs and queues, likewise.
    pub order: Option<Arc<dyn Plugin>>,
    /// Hook that selects victims, likewise.
    pub victims: Option<Arc<dyn Plugin>>,
    /// Hook that admits jobs and tasks, likewise.
    pub admit: Option<Arc<dyn Plugin>>,
    /// Hook that judges the state of jobs, likewise.
    pub job_state: Option<Arc<dyn Plugin>>,
    /// Hook that orders tasks, likewise.
    pub task_order: Option<Arc<dyn Plugin>>,
    /// Factor of the scores, see [`PolicyHook::weight`].
    pub weight: i32,
}

/// Error: there is no such profile, or the name is empty and there are several.
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

/// Plugin of a profile.
#[derive(Clone, Debug)]
pub(super) struct ProfilePlugin {
    pub(super) name: Arc<str>,
    /// Filter hook, if it is enabled in the profile.
    pub(super) filter: Option<Arc<dyn Plugin>>,
    /// Score hook, likewise.
    pub(super) score: Option<Arc<dyn Plugin>>,
    pub(super) weight: i32,
    pub(super) is_served: bool,
}

impl ProfilePlugin {
    /// Served plugin that neither filters nor scores.
    pub(super) fn without_hooks(name: &str) -> Self {
        Self {
            name: Arc::from(name),
            filter: None,
            score: None,
            weight: 1,
            is_served: true,
        }
    }
}

/// Policy in force.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    compatibility: Compatibility,
    spec: PolicySpec,
    /// Compiled plugins by tier and place; `None`: not served.
    compiled: Vec<Vec<Option<Arc<dyn Plugin>>>>,
    registered: BTreeMap<Arc<str>, RegisteredPlugin>,
    unserved: Vec<UnservedEffect>,
    filters: Vec<PolicyHook>,
    scorers: Vec<PolicyHook>,
    job_orders: Vec<PolicyHook>,
    queue_orders: Vec<PolicyHook>,
    overused_judges: Vec<PolicyHook>,
    preemptive_judges: Vec<PolicyHook>,
    preempters: Vec<Vec<PolicyHook>>,
    reclaimers: Vec<Vec<PolicyHook>>,
    gang_evicters: Vec<Vec<PolicyHook>>,
    task_orders: Vec<PolicyHook>,
    job_states: JobStateHooks,
    /// Profiles of a `KubeSchedulerConfiguration`, by name. A single profile is this policy itself.
    profiles: Vec<(Arc<str>, Arc<Policy>)>,
    enqueuers: Vec<Vec<PolicyHook>>,
    allocators: Vec<Vec<PolicyHook>>,
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
    /// Compiled policy.
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
        let compatibility = spec.compatibility(options.compatibility);
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

/// Compiles a `KubeSchedulerConfiguration`.
fn compile_profiles(
    document: &str,
    options: &LoadOptions<'_>,
    strict: bool,
) -> Result<CompiledPolicy, DiagnosticReport> {
    let mut report = DiagnosticReport::default();
    let compiled = kube::load(document, options, &mut report).map(|spec| {
        let compatibility = spec.compatibility(options.compatibility);
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
    /// Policy of one profile.
    pub(super) fn from_profile(compatibility: Compatibility, plugins: Vec<ProfilePlugin>) -> Self {
        let mut policy = Self {
            compatibility,
            ..Self::default()
        };
        for ProfilePlugin {
            name,
            filter,
            score,
            weight,
            is_served,
        } in plugins
        {
            let hook = |plugin: &Arc<dyn Plugin>| PolicyHook {
                name: Arc::clone(&name),
                plugin: Arc::clone(plugin),
                weight,
            };
            policy.filters.extend(filter.iter().map(hook));
            policy.scorers.extend(score.iter().map(hook));
            let registered = RegisteredPlugin {
                name: Arc::clone(&name),
                is_served,
                filter,
                score,
                order: None,
                victims: None,
                admit: None,
                job_state: None,
                task_order: None,
                weight,
            };
            policy.registered.insert(name, registered);
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

    /// Policy of a profile; `None`: this one. An empty name means the only profile.
    ///
    /// # Errors
    /// There is no such profile, or there are several and the name is empty.
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
            let tier = tier.iter().map(|plugin| policy.register(plugin, report));
            let tier = tier.collect();
            policy.compiled.push(tier);
        }
        policy.unserved = policy.find_unserved();
        policy.filters = policy.hooks(&spec, Switch::Predicate, |own| own.filter.as_ref());
        policy.scorers = policy.hooks(&spec, Switch::NodeOrder, |own| own.score.as_ref());
        policy.job_orders = policy.hooks(&spec, Switch::JobOrder, |own| own.order.as_ref());
        policy.queue_orders = policy.hooks(&spec, Switch::QueueOrder, |own| own.order.as_ref());
        policy.overused_judges = policy.hooks(&spec, Switch::Overused, |own| own.order.as_ref());
        policy.preemptive_judges = policy.hooks(&spec, Switch::Preemptive, |own| own.order.as_ref());
        policy.preempters = policy.tiers(&spec, Switch::Preemptable, |own| own.victims.as_ref());
        policy.reclaimers = policy.tiers(&spec, Switch::Reclaimable, |own| own.victims.as_ref());
        policy.gang_evicters = policy.tiers(&spec, None, |own| own.victims.as_ref());
        policy.task_orders = policy.hooks(&spec, Switch::TaskOrder, |own| own.task_order.as_ref());
        policy.job_states = policy.job_state_hooks(&spec);
        policy.enqueuers = policy.tiers(&spec, Switch::JobEnqueued, |own| own.admit.as_ref());
        policy.allocators = policy.tiers(&spec, Switch::Allocatable, |own| own.admit.as_ref());
        policy.spec = spec;
        policy
    }

    /// Compiles one entry. As upstream stores functions by name, the entry replaces those of earlier entries, even if
    /// it is switched off itself; a hook that it lacks replaces nothing.
    fn register(&mut self, spec: &PluginSpec, report: &mut DiagnosticReport) -> Option<Arc<dyn Plugin>> {
        let name: Arc<str> = Arc::from(spec.name.as_str());
        let registered = self
            .registered
            .entry(Arc::clone(&name))
            .or_insert_with(|| RegisteredPlugin {
                name,
                is_served: false,
                filter: None,
                score: None,
                order: None,
                victims: None,
                weight: 1,
                admit: None,
                job_state: None,
                task_order: None,
            });
        let def = plugins::find(&spec.name)?;
        let none = PluginArguments::default();
        let arguments = spec.arguments.as_ref().unwrap_or(&none);
        let plugin = (def.compile)(arguments, self.compatibility, report);
        registered.is_served = true;
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

    fn job_state_hooks(&self, spec: &PolicySpec) -> JobStateHooks {
        let tiers = |switch: Option<Switch>| self.tiers(spec, switch, |own| own.job_state.as_ref());
        JobStateHooks {
            validators: tiers(None).into_iter().flatten().collect(),
            ready: tiers(Some(Switch::JobReady)).into_iter().flatten().collect(),
            pipelined: tiers(Some(Switch::JobPipelined)),
            starving: tiers(Some(Switch::JobStarving)),
        }
    }

    fn hooks(
        &self,
        spec: &PolicySpec,
        switch: Switch,
        own: fn(&RegisteredPlugin) -> Option<&Arc<dyn Plugin>>,
    ) -> Vec<PolicyHook> {
        self.tiers(spec, switch, own).into_iter().flatten().collect()
    }

    /// Hooks that are switched on, tier by tier; without a switch all.
    fn tiers(
        &self,
        spec: &PolicySpec,
        switch: impl Into<Option<Switch>>,
        own: fn(&RegisteredPlugin) -> Option<&Arc<dyn Plugin>>,
    ) -> Vec<Vec<PolicyHook>> {
        let hook = |plugin: &PluginSpec| {
            let registered = self.registered.get(plugin.name.as_str())?;
            Some(PolicyHook {
                name: Arc::clone(&registered.name),
                plugin: Arc::clone(own(registered)?),
                weight: registered.weight,
            })
        };
        let switch = switch.into();
        let tier = |tier: &Vec<PluginSpec>| {
            let is_on = |plugin: &&PluginSpec| switch.is_none_or(|switch| plugin.switches.is_on(switch));
            let on = tier.iter().filter(is_on);
            on.filter_map(hook).collect()
        };
        spec.tiers.iter().map(tier).collect()
    }

    /// Compatibility of the policy.
    pub fn compatibility(&self) -> Compatibility {
        self.compatibility
    }

    /// Document as it was read.
    pub fn spec(&self) -> &PolicySpec {
        &self.spec
    }

    /// Filters that are switched on, in the order of the tiers. A name may appear twice.
    pub fn filters(&self) -> &[PolicyHook] {
        &self.filters
    }

    /// Scorers that are switched on, likewise.
    pub fn scorers(&self) -> &[PolicyHook] {
        &self.scorers
    }

    /// Plugin of a name, if the document has it.
    pub fn registered(&self, name: &str) -> Option<&RegisteredPlugin> {
        self.registered.get(name)
    }

    fn find_unserved(&self) -> Vec<UnservedEffect> {
        let unserved = self.registered.values().filter(|own| !own.is_served);
        unserved::effects(unserved.map(|own| &*own.name))
    }

    /// Annotation of the template of a task, if a filter judges all tasks of a template by the first one in a query.
    pub fn template_annotation(&self) -> Option<&'static str> {
        let mut filters = self.filters.iter();
        filters.find_map(|hook| hook.plugin.hooks().template_annotation)
    }

    /// Constraints between pods and nodes that the plugins which are switched on evaluate.
    pub fn evaluated_constraints(&self) -> ConstraintSet {
        let hooks = self.filters.iter().chain(&self.scorers);
        hooks.fold(ConstraintSet::NONE, |set, hook| set.union(hook.plugin.evaluates()))
    }

    /// Constraints that Filter or Score of these plugins evaluate, whatever the switches say; empty: of all plugins.
    pub fn registered_constraints(&self, plugins: &[Arc<str>]) -> ConstraintSet {
        let of = |own: &RegisteredPlugin| {
            let hooks = own.filter.iter().chain(&own.score);
            hooks.fold(ConstraintSet::NONE, |set, plugin| set.union(plugin.evaluates()))
        };
        let all = |set: ConstraintSet, own| set.union(of(own));
        if plugins.is_empty() {
            return self.registered.values().fold(ConstraintSet::NONE, all);
        }
        let named = plugins.iter().filter_map(|name| self.registered(name));
        named.fold(ConstraintSet::NONE, all)
    }

    /// Plugins of the document that are not served and would decide something, sorted by name.
    pub fn unserved_plugins(&self) -> &[UnservedEffect] {
        &self.unserved
    }

    /// Plugins that order jobs and are switched on, likewise.
    pub fn job_orders(&self) -> &[PolicyHook] {
        &self.job_orders
    }

    /// Plugins that order queues and are switched on, likewise.
    pub fn queue_orders(&self) -> &[PolicyHook] {
        &self.queue_orders
    }

    /// Plugins that may hold a queue overused and are switched on, likewise.
    pub fn overused_judges(&self) -> &[PolicyHook] {
        &self.overused_judges
    }

    /// Plugins that say whether a queue may preempt and are switched on, likewise.
    pub fn preemptive_judges(&self) -> &[PolicyHook] {
        &self.preemptive_judges
    }

    /// Plugins that order tasks and are switched on, likewise.
    pub fn task_orders(&self) -> &[PolicyHook] {
        &self.task_orders
    }

    /// Plugins that judge the state of jobs.
    pub fn job_states(&self) -> &JobStateHooks {
        &self.job_states
    }

    /// Sentences of plugins that compare with the time, by name: the effect of a query that gives none.
    pub fn time_effects(&self) -> impl Iterator<Item = (&Arc<str>, &'static str)> {
        let names = self.registered.keys();
        names.filter_map(|name| Some((name, plugins::find(name)?.time_effect?)))
    }

    /// Plugins that select victims and are switched on, tier by tier.
    pub fn victims(&self, kind: VictimKind) -> &[Vec<PolicyHook>] {
        match kind {
            VictimKind::Preempt => &self.preempters,
            VictimKind::Reclaim => &self.reclaimers,
            VictimKind::GangPreempt | VictimKind::GangReclaim => &self.gang_evicters,
        }
    }

    /// Plugins that vote on jobs and are switched on, tier by tier.
    pub fn enqueuers(&self) -> &[Vec<PolicyHook>] {
        &self.enqueuers
    }

    /// Plugins that check tasks and are switched on, tier by tier.
    pub fn allocators(&self) -> &[Vec<PolicyHook>] {
        &self.allocators
    }

    /// True if Filter or Score of these plugins reads plugin states; empty: of any plugin of the document.
    pub fn reads_plugin_state(&self, plugins: &[Arc<str>]) -> bool {
        let reads = |own: &RegisteredPlugin| {
            let mut hooks = own.filter.iter().chain(&own.score);
            hooks.any(|plugin| plugin.hooks().accounts)
        };
        if plugins.is_empty() {
            return self.registered.values().any(reads);
        }
        plugins.iter().filter_map(|name| self.registered(name)).any(reads)
    }

    /// True if a plugin's Filter or Score reads the holdings of this task's job.
    pub fn reads_job(&self, task: &TaskRecord) -> bool {
        let mut hooks = self
            .registered
            .values()
            .flat_map(|own| own.filter.iter().chain(&own.score));
        hooks.any(|plugin| plugin.quota().is_some_and(|quota| quota.reads_job(task)))
    }

    /// Card that a task uses on a node, see [`QuotaPlugin::card_on_node`](crate::plugin::QuotaPlugin::card_on_node).
    pub fn card_on_node(
        &self,
        context: PluginContext<'_>,
        task: &TaskRecord,
        node: &str,
        admitted: &[Arc<str>],
    ) -> Option<Arc<str>> {
        let mut quotas = self.allocators.iter().flatten().filter_map(|hook| hook.plugin.quota());
        quotas.find_map(|quota| quota.card_on_node(context, task, node, admitted))
    }

    /// True if a plugin of the document has gauges of queues.
    pub fn has_gauges(&self) -> bool {
        let mut defs = self.registered.keys().filter_map(|name| plugins::find(name));
        defs.any(|def| def.gauges)
    }

    /// True if a plugin of the document may have a state.
    pub fn has_plugin_state(&self) -> bool {
        self.registered
            .values()
            .any(|own| own.order.is_some() || own.victims.is_some() || own.admit.is_some() || own.job_state.is_some())
    }

    /// Computes the plugin states of a cluster state, whatever the switches say. If a name has several entries, the
    /// first one decides.
    pub fn compute_plugin_states(&self, cluster_state: &ClusterState) -> PluginStates {
        self.advance_plugin_states(cluster_state, None)
    }

    /// Computes the plugin states of a newer cluster state, faster, from those of an older one. `before` must be as
    /// computed, without changes of a cycle.
    pub fn advance_plugin_states(
        &self,
        cluster_state: &ClusterState,
        before: Option<(&ClusterState, &PluginStates)>,
    ) -> PluginStates {
        self.compute_selected_plugin_states(|_| true, cluster_state, before)
    }

    /// Computes the plugin states of some plugins only.
    pub(crate) fn compute_selected_plugin_states(
        &self,
        which: impl Fn(&str) -> bool,
        cluster_state: &ClusterState,
        before: Option<(&ClusterState, &PluginStates)>,
    ) -> PluginStates {
        let mut derived = PluginStates::default();
        let entries = self.spec.tiers.iter().flatten().zip(self.compiled.iter().flatten());
        for (spec, plugin) in entries {
            let known = self.registered.get(spec.name.as_str());
            let (Some(plugin), Some(known)) = (plugin, known) else {
                continue;
            };
            if derived.contains(&known.name) || !which(&known.name) {
                continue;
            }
            let advanced = before.and_then(|(old, older)| {
                older.advance(
                    &known.name,
                    &StateDiff {
                        old,
                        new: cluster_state,
                    },
                )
            });
            if let Some(own) = advanced.or_else(|| plugin.build_state(cluster_state, &spec.switches)) {
                derived.insert(Arc::clone(&known.name), own);
            }
        }
        derived
    }

    fn effective_document(&self) -> String {
        emit::effective_document(&self.spec, self.compatibility, &|tier, place, _| {
            let plugin = self.compiled.get(tier)?.get(place)?.as_ref()?;
            Some(plugin.effective_arguments())
        })
    }
}
