//! Connect's protocol: each method as JSON over HTTP. A call becomes a gRPC call whose messages are JSON and passes the same
//! layers, so roles, limits, metrics and the audit log are decided in one place.

mod connect_errors;
mod connect_request;
mod connect_response;
mod same_site;
mod viewers;

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{Request, Response};
use axum::routing::post;
use tonic::body::Body;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use super::pb;
use connect_request::ConnectCall;
pub(crate) use same_site::CallExposure;
use viewers::{POLL_PATH, VIEWERS_HEADER, ViewerCount};

/// The services behind all layers of a call.
pub(crate) type LayeredServices = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// Front for callers who send JSON.
#[derive(Debug)]
pub(crate) struct ConnectFront {
    services: LayeredServices,
    exposure: CallExposure,
    viewers: ViewerCount,
}

/// True if the path is one of a method.
pub(crate) fn is_call_path(path: &str) -> bool {
    path.starts_with("/pumice.v1.")
}

impl ConnectFront {
    pub(crate) fn new(services: LayeredServices, exposure: CallExposure) -> Arc<Self> {
        Arc::new(Self {
            services,
            exposure,
            viewers: ViewerCount::new(),
        })
    }

    /// Router of the paths of all methods.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        let services = [pb::DECISION_SERVICE, pb::STATE_SERVICE, pb::POLICY_SERVICE];
        let routes = services.into_iter().fold(Router::new(), |router, service| {
            router.route(&format!("/{service}/{{method}}"), post(respond))
        });
        routes.with_state(self)
    }
}

async fn respond(
    Shared(front): Shared<Arc<ConnectFront>>,
    request: Request<axum::body::Body>,
) -> axum::response::Response {
    let is_poll = request.uri().path() == POLL_PATH;
    let call = match ConnectCall::read(request, front.exposure) {
        Ok(call) => call,
        Err(rejection) => return *rejection,
    };
    let Ok(response) = front.services.clone().oneshot(call.request).await;
    let mut response = if call.is_stream {
        connect_response::stream(response)
    } else {
        connect_response::unary(response).await
    };
    if is_poll && response.status().is_success() {
        response
            .headers_mut()
            .insert(VIEWERS_HEADER, front.viewers.record_poll());
    }
    response
}
