//! One setting: its definition, and how its value is read and shown.

use super::ServerConfig;
use super::values::{parse_bytes, parse_milliseconds, parse_value};
use crate::limits::{LimitDef, LimitRange};

/// Definition of one setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name in a settings file; the flag is `--name-with-dashes`, the variable `PUMICE_NAME`.
    pub name: &'static str,
    /// Placeholder for a value.
    pub value_name: &'static str,
    /// Help text.
    pub help: &'static str,
    pub(super) kind: SettingKind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum SettingKind {
    Single(
        fn(&mut ServerConfig, &str) -> Result<(), String>,
        fn(&ServerConfig) -> String,
    ),
    List(
        fn(&mut ServerConfig, Vec<String>) -> Result<(), String>,
        fn(&ServerConfig) -> Vec<String>,
    ),
    Limit(&'static LimitDef, LimitRange),
}

impl Setting {
    /// Setting of a limit; `None`: the limit is fixed.
    pub(super) fn of_limit(row: &'static LimitDef) -> Option<Self> {
        row.range.map(|range| Self {
            name: row.name,
            value_name: limit_unit(row.name),
            help: row.help,
            kind: SettingKind::Limit(row, range),
        })
    }

    /// True if the setting takes several values.
    pub fn is_list(&self) -> bool {
        matches!(self.kind, SettingKind::List(..))
    }

    /// Flag, without the dashes.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Variable of the environment.
    pub fn variable(&self) -> String {
        format!("PUMICE_{}", self.name.to_uppercase())
    }

    /// Reads values into a configuration.
    ///
    /// # Errors
    /// The values are not valid.
    pub fn set(&self, config: &mut ServerConfig, values: Vec<String>) -> Result<(), String> {
        if let SettingKind::List(set, _) = self.kind {
            return set(config, values);
        }
        let [value] = values.as_slice() else {
            return Err("takes one value, not a list".to_owned());
        };
        match self.kind {
            SettingKind::Single(set, _) => set(config, value),
            SettingKind::Limit(row, range) => set_limit(row, range, config, value),
            SettingKind::List(..) => Ok(()),
        }
    }

    /// Value as a settings file would have it.
    pub fn show(&self, config: &ServerConfig) -> String {
        match self.kind {
            SettingKind::Single(_, get) => quoted(&get(config)),
            SettingKind::List(_, get) => {
                let values: Vec<String> = get(config).iter().map(|value| quoted(value)).collect();
                format!("[{}]", values.join(", "))
            }
            SettingKind::Limit(row, _) => (row.get)(&config.limits).to_string(),
        }
    }
}

/// Text of a value: plain numbers and words as they are, others in quotes.
fn quoted(value: &str) -> String {
    // YAML takes digits behind a zero as an octal number.
    let is_number = value.chars().all(|c| c.is_ascii_digit() || c == '.')
        && !(value.len() > 1 && value.starts_with('0') && !value.contains('.'));
    let plain = is_number
        || matches!(
            value,
            "memory"
                | "disk"
                | "etcd"
                | "kubernetes"
                | "text"
                | "json"
                | "corrected"
                | "upstream"
                | "info"
                | "true"
                | "false"
                | "http"
                | "required"
                | "optional"
        );
    if plain && !value.is_empty() {
        value.to_owned()
    } else {
        format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

fn limit_unit(name: &str) -> &'static str {
    match name.rsplit('_').next() {
        Some("ms") => "MS",
        Some("bytes") => "BYTES",
        _ => "COUNT",
    }
}

/// Sets a limit to a whole number. A time may have a unit, and bytes the suffix `Ki`, `Mi` or `Gi`.
fn set_limit(row: &LimitDef, range: LimitRange, config: &mut ServerConfig, value: &str) -> Result<(), String> {
    let number = match limit_unit(row.name) {
        "MS" => parse_milliseconds(value)?,
        "BYTES" => parse_bytes(value)?,
        _ => parse_value(value, "a whole number")?,
    };
    let LimitRange { least, most } = range;
    if !(least..=most).contains(&number) {
        return Err(format!("`{value}` is not within {least} and {most}"));
    }
    (row.set)(&mut config.limits, number);
    Ok(())
}
