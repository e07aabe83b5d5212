//! Which listeners may serve plain text to other machines, and what contradicts it.

use std::net::SocketAddr;

use super::ServerConfig;
use crate::tls::TlsPaths;

/// What is served in plain text to other machines.
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

impl PlainText {
    /// Value of a setting.
    ///
    /// # Errors
    /// There is no such value.
    pub fn from_name(name: &str) -> Result<Self, String> {
        match name {
            "false" => Ok(Self::None),
            "http" => Ok(Self::Http),
            "true" => Ok(Self::All),
            _ => Err(format!(
                "`{name}` is neither `false`, `http` (probes and metrics) nor `true`"
            )),
        }
    }

    /// Value of a setting.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "false",
            Self::Http => "http",
            Self::All => "true",
        }
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
        let mut problems = Vec::new();
        let (certificate, key) = (self.tls_certificate.is_some(), self.tls_key.is_some());
        if certificate && !key {
            let message = "there is no `tls_key` with the private key of this certificate".to_owned();
            problems.push(("tls_certificate", message));
        }
        if key && !certificate {
            problems.push((
                "tls_key",
                "there is no `tls_certificate` that this key belongs to".to_owned(),
            ));
        }
        if self.tls_client_ca.is_some() && !certificate {
            let message =
                "callers show certificates over TLS only: set `tls_certificate` and `tls_key`, too".to_owned();
            problems.push(("tls_client_ca", message));
        }
        let secure = self
            .otlp_endpoint
            .as_deref()
            .is_some_and(|endpoint| endpoint.starts_with("https:"));
        if secure && self.otlp_ca.is_none() {
            let message = "name the authority that vouches for this collector with `otlp_ca`".to_owned();
            problems.push(("otlp_endpoint", message));
        }
        if self.otlp_ca.is_some() && self.otlp_endpoint.is_some() && !secure {
            let message = "an authority belongs to a collector with https://".to_owned();
            problems.push(("otlp_ca", message));
        }
        if self.otlp_certificate.is_some() != self.otlp_key.is_some() {
            let message = "`otlp_certificate` and `otlp_key` belong together, and one of them is missing".to_owned();
            problems.push(("otlp_certificate", message));
        }
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
