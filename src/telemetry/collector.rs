//! Collector of traces and audit records, as the settings name it.

use std::path::Path;

/// TLS of a collector: its authority, and the certificate that it is shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct CollectorTls<'a> {
    /// Authority that vouches for the collector; `None`: it is reached in plain text.
    pub authority: Option<&'a Path>,
    /// Certificate that the collector is shown.
    pub certificate: Option<&'a Path>,
    /// Private key of that certificate.
    pub key: Option<&'a Path>,
}
