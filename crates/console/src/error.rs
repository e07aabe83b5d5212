//! Errors of commands: the message for standard error, and the exit code for scripts.

use std::fmt;

use prost::Message;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::output;
use pumice_kubernetes::import::ImportError;
use pumice_protocol::ConnectError;
use pumice_protocol::v1 as pb;

/// Error that ends a command.
#[derive(Debug)]
pub enum CommandError {
    /// The service returned an error.
    Call(Box<Status>),
    /// No connection to the service.
    Unreachable {
        /// Address of the server.
        server: String,
        /// Error of the connection.
        error: tonic::transport::Error,
    },
    /// The command line, or a file that belongs to it, is wrong.
    Usage(String),
    /// Two compared things differ. The output has already shown the differences.
    Different,
    /// Any other error, with its full message.
    Message(String),
}

impl CommandError {
    /// Error with its full message.
    pub fn message(message: impl Into<String>) -> Self {
        CommandError::Message(message.into())
    }

    /// Ends a command with code 1, without a further message, if two things differ.
    pub fn require_same(same: bool) -> Result<(), Self> {
        if same { Ok(()) } else { Err(CommandError::Different) }
    }

    /// Exit code: 1 rejected, failed or different; 2 wrong usage; 3 the server is unreachable.
    pub fn exit_code(&self) -> u8 {
        match self {
            CommandError::Usage(_) => 2,
            CommandError::Unreachable { .. } => 3,
            CommandError::Call(status) if status.code() == Code::Unavailable || is_connection_end(status) => 3,
            CommandError::Call(_) | CommandError::Message(_) | CommandError::Different => 1,
        }
    }

    /// The problem, if the service returned the error with a stable code, such as `POLICY_REJECTED`.
    pub fn problem(&self) -> Option<pb::Problem> {
        let CommandError::Call(status) = self else { return None };
        let problem = pb::Problem {
            code: status.code().into(),
            reason: reason(status),
            message: message_lines(status, ""),
            ..pb::Problem::default()
        };
        (!problem.reason.is_empty()).then_some(problem)
    }

    /// Error of a file: the problem after its path.
    pub fn file_error(path: &std::path::Path, problem: &dyn fmt::Display) -> Self {
        CommandError::Message(format!("error: {}: {problem}", path.display()))
    }

    /// Error whose message is that of another error.
    pub fn failed(error: impl fmt::Display) -> Self {
        CommandError::Message(format!("error: {error}"))
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::Call(status) if is_connection_end(status) => {
                writeln!(f, "error: the server ended the connection ({})", status.message())?;
                write!(
                    f,
                    "hint: it may ask for TLS (https:// and --ca), or for a certificate (--certificate and --key)"
                )
            }
            CommandError::Call(status) => write_call_error(f, status),
            CommandError::Unreachable { server, error } => {
                writeln!(f, "error: no server at {server} ({})", root_cause(error))?;
                write!(
                    f,
                    "hint: start one with `pumice serve`, or name one with --server or PUMICE_SERVER"
                )
            }
            CommandError::Different => Ok(()),
            CommandError::Usage(message) | CommandError::Message(message) => f.write_str(message),
        }
    }
}

/// True if the connection of a call has ended. Clients never cancel calls here, and servers do not report transport
/// errors.
fn is_connection_end(status: &Status) -> bool {
    status.code() == Code::Cancelled
        || (status.code() == Code::Unknown && status.message().starts_with("transport error"))
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

fn write_call_error(f: &mut fmt::Formatter<'_>, status: &Status) -> fmt::Result {
    let lines = message_lines(status, "error: ");
    let code = reason(status);
    if code.is_empty() {
        write!(f, "{lines} ({:?})", status.code())
    } else {
        write!(f, "{lines} ({code})")
    }
}

/// Message of an error after a prefix, below the diagnostics of a refused policy.
fn message_lines(status: &Status, prefix: &str) -> String {
    let report = policy_report(status).unwrap_or_default();
    let message = format!("{prefix}{}", without_diagnostics(status.message(), &report));
    let diagnostics = report.diagnostics.iter().map(output::diagnostic);
    let lines: Vec<String> = diagnostics.chain([message]).collect();
    lines.join("\n")
}

/// Stable code of an error of the service. Empty: the error has none.
fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .map(|info| info.reason)
        .unwrap_or_default()
}

/// Message of a refused policy without the diagnostics that it names in parentheses: the report lists all of them.
fn without_diagnostics(message: &str, report: &pb::PolicyReport) -> String {
    let named = report.diagnostics.first().and_then(|first| {
        let start = message.find(&format!(" ({}:{}: ", first.line, first.column))?;
        let end = message.rfind(')')?.checked_add(1)?;
        Some((message.get(..start)?, message.get(end..)?))
    });
    named.map_or_else(|| message.to_owned(), |(head, tail)| format!("{head}{tail}"))
}

/// The report among the details of a refused policy.
pub(crate) fn policy_report(status: &Status) -> Option<pb::PolicyReport> {
    let details = tonic_types::pb::Status::decode(status.details()).ok()?.details;
    let report = details
        .into_iter()
        .find(|detail| detail.type_url.ends_with("/pumice.v1.PolicyReport"))?;
    pb::PolicyReport::decode(report.value.as_slice()).ok()
}

impl From<Status> for CommandError {
    fn from(status: Status) -> Self {
        CommandError::Call(Box::new(status))
    }
}

impl From<ConnectError> for CommandError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Address(message) => CommandError::Usage(format!("error: {message}")),
            ConnectError::Unreachable { server, error } => CommandError::Unreachable { server, error },
        }
    }
}

impl From<std::io::Error> for CommandError {
    fn from(error: std::io::Error) -> Self {
        CommandError::failed(error)
    }
}

impl From<ImportError> for CommandError {
    fn from(error: ImportError) -> Self {
        CommandError::failed(error)
    }
}
