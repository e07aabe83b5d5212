//! The plugin's arguments.

use super::service_types::{ALLOW_BY_OWNER, BY_OWNER};
use crate::policy::{Compatibility, DiagnosticReport, ErrorCode, PluginArguments, Severity, YamlValue};

/// `true`: cpu and memory of tasks with cards are not counted.
pub(super) const UNLIMITED_CPU_MEMORY: &str = "cardUnlimitedCpuMemory";
/// `true`: quotas of queues hold for all queues below them, too.
const HIERARCHY: &str = "cardHierarchy";
/// `true`: tasks of one job may use different cards of a choice.
const MIXED_CARDS: &str = "mixedCards";
/// `true`: nodes are scored by the cards that the queue may still give.
const ORDER_BY_QUOTA: &str = "nodeOrderByQuota";
/// `true`: the plugin says who may have to go for tasks that need cards.
const VICTIMS: &str = "cardVictims";
/// How many times its capability a queue may admit.
const OVER_COMMIT: &str = "overCommitFactor";
/// Largest [`OVER_COMMIT`].
const MAX_OVER_COMMIT: f64 = 1000.0;
/// Argument of corrected policies only.
pub(super) const NOT_UPSTREAM: &str =
    "the reference has no such switch; it has no effect under `compatibility: upstream`";
/// Weight of the node order score.
pub(super) const WEIGHT: &str = "nodeOrderWeight";

/// The arguments in force.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each switch is on or off, whatever the others are"
)]
pub struct CapacityConfig {
    /// Cpu and memory of tasks with cards are not counted.
    pub unlimited_cpu_memory: bool,
    /// Weight of the node order score, above 0.
    pub node_order_weight: f64,
    /// Quotas of queues hold for all queues below them, too.
    pub hierarchy: bool,
    /// Tasks of one job may use different cards of a choice.
    pub mixed_cards: bool,
    /// Nodes are scored by the cards that the queue may still give.
    pub order_by_quota: bool,
    /// True if the plugin says who may have to go for tasks that need cards.
    pub victims: bool,
    /// How many times what it may hold a queue may admit, in thousandths, at least 1000.
    pub over_commit_milli: i128,
}

impl Default for CapacityConfig {
    fn default() -> Self {
        Self {
            unlimited_cpu_memory: false,
            node_order_weight: 1.0,
            hierarchy: false,
            mixed_cards: false,
            order_by_quota: false,
            victims: false,
            over_commit_milli: 1000,
        }
    }
}

impl CapacityConfig {
    /// Reads the arguments. What cannot be used is warned of, and its default counts, as upstream has it.
    pub fn read(arguments: &PluginArguments, compatibility: Compatibility, report: &mut DiagnosticReport) -> Self {
        let mut config = Self {
            unlimited_cpu_memory: read_switch(arguments, UNLIMITED_CPU_MEMORY, report),
            ..Self::default()
        };
        let beyond = [
            (HIERARCHY, &mut config.hierarchy),
            (MIXED_CARDS, &mut config.mixed_cards),
            (ORDER_BY_QUOTA, &mut config.order_by_quota),
            (VICTIMS, &mut config.victims),
        ];
        for (name, on) in beyond {
            *on = read_switch(arguments, name, report);
            if let (true, Compatibility::Upstream(_), Some(argument)) = (*on, compatibility, arguments.get(name)) {
                report.warning(ErrorCode::ArgumentIgnored, &argument.at(), NOT_UPSTREAM);
                *on = false;
            }
        }
        if let Some(argument) = arguments.get(WEIGHT) {
            match argument.lenient_float() {
                Some(weight) if weight > 0.0 && weight.is_finite() => config.node_order_weight = weight,
                _ => {
                    let message = "expected a number above 0; the default 1 counts";
                    report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
                }
            }
        }
        config.over_commit_milli = read_over_commit(arguments, compatibility, report);
        let known = [
            UNLIMITED_CPU_MEMORY,
            WEIGHT,
            HIERARCHY,
            MIXED_CARDS,
            ORDER_BY_QUOTA,
            VICTIMS,
            OVER_COMMIT,
            BY_OWNER,
            ALLOW_BY_OWNER,
        ];
        arguments.warn_unknown(report, super::PLUGIN, &known, |_| false);
        config
    }

    /// The arguments in force, in the spelling of the policy document.
    pub fn entries(&self) -> Vec<(String, YamlValue)> {
        let mut entries = vec![
            (
                UNLIMITED_CPU_MEMORY.to_owned(),
                YamlValue::Bool(self.unlimited_cpu_memory),
            ),
            (WEIGHT.to_owned(), YamlValue::Float(self.node_order_weight)),
        ];
        // What Volcano does not know is said only where it is on.
        let beyond = [
            (HIERARCHY, self.hierarchy),
            (MIXED_CARDS, self.mixed_cards),
            (ORDER_BY_QUOTA, self.order_by_quota),
            (VICTIMS, self.victims),
        ];
        let on = beyond.into_iter().filter(|(_, on)| *on);
        entries.extend(on.map(|(name, on)| (name.to_owned(), YamlValue::Bool(on))));
        if self.over_commit_milli != Self::default().over_commit_milli {
            let factor = self.over_commit_milli as f64 / 1000.0;
            entries.push((OVER_COMMIT.to_owned(), YamlValue::Float(factor)));
        }
        entries
    }
}

/// Factor of admission, in thousandths.
fn read_over_commit(arguments: &PluginArguments, compatibility: Compatibility, report: &mut DiagnosticReport) -> i128 {
    let default = CapacityConfig::default().over_commit_milli;
    let Some(argument) = arguments.get(OVER_COMMIT).filter(|argument| !argument.is_null()) else {
        return default;
    };
    let given = argument.lenient_float();
    let usable = given.filter(|factor| (1.0..=MAX_OVER_COMMIT).contains(factor));
    #[expect(clippy::cast_possible_truncation, reason = "a factor within its bounds")]
    let milli = usable.map(|factor| (factor * 1000.0).round() as i128);
    let message = match (milli, compatibility) {
        (_, Compatibility::Upstream(_)) => NOT_UPSTREAM.to_owned(),
        (Some(milli), Compatibility::Corrected) => return milli,
        (None, Compatibility::Corrected) => {
            let found = given.map_or_else(|| argument.value().kind().to_string(), |factor| factor.to_string());
            format!("expected a number from 1 to {MAX_OVER_COMMIT}, found {found}; the default 1 counts")
        }
    };
    report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
    default
}

/// A switch that is off unless it is `true`.
pub(super) fn read_switch(arguments: &PluginArguments, name: &str, report: &mut DiagnosticReport) -> bool {
    let Some(argument) = arguments.get(name) else {
        return false;
    };
    if let YamlValue::Bool(on) = argument.value() {
        return *on;
    }
    let found = argument.value().kind();
    let hint = argument.as_string().map_or_else(String::new, |text| {
        report.suggestion(Severity::Warning, text, &["true", "false"])
    });
    let message = format!("expected a bool, found {found}; the default false counts{hint}");
    report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
    false
}
