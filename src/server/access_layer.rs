//! Layer that checks the caller's roles before a call's body is received.

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::http::{Request, Response};
use futures_util::future::Either;
use tonic::body::Body;
use tonic::{Extensions, Status};
use tower::{Layer, Service};

use super::connection::CallerConnection;
use super::status::{CallError, RpcResult};
use super::transport_facts::PendingFacts;
use crate::access::{AccessKeeper, AccessRejection, AccessRejectionKind, CallerAccess};
use pumice_engine::model::ErrorCode;

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

/// Call that is rejected, or whose caller's token has to be verified first.
type HeldCall<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

impl<S> Service<Request<Body>> for GuardedService<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<S::Future, HeldCall<S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let access = caller_access(&self.keeper, &request);
        if access.needs_review(request.uri().path()) {
            // The service that is ready goes with the call; its clone gets ready for the next one.
            let next = self.inner.clone();
            let mut inner = std::mem::replace(&mut self.inner, next);
            return Either::Right(Box::pin(async move {
                let access = access.reviewed().await;
                match checked(access, &mut request) {
                    Ok(()) => inner.call(request).await,
                    Err(response) => Ok(*response),
                }
            }));
        }
        match checked(access, &mut request) {
            Ok(()) => Either::Left(self.inner.call(request)),
            Err(response) => Either::Right(Box::pin(ready(Ok(*response)))),
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
    let facts = connection.map_or_else(PendingFacts::default, |connection| connection.facts.clone());
    let address = connection.and_then(|connection| connection.peer.remote_addr);
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
    let code = match kind {
        AccessRejectionKind::Unknown => ErrorCode::IdentityMissing,
        AccessRejectionKind::Forbidden => ErrorCode::RoleMissing,
        AccessRejectionKind::Unverified => ErrorCode::IdentityUnverified,
    };
    CallError::new(code, message)
        .with_entry("identity", access.known().name)
        .with_entry("roles", needed.to_string())
}

/// Checks whether a caller may do what a part of a method does.
pub(super) fn check_access(extensions: &Extensions, part: &str) -> RpcResult<()> {
    let Some(access) = access_of(extensions) else {
        return Ok(());
    };
    access
        .check(part)
        .map_err(|rejection| refused(&access, rejection, part))
}

/// Permissions of the caller; `None`: the call came without a connection, so everything is permitted.
pub(super) fn access_of(extensions: &Extensions) -> Option<CallerAccess> {
    extensions.get::<CallerAccess>().cloned()
}
