//! Reading of this plugin's arguments, typed as upstream types them.

use std::collections::BTreeMap;

use crate::engine::policy::{ArgumentMap, Compatibility, DiagnosticReport, PluginArgument, YamlValue, code};

/// Where findings go, and what counts as one.
pub(super) struct ArgumentReader<'r> {
    pub(super) compatibility: Compatibility,
    pub(super) report: &'r mut DiagnosticReport,
}

impl ArgumentReader<'_> {
    /// Warns of something that does not mean what it seems to.
    pub(super) fn warn(&mut self, argument: &PluginArgument<'_>, message: impl Into<String>) {
        self.report.warning(code::ARGUMENT_IGNORED, &argument.at(), message);
    }

    /// An integer. A fraction is cut off, with a warning; null is 0.
    pub(super) fn int(&mut self, argument: &PluginArgument<'_>) -> i64 {
        let Some(int) = argument.decode_int(self.compatibility, self.report) else {
            return 0;
        };
        if let YamlValue::Float(float) = argument.value()
            && float.fract() != 0.0
        {
            self.warn(argument, format!("the fraction of {float} is cut off: {int} counts"));
        }
        int
    }

    /// A number.
    pub(super) fn float(&mut self, argument: &PluginArgument<'_>) -> f64 {
        argument.decode_float(self.report).unwrap_or_default()
    }

    /// A field that is a bool; missing or null: false.
    pub(super) fn bool_field(&mut self, map: &ArgumentMap<'_>, name: &str) -> bool {
        let field = map.field(name);
        field
            .and_then(|field| field.decode_bool(self.report))
            .unwrap_or_default()
    }

    /// A field that is a string; missing or null: empty.
    pub(super) fn string_field<'a>(&mut self, map: &ArgumentMap<'a>, name: &str) -> &'a str {
        let field = map.field(name);
        field
            .and_then(|field| field.decode_string(self.report))
            .unwrap_or_default()
    }

    /// A field that is a map from names to integers.
    pub(super) fn int_map_field(&mut self, map: &ArgumentMap<'_>, name: &str) -> BTreeMap<String, i64> {
        let entries = self.map_field(map, name).into_iter();
        entries
            .map(|(name, value)| (name.to_owned(), self.int(&value)))
            .collect()
    }

    /// A field that is a map from names to numbers.
    pub(super) fn float_map_field(&mut self, map: &ArgumentMap<'_>, name: &str) -> BTreeMap<String, f64> {
        let entries = self.map_field(map, name).into_iter();
        entries
            .map(|(name, value)| (name.to_owned(), self.float(&value)))
            .collect()
    }

    /// The entries of a field that is a map; missing or null: none.
    pub(super) fn map_field<'a>(&mut self, map: &ArgumentMap<'a>, name: &str) -> Vec<(&'a str, PluginArgument<'a>)> {
        let inner = map.field(name).and_then(|field| field.decode_map(self.report));
        inner.map(|inner| inner.entries(self.report)).unwrap_or_default()
    }
}
