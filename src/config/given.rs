//! What an operator said, by flag, environment and file: a flag goes before the environment, the environment before the
//! file, the file before the default. All faults are told at once, each with its place.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::Config;
use super::settings::{Setting, settings};
use crate::engine::policy::{Limits, Mark, Node, Value, slip, yaml};

/// In builds for tests: promises whatever is asked for, so that tests of the promise can be seen to fail.
#[cfg(debug_assertions)]
const WITHOUT_CHECKS: &str = "PUMICE_TEST_WITHOUT_CHECKS";

/// Largest settings file, in bytes.
const FILE_BYTES: usize = 1 << 20;

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: it is the default.
    Default,
    /// In the settings file.
    File(PathBuf, Mark),
    /// In a variable of the environment.
    Environment(String),
    /// On the command line.
    Flag(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, mark) => write!(f, "{}:{}:{}", path.display(), mark.line, mark.column),
            Self::Environment(variable) => f.write_str(variable),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// A value that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where it stands.
    pub place: Place,
    /// Its setting; empty: the whole file.
    pub setting: String,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.setting.is_empty() && !matches!(self.place, Place::Environment(_) | Place::Flag(_)) {
            write!(f, "`{}`: ", self.setting)?;
        }
        f.write_str(&self.message)
    }
}

/// Settings that cannot be taken: all faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(faults))]
pub struct SettingsError {
    /// The faults: the file's first, then the environment's, then the flags', then contradictions.
    pub faults: Vec<Fault>,
}

fn lines(faults: &[Fault]) -> String {
    let plural = if faults.len() == 1 { "fault" } else { "faults" };
    let mut text = format!("{} {plural} in the settings", faults.len());
    for fault in faults {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {fault}");
    }
    text
}

type Given = BTreeMap<&'static str, (Place, Vec<String>)>;

/// Flags and environment of `serve`, as they were given.
#[derive(Clone, Debug, Default)]
pub struct ServeArgs {
    file: Option<PathBuf>,
    environment: Given,
    flags: Given,
    /// Show the settings in force, and end.
    pub print_config: bool,
}

impl clap::Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("config")
            .long("config")
            .env("PUMICE_CONFIG")
            .value_name("FILE")
            .help("File of settings, YAML; a flag or a variable of the environment goes before it")
            .value_parser(clap::value_parser!(PathBuf));
        let print = Arg::new("print-config")
            .long("print-config")
            .action(ArgAction::SetTrue)
            .help("Show the settings in force as a settings file, with where each comes from, and end");
        settings().fold(command.arg(file).arg(print), |command, setting| {
            command.arg(flag(setting))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn flag(setting: Setting) -> Arg {
    let default = setting.show(&Config::default());
    let short: &[&'static str] = match setting.name {
        "grpc_address" => &["listen"],
        "http_address" => &["http"],
        "policy_file" => &["policy"],
        _ => &[],
    };
    let arg = Arg::new(setting.name)
        .visible_aliases(short.iter().copied())
        .long(setting.flag())
        .env(setting.variable())
        .hide_env_values(true)
        .value_name(setting.value)
        .help(format!("{} [default: {default}]", setting.help));
    if setting.is_list() {
        arg.action(ArgAction::Append).value_delimiter(',')
    } else {
        arg.action(ArgAction::Set)
    }
}

impl clap::FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self {
            file: matches.get_one::<PathBuf>("config").cloned(),
            print_config: matches.get_flag("print-config"),
            ..Self::default()
        };
        args.file = args.file.filter(|path| !path.as_os_str().is_empty());
        for setting in settings() {
            let values: Vec<String> = matches
                .get_many::<String>(setting.name)
                .map(|values| values.cloned().collect())
                .unwrap_or_default();
            match matches.value_source(setting.name) {
                Some(ValueSource::CommandLine) => {
                    let place = Place::Flag(format!("--{}", setting.flag()));
                    args.flags.insert(setting.name, (place, values));
                }
                // A variable that is there and empty says nothing.
                Some(ValueSource::EnvVariable) if values.iter().any(|value| !value.is_empty()) => {
                    let place = Place::Environment(setting.variable());
                    args.environment.insert(setting.name, (place, values));
                }
                _ => {}
            }
        }
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Settings in force, and where each comes from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The settings.
    pub config: Config,
    places: BTreeMap<&'static str, Place>,
}

impl Settings {
    /// Where a setting's value comes from.
    pub fn place(&self, name: &str) -> &Place {
        self.places.get(name).unwrap_or(&Place::Default)
    }
}

/// As a settings file, each line with the place that its value comes from.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for setting in settings() {
            let line = format!("{}: {}", setting.name, setting.show(&self.config));
            writeln!(f, "{line:<40} # {}", self.place(setting.name))?;
        }
        Ok(())
    }
}

