//! Doors for the fuzzer: the services without a socket, and readers that no caller reaches by themselves.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::http::{Request, header};
use rustls::pki_types::CertificateDer;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, HeaderName, HeaderValue};
use tonic::service::Routes;
use tonic::transport::server::TcpConnectInfo;
use tower::{Layer as _, ServiceExt as _};

use crate::access::{self, AccessKeeper};
use crate::limits::EdgeLimits;
use crate::server::{
    AccessLayer, BUILT_IN_POLICY, CallerConnection, ConnectionTable, ExtenderFront, MemoryBudget, ServerContext,
    ServicesLayer, ThrottleLayer,
};
use crate::telemetry::Metrics;
use crate::tls;
use pumice_engine::model::LabelKinds;
use pumice_protocol::v1 as pb;
use pumice_state::{SharedState, StateOptions, SystemClock};

/// Bytes of memory that one fuzzed request may hold.
const MESSAGE_BYTES: usize = 4 << 20;

/// Outcome of a call: its gRPC code, and the bytes of the response.
pub type CallOutcome = (i32, Vec<u8>);

/// The services over a state of their own, behind the layers of a listener.
#[derive(Debug)]
pub struct FuzzedServer {
    runtime: Runtime,
    services: ServicesLayer,
    front: Router,
    throttle: ThrottleLayer,
    guard: AccessLayer,
    connection: Arc<CallerConnection>,
    _drain_on_drop: watch::Sender<bool>,
}

impl FuzzedServer {
    /// Starts the services under the built-in policy.
    ///
    /// # Panics
    /// No thread can be started.
    #[expect(clippy::expect_used, reason = "the fuzzer has nothing to do without its server")]
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let options = StateOptions {
            epoch: 1,
            ..StateOptions::default()
        };
        let state = SharedState::start(options, Arc::new(SystemClock::default())).expect("the state starts");
        let limits = EdgeLimits {
            request_bytes: MESSAGE_BYTES,
            response_bytes: MESSAGE_BYTES,
            ..EdgeLimits::default()
        };
        let metrics = Arc::new(Metrics::new());
        let (sender, draining) = watch::channel(false);
        let table = ConnectionTable::new(16, Arc::clone(&metrics));
        let connection = table.admit(TcpConnectInfo {
            local_addr: None,
            remote_addr: None,
        });
        let (measured, labels) = (Arc::clone(&metrics), LabelKinds::default());
        let edge = ServerContext::new(state, measured, limits.clone(), draining, 1, labels);
        let memory = MemoryBudget::new(&limits, &table);
        let throttle = ThrottleLayer::new(&limits, &memory, edge.workers());
        let server = Self {
            services: edge.services(),
            front: ExtenderFront::new(Arc::clone(&edge), &memory, None).router(),
            throttle,
            guard: AccessLayer {
                keeper: AccessKeeper::unrestricted(metrics),
            },
            connection: connection.expect("a place for the only connection"),
            runtime,
            _drain_on_drop: sender,
        };
        let policy = pb::ReloadPolicyRequest {
            document: BUILT_IN_POLICY.to_owned(),
            ..pb::ReloadPolicyRequest::default()
        };
        let message = prost::Message::encode_to_vec(&policy);
        server.call("/pumice.v1.PolicyService/ReloadPolicy", &[], frame(&message));
        server
    }

    /// Makes a call with these headers and this body, whose messages are framed.
    pub fn call(&self, path: &str, headers: &[(&'static str, &[u8])], body: Vec<u8>) -> CallOutcome {
        let mut request = Request::new(Body::new(axum::body::Body::from(body)));
        let Ok(uri) = path.parse() else { return (-1, Vec::new()) };
        *request.uri_mut() = uri;
        *request.method_mut() = axum::http::Method::POST;
        request
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                request.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        request.extensions_mut().insert(Some(Arc::clone(&self.connection)));
        let service = self
            .guard
            .layer(self.throttle.layer(self.services.layer(Routes::default())));
        self.runtime.block_on(async {
            let Ok(response) = service.oneshot(request).await;
            let code = Status::from_header_map(response.headers()).map_or(0, |status| status.code() as i32);
            let body = axum::body::to_bytes(axum::body::Body::new(response.into_body()), MESSAGE_BYTES).await;
            (code, body.map(Vec::from).unwrap_or_default())
        })
    }

    /// Asks a front for extender protocols, with or without a hold; the HTTP status and the body of the answer.
    pub fn ask_extender(&self, path: &str, is_dry: bool, body: Vec<u8>) -> (u16, Vec<u8>) {
        let length = body.len();
        let request = Request::post(path)
            .header(header::CONTENT_LENGTH, length)
            .header("pumice-dry-run", if is_dry { "true" } else { "false" })
            .body(axum::body::Body::from(body));
        let Ok(request) = request else { return (0, Vec::new()) };
        self.runtime.block_on(async {
            let Ok(response) = self.front.clone().oneshot(request).await;
            let status = response.status().as_u16();
            let body = axum::body::to_bytes(response.into_body(), MESSAGE_BYTES).await;
            (status, body.map(Vec::from).unwrap_or_default())
        })
    }
}

/// Frame of one plain message.
pub fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0], &length.to_be_bytes()[..], message].concat()
}

/// Reads the header `grpc-timeout`.
pub fn read_grpc_timeout(text: &str) -> Option<std::time::Duration> {
    let mut headers = HeaderMap::new();
    headers.insert("grpc-timeout", HeaderValue::from_str(text).ok()?);
    crate::limits::grpc_timeout(&headers)
}

/// Reads a file of identities; the message of what is wrong with it.
///
/// # Errors
/// The file cannot be understood.
pub fn read_identities(text: &str) -> Result<usize, String> {
    access::read_identity_text(text, Path::new("/etc/pumice"))
}

/// Reads a file of tokens; the number of its tokens.
///
/// # Errors
/// The file cannot be understood.
pub fn read_token_file(text: &str) -> Result<usize, String> {
    access::read_token_text(text)
}

/// Names of a certificate, and the end of its validity.
pub fn read_certificate(der: &[u8]) -> (Vec<Arc<str>>, Option<u64>) {
    let certificate = CertificateDer::from(der);
    let names = tls::CertificateNames::of(&certificate);
    (
        names.iter().map(Arc::clone).collect(),
        tls::end_of_validity(&certificate),
    )
}

/// Reads the files of TLS: certificate, key and authorities.
///
/// # Errors
/// The files cannot be used.
pub fn read_tls_files(certificate: &[u8], key: &[u8], authorities: Option<&[u8]>) -> Result<(), String> {
    tls::check_files(certificate, key, authorities)
}
