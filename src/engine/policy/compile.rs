//! A policy, compiled: plugins ready to be asked, in the order of the tiers. It never changes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::args::Arguments;
use super::emit;
use super::findings::Report;
use super::kube;
use super::load::{LoadOptions, load};
use super::spec::{Compatibility, PluginSpec, Spec, Switch};
use super::yaml::Limits;
use crate::engine::derived::DerivedSet;
use crate::engine::model::{Changes, TaskRecord, View};
use crate::engine::plugin::{Plugin, VictimKind};
use crate::engine::plugins;

/// One hook at one place in the tiers.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Name of the plugin.
    pub name: Arc<str>,
    /// Who answers.
    pub plugin: Arc<dyn Plugin>,
    /// What its scores are multiplied with in totals; 1 in the tiers of Volcano.
    pub weight: i32,
}

/// A plugin of the policy by name: who answers for it, whatever its switches say.
#[derive(Clone, Debug)]
pub struct Registered {
    /// Name of the plugin.
    pub name: Arc<str>,
    /// This service has it.
    pub is_served: bool,
    /// Who filters: the last entry of the name with that hook.
    pub filter: Option<Arc<dyn Plugin>>,
    /// Who scores.
    pub score: Option<Arc<dyn Plugin>>,
    /// Who orders jobs and queues.
    pub order: Option<Arc<dyn Plugin>>,
    /// Who says which tasks may have to go.
    pub victims: Option<Arc<dyn Plugin>>,
    /// Who says which jobs and tasks are admitted.
    pub admit: Option<Arc<dyn Plugin>>,
    /// See [`Hook::weight`].
    pub weight: i32,
}

/// There is no such profile, or none was named where there are several.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnknownProfileError {
    /// The name that was given; empty: none.
    pub profile: String,
    /// Names that there are.
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

/// A plugin of a profile.
#[derive(Clone, Debug)]
pub(super) struct ProfilePlugin {
    pub(super) name: Arc<str>,
    /// Who scores, if it is enabled there.
    pub(super) score: Option<Arc<dyn Plugin>>,
    pub(super) weight: i32,
    pub(super) is_served: bool,
}

impl ProfilePlugin {
    /// One that is served and does not score.
    pub(super) fn silent(name: &str) -> Self {
        Self {
            name: Arc::from(name),
            score: None,
            weight: 1,
            is_served: true,
        }
    }
}

/// A policy in force.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    compatibility: Compatibility,
    spec: Spec,
    /// By tier and place; `None`: not served.
    compiled: Vec<Vec<Option<Arc<dyn Plugin>>>>,
    registered: BTreeMap<Arc<str>, Registered>,
    filters: Vec<Hook>,
    scorers: Vec<Hook>,
    job_orders: Vec<Hook>,
    queue_orders: Vec<Hook>,
    preempters: Vec<Vec<Hook>>,
    reclaimers: Vec<Vec<Hook>>,
    /// Of a `KubeSchedulerConfiguration`, by name. If there is only one, this policy is that one itself.
    profiles: Vec<(Arc<str>, Arc<Policy>)>,
    enqueuers: Vec<Vec<Hook>>,
    allocators: Vec<Vec<Hook>>,
}

/// How a document is compiled.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompileOptions {
    /// Caps on the document.
    pub limits: Limits,
    /// The compatibility for a document that does not say its own.
    pub compatibility: Compatibility,
    /// Warnings are faults.
    pub strict: bool,
}

/// A document that is taken.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Warnings, in order, and plugins that are not served.
    pub report: Report,
    /// The document as read: typed values, nothing filled in.
    pub loaded_document: String,
    /// The document with every default put in and every repair made. Read again, it gives the same policy.
    pub effective_document: String,
}

/// Reads, checks and compiles a document.
///
/// # Errors
/// All findings at once, if a fault is among them.
pub fn compile(document: &str, options: &CompileOptions) -> Result<Compiled, Report> {
    let served = plugins::served();
    let load_options = LoadOptions {
        limits: options.limits,
        compatibility: options.compatibility,
        served: &served,
    };
    if kube::is_one(document, &load_options) {
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
        Some(policy) if !report.has_faults() => Ok(Compiled {
            loaded_document: emit::loaded_document(&policy.spec),
            effective_document: policy.effective_document(),
            policy: Arc::new(policy),
            report,
        }),
        _ => Err(report),
    }
}

