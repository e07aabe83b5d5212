//! Arguments of the plugin.

use super::NAME;
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments};

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
    pub(super) fn read(
        arguments: &PluginArguments,
        compatibility: Compatibility,
        report: &mut DiagnosticReport,
    ) -> Self {
        arguments.warn_unknown(report, NAME, &[STRICT, PREFERRED_ORDER], |_| false);
        let mut switch = |key: &str, default: bool| arguments.switch(key, default, compatibility, report);
        let preferred_order = switch(PREFERRED_ORDER, false);
        Self {
            strict: switch(STRICT, true),
            preferred_order: preferred_order && compatibility.release().rules().reads_preferred_order,
        }
    }
}
