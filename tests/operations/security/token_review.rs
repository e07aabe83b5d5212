//! Tokens of Kubernetes service accounts, verified by an API server that this test plays, over TLS.

#![expect(clippy::disallowed_types, reason = "an API server of a test")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use pumice::server::pb;
use pumice_protocol::{ClientConnection, ConnectOptions};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::authority::{TestAuthority, runtime};
use crate::support::program::LoggedProcess;
use crate::support::{TestDirectory, fetch, metric_value};

/// Token with which the server reaches the API server.
const OWN_TOKEN: &str = "the-token-of-the-server";

/// Behaviour of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApiMode {
    Respond,
    Forbid,
    Hang,
}

/// API server that knows some tokens.
struct FakeApi {
    /// User and audiences by token.
    tokens: Mutex<BTreeMap<String, (String, Vec<String>)>>,
    mode: Mutex<ApiMode>,
    reviews: AtomicUsize,
}

impl FakeApi {
    fn reviews(&self) -> usize {
        self.reviews.load(Ordering::SeqCst)
    }

    fn set(&self, mode: ApiMode) {
        *self.mode.lock().unwrap() = mode;
    }

    fn add(&self, token: &str, user: &str, audience: &str) {
        let entry = (user.to_owned(), vec![audience.to_owned()]);
        self.tokens.lock().unwrap().insert(token.to_owned(), entry);
    }
}

async fn review(Shared(api): Shared<Arc<FakeApi>>, headers: HeaderMap, body: String) -> Response {
    assert_eq!(headers["authorization"], format!("Bearer {OWN_TOKEN}"));
    let asked: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&asked["kind"], &asked["spec"]["audiences"]),
        (&json!("TokenReview"), &json!(["pumice"]))
    );
    api.reviews.fetch_add(1, Ordering::SeqCst);
    let mode = *api.mode.lock().unwrap();
    match mode {
        ApiMode::Respond => {}
        ApiMode::Forbid => {
            let status = json!({"kind": "Status", "code": 403, "message": "tokenreviews is forbidden"});
            return (StatusCode::FORBIDDEN, status.to_string()).into_response();
        }
        ApiMode::Hang => tokio::time::sleep(Duration::from_mins(1)).await,
    }
    // Calls with one token overlap.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let token = asked["spec"]["token"].as_str().unwrap();
    let known = api.tokens.lock().unwrap().get(token).cloned();
    let status = match known {
        Some((user, audiences)) if audiences.contains(&"pumice".to_owned()) => {
            json!({"authenticated": true, "user": {"username": user}, "audiences": audiences})
        }
        Some(_) | None => json!({"authenticated": false, "error": "invalid bearer token"}),
    };
    (
        StatusCode::CREATED,
        json!({"kind": "TokenReview", "status": status}).to_string(),
    )
        .into_response()
}

/// Serves the API over TLS with the certificate of the authority's server.
fn serve_api(runtime: &Runtime, authority: &TestAuthority) -> (Arc<FakeApi>, SocketAddr) {
    let api = Arc::new(FakeApi {
        tokens: Mutex::default(),
        mode: Mutex::new(ApiMode::Respond),
        reviews: AtomicUsize::new(0),
    });
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let router = axum::Router::new()
        .route(path, post(review))
        .with_state(Arc::clone(&api));
    let chain = CertificateDer::pem_slice_iter(&authority.read("server.crt")).collect::<Result<Vec<_>, _>>();
    let key = PrivateKeyDer::from_pem_slice(&authority.read("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.unwrap(), key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, router) = (acceptor.clone(), router.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let http = hyper::server::conn::http1::Builder::new();
                let _ = http
                    .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
                    .await;
            });
        }
    });
    (api, address)
}

/// Server that verifies tokens by that API server, its identities, and what the test plays.
struct ReviewedServer {
    runtime: Runtime,
    api: Arc<FakeApi>,
    program: LoggedProcess,
    _folder: TestDirectory,
}

const IDENTITIES: &str = "\
token_review: {audiences: [pumice]}
identities:
- {name: scheduler, service_accounts: [volcano-system/scheduler], roles: [read, decide]}
- {name: feed, service_accounts: [kube-system/feed], roles: [sync], sources: [kube]}
local: {roles: [read]}
";

