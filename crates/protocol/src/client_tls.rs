//! TLS and credentials of a client.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use tonic::codegen::http::Uri;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::ConnectError;

/// TLS settings of a client: the CA that it trusts and its own certificate. All files are PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// Authorities that vouch for the server.
    pub authorities: Option<Vec<u8>>,
    /// Certificate that the client shows, with those between it and its authority, and its private key.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// Name that the server's certificate has to have, if it is not the host of the address.
    pub server_name: Option<String>,
}

impl fmt::Debug for ClientTls {
    /// Shows no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ClientTls");
        shown.field("server_name", &self.server_name);
        shown.field("has_certificate", &self.certificate.is_some());
        shown.finish_non_exhaustive()
    }
}

/// How a client connects to a server.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Address of the server, such as `127.0.0.1:7461`, `https://pumice.example:7461` or `unix:/run/pumice.sock`. The
    /// default scheme is `https://` with TLS settings and `http://` without.
    pub server: String,
    /// TLS of an address with `https://`.
    pub tls: ClientTls,
    /// Bearer token that is sent with each call.
    pub token: Option<String>,
}

impl fmt::Debug for ConnectOptions {
    /// Shows no token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ConnectOptions");
        shown.field("server", &self.server).field("tls", &self.tls);
        shown.field("has_token", &self.token.is_some());
        shown.finish()
    }
}

impl ConnectOptions {
    /// Options for a server address, with defaults for all other options.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            ..Self::default()
        }
    }

    /// The address with its scheme.
    pub(crate) fn url(&self) -> Result<String, ConnectError> {
        let server = &self.server;
        let url = if server.contains("://") || server.starts_with("unix:") {
            server.clone()
        } else if self.tls == ClientTls::default() {
            format!("http://{server}")
        } else {
            format!("https://{server}")
        };
        if url.starts_with("https:") && self.tls.authorities.is_none() {
            return Err(ConnectError::Address(format!(
                "{url}: name the authority that vouches for the server with --ca FILE (PUMICE_CA, or `ca` in a profile); the \
                 system's own are in a file such as /etc/ssl/certs/ca-certificates.crt"
            )));
        }
        if !url.starts_with("https:") && self.tls != ClientTls::default() {
            return Err(ConnectError::Address(format!(
                "{url}: authority, certificate and server name belong to TLS; write https://, or leave them out"
            )));
        }
        if self.token.is_some() && url.starts_with("http:") && !is_loopback(&url) {
            return Err(ConnectError::Address(format!(
                "{url}: everybody on the way could read the token; use https://, a Unix socket, or an address of this machine"
            )));
        }
        Ok(url)
    }
}

fn is_loopback(url: &str) -> bool {
    let host = url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
    host.is_some_and(|host| {
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

impl ClientTls {
    /// Configuration of a channel.
    pub(crate) fn channel_config(&self) -> ClientTlsConfig {
        let mut config = ClientTlsConfig::new();
        if let Some(authorities) = &self.authorities {
            config = config.ca_certificate(Certificate::from_pem(authorities));
        }
        if let Some((certificate, key)) = &self.certificate {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        match &self.server_name {
            Some(name) => config.domain_name(name.clone()),
            None => config,
        }
    }

    /// Secures a connection to probes and metrics.
    ///
    /// # Errors
    /// A file cannot be used, or the server has no certificate that the authorities vouch for.
    pub async fn secure(&self, stream: TcpStream, host: &str) -> io::Result<TlsStream<TcpStream>> {
        let name = self.server_name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        let config = self.client_config().map_err(io::Error::other)?;
        tokio_rustls::TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }

    fn client_config(&self) -> Result<ClientConfig, String> {
        let said = |error: &dyn fmt::Display| error.to_string();
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(self.authorities.as_deref().unwrap_or_default()) {
            let authority = authority.map_err(|error| said(&error))?;
            roots.add(authority).map_err(|error| said(&error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| said(&error))?
            .with_root_certificates(roots);
        let Some((certificate, key)) = &self.certificate else {
            return Ok(builder.with_no_client_auth());
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
        let chain = chain.map_err(|error| said(&error))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| said(&error))?;
        builder.with_client_auth_cert(chain, key).map_err(|error| said(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(server: &str, with_tls: bool, with_token: bool) -> ConnectOptions {
        let tls = ClientTls {
            authorities: with_tls.then(Vec::new),
            ..ClientTls::default()
        };
        ConnectOptions {
            server: server.to_owned(),
            tls,
            token: with_token.then(|| "t".to_owned()),
        }
    }

    #[test]
    fn addresses_may_omit_the_scheme() {
        let url = |server, tls, token| options(server, tls, token).url();
        assert_eq!(url("lab:7461", false, false).unwrap(), "http://lab:7461");
        assert_eq!(url("lab:7461", true, true).unwrap(), "https://lab:7461");
        assert_eq!(url("http://lab:7461", false, false).unwrap(), "http://lab:7461");
        assert_eq!(
            url("unix:/run/pumice.sock", false, true).unwrap(),
            "unix:/run/pumice.sock"
        );
        for local in ["127.0.0.1:7461", "localhost:1", "http://[::1]:7461"] {
            assert!(url(local, false, true).is_ok(), "{local}");
        }
    }

    #[test]
    fn what_would_not_be_secure_is_refused() {
        for (server, tls, token, said) in [
            ("https://lab:7461", false, false, "--ca FILE"),
            ("http://lab:7461", true, false, "write https://"),
            ("unix:/run/pumice.sock", true, false, "write https://"),
            ("lab:7461", false, true, "could read the token"),
            ("http://127.0.0.1.example:7461", false, true, "could read the token"),
        ] {
            let refused = options(server, tls, token).url().unwrap_err().to_string();
            assert!(refused.contains(said), "{server}: {refused}");
        }
    }
}
