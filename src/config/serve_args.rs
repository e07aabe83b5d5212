//! Sources of settings: a flag takes precedence over the environment, the environment over the file, the file over the
//! standard variables of OpenTelemetry, and those over the default. All errors are reported at once, each with its origin.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::ServerConfig;
use super::setting::Setting;
use super::setting_origin::{SettingLayer, SettingOrigin, SettingProblem};
use super::settings::settings;
use super::standard_variables::StandardVariables;
use pumice_engine::policy::{Mark, YamlLimits, YamlNode, YamlValue, suggestion, yaml};

/// Variable that, in builds for tests, makes the server confirm every request. Tests use it to prove that they notice a
/// broken promise.
#[cfg(feature = "test-doors")]
const WITHOUT_CHECKS: &str = "PUMICE_TEST_WITHOUT_CHECKS";

/// Largest settings file, in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;

/// Settings that are not valid, with all problems.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problem_lines(problems))]
pub struct SettingsError {
    /// Problems: problems of the file first, then the environment's, then the flags', then contradictions.
    pub problems: Vec<SettingProblem>,
}

fn problem_lines(problems: &[SettingProblem]) -> String {
    let plural = if problems.len() == 1 { "error" } else { "errors" };
    let mut text = format!("{} {plural} in the settings", problems.len());
    for problem in problems {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {problem}");
    }
    text
}

/// Flags and environment of `serve`, as they were given.
#[derive(Clone, Debug, Default)]
pub struct ServeArgs {
    file: Option<PathBuf>,
    standard: StandardVariables,
    environment: SettingLayer,
    flags: SettingLayer,
    /// True to print the settings in force and end.
    pub print_config: bool,
}

impl clap::Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("config")
            .long("config")
            .env("PUMICE_CONFIG")
            .value_name("FILE")
            .help("Settings file (YAML); flags and environment variables take precedence over it")
            .value_parser(clap::value_parser!(PathBuf));
        let print = Arg::new("print-config")
            .long("print-config")
            .action(ArgAction::SetTrue)
            .help("Print the settings in force as a settings file, each with its origin, and exit");
        settings().fold(command.arg(file).arg(print), |command, setting| {
            command.arg(setting_arg(setting))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn setting_arg(setting: Setting) -> Arg {
    let default = setting.show(&ServerConfig::default());
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
        .value_name(setting.value_name)
        .help_heading(setting.group.title)
        .help(format!("{} [default: {default}]", setting.help));
    if setting.name == "insecure" {
        // `--insecure` alone says all of it; a value follows an equals sign.
        arg.action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
    } else if setting.is_list {
        arg.action(ArgAction::Append).value_delimiter(',')
    } else {
        arg.action(ArgAction::Set)
    }
}

impl clap::FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self {
            file: matches.get_one::<PathBuf>("config").cloned(),
            standard: StandardVariables::of_process(),
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
                    let place = SettingOrigin::Flag(format!("--{}", setting.flag()));
                    args.flags.insert(setting.name, (place, values));
                }
                // An empty variable sets nothing.
                Some(ValueSource::EnvVariable) if values.iter().any(|value| !value.is_empty()) => {
                    let place = SettingOrigin::Environment(setting.variable());
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

/// Settings in force, each with its origin.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Settings in force.
    pub config: ServerConfig,
    origins: BTreeMap<&'static str, SettingOrigin>,
}

impl Settings {
    /// Origin of a setting's value.
    pub fn origin(&self, name: &str) -> &SettingOrigin {
        self.origins.get(name).unwrap_or(&SettingOrigin::Default)
    }
}

/// Text of a settings file, each line with the origin of its value.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for setting in settings() {
            let line = format!("{}: {}", setting.name, setting.show(&self.config));
            writeln!(f, "{line:<40} # {}", self.origin(setting.name))?;
        }
        Ok(())
    }
}

