//! Arguments of the plugin: the windows of zones.

use std::collections::BTreeMap;

use super::super::effective_values::{map_entry, value_map};
use super::super::go_duration::parse_go_duration;
use super::NAME;
use super::time_window::TimeWindow;
use crate::policy::{Compatibility, DiagnosticReport, ErrorCode, PluginArguments, YamlValue};

/// Part of the key of a zone's window; the rest of the key is the name of the zone.
const ZONE_KEY: &str = "tdm.revocable-zone.";
/// Time between two rounds of evictions, which only the action `shuffle` reads.
const PERIOD: &str = "tdm.evict.period";
/// Nanoseconds of the default.
const USUAL_PERIOD: i64 = 60_000_000_000;

/// Daily window in which nodes of a zone are open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ZoneWindow {
    /// Text as it is written.
    pub(super) written: String,
    /// `None`: the text cannot be read, and the zone is never open.
    pub(super) window: Option<TimeWindow>,
}

/// Arguments after defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TdmArguments {
    /// Windows by the name of the zone.
    pub(super) zones: BTreeMap<String, ZoneWindow>,
    /// Period as it is written.
    period: Option<String>,
}

impl TdmArguments {
    /// Reads the arguments. Where the reference ends its process, the document is rejected; under `corrected` also for a
    /// window that cannot be read.
    pub(super) fn read(
        arguments: &PluginArguments,
        compatibility: Compatibility,
        report: &mut DiagnosticReport,
    ) -> Self {
        arguments.warn_unknown(report, NAME, &[PERIOD], |key| key.contains(ZONE_KEY));
        let mut own = Self::default();
        for (key, argument) in arguments.iter() {
            if key != PERIOD && !key.contains(ZONE_KEY) {
                continue;
            }
            let Some(text) = argument.as_string() else {
                let message = format!("`{key}` is no text; Volcano ends when it reads another value");
                report.error(ErrorCode::ArgumentType, &argument.at(), message);
                continue;
            };
            if key == PERIOD {
                own.period = Some(text.to_owned());
                if parse_go_duration(text).is_none() {
                    let message = format!("`{text}` is no duration such as \"1m30s\"; the default is 1m");
                    report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
                }
                continue;
            }
            let window = TimeWindow::parse(text);
            if window.is_none() {
                let message = format!("`{text}` is no window such as \"22:00-06:00\"; the zone is never open");
                if compatibility == Compatibility::Corrected {
                    report.error(ErrorCode::ArgumentInvalid, &argument.at(), message);
                } else {
                    report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
                }
            }
            let written = text.to_owned();
            own.zones
                .insert(key.replacen(ZONE_KEY, "", 1), ZoneWindow { written, window });
        }
        own
    }

    /// Nanoseconds between two rounds of evictions.
    pub(super) fn interval(&self) -> i64 {
        let written = self.period.as_deref().and_then(parse_go_duration);
        written.unwrap_or(USUAL_PERIOD)
    }

    /// Arguments in the spelling of the document.
    pub(super) fn effective(&self) -> YamlValue {
        let zones = self.zones.iter();
        let zones =
            zones.map(|(zone, own)| map_entry(&format!("{ZONE_KEY}{zone}"), YamlValue::String(own.written.clone())));
        let period = self
            .period
            .iter()
            .map(|text| map_entry(PERIOD, YamlValue::String(text.clone())));
        value_map(zones.chain(period))
    }
}