/// The same for a `KubeSchedulerConfiguration`.
fn compile_profiles(document: &str, options: &LoadOptions<'_>, strict: bool) -> Result<Compiled, Report> {
    let mut report = Report::default();
    let compiled = kube::load(document, options, &mut report).map(|spec| {
        let compatibility = spec.compatibility(options.compatibility);
        (compatibility, kube::compile(&spec, compatibility, &mut report))
    });
    report.finish(strict);
    match compiled {
        Some((compatibility, compiled)) if !report.has_faults() => Ok(Compiled {
            policy: Arc::new(Policy::of_profiles(compatibility, compiled.profiles)),
            report,
            loaded_document: compiled.loaded_document,
            effective_document: compiled.effective_document,
        }),
        _ => Err(report),
    }
}

impl Policy {
    /// The policy of one profile.
    pub(super) fn of_profile(compatibility: Compatibility, plugins: Vec<ProfilePlugin>) -> Self {
        let mut policy = Self {
            compatibility,
            ..Self::default()
        };
        for ProfilePlugin {
            name,
            score,
            weight,
            is_served,
        } in plugins
        {
            policy.scorers.extend(score.iter().map(|plugin| Hook {
                name: Arc::clone(&name),
                plugin: Arc::clone(plugin),
                weight,
            }));
            let registered = Registered {
                name: Arc::clone(&name),
                is_served,
                filter: None,
                score,
                order: None,
                victims: None,
                admit: None,
                weight,
            };
            policy.registered.insert(name, registered);
        }
        policy
    }

    fn of_profiles(compatibility: Compatibility, profiles: Vec<(Arc<str>, Arc<Self>)>) -> Self {
        let only = match profiles.as_slice() {
            [(_, only)] => Self::clone(only),
            _ => Self::of_profile(compatibility, Vec::new()),
        };
        Self { profiles, ..only }
    }

    /// The policy of a profile; `None`: this one. An empty name means the only one.
    ///
    /// # Errors
    /// There is no such profile, or there are several and none was named.
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

    /// Compiles a document. With a fault in the report the result is not to be used.
    fn compile(spec: Spec, compatibility: Compatibility, report: &mut Report) -> Self {
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
        policy.filters = policy.hooks(&spec, Switch::Predicate, |own| own.filter.as_ref());
        policy.scorers = policy.hooks(&spec, Switch::NodeOrder, |own| own.score.as_ref());
        policy.job_orders = policy.hooks(&spec, Switch::JobOrder, |own| own.order.as_ref());
        policy.queue_orders = policy.hooks(&spec, Switch::QueueOrder, |own| own.order.as_ref());
        policy.preempters = policy.tiers(&spec, Switch::Preemptable, |own| own.victims.as_ref());
        policy.reclaimers = policy.tiers(&spec, Switch::Reclaimable, |own| own.victims.as_ref());
        policy.enqueuers = policy.tiers(&spec, Switch::JobEnqueued, |own| own.admit.as_ref());
        policy.allocators = policy.tiers(&spec, Switch::Allocatable, |own| own.admit.as_ref());
        policy.spec = spec;
        policy
    }

