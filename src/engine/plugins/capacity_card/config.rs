//! The plugin's arguments.

use crate::engine::policy::{Arguments, Compatibility, Report, Value, code};

/// `true`: cpu and memory of tasks with cards are not counted.
pub(super) const UNLIMITED: &str = "cardUnlimitedCpuMemory";
/// `true`: quotas of queues hold for all queues below them, too.
const HIERARCHY: &str = "cardHierarchy";
/// `true`: tasks of one job may use different cards of a choice.
const MIXED: &str = "mixedCards";
/// `true`: nodes are scored by the cards that the queue may still give.
const BY_QUOTA: &str = "nodeOrderByQuota";
/// `true`: the plugin says who may have to go for tasks that need cards.
const VICTIMS: &str = "cardVictims";
/// Weight of the node order score.
pub(super) const WEIGHT: &str = "nodeOrderWeight";

/// The arguments in force.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each switch is on or off, whatever the others are"
)]
pub struct Config {
    /// Cpu and memory of tasks with cards are not counted.
    pub unlimited: bool,
    /// Weight of the node order score, above 0.
    pub weight: f64,
    /// Quotas of queues hold for all queues below them, too.
    pub hierarchy: bool,
    /// Tasks of one job may use different cards of a choice.
    pub mixed: bool,
    /// Nodes are scored by the cards that the queue may still give.
    pub order_by_quota: bool,
    /// It says who may have to go for tasks that need cards.
    pub victims: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            unlimited: false,
            weight: 1.0,
            hierarchy: false,
            mixed: false,
            order_by_quota: false,
            victims: false,
        }
    }
}

impl Config {
    /// Reads the arguments. What cannot be used is warned of, and its default counts, as upstream has it.
    pub fn read(arguments: &Arguments, compatibility: Compatibility, report: &mut Report) -> Self {
        let mut config = Self {
            unlimited: switch(arguments, UNLIMITED, report),
            ..Self::default()
        };
        let beyond = [
            (HIERARCHY, &mut config.hierarchy),
            (MIXED, &mut config.mixed),
            (BY_QUOTA, &mut config.order_by_quota),
            (VICTIMS, &mut config.victims),
        ];
        for (name, on) in beyond {
            *on = switch(arguments, name, report);
            if let (true, Compatibility::Upstream, Some(argument)) = (*on, compatibility, arguments.get(name)) {
                let message = "the reference has no such switch; it has no effect under `compatibility: upstream`";
                report.warning(code::ARGUMENT_IGNORED, &argument.at(), message);
                *on = false;
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
        let known = [UNLIMITED, WEIGHT, HIERARCHY, MIXED, BY_QUOTA, VICTIMS];
        arguments.warn_unknown(report, super::PLUGIN, |key| known.contains(&key));
        config
    }

    /// The arguments in force, in the spelling of the policy document.
    pub fn entries(&self) -> Vec<(String, Value)> {
        let mut entries = vec![
            (UNLIMITED.to_owned(), Value::Bool(self.unlimited)),
            (WEIGHT.to_owned(), Value::Float(self.weight)),
        ];
        // What Volcano does not know is said only where it is on.
        let beyond = [
            (HIERARCHY, self.hierarchy),
            (MIXED, self.mixed),
            (BY_QUOTA, self.order_by_quota),
            (VICTIMS, self.victims),
        ];
        let on = beyond.into_iter().filter(|(_, on)| *on);
        entries.extend(on.map(|(name, on)| (name.to_owned(), Value::Bool(on))));
        entries
    }
}

/// A switch that is off unless it is `true`.
fn switch(arguments: &Arguments, name: &str, report: &mut Report) -> bool {
    let Some(argument) = arguments.get(name) else {
        return false;
    };
    if let Value::Bool(on) = argument.value() {
        return *on;
    }
    let found = argument.value().kind();
    let message = format!("expected a bool, found {found}; the default false counts");
    report.warning(code::ARGUMENT_IGNORED, &argument.at(), message);
    false
}
