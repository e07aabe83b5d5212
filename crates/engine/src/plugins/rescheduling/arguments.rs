//! Arguments of the plugin: the interval of rounds, the period of measurements, and thresholds of load.

use super::super::effective_values::{map_entry, value_map};
use super::super::go_duration::parse_go_duration;
use super::NAME;
use crate::policy::{
    ArgumentMap, Compatibility, DiagnosticReport, ErrorCode, PluginArgument, PluginArguments, YamlValue,
};

/// Time between two rounds.
const INTERVAL: &str = "interval";
/// Period of the measurements that count.
const PERIOD: &str = "metricsPeriod";
/// Strategies, of which one exists.
const STRATEGIES: &str = "strategies";
/// All arguments.
const KEYS: [&str; 3] = [INTERVAL, PERIOD, STRATEGIES];
/// Name of the strategy that exists.
const LOW_NODE_UTILIZATION: &str = "lowNodeUtilization";
/// Parameters of the strategy: loads in percent below which a node takes tasks, and above which it gives them.
const THRESHOLDS: [&str; 2] = ["thresholds", "targetThresholds"];
/// Resources of thresholds.
const RESOURCES: [&str; 2] = ["cpu", "memory"];
/// Nanoseconds between two rounds, where nothing else can be read.
const USUAL_INTERVAL: i64 = 300_000_000_000;
/// Period that the reference reads where none is written. Its collector has no measurements of this period.
const UPSTREAM_PERIOD: &str = "5m";

/// Loads of CPUs and memory in percent.
pub(super) type LoadPercents = [f64; 2];

/// Thresholds of the strategy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LoadThresholds {
    /// Loads below which a node is a target.
    pub(super) low: LoadPercents,
    /// Loads above which tasks leave a node.
    pub(super) target: LoadPercents,
}

/// Thresholds where none are written.
const USUAL_THRESHOLDS: LoadThresholds = LoadThresholds {
    low: [100.0; 2],
    target: [100.0; 2],
};

/// Arguments after defaults.
#[derive(Clone, Debug)]
pub(super) struct ReschedulingArguments {
    /// Arguments as they are written.
    written: YamlValue,
    /// Nanoseconds that have to be over since the last round.
    pub(super) interval: i64,
    /// Period of the measurements that count; `None`: any.
    pub(super) period: Option<String>,
    pub(super) thresholds: LoadThresholds,
    /// Number of times that the strategy is applied in a round.
    pub(super) repeats: usize,
}

impl ReschedulingArguments {
    /// Reads the arguments. Where the reference ends its process, the document is rejected.
    pub(super) fn read(
        arguments: &PluginArguments,
        compatibility: Compatibility,
        report: &mut DiagnosticReport,
    ) -> Self {
        arguments.warn_unknown(report, NAME, &KEYS, |_| false);
        let interval = text(arguments, INTERVAL, report).map(|(text, argument)| {
            parse_go_duration(text).unwrap_or_else(|| {
                let message = format!("`{text}` is no duration such as \"1m30s\"; the default is 5m");
                report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
                USUAL_INTERVAL
            })
        });
        let period = text(arguments, PERIOD, report).map(|(text, _)| text.to_owned());
        let period = period.filter(|period| !period.is_empty());
        let usual = || compatibility.is_upstream().then(|| UPSTREAM_PERIOD.to_owned());
        let known = arguments.iter().filter(|(key, _)| KEYS.contains(key));
        let written = known.map(|(key, argument)| map_entry(key, argument.value().clone()));
        let mut own = Self {
            written: value_map(written),
            interval: interval.unwrap_or(USUAL_INTERVAL),
            period: period.or_else(usual),
            thresholds: USUAL_THRESHOLDS,
            repeats: 1,
        };
        if let Some(strategies) = arguments.get(STRATEGIES) {
            own.read_strategies(&strategies, report);
        }
        // Named twice, the reference names the same tasks twice.
        if compatibility == Compatibility::Corrected {
            own.repeats = own.repeats.min(1);
        }
        own
    }

    /// Reads the strategies; the thresholds of the last one apply.
    fn read_strategies(&mut self, strategies: &PluginArgument<'_>, report: &mut DiagnosticReport) {
        let items = strategies.items();
        if items.is_none() {
            let message = format!("`{STRATEGIES}` is no list; {LOW_NODE_UTILIZATION} without parameters applies");
            report.warning(ErrorCode::ArgumentIgnored, &strategies.at(), message);
        }
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            return;
        };
        self.repeats = 0;
        for item in items {
            let strategy = item.value().as_pairs().and_then(|_| item.decode_map(report));
            let name = strategy
                .as_ref()
                .and_then(|strategy| strategy.field("name")?.as_string());
            let params = strategy.as_ref().and_then(|strategy| strategy.field("params"));
            let params = params.filter(|params| !params.is_null());
            let has_names = |params: &PluginArgument<'_>| params.value().as_named_pairs().is_some();
            if name != Some(LOW_NODE_UTILIZATION) || !params.as_ref().is_none_or(has_names) {
                let message = format!(
                    "the only strategy is `{LOW_NODE_UTILIZATION}`, with a map `params`; this one has no effect"
                );
                report.warning(ErrorCode::ArgumentIgnored, &item.at(), message);
                continue;
            }
            self.repeats = self.repeats.saturating_add(1);
            self.thresholds = USUAL_THRESHOLDS;
            if let Some(params) = params.and_then(|params| params.decode_map(report)) {
                self.thresholds.read(&params, report);
            }
        }
    }

    /// Arguments as they are written.
    pub(super) fn effective(&self) -> YamlValue {
        self.written.clone()
    }
}

impl LoadThresholds {
    /// Reads the parameters. As in the reference, thresholds that are not a map end the reading.
    fn read(&mut self, params: &ArgumentMap<'_>, report: &mut DiagnosticReport) {
        params.warn_unknown(report, &THRESHOLDS);
        let params = params.entries(report);
        for (key, percents) in THRESHOLDS.into_iter().zip([&mut self.low, &mut self.target]) {
            let Some((_, written)) = params.iter().find(|(own, _)| *own == key) else {
                continue;
            };
            if written.value().as_pairs().is_none() {
                let message = format!("`{key}` is no map of percentages by resource; the defaults apply");
                report.warning(ErrorCode::ArgumentIgnored, &written.at(), message);
                return;
            }
            let entries = written.decode_map(report).map(|map| map.entries(report));
            for (resource, argument) in entries.unwrap_or_default() {
                let Some(percent) = argument.lenient_int() else {
                    let message = format!("`{resource}` is no integer; Volcano ends when it reads another value");
                    report.error(ErrorCode::ArgumentType, &argument.at(), message);
                    continue;
                };
                let known = RESOURCES.into_iter().zip(percents.iter_mut());
                if let Some((_, own)) = known.into_iter().find(|(name, _)| *name == resource) {
                    *own = percent as f64;
                } else {
                    let message = format!("no load of `{resource}` is measured; it has no effect");
                    report.warning(ErrorCode::ArgumentUnknownKey, &argument.at(), message);
                }
            }
        }
    }
}

/// Text of an argument. Another value is an error.
fn text<'a>(
    arguments: &'a PluginArguments,
    key: &str,
    report: &mut DiagnosticReport,
) -> Option<(&'a str, PluginArgument<'a>)> {
    let argument = arguments.get(key)?;
    let Some(text) = argument.as_string() else {
        let message = format!("`{key}` is no text; Volcano ends when it reads another value");
        report.error(ErrorCode::ArgumentType, &argument.at(), message);
        return None;
    };
    Some((text, argument))
}
