//! The files of TLS, and what is made of them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use tokio_rustls::TlsAcceptor;

use super::certificate::not_after;
use crate::file_looks::FileError;

/// Largest file, in bytes.
pub(crate) const FILE_BYTES: usize = 1 << 20;
/// Protocol that clients of gRPC ask for.
const GRPC_PROTOCOL: &[u8] = b"h2";
/// Protocol that callers of probes and metrics ask for.
const HTTP_PROTOCOL: &[u8] = b"http/1.1";

/// Whether callers of the gRPC services have to show a certificate, once there are client authorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// A connection without a certificate ends.
    #[default]
    Required,
    /// A client certificate is optional. A caller without one may authenticate with a token or be anonymous.
    Optional,
}

/// Paths of the files of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPaths {
    /// Certificate of the server, and those between it and its authority (PEM).
    pub certificate: PathBuf,
    /// Private key of the certificate (PEM).
    pub key: PathBuf,
    /// CAs that sign client certificates (PEM). `None`: client certificates are not requested.
    pub client_authorities: Option<PathBuf>,
    /// Whether callers have to show one.
    pub client_auth: ClientAuth,
}

/// Content of the files, as it was read.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct TlsContent {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authorities: Option<Vec<u8>>,
}

impl fmt::Debug for TlsContent {
    /// Shows nothing: the key is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsContent").finish_non_exhaustive()
    }
}

/// Acceptors for new connections.
pub(super) struct TlsMaterial {
    /// For the gRPC services.
    pub(super) grpc: TlsAcceptor,
    /// For probes and metrics: a caller may come without a certificate, as probes do.
    pub(super) http: TlsAcceptor,
    /// End of the certificate's validity, in seconds since 1970.
    pub(super) not_after: u64,
    /// Number of authorities whose certificates callers may show.
    pub(super) authorities: usize,
}

impl fmt::Debug for TlsMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TlsMaterial");
        shown
            .field("not_after", &self.not_after)
            .field("authorities", &self.authorities);
        shown.finish_non_exhaustive()
    }
}

impl TlsPaths {
    /// Reads the files. Blocks.
    pub(super) fn read(&self) -> Result<TlsContent, FileError> {
        let read = |path: &Path| {
            read_bounded(path, FILE_BYTES).map_err(|error| FileError::new(path, format!("it cannot be read: {error}")))
        };
        Ok(TlsContent {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
            authorities: self.client_authorities.as_deref().map(read).transpose()?,
        })
    }

    /// Parses the content. `now`: seconds since 1970.
    pub(super) fn build(&self, content: &TlsContent, now: u64) -> Result<TlsMaterial, FileError> {
        let chain = certificates(&self.certificate, &content.certificate)?;
        let end = chain.first().and_then(not_after);
        let end = end.ok_or_else(|| FileError::new(&self.certificate, "its first certificate cannot be read"))?;
        if end < now {
            return Err(FileError::new(
                &self.certificate,
                format!(
                    "the certificate expired {} ago; put a new one in its place",
                    age(now - end)
                ),
            ));
        }
        let key = PrivateKeyDer::from_pem_slice(&content.key).map_err(|error| {
            let remedy = "write the private key of the certificate, unencrypted, as PEM";
            FileError::new(&self.key, format!("it has no private key ({error}); {remedy}"))
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = self.roots(content)?;
        let authorities = roots.as_ref().map_or(0, |roots| roots.len());
        let config = |auth: ClientAuth, protocol: &[u8]| {
            let mut config = self.server_config(&provider, roots.as_ref(), auth, &chain, &key)?;
            config.alpn_protocols = vec![protocol.to_vec()];
            // A resumed connection would be that of a certificate that nobody looks at again.
            config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            Ok(TlsAcceptor::from(Arc::new(config)))
        };
        Ok(TlsMaterial {
            grpc: config(self.client_auth, GRPC_PROTOCOL)?,
            http: config(ClientAuth::Optional, HTTP_PROTOCOL)?,
            not_after: end,
            authorities,
        })
    }

    fn server_config(
        &self,
        provider: &Arc<CryptoProvider>,
        roots: Option<&Arc<RootCertStore>>,
        auth: ClientAuth,
        chain: &[CertificateDer<'static>],
        key: &PrivateKeyDer<'static>,
    ) -> Result<ServerConfig, FileError> {
        let of_key = |error: rustls::Error| {
            let remedy = "certificate and key have to be of one pair";
            FileError::new(
                &self.key,
                format!(
                    "it cannot be used with {}: {error}; {remedy}",
                    self.certificate.display()
                ),
            )
        };
        let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
        let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(&versions)
            .map_err(of_key)?;
        let builder = match roots {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
                let verifier = match auth {
                    ClientAuth::Required => verifier,
                    ClientAuth::Optional => verifier.allow_unauthenticated(),
                };
                let path = self.client_authorities.as_deref().unwrap_or(&self.certificate);
                builder.with_client_cert_verifier(
                    verifier
                        .build()
                        .map_err(|error| FileError::new(path, error.to_string()))?,
                )
            }
        };
        builder
            .with_single_cert(chain.to_vec(), key.clone_key())
            .map_err(of_key)
    }

    /// Authorities of callers.
    fn roots(&self, content: &TlsContent) -> Result<Option<Arc<RootCertStore>>, FileError> {
        let (Some(path), Some(content)) = (&self.client_authorities, &content.authorities) else {
            return Ok(None);
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path, content)? {
            roots
                .add(certificate)
                .map_err(|error| FileError::new(path, format!("one of its certificates is no authority: {error}")))?;
        }
        Ok(Some(Arc::new(roots)))
    }
}

/// Builds what these bytes would mean as files.
#[cfg(feature = "test-doors")]
pub(super) fn check_content(certificate: &[u8], key: &[u8], authorities: Option<&[u8]>) -> Result<(), FileError> {
    let paths = TlsPaths {
        certificate: "tls.crt".into(),
        key: "tls.key".into(),
        client_authorities: authorities.map(|_| "ca.crt".into()),
        client_auth: ClientAuth::default(),
    };
    let content = TlsContent {
        certificate: certificate.to_vec(),
        key: key.to_vec(),
        authorities: authorities.map(<[u8]>::to_vec),
    };
    paths.build(&content, 0).map(drop)
}

fn certificates(path: &Path, content: &[u8]) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(content).collect();
    match read {
        Ok(read) if !read.is_empty() => Ok(read),
        Ok(_) => Err(FileError::new(
            path,
            "it has no certificate; write it as PEM (-----BEGIN CERTIFICATE-----)",
        )),
        Err(error) => Err(FileError::new(path, format!("it is no PEM: {error}"))),
    }
}

/// Content of a file of at most `limit` bytes.
pub(crate) fn read_bounded(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path)?.take(most).read_to_end(&mut content)?;
    if content.len() > limit {
        return Err(io::Error::other(format!("it has more than {limit} bytes")));
    }
    Ok(content)
}

/// Duration in the largest unit with a value of at least two, for example `3 days` or `90 min`.
pub(super) fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
