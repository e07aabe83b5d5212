//! Lines of the audit log, as a collector in this process receives them.

#![expect(clippy::disallowed_types, reason = "a collector of a test")]

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use pumice::server::pb;
use serde_json::Value;
use tonic::codec::CompressionEncoding;
use tonic::{Request, Response, Status};

use super::program::LoggedProcess;
use super::{TestDirectory, document};

#[derive(Clone, Default)]
struct LogCollector(Arc<Mutex<Vec<ExportLogsServiceRequest>>>);

#[tonic::async_trait]
impl LogsService for LogCollector {
    async fn export(
        &self,
        sent: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.0.lock().unwrap().push(sent.into_inner());
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        other => panic!("{key}: {other:?}"),
    }
}

/// Requests that the collector got of a refused and of a done call, and the lines of the file.
fn collected(with_file: bool) -> (Vec<ExportLogsServiceRequest>, Vec<String>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let collector = LogCollector::default();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let service = LogsServiceServer::new(collector.clone()).accept_compressed(CompressionEncoding::Gzip);
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    runtime.spawn(
        tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(incoming),
    );
    let folder = TestDirectory::new();
    let identities = folder.file("identities.yaml", "local: {roles: [read, decide]}\n");
    let (identities, file) = (identities.display().to_string(), folder.0.join("audit.log"));
    let path = file.display().to_string();
    let mut flags = vec![
        "--otlp-endpoint",
        &endpoint,
        "--trace-ratio",
        "0",
        "--identities-file",
        &identities,
    ];
    if with_file {
        flags.extend(["--audit-log", &path]);
    }
    let mut program = LoggedProcess::serve(&flags);
    let wire = program.connect();
    let reload = pb::ReloadPolicyRequest {
        document: document("secret-looking text"),
        ..pb::ReloadPolicyRequest::default()
    };
    let status = wire.reload_policy(reload).unwrap_err();
    assert_eq!(status.code(), tonic::Code::PermissionDenied);
    let release = pb::ReleaseReservationRequest {
        job: "a/job".to_owned(),
        ..pb::ReleaseReservationRequest::default()
    };
    wire.release_reservation(release).unwrap();
    program.signal("TERM");
    assert!(program.end().success());

    let written = std::fs::read_to_string(&file).unwrap_or_default();
    let written = written.lines().map(str::to_owned).collect();
    let received = collector.0.lock().unwrap().clone();
    (received, written)
}

#[test]
fn lines_of_the_audit_log_reach_the_collector_with_and_without_a_file() {
    for with_file in [true, false] {
        let (received, written) = collected(with_file);
        let resource = received[0].resource_logs[0].resource.as_ref().unwrap();
        assert_eq!(text(&resource.attributes, "service.name"), "pumice");
        let scopes = received
            .iter()
            .flat_map(|sent| &sent.resource_logs)
            .flat_map(|sent| &sent.scope_logs);
        let records: Vec<&LogRecord> = scopes.flat_map(|scope| &scope.log_records).collect();
        let known: Vec<(String, String)> = records
            .iter()
            .map(|record| {
                (
                    text(&record.attributes, "audit.action"),
                    text(&record.attributes, "audit.outcome"),
                )
            })
            .collect();
        let expected = [("call", "refused"), ("release-reservation", "unchanged")];
        assert_eq!(
            known,
            expected.map(|(action, outcome)| (action.to_owned(), outcome.to_owned()))
        );
        let lines: Vec<String> = records
            .iter()
            .map(|record| {
                let body = record.body.as_ref().unwrap().value.as_ref().unwrap();
                let any_value::Value::StringValue(line) = body else {
                    panic!("{body:?}")
                };
                line.clone()
            })
            .collect();
        for (record, line) in records.iter().zip(&lines) {
            let read: Value = serde_json::from_str(line).unwrap();
            assert_eq!(read["target"], text(&record.attributes, "audit.target"));
            assert_eq!(text(&record.attributes, "client.address"), "127.0.0.1");
            assert!(record.time_unix_nano > 0 && record.event_name == "pumice.audit");
            assert!(!line.contains("secret-looking"), "{line}");
        }
        assert_eq!((records[0].severity_number, records[1].severity_number), (13, 9));
        if with_file {
            assert_eq!(written, lines);
        }
    }
}
