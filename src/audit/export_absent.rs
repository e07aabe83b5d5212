//! Exporter of a build without OpenTelemetry: a collector in the settings is an error at the start.

use std::time::Duration;

use super::entry::AuditEntry;
use crate::telemetry::{CollectorTls, OPENTELEMETRY_NOT_BUILT};

/// Exporter that nobody can make.
// Shared name: it takes the place of the exporter in builds with OpenTelemetry.
#[derive(Debug)]
pub(super) enum AuditExporter {}

impl AuditExporter {
    /// Reports that no lines can be exported.
    ///
    /// # Errors
    /// Always.
    pub(super) fn start(_: (&str, CollectorTls<'_>), _: &str) -> Result<Self, String> {
        Err(OPENTELEMETRY_NOT_BUILT.to_owned())
    }

    pub(super) fn send(&self, _: &AuditEntry, _: &str, _: Duration) {
        match *self {}
    }

    pub(super) fn stop(&self, _: Duration) {
        match *self {}
    }
}
