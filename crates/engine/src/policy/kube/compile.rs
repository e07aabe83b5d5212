//! Compilation of a profile: the plugins that kube-scheduler would enable, and the resulting policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::args::PluginArguments;
use super::super::compatibility::Compatibility;
use super::super::compile::{Policy, RegisteredPlugin};
use super::super::diagnostics::{DiagnosticReport, ErrorCode};
use super::super::suggestion;
use super::super::yaml::{DocumentLocation, DocumentPath, shown_name};
use super::{
    DEFAULT_SCHEDULER, FILTER, KUBE_PLUGINS, KubeProfile, KubeSpec, LATER_PLUGIN, LATER_POINT, MULTI_POINT, PRE_FILTER,
    PRE_SCORE, PluginEntry, SCORE, defaults, emit, extenders, is_served, points_of,
};
use crate::model::constraints::ConstraintSet;
use crate::model::{Problem, TaskClass};
use crate::plugin::{NodeScorer, Plugin, PluginContext, PluginHooks, PreparedHook};
use crate::plugins;
use crate::policy::YamlValue;

/// Largest number of profiles, plugins in their lists, and arguments of plugins together.
const MAX_ENTRIES: usize = 1_000;

/// Compiled document.
pub(in super::super) struct CompiledProfiles {
    /// Profiles by name, in order.
    pub(in super::super) profiles: Vec<(Arc<str>, Arc<Policy>)>,
    pub(in super::super) loaded_document: String,
    pub(in super::super) effective_document: String,
}

/// Compiles a document. After an error in the report the result is not used.
pub(in super::super) fn compile(
    spec: &KubeSpec,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> CompiledProfiles {
    let mut profiles = Vec::new();
    let mut effective: Vec<BTreeMap<&str, YamlValue>> = Vec::new();
    let one_default = KubeProfile::default();
    let written = if exceeds_entry_limit(spec, report) {
        &[]
    } else if spec.profiles.is_empty() {
        std::slice::from_ref(&one_default)
    } else {
        spec.profiles.as_slice()
    };
    for profile in written {
        let name = scheduler_name(profile, written, report);
        let profile = defaults::merged(profile);
        let profile = &extenders::with_ignored(profile, &spec.ignored_resources, compatibility);
        let compiled = compile_served_plugins(profile, compatibility, report);
        let arguments = compiled.iter().filter_map(|(name, plugin)| {
            let configured = profile.configs.iter().any(|config| config.name == *name);
            let own = (configured || is_enabled(profile, name)).then(|| plugin.effective_arguments());
            let own = own.filter(|own| !matches!(own, YamlValue::Map(pairs) if pairs.is_empty()));
            own.map(|own| (*name, own))
        });
        effective.push(arguments.collect());
        let policy = Policy::from_profile(
            compatibility,
            profile_plugins(profile, compatibility, &compiled, report),
        );
        profiles.push((name, Arc::new(policy)));
    }
    let decides = |policy: &Policy| !(policy.hooks().scorers.is_empty() && policy.hooks().filters.is_empty());
    if !profiles.iter().any(|(_, policy)| decides(policy)) {
        let message = "no profile enables a plugin that is served here: every node scores 0";
        report.warning(ErrorCode::Profile, &DocumentLocation::default(), message);
    }
    CompiledProfiles {
        loaded_document: emit::loaded(spec),
        effective_document: emit::effective(spec, compatibility, &effective),
        profiles,
    }
}

fn exceeds_entry_limit(spec: &KubeSpec, report: &mut DiagnosticReport) -> bool {
    let lists = |profile: &KubeProfile| -> usize {
        let sets = profile.plugins.values();
        sets.map(|set| set.enabled.len() + set.disabled.len()).sum()
    };
    let profiles = spec.profiles.iter();
    let entries: usize = profiles.map(|profile| 1 + profile.configs.len() + lists(profile)).sum();
    if entries > MAX_ENTRIES {
        let message = format!("{entries} profiles, plugins and arguments are more than the limit of {MAX_ENTRIES}");
        report.error(ErrorCode::YamlLimit, &DocumentLocation::default(), message);
    }
    entries > MAX_ENTRIES
}

fn scheduler_name(profile: &KubeProfile, all: &[KubeProfile], report: &mut DiagnosticReport) -> Arc<str> {
    let same = all.iter().filter(|other| other.name == profile.name).count();
    if profile.name.is_empty() && all.len() == 1 {
        return Arc::from(DEFAULT_SCHEDULER);
    }
    if profile.name.is_empty() {
        let message = "a profile among several needs a `schedulerName`";
        report.error(ErrorCode::Profile, &profile.at, message);
    } else if same > 1 {
        let message = format!("`{}` is the name of {same} profiles", shown_name(&profile.name));
        report.error(ErrorCode::Profile, &profile.at, message);
    }
    Arc::from(profile.name.as_str())
}

/// Compiles the served plugins with their arguments, enabled or not: upstream decodes all arguments.
fn compile_served_plugins(
    profile: &KubeProfile,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Vec<(&'static str, Arc<dyn Plugin>)> {
    for (number, config) in profile.configs.iter().enumerate() {
        let before = profile.configs.get(..number).unwrap_or_default();
        if before.iter().any(|other| other.name == config.name) {
            let message = format!("the arguments of `{}` appear twice", shown_name(&config.name));
            report.error(ErrorCode::PluginDuplicate, &config.at, message);
        }
        let known = is_served(&config.name) || KUBE_PLUGINS.contains(&config.name.as_str());
        if !known {
            let message = format!(
                "arguments for `{}`, which no plugin reads{}",
                shown_name(&config.name),
                suggestion_hint(&config.name)
            );
            report.warning(ErrorCode::PluginUnknown, &config.at, message);
        }
    }
    let compile = |name: &'static str| {
        let def = plugins::find(name)?;
        let config = profile.configs.iter().find(|config| config.name == name);
        let none = PluginArguments::new(profile.at.mark, DocumentPath::default());
        let arguments = config.and_then(|config| config.arguments.as_ref());
        // A plugin that no list names gets no warnings.
        let mut unheard = DiagnosticReport::default();
        let heard = config.is_some() || is_enabled(profile, name);
        let report = if heard { &mut *report } else { &mut unheard };
        Some((name, (def.compile)(arguments.unwrap_or(&none), compatibility, report)))
    };
    plugins::profile_names().into_iter().filter_map(compile).collect()
}

fn suggestion_hint(name: &str) -> String {
    let near = suggestion::nearest_name(name, &plugins::profile_names())
        .or_else(|| suggestion::nearest_name(name, &KUBE_PLUGINS));
    near.map_or_else(String::new, suggestion::did_you_mean)
}

fn is_enabled(profile: &KubeProfile, name: &str) -> bool {
    let mut points = points_of(name).iter();
    points.any(|point| entry_at(profile, point, name).is_some())
}

/// Entry by which a plugin is enabled at one of its extension points.
fn entry_at<'p>(profile: &'p KubeProfile, point: &str, name: &str) -> Option<&'p PluginEntry> {
    let has_point = points_of(name).contains(&point);
    let enabled = if has_point {
        enabled_at_point(profile, point)
    } else {
        Vec::new()
    };
    enabled.into_iter().find(|entry| entry.name == name)
}

