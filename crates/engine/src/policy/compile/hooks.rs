//! Hooks of a compiled policy, by kind of decision, and the states of their plugins.

use crate::cycle::NodeChangeRules;
use std::sync::Arc;

use super::{Policy, PolicyHook, RegisteredPlugin};
use crate::devices::DevicePick;
use crate::model::constraints::ConstraintSet;
use crate::model::resource_name::ResourceKind;
use crate::model::{ClusterState, LabelKinds, StateDiff, TaskRecord};
use crate::plugin::{Plugin, PluginContext, PluginDef, PluginHooks, TemplateRule, TimeEffect, VictimKind};
use crate::plugin_state::PluginStates;
use crate::plugins;
use crate::policy::unserved::{DecisionKind, UnservedEffect};

impl Policy {
    /// Bounds of the policy's scores, by the weights of its plugins; `None`: a plugin has none.
    pub fn score_bounds(&self) -> Option<(f64, f64)> {
        let mut bounds = (0.0, 0.0);
        for hook in &self.hooks.scorers {
            let (low, high) = hook.plugin.score_bounds()?;
            let ends = [low * f64::from(hook.weight), high * f64::from(hook.weight)];
            bounds.0 += ends.into_iter().fold(f64::INFINITY, f64::min);
            bounds.1 += ends.into_iter().fold(f64::NEG_INFINITY, f64::max);
        }
        Some(bounds)
    }

    /// Rule by which devices are picked; `None`: no plugin that is switched on picks any.
    pub fn device_pick(&self) -> Option<DevicePick> {
        self.hooks
            .filters
            .iter()
            .find_map(|hook| hook.plugin.hooks().device_pick)
    }

    /// Filters that a query evaluates: filters of `plugins`, ignoring the switches. Empty `plugins`: all filters that
    /// are switched on.
    fn asked_filters<'p>(&'p self, plugins: &'p [Arc<str>]) -> impl Iterator<Item = &'p Arc<dyn Plugin>> {
        let named = plugins.iter().filter_map(|name| self.registered(name)?.filter.as_ref());
        named.chain(switched_on(&self.hooks.filters, plugins))
    }

    /// Scorers that a query asks, likewise.
    fn asked_scorers<'p>(&'p self, plugins: &'p [Arc<str>]) -> impl Iterator<Item = &'p Arc<dyn Plugin>> {
        let named = plugins.iter().filter_map(|name| self.registered(name)?.score.as_ref());
        named.chain(switched_on(&self.hooks.scorers, plugins))
    }

    /// True if a filter or a score of a query reads the devices of nodes. The query evaluates `plugins`, ignoring the
    /// switches. Empty `plugins`: all that are switched on.
    pub fn reads_devices(&self, plugins: &[Arc<str>]) -> bool {
        let mut hooks = self.asked_filters(plugins).chain(self.asked_scorers(plugins));
        hooks.any(|plugin| plugin.hooks().devices)
    }

    /// Plugin of a name, if the document has it.
    pub fn registered(&self, name: &str) -> Option<&RegisteredPlugin> {
        self.registered.get(name)
    }

    /// Rule that finds tasks of one template, if a filter of a query evaluates only the first task of a template. The
    /// query evaluates `plugins`, ignoring the switches. Empty `plugins`: all that are switched on.
    pub fn template_rule(&self, plugins: &[Arc<str>]) -> Option<TemplateRule> {
        let mut filters = self.asked_filters(plugins);
        filters.find_map(|plugin| plugin.hooks().template)
    }

    /// Constraints between pods and nodes that a query evaluates. The query evaluates `plugins`, ignoring the switches.
    /// Empty `plugins`: all that are switched on.
    pub fn evaluated_constraints(&self, plugins: &[Arc<str>]) -> ConstraintSet {
        let filters = self
            .asked_filters(plugins)
            .map(|plugin| plugin.hooks().filter_evaluates);
        let scorers = self.asked_scorers(plugins).map(|plugin| plugin.hooks().score_evaluates);
        filters.chain(scorers).fold(ConstraintSet::NONE, ConstraintSet::union)
    }

