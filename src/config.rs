//! Settings of `serve`: flags and environment, checked before anything starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::policy::Compatibility;
use crate::server::MessageLimits;
use crate::state::Limits;
use crate::telemetry::LogFormat;

/// Where gRPC is served, unless said otherwise.
pub const GRPC_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7461);
/// Where probes and metrics are served, unless said otherwise.
pub const HTTP_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7462);

const MIB: usize = 1 << 20;

/// Flags of `serve`. Each may stand in the environment instead; a flag wins.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Address of the gRPC services; port 0: any free one
    #[arg(long, visible_alias = "listen", env = "PUMICE_GRPC_ADDRESS", value_name = "IP:PORT", default_value_t = GRPC_ADDRESS)]
    pub grpc_address: SocketAddr,
    /// Address of /livez, /readyz and /metrics; port 0: any free one
    #[arg(long, visible_alias = "http", env = "PUMICE_HTTP_ADDRESS", value_name = "IP:PORT", default_value_t = HTTP_ADDRESS)]
    pub http_address: SocketAddr,
    /// Policy document to serve under the name `default`; without one the built-in policy serves
    #[arg(long, visible_alias = "policy", env = "PUMICE_POLICY_FILE", value_name = "FILE")]
    pub policy_file: Option<PathBuf>,
    /// How to read a policy file that does not say it: `corrected` or `upstream`
    #[arg(long, env = "PUMICE_COMPATIBILITY", default_value = "corrected", value_parser = compatibility)]
    pub compatibility: Compatibility,
    /// Source that must have sent a snapshot before the server is ready; may be given several times
    #[arg(
        long = "expect-source",
        env = "PUMICE_EXPECT_SOURCE",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub expected_sources: Vec<String>,
    /// Time between telling callers to go elsewhere and refusing new connections, in milliseconds
    #[arg(long, env = "PUMICE_DRAIN_DELAY_MS", value_name = "MS", default_value_t = 0)]
    pub drain_delay_ms: u64,
    /// Time that calls under way get to finish when the server stops, in milliseconds
    #[arg(long, env = "PUMICE_DRAIN_DEADLINE_MS", value_name = "MS", default_value_t = 10_000)]
    pub drain_deadline_ms: u64,
    /// Largest request, in MiB
    #[arg(long, env = "PUMICE_REQUEST_MIB", value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=2_047))]
    pub request_mib: u16,
    /// Largest answer, in MiB
    #[arg(long, env = "PUMICE_ANSWER_MIB", value_name = "MIB", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=2_047))]
    pub answer_mib: u16,
    /// What to log: a level such as `info`, or directives such as `pumice=debug`
    #[arg(long, env = "PUMICE_LOG", value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// How to log
    #[arg(long, env = "PUMICE_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

fn compatibility(name: &str) -> Result<Compatibility, String> {
    Compatibility::from_name(name).ok_or_else(|| "neither `upstream` nor `corrected`".to_owned())
}

/// Checked settings of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of the gRPC services.
    pub grpc_address: SocketAddr,
    /// Address of probes and metrics.
    pub http_address: SocketAddr,
    /// Policy document to serve as `default`; `None`: the built-in one.
    pub policy_file: Option<PathBuf>,
    /// How to read a policy file that does not say it.
    pub compatibility: Compatibility,
    /// Sources that must be synced before the server is ready.
    pub expected_sources: Vec<Arc<str>>,
    /// Time between `NOT_SERVING` and refusing new connections.
    pub drain_delay: Duration,
    /// Time that calls under way get to finish.
    pub drain_deadline: Duration,
    /// Sizes of messages.
    pub messages: MessageLimits,
    /// Bounds on state.
    pub limits: Limits,
}

impl Default for Config {
    /// The embedded defaults: loopback, fixed ports, the built-in policy.
    fn default() -> Self {
        Self {
            grpc_address: GRPC_ADDRESS,
            http_address: HTTP_ADDRESS,
            policy_file: None,
            compatibility: Compatibility::default(),
            expected_sources: Vec::new(),
            drain_delay: Duration::ZERO,
            drain_deadline: Duration::from_secs(10),
            messages: MessageLimits::default(),
            limits: Limits::default(),
        }
    }
}

impl Config {
    /// Settings for a server on free ports of the loopback address.
    pub fn on_free_ports() -> Self {
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        Self {
            grpc_address: any,
            http_address: any,
            ..Self::default()
        }
    }
}

/// Settings that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Both servers on one port.
    #[error("--grpc-address and --http-address are both {0}")]
    SameAddress(SocketAddr),
    /// A source without a name.
    #[error("--expect-source needs a name")]
    EmptySource,
    /// More sources than the state takes.
    #[error("--expect-source names {given} sources, the limit is {limit}")]
    TooManySources {
        /// Sources named.
        given: usize,
        /// The limit.
        limit: usize,
    },
}

impl TryFrom<ServeArgs> for Config {
    type Error = ConfigError;

    fn try_from(args: ServeArgs) -> Result<Self, ConfigError> {
        let ServeArgs {
            grpc_address,
            http_address,
            policy_file,
            compatibility,
            expected_sources,
            drain_delay_ms,
            drain_deadline_ms,
            request_mib,
            answer_mib,
            log: _,
            log_format: _,
        } = args;
        if grpc_address == http_address && grpc_address.port() != 0 {
            return Err(ConfigError::SameAddress(grpc_address));
        }
        if expected_sources.iter().any(String::is_empty) {
            return Err(ConfigError::EmptySource);
        }
        let limits = Limits::default();
        if expected_sources.len() > limits.sources {
            return Err(ConfigError::TooManySources {
                given: expected_sources.len(),
                limit: limits.sources,
            });
        }
        Ok(Self {
            grpc_address,
            http_address,
            policy_file,
            compatibility,
            expected_sources: expected_sources.into_iter().map(Arc::from).collect(),
            drain_delay: Duration::from_millis(drain_delay_ms),
            drain_deadline: Duration::from_millis(drain_deadline_ms),
            messages: MessageLimits {
                request_bytes: usize::from(request_mib) * MIB,
                answer_bytes: usize::from(answer_mib) * MIB,
            },
            limits,
        })
    }
}
