//! Reader of this plugin's arguments, with upstream's types.

use std::collections::BTreeMap;

use crate::policy::{ArgumentMap, Compatibility, DiagnosticReport, ErrorCode, PluginArgument, YamlValue};

/// Reader that reports diagnostics.
pub(super) struct ArgumentReader<'r> {
    pub(super) compatibility: Compatibility,
    pub(super) report: &'r mut DiagnosticReport,
}

impl ArgumentReader<'_> {
    /// Warns of a value whose meaning its author may not expect.
    pub(super) fn warn(&mut self, argument: &PluginArgument<'_>, message: impl Into<String>) {
        self.report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
    }

    /// Integer. A fraction is cut, with a warning; null is 0.
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

    /// Number.
    pub(super) fn float(&mut self, argument: &PluginArgument<'_>) -> f64 {
        argument.decode_float(self.report).unwrap_or_default()
    }

    /// Bool field; missing or null: false.
    pub(super) fn bool_field(&mut self, map: &ArgumentMap<'_>, name: &str) -> bool {
        let field = map.field(name);
        field
            .and_then(|field| field.decode_bool(self.report))
            .unwrap_or_default()
    }

    /// String field; missing or null: empty.
    pub(super) fn string_field<'a>(&mut self, map: &ArgumentMap<'a>, name: &str) -> &'a str {
        let field = map.field(name);
        field
            .and_then(|field| field.decode_string(self.report))
            .unwrap_or_default()
    }

    /// Field that maps names to values of one type.
    pub(super) fn typed_map_field<T>(
        &mut self,
        map: &ArgumentMap<'_>,
        name: &str,
        read: fn(&mut Self, &PluginArgument<'_>) -> T,
    ) -> BTreeMap<String, T> {
        let entries = self.map_field(map, name).into_iter();
        entries
            .map(|(name, value)| (name.to_owned(), read(self, &value)))
            .collect()
    }

    /// Entries of a map field; missing or null: none.
    pub(super) fn map_field<'a>(&mut self, map: &ArgumentMap<'a>, name: &str) -> Vec<(&'a str, PluginArgument<'a>)> {
        let inner = map.field(name).and_then(|field| field.decode_map(self.report));
        inner.map(|inner| inner.entries(self.report)).unwrap_or_default()
    }
}
