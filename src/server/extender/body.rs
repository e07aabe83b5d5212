//! Bodies of requests, bounded in bytes and in time: callers cannot hold unused memory.
//!
//! Bytes are charged when they arrive. If the budget is exhausted, the body that has been arriving for longest is
//! dropped: bodies of schedulers arrive at once.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::{Request, StatusCode};
use tokio::sync::Notify;

use super::HttpError;
use crate::limits::EdgeLimits;
use crate::telemetry::Metrics;
use pumice_engine::short_lock::ShortLock;

/// Bytes up to which a body may use the part of the limit that is kept for small ones.
const SMALL_BODY: usize = 1 << 20;
/// Part of the limit that is kept for small bodies: one eighth.
const RESERVE: usize = 8;

/// Bytes of all bodies that are arriving or worked on.
#[derive(Debug)]
pub(super) struct BodyRoom {
    limit: usize,
    next: AtomicU64,
    held: ShortLock<HeldBytes>,
}

#[derive(Debug, Default)]
struct HeldBytes {
    total: usize,
    /// Bodies that are still arriving, the oldest first.
    arriving: BTreeMap<u64, ArrivingBody>,
}

#[derive(Debug)]
struct ArrivingBody {
    bytes: usize,
    gives_way: Arc<Notify>,
}

impl BodyRoom {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            next: AtomicU64::new(0),
            held: ShortLock::default(),
        })
    }

    fn enter(self: &Arc<Self>) -> BodyPlace {
        let gives_way = Arc::<Notify>::default();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let arriving = ArrivingBody {
            bytes: 0,
            gives_way: Arc::clone(&gives_way),
        };
        self.held.with(|held| held.arriving.insert(number, arriving));
        BodyPlace {
            room: Arc::clone(self),
            number,
            bytes: 0,
            gives_way,
        }
    }
}

/// Place of one body, with its bytes; given back when dropped.
#[derive(Debug)]
struct BodyPlace {
    room: Arc<BodyRoom>,
    number: u64,
    /// Bytes that have arrived.
    bytes: usize,
    gives_way: Arc<Notify>,
}

impl BodyPlace {
    /// Counts bytes that have arrived; false: there is no room for them, or the body has given way.
    fn grow(&mut self, more: usize) -> bool {
        let (limit, number) = (self.room.limit, self.number);
        let most = if self.bytes.saturating_add(more) <= SMALL_BODY {
            limit
        } else {
            limit - limit / RESERVE
        };
        let grown = self.room.held.with(|held| {
            if !held.arriving.contains_key(&number) {
                return false;
            }
            while held.total.saturating_add(more) > most {
                let oldest = held
                    .arriving
                    .iter()
                    .find(|(own, body)| **own != number && body.bytes > 0);
                let Some(oldest) = oldest.map(|(own, _)| *own) else {
                    return false;
                };
                if let Some(body) = held.arriving.remove(&oldest) {
                    held.total = held.total.saturating_sub(body.bytes);
                    body.gives_way.notify_one();
                }
            }
            held.total += more;
            if let Some(own) = held.arriving.get_mut(&number) {
                own.bytes += more;
            }
            true
        });
        self.bytes += if grown { more } else { 0 };
        grown
    }

    /// Notes that the whole body is there; false: it has given way.
    fn complete(&self) -> bool {
        let number = self.number;
        self.room.held.with(|held| held.arriving.remove(&number).is_some())
    }
}

/// Body of a request, and the room that it takes.
#[derive(Debug)]
pub(super) struct HeldBody {
    pub(super) bytes: Bytes,
    _room: WholeBody,
}

/// Bytes of a whole body; given back when dropped.
#[derive(Debug)]
struct WholeBody {
    room: Arc<BodyRoom>,
    bytes: usize,
}

impl Drop for WholeBody {
    fn drop(&mut self) {
        let bytes = self.bytes;
        self.room
            .held
            .with(|held| held.total = held.total.saturating_sub(bytes));
    }
}

impl Drop for BodyPlace {
    fn drop(&mut self) {
        let number = self.number;
        self.room.held.with(|held| {
            if let Some(own) = held.arriving.remove(&number) {
                held.total = held.total.saturating_sub(own.bytes);
            }
        });
    }
}

