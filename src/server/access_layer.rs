//! Layer that checks the caller's roles before a call's body is received.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::http::{Request, Response};
use tonic::body::Body;
use tonic::{Code, Extensions, Status};
use tower::{Layer, Service};

use super::connection::CallerConnection;
use super::status::CallError;
use super::transport_facts::PendingFacts;
use crate::access::{AccessKeeper, AccessRejection, AccessRejectionKind, CallerAccess};

/// Layer that rejects calls of callers without the required roles.
#[derive(Clone, Debug)]
pub struct AccessLayer {
    /// Active identities.
    pub keeper: Arc<AccessKeeper>,
}

impl<S> Layer<S> for AccessLayer {
    type Service = GuardedService<S>;

    fn layer(&self, inner: S) -> GuardedService<S> {
        GuardedService {
            inner,
            keeper: Arc::clone(&self.keeper),
        }
    }
}

/// Service whose callers are checked.
#[derive(Clone, Debug)]
pub struct GuardedService<S> {
    inner: S,
    keeper: Arc<AccessKeeper>,
}

/// Rejected call, or accepted call in progress.
#[expect(missing_debug_implementations, reason = "a call that waits has nothing to show")]
pub enum GuardedFuture<F: Future> {
    /// The rejection; taken at the first poll.
    Refused(Option<Response<Body>>),
    /// The call.
    Passed(F),
    /// The call, after the API server has reviewed its caller's token.
    Reviewed(ReviewedCall<F>),
}

/// Call of a caller whose token has to be verified first.
type ReviewedCall<F> = Pin<Box<dyn Future<Output = <F as Future>::Output> + Send>>;

impl<F, E> Future for GuardedFuture<F>
where
    F: Future<Output = Result<Response<Body>, E>> + Unpin,
{
    type Output = Result<Response<Body>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Refused(response) => response
                .take()
                .map_or(Poll::Pending, |response| Poll::Ready(Ok(response))),
            Self::Passed(call) => Pin::new(call).poll(context),
            Self::Reviewed(call) => call.as_mut().poll(context),
        }
    }
}

impl<S> Service<Request<Body>> for GuardedService<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Unpin + Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = GuardedFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let access = caller_access(&self.keeper, &request);
        if access.needs_review(request.uri().path()) {
            // The service that is ready goes with the call; its clone gets ready for the next one.
            let next = self.inner.clone();
            let mut inner = std::mem::replace(&mut self.inner, next);
            return GuardedFuture::Reviewed(Box::pin(async move {
                let access = access.reviewed().await;
                match checked(access, &mut request) {
                    Ok(()) => inner.call(request).await,
                    Err(response) => Ok(*response),
                }
            }));
        }
        match checked(access, &mut request) {
            Ok(()) => GuardedFuture::Passed(self.inner.call(request)),
            Err(response) => GuardedFuture::Refused(Some(*response)),
        }
    }
}

/// Checks whether the caller may make the call and attaches the caller to the request. Otherwise returns the response.
fn checked(access: CallerAccess, request: &mut Request<Body>) -> Result<(), Box<Response<Body>>> {
    if let Err(rejection) = access.check(request.uri().path()) {
        let status = Status::from(refused(&access, rejection, request.uri().path()));
        return Err(Box::new(status.into_http()));
    }
    request.extensions_mut().insert(access);
    Ok(())
}

fn caller_access(keeper: &Arc<AccessKeeper>, request: &Request<Body>) -> CallerAccess {
    let connection = request.extensions().get::<Option<Arc<CallerConnection>>>();
    let connection = connection.and_then(Option::as_ref);
    let facts = connection.map_or_else(PendingFacts::default, |connection| connection.facts().clone());
    let address = connection.and_then(|connection| connection.peer().remote_addr);
    CallerAccess::new(
        Arc::clone(keeper),
        facts,
        address.map(|address| address.ip()),
        request.headers(),
    )
}

/// Error of a rejected call, recorded in metrics and log.
pub(super) fn refused(access: &CallerAccess, rejection: AccessRejection, what: &str) -> CallError {
    access.record_rejection(&rejection, what);
    let AccessRejection { kind, message, needed } = rejection;
    let (code, reason) = match kind {
        AccessRejectionKind::Unknown => (Code::Unauthenticated, "IDENTITY_MISSING"),
        AccessRejectionKind::Forbidden => (Code::PermissionDenied, "ROLE_MISSING"),
        AccessRejectionKind::Unverified => (Code::Unavailable, "IDENTITY_UNVERIFIED"),
    };
    CallError::new(code, reason, message)
        .with_entry("identity", access.known().name)
        .with_entry("roles", needed.to_string())
}

/// Checks whether a caller may do what a part of a method does.
pub(super) fn check_access(extensions: &Extensions, part: &str) -> Result<(), CallError> {
    let Some(access) = access_of(extensions) else {
        return Ok(());
    };
    access
        .check(part)
        .map_err(|rejection| refused(&access, rejection, part))
}

/// What the caller of a call may do; `None`: the call came by no connection, and may do everything.
pub(super) fn access_of(extensions: &Extensions) -> Option<CallerAccess> {
    extensions.get::<CallerAccess>().cloned()
}
