//! Policies: versions, documents and diagnostics.

use std::time::Duration;

use crate::server::pb;
use crate::server::status::{CallError, RpcResult};
use pumice_engine::model::ErrorCode;
use pumice_engine::policy::{Compatibility, Diagnostic, DiagnosticReport, Severity};
use pumice_state::PolicyVersion;

/// Reads the compatibility of a document that does not set its own.
///
/// # Errors
/// No compatibility has the name.
pub fn read_compatibility(field: &str, name: &str) -> RpcResult<Compatibility> {
    if name.is_empty() {
        return Ok(Compatibility::default());
    }
    Compatibility::from_name(name).ok_or_else(|| {
        let message = format!(
            "{field}: `{name}` is not one of {}",
            Compatibility::ALL.map(Compatibility::name).join(", ")
        );
        CallError::new(ErrorCode::CompatibilityUnknown, message)
    })
}

/// Version with its documents.
pub fn policy(version: &PolicyVersion, active: bool) -> pb::Policy {
    pb::Policy {
        document: version.document.to_string(),
        loaded_document: version.loaded_document.to_string(),
        effective_document: version.effective_document.to_string(),
        ..policy_summary(version, active)
    }
}

/// Version without its documents.
pub fn policy_summary(version: &PolicyVersion, active: bool) -> pb::Policy {
    let PolicyVersion {
        in_force,
        document: _,
        loaded_document: _,
        effective_document: _,
        report: _,
        origin,
        accepted_at: accepted,
    } = version;
    pb::Policy {
        name: in_force.name.to_string(),
        version: in_force.version,
        hash: in_force.hash.to_string(),
        document: String::new(),
        loaded_document: String::new(),
        effective_document: String::new(),
        origin: origin.to_string(),
        accept_time: Some(timestamp(*accepted)),
        active,
        caller: origin.caller().to_owned(),
    }
}

/// Diagnostics from loading.
pub fn policy_report(report: &DiagnosticReport) -> pb::PolicyReport {
    let mut diagnostics: Vec<pb::Diagnostic> = report.diagnostics.iter().map(diagnostic).collect();
    if report.omitted > 0 {
        diagnostics.push(pb::Diagnostic {
            severity: pb::Severity::Warning.into(),
            code: ErrorCode::DiagnosticsOmitted.name().to_owned(),
            message: format!("{} more diagnostics are not listed", report.omitted),
            ..pb::Diagnostic::default()
        });
    }
    pb::PolicyReport {
        diagnostics,
        unserved_plugins: report
            .unserved_plugins
            .iter()
            .map(|plugin| plugin.name.clone())
            .collect(),
    }
}

fn diagnostic(diagnostic: &Diagnostic) -> pb::Diagnostic {
    let Diagnostic {
        severity,
        code,
        message,
        line,
        column,
        path,
    } = diagnostic;
    let severity = match severity {
        Severity::Error => pb::Severity::Error,
        Severity::Warning => pb::Severity::Warning,
    };
    pb::Diagnostic {
        severity: severity.into(),
        code: code.name().to_owned(),
        message: message.clone(),
        line: *line,
        column: *column,
        path: path.clone(),
    }
}

/// Point in time as the wire has it.
pub fn timestamp(since_1970: Duration) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since_1970.subsec_nanos()).unwrap_or_default(),
    }
}

/// Duration as the wire has it.
pub fn duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration::try_from(duration).unwrap_or_default()
}
