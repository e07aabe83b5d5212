//! Servers and clients for tests.

pub(crate) mod constraints;
pub(crate) mod engine;
pub(crate) mod process;
pub(crate) mod records;
pub(crate) mod server;
pub(crate) mod wire;
pub(crate) mod yaml;

pub(crate) use server::EmbeddedServer;

use tonic::Status;
use tonic_types::StatusExt as _;

/// Reason code of an error; empty if it has none.
pub(crate) fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .map(|info| info.reason)
        .unwrap_or_default()
}
