//! The list of settings: names, defaults, and how each is read and shown. Limits follow those of their own.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum as _;

use super::Config;
use crate::engine::policy::Compatibility;
use crate::server::limits::{LIMITS, LimitDef};
use crate::telemetry::LogFormat;

/// One setting, by whatever way it comes.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name in a file; `--its-name` as a flag, `PUMICE_ITS_NAME` in the environment.
    pub name: &'static str,
    /// What a value looks like.
    pub value: &'static str,
    /// What it does.
    pub help: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    One(fn(&mut Config, &str) -> Result<(), String>, fn(&Config) -> String),
    Many(
        fn(&mut Config, Vec<String>) -> Result<(), String>,
        fn(&Config) -> Vec<String>,
    ),
    Limit(&'static LimitDef),
}

impl Setting {
    /// True if it takes several values.
    pub fn is_list(&self) -> bool {
        matches!(self.kind, Kind::Many(..))
    }

    /// Its flag, without the dashes.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Its variable in the environment.
    pub fn variable(&self) -> String {
        format!("PUMICE_{}", self.name.to_uppercase())
    }

    /// Reads values into a configuration.
    ///
    /// # Errors
    /// They are not such values.
    pub fn set(&self, config: &mut Config, values: Vec<String>) -> Result<(), String> {
        if let Kind::Many(set, _) = self.kind {
            return set(config, values);
        }
        let [value] = values.as_slice() else {
            return Err("takes one value, not a list".to_owned());
        };
        match self.kind {
            Kind::One(set, _) => set(config, value),
            Kind::Limit(row) => set_limit(row, config, value),
            Kind::Many(..) => Ok(()),
        }
    }

    /// Its value as a settings file would say it.
    pub fn show(&self, config: &Config) -> String {
        match self.kind {
            Kind::One(_, get) => quoted(&get(config)),
            Kind::Many(_, get) => {
                let values: Vec<String> = get(config).iter().map(|value| quoted(value)).collect();
                format!("[{}]", values.join(", "))
            }
            Kind::Limit(row) => (row.get)(&config.limits).to_string(),
        }
    }
}

/// Plain numbers and words as they are, the rest in quotes.
fn quoted(value: &str) -> String {
    let plain = value.chars().all(|c| c.is_ascii_digit() || c == '.')
        || matches!(value, "text" | "json" | "corrected" | "upstream" | "info");
    if plain && !value.is_empty() {
        value.to_owned()
    } else {
        format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

/// Every setting: those of the process first, then the limits by name.
pub fn settings() -> impl Iterator<Item = Setting> {
    let limit = |row: &'static LimitDef| Setting {
        name: row.name,
        value: unit(row.name),
        help: row.help,
        kind: Kind::Limit(row),
    };
    PROCESS.iter().copied().chain(LIMITS.iter().map(limit))
}

fn unit(name: &str) -> &'static str {
    match name.rsplit('_').next() {
        Some("ms") => "MS",
        Some("bytes") => "BYTES",
        _ => "COUNT",
    }
}

