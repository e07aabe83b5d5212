//! The transport's information about a caller: the kind of the connection and the client certificate.

use std::sync::{Arc, OnceLock};

use crate::tls::CertificateNames;

/// Way by which a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// TCP in plain text.
    Plain,
    /// Unix socket of this machine.
    Socket,
    /// TCP with TLS.
    Tls,
}

impl TransportKind {
    /// Name in `WhoAmI`: `plain`, `socket` or `tls`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Socket => "socket",
            Self::Tls => "tls",
        }
    }
}

/// The transport's information about the caller of a connection, such as its certificate.
#[derive(Debug)]
pub struct TransportFacts {
    /// Way by which the connection came.
    pub kind: TransportKind,
    /// Names of the certificate that the caller showed, and that an authority vouches for; `None`: none was shown.
    pub certificate: Option<CertificateNames>,
}

/// Facts that become known when a connection is secured, which is after it is accepted and before its first request.
#[derive(Clone, Debug, Default)]
pub struct PendingFacts(Arc<OnceLock<TransportFacts>>);

impl PendingFacts {
    /// Sets the facts, once.
    pub(crate) fn set(&self, facts: TransportFacts) {
        // A connection is secured once, so that there is nothing to replace.
        let _ = self.0.set(facts);
    }

    /// The facts, once they are known.
    pub fn get(&self) -> Option<&TransportFacts> {
        self.0.get()
    }
}
