//! Profiles: named servers in a configuration file of the user.
//!
//! The values of a profile become defaults of the command line. Precedence: flag, environment variable, profile,
//! built-in default. For example, `--server` overrides `PUMICE_SERVER`, which overrides `server` of the profile.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Command};

use crate::yaml_file::{FileProblem, map, problem, text, unknown_key};
use pumice_console::CommandError;
use pumice_console::args::nonempty_env;
use pumice_engine::policy::{YamlLimits, YamlNode, YamlValue, yaml};

/// Largest file, in bytes.
const FILE_BYTES: usize = 1 << 20;
/// Keys that a profile may have.
const PROFILE_KEYS: [&str; 9] = [
    "server",
    "metrics",
    "policy",
    "output",
    "ca",
    "certificate",
    "key",
    "server_name",
    "token_file",
];
/// Keys whose values are paths. Relative paths are resolved against the directory of the configuration file.
const PATH_KEYS: [&str; 4] = ["ca", "certificate", "key", "token_file"];

/// Choice of a profile, and of the file with profiles.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Options of every command")]
pub(super) struct ProfileArgs {
    /// Profile for server, metrics, policy, output and TLS files, such as prod; flags and environment variables
    /// override it
    #[arg(
        id = "client_profile",
        long = "profile",
        global = true,
        value_name = "NAME",
        env = "PUMICE_PROFILE"
    )]
    profile: Option<String>,
    /// File with profiles [default: pumice/config.yaml in $`XDG_CONFIG_HOME` or ~/.config]
    #[arg(long, global = true, value_name = "FILE", env = "PUMICE_CLIENT_CONFIG")]
    client_config: Option<OsString>,
}

/// The values of one profile, by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ClientProfile(BTreeMap<&'static str, String>);

/// Content of a file of profiles.
#[derive(Debug, Default)]
struct ProfileFile {
    default: Option<String>,
    profiles: BTreeMap<String, ClientProfile>,
}

impl ProfileArgs {
    /// Active profile. `None`: no profile is named, and the file is missing or has no default.
    pub(super) fn find(&self) -> Result<Option<ClientProfile>, CommandError> {
        let named = self.profile.as_deref().filter(|name| !name.is_empty());
        let given = self.client_config.as_deref().filter(|path| !path.is_empty());
        let Some(path) = given.map(PathBuf::from).or_else(default_path) else {
            return match named {
                Some(name) => Err(usage(&format!(
                    "there is no profile `{name}`: no file of profiles was found"
                ))),
                None => Ok(None),
            };
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if named.is_none() && given.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(usage(&format!("{}: {error}", path.display()))),
        };
        let mut all = parse_profiles(&text).map_err(|problem| usage(&format!("{}:{problem}", path.display())))?;
        let Some(name) = named.map(str::to_owned).or(all.default) else {
            return Ok(None);
        };
        if let Some(profile) = all.profiles.remove(&name) {
            return Ok(Some(profile.with_paths_of(path.parent())));
        }
        let known: Vec<&str> = all.profiles.keys().map(String::as_str).collect();
        Err(usage(&format!(
            "{}: there is no profile `{name}`; there are: {}",
            path.display(),
            known.join(", ")
        )))
    }
}

