//! One line of the audit log.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::telemetry::LogText;

/// Action that was done or attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditAction {
    /// Activation of a policy document.
    ReloadPolicy,
    /// Rollback to an earlier version.
    RollbackPolicy,
    /// Deletion of a policy.
    DeletePolicy,
    /// An administrator or scheduler ended a reservation.
    ReleaseReservation,
    /// Release of committed placements.
    ReleaseAssumptions,
    /// Forgetting of a source.
    ForgetSource,
    /// Forgetting of a resource name.
    ForgetResource,
    /// A call was rejected because of its caller.
    Call,
}

impl AuditAction {
    /// Name in the audit log, such as `reload-policy`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReloadPolicy => "reload-policy",
            Self::RollbackPolicy => "rollback-policy",
            Self::DeletePolicy => "delete-policy",
            Self::ReleaseReservation => "release-reservation",
            Self::ReleaseAssumptions => "release-assumptions",
            Self::ForgetSource => "forget-source",
            Self::ForgetResource => "forget-resource",
            Self::Call => "call",
        }
    }
}

/// Result of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditOutcome {
    /// The action was done.
    Done,
    /// There was nothing to change.
    Unchanged,
    /// The action failed because of the request, or of the state at that moment.
    Failed,
    /// The caller has no permission for the action.
    Refused,
}

impl AuditOutcome {
    /// Name in the audit log, such as `refused`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Unchanged => "unchanged",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

/// One line of the audit log.
#[derive(Clone, Debug)]
pub struct AuditEntry {
    /// Action that was done or attempted.
    pub action: AuditAction,
    /// Result of the action.
    pub outcome: AuditOutcome,
    /// Name of the caller's identity; for a file that changed, `file`.
    pub identity: String,
    /// Kind of authentication of the caller.
    pub known_by: &'static str,
    /// Address of the caller; empty: a Unix socket, or none.
    pub address: String,
    /// Name of the policy, job, source or method.
    pub target: String,
    /// More of it, by name.
    pub details: Vec<(&'static str, Value)>,
}

impl AuditEntry {
    /// The line, with the time since 1970. Texts are cut and escaped as in the log.
    pub(super) fn line(&self, time: Duration) -> String {
        let text = |text: &str| Value::from(LogText(text).to_string());
        let mut line = Map::new();
        line.insert("time".to_owned(), json!(utc(time)));
        line.insert("action".to_owned(), json!(self.action.name()));
        line.insert("outcome".to_owned(), json!(self.outcome.name()));
        line.insert("identity".to_owned(), text(&self.identity));
        line.insert("known_by".to_owned(), json!(self.known_by));
        line.insert("address".to_owned(), text(&self.address));
        line.insert("target".to_owned(), text(&self.target));
        for (name, value) in &self.details {
            let value = value.as_str().map_or_else(|| value.clone(), text);
            line.insert((*name).to_owned(), value);
        }
        format!("{}\n", Value::from(line))
    }
}

/// A time as RFC 3339 has it, in UTC, to the millisecond.
fn utc(time: Duration) -> String {
    let (days, second) = (time.as_secs() / 86_400, time.as_secs() % 86_400);
    // Days by the calendar whose year begins with March, so that the leap day is the last one.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (0, month + 3) } else { (1, month - 9) };
    let year = year_of_era + era * 400 + year;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        time.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_795_658_527, "2026-11-26T02:02:07.000Z"),
            (4_102_444_799, "2099-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(utc(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_line_is_one_line_and_its_texts_are_bounded() {
        let entry = AuditEntry {
            action: AuditAction::DeletePolicy,
            outcome: AuditOutcome::Done,
            identity: "a\nb\"".to_owned(),
            known_by: "token",
            address: "::1".to_owned(),
            target: "x".repeat(100_000),
            details: vec![("version", json!(3)), ("hash", json!("\u{202e}"))],
        };
        let line = entry.line(Duration::from_millis(1_500));
        assert_eq!(line.lines().count(), 1);
        assert!(line.len() < 3_000 && !line.contains('\u{202e}'));
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["time"], "1970-01-01T00:00:01.500Z");
        assert_eq!(
            (&read["version"], &read["action"]),
            (&json!(3), &json!("delete-policy"))
        );
    }
}