    /// Constraints that Filter or Score of `plugins` evaluate, ignoring the switches. Empty `plugins`: all plugins.
    pub fn registered_constraints(&self, plugins: &[Arc<str>]) -> ConstraintSet {
        let hooks = self.registered_hooks(plugins).map(|plugin| plugin.hooks());
        let both = hooks.map(|hooks| hooks.filter_evaluates.union(hooks.score_evaluates));
        both.fold(ConstraintSet::NONE, ConstraintSet::union)
    }

    /// Filters and scorers of these plugins, ignoring the switches. Empty `plugins`: all plugins of the document.
    fn registered_hooks<'p>(&'p self, plugins: &'p [Arc<str>]) -> impl Iterator<Item = &'p Arc<dyn Plugin>> {
        let named = plugins.iter().filter_map(|name| self.registered(name));
        let all = self.registered.values().filter(|_| plugins.is_empty());
        named.chain(all).flat_map(|own| own.filter.iter().chain(&own.score))
    }

    /// Kinds of records whose labels a plugin of the policy, in any profile, reads completely.
    pub fn all_labels(&self) -> LabelKinds {
        let own = self.registered.values().map(|own| own.all_labels);
        let profiles = self.profiles.iter().map(|(_, policy)| policy.all_labels());
        own.chain(profiles).fold(LabelKinds::default(), LabelKinds::union)
    }

    /// Plugins that read labels which the records of a cluster state lack, in the order of their names.
    pub fn without_labels(&self, cluster_state: &ClusterState) -> impl Iterator<Item = &RegisteredPlugin> {
        let lacks = |own: &&RegisteredPlugin| cluster_state.sources_without(own.all_labels).next().is_some();
        self.registered.values().filter(lacks)
    }

    /// True if the policy is a profile of a `KubeSchedulerConfiguration`.
    pub fn is_profile(&self) -> bool {
        self.is_profile
    }

    /// True if a plugin of the policy excludes a resource from the built-in filter on resources. Switches and plugin
    /// names in a query do not affect the built-in filter.
    pub fn ignores_resource(&self, name: &str) -> bool {
        let is_counted = self.is_profile || ResourceKind::of(name).counted_by_volcano();
        !is_counted || self.registered_hooks(&[]).any(|plugin| plugin.ignores_resource(name))
    }

    /// Plugins of the document that are not served and would decide something, sorted by name.
    pub fn unserved_plugins(&self) -> &[UnservedEffect] {
        &self.unserved
    }

    /// Plugins that compare with the time, by name, with the effect of a query that gives none.
    pub fn time_effects(&self) -> impl Iterator<Item = (&Arc<str>, TimeEffect)> {
        let registered = self.registered.values();
        registered.filter_map(|own| Some((&own.name, own.time_effect?)))
    }

    /// Plugins whose records a cluster state does not have, by name, with the effect on a decision of this kind.
    pub fn absent_inputs(
        &self,
        cluster_state: &ClusterState,
        kind: DecisionKind,
    ) -> impl Iterator<Item = (&Arc<str>, &'static str)> {
        let registered = self.registered.values();
        let with_input = registered.filter_map(|own| Some((&own.name, own.absent_input?)));
        let of_kind = with_input.filter(move |(_, input)| input.decisions.contains(&kind));
        let absent = of_kind.filter(|(_, input)| (input.is_absent)(cluster_state));
        absent.map(|(name, input)| (name, input.effect))
    }

    /// Plugins that select victims and are switched on, tier by tier.
    pub fn victims(&self, kind: VictimKind) -> &[Vec<PolicyHook>] {
        match kind {
            VictimKind::Preempt => &self.hooks.preempters,
            VictimKind::Reclaim => &self.hooks.reclaimers,
            VictimKind::GangPreempt | VictimKind::GangReclaim => &self.hooks.gang_evicters,
            VictimKind::Shuffle => &self.hooks.shufflers,
        }
    }

    /// True if Filter or Score of `plugins` reads plugin states. Empty `plugins`: any plugin of the document.
    pub fn reads_plugin_state(&self, plugins: &[Arc<str>]) -> bool {
        self.registered_hooks(plugins).any(|plugin| plugin.hooks().accounts)
    }