impl ServeArgs {
    /// Reads the file, if there is one, and combines all origins.
    ///
    /// # Errors
    /// All problems of every origin, even of values that another origin overrides.
    pub fn resolve(self) -> Result<Settings, SettingsError> {
        let mut problems = Vec::new();
        let file = match &self.file {
            Some(path) => read_file(path, &mut problems),
            None => SettingLayer::new(),
        };
        let mut config = ServerConfig {
            otel: self.standard.otel.clone(),
            ..ServerConfig::default()
        };
        #[cfg(feature = "test-doors")]
        {
            config.test_doors.skip_checks = std::env::var_os(WITHOUT_CHECKS).is_some();
        }
        let mut places = BTreeMap::new();
        for layer in [self.standard.layer.clone(), file, self.environment, self.flags] {
            for setting in settings() {
                let Some((place, values)) = layer.get(setting.name) else {
                    continue;
                };
                match setting.set(&mut config, values) {
                    Ok(()) => {
                        places.insert(setting.name, place.clone());
                    }
                    Err(message) => problems.push(SettingProblem {
                        origin: place.clone(),
                        setting: setting.name.to_owned(),
                        message,
                    }),
                }
            }
        }
        config.widen_connections();
        problems.extend(
            places
                .get("otlp_endpoint")
                .and_then(|place| self.standard.protocol_problem(place)),
        );
        problems.extend(
            config
                .conflicting_settings()
                .into_iter()
                .map(|(name, message)| SettingProblem {
                    origin: places.get(name).cloned().unwrap_or(SettingOrigin::Default),
                    setting: name.to_owned(),
                    message,
                }),
        );
        if problems.is_empty() {
            Ok(Settings {
                config,
                origins: places,
            })
        } else {
            Err(SettingsError { problems })
        }
    }
}

fn read_file(path: &Path, problems: &mut Vec<SettingProblem>) -> SettingLayer {
    let problem = |mark: Mark, setting: &str, message: String| SettingProblem {
        origin: SettingOrigin::File(path.to_owned(), mark),
        setting: setting.to_owned(),
        message,
    };
    let entries = read_entries(path).unwrap_or_else(|(mark, message)| {
        problems.push(problem(mark, "", message));
        Vec::new()
    });
    let mut given = SettingLayer::new();
    for (key, node) in entries {
        let name = text_of(&key.value).unwrap_or_default();
        let Some(setting) = settings().find(|setting| setting.name == name) else {
            let names: Vec<&str> = settings().map(|setting| setting.name).collect();
            let message = format!("no such setting{}", suggestion::hint(&name, &names));
            problems.push(problem(key.mark, &name, message));
            continue;
        };
        if let Some(values) = setting_values(&node.value) {
            let place = SettingOrigin::File(path.to_owned(), node.mark);
            given.insert(setting.name, (place, values));
        } else {
            let message = format!("{} is not a value of a setting", node.value.kind());
            problems.push(problem(node.mark, setting.name, message));
        }
    }
    given
}

/// Entries of a settings file, or what is wrong with all of it, and where.
fn read_entries(path: &Path) -> Result<Vec<(YamlNode, YamlNode)>, (Mark, String)> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| (Mark::START, format!("cannot be read: {error}")))?;
    let limits = YamlLimits {
        bytes: MAX_FILE_BYTES,
        ..YamlLimits::default()
    };
    match yaml::read(&text, &limits).map_err(|error| (error.mark, error.message))? {
        YamlNode {
            value: YamlValue::Map(entries),
            ..
        } => Ok(entries),
        // An empty file sets nothing.
        YamlNode {
            value: YamlValue::Null, ..
        } => Ok(Vec::new()),
        YamlNode { value, mark } => {
            let message = format!("a settings file is a map of settings, not {}", value.kind());
            Err((mark, message))
        }
    }
}

fn setting_values(value: &YamlValue) -> Option<Vec<String>> {
    match value {
        YamlValue::List(items) => items.iter().map(|item| text_of(&item.value)).collect(),
        YamlValue::Null
        | YamlValue::Bool(_)
        | YamlValue::Int(_)
        | YamlValue::UInt(_)
        | YamlValue::Float(_)
        | YamlValue::String(_)
        | YamlValue::Map(_) => Some(vec![text_of(value)?]),
    }
}

fn text_of(value: &YamlValue) -> Option<String> {
    match value {
        YamlValue::Int(number) => Some(number.to_string()),
        YamlValue::UInt(number) => Some(number.to_string()),
        YamlValue::Float(number) => Some(number.to_string()),
        YamlValue::String(text) => Some(text.clone()),
        YamlValue::Bool(value) => Some(value.to_string()),
        YamlValue::Null | YamlValue::List(_) | YamlValue::Map(_) => None,
    }
}
