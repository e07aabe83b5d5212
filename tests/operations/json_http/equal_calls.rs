//! Each method gives the same response as JSON and over gRPC.

use std::collections::BTreeSet;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor, SerializeOptions};
use pumice_protocol::BytesCodec;
use serde_json::Value;
use std::io::Write as _;
use tonic::client::Grpc;
use tonic::{Request, Status};

use super::{call, call_with};
use crate::support::{EmbeddedServer, metric_value};

/// Calls in their order. `$SESSION` is the session that the server opened last.
const CALLS: &[(&str, &str)] = &[
    (
        "PolicyService/ReloadPolicy",
        r#"{"name": "packing", "document": "actions: allocate\ntiers: [{plugins: [{name: binpack}]}]"}"#,
    ),
    (
        "PolicyService/ReloadPolicy",
        r#"{"name": "packing", "document": "tiers: ["}"#,
    ),
    (
        "StateService/Apply",
        r#"{"batch": {"source": "own", "sourceEpoch": "7", "sequence": "1", "kind": "BATCH_KIND_FULL_SYNC_LAST", "part": 1,
            "put": {"nodes": [
                {"name": "n-1", "allocatable": {"items": {"cpu": "8", "memory": "32Gi", "pods": "110"}}, "labels": {"zone": "a \"quoted\" é"}},
                {"name": "n-2", "allocatable": {"items": {"cpu": "4", "memory": "16Gi", "pods": "110"}}}],
              "queues": [{"name": "research"}],
              "jobs": [{"name": "train/a", "queue": "research", "minMember": 1}],
              "tasks": [{"name": "train/a-0", "job": "train/a", "status": "TASK_STATUS_PENDING", "requests": {"items": {"cpu": "2"}}}]}}}"#,
    ),
    (
        "StateService/Apply",
        r#"{"batch": {"source": "own", "sourceEpoch": "1", "sequence": "2"}}"#,
    ),
    ("StateService/Apply", "{}"),
    (
        "DecisionService/Filter",
        r#"{"tasks": [{"requests": {"items": {"cpu": "6"}}}, {"requests": {"items": {"cpu": "x"}}}], "samples": 2}"#,
    ),
    (
        "DecisionService/Score",
        r#"{"tasks": [{"requests": {"items": {"cpu": "2", "memory": "4Gi"}}}], "withFilter": true, "limit": 2}"#,
    ),
    (
        "DecisionService/Score",
        r#"{"tasks": [{"requests": {"items": {"cpu": "1"}}}], "against": {"latest": {"policy": "packing"}}}"#,
    ),
    (
        "DecisionService/Score",
        r#"{"tasks": [{"requests": {"items": {"cpu": "1"}}}], "against": {"latest": {"policy": "absent"}}}"#,
    ),
    (
        "DecisionService/Place",
        r#"{"groups": [{"task": {"requests": {"items": {"cpu": "3"}}}, "count": 4}]}"#,
    ),
    (
        "DecisionService/Admit",
        r#"{"mode": "ADMIT_MODE_CHECK", "items": [{"job": {"name": "train/new", "queue": "research"}}]}"#,
    ),
    ("DecisionService/Order", r#"{"queues": {}, "jobs": {}}"#),
    (
        "DecisionService/SelectVictims",
        r#"{"kind": "VICTIM_KIND_PREEMPT", "groups": [{"node": "n-1"}]}"#,
    ),
    ("DecisionService/OpenSession", r#"{"lease": "30.500s"}"#),
    ("DecisionService/ListSessions", "{}"),
    (
        "DecisionService/Filter",
        r#"{"against": {"session": {"id": "$SESSION", "after": "0", "changes": [{"allocate": {"task": "train/a-0", "node": "n-2"}}]}},
            "tasks": [{"requests": {"items": {"cpu": "3"}}}]}"#,
    ),
    ("DecisionService/CloseSession", r#"{"session": "$SESSION"}"#),
    ("DecisionService/OpenSession", "{}"),
    (
        "DecisionService/CommitSession",
        r#"{"session": {"id": "$SESSION", "after": "0", "changes": [{"allocate": {"task": "train/a-0", "node": "n-1"}}]}}"#,
    ),
    ("StateService/ReleaseAssumptions", r#"{"tasks": ["train/a-0"]}"#),
    ("StateService/GetNodeTable", r#"{"fromSlot": 1}"#),
    ("StateService/GetServerInfo", "{}"),
    ("StateService/WhoAmI", "{}"),
    ("StateService/ListNodes", r#"{"names": ["n-1"]}"#),
    ("StateService/ListNodes", r#"{"names": ["absent"]}"#),
    ("StateService/ListQueues", "{}"),
    ("StateService/ListJobs", "{}"),
    ("StateService/ListTasks", r#"{"page": {"size": 1}}"#),
    ("StateService/ListNamespaces", "{}"),
    (
        "DecisionService/Admit",
        r#"{"mode": "ADMIT_MODE_CONFIRM", "items": [{"job": {"name": "train/a"}}]}"#,
    ),
    ("StateService/ListReservations", "{}"),
    ("StateService/ReleaseReservation", r#"{"job": "train/a"}"#),
    ("StateService/ForgetResource", r#"{"resource": "example.com/fpga"}"#),
    ("StateService/ForgetSource", r#"{"source": "own", "force": true}"#),
    ("PolicyService/RollbackPolicy", r#"{"name": "default", "version": "1"}"#),
    ("PolicyService/GetPolicy", r#"{"name": "packing"}"#),
    ("PolicyService/ListPolicies", "{}"),
    (
        "PolicyService/DeletePolicy",
        r#"{"name": "packing", "expectedVersion": "1"}"#,
    ),
    ("PolicyService/DeletePolicy", r#"{"name": "packing"}"#),
];

/// Keys whose values differ between two servers, or between two moments.
const OF_A_SERVER: [&str; 8] = [
    "decisionId",
    "epoch",
    "session",
    "activeSince",
    "age",
    "idle",
    "leaseLeft",
    "silence",
];

/// Masks the fields of a value that differ between two servers.
fn masked(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mask = |(key, value): (&String, &Value)| {
                let is_of_server = OF_A_SERVER.contains(&key.as_str()) || key.ends_with("Time");
                let is_masked = is_of_server && value.is_string();
                (key.clone(), if is_masked { Value::from("…") } else { masked(value) })
            };
            fields.iter().map(mask).collect()
        }
        Value::Array(values) => values.iter().map(masked).collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other.clone(),
    }
}

fn method(pool: &DescriptorPool, path: &str) -> MethodDescriptor {
    let (service, name) = path.split_once('/').unwrap();
    let service = pool.get_service_by_name(&format!("pumice.v1.{service}")).unwrap();
    service.methods().find(|method| method.name() == name).unwrap()
}

/// JSON of a message by another implementation than the server's.
fn json_of(kind: prost_reflect::MessageDescriptor, wire: &[u8]) -> Value {
    let message = DynamicMessage::decode(kind, wire).unwrap();
    let mut serializer = serde_json::Serializer::new(Vec::new());
    message
        .serialize_with_options(&mut serializer, &SerializeOptions::new())
        .unwrap();
    serde_json::from_slice(&serializer.into_inner()).unwrap()
}

/// Result of a call over gRPC, whose request another implementation reads.
fn grpc_call(server: &EmbeddedServer, method: &MethodDescriptor, json: &str) -> Result<Value, Status> {
    let mut text = serde_json::Deserializer::from_str(json);
    let request = DynamicMessage::deserialize(method.input(), &mut text).unwrap();
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let mut client = Grpc::new(server.wire.channel());
    let response = server.wire.wait(async {
        client.ready().await.unwrap();
        let request = Request::new(request.encode_to_vec().into());
        client.unary(request, path.parse().unwrap(), BytesCodec).await
    });
    response.map(|response| json_of(method.output(), &response.into_inner()))
}

/// Name of a gRPC code in JSON.
fn code_name(status: &Status) -> String {
    format!("{:?}", status.code())
        .chars()
        .fold(String::new(), |mut name, letter| {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.extend(letter.to_lowercase());
            name
        })
}

#[test]
fn every_method_has_the_same_response_as_json_and_over_grpc() {
    let pool = DescriptorPool::decode(pumice_protocol::FILE_DESCRIPTOR_SET).unwrap();
    let (by_json, by_grpc) = (EmbeddedServer::start(), EmbeddedServer::start());
    let mut sessions = [String::new(), String::new()];
    let mut called = BTreeSet::new();
    for (path, request) in CALLS {
        let method = method(&pool, path);
        called.insert(method.full_name().to_owned());
        let [of_json, of_grpc] = sessions.each_ref().map(|session| request.replace("$SESSION", session));
        let reply = call(by_json.http, path, &of_json);
        assert!(reply.head.contains("content-type: application/json"), "{}", reply.head);
        match grpc_call(&by_grpc, &method, &of_grpc) {
            Ok(expected) => {
                assert_eq!(reply.status, 200, "{path}: {}", reply.text());
                assert_eq!(masked(&reply.json()), masked(&expected), "{path} {request}");
                if path.ends_with("/OpenSession") {
                    let ids = [reply.json(), expected].map(|opened| opened["session"].as_str().unwrap().to_owned());
                    sessions = ids;
                }
            }
            Err(status) => {
                assert_eq!(reply.code(), code_name(&status), "{path}: {}", reply.text());
                assert_eq!(reply.json()["message"], status.message(), "{path}");
                let reason = reply.detail("google.rpc.ErrorInfo")["reason"].clone();
                assert_eq!(reason, crate::support::reason(&status), "{path}");
            }
        }
    }
    let services = pool.services().filter(|service| service.package_name() == "pumice.v1");
    let methods = services.flat_map(|service| service.methods().collect::<Vec<_>>());
    let unary = methods.filter(|method| !method.is_server_streaming());
    let missing: Vec<String> = unary
        .map(|method| method.full_name().to_owned())
        .filter(|name| !called.contains(name))
        .collect();
    assert!(missing.is_empty(), "methods without a call: {missing:?}");
    assert!(metric_value(by_json.http, "pumice_calls_total{rpc=\"Score\",code=\"OK\"}") >= 2.0);
}

#[test]
fn a_compressed_request_and_names_of_the_protocol_files_are_read() {
    let server = EmbeddedServer::start();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(br#"{"from_slot": 0}"#).unwrap();
    let body = gzip.finish().unwrap();
    let reply = call_with(
        server.http,
        "StateService/GetNodeTable",
        &[("Content-Encoding", "gzip")],
        &body,
    );
    assert_eq!(reply.status, 200, "{}", reply.text());
    let reply = call_with(
        server.http,
        "StateService/GetNodeTable",
        &[("Content-Encoding", "br")],
        &body,
    );
    assert_eq!((reply.status, reply.code().as_str()), (501, "unimplemented"));
    let reply = call_with(
        server.http,
        "StateService/GetNodeTable",
        &[("Content-Encoding", "gzip")],
        b"{}",
    );
    assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_argument"));
}

#[test]
fn a_connection_stays_open_for_the_next_call() {
    use std::io::Read as _;
    let server = EmbeddedServer::start();
    let mut stream = std::net::TcpStream::connect(server.http).unwrap();
    for _ in 0..3 {
        let request = "POST /pumice.v1.StateService/WhoAmI HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json; \
                       charset=utf-8\r\nContent-Length: 2\r\n\r\n{}";
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = vec![0; 4_096];
        let length = stream.read(&mut reply).unwrap();
        let text = String::from_utf8_lossy(&reply[..length]).into_owned();
        assert!(
            text.starts_with("HTTP/1.1 200") && text.contains("\"unrestricted\""),
            "{text}"
        );
    }
    assert_eq!(
        metric_value(server.http, "pumice_connections"),
        2.0,
        "with that of gRPC"
    );
}
