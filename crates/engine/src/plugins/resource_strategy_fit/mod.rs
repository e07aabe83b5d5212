//! `resource-strategy-fit`: spreads or packs by resource, keeps scarce resources free, and reserves cpu and memory for
//! idle devices (Volcano ed72c7c81, pkg/scheduler/plugins/resource-strategy-fit).

mod annotations;
mod arguments;
mod legacy;
mod patterns;
mod proportional;
mod sra;
mod strategies;

use std::sync::Arc;

use self::arguments::ArgumentReader;
use self::legacy::LegacyArguments;
use self::proportional::ProportionalReserve;
use self::sra::{SraConfig, SraKernel};
use self::strategies::ResourceStrategies;
use super::allocation::StrategyMean;
use super::effective_values::{map_entry, value_map};
use crate::model::{NodeChunk, Problem, TaskClass};
use crate::plugin::{
    ChunkScores, HookNumbers, NodeFilter, NodeScorer, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook,
};
use crate::policy::{ArgumentMap, Compatibility, DiagnosticReport, PluginArguments, YamlValue};

const NAME: &str = "resource-strategy-fit";

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["filter", "score"],
    task_annotations: &[annotations::SCORING_TYPE, annotations::WEIGHT],
    ..PluginDef::new(NAME, compile)
};

const SRA: &str = "sra";
const PROPORTIONAL: &str = "proportional";

/// Compiled plugin.
#[derive(Debug)]
struct ResourceStrategyFit {
    strategies: ResourceStrategies,
    sra: Option<SraConfig>,
    proportional: Option<ProportionalReserve>,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    let corrected = compatibility == Compatibility::Corrected;
    let reading = &mut ArgumentReader { compatibility, report };
    let strategies = ResourceStrategies::read(arguments, reading);
    let sra_block = block(arguments, SRA, reading);
    let proportional_block = block(arguments, PROPORTIONAL, reading);
    let nested = sra_block.as_ref().filter(|_| corrected);
    let nested = nested.and_then(|block| LegacyArguments::from_block(block, reading));
    let more: &[&str] = if nested.is_some() { &legacy::NESTED_FIELDS } else { &[] };
    let mut sra = sra_block
        .as_ref()
        .and_then(|block| SraConfig::read(block, more, reading));
    let mut proportional = proportional_block
        .as_ref()
        .and_then(|block| ProportionalReserve::read(block, reading));
    let flat = LegacyArguments::from_flat_keys(arguments).filter(|_| corrected);
    for old in [nested, flat].into_iter().flatten() {
        let old = old.translate(reading);
        // Old spellings apply only where today's spelling says nothing.
        sra = sra.or(old.sra);
        proportional = proportional.or(old.proportional);
    }
    let known = [strategies::WEIGHT, strategies::RESOURCES, SRA, PROPORTIONAL];
    arguments.warn_unknown(reading.report, NAME, &known, |key| {
        key == strategies::NO_RESOURCES || (corrected && legacy::is_flat_key(key))
    });
    Arc::new(ResourceStrategyFit {
        strategies,
        sra,
        proportional,
    })
}

fn block<'a>(arguments: &'a PluginArguments, key: &str, reading: &mut ArgumentReader<'_>) -> Option<ArgumentMap<'a>> {
    let argument = arguments.get(key).filter(|argument| !argument.is_null())?;
    argument.decode_map(reading.report)
}

impl ResourceStrategyFit {
    fn active_sra(&self) -> Option<&SraConfig> {
        self.sra.as_ref().filter(|sra| sra.is_active())
    }
}

impl Plugin for ResourceStrategyFit {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            filter: self.proportional.is_some(),
            score: self.strategies.is_active() || self.active_sra().is_some(),
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        let off = || value_map([map_entry("enable", YamlValue::Bool(false))]);
        let mut entries = self.strategies.effective_entries();
        entries.push(map_entry(
            SRA,
            self.sra.as_ref().map_or_else(off, SraConfig::effective_block),
        ));
        let proportional = self.proportional.as_ref();
        entries.push(map_entry(
            PROPORTIONAL,
            proportional.map_or_else(off, ProportionalReserve::effective_block),
        ));
        value_map(entries)
    }

    fn score_bounds(&self) -> Option<(f64, f64)> {
        let sra = self.active_sra().map_or(0.0, SraConfig::factor);
        Some((0.0, self.strategies.factor() + sra))
    }

    fn prepare_scorer<'a>(
        &'a self,
        PluginContext { cluster_state, .. }: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeScorer + 'a> {
        let mut warnings = Vec::new();
        let strategies = if self.strategies.is_active() {
            Some(self.strategies.mean(class, &mut warnings)?)
        } else {
            None
        };
        let sra = self
            .active_sra()
            .map(|sra| sra.kernel(class, cluster_state.resources()));
        Ok(Some(Box::new(StrategyScorer {
            strategies,
            sra,
            warnings,
        })))
    }

    fn prepare_filter<'a>(
        &'a self,
        PluginContext { cluster_state, .. }: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeFilter + 'a> {
        let filter = self
            .proportional
            .as_ref()
            .and_then(|proportional| proportional.filter(class, cluster_state.resources()));
        Ok(filter.map(|filter| Box::new(filter) as Box<dyn NodeFilter>))
    }
}

/// Both parts of the score for one task class.
struct StrategyScorer {
    strategies: Option<StrategyMean>,
    sra: Option<SraKernel>,
    warnings: Vec<Problem>,
}

impl NodeScorer for StrategyScorer {
    fn parts(&self) -> &[&'static str] {
        match (&self.strategies, &self.sra) {
            (Some(_), Some(_)) => &["rsf", "sra"],
            (Some(_), None) => &["rsf"],
            (None, Some(_)) => &["sra"],
            (None, None) => &[],
        }
    }

    fn outside_inputs(&self) -> Option<HookNumbers> {
        Some(HookNumbers::new())
    }

    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]) {
        let mut parts = parts.iter_mut();
        if let Some(mean) = &self.strategies
            && let Some(scores) = parts.next()
        {
            mean.score(chunk, scores);
        }
        if let Some(sra) = &self.sra
            && let Some(scores) = parts.next()
        {
            sra.score(chunk, scores);
        }
    }

    fn warnings(&self) -> Vec<Problem> {
        self.warnings.clone()
    }
}
