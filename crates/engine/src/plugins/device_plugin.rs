//! Plugin that scores nodes by a score of their devices, and does nothing else.

use std::sync::Arc;

use super::device_scores::node_scorer;
use super::effective_values::{map_entry, value_map};
use crate::devices::DeviceScorer;
use crate::model::TaskClass;
use crate::plugin::{NodeScorer, Plugin, PluginContext, PluginHooks, PreparedHook};
use crate::policy::YamlValue;

/// Compiled plugin.
#[derive(Debug)]
struct DevicePlugin<S> {
    scorer: S,
    /// Arguments in force.
    arguments: YamlValue,
}

/// Plugin of a score. `more`: its arguments in force after the weight.
pub(super) fn device_plugin<S: DeviceScorer + 'static>(
    scorer: S,
    more: impl IntoIterator<Item = (String, YamlValue)>,
) -> Arc<dyn Plugin> {
    let weight = map_entry("weight", YamlValue::Int(scorer.weight()));
    Arc::new(DevicePlugin {
        arguments: value_map([weight].into_iter().chain(more)),
        scorer,
    })
}

impl<S: DeviceScorer + 'static> Plugin for DevicePlugin<S> {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            score: self.scorer.weight() != 0,
            devices: true,
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        self.arguments.clone()
    }

    fn prepare_scorer<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeScorer + 'a> {
        Ok(Some(node_scorer(context, class, &self.scorer)))
    }

    fn device_scorer(&self) -> Option<&dyn DeviceScorer> {
        Some(&self.scorer)
    }
}
