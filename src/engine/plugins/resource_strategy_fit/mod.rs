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

use self::arguments::Reading;
use self::legacy::{Legacy, Translated};
use self::proportional::Proportional;
use self::sra::{Sra, SraKernel};
use self::strategies::Strategies;
use super::allocation::Mean;
use super::effective::{entry, map};
use crate::engine::model::{Chunk, Problem, TaskClass};
use crate::engine::plugin::{Facts, Filterer, Hooks, Plugin, PluginDef, Prepared, Scorer, Scores};
use crate::engine::policy::{ArgumentMap, Arguments, Compatibility, Report, Value};

const NAME: &str = "resource-strategy-fit";

/// Its row in the registry.
pub(super) const DEF: PluginDef = PluginDef {
    name: NAME,
    families: &["filter", "score"],
    task_annotations: &[annotations::SCORING_TYPE, annotations::WEIGHT],
    job_annotations: &[],
    queue_annotations: &[],
    node_labels: &[],
    compile,
};

const SRA: &str = "sra";
const PROPORTIONAL: &str = "proportional";

/// The plugin, compiled.
#[derive(Debug)]
struct ResourceStrategyFit {
    strategies: Strategies,
    sra: Option<Sra>,
    proportional: Option<Proportional>,
}

fn compile(arguments: &Arguments, compatibility: Compatibility, report: &mut Report) -> Arc<dyn Plugin> {
    let corrected = compatibility == Compatibility::Corrected;
    let reading = &mut Reading { compatibility, report };
    let strategies = Strategies::read(arguments, reading);
    let sra_block = block(arguments, SRA, reading);
    let proportional_block = block(arguments, PROPORTIONAL, reading);
    let nested = sra_block.as_ref().filter(|_| corrected);
    let nested = nested.and_then(|block| Legacy::nested(block, reading));
    let more: &[&str] = if nested.is_some() { &legacy::NESTED_FIELDS } else { &[] };
    let mut sra = sra_block.as_ref().and_then(|block| Sra::read(block, more, reading));
    let mut proportional = proportional_block
        .as_ref()
        .and_then(|block| Proportional::read(block, reading));
    let flat = Legacy::flat(arguments).filter(|_| corrected);
    for old in [nested, flat].into_iter().flatten() {
        let Translated {
            sra: old_sra,
            proportional: old_proportional,
        } = old.translate(reading);
        // Only what is said nowhere in today's spelling.
        sra = sra.or(old_sra);
        proportional = proportional.or(old_proportional);
    }
    let known = |key: &str| {
        [
            strategies::WEIGHT,
            strategies::RESOURCES,
            strategies::NO_RESOURCES,
            SRA,
            PROPORTIONAL,
        ]
        .contains(&key)
            || (corrected && legacy::is_flat_key(key))
    };
    arguments.warn_unknown(reading.report, NAME, known);
    Arc::new(ResourceStrategyFit {
        strategies,
        sra,
        proportional,
    })
}

fn block<'a>(arguments: &'a Arguments, key: &str, reading: &mut Reading<'_>) -> Option<ArgumentMap<'a>> {
    let argument = arguments.get(key).filter(|argument| !argument.is_null())?;
    argument.decode_map(reading.report)
}

impl ResourceStrategyFit {
    fn active_sra(&self) -> Option<&Sra> {
        self.sra.as_ref().filter(|sra| sra.is_active())
    }
}

impl Plugin for ResourceStrategyFit {
    fn hooks(&self) -> Hooks {
        Hooks {
            filter: self.proportional.is_some(),
            score: self.strategies.is_active() || self.active_sra().is_some(),
            ..Hooks::default()
        }
    }

    fn effective_arguments(&self) -> Value {
        let off = || map([entry("enable", Value::Bool(false))]);
        let mut entries = self.strategies.effective();
        entries.push(entry(SRA, self.sra.as_ref().map_or_else(off, Sra::effective)));
        let proportional = self.proportional.as_ref();
        entries.push(entry(
            PROPORTIONAL,
            proportional.map_or_else(off, Proportional::effective),
        ));
        map(entries)
    }

    fn scorer<'a>(&'a self, class: &'a TaskClass, Facts { view, .. }: Facts<'a>) -> Prepared<dyn Scorer + 'a> {
        let mut warnings = Vec::new();
        let strategies = if self.strategies.is_active() {
            Some(self.strategies.mean(class, &mut warnings)?)
        } else {
            None
        };
        let sra = self.active_sra().map(|sra| sra.kernel(class, view.resources()));
        Ok(Some(Box::new(StrategyScorer {
            strategies,
            sra,
            warnings,
        })))
    }

    fn filterer<'a>(&'a self, class: &'a TaskClass, Facts { view, .. }: Facts<'a>) -> Prepared<dyn Filterer + 'a> {
        let filter = self
            .proportional
            .as_ref()
            .and_then(|proportional| proportional.filter(class, view.resources()));
        Ok(filter.map(|filter| Box::new(filter) as Box<dyn Filterer>))
    }
}

/// Both parts of the score for one task class.
struct StrategyScorer {
    strategies: Option<Mean>,
    sra: Option<SraKernel>,
    warnings: Vec<Problem>,
}

impl Scorer for StrategyScorer {
    fn parts(&self) -> &[&'static str] {
        match (&self.strategies, &self.sra) {
            (Some(_), Some(_)) => &["rsf", "sra"],
            (Some(_), None) => &["rsf"],
            (None, Some(_)) => &["sra"],
            (None, None) => &[],
        }
    }

    fn score(&self, chunk: &Chunk, parts: &mut [Scores]) {
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
