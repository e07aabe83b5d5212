//! Guards of the listeners: TLS, identities and the audit log. Also warnings about open listeners.

use std::sync::Arc;

use tokio::sync::watch;

use super::ServeError;
use super::listen::ListenerSecurity;
use super::server_stream::HandshakeTable;
use crate::access::{AccessKeeper, AccessStart};
use crate::audit::AuditLog;
use crate::config::ServerConfig;
use crate::server::{CallExposure, HangupSignal, PolicyFile, watch_policy_file};
use crate::telemetry::Metrics;
use crate::tls::{ClientAuth, TlsKeeper, TlsStart};
use pumice_state::SharedState;

/// Keepers of the watched files: the policy file, TLS and identities.
pub(super) type FileKeepers = (Option<PolicyFile>, Option<Arc<TlsKeeper>>, Arc<AccessKeeper>);

/// Files that are followed while the server runs.
#[derive(Debug)]
pub(super) struct WatchedFiles {
    /// Policy file, and its content that was loaded.
    pub(super) policy: Option<(PolicyFile, Arc<str>)>,
    /// Certificate, key and client CA; `None`: plain text.
    pub(super) tls: Option<TlsStart>,
    /// Files of identities.
    pub(super) access: AccessStart,
    /// Signal to read the policy file again.
    pub(super) hangup: HangupSignal,
}

impl WatchedFiles {
    /// Copies of the keepers, for other parts of the program.
    pub(super) fn keepers(&self) -> FileKeepers {
        let policy = self.policy.as_ref().map(|(file, _)| file.clone());
        let tls = self.tls.as_ref().map(|tls| Arc::clone(&tls.keeper));
        (policy, tls, Arc::clone(&self.access.keeper))
    }

    /// Follows the files until the server drains.
    pub(super) fn watch(self, state: Arc<SharedState>, metrics: &Arc<Metrics>, draining: &watch::Receiver<bool>) {
        pumice_state::tasks::spawn(self.access.watch_files(draining.clone()));
        if let Some(tls) = self.tls {
            pumice_state::tasks::spawn(tls.watch_files(draining.clone()));
        }
        let (metrics, draining) = (Arc::clone(metrics), draining.clone());
        pumice_state::tasks::spawn(watch_policy_file(self.policy, self.hangup, state, metrics, draining));
    }
}

/// Opens the audit log, if there is one.
pub(super) fn open_audit(config: &ServerConfig, metrics: &Arc<Metrics>) -> Result<Arc<AuditLog>, ServeError> {
    let options = config.audit_options();
    let options_of_logs = config.log_options();
    let collector = options_of_logs.otlp_endpoint.map(|endpoint| {
        let service = options_of_logs.otlp_service_name;
        ((endpoint, options_of_logs.otlp_tls), service)
    });
    AuditLog::open(options.as_ref(), collector, Arc::clone(metrics)).map_err(|source| ServeError::Audit {
        path: config.audit_log.clone().unwrap_or_default(),
        source,
    })
}

/// Loads certificate, key and client authorities, if there is TLS.
pub(super) fn load_tls(config: &ServerConfig, metrics: &Arc<Metrics>) -> Result<Option<TlsStart>, ServeError> {
    let paths = config.tls_paths();
    let load = |paths| TlsKeeper::load(paths, config.limits.edge.tls_poll, Arc::clone(metrics));
    paths.map(load).transpose().map_err(ServeError::Tls)
}

/// Warns of addresses at which other machines are served in plain text, which was asked for.
pub(super) fn warn_of_open_addresses(config: &ServerConfig) {
    for (setting, address) in config.open_listeners() {
        let insecure = config.insecure.name();
        tracing::warn!(
            setting,
            %address,
            insecure,
            "everybody on the network can read what is sent to and from this address, and change it: it is served in plain \
             text because `insecure` says so; set `tls_certificate` and `tls_key` instead"
        );
    }
}

/// Warns of addresses at which everybody on the network has all roles.
pub(super) fn warn_of_unknown_callers(config: &ServerConfig, identities: &AccessKeeper) {
    let is_open = !config.grpc_address.ip().is_loopback();
    let knows_callers = config.tls_client_ca.is_some() && config.tls_client_auth == ClientAuth::Required;
    if is_open && !identities.is_restricted() && (!knows_callers || config.insecure.allows_grpc()) {
        tracing::warn!(
            address = %config.grpc_address,
            "everybody who reaches this address has all roles: set `identities_file`, or ask callers for certificates \
             (`tls_client_ca`)"
        );
    }
}

/// Connections on which the gRPC services are served, and so calls over HTTP, and whether callers are known.
pub(super) fn call_exposure(config: &ServerConfig) -> CallExposure {
    CallExposure {
        is_remote: !config.grpc_address.ip().is_loopback(),
        takes_plain: config.tls_paths().is_none() || config.insecure.allows_grpc(),
        needs_certificate: config.tls_client_ca.is_some() && config.tls_client_auth == ClientAuth::Required,
        has_identities: config.identities_file.is_some(),
    }
}

/// TLS of the gRPC services, and of probes and metrics.
pub(super) fn listener_security(
    config: &ServerConfig,
    keeper: Option<Arc<TlsKeeper>>,
    metrics: &Arc<Metrics>,
) -> (Option<ListenerSecurity>, Option<ListenerSecurity>) {
    let edge = &config.limits.edge;
    let security = keeper.map(|keeper| ListenerSecurity {
        keeper,
        plain_too: config.insecure.allows_grpc(),
        handshake_time: edge.handshake,
        metrics: Arc::clone(metrics),
        handshakes: HandshakeTable::new(edge.handshakes, Arc::clone(metrics)),
    });
    let http = security.clone().map(|security| ListenerSecurity {
        plain_too: config.insecure.allows_http(),
        handshake_time: edge.http_header,
        ..security
    });
    (security, http)
}