/// Settings that are no limits.
static PROCESS: &[Setting] = &[
    Setting {
        name: "grpc_address",
        value: "IP:PORT",
        help: "Address of the gRPC services; port 0: any free one",
        kind: Kind::One(
            |config, value| put(&mut config.grpc_address, address(value)),
            |config| config.grpc_address.to_string(),
        ),
    },
    Setting {
        name: "grpc_socket",
        value: "PATH",
        help: "Unix socket of the gRPC services, beside the address; empty: none",
        kind: Kind::One(
            |config, value| put(&mut config.grpc_socket, Ok(path(value))),
            |config| shown(config.grpc_socket.as_ref()),
        ),
    },
    Setting {
        name: "http_address",
        value: "IP:PORT",
        help: "Address of /livez, /readyz and /metrics; port 0: any free one",
        kind: Kind::One(
            |config, value| put(&mut config.http_address, address(value)),
            |config| config.http_address.to_string(),
        ),
    },
    Setting {
        name: "data_dir",
        value: "DIR",
        help: "Directory of what must outlive the process: reservations, committed placements, versions of policies; empty: kept in memory only",
        kind: Kind::One(
            |config, value| put(&mut config.data_dir, Ok(path(value))),
            |config| shown(config.data_dir.as_ref()),
        ),
    },
    Setting {
        name: "policy_file",
        value: "FILE",
        help: "Policy document to serve under the name `default`; empty: the built-in policy serves",
        kind: Kind::One(
            |config, value| put(&mut config.policy_file, Ok(path(value))),
            |config| shown(config.policy_file.as_ref()),
        ),
    },
    Setting {
        name: "policy_poll_ms",
        value: "MS",
        help: "How often the policy file is looked at; 0: only on SIGHUP",
        kind: Kind::One(
            |config, value| put(&mut config.policy_poll, milliseconds(value)),
            |config| config.policy_poll.as_millis().to_string(),
        ),
    },
    Setting {
        name: "compatibility",
        value: "NAME",
        help: "How to read a policy file that does not say it: `corrected` or `upstream`",
        kind: Kind::One(
            |config, value| put(&mut config.compatibility, compatibility(value)),
            |config| config.compatibility.name().to_owned(),
        ),
    },
    Setting {
        name: "expect_source",
        value: "NAME",
        help: "Source that must have sent a snapshot before the server is ready; may be given several times",
        kind: Kind::Many(
            |config, values| put(&mut config.expected_sources, sources(values)),
            |config| config.expected_sources.iter().map(ToString::to_string).collect(),
        ),
    },
    Setting {
        name: "drain_delay_ms",
        value: "MS",
        help: "Time between telling callers to go elsewhere and refusing new connections",
        kind: Kind::One(
            |config, value| put(&mut config.drain_delay, milliseconds(value)),
            |config| config.drain_delay.as_millis().to_string(),
        ),
    },
    Setting {
        name: "drain_deadline_ms",
        value: "MS",
        help: "Time that calls under way get to finish when the server stops",
        kind: Kind::One(
            |config, value| put(&mut config.drain_deadline, milliseconds(value)),
            |config| config.drain_deadline.as_millis().to_string(),
        ),
    },
    Setting {
        name: "keepalive_ms",
        value: "MS",
        help: "A connection that is silent for so long is asked whether it lives",
        kind: Kind::One(
            |config, value| put(&mut config.keepalive, positive(value)),
            |config| config.keepalive.as_millis().to_string(),
        ),
    },
    Setting {
        name: "keepalive_timeout_ms",
        value: "MS",
        help: "Time that it gets to answer before it is closed",
        kind: Kind::One(
            |config, value| put(&mut config.keepalive_timeout, positive(value)),
            |config| config.keepalive_timeout.as_millis().to_string(),
        ),
    },
    Setting {
        name: "log",
        value: "FILTER",
        help: "What to log: a level such as `info`, or directives such as `pumice=debug`",
        kind: Kind::One(
            |config, value| put(&mut config.log, filter(value)),
            |config| config.log.clone(),
        ),
    },
    Setting {
        name: "log_format",
        value: "FORMAT",
        help: "How to log: `text`, or `json` for one object per line",
        kind: Kind::One(
            |config, value| put(&mut config.log_format, LogFormat::from_str(value, false)),
            |config| {
                if config.log_format == LogFormat::Json {
                    "json"
                } else {
                    "text"
                }
                .to_owned()
            },
        ),
    },
    Setting {
        name: "otlp_endpoint",
        value: "URL",
        help: "OpenTelemetry collector that traces are sent to, over gRPC; empty: none",
        kind: Kind::One(
            |config, value| put(&mut config.otlp_endpoint, endpoint(value)),
            |config| config.otlp_endpoint.clone().unwrap_or_default(),
        ),
    },
    Setting {
        name: "trace_ratio",
        value: "RATIO",
        help: "Share of calls that are traced where the caller has not decided, from 0 to 1",
        kind: Kind::One(
            |config, value| put(&mut config.trace_ratio, ratio(value)),
            |config| config.trace_ratio.to_string(),
        ),
    },
];

fn put<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