fn start() -> ReviewedServer {
    let (runtime, authority, folder) = (runtime(), TestAuthority::new(&[]), TestDirectory::new());
    let (api, address) = serve_api(&runtime, &authority);
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: 'https://localhost:{}', certificate-authority: '{}'}}}}]\n\
         users: [{{name: u, user: {{token: {OWN_TOKEN}}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n",
        address.port(),
        authority.text("ca.crt")
    );
    // The authority has to live as long as the API server.
    folder.file("ca.crt", &String::from_utf8(authority.read("ca.crt")).unwrap());
    let kubeconfig = kubeconfig.replace(
        &authority.text("ca.crt"),
        &folder.0.join("ca.crt").display().to_string(),
    );
    let kubeconfig = folder.file("kubeconfig", &kubeconfig).display().to_string();
    let identities = folder.file("identities.yaml", IDENTITIES).display().to_string();
    let program = LoggedProcess::serve(&["--identities-file", &identities, "--kubeconfig", &kubeconfig]);
    ReviewedServer {
        runtime,
        api,
        program,
        _folder: folder,
    }
}

/// Token in the form of a service account's.
fn token(name: &str) -> String {
    format!("eyJhbGciOiJSUzI1NiJ9.{name}.c2lnbmF0dXJl")
}

impl ReviewedServer {
    fn connect(&self, token: Option<&str>) -> ClientConnection {
        let options = ConnectOptions {
            token: token.map(str::to_owned),
            ..ConnectOptions::new(self.program.grpc.to_string())
        };
        self.runtime.block_on(ClientConnection::open_with(&options)).unwrap()
    }

    /// Asks for a list, which takes the role `read`.
    fn list(&self, token: Option<&str>) -> Result<(), Status> {
        let mut connection = self.connect(token);
        let asked = connection.state.list_nodes(pb::ListNodesRequest::default());
        self.runtime.block_on(asked).map(drop)
    }
}

fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .map(|info| info.reason)
        .unwrap_or_default()
}

#[test]
fn a_service_account_has_the_roles_of_its_identity() {
    let server = start();
    let (own, other) = (token("scheduler"), token("other"));
    server
        .api
        .add(&own, "system:serviceaccount:volcano-system:scheduler", "pumice");
    server.api.add(&other, "system:serviceaccount:default:other", "pumice");
    server.api.add(&token("person"), "alice", "pumice");
    server.api.add(
        &token("elsewhere"),
        "system:serviceaccount:volcano-system:scheduler",
        "vault",
    );
    for _ in 0..10 {
        server.list(Some(&own)).unwrap();
    }
    assert_eq!(server.api.reviews(), 1, "the verdict is kept");
    let mut connection = server.connect(Some(&own));
    let known = server
        .runtime
        .block_on(connection.state.who_am_i(pb::WhoAmIRequest {}))
        .unwrap()
        .into_inner();
    assert_eq!((&*known.identity, &*known.kind), ("scheduler", "service-account"));
    assert_eq!(known.roles, ["read", "decide"]);
    // The right account with the wrong role.
    let request = pb::ForgetSourceRequest {
        source: "kube".to_owned(),
        ..pb::ForgetSourceRequest::default()
    };
    let status = server
        .runtime
        .block_on(connection.state.forget_source(request))
        .unwrap_err();
    assert_eq!(
        (status.code(), &*reason(&status)),
        (Code::PermissionDenied, "ROLE_MISSING")
    );
    // An account that nobody named.
    let status = server.list(Some(&other)).unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().contains("service account `default/other`"), "{status}");
    for_others(&server);
}

/// Tokens that prove nothing.
fn for_others(server: &ReviewedServer) {
    // No account, another audience, and a token that the API server does not know; verdicts on these are kept, too.
    for name in ["person", "elsewhere", "nobody"] {
        let before = server.api.reviews();
        for _ in 0..3 {
            let status = server.list(Some(&token(name))).unwrap_err();
            assert_eq!(
                (status.code(), &*reason(&status)),
                (Code::Unauthenticated, "IDENTITY_MISSING"),
                "{name}"
            );
        }
        assert_eq!(server.api.reviews(), before + 1, "{name}");
    }
    // What is no such token is not asked about.
    let before = server.api.reviews();
    assert_eq!(
        server.list(Some("0123456789abcdef")).unwrap_err().code(),
        Code::Unauthenticated
    );
    server.list(None).unwrap();
    assert_eq!(server.api.reviews(), before);
    assert_eq!(
        metric_value(server.program.http, "pumice_token_reviews_total{outcome=\"accepted\"}"),
        2.0
    );
}

