//! The matrix of methods and roles, cell by cell: a stranger, each role alone, and wrong credentials, over real connections.

use pumice::access::{METHODS, MethodAccess, Role};
use pumice::server::pb;
use pumice_protocol::{ClientConnection, ConnectOptions};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1alpha;

use super::authority::{TestAuthority, runtime};
use crate::support::reason;

/// Identities of the test: one per role, named like it, and one without the role that would help.
pub(super) const IDENTITIES: &str = "
identities:
- {name: read, certificates: [read.example], roles: [read]}
- {name: decide, certificates: [decide.example], roles: [decide]}
- {name: sync, certificates: [sync.example], roles: [sync], sources: [own, 'team-*']}
- {name: admin, certificates: [admin.example], roles: [admin]}
- {name: robot, token_file: robot.token, roles: [read]}
open: []
";

macro_rules! call {
    ($client:expr, $method:ident, $request:ident) => {
        $client.$method(pb::$request::default()).await.map(drop)
    };
}

/// Calls the method of a path, whatever the request means.
async fn call(connection: &mut ClientConnection, options: &ConnectOptions, path: &str) -> Result<(), Status> {
    let ClientConnection {
        decisions,
        policies,
        state,
        ..
    } = connection;
    match path.rsplit('/').next().unwrap() {
        "Admit" => call!(decisions, admit, AdmitRequest),
        "Admit (CONFIRM)" => {
            let request = pb::AdmitRequest {
                mode: pb::AdmitMode::Confirm.into(),
                ..pb::AdmitRequest::default()
            };
            decisions.admit(request).await.map(drop)
        }
        "CloseSession" => call!(decisions, close_session, CloseSessionRequest),
        "CommitSession" => call!(decisions, commit_session, CommitSessionRequest),
        "Filter" => call!(decisions, filter, FilterRequest),
        "ListSessions" => call!(decisions, list_sessions, ListSessionsRequest),
        "OpenSession" => call!(decisions, open_session, OpenSessionRequest),
        "Order" => call!(decisions, order, OrderRequest),
        "Place" => call!(decisions, place, PlaceRequest),
        "Place (COMMIT)" => {
            let request = pb::PlaceRequest {
                effect: pb::PlaceEffect::Commit.into(),
                ..pb::PlaceRequest::default()
            };
            decisions.place(request).await.map(drop)
        }
        "Score" => call!(decisions, score, ScoreRequest),
        "SelectVictims" => call!(decisions, select_victims, SelectVictimsRequest),
        "DeletePolicy" => call!(policies, delete_policy, DeletePolicyRequest),
        "GetPolicy" => call!(policies, get_policy, GetPolicyRequest),
        "ListPolicies" => call!(policies, list_policies, ListPoliciesRequest),
        "ReloadPolicy" => call!(policies, reload_policy, ReloadPolicyRequest),
        "RollbackPolicy" => call!(policies, rollback_policy, RollbackPolicyRequest),
        "Apply" => apply(state, "own").await,
        "ForgetResource" => call!(state, forget_resource, ForgetResourceRequest),
        "ForgetSource" => call!(state, forget_source, ForgetSourceRequest),
        "GetNodeTable" => call!(state, get_node_table, GetNodeTableRequest),
        "GetServerInfo" => call!(state, get_server_info, GetServerInfoRequest),
        "ListJobs" => call!(state, list_jobs, ListJobsRequest),
        "ListNamespaces" => call!(state, list_namespaces, ListNamespacesRequest),
        "ListNodes" => call!(state, list_nodes, ListNodesRequest),
        "ListQueues" => call!(state, list_queues, ListQueuesRequest),
        "ListReservations" => call!(state, list_reservations, ListReservationsRequest),
        "ListTasks" => call!(state, list_tasks, ListTasksRequest),
        "ReleaseAssumptions" => call!(state, release_assumptions, ReleaseAssumptionsRequest),
        "ReleaseReservation" => call!(state, release_reservation, ReleaseReservationRequest),
        "Sync" => sync(state, "own").await,
        "WhoAmI" => call!(state, who_am_i, WhoAmIRequest),
        _ => other(options, path).await,
    }
}

type StateClient = pb::StateServiceClient<pumice_protocol::CallTransport>;

async fn apply(state: &mut StateClient, source: &str) -> Result<(), Status> {
    state
        .apply(pb::ApplyRequest {
            batch: Some(batch(source)),
        })
        .await
        .map(drop)
}

