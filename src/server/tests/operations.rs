//! Records, policies, and the life of the server.

use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::{TestServer, amounts, detail, full_sync, node, reason, reload, three_nodes};
use crate::config::ServerConfig;
use crate::server::pb::{self, BatchKind};

#[tokio::test]
async fn malformed_records_are_rejected_alone_by_field() {
    let mut server = TestServer::start().await;
    let mut cluster = three_nodes();
    cluster.nodes[1].allocatable = Some(amounts(&[("cpu", "8 cores")]));
    cluster.nodes.push(node("", "1"));
    let outcome = server.apply(full_sync(cluster)).await;
    let refused: Vec<_> = outcome
        .refused
        .iter()
        .map(|problem| (problem.reason.as_str(), problem.field.as_str()))
        .collect();
    assert_eq!(
        refused,
        [
            ("QUANTITY_INVALID", "batch.put.nodes[1].allocatable.items[cpu]"),
            ("NAME_MISSING", "batch.put.nodes[3].name"),
        ]
    );
    let nodes = server.state.list_nodes(pb::ListNodesRequest::default()).await;
    let nodes = nodes.unwrap().into_inner().nodes;
    let names: Vec<_> = nodes
        .iter()
        .map(|node| node.node.as_ref().unwrap().name.as_str())
        .collect();
    assert_eq!(names, ["b", "c"]);
    server.stop().await;
}

#[tokio::test]
async fn listings_show_records_as_sent_page_by_page() {
    let mut server = TestServer::start().await;
    server.apply(full_sync(three_nodes())).await;
    let (mut token, mut names) = (String::new(), Vec::new());
    loop {
        let request = pb::ListNodesRequest {
            page: Some(pb::Page { size: 2, token }),
            ..pb::ListNodesRequest::default()
        };
        let page = server.state.list_nodes(request).await.unwrap().into_inner();
        names.extend(page.nodes.into_iter().map(|status| status.node.unwrap().name));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(names, ["a", "b", "c"]);
    let tasks = server.state.list_tasks(pb::ListTasksRequest::default()).await;
    let stored = tasks.unwrap().into_inner().tasks[0].task.clone().unwrap();
    assert_eq!(stored.requests, Some(amounts(&[("cpu", "2"), ("memory", "1Gi")])));
    let request = pb::ListNodesRequest {
        names: vec!["a".to_owned()],
        ..pb::ListNodesRequest::default()
    };
    let nodes = server.state.list_nodes(request).await.unwrap().into_inner().nodes;
    let used: Vec<_> = nodes[0]
        .used
        .iter()
        .map(|amount| (amount.resource.as_str(), amount.value))
        .collect();
    assert_eq!(used, [("cpu", 2000.0), ("memory", 1_073_741_824.0), ("pods", 1.0)]);
    let table = server.state.get_node_table(pb::GetNodeTableRequest::default()).await;
    assert_eq!(table.unwrap().into_inner().names, ["c", "a", "b"]);
    let info = server
        .state
        .get_server_info(pb::GetServerInfoRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(info.policies, ["default"]);
    assert!(info.limits.iter().any(|limit| limit.name == "request_bytes"));
    server.stop().await;
}

#[tokio::test]
async fn a_rejected_policy_leaves_the_old_one_in_force_and_is_reported() {
    let mut server = TestServer::start().await;
    let refused = server
        .policies
        .reload_policy(reload("tiers: [", None))
        .await
        .unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::InvalidArgument, "POLICY_REJECTED")
    );
    assert!(refused.message().ends_with("version 1 stays active"), "{refused}");
    let report: pb::PolicyReport = detail(&refused, "PolicyReport");
    assert!(!report.diagnostics.is_empty());
    let (status, text) = server.http_get("/readyz?verbose").await;
    assert_eq!(status, 200);
    assert!(text.contains("[+] reload/default: "), "{text}");
    let (_, metrics) = server.http_get("/metrics").await;
    assert!(
        metrics.contains("pumice_policy_reloads_total{origin=\"rpc\",outcome=\"rejected\"} 1"),
        "{metrics}"
    );
    assert!(
        metrics.contains("pumice_calls_total{rpc=\"ReloadPolicy\",code=\"INVALID_ARGUMENT\"} 1"),
        "{metrics}"
    );

    server.stop().await;
}

#[tokio::test]
async fn versions_are_compared_listed_and_rolled_back() {
    let mut server = TestServer::start().await;
    let good = "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n";
    let other = server.policies.reload_policy(reload(good, Some(7))).await.unwrap_err();
    assert_eq!(other.code(), Code::Aborted);
    let accepted = server
        .policies
        .reload_policy(reload(good, Some(1)))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(accepted.policy.unwrap().version, 2);
    assert!(!accepted.difference.is_empty());
    let back = server
        .policies
        .rollback_policy(pb::RollbackPolicyRequest::default())
        .await;
    assert_eq!(back.unwrap().into_inner().policy.unwrap().version, 3);
    let request = pb::ListPoliciesRequest {
        name: "default".to_owned(),
        page_size: 2,
        ..pb::ListPoliciesRequest::default()
    };
    let page = server
        .policies
        .list_policies(request.clone())
        .await
        .unwrap()
        .into_inner();
    let versions = |page: &pb::ListPoliciesResponse| -> Vec<_> {
        page.policies
            .iter()
            .map(|policy| (policy.version, policy.active))
            .collect()
    };
    assert_eq!(versions(&page), [(3, true), (2, false)]);
    let request = pb::ListPoliciesRequest {
        page_token: page.next_page_token,
        ..request
    };
    let page = server.policies.list_policies(request).await.unwrap().into_inner();
    assert_eq!((versions(&page), page.next_page_token.as_str()), (vec![(1, false)], ""));
    server.stop().await;
}

