//! List of settings. The limits are appended from their own list.

use clap::ValueEnum as _;

use super::cluster_settings::CLUSTER_SETTINGS;
use super::kubernetes_store_settings::KUBERNETES_STORE_SETTINGS;
use super::security_settings::SECURITY_SETTINGS;
use super::setting::{Setting, SettingKind};
use super::store_settings::STORE_SETTINGS;
use super::values::{
    address, assign, compatibility, endpoint, filter, milliseconds, path, path_text, policies, positive, ratio,
    service_name, sources,
};
use crate::limits::LIMITS;
use crate::telemetry::LogFormat;

/// All settings: settings of the process first, then the limits by name.
pub fn settings() -> impl Iterator<Item = Setting> {
    let own = PROCESS_SETTINGS
        .iter()
        .chain(STORE_SETTINGS)
        .chain(KUBERNETES_STORE_SETTINGS)
        .chain(CLUSTER_SETTINGS)
        .chain(SECURITY_SETTINGS)
        .copied();
    own.chain(LIMITS.iter().filter_map(Setting::of_limit))
}

/// Settings that are not limits.
static PROCESS_SETTINGS: &[Setting] = &[
    Setting {
        name: "grpc_address",
        value_name: "HOST:PORT",
        help: "Address of the gRPC services, as 127.0.0.1:7461, localhost:7461, or :7461 for all IPv4 addresses; port 0: any free port",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.grpc_address, address(value)),
            |config| config.grpc_address.to_string(),
        ),
    },
    Setting {
        name: "grpc_socket",
        value_name: "PATH",
        help: "Unix socket of the gRPC services, in addition to the address; empty: none",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.grpc_socket, Ok(path(value))),
            |config| path_text(config.grpc_socket.as_ref()),
        ),
    },
    Setting {
        name: "http_address",
        value_name: "HOST:PORT",
        help: "Address of /livez, /readyz and /metrics, in the same notations; port 0: any free port",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.http_address, address(value)),
            |config| config.http_address.to_string(),
        ),
    },
    Setting {
        name: "data_dir",
        value_name: "DIR",
        help: "Directory of durable state: reservations, committed placements, versions of policies; empty: this state is held in memory and lost with the process",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.data_dir, Ok(path(value))),
            |config| path_text(config.data_dir.as_ref()),
        ),
    },
    Setting {
        name: "policy_file",
        value_name: "FILE",
        help: "Policy document to put in force as `default`; empty: the built-in policy",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.policy_file, Ok(path(value))),
            |config| path_text(config.policy_file.as_ref()),
        ),
    },
    Setting {
        name: "policy_poll_ms",
        value_name: "MS",
        help: "Period of the check for a changed policy file; 0: only on SIGHUP",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.policy_poll, milliseconds(value)),
            |config| config.policy_poll.as_millis().to_string(),
        ),
    },
    Setting {
        name: "compatibility",
        value_name: "NAME",
        help: "Compatibility of a policy file that does not set it: `corrected` or `upstream`",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.compatibility, compatibility(value)),
            |config| config.compatibility.name().to_owned(),
        ),
    },
    Setting {
        name: "expect_source",
        value_name: "NAME",
        help: "Source that must be synced for the server to be ready; may be given several times",
        kind: SettingKind::List(
            |config, values| assign(&mut config.expected_sources, sources(values)),
            |config| config.expected_sources.iter().map(ToString::to_string).collect(),
        ),
    },
    Setting {
        name: "expect_policy",
        value_name: "NAME[=HASH]",
        help: "Policy that must be in force before the server is ready, as `name` or `name=HASH` with the SHA-256 of its document; may be given several times",
        kind: SettingKind::List(
            |config, values| assign(&mut config.expected_policies, policies(&values)),
            |config| config.expected_policies.iter().map(ToString::to_string).collect(),
        ),
    },
    Setting {
        name: "drain_delay_ms",
        value_name: "MS",
        help: "Time between reporting NOT_SERVING and rejecting new connections",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.drain_delay, milliseconds(value)),
            |config| config.drain_delay.as_millis().to_string(),
        ),
    },
    Setting {
        name: "drain_deadline_ms",
        value_name: "MS",
        help: "Time that calls under way have to finish when the server stops",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.drain_deadline, milliseconds(value)),
            |config| config.drain_deadline.as_millis().to_string(),
        ),
    },
    Setting {
        name: "keepalive_ms",
        value_name: "MS",
        help: "Silence after which the server probes a connection",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.keepalive, positive(value)),
            |config| config.keepalive.as_millis().to_string(),
        ),
    },
    Setting {
        name: "keepalive_timeout_ms",
        value_name: "MS",
        help: "Time that the caller has to reply to the probe before the connection is closed",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.keepalive_timeout, positive(value)),
            |config| config.keepalive_timeout.as_millis().to_string(),
        ),
    },
    Setting {
        name: "max_connection_age_ms",
        value_name: "MS",
        help: "Age at which a connection accepts no new calls and its caller opens another, for example to rebalance behind a load balancer; 0: no limit",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.max_connection_age, milliseconds(value)),
            |config| config.max_connection_age.as_millis().to_string(),
        ),
    },
    Setting {
        name: "max_connection_age_grace_ms",
        value_name: "MS",
        help: "Time that calls under way on such a connection have to finish before it is closed; streams end with it",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.max_connection_age_grace, positive(value)),
            |config| config.max_connection_age_grace.as_millis().to_string(),
        ),
    },
    Setting {
        name: "log",
        value_name: "FILTER",
        help: "Filter of log lines: a level such as `info`, or directives such as `pumice=debug`",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.log, filter(value)),
            |config| config.log.clone(),
        ),
    },
    Setting {
        name: "log_format",
        value_name: "FORMAT",
        help: "Format of log lines: `text`, or `json` for one object per line",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.log_format, LogFormat::from_str(value, false)),
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
        value_name: "URL",
        help: "OpenTelemetry collector that traces are sent to, over gRPC; empty: none",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.otlp_endpoint, endpoint(value)),
            |config| config.otlp_endpoint.clone().unwrap_or_default(),
        ),
    },
    Setting {
        name: "otlp_service_name",
        value_name: "NAME",
        help: "Name of this service in traces",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.otlp_service_name, service_name(value)),
            |config| config.otlp_service_name.clone(),
        ),
    },
    Setting {
        name: "trace_ratio",
        value_name: "RATIO",
        help: "Share of calls without a caller's sampling decision that are traced, from 0 to 1",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.trace_ratio, ratio(value)),
            |config| config.trace_ratio.to_string(),
        ),
    },
];

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::config::ServerConfig;

    /// Page of settings, which people read and `PUMICE_BLESS=1` rewrites.
    fn page() -> String {
        let mut page = String::from(
            "# Settings\n\nA setting is a flag `--name-with-dashes`, a variable `PUMICE_NAME`, or a key `name` of the settings file. \
             Their precedence: [operations.md](operations.md#settings).\n\n| Name | Value | Default | Meaning |\n|---|---|---|---|\n",
        );
        for setting in settings() {
            let default = match setting.name {
                "workers" => "cores − 1".to_owned(),
                _ => format!("`{}`", setting.show(&ServerConfig::default())),
            };
            let (name, value, help) = (setting.name, setting.value_name, setting.help);
            writeln!(page, "| `{name}` | {value} | {default} | {help} |").unwrap();
        }
        page.push_str(
            "\nThe flags `--listen`, `--http` and `--policy` are other names of `--grpc-address`, `--http-address` and `--policy-file`.\n\n\
             ## Fixed limits\n\nErrors name these limits as well. You cannot change them.\n\n| Name | Value | Meaning |\n|---|---|---|\n",
        );
        let limits = ServerConfig::default().limits;
        let fixed = LIMITS.iter().filter(|limit| limit.range.is_none());
        let mut fixed: Vec<_> = fixed
            .map(|limit| (limit.name, (limit.get)(&limits), limit.help))
            .collect();
        fixed.extend(
            crate::limits::FIXED_LIMITS
                .iter()
                .map(|(name, value)| (*name, *value, fixed_limit_help(name))),
        );
        fixed.sort_unstable();
        for (name, value, help) in fixed {
            writeln!(page, "| `{name}` | `{value}` | {help} |").unwrap();
        }
        page
    }

    /// Meaning of a limit that is not a setting.
    fn fixed_limit_help(name: &str) -> &'static str {
        match name {
            "ahead" => "Maximum number of further equal tasks for which Score looks ahead",
            "decoded_bytes" => "Maximum memory of one decoded request, in bytes, without its texts",
            "disk_waits" => "Maximum number of calls that wait for the disk",
            other => panic!("the fixed limit `{other}` has no description for docs/settings.md"),
        }
    }

    #[test]
    fn the_settings_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/settings.md");
        if std::env::var_os("PUMICE_BLESS").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), page());
    }

    #[test]
    fn times_may_have_units_in_every_setting_of_a_time() {
        for setting in settings().filter(|setting| setting.name.ends_with("_ms")) {
            let set = |value: &str| {
                let mut config = ServerConfig::default();
                setting.set(&mut config, vec![value.to_owned()]).map(|()| config)
            };
            assert_eq!(set("30s").unwrap(), set("30000").unwrap(), "{}", setting.name);
            assert_eq!(set("5m").unwrap(), set("300000ms").unwrap(), "{}", setting.name);
            assert_ne!(set("5m").unwrap(), set("5s").unwrap(), "{}", setting.name);
            for wrong in [
                "s",
                "-1s",
                "1.5s",
                "3w",
                "30 s",
                "99999999999999999d",
                "99999999999999999999",
            ] {
                let error = set(wrong).unwrap_err();
                assert!(error.contains(wrong), "{}: {error}", setting.name);
            }
        }
    }

    #[test]
    fn every_default_round_trips() {
        let default = ServerConfig::default();
        for setting in settings() {
            let mut config = ServerConfig::default();
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
