//! HTTP front for probes, metrics, extender protocols, calls as JSON and the console. Callers cannot block probes.
//!
//! A connection is *unheard* until its request turns out to be a scrape. If too many unheard connections are open, the
//! newest replaces the oldest. Probes send their request and get the response at once, so only idle connections are
//! closed. Scrapes take longer and have a separate, smaller limit. A scrape whose client does not read its page for a
//! while is closed in favour of another. A connection for probes and metrics ends with its response. Connections of
//! extender protocols stay open, with a third limit. Connections of calls stay open, too, and are connections of the table
//! of gRPC connections.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tonic::transport::server::TcpConnectInfo;
use tower::ServiceExt as _;

use crate::access::{AccessKeeper, AccessRejection, AccessRejectionKind, CallerAccess};
use crate::limits::EdgeLimits;
use crate::server::probe::METRICS_PATH;
use crate::server::{CallerConnection, ConnectionTable, is_call_path, is_console_path, is_extender_path};
use crate::telemetry::{Metrics, WarningGate};
use pumice_engine::short_lock::ShortLock;

use super::listen::{ACCEPT_RETRY_DELAY, ListenerSecurity, http_stream};
use super::timed_connection::{ConnectionGuard, TimedConnection};
use crate::server::wait_until_true;

/// Largest head of a request, in bytes.
const HEAD_BYTES: usize = 16 << 10;

/// Time that a scrape has to take its page, before it makes room for another.
const SCRAPE_GRACE: Duration = Duration::from_secs(2);

/// Scrape under way.
#[derive(Debug)]
struct OpenScrape {
    since: Instant,
    closing: Arc<Notify>,
}

/// Places of connections for probes and metrics.
#[derive(Debug)]
struct HttpPlaces {
    limit: usize,
    scrape_limit: usize,
    next: AtomicU64,
    /// Connections that can be closed for the sake of a new one, the oldest first.
    unheard: ShortLock<BTreeMap<u64, Arc<Notify>>>,
    /// Scrapes under way, the oldest first.
    scrapes: ShortLock<BTreeMap<u64, OpenScrape>>,
    /// Free connections of extender protocols.
    schedulers: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

impl HttpPlaces {
    fn new(limits: &EdgeLimits, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            limit: limits.http_connections,
            scrape_limit: limits.scrapes,
            next: AtomicU64::new(0),
            unheard: ShortLock::default(),
            scrapes: ShortLock::default(),
            schedulers: Arc::new(Semaphore::new(limits.extender_connections.min(Semaphore::MAX_PERMITS))),
            metrics,
        })
    }

    /// Place of a new connection. The oldest unheard connection is closed if there are too many.
    fn enter(self: &Arc<Self>) -> HttpPlace {
        let place = HttpPlace {
            places: Arc::clone(self),
            number: self.next.fetch_add(1, Ordering::Relaxed),
            closing: Arc::default(),
            scheduler: ShortLock::default(),
        };
        let oldest = self.unheard.with(|unheard| {
            unheard.insert(place.number, Arc::clone(&place.closing));
            (unheard.len() > self.limit).then(|| unheard.pop_first()).flatten()
        });
        if let Some((_, closing)) = oldest {
            closing.notify_one();
            self.metrics.record_limit_rejection("http_connections");
        }
        place
    }
}

/// Place of one connection.
#[derive(Debug)]
struct HttpPlace {
    places: Arc<HttpPlaces>,
    number: u64,
    closing: Arc<Notify>,
    /// Permit of an extender connection, after its first request.
    scheduler: ShortLock<Option<OwnedSemaphorePermit>>,
}

impl HttpPlace {
    /// Marks the connection as an extender connection, which stays open. Returns false if there are too many.
    fn begin_scheduler(&self) -> bool {
        if self.scheduler.with(|scheduler| scheduler.is_some()) {
            return true;
        }
        let Ok(permit) = Arc::clone(&self.places.schedulers).try_acquire_owned() else {
            self.places.metrics.record_limit_rejection("extender_connections");
            return false;
        };
        self.scheduler.with(|scheduler| *scheduler = Some(permit));
        self.places.unheard.with(|unheard| unheard.remove(&self.number));
        true
    }

