//! Lines of the audit log about policies, and about sessions, reservations and sources that callers end.

use serde_json::Value;
use tonic::Extensions;

use super::access_layer::access_of;
use super::status::{CallError, RpcResult};
use crate::access::CallerAccess;
use crate::audit::{AuditAction, AuditOutcome};
use pumice_state::{PolicyError, ReloadedPolicy};

/// Longest difference in a line, in bytes.
const DIFFERENCE_BYTES: usize = 900;

/// Details of a line.
pub(super) type AuditDetails = Vec<(&'static str, Value)>;

impl AuditOutcome {
    /// Outcome of a document.
    pub(crate) fn of_reload(reloaded: &Result<ReloadedPolicy, PolicyError>) -> Self {
        match reloaded {
            Ok(reloaded) if reloaded.unchanged => Self::Unchanged,
            Ok(_) => Self::Done,
            Err(_) => Self::Failed,
        }
    }
}

/// Origin, version, hash and difference of a document to activate, or the reason of its rejection.
pub(super) fn reload_details(reloaded: &Result<ReloadedPolicy, PolicyError>, origin: String) -> AuditDetails {
    let mut details: AuditDetails = vec![("origin", origin.into())];
    match reloaded {
        Ok(reloaded) => {
            let in_force = &reloaded.version.in_force;
            details.push(("version", in_force.version.into()));
            details.push(("hash", in_force.hash.to_string().into()));
            let lines = |sign: char, head: &str| {
                let counted = reloaded
                    .difference
                    .lines()
                    .filter(|line| line.starts_with(sign) && !line.starts_with(head));
                counted.count()
            };
            details.push(("lines_added", lines('+', "+++").into()));
            details.push(("lines_removed", lines('-', "---").into()));
            let end = reloaded.difference.floor_char_boundary(DIFFERENCE_BYTES);
            details.push(("difference", reloaded.difference.get(..end).unwrap_or_default().into()));
        }
        Err(error) => details.push(("error", error.to_string().into())),
    }
    details
}

/// A call that the audit log has a line about.
pub(super) struct AuditedCall {
    access: Option<CallerAccess>,
    action: AuditAction,
    target: String,
}

impl AuditedCall {
    pub(super) fn new(extensions: &Extensions, action: AuditAction, target: impl Into<String>) -> Self {
        Self {
            access: access_of(extensions),
            action,
            target: target.into(),
        }
    }

    /// Name and address of the caller; empty: the call came by no connection.
    pub(super) fn signature(&self) -> String {
        self.access.as_ref().map_or_else(String::new, CallerAccess::signature)
    }

    /// Writes the line.
    pub(super) fn record(&self, outcome: AuditOutcome, details: AuditDetails) {
        if let Some(access) = &self.access {
            access.audit((self.action, outcome), &self.target, details);
        }
    }

    /// Result of the call, with the line about it written.
    pub(super) fn recorded<T>(
        &self,
        result: Result<T, impl Into<CallError>>,
        details: impl FnOnce(&T) -> (AuditOutcome, AuditDetails),
    ) -> RpcResult<T> {
        let result = result.map_err(Into::into);
        let (outcome, details) = match &result {
            Ok(done) => details(done),
            Err(error) => (AuditOutcome::Failed, vec![("error", error.message().into())]),
        };
        self.record(outcome, details);
        result
    }
}
