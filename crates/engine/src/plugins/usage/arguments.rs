//! Arguments of the plugin. A value that cannot be used has no effect, as in the reference, and is warned of.

use super::super::effective_values::{map_entry, value_map};
use super::super::go_duration::parse_go_duration;
use super::NAME;
use crate::model::quantity::Quantity;
use crate::policy::{DiagnosticReport, ErrorCode, PluginArgument, PluginArguments, Severity, YamlNode, YamlValue};

/// Factor of the score.
const USAGE_WEIGHT: &str = "usage.weight";
/// Weight of the load of CPUs in the score.
const CPU_WEIGHT: &str = "cpu.weight";
/// Weight of the load of memory in the score.
const MEMORY_WEIGHT: &str = "memory.weight";
/// Largest loads of nodes that pass the filter, in percent: `cpu` and `mem`.
const THRESHOLDS: &str = "thresholds";
/// Estimate of the load of a task that no measurement includes yet.
const ESTIMATOR: &str = "estimator";
/// Keys below `thresholds`: loads of CPUs and of memory.
const THRESHOLD_KEYS: [&str; 2] = ["cpu", "mem"];
/// Keys below `estimator`: ratios, the risk of full nodes, and amounts of tasks without requests.
const ESTIMATOR_KEYS: [&str; 6] = [
    "request_ratio",
    "burst_ratio",
    "risk_threshold",
    "risk_factor",
    "be_cpu",
    "be_mem",
];
/// Bytes of one unit of `be_mem` that is written as a number.
const MIB: f64 = 1024.0 * 1024.0;

/// Arguments after defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct UsageArguments {
    pub(super) usage_weight: i64,
    pub(super) cpu_weight: i64,
    pub(super) memory_weight: i64,
    /// Largest loads of CPUs and memory that pass, in percent.
    pub(super) thresholds: [f64; 2],
    /// Part of its request that a task loads.
    pub(super) request_ratio: f64,
    /// Part of what its limit has above its request that a task loads.
    pub(super) burst_ratio: f64,
    /// Load of a node, from 0 to 1, from which estimates are multiplied by `risk_factor`.
    pub(super) risk_threshold: f64,
    pub(super) risk_factor: f64,
    /// Thousandths of a core that a task without requests loads.
    pub(super) unrequested_cpu: f64,
    /// Bytes that a task without requests loads.
    pub(super) unrequested_memory: f64,
    /// Nanoseconds after its start in which no measurement includes a task.
    pub(super) interval: i64,
}

impl Default for UsageArguments {
    fn default() -> Self {
        Self {
            usage_weight: 5,
            cpu_weight: 1,
            memory_weight: 1,
            thresholds: [80.0, 80.0],
            request_ratio: 0.7,
            burst_ratio: 0.0,
            risk_threshold: 0.6,
            risk_factor: 1.2,
            unrequested_cpu: 250.0,
            unrequested_memory: 200.0 * MIB,
            interval: 30_000_000_000,
        }
    }
}

/// Values below one argument, with the report that takes what is wrong with them.
struct ArgumentSection<'a, 'r> {
    pairs: &'a [(YamlNode, YamlNode)],
    argument: Option<PluginArgument<'a>>,
    report: &'r mut DiagnosticReport,
}

impl<'a, 'r> ArgumentSection<'a, 'r> {
    /// Section of a name. A value that is not a map of names has no effect.
    fn of(arguments: &'a PluginArguments, name: &str, keys: &[&str], report: &'r mut DiagnosticReport) -> Self {
        let argument = arguments.get(name);
        let pairs = argument.as_ref().map(|argument| argument.value().as_named_pairs());
        if let (Some(argument), Some(None)) = (&argument, pairs) {
            let message = format!("`{name}` is not a map of names to values; the defaults apply");
            report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
        }
        let pairs = pairs.flatten().unwrap_or_default();
        for key in pairs.iter().filter_map(|(key, _)| key.value.as_text()) {
            if let Some(argument) = argument.as_ref().filter(|_| !keys.contains(&key)) {
                let hint = report.suggestion(Severity::Warning, key, keys);
                let message = format!("`{name}` has no key `{key}`; it has no effect{hint}");
                report.warning(ErrorCode::ArgumentUnknownKey, &argument.at(), message);
            }
        }
        Self {
            pairs,
            argument,
            report,
        }
    }

    /// Value of a key, or the default where it cannot be used.
    fn read(&mut self, key: &str, default: f64, expected: &str, read: impl Fn(&YamlValue) -> Option<f64>) -> f64 {
        let written = self.pairs.iter().find(|(own, _)| own.value.as_text() == Some(key));
        let Some((_, node)) = written else { return default };
        read(&node.value).unwrap_or_else(|| {
            if let Some(argument) = &self.argument {
                let message = format!("`{key}`: expected {expected}; the default applies");
                self.report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
            }
            default
        })
    }

    fn threshold(&mut self, key: &str, default: f64) -> f64 {
        self.read(key, default, "an integer from 0 to 100", |value| match value {
            YamlValue::Int(percent) => Some(*percent as f64).filter(|percent| (0.0..=100.0).contains(percent)),
            YamlValue::Null
            | YamlValue::Bool(_)
            | YamlValue::UInt(_)
            | YamlValue::Float(_)
            | YamlValue::String(_)
            | YamlValue::List(_)
            | YamlValue::Map(_) => None,
        })
    }