    /// Takes a place among the scrapes until the connection ends. If there are too many and the oldest client has not
    /// read its page in time, the oldest scrape is closed. Returns false if all places are taken.
    fn begin_scrape(&self) -> bool {
        let now = Instant::now();
        let oldest = self.places.scrapes.with(|scrapes| {
            let mut oldest = None;
            if scrapes.len() >= self.places.scrape_limit {
                let first = scrapes.first_entry()?;
                if now.saturating_duration_since(first.get().since) < SCRAPE_GRACE {
                    return None;
                }
                oldest = Some(first.remove());
            }
            let closing = Arc::clone(&self.closing);
            scrapes.insert(self.number, OpenScrape { since: now, closing });
            Some(oldest)
        });
        match oldest {
            None => return false,
            Some(None) => {}
            Some(Some(oldest)) => {
                oldest.closing.notify_one();
                self.places.metrics.record_limit_rejection("scrapes");
            }
        }
        self.places.unheard.with(|unheard| unheard.remove(&self.number));
        true
    }

    fn leave(&self) {
        self.places.unheard.with(|unheard| unheard.remove(&self.number));
        self.places.scrapes.with(|scrapes| scrapes.remove(&self.number));
    }

    /// Marks the connection as one of calls, which stays open. Another limit bounds them.
    fn begin_calls(&self) {
        self.places.unheard.with(|unheard| unheard.remove(&self.number));
    }