/// Reads the body of a request.
///
/// # Errors
/// Its length is missing or too large, the memory budget is exhausted, or it does not arrive in time.
pub(super) async fn read_body(
    request: Request<Body>,
    room: &Arc<BodyRoom>,
    limits: &EdgeLimits,
    metrics: &Metrics,
) -> Result<HeldBody, HttpError> {
    let header = request.headers().get(axum::http::header::CONTENT_LENGTH);
    let Some(length) = header.and_then(|length| length.to_str().ok()?.parse::<usize>().ok()) else {
        let text = "the request has no Content-Length, which the server needs".to_owned();
        return Err((StatusCode::LENGTH_REQUIRED, text));
    };
    let most = limits.extender_body_bytes;
    if length > most {
        metrics.record_limit_rejection("extender_body_bytes");
        let text = format!(
            "the body has {length} bytes, more than limit `extender_body_bytes` ({most}) allows; set nodeCacheCapable, \
             which sends names instead of nodes"
        );
        return Err((StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    let arriving = collect(request.into_body(), length, room.enter());
    let Ok(arrived) = tokio::time::timeout(limits.request_body, arriving).await else {
        metrics.record_limit_rejection("request_body_ms");
        let text = format!(
            "the body did not come within limit `request_body_ms` ({})",
            limits.request_body.as_millis()
        );
        return Err((StatusCode::REQUEST_TIMEOUT, text));
    };
    arrived.map_err(|failure| match failure {
        BodyFailure::Broken(text) => (StatusCode::BAD_REQUEST, format!("the body did not come whole: {text}")),
        BodyFailure::NoRoom => {
            metrics.record_limit_rejection("extender_receiving_bytes");
            let text = format!(
                "bodies of other requests take the room that limit `extender_receiving_bytes` ({}) allows",
                limits.extender_receiving_bytes
            );
            (StatusCode::SERVICE_UNAVAILABLE, text)
        }
    })
}

/// Why a body did not arrive.
enum BodyFailure {
    Broken(String),
    NoRoom,
}

/// Collects a body of a length, piece by piece.
async fn collect(mut body: Body, length: usize, mut place: BodyPlace) -> Result<HeldBody, BodyFailure> {
    let mut pieces: Vec<Bytes> = Vec::new();
    loop {
        let next = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let frame = tokio::select! {
            () = place.gives_way.notified() => return Err(BodyFailure::NoRoom),
            frame = next => frame,
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| BodyFailure::Broken(error.to_string()))?;
        let Ok(piece) = frame.into_data() else { continue };
        if place.bytes.saturating_add(piece.len()) > length {
            return Err(BodyFailure::Broken("it is longer than Content-Length".to_owned()));
        }
        if !place.grow(piece.len()) {
            return Err(BodyFailure::NoRoom);
        }
        pieces.push(piece);
    }
    if !place.complete() {
        return Err(BodyFailure::NoRoom);
    }
    let whole = WholeBody {
        room: Arc::clone(&place.room),
        bytes: place.bytes,
    };
    let bytes = match <[Bytes; 1]>::try_from(pieces) {
        Ok([only]) => only,
        Err(pieces) => Bytes::from(pieces.concat()),
    };
    Ok(HeldBody { bytes, _room: whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn total(room: &BodyRoom) -> usize {
        room.held.with(|held| held.total)
    }

    #[test]
    fn bytes_count_once_they_have_arrived() {
        let room = BodyRoom::new(16 * MIB);
        let silent: Vec<BodyPlace> = (0..1_000).map(|_| room.enter()).collect();
        let mut body = room.enter();
        assert!(body.grow(14 * MIB));
        assert_eq!(total(&room), 14 * MIB);
        assert!(body.complete());
        drop(body);
        assert_eq!(total(&room), 14 * MIB, "a whole body counts until it is worked off");
        drop(WholeBody {
            room: Arc::clone(&room),
            bytes: 14 * MIB,
        });
        drop(silent);
        assert_eq!(total(&room), 0);
    }

    #[tokio::test]
    async fn the_body_that_has_been_arriving_for_longest_gives_way() {
        let room = BodyRoom::new(16 * MIB);
        let (mut first, mut second, mut small) = (room.enter(), room.enter(), room.enter());
        assert!(first.grow(8 * MIB) && second.grow(6 * MIB));
        assert!(small.grow(MIB / 2), "small bodies have a part of their own");
        assert!(second.grow(MIB));
        first.gives_way.notified().await;
        assert!(!first.grow(1) && !first.complete());
        assert!(second.complete() && small.complete());
        assert_eq!(total(&room), 7 * MIB + MIB / 2);
        drop(first);
        assert_eq!(total(&room), 7 * MIB + MIB / 2);
    }

    #[test]
    fn whole_bodies_leave_room_for_small_ones() {
        let room = BodyRoom::new(16 * MIB);
        let (mut large, mut more, mut small) = (room.enter(), room.enter(), room.enter());
        assert!(large.grow(14 * MIB) && large.complete());
        assert!(!more.grow(2 * MIB));
        assert!(small.grow(MIB) && small.complete());
    }
}
