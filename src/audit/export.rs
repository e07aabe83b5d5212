//! Lines of the audit log as log records of OpenTelemetry, sent to the collector of the traces.

use std::time::{Duration, SystemTime};

use opentelemetry::logs::{AnyValue, LogRecord as _, Logger as _, LoggerProvider as _, Severity};
use opentelemetry_sdk::logs::{SdkLogger, SdkLoggerProvider};
use serde_json::Value;

use super::entry::{AuditEntry, AuditOutcome};
use crate::telemetry::{CollectorTls, LogText, audit_logger};

/// Name of the event of each record.
const EVENT: &str = "pumice.audit";

/// Exporter of lines. Lines wait in a bounded queue; an unresponsive collector does not delay calls.
#[derive(Debug)]
pub(super) struct AuditExporter {
    provider: SdkLoggerProvider,
    logger: SdkLogger,
}

impl AuditExporter {
    /// Exporter to a collector, under the name of a service.
    ///
    /// # Errors
    /// The endpoint cannot be used.
    pub(super) fn start(collector: (&str, CollectorTls<'_>), service: &str) -> Result<Self, String> {
        let provider = audit_logger(collector, service)?;
        let logger = provider.logger(EVENT);
        Ok(Self { provider, logger })
    }

    /// Sends an entry, soon. `line`: the same as in the file.
    pub(super) fn send(&self, entry: &AuditEntry, line: &str, time: Duration) {
        let mut record = self.logger.create_log_record();
        record.set_event_name(EVENT);
        if let Some(time) = SystemTime::UNIX_EPOCH.checked_add(time) {
            record.set_timestamp(time);
            record.set_observed_timestamp(time);
        }
        let severity = match entry.outcome {
            AuditOutcome::Done | AuditOutcome::Unchanged => Severity::Info,
            AuditOutcome::Failed | AuditOutcome::Refused => Severity::Warn,
        };
        record.set_severity_number(severity);
        record.set_severity_text(severity.name());
        record.set_body(AnyValue::from(line.trim_end().to_owned()));
        let texts = [
            ("audit.action", entry.action.name()),
            ("audit.outcome", entry.outcome.name()),
            ("audit.identity", &entry.identity),
            ("audit.known_by", entry.known_by),
            ("client.address", &entry.address),
            ("audit.target", &entry.target),
        ];
        record.add_attributes(texts.map(|(name, text)| (name, LogText(text).to_string())));
        for (name, value) in &entry.details {
            record.add_attribute(format!("audit.{name}"), attribute(value));
        }
        self.logger.emit(record);
    }

    /// Sends what waits, and ends. Blocks.
    pub(super) fn stop(&self, time: Duration) {
        if let Err(error) = self.provider.shutdown_with_timeout(time) {
            tracing::warn!(%error, "the last lines of the audit log were not sent to the collector");
        }
    }
}

/// Value of an attribute: texts are cut and escaped as in the file.
fn attribute(value: &Value) -> AnyValue {
    match value {
        Value::String(text) => AnyValue::from(LogText(text).to_string()),
        Value::Bool(value) => AnyValue::from(*value),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => AnyValue::from(number),
            (None, Some(number)) => AnyValue::from(number),
            (None, None) => AnyValue::from(number.to_string()),
        },
        Value::Null | Value::Array(_) | Value::Object(_) => AnyValue::from(LogText(value).to_string()),
    }
}