    fn too_many_scrapes(&self) -> Response {
        self.places.metrics.record_limit_rejection("scrapes");
        let limit = self.places.scrape_limit;
        let text = format!("too many scrapes are under way (limit `scrapes` is {limit})\n");
        (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")], text).into_response()
    }
}

impl Drop for HttpPlace {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Serves the router until `quitting` turns true and the requests under way are answered.
pub(super) async fn serve_http(
    listener: TcpListener,
    router: Router,
    limits: &EdgeLimits,
    guard: HttpGuard,
    quitting: watch::Receiver<bool>,
) -> io::Result<()> {
    let places = HttpPlaces::new(limits, Arc::clone(&guard.metrics));
    let guard = Arc::new(guard);
    let times = (limits.http_header, limits.stalled);
    let failures = WarningGate::new();
    let mut connections = JoinSet::new();
    let mut quit = std::pin::pin!(wait_until_true(quitting.clone()));
    loop {
        tokio::select! {
            () = &mut quit => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let caller = HttpCaller::new(&guard, &stream, peer);
                    let facts = &caller.connection.facts;
                    let stream = http_stream(stream, guard.security.as_ref(), facts);
                    let stream = TimedConnection::of_http(stream, facts.clone(), times.1);
                    let connection = serve_connection(stream, router.clone(), (places.enter(), caller), times.0, quitting.clone());
                    connections.spawn(connection);
                }
                Err(error) => {
                    if let Some(suppressed) = failures.pass() {
                        tracing::warn!(%error, suppressed, "a connection cannot be accepted");
                    }
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// Response after which the connection ends.
fn closing(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn too_many_schedulers() -> Response {
    let text = "too many schedulers are connected (limit `extender_connections`)\n";
    (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")], text).into_response()
}

fn too_many_connections() -> Response {
    let text = "too many connections are open, and none is idle (limit `connections`)\n";
    (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")], text).into_response()
}

/// Serves the requests of a connection: of a scheduler and of a caller of methods all, of others the first. The connection ends at a time limit, too, or when
/// another needs its place.
async fn serve_connection(
    stream: TimedConnection,
    router: Router,
    (place, caller): (HttpPlace, HttpCaller),
    header_time: Duration,
    quitting: watch::Receiver<bool>,
) {
    let caller = Arc::new(caller);
    let place = Arc::new(place);
    let (asked, asking) = (Arc::clone(&place), Arc::clone(&caller));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(asking.address);
        let (router, place, caller) = (router.clone(), Arc::clone(&asked), Arc::clone(&asking));
        async move {
            if caller.guard.serves_calls && is_call_path(request.uri().path()) {
                if !caller.begin_calls() {
                    return Ok(closing(too_many_connections()));
                }
                place.begin_calls();
                request.extensions_mut().insert(Some(Arc::clone(&caller.connection)));
                return router.oneshot(request).await;
            }
            if caller.guard.serves_calls && is_console_path(request.uri().path()) {
                request.extensions_mut().insert(Some(Arc::clone(&caller.connection)));
                return Ok(closing(router.oneshot(request).await?));
            }
            if let Err(rejection) = caller.check(&request).await {
                return Ok(closing(refused_page(&rejection)));
            }
            let path = request.uri().path();
            if is_extender_path(path) {
                if !place.begin_scheduler() {
                    return Ok(closing(too_many_schedulers()));
                }
                return router.oneshot(request).await;
            }
            if path == METRICS_PATH && !place.begin_scrape() {
                return Ok::<_, Infallible>(closing(place.too_many_scrapes()));
            }
            Ok(closing(router.oneshot(request).await?))
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(header_time)
        .max_buf_size(HEAD_BYTES);
    let stream = TokioIo::new(stream);
    let mut connection = std::pin::pin!(http.serve_connection(stream, service));
    tokio::select! {
        // An error means that the caller is gone, or was too slow.
        _ = connection.as_mut() => return,
        () = place.closing.notified() => return,
        () = poll_fn(|context| caller.connection.poll_closed(context)) => return,
        () = wait_until_true(quitting) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Checks of the front before it responds.
pub(super) struct HttpGuard {
    pub(super) metrics: Arc<Metrics>,
    /// TLS of the listener.
    pub(super) security: Option<ListenerSecurity>,
    /// Identities in force.
    pub(super) identities: Arc<AccessKeeper>,
    /// Connections of callers of methods, over gRPC and over HTTP.
    pub(super) table: Arc<ConnectionTable>,
    /// True if methods are called as JSON, and the console is served.
    pub(super) serves_calls: bool,
}

/// Caller of one connection.
struct HttpCaller {
    guard: Arc<HttpGuard>,
    connection: Arc<CallerConnection>,
    address: IpAddr,
    /// Place in the table, after the first call of a method.
    place: ShortLock<Option<ConnectionGuard>>,
}

impl HttpCaller {
    fn new(guard: &Arc<HttpGuard>, stream: &TcpStream, peer: SocketAddr) -> Self {
        let addresses = TcpConnectInfo {
            local_addr: stream.local_addr().ok(),
            remote_addr: Some(peer),
        };
        Self {
            connection: guard.table.connection(addresses),
            guard: Arc::clone(guard),
            address: peer.ip(),
            place: ShortLock::default(),
        }
    }

    /// Takes a place in the table of connections, once. Returns false if there is none.
    fn begin_calls(&self) -> bool {
        if self.place.with(|place| place.is_some()) {
            return true;
        }
        if !self.guard.table.enlist(&self.connection) {
            return false;
        }
        let place = ConnectionGuard {
            table: Arc::clone(&self.guard.table),
            connection: Arc::clone(&self.connection),
        };
        self.place.with(|own| *own = Some(place));
        true
    }

    /// Checks whether the caller may read the page. A rejection is recorded in metrics, log and audit log.
    async fn check(&self, request: &Request<Incoming>) -> Result<(), AccessRejection> {
        let (identities, facts) = (Arc::clone(&self.guard.identities), self.connection.facts.clone());
        let mut access = CallerAccess::new(identities, facts, Some(self.address), request.headers());
        let path = request.uri().path();
        let check = |access: &CallerAccess| {
            if is_extender_path(path) {
                access.check_extender(path)
            } else {
                access.check_page(path == METRICS_PATH)
            }
        };
        let mut checked = check(&access);
        if checked.is_err() && access.awaits_review() {
            access = access.reviewed().await;
            checked = check(&access);
        }
        checked.inspect_err(|rejection| access.record_rejection(rejection, path))
    }
}

fn refused_page(rejection: &AccessRejection) -> Response {
    let text = format!("{}\n", rejection.message);
    match rejection.kind {
        AccessRejectionKind::Unknown => {
            (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")], text).into_response()
        }
        AccessRejectionKind::Forbidden => (StatusCode::FORBIDDEN, text).into_response(),
        AccessRejectionKind::Unverified => {
            (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")], text).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn scrapes_whose_page_is_not_taken_make_room() {
        let limits = EdgeLimits {
            scrapes: 2,
            ..EdgeLimits::default()
        };
        let places = HttpPlaces::new(&limits, Arc::new(Metrics::new()));
        let (first, second, third) = (places.enter(), places.enter(), places.enter());
        assert!(first.begin_scrape() && second.begin_scrape());
        assert!(!third.begin_scrape(), "the others have begun just now");
        places.scrapes.with(|scrapes| {
            let oldest = scrapes.get_mut(&first.number).unwrap();
            oldest.since = Instant::now().checked_sub(SCRAPE_GRACE).unwrap();
        });
        assert!(third.begin_scrape(), "the first one makes room");
        first.closing.notified().await;
        assert!(!places.enter().begin_scrape());
        drop((first, second));
        assert!(places.enter().begin_scrape(), "a place that is given back");
        assert_eq!(places.unheard.with(|unheard| unheard.len()), 0);
    }
}