#[test]
fn calls_with_one_token_share_a_review() {
    let server = start();
    let own = token("scheduler");
    server
        .api
        .add(&own, "system:serviceaccount:volcano-system:scheduler", "pumice");
    let connection = server.connect(Some(&own));
    let calls: Vec<_> = (0..64)
        .map(|_| {
            let mut state = connection.state.clone();
            server
                .runtime
                .spawn(async move { state.list_nodes(pb::ListNodesRequest::default()).await.map(drop) })
        })
        .collect();
    for call in calls {
        server.runtime.block_on(call).unwrap().unwrap();
    }
    assert_eq!(server.api.reviews(), 1);
}

#[test]
fn without_the_api_server_a_token_is_unverified_and_others_are_served() {
    let server = start();
    let own = token("scheduler");
    server
        .api
        .add(&own, "system:serviceaccount:volcano-system:scheduler", "pumice");
    server.api.set(ApiMode::Forbid);
    let status = server.list(Some(&own)).unwrap_err();
    assert_eq!(
        (status.code(), &*reason(&status)),
        (Code::Unavailable, "IDENTITY_UNVERIFIED")
    );
    // The caller may be anybody: what the API server says is in the log only.
    assert!(status.message().contains("the log of this server says why"), "{status}");
    assert!(!status.message().contains("forbidden"), "{status}");
    let logged = server.program.logged("the reason", |line| {
        line.to_string()
            .contains("let the server's account create `tokenreviews`")
    });
    assert!(
        logged.to_string().contains("tokenreviews is forbidden (403)"),
        "{logged}"
    );
    let mut state = server.connect(Some(&own)).state;
    let unverified = server
        .runtime
        .block_on(state.who_am_i(pb::WhoAmIRequest {}))
        .unwrap_err();
    assert_eq!(
        (unverified.code(), &*reason(&unverified)),
        (Code::Unavailable, "IDENTITY_UNVERIFIED")
    );
    // Questions that hang keep nobody else from being served.
    server.api.set(ApiMode::Hang);
    let connection = server.connect(Some(&own));
    let hanging: Vec<_> = (0..12)
        .map(|number| {
            let mut state = server.connect(Some(&token(&format!("hanging{number}")))).state;
            server
                .runtime
                .spawn(async move { state.list_nodes(pb::ListNodesRequest::default()).await })
        })
        .collect();
    for _ in 0..20 {
        server.list(None).unwrap();
        assert!(fetch(server.program.http, "/readyz").0.starts_with("http/1.1 200"));
    }
    assert!(
        hanging.iter().any(|call| !call.is_finished()),
        "others were served meanwhile"
    );
    for call in hanging {
        let status = server.runtime.block_on(call).unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    }
    drop(connection);
    // The next token finds the API server again.
    server.api.set(ApiMode::Respond);
    server.list(Some(&own)).unwrap();
}

#[test]
fn an_address_that_floods_reviews_keeps_no_other_waiting() {
    let server = start();
    let own = token("scheduler");
    server
        .api
        .add(&own, "system:serviceaccount:volcano-system:scheduler", "pumice");
    server.api.set(ApiMode::Hang);
    // Four requests of one address hang for five seconds each, and its other calls wait.
    let calls: Vec<_> = (0..100)
        .map(|number| {
            let mut state = server.connect(Some(&token(&format!("flood{number}")))).state;
            server
                .runtime
                .spawn(async move { state.list_nodes(pb::ListNodesRequest::default()).await })
        })
        .collect();
    let before = tokio::time::Instant::now();
    while server.api.reviews() < 4 {
        std::thread::sleep(Duration::from_millis(10));
    }
    server.api.set(ApiMode::Respond);
    let request = format!(
        "GET /kube-scheduler/none HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {own}\r\nConnection: close\r\n\r\n"
    );
    let said = send_from([127, 0, 0, 2], server.program.http, &request).unwrap();
    assert!(!said.contains("503"), "{said}");
    assert!(before.elapsed() < Duration::from_secs(4), "{:?}", before.elapsed());
    assert_eq!(server.api.reviews(), 5, "the others of the flood wait for their share");
    drop(calls);
}

/// Reply to a request that comes from this address of the machine.
fn send_from(address: [u8; 4], to: SocketAddr, request: &str) -> std::io::Result<String> {
    runtime().block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((address, 0)))?;
        let stream = socket.connect(to).await?;
        let mut stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        std::io::Write::write_all(&mut stream, request.as_bytes())?;
        let mut reply = String::new();
        std::io::Read::read_to_string(&mut stream, &mut reply)?;
        Ok(reply)
    })
}
