//! Arguments that many commands have.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use pumice_kubernetes::import::AmountRules;

/// When there is colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorMode {
    /// On a terminal, unless the variable `NO_COLOR` is set
    #[default]
    Auto,
    /// In files and pipes, too
    Always,
    /// Not at all
    Never,
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    #[default]
    Table,
    /// The reply as protobuf JSON.
    Json,
}

/// Which server is asked, and how its answer is printed.
#[derive(Debug, Args)]
pub struct ClientArgs {
    /// Address of the server
    #[arg(long, value_name = "URL", env = "PUMICE_SERVER", default_value = pumice_protocol::DEFAULT_SERVER)]
    pub server: String,
    /// How the answer is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// A variable of the environment that belongs to no flag; an empty one says nothing.
pub fn nonempty_env(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Reads `--derivation`.
pub fn amount_rules_parser() -> impl TypedValueParser<Value = AmountRules> {
    PossibleValuesParser::new(AmountRules::names()).map(|name| AmountRules::from_name(&name).unwrap_or_default())
}

/// A time with its unit.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(unit).unwrap_or((text, ""));
    let unit = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("write it with a unit: ms, s, m or h".to_owned()),
    };
    let seconds = number.parse::<f64>().map_err(|_| "no number".to_owned())? * unit;
    if seconds > 86_400.0 {
        return Err("a day at most".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_mins(2)));
        for wrong in ["10", "s", "-1s", "2d", "25h", "NaNs"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
