//! Settings of a server, without the settings of its store and of its cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::format::{Format, ListFormat, TIME, ValueRule, optional_text, path, text, word};
use super::setting::{Setting, SettingKind, settings};
use super::settings::{ACCESS, COMMON, POLICY, STOPPING, TRACES};
use super::standard_variables::OtelVariables;
use super::values::{address, documents, endpoint, file_mode, log_filter, policies, ratio, sources};
use super::{ClusterSettings, GRPC_ADDRESS, HTTP_ADDRESS, PlainText, StoreSettings, TestDoors};
use crate::limits::ServerLimits;
use crate::telemetry::LogFormat;
use crate::tls::ClientAuth;
use pumice_engine::policy::Compatibility;

const FILE: Format<Option<PathBuf>> = path("FILE");
const ADDRESS: Format<SocketAddr> = Format {
    value_name: "HOST:PORT",
    rule: ValueRule::Pattern(":[0-9]+$"),
    read: address,
    show: SocketAddr::to_string,
};
const MODE: Format<u32> = Format {
    value_name: "MODE",
    rule: ValueRule::Pattern("^0o?[0-7]{1,3}$"),
    read: file_mode,
    show: |mode| format!("0{mode:o}"),
};
const COMPATIBILITY: Format<Compatibility> = Format {
    value_name: "NAME",
    rule: ValueRule::Words(|| Compatibility::ALL.map(Compatibility::name).to_vec()),
    read: |value| {
        Compatibility::from_name(value).ok_or_else(|| {
            format!(
                "`{value}` is not one of {}",
                Compatibility::ALL.map(Compatibility::name).join(", ")
            )
        })
    },
    show: |value| value.name().to_owned(),
};
const RATIO: Format<f64> = Format {
    value_name: "RATIO",
    rule: ValueRule::Ratio,
    read: ratio,
    show: f64::to_string,
};

settings! {
    /// Checked settings of a server.
    struct ServerConfig at [];
    static SERVER_SETTINGS;

    in COMMON {
        "grpc_address" grpc_address: SocketAddr = GRPC_ADDRESS, ADDRESS,
            "Address of the gRPC services, as 127.0.0.1:7461, localhost:7461, or :7461 for all IPv4 addresses; port 0: any free port";
        "http_address" http_address: SocketAddr = HTTP_ADDRESS, ADDRESS,
            "Address of /livez, /readyz and /metrics, of calls as JSON and of the console, in the same notations; port 0: any free port";
        "insecure" insecure: PlainText = PlainText::None, word::<PlainText>("WHAT"),
            "Plain text on addresses that other machines reach: `false`, `http` (probes and metrics) or `true` (everything); with TLS, connections with and without it are served then";
        "tls_certificate" tls_certificate: Option<PathBuf> = None, FILE,
            "Certificate of the server, with those between it and its authority (PEM), for the gRPC services, probes and metrics; empty: no TLS";
        "tls_key" tls_key: Option<PathBuf> = None, FILE,
            "Private key of that certificate (PEM)";
        "tls_client_ca" tls_client_ca: Option<PathBuf> = None, FILE,
            "Authorities whose certificates callers show (PEM); empty: callers are asked for none";
        "identities_file" identities_file: Option<PathBuf> = None, FILE,
            "File of identities with their roles (docs/tasks/roles.md); empty: every client that can connect has all roles";
        "policy_file" policy_file: Option<PathBuf> = None, FILE,
            "Policy document to put in force as `default`; empty: the built-in policy";
        "expect_source" expected_sources: Vec<Arc<str>> = Vec::new(), ListFormat::new("NAME", sources),
            "Source that must be synced for the server to be ready; may be given several times";
        "data_dir" data_dir: Option<PathBuf> = None, path("DIR"),
            "Directory of durable state: reservations, committed placements, versions of policies; empty: this state is held in memory and lost with the process";
        "drain_delay_ms" drain_delay: Duration = Duration::ZERO, TIME,
            "Time between reporting NOT_SERVING and rejecting new connections";
        "log" log: String = "info".to_owned(), text("FILTER").read_by(log_filter),
            "Filter of log lines: a level such as `info`, or directives such as `pumice=debug`";
        "log_format" log_format: LogFormat = LogFormat::Text, word::<LogFormat>("FORMAT"),
            "Format of log lines: `text`, or `json` for one object per line";
    }
    in ACCESS {
        "grpc_socket" grpc_socket: Option<PathBuf> = None, path("PATH"),
            "Unix socket of the gRPC services, in addition to the address; empty: none";
        "http_json" http_json: bool = true, word::<bool>("BOOL"),
            "`false`: the HTTP port serves neither calls as JSON (docs/reference/json.md) nor the console under /console/";
        "tls_client_auth" tls_client_auth: ClientAuth = ClientAuth::Required, word::<ClientAuth>("NAME"),
            "Whether callers of the gRPC services show a certificate of `tls_client_ca`: `required` or `optional`; of probes and metrics it is optional";
        "audit_log" audit_log: Option<PathBuf> = None, FILE,
            "Audit log: changes of policies, releases, forgotten sources and rejected calls, each with its caller, as JSON lines; empty: none";
        "grpc_socket_mode" grpc_socket_mode: u32 = 0o666, MODE,
            "Mode of the Unix socket, octal: connecting takes the permission to write; with 0666 the permissions of its directory decide";
    }
    in POLICY {
        "policy_poll_ms" policy_poll: Duration = Duration::from_millis(500), TIME,
            "Period of the check for a changed policy file; 0: only on SIGHUP";
        "compatibility" compatibility: Compatibility = Compatibility::default(), COMPATIBILITY,
            "Compatibility of a policy file that does not set it: `corrected` or `upstream`";
        "expect_policy" expected_policies: Vec<Arc<str>> = Vec::new(), ListFormat::new("NAME", policies),
            "Policy that must be in force before the server is ready; may be given several times";
        "expect_policy_sha256" expected_documents: Vec<Arc<str>> = Vec::new(), ListFormat::new("SHA256", documents),
            "SHA-256 of a document that must be in force before the server is ready, as a policy of `expect_policy` if that is set; may be given several times";
    }
    in STOPPING {
        "drain_deadline_ms" drain_deadline: Duration = Duration::from_secs(10), TIME,
            "Time that calls under way have to finish when the server stops";
        "max_connection_age_ms" max_connection_age: Duration = Duration::ZERO, TIME,
            "Age at which a connection accepts no new calls and its caller opens another, for example to rebalance behind a load balancer; 0: no limit";
    }
    in TRACES {
        "otlp_endpoint" otlp_endpoint: Option<String> = None, optional_text("URL").read_by(endpoint),
            "OpenTelemetry collector that traces are sent to, over gRPC; empty: none";
        "otlp_ca" otlp_ca: Option<PathBuf> = None, FILE,
            "Authority that vouches for a collector with https:// (PEM)";
        "trace_ratio" trace_ratio: f64 = 1.0, RATIO,
            "Share of calls without a caller's sampling decision that are traced, from 0 to 1";
    }
    beside {
        /// Values of the standard variables of OpenTelemetry.
        otel: OtelVariables = OtelVariables::default();
        /// Store of durable state.
        store: StoreSettings = StoreSettings::default();
        /// Cluster that the server watches.
        cluster: ClusterSettings = ClusterSettings::default();
        /// Limits that callers may reach, such as `calls`.
        limits: ServerLimits = ServerLimits::default();
        /// Changes that only tests make.
        test_doors: TestDoors = TestDoors::default();
    }
}
