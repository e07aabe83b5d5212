//! Arguments that many commands have.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use crate::CommandError;
use crate::full_sync::pod_release;
use pumice_kubernetes::import::AmountRules;
use pumice_protocol::{ClientConnection, ClientTls, ConnectOptions};

/// When to write colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorMode {
    /// On a terminal, unless the variable `NO_COLOR` is set
    #[default]
    Auto,
    /// Also in files and pipes
    Always,
    /// Never
    Never,
}

/// Format of a command's output, such as `-o json`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Table for people.
    #[default]
    Table,
    /// Response of the server as protobuf JSON.
    Json,
}

/// Server to connect to, and format of the output.
#[derive(Debug, Args)]
pub struct ClientArgs {
    /// Address of the server, such as 127.0.0.1:7461 or `https://pumice.example:7461`
    #[arg(long, value_name = "URL", env = "PUMICE_SERVER", default_value = pumice_protocol::DEFAULT_SERVER)]
    pub server: String,
    #[command(flatten)]
    credentials: CredentialArgs,
    /// Format of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// TLS and credentials of a client.
#[derive(Debug, Clone, Default, Args)]
pub struct CredentialArgs {
    /// CA certificate that signed the server's certificate (PEM); implies https:// for the address
    #[arg(long, value_name = "FILE", env = "PUMICE_CA")]
    ca: Option<PathBuf>,
    /// Client certificate (PEM)
    #[arg(long, value_name = "FILE", env = "PUMICE_CERTIFICATE")]
    certificate: Option<PathBuf>,
    /// Private key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", env = "PUMICE_KEY")]
    key: Option<PathBuf>,
    /// Name that the server's certificate must have [default: host of the address]
    #[arg(long, value_name = "NAME", env = "PUMICE_SERVER_NAME")]
    server_name: Option<String>,
    /// File with a bearer token to send, such as a service account token
    #[arg(long, value_name = "FILE", env = "PUMICE_TOKEN_FILE")]
    token_file: Option<PathBuf>,
}

impl CredentialArgs {
    /// Reads the files, for a server at this address.
    pub fn read(&self, server: &str) -> Result<ConnectOptions, CommandError> {
        let read = |path: &PathBuf| std::fs::read(path).map_err(|error| usage(path, &error));
        let given = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
        let certificate = match (given(&self.certificate), given(&self.key)) {
            (Some(certificate), Some(key)) => Some((read(&certificate)?, read(&key)?)),
            (None, None) => None,
            _ => {
                let message = "error: --certificate and --key belong together, and one of them is missing";
                return Err(CommandError::Usage(message.to_owned()));
            }
        };
        let token = given(&self.token_file).map(|path| {
            let token = std::fs::read_to_string(&path).map_err(|error| usage(&path, &error))?;
            match token.trim() {
                "" => Err(CommandError::Usage(format!(
                    "error: {}: it has no token",
                    path.display()
                ))),
                token => Ok(token.to_owned()),
            }
        });
        Ok(ConnectOptions {
            server: server.to_owned(),
            tls: ClientTls {
                authorities: given(&self.ca).as_ref().map(read).transpose()?,
                certificate,
                server_name: self.server_name.clone().filter(|name| !name.is_empty()),
            },
            token: token.transpose()?,
        })
    }
}

fn usage(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::Usage(format!("error: {}: {error}", path.display()))
}

impl ClientArgs {
    /// Address, TLS and credentials of the connection.
    pub fn connect_options(&self) -> Result<ConnectOptions, CommandError> {
        self.credentials.read(&self.server)
    }

    /// Connects to the server.
    pub async fn connect(&self) -> Result<ClientConnection, CommandError> {
        Ok(ClientConnection::open_with(&self.connect_options()?).await?)
    }

    /// Rules for the requests of pods in files, by the release that the server wants.
    pub async fn amount_rules(&self, derivation: AmountRules) -> Result<AmountRules, CommandError> {
        let release = pod_release(&mut self.connect().await?).await?;
        Ok(derivation.of_release(release))
    }
}

/// Environment variable without a flag, such as `NO_COLOR`. An empty variable is treated as absent.
pub fn nonempty_env(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Name of a value on the command line.
pub fn value_name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map(|value| value.get_name().to_owned()).unwrap_or_default()
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

/// Reads `NAME=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
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