fn read<T: FromStr<Err: fmt::Display>>(value: &str, what: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{value}` is not {what}"))
}

fn address(value: &str) -> Result<SocketAddr, String> {
    read(value, "an IP address and a port, such as 127.0.0.1:7461")
}

fn path(value: &str) -> Option<PathBuf> {
    (!value.is_empty()).then(|| PathBuf::from(value))
}

fn shown(path: Option<&PathBuf>) -> String {
    path.map(|path| path.display().to_string()).unwrap_or_default()
}

fn milliseconds(value: &str) -> Result<Duration, String> {
    let most = 86_400_000;
    let milliseconds = read(value, "a number of milliseconds")?;
    if milliseconds > most {
        return Err(format!("`{value}` is more than {most}, a day"));
    }
    Ok(Duration::from_millis(milliseconds))
}

fn positive(value: &str) -> Result<Duration, String> {
    let time = milliseconds(value)?;
    if time.is_zero() {
        return Err("`0` is less than 1, the least".to_owned());
    }
    Ok(time)
}

fn compatibility(value: &str) -> Result<Compatibility, String> {
    Compatibility::from_name(value).ok_or_else(|| format!("`{value}` is neither `upstream` nor `corrected`"))
}

fn sources(values: Vec<String>) -> Result<Vec<Arc<str>>, String> {
    if values.iter().any(String::is_empty) {
        return Err("a source needs a name".to_owned());
    }
    Ok(values.into_iter().map(Arc::from).collect())
}

fn filter(value: &str) -> Result<String, String> {
    match tracing_subscriber::EnvFilter::try_new(value) {
        Ok(_) => Ok(value.to_owned()),
        Err(error) => Err(format!("`{value}` is not a log filter: {error}")),
    }
}

fn endpoint(value: &str) -> Result<Option<String>, String> {
    let known = value.starts_with("http://") && tonic::transport::Endpoint::from_shared(value.to_owned()).is_ok();
    match value {
        "" => Ok(None),
        _ if known => Ok(Some(value.to_owned())),
        _ => Err(format!("`{value}` is not an address such as http://127.0.0.1:4317")),
    }
}

fn ratio(value: &str) -> Result<f64, String> {
    let ratio: f64 = read(value, "a number from 0 to 1")?;
    if (0.0..=1.0).contains(&ratio) {
        Ok(ratio)
    } else {
        Err(format!("`{value}` is not a number from 0 to 1"))
    }
}

/// A whole number; bytes may say `Ki`, `Mi` or `Gi`.
fn set_limit(row: &LimitDef, config: &mut Config, value: &str) -> Result<(), String> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30)];
    let scaled = units
        .into_iter()
        .filter(|_| row.name.ends_with("_bytes"))
        .find_map(|(unit, shift)| Some((value.strip_suffix(unit)?, shift)));
    let (digits, shift) = scaled.unwrap_or((value, 0));
    let number = digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift));
    let Some(number) = number else {
        return Err(format!("`{value}` is not a whole number"));
    };
    let (least, most) = (row.least, row.most);
    if !(least..=most).contains(&number) {
        return Err(format!("`{value}` is not within {least} and {most}"));
    }
    (row.set)(&mut config.limits, number);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// The page of settings, which a person reads and `PUMICE_BLESS=1` rewrites.
    fn page() -> String {
        let mut page = String::from(
            "# Settings\n\nFlags are `--name-with-dashes`, variables `PUMICE_NAME`, keys of the settings file the name as it stands. \
             How they go together: [operations.md](operations.md#settings).\n\n| Name | Value | Default | What |\n|---|---|---|---|\n",
        );
        for setting in settings() {
            let default = match setting.name {
                "work" => "cores − 1".to_owned(),
                _ => format!("`{}`", setting.show(&Config::default())),
            };
            let (name, value, help) = (setting.name, setting.value, setting.help);
            writeln!(page, "| `{name}` | {value} | {default} | {help} |").unwrap();
        }
        page
    }

    #[test]
    fn the_page_of_settings_is_true() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/settings.md");
        if std::env::var_os("PUMICE_BLESS").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), page());
    }

    #[test]
    fn every_default_is_what_its_setting_reads() {
        let default = Config::default();
        for setting in settings() {
            let mut config = Config::default();
            let shown = setting.show(&default);
            let values: Vec<String> = match shown.as_str() {
                "[]" => Vec::new(),
                shown => vec![shown.trim_matches('"').to_owned()],
            };
            setting.set(&mut config, values).unwrap();
            assert_eq!(config, default, "{}", setting.name);
        }
    }
}
