//! Policies: versions, documents and what was found in them.

use std::time::Duration;

use crate::engine::policy::{Compatibility, Finding, Report, Severity};
use crate::server::pb;
use crate::server::status::Failure;
use crate::state::PolicyVersion;

/// Reads the compatibility for a document that does not say its own.
///
/// # Errors
/// It is neither `upstream` nor `corrected`.
pub fn compatibility(field: &str, name: &str) -> Result<Compatibility, Failure> {
    if name.is_empty() {
        return Ok(Compatibility::default());
    }
    Compatibility::from_name(name).ok_or_else(|| {
        let message = format!("{field}: `{name}` is neither `upstream` nor `corrected`");
        Failure::invalid("COMPATIBILITY_UNKNOWN", message)
    })
}

/// A version with its documents.
pub fn policy(version: &PolicyVersion, active: bool) -> pb::Policy {
    pb::Policy {
        document: version.document.to_string(),
        loaded_document: version.loaded_document.to_string(),
        effective_document: version.effective_document.to_string(),
        ..listed(version, active)
    }
}

/// A version without documents.
pub fn listed(version: &PolicyVersion, active: bool) -> pb::Policy {
    let PolicyVersion {
        in_force,
        document: _,
        loaded_document: _,
        effective_document: _,
        report: _,
        origin,
        accepted,
    } = version;
    pb::Policy {
        name: in_force.name.to_string(),
        version: in_force.version,
        hash: in_force.hash.to_string(),
        document: String::new(),
        loaded_document: String::new(),
        effective_document: String::new(),
        origin: origin.to_string(),
        accept_time: Some(time(*accepted)),
        active,
    }
}

/// What loading found.
pub fn report(report: &Report) -> pb::PolicyReport {
    let mut findings: Vec<pb::Finding> = report.findings.iter().map(finding).collect();
    if report.left_out > 0 {
        findings.push(pb::Finding {
            severity: pb::Severity::Warning.into(),
            code: "MORE_FINDINGS".to_owned(),
            message: format!("{} more findings are not listed", report.left_out),
            ..pb::Finding::default()
        });
    }
    pb::PolicyReport {
        findings,
        not_served: report.not_served.iter().map(|plugin| plugin.name.clone()).collect(),
    }
}

fn finding(finding: &Finding) -> pb::Finding {
    let Finding {
        severity,
        code,
        message,
        line,
        column,
        path,
    } = finding;
    let severity = match severity {
        Severity::Fault => pb::Severity::Fault,
        Severity::Warning => pb::Severity::Warning,
    };
    pb::Finding {
        severity: severity.into(),
        code: (*code).to_owned(),
        message: message.clone(),
        line: *line,
        column: *column,
        path: path.clone(),
    }
}

/// A moment.
pub fn time(since_1970: Duration) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since_1970.subsec_nanos()).unwrap_or_default(),
    }
}

/// A length of time as the wire has it.
pub fn duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration::try_from(duration).unwrap_or_default()
}
