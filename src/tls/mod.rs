//! TLS of the listeners: certificate, key and client authorities from files, taken again when the files change.
//!
//! A changed set of files is taken for new connections once two looks in a row saw the same and it holds together; connections
//! that are open keep what they began with, so that no call is dropped. A set that does not hold together changes nothing.

mod certificate;
mod files;
mod keeper;

pub use certificate::CertificateNames;
pub(crate) use files::read_bounded;
pub use files::{ClientAuth, TlsError, TlsPaths};
pub use keeper::{TlsKeeper, TlsStart};
