//! `rescheduling`: running tasks leave nodes with a high measured load while others have a low one (Volcano ed72c7c81,
//! pkg/scheduler/plugins/rescheduling).

mod arguments;
mod balance;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arguments::ReschedulingArguments;
use balance::LoadBalance;

use crate::model::{NodeLoad, Problem};
use crate::plugin::{
    AbsentInput, Plugin, PluginContext, PluginDef, PluginHooks, ShufflePart, TimeEffect, VictimKind, VictimQuery,
};
use crate::policy::{Compatibility, DecisionKind, DiagnosticReport, PluginArguments, YamlValue};

const NAME: &str = "rescheduling";

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["victims"],
    time_effect: Some(TimeEffect {
        decisions: &[DecisionKind::Shuffle],
        effect: "The request gives no time: no task leaves its node because of the load.",
    }),
    absent_input: Some(&AbsentInput {
        decisions: &[DecisionKind::Shuffle],
        is_absent: NodeLoad::is_missing,
        effect: "No node has a measured load: no task leaves its node because of the load.",
    }),
    ..PluginDef::new(NAME, compile)
};

/// Compiled plugin.
#[derive(Debug)]
struct Rescheduling {
    arguments: ReschedulingArguments,
    compatibility: Compatibility,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    Arc::new(Rescheduling {
        arguments: ReschedulingArguments::read(arguments, compatibility, report),
        compatibility,
    })
}

impl Plugin for Rescheduling {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            victims: true,
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        self.arguments.effective()
    }

    fn shuffle_part(&self) -> Option<ShufflePart> {
        // At the end of the interval it is not over yet.
        let interval = self.arguments.interval.saturating_add(1);
        Some(ShufflePart::Names { interval })
    }

    fn ordered_victims(
        &self,
        context: PluginContext<'_>,
        query: &VictimQuery<'_>,
    ) -> Result<Option<Vec<usize>>, Problem> {
        let Some(now) = context.now.filter(|_| query.kind == VictimKind::Shuffle) else {
            return Ok(None);
        };
        let balance = LoadBalance {
            arguments: &self.arguments,
            compatibility: self.compatibility,
            cluster_state: context.cluster_state,
            candidates: query.candidates,
            now,
        };
        let victims = balance.victims();
        Ok(Some(victims.repeat(self.arguments.repeats)))
    }
}