impl ServeArgs {
    /// Reads the file, if there is one, and puts everything together.
    ///
    /// # Errors
    /// All that is wrong, in every layer, even where another layer goes before it.
    pub fn resolve(self) -> Result<Settings, SettingsError> {
        let mut faults = Vec::new();
        let file = match &self.file {
            Some(path) => read_file(path, &mut faults),
            None => Given::new(),
        };
        let mut config = Config::default();
        #[cfg(debug_assertions)]
        {
            config.without_checks = std::env::var_os(WITHOUT_CHECKS).is_some();
        }
        let mut places = BTreeMap::new();
        for layer in [file, self.environment, self.flags] {
            for setting in settings() {
                let Some((place, values)) = layer.get(setting.name) else {
                    continue;
                };
                match setting.set(&mut config, values.clone()) {
                    Ok(()) => {
                        places.insert(setting.name, place.clone());
                    }
                    Err(message) => faults.push(Fault {
                        place: place.clone(),
                        setting: setting.name.to_owned(),
                        message,
                    }),
                }
            }
        }
        faults.extend(config.contradictions().into_iter().map(|(name, message)| Fault {
            place: places.get(name).cloned().unwrap_or(Place::Default),
            setting: name.to_owned(),
            message,
        }));
        if faults.is_empty() {
            Ok(Settings { config, places })
        } else {
            Err(SettingsError { faults })
        }
    }
}

impl TryFrom<ServeArgs> for Config {
    type Error = SettingsError;

    fn try_from(args: ServeArgs) -> Result<Self, SettingsError> {
        Ok(args.resolve()?.config)
    }
}

fn read_file(path: &Path, faults: &mut Vec<Fault>) -> Given {
    let fault = |mark: Mark, setting: &str, message: String| Fault {
        place: Place::File(path.to_owned(), mark),
        setting: setting.to_owned(),
        message,
    };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            faults.push(fault(Mark::START, "", format!("cannot be read: {error}")));
            return Given::new();
        }
    };
    let limits = Limits {
        bytes: FILE_BYTES,
        ..Limits::default()
    };
    let entries = match yaml::read(&text, &limits) {
        Ok(Node {
            value: Value::Map(entries),
            ..
        }) => entries,
        // An empty file sets nothing.
        Ok(Node { value: Value::Null, .. }) => Vec::new(),
        Ok(Node { value, mark }) => {
            let message = format!("a settings file is a map of settings, not {}", value.kind());
            faults.push(fault(mark, "", message));
            return Given::new();
        }
        Err(error) => {
            faults.push(fault(error.mark, "", error.message));
            return Given::new();
        }
    };
    let mut given = Given::new();
    for (key, node) in entries {
        let name = text_of(&key.value).unwrap_or_default();
        let Some(setting) = settings().find(|setting| setting.name == name) else {
            let names: Vec<&str> = settings().map(|setting| setting.name).collect();
            let meant = slip::nearest(&name, &names).map(|near| format!("; `{near}` was meant?"));
            let message = format!("there is no such setting{}", meant.unwrap_or_default());
            faults.push(fault(key.mark, &name, message));
            continue;
        };
        if let Some(values) = values(&node.value) {
            let place = Place::File(path.to_owned(), node.mark);
            given.insert(setting.name, (place, values));
        } else {
            let message = format!("{} is no value of a setting", node.value.kind());
            faults.push(fault(node.mark, setting.name, message));
        }
    }
    given
}

fn values(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::List(items) => items.iter().map(|item| text_of(&item.value)).collect(),
        Value::Null
        | Value::Bool(_)
        | Value::Int(_)
        | Value::UInt(_)
        | Value::Float(_)
        | Value::String(_)
        | Value::Map(_) => Some(vec![text_of(value)?]),
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Int(number) => Some(number.to_string()),
        Value::UInt(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::String(text) => Some(text.clone()),
        Value::Null | Value::Bool(_) | Value::List(_) | Value::Map(_) => None,
    }
}
