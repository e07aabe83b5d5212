//! Arguments of the plugin.

use super::PLUGIN;
use crate::policy::{Compatibility, DiagnosticReport, ErrorCode, PluginArguments};

/// Argument: number of levels above a queue whose deserved amounts count in reclaim and preemption.
pub(super) const RECLAIM_LEVEL: &str = "ancestorReclaimLevel";
/// Switches of device classes, which no record carries.
const DEVICE_SWITCHES: [&str; 2] = [
    "capacity.DynamicResourceAllocationEnable",
    "capacity.DRAConsumableCapacityEnable",
];

/// Reads the arguments, and returns the reclaim level; anything but an integer of at least 0 has no effect, with a warning.
pub(super) fn read_reclaim_level(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> usize {
    let known = [RECLAIM_LEVEL, DEVICE_SWITCHES[0], DEVICE_SWITCHES[1]];
    arguments.warn_unknown(report, PLUGIN, &known, |_| false);
    for key in DEVICE_SWITCHES {
        if let Some(argument) = arguments
            .get(key)
            .filter(|argument| argument.lenient_bool() == Some(true))
        {
            let message = "device classes of resource claims are not counted";
            report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
        }
    }
    let Some(argument) = arguments.get(RECLAIM_LEVEL).filter(|argument| !argument.is_null()) else {
        return 0;
    };
    if !compatibility.release().rules().reads_ancestor_reclaim_level {
        let message = format!("{} does not read it", compatibility.name());
        report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
        return 0;
    }
    let level = argument.lenient_int().and_then(|level| usize::try_from(level).ok());
    level.unwrap_or_else(|| {
        let message = "expected an integer of at least 0; the default 0 counts";
        report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
        0
    })
}
