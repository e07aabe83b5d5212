//! Traces: spans of calls, sent to an OpenTelemetry collector as part of the caller's trace.

use std::path::Path;

use axum::http::{HeaderMap, HeaderName};
use opentelemetry::KeyValue;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_otlp::{WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Layer as _;

use super::{CollectorTls, SpanLayer, TRACE_PARENT};

/// Instrumentation scope of all spans.
const TRACER_NAME: &str = "pumice";

/// Exporter of spans, until it is stopped.
#[derive(Debug, Default)]
pub struct TraceExporter(Option<SdkTracerProvider>);

impl CollectorTls<'_> {
    /// Exporter to this endpoint, with this TLS.
    fn reaching<B: WithExportConfig + WithTonicConfig>(&self, exporter: B, endpoint: &str) -> Result<B, String> {
        let exporter = exporter.with_endpoint(endpoint);
        Ok(match self.config()? {
            Some(config) => exporter.with_tls_config(config),
            None => exporter,
        })
    }

    /// Configuration of the channel; `None`: plain text.
    fn config(&self) -> Result<Option<ClientTlsConfig>, String> {
        let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        let Some(authority) = self.authority else {
            return Ok(None);
        };
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(authority)?));
        if let (Some(certificate), Some(key)) = (self.certificate, self.key) {
            config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        Ok(Some(config))
    }
}

impl TraceExporter {
    /// Exports spans to a collector, under the name of a service. The caller's sampling decision is followed; calls without one are sampled at this
    /// ratio.
    ///
    /// # Errors
    /// The endpoint cannot be used.
    pub(super) fn export_to(
        (endpoint, tls): (&str, CollectorTls<'_>),
        service: &str,
        ratio: f64,
    ) -> Result<(Self, SpanLayer), String> {
        let exporter = tls.reaching(opentelemetry_otlp::SpanExporter::builder().with_tonic(), endpoint)?;
        let exporter = exporter.build().map_err(|error| error.to_string())?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio))))
            .with_resource(resource_of(service))
            .build();
        let tracer = provider.tracer(TRACER_NAME);
        // Spans of the exporter itself are left out: they would be exported, too, without end.
        let own = filter_fn(|metadata| metadata.is_span() && metadata.target().starts_with("pumice"));
        let layer = tracing_opentelemetry::layer().with_tracer(tracer).with_filter(own);
        Ok((Self(Some(provider)), Box::new(layer)))
    }

    /// Sends the remaining spans and stops.
    pub async fn stop(self) {
        let Some(provider) = self.0 else { return };
        // The shutdown blocks, and waits for tasks of this runtime.
        let stopped = pumice_state::tasks::run_blocking(move || provider.shutdown()).await;
        if let Ok(Err(error)) = stopped {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

/// This process as collectors know it, under the name of a service.
fn resource_of(service: &str) -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    // The builder reads OTEL_RESOURCE_ATTRIBUTES, and would prefer the name there.
    let resource = Resource::builder()
        .with_service_name(service.to_owned())
        .with_attribute(version);
    resource.build()
}

/// Source of log records that are sent to a collector, for the audit log. Must be called on the runtime, which sends them.
///
/// # Errors
/// The endpoint cannot be used.
pub(crate) fn audit_logger(
    (endpoint, tls): (&str, CollectorTls<'_>),
    service: &str,
) -> Result<SdkLoggerProvider, String> {
    let exporter = tls.reaching(opentelemetry_otlp::LogExporter::builder().with_tonic(), endpoint)?;
    let exporter = exporter.build().map_err(|error| error.to_string())?;
    let provider = SdkLoggerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource_of(service));
    Ok(provider.build())
}

struct HeaderExtractor<'h>(&'h HeaderMap);

impl Extractor for HeaderExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

/// Makes a span part of the caller's trace (W3C `traceparent`), if the caller has one.
pub(super) fn join_caller_trace(span: &Span, headers: &HeaderMap) {
    if !headers.contains_key(&TRACE_PARENT) {
        return;
    }
    let context = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
    let caller = context.span().span_context().clone();
    if !caller.is_valid() {
        return;
    }
    span.record("trace_id", tracing::field::display(caller.trace_id()));
    // Without a collector there is no trace to join.
    drop(span.set_parent(context));
}
