//! A policy, compiled: plugins ready to be asked, in the order of the tiers. It never changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::args::Arguments;
use super::emit;
use super::findings::Report;
use super::load::{LoadOptions, load};
use super::spec::{Compatibility, PluginSpec, Spec, Switch};
use super::yaml::Limits;
use crate::engine::plugin::Plugin;
use crate::engine::plugins;

/// One hook at one place in the tiers.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Name of the plugin.
    pub name: Arc<str>,
    /// Who answers.
    pub plugin: Arc<dyn Plugin>,
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
}

/// A policy in force.
#[derive(Clone, Debug)]
pub struct Policy {
    compatibility: Compatibility,
    spec: Spec,
    /// By tier and place; `None`: not served.
    compiled: Vec<Vec<Option<Arc<dyn Plugin>>>>,
    registered: BTreeMap<Arc<str>, Registered>,
    filters: Vec<Hook>,
    scorers: Vec<Hook>,
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

impl Policy {
    /// Compiles a document. With a fault in the report the result is not to be used.
    fn compile(spec: Spec, compatibility: Compatibility, report: &mut Report) -> Self {
        let mut policy = Self {
            compatibility,
            compiled: Vec::with_capacity(spec.tiers.len()),
            registered: BTreeMap::new(),
            filters: Vec::new(),
            scorers: Vec::new(),
            spec: Spec::default(),
        };
        for tier in &spec.tiers {
            let tier = tier.iter().map(|plugin| policy.register(plugin, report));
            let tier = tier.collect();
            policy.compiled.push(tier);
        }
        policy.filters = policy.hooks(&spec, Switch::Predicate, |own| own.filter.as_ref());
        policy.scorers = policy.hooks(&spec, Switch::NodeOrder, |own| own.score.as_ref());
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
        });
        let def = plugins::find(&spec.name)?;
        let none = Arguments::default();
        let arguments = spec.arguments.as_ref().unwrap_or(&none);
        let plugin = (def.compile)(arguments, self.compatibility, report);
        registered.is_served = true;
        if plugin.hooks().filter {
            registered.filter = Some(Arc::clone(&plugin));
        }
        if plugin.hooks().score {
            registered.score = Some(Arc::clone(&plugin));
        }
        Some(plugin)
    }

    fn hooks(&self, spec: &Spec, switch: Switch, own: impl Fn(&Registered) -> Option<&Arc<dyn Plugin>>) -> Vec<Hook> {
        let on = spec.plugins().filter(|(_, plugin)| plugin.switches.is_on(switch));
        on.filter_map(|(_, plugin)| {
            let registered = self.registered.get(plugin.name.as_str())?;
            Some(Hook {
                name: Arc::clone(&registered.name),
                plugin: Arc::clone(own(registered)?),
            })
        })
        .collect()
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

    /// True if a plugin that keeps shares stands in the document, served or not: with `drf` the reference counts events,
    /// and panics where more is taken away than was ever counted.
    pub fn keeps_shares(&self) -> bool {
        self.registered.contains_key("drf")
    }

    fn effective_document(&self) -> String {
        emit::effective_document(&self.spec, self.compatibility, &|tier, place, _| {
            let plugin = self.compiled.get(tier)?.get(place)?.as_ref()?;
            Some(plugin.effective_arguments())
        })
    }
}