async fn sync(state: &mut StateClient, source: &str) -> Result<(), Status> {
    let requests = tokio_stream::iter([pb::SyncRequest {
        batch: Some(batch(source)),
    }]);
    let mut replies = state.sync(requests).await?.into_inner();
    replies.message().await.map(drop)
}

/// Batch that says nothing, with a number of its own.
fn batch(source: &str) -> pb::Batch {
    pb::Batch {
        source: source.to_owned(),
        source_epoch: 1,
        sequence: 1,
        kind: pb::BatchKind::FullSyncLast.into(),
        part: 1,
        ..pb::Batch::default()
    }
}

/// Calls of the services of others: health and reflection.
async fn other(options: &ConnectOptions, path: &str) -> Result<(), Status> {
    let channel = channel(options).await;
    let check = HealthCheckRequest::default();
    let asked = tokio_stream::iter([ServerReflectionRequest::default()]);
    match path {
        "/grpc.health.v1.Health/Check" => HealthClient::new(channel).check(check).await.map(drop),
        "/grpc.health.v1.Health/Watch" => HealthClient::new(channel).watch(check).await.map(drop),
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo" => {
            let mut client = ServerReflectionClient::new(channel);
            client.server_reflection_info(asked).await.map(drop)
        }
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => {
            let asked = tokio_stream::iter([v1alpha::ServerReflectionRequest::default()]);
            let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
            client.server_reflection_info(asked).await.map(drop)
        }
        unknown => panic!("the test has no call of {unknown}"),
    }
}

async fn channel(options: &ConnectOptions) -> tonic::transport::Channel {
    use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
    let mut tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(options.tls.authorities.clone().unwrap()))
        .domain_name("localhost");
    if let Some((certificate, key)) = &options.tls.certificate {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    let endpoint = Endpoint::from_shared(format!("https://{}", options.server)).unwrap();
    endpoint.tls_config(tls).unwrap().connect().await.unwrap()
}

/// True if the call was refused for its caller, with this code.
fn is_refused(outcome: &Result<(), Status>) -> Option<Code> {
    let status = outcome.as_ref().err()?;
    matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated).then(|| status.code())
}

#[test]
fn every_cell_of_the_matrix_holds() {
    let authority = TestAuthority::new(&[
        "read.example",
        "decide.example",
        "sync.example",
        "admin.example",
        "nobody.example",
    ]);
    std::fs::write(authority.path("identities.yaml"), IDENTITIES).unwrap();
    std::fs::write(authority.path("robot.token"), "0123456789abcdef0123\n").unwrap();
    let file = authority.text("identities.yaml");
    let program = authority.serve(&["--identities-file", &file, "--tls-client-auth", "optional"]);
    let runtime = runtime();
    let mut cells = 0;
    let callers: Vec<(Option<Role>, Option<&str>)> = vec![
        (Some(Role::Read), Some("read_example")),
        (Some(Role::Decide), Some("decide_example")),
        (Some(Role::Sync), Some("sync_example")),
        (Some(Role::Admin), Some("admin_example")),
        // A certificate of the authority that no identity has, and none.
        (None, Some("nobody_example")),
        (None, None),
    ];
    for (role, certificate) in callers {
        let options = authority.options(program.grpc, certificate);
        let mut connection = runtime.block_on(ClientConnection::open_with(&options)).unwrap();
        for rule in METHODS {
            let outcome = runtime.block_on(call(&mut connection, &options, rule.path));
            let allowed = match rule.access {
                MethodAccess::Open => true,
                // Closed in this test.
                MethodAccess::Probe => role.is_some(),
                MethodAccess::Roles(roles) => role.is_some_and(|role| roles.contains(role)),
            };
            let refused = is_refused(&outcome);
            let unknown = certificate.is_none();
            let expected = match (allowed, unknown) {
                (true, _) => None,
                (false, true) => Some(Code::Unauthenticated),
                (false, false) => Some(Code::PermissionDenied),
            };
            assert_eq!(
                refused, expected,
                "{} as {role:?} with {certificate:?}: {outcome:?}",
                rule.path
            );
            if let Err(status) = &outcome
                && let MethodAccess::Roles(roles) = rule.access
                && !allowed
            {
                let first = roles.iter().next().unwrap().name();
                assert!(status.message().contains(first), "{}: {status:?}", rule.path);
                let name = rule.path.trim_start_matches('/').split(" (").next().unwrap();
                assert!(status.message().contains(name), "{}: {status:?}", rule.path);
            }
            cells += 1;
        }
    }
    assert_eq!(cells, METHODS.len() * 6);
}

