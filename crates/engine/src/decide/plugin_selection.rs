//! Selection of the filters and scorers of a query.

use std::sync::Arc;

use super::builtin_filters::{NodeStateFilter, ResourceFitFilter};
use super::query::{NodeQuery, ResourceFit};
use crate::model::{ErrorCode, Problem, TaskClass};
use crate::plugin::{NodeFilter, NodeScorer, Plugin, PluginContext};
use crate::policy::{Compatibility, Policy, RegisteredPlugin};

/// Plugins that a query asks.
pub(super) enum PluginSelection<'p> {
    /// Tiers of the policy.
    Tiers(&'p Policy),
    /// Named plugins of a policy, each by itself.
    Named(&'p Policy, Vec<&'p RegisteredPlugin>),
}

/// Scorer of a plugin; `None`: 0 on every node.
pub(super) struct PluginScorer<'a> {
    pub(super) plugin: &'a Arc<str>,
    /// Factor of the scores in totals.
    pub(super) weight: f64,
    pub(super) scorer: Option<Box<dyn NodeScorer + 'a>>,
}

impl<'p> PluginSelection<'p> {
    /// Selection of a query.
    ///
    /// # Errors
    /// The query names a plugin that the policy does not have, or that is not served.
    pub(super) fn of(policy: &'p Policy, query: &NodeQuery) -> Result<Self, Problem> {
        if query.plugins.is_empty() {
            return Ok(Self::Tiers(policy));
        }
        Ok(Self::Named(policy, named_plugins(policy, &query.plugins)?))
    }

    fn policy(&self) -> &'p Policy {
        let (Self::Tiers(policy) | Self::Named(policy, _)) = self;
        policy
    }

    /// True if each filter evaluates every node, independently of other filters.
    pub(super) fn is_named(&self) -> bool {
        matches!(self, Self::Named(..))
    }

    /// True if a node gets one reason, and a lasting one before others. In the reference the first filter that rejects a
    /// node hides the later ones.
    pub(super) fn prefers_lasting_reasons(&self) -> bool {
        match self {
            Self::Tiers(policy) => policy.compatibility() == Compatibility::Corrected,
            Self::Named(..) => false,
        }
    }

    /// Filter on the node's resources; `None`: the query asks for no check.
    pub(super) fn resource_fit<'c>(&self, class: &'c TaskClass, fit: ResourceFit) -> Option<ResourceFitFilter<'c>> {
        ResourceFitFilter::of(class, fit, self.policy())
    }

    /// Filters of a class, in order: the node's state (unless plugins are named), the node's resources, plugins.
    ///
    /// # Errors
    /// A plugin cannot read something in the class.
    pub(super) fn filterers<'a>(
        &self,
        context: PluginContext<'a>,
        query: &NodeQuery,
        class: &'a TaskClass,
    ) -> Result<Vec<Box<dyn NodeFilter + 'a>>, Problem>
    where
        'p: 'a,
    {
        let mut filterers: Vec<Box<dyn NodeFilter + 'a>> = Vec::new();
        if let Self::Tiers(policy) = self {
            filterers.push(Box::new(NodeStateFilter::of(policy)));
        }
        if let Some(room) = self.resource_fit(class, query.resource_fit) {
            filterers.push(Box::new(room));
        }
        let mut add = |name: &str, plugin: &'p Arc<dyn Plugin>| {
            check_labels(self.policy(), name, context)?;
            filterers.extend(plugin.prepare_filter(context, class)?);
            Ok(())
        };
        match self {
            Self::Tiers(policy) => {
                let mut hooks = policy.hooks().filters.iter();
                hooks.try_for_each(|hook| add(&hook.name, &hook.plugin))?;
            }
            Self::Named(_, each) => each
                .iter()
                .filter_map(|named| Some((&named.name, named.filter.as_ref()?)))
                .try_for_each(|(name, plugin)| add(name, plugin))?,
        }
        Ok(filterers)
    }

    /// Scorers of a class, in order.
    ///
    /// # Errors
    /// The errors of [`Self::filterers`].
    pub(super) fn scorers<'a>(
        &self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> Result<Vec<PluginScorer<'a>>, Problem>
    where
        'p: 'a,
    {
        let score = |name: &'p Arc<str>, plugin: Option<&'p Arc<dyn Plugin>>, weight: i32| {
            // A result names a plugin that waits for labels as not evaluated.
            let plugin = plugin.filter(|_| check_labels(self.policy(), name, context).is_ok());
            let scorer = plugin
                .map(|plugin| plugin.prepare_scorer(context, class))
                .transpose()?
                .flatten();
            Ok(PluginScorer {
                plugin: name,
                weight: f64::from(weight),
                scorer,
            })
        };
        match self {
            Self::Tiers(policy) => {
                let hooks = policy.hooks().scorers.iter();
                hooks
                    .map(|hook| score(&hook.name, Some(&hook.plugin), hook.weight))
                    .collect()
            }
            Self::Named(_, each) => each
                .iter()
                .map(|named| score(&named.name, named.score.as_ref(), named.weight))
                .collect(),
        }
    }
}

/// Checks that the records have all labels that a plugin reads.
///
/// # Errors
/// Some source sent its records when no policy read them.
fn check_labels(policy: &Policy, plugin: &str, context: PluginContext<'_>) -> Result<(), Problem> {
    let state = context.cluster_state;
    if state.dropped_labels().is_empty() {
        return Ok(());
    }
    let labels = policy.registered(plugin).map(|own| own.all_labels).unwrap_or_default();
    let sources: Vec<&str> = state.sources_without(labels).map(|source| &**source).collect();
    if sources.is_empty() {
        return Ok(());
    }
    let message = format!(
        "`{plugin}` reads labels that were not kept, because no policy read them when the records came: the server asks \
         sources that follow a cluster for a full sync, and a file has to be loaded again. Waits for: {}",
        sources.join(", ")
    );
    Err(Problem::new(ErrorCode::LabelsMissing, "", message))
}

/// Plugins with these names.
///
/// # Errors
/// The policy does not have a named plugin, or the plugin is not implemented.
pub(super) fn named_plugins<'p>(policy: &'p Policy, names: &[Arc<str>]) -> Result<Vec<&'p RegisteredPlugin>, Problem> {
    let numbered = names.iter().enumerate();
    numbered
        .map(|(number, name)| named_plugin(policy, number, name))
        .collect()
}

fn named_plugin<'p>(policy: &'p Policy, number: usize, name: &str) -> Result<&'p RegisteredPlugin, Problem> {
    let problem = |code, message| Problem::new(code, format!("plugins[{number}]"), message);
    match policy.registered(name) {
        Some(registered) if registered.is_served => Ok(registered),
        Some(_) => Err(problem(
            ErrorCode::PluginNotServed,
            format!("the policy has plugin `{name}`, but this service does not serve it"),
        )),
        None => Err(problem(
            ErrorCode::PluginUnknown,
            format!("the policy has no plugin `{name}`"),
        )),
    }
}
