//! Traces: spans of calls, sent to an OpenTelemetry collector, as part of the trace that the caller began.

use axum::http::HeaderMap;
use opentelemetry::KeyValue;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_otlp::WithExportConfig as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Name of this service among others.
const SERVICE_NAME: &str = "pumice";

/// Sends spans until it is told to stop.
#[derive(Debug, Default)]
pub struct TraceExporter(Option<SdkTracerProvider>);

impl TraceExporter {
    /// Sends spans to a collector. Where the caller has decided whether its trace is kept, that holds; of the other calls
    /// this share is traced.
    ///
    /// # Errors
    /// The endpoint cannot be used.
    pub(super) fn export_to(endpoint: &str, ratio: f64) -> Result<(Self, SdkTracer), String> {
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint)
            .build()
            .map_err(|error| error.to_string())?;
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let resource = Resource::builder()
            .with_service_name(SERVICE_NAME)
            .with_attribute(version);
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio))))
            .with_resource(resource.build())
            .build();
        let tracer = provider.tracer(SERVICE_NAME);
        Ok((Self(Some(provider)), tracer))
    }

    /// Sends what is left.
    pub async fn stop(self) {
        let Some(provider) = self.0 else { return };
        // It blocks, and what it waits for runs on this runtime.
        let stopped = tokio::task::spawn_blocking(move || provider.shutdown()).await;
        if let Ok(Err(error)) = stopped {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

struct HeaderExtractor<'h>(&'h HeaderMap);

impl Extractor for HeaderExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(axum::http::HeaderName::as_str).collect()
    }
}

/// Makes a span part of the caller's trace, if the caller has one (W3C `traceparent`).
pub(super) fn join_caller_trace(span: &Span, headers: &HeaderMap) {
    if !headers.contains_key("traceparent") {
        return;
    }
    let context = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
    let caller = context.span().span_context().clone();
    if !caller.is_valid() {
        return;
    }
    span.record("trace_id", tracing::field::display(caller.trace_id()));
    // Without a collector there is nobody to tell.
    drop(span.set_parent(context));
}
