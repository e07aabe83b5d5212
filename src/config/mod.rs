//! Settings of `serve`: flags, environment and a file, checked before anything starts.

mod cluster_settings;
mod format;
mod plain_text;
mod serve_args;
mod server_config;
mod setting;
mod setting_origin;
mod settings;
mod standard_variables;
mod store_settings;
mod values;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::audit::AuditOptions;
use crate::telemetry::{CollectorTls, LogFormat, LogOptions};
use crate::tls::ClientAuth;

pub use cluster_settings::{ClusterSettings, KUBERNETES, namespaces};
pub use format::ValueRule;
use format::Words;
pub use plain_text::PlainText;
pub use serve_args::{ServeArgs, Settings, SettingsError};
pub use server_config::ServerConfig;
pub use setting::{Setting, SettingGroup};
pub use setting_origin::{SettingOrigin, SettingProblem};
pub use settings::settings;
pub use standard_variables::OtelVariables;
pub use store_settings::{
    EtcdSettings, KubernetesStoreSettings, StoreKind, StoreSettings, log_name, log_namespace, members as etcd_members,
    prefix as etcd_prefix,
};

/// Changes to a server that only tests make. A program for users has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestDoors {
    /// Confirms every request. Tests use this to prove that they notice a broken promise.
    #[doc(hidden)]
    #[cfg(feature = "test-doors")]
    pub skip_checks: bool,
}

/// Default address of gRPC.
pub const GRPC_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7461);
/// Default address of probes and metrics.
pub const HTTP_ADDRESS: SocketAddr = pumice_protocol::DEFAULT_METRICS_ADDRESS;

impl Words for LogFormat {
    const WORDS: &'static [(&'static str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

impl Words for ClientAuth {
    const WORDS: &'static [(&'static str, Self)] = &[("optional", Self::Optional), ("required", Self::Required)];
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
                certificate: self.otel.certificate.as_deref(),
                key: self.otel.key.as_deref(),
            },
            otlp_service_name: &self.otel.service_name,
            trace_ratio: self.trace_ratio,
        }
    }

    /// Options of the audit log, if there is one.
    pub fn audit_options(&self) -> Option<AuditOptions> {
        Some(AuditOptions {
            path: self.audit_log.clone()?,
            file_bytes: self.limits.edge.audit_file_bytes,
            files: self.limits.edge.audit_files,
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
        edge.connection_message_bytes = edge.connection_message_bytes.max(two_requests).max(responses);
    }

    /// Settings that are valid one by one and contradict each other: the setting and the problem.
    fn conflicting_settings(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        if self.grpc_address == self.http_address && self.grpc_address.port() != 0 {
            let message = format!("`{}` is also the `grpc_address`", self.http_address);
            problems.push(("http_address", message));
        }
        problems.extend(self.unused_settings());
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
        problems
    }

    /// Settings that have no effect with the others: the setting and the condition.
    fn unused_settings(&self) -> impl Iterator<Item = (&'static str, String)> {
        let default = Self::default();
        settings().filter_map(move |setting| {
            let (condition, holds) = setting.group.condition?;
            let is_unused = setting.show(self) != setting.show(&default) && !holds(self);
            is_unused.then(|| (setting.name, format!("has an effect with {condition} only")))
        })
    }
}
