//! Telemetry: log lines, traces and metrics. One layer around all calls measures them.

mod call_metrics;
mod cluster_gauges;
mod collector;
mod integer_gauge;
mod log_text;
mod metrics;
mod panics;
mod placement_metrics;
mod process;
mod process_gauges;
mod queue_gauges;
mod rpc_labels;
mod security_metrics;
mod shared_page;
mod state_gauges;
#[cfg_attr(not(feature = "opentelemetry"), path = "traces_absent.rs")]
mod traces;
mod verdict_gauges;

use std::io::IsTerminal as _;

use axum::http::HeaderName;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tracing::metadata::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::{FilterExt as _, dynamic_filter_fn};
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::{Context, Filter, Layer as _, Layered, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry};

pub use call_metrics::{CallMetricsLayer, CallMetricsService};
pub use collector::CollectorTls;
pub(crate) use log_text::{LogText, WarningGate};
pub use metrics::Metrics;
pub use panics::report_panics;
pub(crate) use placement_metrics::PlacementOutcome;
pub(crate) use process::resident_bytes;
pub(crate) use security_metrics::HandshakeOutcome;
pub use shared_page::SharedPage;
pub use state_gauges::WorkerLoad;
#[cfg(not(feature = "opentelemetry"))]
pub(crate) use traces::NOT_BUILT as OPENTELEMETRY_NOT_BUILT;
pub use traces::TraceExporter;
#[cfg(feature = "opentelemetry")]
pub(crate) use traces::audit_logger;

/// Counters with one label, by its name and value.
type LabelledCounter<V> = Family<[(&'static str, V); 1], Counter>;
/// Layer that writes log lines.
type LineLayer = Box<dyn tracing_subscriber::Layer<Registry> + Send + Sync>;
/// Layer that sends spans to a collector.
type SpanLayer = Box<dyn tracing_subscriber::Layer<Layered<LineLayer, Registry>> + Send + Sync>;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Options of logs and traces.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions<'a> {
    /// Filter of log lines.
    pub filter: &'a str,
    /// Format of log lines.
    pub format: LogFormat,
    /// Collector that traces are sent to; `None`: none.
    pub otlp_endpoint: Option<&'a str>,
    /// TLS of a collector with `https://`.
    pub otlp_tls: CollectorTls<'a>,
    /// Name of this service in traces.
    pub otlp_service_name: &'a str,
    /// Share of calls without a caller's sampling decision that are traced, from 0 to 1.
    pub trace_ratio: f64,
}

/// Reads a filter of the log, such as `info,pumice=debug`.
///
/// # Errors
/// Reason why the text is not a valid filter.
pub(crate) fn read_filter(text: &str) -> Result<EnvFilter, String> {
    // The library cuts a text with other characters inside of one, and panics.
    if !text.is_ascii() {
        return Err("names of targets, spans and levels have ASCII characters only".to_owned());
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())
}

/// Starts logging to standard error, and traces if a collector is set. Must be called on the runtime, which sends the
/// spans.
///
/// # Errors
/// The filter cannot be read, the collector's address cannot be used, or logging was started before.
pub fn start_logging(options: &LogOptions<'_>) -> Result<TraceExporter, LoggingError> {
    let filter = line_filter(read_filter(options.filter).map_err(LoggingError::Filter)?);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let lines: LineLayer = match options.format {
        LogFormat::Text => {
            let lines = lines.fmt_fields(debug_fn(log_text::write_field).delimited(" "));
            lines.with_filter(filter).boxed()
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true);
            let lines = lines.with_writer(|| log_text::JsonLineWriter(std::io::stderr()));
            lines.with_filter(filter).boxed()
        }
    };
    let (traces, spans) = match options.otlp_endpoint {
        None => (TraceExporter::default(), None),
        Some(endpoint) => {
            let (traces, spans) = TraceExporter::export_to(
                (endpoint, options.otlp_tls),
                options.otlp_service_name,
                options.trace_ratio,
            )
            .map_err(LoggingError::Collector)?;
            (traces, Some(spans))
        }
    };
    let started = tracing_subscriber::registry().with(lines).with(spans).try_init();
    started.map_err(|error| LoggingError::Started(error.to_string()))?;
    Ok(traces)
}

/// Filter of log lines that lets few warnings of the transport through. It decides once about every other place in the code, and
/// hints at its level: otherwise each of the hundred trace events of a call would be looked at.
fn line_filter<S>(filter: EnvFilter) -> impl Filter<S> + Send + Sync + 'static
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let gate = WarningGate::new();
    let most = filter.max_level_hint().unwrap_or(LevelFilter::TRACE);
    let few_warnings = dynamic_filter_fn(move |metadata: &Metadata<'_>, _: &Context<'_, S>| {
        !is_transport_warning(metadata) || gate.pass().is_some()
    });
    filter.and(
        few_warnings
            .with_callsite_filter(|metadata| {
                if is_transport_warning(metadata) {
                    Interest::sometimes()
                } else {
                    Interest::always()
                }
            })
            .with_max_level_hint(most),
    )
}

/// Header of a caller's trace.
static TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// Crates below the service, which warn of what callers send.
const TRANSPORT: [&str; 4] = ["h2", "hyper", "hyper_util", "tonic"];

/// True for warnings and errors of the transport: a caller may cause any number of them.
fn is_transport_warning(metadata: &Metadata<'_>) -> bool {
    let source = metadata.target().split("::").next().unwrap_or_default();
    metadata.is_event() && *metadata.level() <= Level::WARN && TRANSPORT.contains(&source)
}

/// Error of the start of logging.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoggingError {
    /// The filter cannot be read.
    #[error("the log filter cannot be read: {0}")]
    Filter(String),
    /// The collector's address cannot be used.
    #[error("traces cannot be sent: {0}")]
    Collector(String),
    /// Logging was started before.
    #[error("logging cannot be started: {0}")]
    Started(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_filter_leaves_out_is_not_looked_at() {
        let filter = line_filter(read_filter("info,pumice=debug").unwrap());
        let lines: LineLayer = tracing_subscriber::fmt::layer().with_filter(filter).boxed();
        let subscriber = tracing_subscriber::registry().with(lines).with(None::<SpanLayer>);
        assert_eq!(subscriber.max_level_hint(), Some(LevelFilter::DEBUG));
    }

    #[test]
    fn a_filter_with_other_characters_is_refused() {
        assert!(read_filter("00\u{fffd}[span]").unwrap_err().contains("ASCII"));
        assert!(read_filter("info,[ä]=debug").is_err());
        assert!(read_filter("info,pumice=debug").is_ok());
    }
}
