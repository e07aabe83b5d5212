//! Traces, as a collector in this process receives them.

#![expect(clippy::disallowed_types, reason = "a collector of a test")]

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use pumice::server::pb;
use pumice::server::pb::DecisionServiceClient;
use tokio::runtime::Runtime;
use tonic::codec::CompressionEncoding;
use tonic::{Request, Response, Status};

use super::program::LoggedProcess;
use super::score_request;

#[derive(Clone, Default)]
struct TraceCollector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[tonic::async_trait]
impl TraceService for TraceCollector {
    async fn export(
        &self,
        sent: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.lock().unwrap().push(sent.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        other => panic!("{key}: {other:?}"),
    }
}

/// Number of a span's attribute.
fn number(attributes: &[KeyValue], key: &str) -> i64 {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        Some(any_value::Value::IntValue(number)) => *number,
        other => panic!("{key}: {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// Collector in this process, and its address.
fn serve_collector(runtime: &Runtime) -> (TraceCollector, String) {
    let collector = TraceCollector::default();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let service = TraceServiceServer::new(collector.clone()).accept_compressed(CompressionEncoding::Gzip);
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    runtime.spawn(
        tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(incoming),
    );
    (collector, endpoint)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn standard_variables_name_the_collector_and_the_service() {
    let runtime = runtime();
    let (collector, endpoint) = serve_collector(&runtime);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_SERVICE_NAME", "scheduling"),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "deployment.environment=lab,service.name=other",
        ),
    ];
    let mut program = LoggedProcess::serve_with(&variables.map(|(name, value)| (name, value.into())), &[]);
    let wire = program.connect();
    wire.score(score_request(1)).unwrap();
    let refused = pb::ForgetSourceRequest {
        source: "nobody".to_owned(),
        ..pb::ForgetSourceRequest::default()
    };
    assert_eq!(wire.forget_source(refused).unwrap_err().code(), tonic::Code::NotFound);
    program.signal("TERM");
    assert!(program.end().success());

    let received = collector.0.lock().unwrap().clone();
    let sent = &received[0].resource_spans[0];
    let resource = &sent.resource.as_ref().unwrap().attributes;
    assert_eq!(text(resource, "service.name"), "scheduling");
    assert_eq!(text(resource, "deployment.environment"), "lab");
    let resources = received.iter().flat_map(|sent| &sent.resource_spans);
    let spans: Vec<_> = resources
        .flat_map(|sent| &sent.scope_spans)
        .flat_map(|scope| &scope.spans)
        .collect();
    for (service, method, code) in [
        ("pumice.v1.DecisionService", "Score", 0),
        ("pumice.v1.StateService", "ForgetSource", 5),
    ] {
        let span = spans.iter().find(|span| span.name == format!("{service}/{method}"));
        let attributes = &span.unwrap_or_else(|| panic!("{method}: {spans:?}")).attributes;
        assert_eq!(text(attributes, "rpc.system"), "grpc");
        assert_eq!(text(attributes, "rpc.service"), service);
        assert_eq!(text(attributes, "rpc.method"), method);
        assert_eq!(number(attributes, "rpc.grpc.status_code"), code);
    }
}

#[test]
fn a_call_is_part_of_its_callers_trace() {
    let runtime = runtime();
    let (collector, endpoint) = serve_collector(&runtime);
    let mut program = LoggedProcess::serve(&["--otlp-endpoint", &endpoint, "--trace-ratio", "0"]);
    let wire = program.connect();
    let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let ask = |parent: Option<String>| {
        let mut request = Request::new(score_request(1));
        if let Some(parent) = parent {
            request.metadata_mut().insert("traceparent", parent.parse().unwrap());
        }
        let mut client = DecisionServiceClient::new(wire.channel());
        wire.wait(client.score(request)).unwrap();
    };
    ask(Some(format!("00-{trace}-{span}-01")));
    // A caller without a trace, or whose trace is not sampled, is not traced here.
    ask(Some(format!("00-{}-{span}-00", trace.replace('0', "1"))));
    ask(None);
    program.signal("TERM");
    assert!(program.end().success());

    let received = collector.0.lock().unwrap().clone();
    let resources: Vec<_> = received.iter().flat_map(|sent| &sent.resource_spans).collect();
    let resource = resources[0].resource.as_ref().unwrap();
    assert_eq!(text(&resource.attributes, "service.name"), "pumice");
    let spans: Vec<_> = resources
        .iter()
        .flat_map(|sent| &sent.scope_spans)
        .flat_map(|scope| &scope.spans)
        .collect();
    assert!(spans.iter().all(|sent| hex(&sent.trace_id) == trace), "{spans:?}");
    let call = spans
        .iter()
        .find(|sent| sent.name == "pumice.v1.DecisionService/Score")
        .unwrap();
    assert_eq!(hex(&call.parent_span_id), span);
    assert_eq!(text(&call.attributes, "rpc"), "Score");
    assert_eq!(text(&call.attributes, "code"), "OK");
}
