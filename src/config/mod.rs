//! Settings of `serve`: flags, environment and a file, checked before anything starts.

mod cluster_settings;
mod kubernetes_store_settings;
mod plain_text;
mod security_settings;
mod serve_args;
mod setting;
mod setting_origin;
mod settings;
mod socket_access;
mod standard_variables;
mod store_settings;
mod values;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::audit::AuditOptions;
use crate::limits::ServerLimits;
use crate::server::probe::ExpectedPolicy;
use crate::telemetry::{CollectorTls, LogFormat, LogOptions};
use crate::tls::ClientAuth;
use pumice_engine::policy::Compatibility;

pub use cluster_settings::{ClusterSettings, KUBERNETES, list_mode, namespaces};
pub use kubernetes_store_settings::{KubernetesStoreSettings, log_name, namespace as log_namespace};
pub use plain_text::PlainText;
pub use serve_args::{ServeArgs, Settings, SettingsError};
pub use setting::Setting;
pub use setting_origin::{SettingOrigin, SettingProblem};
pub use settings::settings;
pub use socket_access::SocketAccess;
pub use store_settings::{StoreKind, StoreSettings, members as etcd_members, prefix as etcd_prefix};

/// Default address of gRPC.
pub const GRPC_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7461);
/// Default address of probes and metrics.
pub const HTTP_ADDRESS: SocketAddr = pumice_protocol::DEFAULT_METRICS_ADDRESS;

/// Checked settings of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Address of the gRPC services.
    pub grpc_address: SocketAddr,
    /// Unix socket of the gRPC services in addition to the address; `None`: none.
    pub grpc_socket: Option<PathBuf>,
    /// Who may connect to that socket.
    pub grpc_socket_access: SocketAccess,
    /// Address of probes and metrics.
    pub http_address: SocketAddr,
    /// Certificate of the server, with those between it and its authority; `None`: no TLS.
    pub tls_certificate: Option<PathBuf>,
    /// Private key of that certificate.
    pub tls_key: Option<PathBuf>,
    /// Authorities whose certificates callers may show; `None`: callers are asked for none.
    pub tls_client_ca: Option<PathBuf>,
    /// Whether callers of the gRPC services have to show a certificate.
    pub tls_client_auth: ClientAuth,
    /// File of identities; `None`: whoever can connect has all roles.
    pub identities_file: Option<PathBuf>,
    /// Period of the check for changed files of TLS and identities; zero: never.
    pub tls_poll: Duration,
    /// What is served in plain text to other machines.
    pub insecure: PlainText,
    /// Directory of durable state, for the store on disk; `None`: none.
    pub data_dir: Option<PathBuf>,
    /// Store of durable state.
    pub store: StoreSettings,
    /// Policy document to serve as `default`; `None`: the built-in one.
    pub policy_file: Option<PathBuf>,
    /// Period of the check for a changed policy file; zero: only on SIGHUP.
    pub policy_poll: Duration,
    /// Compatibility of a policy file that does not set it.
    pub compatibility: Compatibility,
    /// Cluster that the server watches.
    pub cluster: ClusterSettings,
    /// Sources that must be synced before the server is ready.
    pub expected_sources: Vec<Arc<str>>,
    /// Policies that must be in force before the server is ready.
    pub expected_policies: Vec<ExpectedPolicy>,
    /// Time between `NOT_SERVING` and rejecting new connections.
    pub drain_delay: Duration,
    /// Time that calls under way have to finish.
    pub drain_deadline: Duration,
    /// Silence after which a connection is probed.
    pub keepalive: Duration,
    /// Time that the other side has to reply to the probe.
    pub keepalive_timeout: Duration,
    /// Age at which a connection takes no new calls; zero: no limit.
    pub max_connection_age: Duration,
    /// Time that calls under way on such a connection have to finish.
    pub max_connection_age_grace: Duration,
    /// Limits that callers may reach, such as `calls`.
    pub limits: ServerLimits,
    /// Audit log; `None`: none is written.
    pub audit_log: Option<PathBuf>,
    /// Size at which another file of it begins, in bytes.
    pub audit_log_bytes: u64,
    /// Number of full files of it that are kept.
    pub audit_log_files: usize,
    /// Filter of log lines.
    pub log: String,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Collector that traces are sent to; `None`: none.
    pub otlp_endpoint: Option<String>,
    /// Authority that vouches for the collector; `None`: it is reached in plain text.
    pub otlp_ca: Option<PathBuf>,
    /// Certificate that the collector is shown.
    pub otlp_certificate: Option<PathBuf>,
    /// Private key of that certificate.
    pub otlp_key: Option<PathBuf>,
    /// Name of this service in traces.
    pub otlp_service_name: String,
    /// Share of calls without a caller's sampling decision that are traced, from 0 to 1.
    pub trace_ratio: f64,
    /// Confirms every request. Tests use this to prove that they notice a broken promise.
    #[doc(hidden)]
    #[cfg(debug_assertions)]
    pub skip_checks: bool,
}