    /// Rules by which a cycle under this policy changes nodes.
    pub fn node_change_rules(&self) -> NodeChangeRules {
        let plugins = self
            .registered
            .values()
            .flat_map(|own| own.filter.iter().chain(&own.score));
        let hooks: Vec<PluginHooks> = plugins.map(|plugin| plugin.hooks()).collect();
        NodeChangeRules {
            compatibility: self.compatibility,
            moves_pods: hooks.iter().any(|own| own.moves_pods) || !hooks.iter().any(|own| own.reads_pods),
        }
    }

    /// True if some plugin checks tasks.
    pub fn has_allocators(&self) -> bool {
        self.hooks.allocators.iter().any(|tier| !tier.is_empty())
    }

    /// True if placing tasks, or evaluating placements, needs plugin states.
    pub fn places_by_plugin_state(&self) -> bool {
        self.has_allocators() || self.reads_plugin_state(&[])
    }

    /// True if a plugin's Filter or Score reads the holdings of this task's job.
    pub fn reads_job(&self, task: &TaskRecord) -> bool {
        let mut hooks = self.registered_hooks(&[]);
        hooks.any(|plugin| plugin.quota().is_some_and(|quota| quota.reads_job(task)))
    }

    /// True if a plugin's Filter or Score tells tasks of some jobs apart.
    pub fn reads_tasks(&self) -> bool {
        self.registered_hooks(&[]).any(|plugin| plugin.hooks().reads_tasks)
    }

    /// True if a plugin's Filter or Score tells this task apart from the others of its job.
    pub fn reads_task(&self, cluster_state: &ClusterState, task: &TaskRecord) -> bool {
        self.registered_hooks(&[])
            .any(|plugin| plugin.reads_task(cluster_state, task))
    }

    /// Card that a task uses on a node, see [`QuotaPlugin::card_on_node`](crate::plugin::QuotaPlugin::card_on_node).
    pub fn card_on_node(
        &self,
        context: PluginContext<'_>,
        task: &TaskRecord,
        node: &str,
        admitted: &[Arc<str>],
    ) -> Option<Arc<str>> {
        let allocators = self.hooks.allocators.iter().flatten();
        let mut quotas = allocators.filter_map(|hook| hook.plugin.quota());
        quotas.find_map(|quota| quota.card_on_node(context, task, node, admitted))
    }

    /// True if a plugin of the document has gauges of queues.
    pub fn has_gauges(&self) -> bool {
        self.defs().any(|def| def.gauges)
    }

    /// True if a plugin of the document marks jobs that are not ready when a session closes.
    pub(crate) fn marks_unready_jobs(&self) -> bool {
        self.defs().any(|def| def.marks_unready_jobs)
    }

    fn defs(&self) -> impl Iterator<Item = &'static PluginDef> {
        self.registered.keys().filter_map(|name| plugins::find(name))
    }

    /// True if a plugin of the document may have a state.
    pub fn has_plugin_state(&self) -> bool {
        let decides_by_state = |own: &RegisteredPlugin| {
            own.order.is_some() || own.victims.is_some() || own.admit.is_some() || own.job_state.is_some()
        };
        // Of some plugins only Filter or Score reads the state.
        self.registered.values().any(decides_by_state) || self.reads_plugin_state(&[])
    }

    /// Computes the plugin states of a cluster state, ignoring the switches. If a name has several entries, the first
    /// entry is used.
    pub fn compute_plugin_states(&self, cluster_state: &ClusterState) -> PluginStates {
        self.advance_plugin_states(cluster_state, None)
    }

    /// Computes the plugin states of a newer cluster state from the states of an older one, which is faster. `before`
    /// must not contain changes of a cycle.
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
            let name = plugin
                .hooks()
                .shared_state
                .map_or_else(|| Arc::clone(&known.name), Arc::from);
            if derived.contains(&name) || !which(&known.name) {
                continue;
            }
            let advanced = before.and_then(|(old, older)| {
                let new = cluster_state;
                older.advance(&name, StateDiff { old, new })
            });
            if let Some(own) = advanced.or_else(|| plugin.build_state(cluster_state, &spec.switches)) {
                derived.insert(name, own);
            }
        }
        derived
    }
}

/// Plugins of hooks that are switched on, if a query names none.
fn switched_on<'p>(hooks: &'p [PolicyHook], named: &[Arc<str>]) -> impl Iterator<Item = &'p Arc<dyn Plugin>> {
    let asked = if named.is_empty() { hooks } else { &[] };
    asked.iter().map(|hook| &hook.plugin)
}
