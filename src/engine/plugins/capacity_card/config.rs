//! The plugin's arguments.

use crate::engine::policy::{Arguments, Report, Value, code};

/// `true`: cpu and memory of tasks with cards are not counted.
pub(super) const UNLIMITED: &str = "cardUnlimitedCpuMemory";
/// Weight of the node order score.
pub(super) const WEIGHT: &str = "nodeOrderWeight";

/// The arguments in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Cpu and memory of tasks with cards are not counted.
    pub unlimited: bool,
    /// Weight of the node order score, above 0.
    pub weight: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            unlimited: false,
            weight: 1.0,
        }
    }
}

impl Config {
    /// Reads the arguments. What cannot be used is warned of, and its default counts, as upstream has it.
    pub fn read(arguments: &Arguments, report: &mut Report) -> Self {
        let mut config = Self::default();
        if let Some(argument) = arguments.get(UNLIMITED) {
            if let Value::Bool(unlimited) = argument.value() {
                config.unlimited = *unlimited;
            } else {
                let found = argument.value().kind();
                let message = format!("expected a bool, found {found}; the default false counts");
                report.warning(code::ARGUMENT_IGNORED, &argument.at(), message);
            }
        }
        if let Some(argument) = arguments.get(WEIGHT) {
            match argument.lenient_float() {
                Some(weight) if weight > 0.0 && weight.is_finite() => config.weight = weight,
                _ => {
                    let message = "expected a number above 0; the default 1 counts";
                    report.warning(code::ARGUMENT_IGNORED, &argument.at(), message);
                }
            }
        }
        arguments.warn_unknown(report, super::PLUGIN, |key| [UNLIMITED, WEIGHT].contains(&key));
        config
    }

    /// The arguments in force, in the spelling of the policy document.
    pub fn entries(&self) -> [(String, Value); 2] {
        [
            (UNLIMITED.to_owned(), Value::Bool(self.unlimited)),
            (WEIGHT.to_owned(), Value::Float(self.weight)),
        ]
    }
}