impl Default for ServerConfig {
    /// Embedded defaults: loopback, fixed ports, the built-in policy.
    fn default() -> Self {
        Self {
            grpc_address: GRPC_ADDRESS,
            grpc_socket: None,
            grpc_socket_access: SocketAccess::default(),
            http_address: HTTP_ADDRESS,
            tls_certificate: None,
            tls_key: None,
            tls_client_ca: None,
            tls_client_auth: ClientAuth::default(),
            identities_file: None,
            tls_poll: Duration::from_secs(1),
            insecure: PlainText::default(),
            data_dir: None,
            store: StoreSettings::default(),
            policy_file: None,
            policy_poll: Duration::from_millis(500),
            compatibility: Compatibility::default(),
            cluster: ClusterSettings::default(),
            expected_sources: Vec::new(),
            expected_policies: Vec::new(),
            drain_delay: Duration::ZERO,
            drain_deadline: Duration::from_secs(10),
            keepalive: Duration::from_mins(1),
            keepalive_timeout: Duration::from_secs(20),
            max_connection_age: Duration::ZERO,
            max_connection_age_grace: Duration::from_secs(10),
            limits: ServerLimits::default(),
            audit_log: None,
            audit_log_bytes: 16 << 20,
            audit_log_files: 8,
            log: "info".to_owned(),
            log_format: LogFormat::Text,
            otlp_endpoint: None,
            otlp_ca: None,
            otlp_certificate: None,
            otlp_key: None,
            otlp_service_name: "pumice".to_owned(),
            trace_ratio: 1.0,
            #[cfg(debug_assertions)]
            skip_checks: false,
        }
    }
}

impl ServerConfig {
    /// Options of logs and traces.
    pub fn log_options(&self) -> LogOptions<'_> {
        LogOptions {
            filter: &self.log,
            format: self.log_format,
            otlp_endpoint: self.otlp_endpoint.as_deref(),
            otlp_tls: CollectorTls {
                authority: self.otlp_ca.as_deref(),
                certificate: self.otlp_certificate.as_deref(),
                key: self.otlp_key.as_deref(),
            },
            otlp_service_name: &self.otlp_service_name,
            trace_ratio: self.trace_ratio,
        }
    }

    /// Options of the audit log, if there is one.
    pub fn audit_options(&self) -> Option<AuditOptions> {
        Some(AuditOptions {
            path: self.audit_log.clone()?,
            file_bytes: self.audit_log_bytes,
            files: self.audit_log_files,
        })
    }

    /// Settings for a server on free ports of the loopback address.
    pub fn on_free_ports() -> Self {
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        Self {
            grpc_address: any,
            http_address: any,
            ..Self::default()
        }
    }

    /// Lets one connection send the largest request, and take the largest response, beside others.
    fn widen_connections(&mut self) {
        let edge = &mut self.limits.edge;
        let (two_requests, responses) = (edge.request_bytes.saturating_mul(2), edge.response_bytes / 4 * 5);
        edge.connection_receiving_bytes = edge.connection_receiving_bytes.max(two_requests);
        edge.connection_sending_bytes = edge.connection_sending_bytes.max(responses);
    }

    /// Settings that are valid one by one and contradict each other: the setting and the problem.
    fn conflicting_settings(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        if self.grpc_address == self.http_address && self.grpc_address.port() != 0 {
            let message = format!("`{}` is the `grpc_address`, too", self.http_address);
            problems.push(("http_address", message));
        }
        problems.extend(self.unused_cluster_settings());
        problems.extend(self.security_conflicts());
        problems.extend(self.store_conflicts());
        let (sources, most) = (self.awaited_sources().len(), self.limits.state.sources);
        if sources > most {
            let message = format!("{sources} sources; limit `sources` is {most}");
            problems.push(("expect_source", message));
        }
        let (policies, most) = (self.expected_policies.len(), self.limits.state.policy_names);
        if policies > most {
            let message = format!("{policies} policies; limit `policy_names` is {most}");
            problems.push(("expect_policy", message));
        }
        if self.limits.state.session_lease > self.limits.state.session_lease_max {
            let most = self.limits.state.session_lease_max.as_millis();
            let message = format!("longer than the limit `session_lease_max_ms`, which is {most}");
            problems.push(("session_lease_ms", message));
        }
        problems
    }
}