/// True if a plugin requires an earlier extension point that is not enabled.
fn lacks(profile: &KubeProfile, point: &str, name: &str) -> bool {
    let prepares_itself = plugins::find(name).is_some_and(|def| def.prepares_itself);
    let needs = points_of(name).contains(&point) && !prepares_itself;
    needs && entry_at(profile, point, name).is_none()
}

/// Plugins enabled at an extension point, including plugins of `multiPoint` that are not disabled at the point
/// (Kubernetes, `pkg/scheduler/framework/runtime`, `expandMultiPointPlugins`).
fn enabled_at_point<'p>(profile: &'p KubeProfile, point: &str) -> Vec<&'p PluginEntry> {
    let own = profile.plugins.get(point);
    let mut enabled: Vec<&PluginEntry> = own.iter().flat_map(|set| &set.enabled).collect();
    let disabled = |name: &str| {
        let mut all = own.iter().flat_map(|set| &set.disabled);
        all.any(|entry| entry.name == name || entry.name == "*")
    };
    let multi = profile.plugins.get(MULTI_POINT);
    for entry in multi.iter().flat_map(|set| &set.enabled) {
        let explicit = enabled.iter().any(|own| own.name == entry.name);
        if !explicit && !disabled(&entry.name) {
            enabled.push(entry);
        }
    }
    enabled
}

