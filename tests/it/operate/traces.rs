//! Traces, as a collector in this process receives them.

#![expect(clippy::disallowed_types, reason = "a collector of a test")]

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use pumice::server::pb::decision_service_client::DecisionServiceClient;
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

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

#[test]
fn a_call_is_part_of_its_callers_trace() {
    let collector = TraceCollector::default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let service = TraceServiceServer::new(collector.clone());
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    runtime.spawn(
        tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(incoming),
    );

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
