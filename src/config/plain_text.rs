//! Which listeners may serve plain text to other machines, and what contradicts it.

use std::net::SocketAddr;

use super::ServerConfig;
use super::format::Words;
use super::store_settings::problems_of;
use crate::tls::TlsPaths;

/// Services in plain text for other machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlainText {
    /// Nothing.
    #[default]
    None,
    /// Probes and metrics.
    Http,
    /// Everything. With TLS, connections with and without it are served.
    All,
}

impl Words for PlainText {
    const WORDS: &'static [(&'static str, Self)] = &[("false", Self::None), ("http", Self::Http), ("true", Self::All)];
}

impl PlainText {
    /// Value of the setting.
    pub(crate) fn name(self) -> &'static str {
        self.word()
    }

    /// True if the gRPC services may be served in plain text.
    pub fn allows_grpc(self) -> bool {
        self == Self::All
    }

    /// True if probes and metrics may be served in plain text.
    pub fn allows_http(self) -> bool {
        self != Self::None
    }
}

impl ServerConfig {
    /// Files of TLS, if there is TLS.
    pub fn tls_paths(&self) -> Option<TlsPaths> {
        Some(TlsPaths {
            certificate: self.tls_certificate.clone()?,
            key: self.tls_key.clone()?,
            client_authorities: self.tls_client_ca.clone(),
            client_auth: self.tls_client_auth,
        })
    }

    /// Listeners that serve plain text to other machines: the setting and the address of each.
    pub(crate) fn open_listeners(&self) -> Vec<(&'static str, SocketAddr)> {
        let has_tls = self.tls_paths().is_some();
        let listeners = [
            ("grpc_address", self.grpc_address, self.insecure.allows_grpc()),
            ("http_address", self.http_address, self.insecure.allows_http()),
        ];
        let open = listeners
            .into_iter()
            .filter(|(_, address, allowed)| !address.ip().is_loopback() && (*allowed || !has_tls));
        open.map(|(setting, address, _)| (setting, address)).collect()
    }

    /// Contradictions among the settings of TLS, and listeners that other machines reach without it: the setting and the
    /// problem.
    pub(super) fn security_conflicts(&self) -> Vec<(&'static str, String)> {
        let (certificate, key) = (self.tls_certificate.is_some(), self.tls_key.is_some());
        let endpoint = self.otlp_endpoint.as_deref();
        let is_secure = endpoint.is_some_and(|endpoint| endpoint.starts_with("https:"));
        let mut problems = problems_of([
            (
                certificate && !key,
                "tls_certificate",
                "there is no `tls_key` with the private key of this certificate",
            ),
            (
                key && !certificate,
                "tls_key",
                "there is no `tls_certificate` that this key belongs to",
            ),
            (
                self.tls_client_ca.is_some() && !certificate,
                "tls_client_ca",
                "callers show certificates over TLS only: set `tls_certificate` and `tls_key` as well",
            ),
            (
                is_secure && self.otlp_ca.is_none(),
                "otlp_endpoint",
                "name the authority that vouches for this collector with `otlp_ca`",
            ),
            (
                self.otlp_ca.is_some() && endpoint.is_some() && !is_secure,
                "otlp_ca",
                "an authority belongs to a collector with https://",
            ),
            (
                endpoint.is_some() && self.otel.certificate.is_some() != self.otel.key.is_some(),
                "otlp_endpoint",
                "the collector needs both OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY, or neither",
            ),
        ]);
        for (setting, address) in self.open_listeners() {
            let allowed = match setting {
                "grpc_address" => self.insecure.allows_grpc(),
                _ => self.insecure.allows_http(),
            };
            if !allowed {
                let value = if setting == "grpc_address" { "true" } else { "http" };
                let message = format!(
                    "other machines reach `{address}`, and there is no TLS: set `tls_certificate` and `tls_key` (`pumice certs \
                     init DIR` makes some), listen on 127.0.0.1, or allow plain text with `insecure: {value}`"
                );
                problems.push((setting, message));
            }
        }
        problems
    }
}
