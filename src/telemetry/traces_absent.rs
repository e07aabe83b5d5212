//! Traces of a build without OpenTelemetry: a collector in the settings is an error at the start.

use axum::http::HeaderMap;
use tracing::Span;

use super::{CollectorTls, SpanLayer};

/// Error of a setting that needs a collector.
pub(crate) const NOT_BUILT: &str =
    "this program was built without OpenTelemetry; build it with the feature `opentelemetry`";

/// Exporter of spans of a build that exports none.
// Shared name: it takes the place of the exporter in builds with OpenTelemetry.
#[derive(Debug, Default)]
pub struct TraceExporter(());

impl TraceExporter {
    /// Reports that no spans can be exported.
    ///
    /// # Errors
    /// Always.
    pub(super) fn export_to(_: (&str, CollectorTls<'_>), _: &str, _: f64) -> Result<(Self, SpanLayer), String> {
        Err(NOT_BUILT.to_owned())
    }

    /// Does nothing.
    #[expect(clippy::unused_async, reason = "a build with OpenTelemetry waits here")]
    pub async fn stop(self) {}
}

/// Does nothing: no span is part of a trace.
pub(super) fn join_caller_trace(_: &Span, _: &HeaderMap) {}