#[test]
fn a_source_is_written_by_those_who_may() {
    let authority = TestAuthority::new(&["sync.example", "admin.example"]);
    std::fs::write(authority.path("identities.yaml"), IDENTITIES).unwrap();
    std::fs::write(authority.path("robot.token"), "0123456789abcdef0123\n").unwrap();
    let file = authority.text("identities.yaml");
    let program = authority.serve(&["--identities-file", &file]);
    let runtime = runtime();
    let options = authority.options(program.grpc, Some("sync_example"));
    let mut connection = runtime.block_on(ClientConnection::open_with(&options)).unwrap();
    for (source, allowed) in [
        ("own", true),
        ("team-a", true),
        ("other", false),
        ("owner", false),
        ("team", false),
    ] {
        for outcome in [
            runtime.block_on(apply(&mut connection.state, source)),
            runtime.block_on(sync(&mut connection.state, source)),
        ] {
            if allowed {
                outcome.unwrap();
                continue;
            }
            let status = outcome.unwrap_err();
            assert_eq!(
                (status.code(), reason(&status).as_str()),
                (Code::PermissionDenied, "ROLE_MISSING")
            );
            assert!(status.message().contains(&format!("`{source}`")), "{status:?}");
            assert!(status.message().contains("own, team-*"), "{status:?}");
        }
    }
}

#[test]
fn who_am_i_says_whom_the_server_takes_a_caller_for() {
    let authority = TestAuthority::new(&["sync.example", "nobody.example"]);
    let identities = format!("{IDENTITIES}local: {{roles: [read]}}\n");
    std::fs::write(authority.path("identities.yaml"), identities).unwrap();
    std::fs::write(authority.path("robot.token"), "0123456789abcdef0123\n").unwrap();
    let (file, socket) = (authority.text("identities.yaml"), authority.text("s.sock"));
    let auth = ["--tls-client-auth", "optional"];
    let program = authority.serve(&[&["--identities-file", &file, "--grpc-socket", &socket][..], &auth].concat());
    let runtime = runtime();
    let asked = |options: &ConnectOptions| {
        let mut connection = runtime.block_on(ClientConnection::open_with(options)).unwrap();
        runtime
            .block_on(connection.state.who_am_i(pb::WhoAmIRequest {}))
            .unwrap()
            .into_inner()
    };
    let known = asked(&authority.options(program.grpc, Some("sync_example")));
    assert_eq!((known.identity.as_str(), known.kind.as_str()), ("sync", "certificate"));
    assert_eq!(
        (known.roles, known.transport.as_str()),
        (vec!["sync".to_owned()], "tls")
    );
    assert_eq!(known.sources, ["own", "team-*"]);
    assert_eq!(
        (known.address.as_str(), known.certificate_names),
        ("127.0.0.1", vec!["sync.example".to_owned()])
    );
    let unknown = asked(&authority.options(program.grpc, Some("nobody_example")));
    assert_eq!((unknown.identity.as_str(), unknown.kind.as_str()), ("", "certificate"));
    assert!(unknown.roles.is_empty());
    let local = asked(&ConnectOptions::new(format!("unix:{socket}")));
    assert_eq!(
        (local.identity.as_str(), local.kind.as_str(), local.transport.as_str()),
        ("local", "local", "socket")
    );
    let mut with_token = authority.options(program.grpc, Some("sync_example"));
    with_token.token = Some("0123456789abcdef0123".to_owned());
    let robot = asked(&with_token);
    assert_eq!((robot.identity.as_str(), robot.kind.as_str()), ("robot", "token"));
    // A token that is not known is refused whatever else is shown.
    with_token.token = Some("0123456789abcdef0124".to_owned());
    let wrong = asked(&with_token);
    assert!(wrong.roles.is_empty() && wrong.identity.is_empty(), "{wrong:?}");
    let mut connection = runtime.block_on(ClientConnection::open_with(&with_token)).unwrap();
    let status = runtime
        .block_on(connection.state.get_server_info(pb::GetServerInfoRequest {}))
        .unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::Unauthenticated, "IDENTITY_MISSING")
    );
    let log = format!("{:?}", program.log());
    assert!(!log.contains("0123456789abcdef"), "a token is in the log");
}
