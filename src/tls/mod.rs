//! TLS of the listeners: certificate, key and client CAs from files, reloaded when the files change.
//!
//! A changed set of files is used for new connections after two consecutive polls have read the same, consistent files.
//! Open connections keep their certificate, so calls are never dropped. An inconsistent set, for example a certificate
//! with another key, is ignored and logged.

mod certificate;
mod files;
mod keeper;

pub use certificate::CertificateNames;
#[cfg(feature = "etcd")]
pub(crate) use files::FILE_BYTES;
pub(crate) use files::read_bounded;
pub use files::{ClientAuth, TlsPaths};
pub use keeper::{TlsKeeper, TlsStart};

/// End of a certificate's validity for the fuzzer, in seconds since 1970.
#[cfg(feature = "test-doors")]
pub(crate) fn end_of_validity(certificate: &rustls::pki_types::CertificateDer<'_>) -> Option<u64> {
    certificate::not_after(certificate)
}

/// Reads files of TLS for the fuzzer.
#[cfg(feature = "test-doors")]
pub(crate) fn check_files(certificate: &[u8], key: &[u8], authorities: Option<&[u8]>) -> Result<(), String> {
    files::check_content(certificate, key, authorities).map_err(|error| error.to_string())
}