/// Plugins of a profile that filter or score, and plugins that are not implemented.
fn profile_plugins(
    profile: &KubeProfile,
    compatibility: Compatibility,
    compiled: &[(&'static str, Arc<dyn Plugin>)],
    report: &mut DiagnosticReport,
) -> Vec<RegisteredPlugin> {
    check_sets(profile, report);
    check_release(profile, compatibility, report);
    let mut enabled: Vec<RegisteredPlugin> = Vec::new();
    for (name, plugin) in compiled.iter().filter(|(name, _)| is_enabled(profile, name)) {
        let filter = entry_at(profile, FILTER, name).map(|entry| {
            check_pre_filter(profile, entry, report);
            Arc::clone(plugin)
        });
        let scoring = entry_at(profile, SCORE, name);
        let score = scoring.map(|entry| {
            if lacks(profile, PRE_SCORE, name) {
                without_pre_score(entry, plugin, compatibility, report)
            } else {
                Arc::clone(plugin)
            }
        });
        enabled.push(RegisteredPlugin {
            filter,
            score,
            weight: scoring.map_or(1, |entry| effective_weight(entry, report)),
            ..RegisteredPlugin::new(name, plugins::find(name))
        });
    }
    let others = profile.plugins.values().flat_map(|set| &set.enabled);
    for entry in others.filter(|entry| !is_served(&entry.name)) {
        if enabled.iter().all(|own| *own.name != *entry.name) {
            if !entry.is_default {
                let what = format!("unknown plugin `{}`", shown_name(&entry.name));
                report.unserved_plugin(
                    &entry.name,
                    &entry.at,
                    &what,
                    [&plugins::profile_names(), &KUBE_PLUGINS],
                );
            }
            enabled.push(RegisteredPlugin::new(&entry.name, None));
        }
    }
    enabled
}

/// Refuses what came after the release that is followed. `corrected` takes what any release has.
fn check_release(profile: &KubeProfile, compatibility: Compatibility, report: &mut DiagnosticReport) {
    if !compatibility.is_upstream() || compatibility.release().rules().has_deferred_scheduling {
        return;
    }
    for (point, set) in &profile.plugins {
        let is_later = *point == LATER_POINT;
        for entry in set
            .enabled
            .iter()
            .chain(&set.disabled)
            .filter(|entry| !entry.is_default)
        {
            let name = entry.name.as_str();
            let what = if is_later {
                format!("extension point `{point}`")
            } else if name == LATER_PLUGIN {
                format!("plugin `{name}`")
            } else {
                continue;
            };
            let message = format!(
                "{} has no {what}, which came with kube-scheduler 1.37: remove it, or follow `kube-scheduler-1.37`",
                compatibility.name()
            );
            report.error(ErrorCode::Profile, &entry.at, message);
        }
    }
}

/// Effective weight of a plugin; upstream reads 0 as 1.
fn effective_weight(entry: &PluginEntry, report: &mut DiagnosticReport) -> i32 {
    match entry.weight {
        None => 1,
        Some(0) => {
            let message = "a `weight` of 0 counts as 1; to switch the plugin off, disable it";
            report.warning(ErrorCode::Profile, &entry.at, message);
            1
        }
        Some(weight) => {
            if weight < 0 {
                let message = "a negative `weight` reverses the order of nodes";
                report.warning(ErrorCode::Profile, &entry.at, message);
            }
            weight
        }
    }
}

/// Reports a filter without `preFilter`: upstream starts with such a profile, and then rejects every pod.
fn check_pre_filter(profile: &KubeProfile, entry: &PluginEntry, report: &mut DiagnosticReport) {
    if lacks(profile, PRE_FILTER, &entry.name) {
        let message = format!(
            "plugin `{}` is enabled at `filter` but not at `preFilter`, and cannot filter; enable it at `multiPoint`",
            entry.name
        );
        report.error(ErrorCode::Profile, &entry.at, message);
    }
}

/// Reports errors and warnings of the lists, which upstream reports at its start.
fn check_sets(profile: &KubeProfile, report: &mut DiagnosticReport) {
    for (point, set) in &profile.plugins {
        for (number, entry) in set.enabled.iter().enumerate() {
            let name = shown_name(&entry.name);
            let before = set.enabled.get(..number).unwrap_or_default();
            if before.iter().any(|other| other.name == entry.name) {
                let message = format!("plugin `{name}` is enabled twice at `{point}`");
                report.error(ErrorCode::PluginDuplicate, &entry.at, message);
            }
            let points = points_of(&entry.name);
            if !points.is_empty() && *point != MULTI_POINT && !points.contains(point) {
                let message = format!("plugin `{name}` has no extension point `{point}`");
                report.error(ErrorCode::Profile, &entry.at, message);
            }
        }
    }
}

/// Replaces the scorer of a plugin without `preScore`: upstream starts with such a profile, and then rejects every pod.
fn without_pre_score(
    entry: &PluginEntry,
    plugin: &Arc<dyn Plugin>,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    let message = format!(
        "plugin `{}` is enabled at `score` but not at `preScore`, and cannot score; enable it at `multiPoint`",
        entry.name
    );
    match compatibility {
        Compatibility::Corrected => report.error(ErrorCode::Profile, &entry.at, message),
        Compatibility::Upstream(_) => report.warning(ErrorCode::Profile, &entry.at, message),
    }
    Arc::new(PreScoreMissing {
        name: entry.name.clone(),
        plugin: Arc::clone(plugin),
    })
}

/// Scorer of a plugin whose `preScore` is not enabled.
#[derive(Debug)]
struct PreScoreMissing {
    name: String,
    plugin: Arc<dyn Plugin>,
}

impl Plugin for PreScoreMissing {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            filter_evaluates: ConstraintSet::NONE,
            score_evaluates: ConstraintSet::NONE,
            ..self.plugin.hooks()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        self.plugin.effective_arguments()
    }

    fn prepare_scorer<'a>(&'a self, _: PluginContext<'a>, _: &'a TaskClass) -> PreparedHook<dyn NodeScorer + 'a> {
        let message = format!(
            "`{}` is enabled at `score` but not at `preScore`, and cannot score",
            self.name
        );
        Err(Problem::new(ErrorCode::PreScoreMissing, "", message))
    }
}