#[tokio::test]
async fn readiness_requires_every_expected_source_synced() {
    let config = ServerConfig {
        expected_sources: vec!["test".into()],
        ..ServerConfig::on_free_ports()
    };
    let mut server = TestServer::with_config(config).await;
    assert_eq!(server.http_get("/livez").await.0, 200);
    let (status, text) = server.http_get("/readyz").await;
    assert_eq!(status, 503);
    assert!(text.contains("[-] source/test: not heard yet"), "{text}");
    server.apply(full_sync(three_nodes())).await;
    assert_eq!(server.http_get("/readyz").await.0, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_sync_stream_is_answered_batch_by_batch_and_ended_by_the_drain() {
    let mut server = TestServer::start().await;
    let (send, batches) = tokio::sync::mpsc::channel(1);
    let stream = tokio_stream::wrappers::ReceiverStream::new(batches);
    let mut results = server.state.sync(stream).await.unwrap().into_inner();
    let batch = |batch| pb::SyncRequest { batch: Some(batch) };
    send.send(batch(full_sync(three_nodes()))).await.unwrap();
    let first = results.message().await.unwrap().unwrap().outcome.unwrap();
    assert_eq!(first.position.unwrap().sequence, 1);
    let gap = pb::Batch {
        sequence: 3,
        kind: BatchKind::Delta.into(),
        put: None,
        part: 0,
        ..full_sync(three_nodes())
    };
    send.send(batch(gap)).await.unwrap();
    let second = results.message().await.unwrap().unwrap().outcome.unwrap();
    assert_eq!(second.resync.unwrap().reason, "GAP");
    server.stop.take().unwrap().send(()).unwrap();
    let ended = results.message().await.unwrap_err();
    assert_eq!(ended.code(), Code::Unavailable);
    drop((results, send));
    server.server.await.unwrap().unwrap();
}

#[tokio::test]
async fn grpc_health_follows_readiness_service_by_service() {
    let config = ServerConfig {
        expected_sources: vec!["test".into()],
        ..ServerConfig::on_free_ports()
    };
    let mut server = TestServer::with_config(config).await;
    let mut health = HealthClient::new(server.channel.clone());
    for service in ["", "pumice.v1.DecisionService"] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let mut watched = health.watch(request).await.unwrap().into_inner();
        while watched.message().await.unwrap().unwrap().status() != ServingStatus::NotServing {}
        if service.is_empty() {
            continue;
        }
        server.apply(full_sync(three_nodes())).await;
        while watched.message().await.unwrap().unwrap().status() != ServingStatus::Serving {}
    }
    drop(health);
    server.stop().await;
}

#[tokio::test]
async fn reflection_names_all_services() {
    let server = TestServer::start().await;
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut reflection = ServerReflectionClient::new(server.channel.clone());
    let asked = reflection.server_reflection_info(tokio_stream::iter([request])).await;
    let result = asked.unwrap().into_inner().message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(services)) = result.message_response else {
        panic!("{result:?}");
    };
    let names: Vec<_> = services.service.iter().map(|service| service.name.as_str()).collect();
    for name in [
        "pumice.v1.DecisionService",
        "pumice.v1.StateService",
        "pumice.v1.PolicyService",
        "grpc.health.v1.Health",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    drop(reflection);
    server.stop().await;
}

#[tokio::test]
async fn a_path_beside_that_of_a_method_is_no_method() {
    let server = TestServer::start().await;
    for (path, code) in [
        ("/pumice.v1.StateService/GetServerInfo", Code::Ok),
        ("/pumice.v1.StateService/x/GetServerInfo", Code::Unimplemented),
        ("/pumice.v1.StateService//GetServerInfo", Code::Unimplemented),
        ("/pumice.v1.StateService/GetServerInfo/", Code::Unimplemented),
        ("/pumice.v1.PolicyService/GetServerInfo", Code::Unimplemented),
    ] {
        let mut client = tonic::client::Grpc::new(server.channel.clone());
        client.ready().await.unwrap();
        let request = tonic::Request::new(prost::bytes::Bytes::new());
        let path = tonic::codegen::http::uri::PathAndQuery::from_static(path);
        let called = client.unary(request, path.clone(), pumice_protocol::BytesCodec).await;
        assert_eq!(called.err().map_or(Code::Ok, |status| status.code()), code, "{path}");
    }
    server.stop().await;
}