/// Default path of the file.
fn default_path() -> Option<PathBuf> {
    let home = || nonempty_env("HOME").map(|home| PathBuf::from(home).join(".config"));
    let folder = nonempty_env("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home)?;
    Some(folder.join("pumice").join("config.yaml"))
}

impl ClientProfile {
    /// The profile with its relative paths behind a folder.
    fn with_paths_of(mut self, folder: Option<&Path>) -> Self {
        for (key, value) in &mut self.0 {
            if let Some(folder) = folder
                && PATH_KEYS.contains(key)
            {
                *value = folder.join(&*value).display().to_string();
            }
        }
        self
    }

    /// The command line with the profile's values as defaults.
    pub(super) fn apply_as_defaults(self, command: Command) -> Command {
        let command = command.mut_args(|arg| {
            let key = match arg.get_id().as_str() {
                // `pumice policy` names the policy that it works on by itself.
                "name" if arg.get_long() == Some("name") => "policy",
                id => id,
            };
            let possible = arg.get_possible_values();
            match self.0.get(key) {
                // A command with other ways to print keeps its own default.
                Some(value) if possible.is_empty() || possible.iter().any(|one| one.matches(value, false)) => {
                    arg.default_value(value.clone())
                }
                _ => arg,
            }
        });
        command.mut_subcommands(|command| match command.get_name() {
            "serve" | "demo" | "certs" | "store" | "completions" => command,
            _ => self.clone().apply_as_defaults(command),
        })
    }
}

fn usage(message: &str) -> CommandError {
    CommandError::Usage(format!("error: {message}"))
}

fn parse_profiles(content: &str) -> Result<ProfileFile, FileProblem> {
    let limits = YamlLimits {
        bytes: FILE_BYTES,
        ..YamlLimits::default()
    };
    let root = yaml::read(content, &limits).map_err(|error| problem(error.mark, error.message))?;
    let mut profiles = ProfileFile::default();
    for (key, node) in map(&root, "a file of profiles")? {
        match key_text(key)?.as_str() {
            "default" => profiles.default = Some(text(node)?.to_owned()),
            "profiles" => {
                for (key, node) in map(node, "`profiles`")? {
                    let name = key_text(key)?;
                    let profile = parse_profile(node, &name)?;
                    profiles.profiles.insert(name, profile);
                }
            }
            other => return Err(unknown_key(key.mark, other, &["default", "profiles"])),
        }
    }
    Ok(profiles)
}

fn parse_profile(node: &YamlNode, name: &str) -> Result<ClientProfile, FileProblem> {
    let mut values = BTreeMap::new();
    for (key, node) in map(node, &format!("profile `{name}`"))? {
        let written = key_text(key)?;
        let Some(known) = PROFILE_KEYS.into_iter().find(|known| *known == written) else {
            return Err(unknown_key(key.mark, &written, &PROFILE_KEYS));
        };
        let value = text(node)?;
        if known == "output" && !matches!(value, "table" | "json") {
            return Err(problem(
                node.mark,
                format!("`output` is `table` or `json`, not `{value}`"),
            ));
        }
        values.insert(known, value.to_owned());
    }
    Ok(ClientProfile(values))
}

fn key_text(key: &YamlNode) -> Result<String, FileProblem> {
    if let YamlValue::Int(number) = &key.value {
        return Ok(number.to_string());
    }
    if let YamlValue::String(text) = &key.value {
        return Ok(text.clone());
    }
    Err(problem(key.mark, format!("{} is no name", key.value.kind())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read() {
        let profiles =
            parse_profiles("default: lab\nprofiles:\n  lab: {server: 'lab:7461', output: json}\n  none:\n").unwrap();
        assert_eq!(profiles.default.as_deref(), Some("lab"));
        let lab = ClientProfile(BTreeMap::from([
            ("server", "lab:7461".to_owned()),
            ("output", "json".to_owned()),
        ]));
        assert_eq!(profiles.profiles.get("lab"), Some(&lab));
        assert_eq!(profiles.profiles.get("none"), Some(&ClientProfile::default()));
    }

    #[test]
    fn errors_have_a_position_and_a_hint() {
        for (text, line, said) in [
            ("profiles:\n  lab: {servr: x}\n", 2, "`server` was meant?"),
            ("profiles:\n  lab: {output: yml}\n", 2, "`output` is `table` or `json`"),
            ("profiles: 7\n", 1, "`profiles` is a map, not an integer"),
            ("- lab\n", 1, "a file of profiles is a map, not a list"),
            ("defaults: lab\n", 1, "`default` was meant?"),
            ("default: ''\n", 1, "it is empty"),
        ] {
            let problem = parse_profiles(text).unwrap_err();
            assert_eq!(problem.mark.unwrap().line, line, "{text}");
            assert!(problem.message.contains(said), "{text}: {}", problem.message);
        }
    }
}
