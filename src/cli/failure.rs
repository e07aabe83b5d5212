//! Why a command did not end well: in words for standard error, and as an exit code for scripts.

use std::fmt;

use prost::Message;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::output;
use crate::import::ImportError;
use crate::server::pb;

/// Why a command failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The service answered with an error.
    Refused(Box<Status>),
    /// No connection to the service.
    Unreachable {
        /// Where it was looked for.
        server: String,
        /// What happened.
        error: tonic::transport::Error,
    },
    /// The command line, or a file that belongs to it, is wrong.
    Usage(String),
    /// Two things are not the same, which the answer has told.
    Differ,
    /// Something else, said in full.
    Said(String),
}

impl Failure {
    pub(super) fn said(message: impl Into<String>) -> Self {
        Failure::Said(message.into())
    }

    /// The exit code: 1 refused, failed or not true; 2 wrong usage; 3 no server answers.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Unreachable { .. } => 3,
            Failure::Refused(status) if status.code() == Code::Unavailable => 3,
            Failure::Refused(_) | Failure::Said(_) | Failure::Differ => 1,
        }
    }

    /// A file that cannot be read.
    pub(super) fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        Failure::Said(format!("error: {}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(status) => refused(f, status),
            Failure::Unreachable { server, error } => {
                writeln!(f, "error: no server at {server} ({})", innermost(error))?;
                write!(
                    f,
                    "hint: start one with `pumice serve`, or name one with --server or PUMICE_SERVER"
                )
            }
            Failure::Differ => Ok(()),
            Failure::Usage(message) | Failure::Said(message) => f.write_str(message),
        }
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

fn refused(f: &mut fmt::Formatter<'_>, status: &Status) -> fmt::Result {
    for finding in policy_report(status).iter().flat_map(|report| &report.findings) {
        writeln!(f, "{}", output::finding(finding))?;
    }
    let reason = status
        .get_details_error_info()
        .map(|info| info.reason)
        .unwrap_or_default();
    if reason.is_empty() {
        write!(f, "error: {} ({:?})", status.message(), status.code())
    } else {
        write!(f, "error: {} ({reason})", status.message())
    }
}

/// The report among the details of a refused policy.
pub(super) fn policy_report(status: &Status) -> Option<pb::PolicyReport> {
    let details = tonic_types::pb::Status::decode(status.details()).ok()?.details;
    let report = details
        .into_iter()
        .find(|detail| detail.type_url.ends_with("/pumice.v1.PolicyReport"))?;
    pb::PolicyReport::decode(report.value.as_slice()).ok()
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Failure::Refused(Box::new(status))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Said(format!("error: {error}"))
    }
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        Failure::Said(format!("error: {error}"))
    }
}
