//! Surface that every gRPC client expects: health, reflection, server information, and clear errors of unsupported
//! calls.

use std::collections::BTreeSet;

use pumice::server::pb;
use tonic::{Code, Status};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use crate::support::EmbeddedServer;

#[test]
fn health_and_probes_say_that_it_serves() {
    let server = EmbeddedServer::start();
    let mut health = HealthClient::new(server.wire.channel());
    for service in [
        "",
        "pumice.v1.DecisionService",
        "pumice.v1.StateService",
        "pumice.v1.PolicyService",
    ] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let reply = server.wire.wait(health.check(request)).unwrap().into_inner();
        assert_eq!(reply.status(), ServingStatus::Serving, "{service}");
    }
    let unknown = HealthCheckRequest {
        service: "pumice.v1.Other".to_owned(),
    };
    assert_eq!(
        server.wire.wait(health.check(unknown)).unwrap_err().code(),
        Code::NotFound
    );
    assert_eq!(
        (
            server.page("/livez").0,
            server.page("/readyz").0,
            server.page("/nothing").0
        ),
        (200, 200, 404)
    );
    let (_, metrics) = server.page("/metrics");
    assert!(metrics.ends_with("# EOF\n"), "OpenMetrics ends so: {metrics}");
}

fn reflect(server: &EmbeddedServer, request: MessageRequest) -> MessageResponse {
    let mut client = ServerReflectionClient::new(server.wire.channel());
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(request),
    };
    let reply: ServerReflectionResponse = server.wire.wait(async {
        let requests = tokio_stream::once(request);
        client
            .server_reflection_info(requests)
            .await
            .unwrap()
            .into_inner()
            .message()
            .await
            .unwrap()
            .unwrap()
    });
    reply.message_response.unwrap()
}

#[test]
fn reflection_shows_all_services_and_their_files() {
    let server = EmbeddedServer::start();
    let MessageResponse::ListServicesResponse(list) = reflect(&server, MessageRequest::ListServices(String::new()))
    else {
        panic!("a list of services")
    };
    let names: BTreeSet<String> = list.service.into_iter().map(|service| service.name).collect();
    for service in ["DecisionService", "StateService", "PolicyService"] {
        let service = format!("pumice.v1.{service}");
        assert!(names.contains(&service), "{names:?}");
        let shown = reflect(&server, MessageRequest::FileContainingSymbol(service));
        assert!(
            matches!(shown, MessageResponse::FileDescriptorResponse(files) if !files.file_descriptor_proto.is_empty())
        );
    }
    // Generic clients show details of errors readably only if they know their types.
    let details = reflect(
        &server,
        MessageRequest::FileContainingSymbol("google.rpc.ErrorInfo".to_owned()),
    );
    assert!(matches!(details, MessageResponse::FileDescriptorResponse(_)));
}

#[test]
fn the_former_version_of_reflection_shows_the_same_services() {
    use tonic_reflection::pb::v1alpha;
    use v1alpha::server_reflection_client::ServerReflectionClient as FormerClient;
    use v1alpha::server_reflection_request::MessageRequest as FormerRequest;
    use v1alpha::server_reflection_response::MessageResponse as FormerResponse;

    let server = EmbeddedServer::start();
    let request = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(FormerRequest::ListServices(String::new())),
    };
    let mut client = FormerClient::new(server.wire.channel());
    let reply = server.wire.wait(async {
        let mut replies = client
            .server_reflection_info(tokio_stream::once(request))
            .await
            .unwrap()
            .into_inner();
        replies.message().await.unwrap().unwrap()
    });
    let Some(FormerResponse::ListServicesResponse(list)) = reply.message_response else {
        panic!("a list of services")
    };
    let names: BTreeSet<String> = list.service.into_iter().map(|service| service.name).collect();
    assert!(names.contains("pumice.v1.DecisionService"), "{names:?}");
}

#[test]
fn server_info_describes_the_server() {
    let server = EmbeddedServer::start();
    let info = server.wire.get_server_info(pb::GetServerInfoRequest {}).unwrap();
    assert_eq!(info.version, env!("CARGO_PKG_VERSION"));
    assert_eq!(info.policies, ["default"]);
    let plugins: Vec<_> = info.plugins.iter().map(|plugin| &*plugin.name).collect();
    assert!(
        plugins.is_sorted() && plugins.contains(&"binpack") && plugins.contains(&"resource-strategy-fit"),
        "{plugins:?}"
    );
    let families = |name: &str| {
        let plugin = info.plugins.iter().find(|plugin| plugin.name == name);
        plugin.map(|plugin| plugin.extension_points.clone()).unwrap_or_default()
    };
    assert_eq!(families("resource-strategy-fit"), ["filter", "score"]);
    assert_eq!(families("drf"), ["order", "victims"]);
    assert!(
        info.limits
            .iter()
            .all(|limit| limit.value > 0 || limit.name == "store_stale_ms")
            && info.limits.len() > 10
    );
    assert_eq!(info.sources, []);
    let store = pb::StoreStatus {
        durability: pb::Durability::Memory.into(),
        ..pb::StoreStatus::default()
    };
    assert_eq!(info.store, Some(store));
}

fn code<T>(reply: Result<T, Status>) -> Code {
    reply.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[test]
fn nothing_of_the_protocol_is_left_for_later() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let codes = [
        code(wire.place(pb::PlaceRequest::default())),
        code(wire.commit_session(pb::CommitSessionRequest::default())),
    ];
    assert!(!codes.contains(&Code::Unimplemented), "{codes:?}");
}
