//! One setting: its declaration, and how its value is read and shown.

use super::ServerConfig;
use super::format::{ValueRule, one_value};
use super::values::{parse_bytes, parse_milliseconds, parse_value};
use crate::limits::Limit;

/// Condition in words, and a test of it.
pub(super) type SettingCondition = (&'static str, fn(&ServerConfig) -> bool);

/// Purpose of settings: a part of the page of settings, and of `--help`.
#[derive(Debug)]
pub struct SettingGroup {
    /// Heading.
    pub title: &'static str,
    /// Condition without which the settings have no effect.
    pub(super) condition: Option<SettingCondition>,
}

/// Declaration of one setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name in a settings file; the flag is `--name-with-dashes`, the variable `PUMICE_NAME`.
    pub name: &'static str,
    /// Placeholder for a value.
    pub value_name: &'static str,
    /// Help text.
    pub help: &'static str,
    /// Purpose.
    pub group: &'static SettingGroup,
    /// Values that the setting accepts.
    pub rule: ValueRule,
    /// True if the setting takes several values.
    pub is_list: bool,
    pub(super) kind: SettingKind,
}

/// Reader of the number of a limit.
type NumberReader = fn(&str) -> Result<u64, String>;

#[derive(Clone, Copy, Debug)]
pub(super) enum SettingKind {
    Field(
        fn(&mut ServerConfig, &[String]) -> Result<(), String>,
        fn(&ServerConfig) -> Vec<String>,
    ),
    Limit(Limit, (u64, u64), NumberReader),
}

/// Declares settings: a struct with a field, and a table with a row, for each, by purpose. The struct is the part of
/// `ServerConfig` behind `at`. Fields after `beside` are not settings.
macro_rules! settings {
    (
        $(#[$about:meta])* struct $config:ident at [$($part:ident)*];
        static $table:ident;
        $(in $group:ident {
            $($name:literal $field:ident: $kind:ty = $default:expr, $format:expr, $help:literal;)*
        })*
        $(beside { $($(#[$more_about:meta])* $more:ident: $more_kind:ty = $more_default:expr;)* })?
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $config {
            $($(#[doc = concat!("Setting `", $name, "`.")] pub $field: $kind,)*)*
            $($($(#[$more_about])* pub $more: $more_kind,)*)?
        }

        impl Default for $config {
            fn default() -> Self {
                Self {
                    $($($field: $default,)*)*
                    $($($more: $more_default,)*)?
                }
            }
        }

        impl $config {
            fn of(config: &ServerConfig) -> &Self {
                &(*config)$(.$part)*
            }

            fn of_mut(config: &mut ServerConfig) -> &mut Self {
                &mut (*config)$(.$part)*
            }
        }

        pub(super) static $table: &[Setting] = &[$($(Setting {
            name: $name,
            value_name: $format.value_name,
            help: $help,
            group: &$group,
            rule: $format.rule,
            is_list: $format.is_list(),
            kind: SettingKind::Field(
                |config, values| $format.put(&mut $config::of_mut(config).$field, values),
                |config| $format.values(&$config::of(config).$field),
            ),
        },)*)*];
    };
}
pub(super) use settings;

impl Setting {
    /// Setting of a limit; `None`: the limit is fixed.
    pub(super) fn of_limit(limit: Limit, times: &'static SettingGroup, amounts: &'static SettingGroup) -> Option<Self> {
        let count: NumberReader = |value| parse_value(value, "a whole number");
        let (value_name, rule, group, read): (_, _, _, NumberReader) = match limit.name().rsplit('_').next() {
            Some("ms") => ("MS", ValueRule::Time, times, parse_milliseconds),
            Some("bytes") => ("BYTES", ValueRule::Bytes, amounts, parse_bytes),
            _ => ("COUNT", ValueRule::Count, amounts, count),
        };
        limit.range().map(|range| Self {
            name: limit.name(),
            value_name,
            help: limit.help(),
            group,
            rule,
            is_list: false,
            kind: SettingKind::Limit(limit, range, read),
        })
    }

    /// Smallest and largest value, if it is a limit.
    pub fn range(&self) -> Option<(u64, u64)> {
        match self.kind {
            SettingKind::Field(..) => None,
            SettingKind::Limit(_, range, _) => Some(range),
        }
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
    pub fn set(&self, config: &mut ServerConfig, values: &[String]) -> Result<(), String> {
        match self.kind {
            SettingKind::Field(put, _) => put(config, values),
            SettingKind::Limit(limit, (least, most), read) => {
                let value = one_value(values)?;
                let number = read(value)?;
                if !(least..=most).contains(&number) {
                    return Err(format!("`{value}` is not within {least} and {most}"));
                }
                limit.set(&mut config.limits, number);
                Ok(())
            }
        }
    }

    /// Value as a settings file would have it.
    pub fn show(&self, config: &ServerConfig) -> String {
        match self.kind {
            SettingKind::Field(_, get) => {
                let values: Vec<String> = get(config).iter().map(|value| self.quoted(value)).collect();
                let values = values.join(", ");
                if self.is_list { format!("[{values}]") } else { values }
            }
            SettingKind::Limit(limit, ..) => limit.get(&config.limits).to_string(),
        }
    }

    /// Text of a value: numbers and words as they are, others in quotes.
    fn quoted(&self, value: &str) -> String {
        let is_plain = match self.rule {
            ValueRule::Words(_) => !value.is_empty(),
            ValueRule::Time | ValueRule::Bytes | ValueRule::Count | ValueRule::Ratio => true,
            ValueRule::Pattern(_) | ValueRule::Text => false,
        };
        if is_plain {
            return value.to_owned();
        }
        format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
    }
}
