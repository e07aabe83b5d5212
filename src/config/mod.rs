//! Settings of `serve`: flags, environment and a file, checked before anything starts.

mod serve_args;
mod settings;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::policy::Compatibility;
use crate::server::limits::ServerLimits;
use crate::server::probe::ExpectedPolicy;
use crate::telemetry::LogFormat;

pub use serve_args::{ServeArgs, SettingOrigin, SettingProblem, Settings, SettingsError};
pub use settings::{Setting, settings};

/// Where gRPC is served, unless said otherwise.
pub const GRPC_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7461);
/// Where probes and metrics are served, unless said otherwise.
pub const HTTP_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7462);

/// Checked settings of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Address of the gRPC services.
    pub grpc_address: SocketAddr,
    /// Unix socket of the gRPC services, beside the address; `None`: none.
    pub grpc_socket: Option<PathBuf>,
    /// Address of probes and metrics.
    pub http_address: SocketAddr,
    /// Directory of what must outlive the process; `None`: kept in memory only.
    pub data_dir: Option<PathBuf>,
    /// Policy document to serve as `default`; `None`: the built-in one.
    pub policy_file: Option<PathBuf>,
    /// How often the policy file is looked at; zero: only when told to.
    pub policy_poll: Duration,
    /// How to read a policy file that does not say it.
    pub compatibility: Compatibility,
    /// Sources that must be synced before the server is ready.
    pub expected_sources: Vec<Arc<str>>,
    /// Policies that must be in force before the server is ready.
    pub expected_policies: Vec<ExpectedPolicy>,
    /// Time between `NOT_SERVING` and refusing new connections.
    pub drain_delay: Duration,
    /// Time that calls under way get to finish.
    pub drain_deadline: Duration,
    /// A connection that is silent for so long is asked whether it lives.
    pub keepalive: Duration,
    /// Time that it gets to answer.
    pub keepalive_timeout: Duration,
    /// Every bound.
    pub limits: ServerLimits,
    /// What to log.
    pub log: String,
    /// How to log.
    pub log_format: LogFormat,
    /// Where traces are sent; `None`: nowhere.
    pub otlp_endpoint: Option<String>,
    /// Share of calls without a caller's decision that are traced, from 0 to 1.
    pub trace_ratio: f64,
    /// Promises whatever is asked for, so that tests of the promise can be seen to fail.
    #[doc(hidden)]
    #[cfg(debug_assertions)]
    pub skip_checks: bool,
}

impl Default for ServerConfig {
    /// The embedded defaults: loopback, fixed ports, the built-in policy.
    fn default() -> Self {
        Self {
            grpc_address: GRPC_ADDRESS,
            grpc_socket: None,
            http_address: HTTP_ADDRESS,
            data_dir: None,
            policy_file: None,
            policy_poll: Duration::from_millis(500),
            compatibility: Compatibility::default(),
            expected_sources: Vec::new(),
            expected_policies: Vec::new(),
            drain_delay: Duration::ZERO,
            drain_deadline: Duration::from_secs(10),
            keepalive: Duration::from_mins(1),
            keepalive_timeout: Duration::from_secs(20),
            limits: ServerLimits::default(),
            log: "info".to_owned(),
            log_format: LogFormat::Text,
            otlp_endpoint: None,
            trace_ratio: 1.0,
            #[cfg(debug_assertions)]
            skip_checks: false,
        }
    }
}

impl ServerConfig {
    /// Settings for a server on free ports of the loopback address.
    pub fn on_free_ports() -> Self {
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        Self {
            grpc_address: any,
            http_address: any,
            ..Self::default()
        }
    }

    /// What settings that are right one by one are wrong about together: the setting and the fault.
    fn conflicting_settings(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        if self.grpc_address == self.http_address && self.grpc_address.port() != 0 {
            let message = format!("`{}` is the `grpc_address`, too", self.http_address);
            problems.push(("http_address", message));
        }
        let (sources, most) = (self.expected_sources.len(), self.limits.state.sources);
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
            let message = "longer than `session_lease_max_ms`".to_owned();
            problems.push(("session_lease_ms", message));
        }
        problems
    }
}