    fn ratio(&mut self, key: &str, default: f64) -> f64 {
        self.read(key, default, "a number from 0 to 1", |value| {
            number(value).filter(|ratio| (0.0..=1.0).contains(ratio))
        })
    }

    /// Amount of a task without requests: a number of `unit`s, or a quantity.
    fn unrequested(&mut self, key: &str, default: f64, unit: f64, of: fn(&Quantity) -> i64) -> f64 {
        self.read(key, default, "an amount of 0 or more", |value| match value {
            YamlValue::Int(number) => Some(*number as f64 * unit).filter(|amount| *amount >= 0.0),
            YamlValue::String(text) => {
                let quantity = Quantity::parse(text).ok().filter(|quantity| !quantity.is_negative())?;
                Some(of(&quantity) as f64)
            }
            YamlValue::Null
            | YamlValue::Bool(_)
            | YamlValue::UInt(_)
            | YamlValue::Float(_)
            | YamlValue::List(_)
            | YamlValue::Map(_) => None,
        })
    }
}

fn number(value: &YamlValue) -> Option<f64> {
    match value {
        YamlValue::Int(number) => Some(*number as f64),
        YamlValue::Float(number) => Some(*number),
        YamlValue::Null
        | YamlValue::Bool(_)
        | YamlValue::UInt(_)
        | YamlValue::String(_)
        | YamlValue::List(_)
        | YamlValue::Map(_) => None,
    }
}

impl UsageArguments {
    /// Reads the arguments, and `interval` of the document's section `metrics`.
    pub(super) fn read(arguments: &PluginArguments, report: &mut DiagnosticReport) -> Self {
        let known = [USAGE_WEIGHT, CPU_WEIGHT, MEMORY_WEIGHT, THRESHOLDS, ESTIMATOR];
        arguments.warn_unknown(report, NAME, &known, |_| false);
        let mut own = Self::default();
        own.usage_weight = weight(arguments, USAGE_WEIGHT, own.usage_weight, report);
        own.cpu_weight = weight(arguments, CPU_WEIGHT, own.cpu_weight, report);
        own.memory_weight = weight(arguments, MEMORY_WEIGHT, own.memory_weight, report);
        let mut section = ArgumentSection::of(arguments, THRESHOLDS, &THRESHOLD_KEYS, report);
        let [cpu, memory] = own.thresholds;
        own.thresholds = [section.threshold("cpu", cpu), section.threshold("mem", memory)];
        let mut section = ArgumentSection::of(arguments, ESTIMATOR, &ESTIMATOR_KEYS, report);
        own.request_ratio = section.ratio("request_ratio", own.request_ratio);
        own.burst_ratio = section.ratio("burst_ratio", own.burst_ratio);
        own.risk_threshold = section.ratio("risk_threshold", own.risk_threshold);
        own.risk_factor = section.read("risk_factor", own.risk_factor, "a number from 1", |value| {
            number(value).filter(|factor| *factor >= 1.0)
        });
        let milli = |quantity: &Quantity| quantity.milli().unwrap_or(i64::MAX);
        own.unrequested_cpu = section.unrequested("be_cpu", own.unrequested_cpu, 1.0, milli);
        let whole = |quantity: &Quantity| quantity.value().unwrap_or(i64::MAX);
        own.unrequested_memory = section.unrequested("be_mem", own.unrequested_memory, MIB, whole);
        let interval = arguments.metrics_setting("interval").and_then(parse_go_duration);
        own.interval = interval.filter(|nanos| *nanos > 0).unwrap_or(own.interval);
        own
    }

    /// Arguments in the spelling of the document.
    pub(super) fn effective(&self) -> YamlValue {
        let float = |key: &str, value: f64| map_entry(key, YamlValue::Float(value));
        let int = |key: &str, value: i64| map_entry(key, YamlValue::Int(value));
        // Amounts are of whole units.
        #[expect(clippy::cast_possible_truncation, reason = "it was read from a 64-bit number")]
        let text =
            |key: &str, amount: f64, unit: &str| map_entry(key, YamlValue::String(format!("{}{unit}", amount as i64)));
        #[expect(clippy::cast_possible_truncation, reason = "from 0 to 100")]
        let thresholds = THRESHOLD_KEYS
            .into_iter()
            .zip(self.thresholds)
            .map(|(key, own)| int(key, own as i64));
        value_map([
            int(USAGE_WEIGHT, self.usage_weight),
            int(CPU_WEIGHT, self.cpu_weight),
            int(MEMORY_WEIGHT, self.memory_weight),
            map_entry(THRESHOLDS, value_map(thresholds)),
            map_entry(
                ESTIMATOR,
                value_map([
                    float("request_ratio", self.request_ratio),
                    float("burst_ratio", self.burst_ratio),
                    float("risk_threshold", self.risk_threshold),
                    float("risk_factor", self.risk_factor),
                    text("be_cpu", self.unrequested_cpu, "m"),
                    text("be_mem", self.unrequested_memory, ""),
                ]),
            ),
        ])
    }
}

fn weight(arguments: &PluginArguments, key: &str, default: i64, report: &mut DiagnosticReport) -> i64 {
    let Some(argument) = arguments.get(key) else {
        return default;
    };
    argument.lenient_int().filter(|weight| *weight >= 0).unwrap_or_else(|| {
        let message = format!("`{key}`: expected an integer of 0 or more; the default {default} applies");
        report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
        default
    })
}
