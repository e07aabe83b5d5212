//! Arguments of the plugin.

use super::NAME;
use crate::policy::{DiagnosticReport, ErrorCode, PluginArguments};

pub(super) const STRICT: &str = "strict";
pub(super) const PREFERRED_ORDER: &str = "enablePreferredOrder";

/// Arguments after defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeGroupArguments {
    /// True: a queue without an affinity uses no node, not even one without a group.
    pub(super) strict: bool,
    /// True: the score falls with the place of a group in the preferred list.
    pub(super) preferred_order: bool,
}

impl NodeGroupArguments {
    pub(super) fn read(arguments: &PluginArguments, report: &mut DiagnosticReport) -> Self {
        arguments.warn_unknown(report, NAME, &[STRICT, PREFERRED_ORDER], |_| false);
        let mut switch = |key: &str, default: bool| {
            let Some(argument) = arguments.get(key) else {
                return default;
            };
            argument.lenient_bool().unwrap_or_else(|| {
                let message = format!("`{key}` is no bool and has no effect; the default is {default}");
                report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
                default
            })
        };
        Self {
            strict: switch(STRICT, true),
            preferred_order: switch(PREFERRED_ORDER, false),
        }
    }
}