    /// Compiles one entry. As upstream keeps functions by name, it replaces those of earlier entries, even if it is
    /// switched off itself; without the hook it replaces nothing.
    fn register(&mut self, spec: &PluginSpec, report: &mut Report) -> Option<Arc<dyn Plugin>> {
        let name: Arc<str> = Arc::from(spec.name.as_str());
        let registered = self.registered.entry(Arc::clone(&name)).or_insert_with(|| Registered {
            name,
            is_served: false,
            filter: None,
            score: None,
            order: None,
            victims: None,
            weight: 1,
            admit: None,
        });
        let def = plugins::find(&spec.name)?;
        let none = Arguments::default();
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
        ];
        for (_, place) in places.into_iter().filter(|(has, _)| *has) {
            *place = Some(Arc::clone(&plugin));
        }
        Some(plugin)
    }

    fn hooks(&self, spec: &Spec, switch: Switch, own: fn(&Registered) -> Option<&Arc<dyn Plugin>>) -> Vec<Hook> {
        self.tiers(spec, switch, own).into_iter().flatten().collect()
    }

    /// The hooks that are switched on, tier by tier.
    fn tiers(&self, spec: &Spec, switch: Switch, own: fn(&Registered) -> Option<&Arc<dyn Plugin>>) -> Vec<Vec<Hook>> {
        let hook = |plugin: &PluginSpec| {
            let registered = self.registered.get(plugin.name.as_str())?;
            Some(Hook {
                name: Arc::clone(&registered.name),
                plugin: Arc::clone(own(registered)?),
                weight: registered.weight,
            })
        };
        let tier = |tier: &Vec<PluginSpec>| {
            let on = tier.iter().filter(|plugin| plugin.switches.is_on(switch));
            on.filter_map(hook).collect()
        };
        spec.tiers.iter().map(tier).collect()
    }

    /// Whether it follows the reference to the letter.
    pub fn compatibility(&self) -> Compatibility {
        self.compatibility
    }

    /// The document as it was read.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Filters in the order of the tiers, those that are switched on. One name may stand here twice.
    pub fn filters(&self) -> &[Hook] {
        &self.filters
    }

    /// Scorers likewise.
    pub fn scorers(&self) -> &[Hook] {
        &self.scorers
    }

    /// The plugin of a name, if it stands in the document.
    pub fn registered(&self, name: &str) -> Option<&Registered> {
        self.registered.get(name)
    }

    /// Plugins that order jobs, likewise.
    pub fn job_orders(&self) -> &[Hook] {
        &self.job_orders
    }

    /// Plugins that order queues, likewise.
    pub fn queue_orders(&self) -> &[Hook] {
        &self.queue_orders
    }

    /// Plugins that say who may have to go, tier by tier, those that are switched on.
    pub fn victims(&self, kind: VictimKind) -> &[Vec<Hook>] {
        match kind {
            VictimKind::Preempt => &self.preempters,
            VictimKind::Reclaim => &self.reclaimers,
        }
    }

    /// Plugins that vote on jobs, likewise.
    pub fn enqueuers(&self) -> &[Vec<Hook>] {
        &self.enqueuers
    }

    /// Plugins that check tasks, likewise.
    pub fn allocators(&self) -> &[Vec<Hook>] {
        &self.allocators
    }

    /// True if Filter and Score of these plugins (none: of any that stand in the document) read what is kept beside a
    /// View.
    pub fn reads_accounts(&self, plugins: &[Arc<str>]) -> bool {
        let reads = |own: &Registered| {
            let mut hooks = own.filter.iter().chain(&own.score);
            hooks.any(|plugin| plugin.hooks().accounts)
        };
        if plugins.is_empty() {
            return self.registered.values().any(reads);
        }
        plugins.iter().filter_map(|name| self.registered(name)).any(reads)
    }

    /// True if a plugin's Filter or Score reads what the job of this task holds.
    pub fn reads_job(&self, task: &TaskRecord) -> bool {
        let mut registered = self.registered.values();
        registered.any(|own| own.filter.iter().chain(&own.score).any(|plugin| plugin.reads_job(task)))
    }

    /// True if a plugin stands in the document that may keep something beside a View.
    pub fn derives(&self) -> bool {
        self.registered
            .values()
            .any(|own| own.order.is_some() || own.victims.is_some() || own.admit.is_some())
    }

    /// What the plugins keep beside a View, whatever their switches say. Of a name that stands there twice, the first
    /// entry decides.
    pub fn derive(&self, view: &View) -> DerivedSet {
        self.derive_after(view, None)
    }

    /// The same, and sooner, if it is known what these plugins kept beside an older View. `before` must be as it was
    /// worked out, moved by no change of a cycle.
    pub fn derive_after(&self, view: &View, before: Option<(&View, &DerivedSet)>) -> DerivedSet {
        self.derive_of(|_| true, view, before)
    }

    /// The same of some plugins only.
    pub(crate) fn derive_of(
        &self,
        which: impl Fn(&str) -> bool,
        view: &View,
        before: Option<(&View, &DerivedSet)>,
    ) -> DerivedSet {
        let mut derived = DerivedSet::default();
        let entries = self.spec.tiers.iter().flatten().zip(self.compiled.iter().flatten());
        for (spec, plugin) in entries {
            let known = self.registered.get(spec.name.as_str());
            let (Some(plugin), Some(known)) = (plugin, known) else {
                continue;
            };
            if derived.contains(&known.name) || !which(&known.name) {
                continue;
            }
            let carried = before.and_then(|(old, kept)| kept.carry(&known.name, &Changes { old, new: view }));
            if let Some(own) = carried.or_else(|| plugin.derive(view, &spec.switches)) {
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
