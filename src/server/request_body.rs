//! Bodies of requests: received whole before a call takes its place, within a time and within budgets of bytes.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Body as HttpBody;
use prost::bytes::{Bytes, BytesMut};
use tokio::time::{Instant, sleep};
use tonic::body::Body;
use tonic::{Code, Status};

use pumice_engine::model::ErrorCode;
use pumice_engine::short_lock::ShortLock;

use super::connection::CallerConnection;
use super::shares::{HeldShare, ShareError, SharedLimit};
use super::status::{CallError, RpcResult};
use crate::limits::EdgeLimits;

/// Bytes that the transport holds for a call whose body is not there yet, beside the body.
const CALL_BYTES: usize = 4 << 10;
/// Bytes that a connection may always receive while others leave them: small requests come through.
pub(super) const LITTLE_BYTES: usize = 64 << 10;
/// Bytes of a body of an extender protocol up to which it may use the part of the limit that is kept for small ones.
const SMALL_BODY_BYTES: usize = 1 << 20;
/// Bytes of a body that are not charged: probes and the smallest requests are always accepted.
pub(super) const FREE_BYTES: usize = 1 << 10;
/// Bytes before a message: a flag and its length.
pub(super) const PREFIX_BYTES: usize = 5;
/// Age of a body at which it may be given up for the sake of others.
const GIVE_UP_AGE: Duration = Duration::from_secs(1);
/// Why a connection, or all callers, send too much.
const TOO_MANY_BYTES: [&str; 2] = [
    "this connection sends too many bytes of requests at once",
    "too many bytes of requests are being received or worked on",
];

/// Receiver of the bodies of all calls.
#[derive(Debug)]
pub(super) struct BodyReceiver {
    pub(super) bytes: Arc<SharedLimit>,
    pub(super) request_bytes: usize,
    time: Duration,
    next: AtomicU64,
    /// Bodies that are being received and have not come at once.
    slow: ShortLock<BTreeMap<u64, Arc<SlowBody>>>,
}

/// Body that is being received.
#[derive(Debug)]
pub(super) struct SlowBody {
    since: Instant,
    bytes: AtomicUsize,
    given_up: AtomicBool,
    waker: ShortLock<Option<Waker>>,
}

impl SlowBody {
    pub(super) fn begin() -> Arc<Self> {
        Arc::new(Self {
            since: Instant::now(),
            bytes: AtomicUsize::new(0),
            given_up: AtomicBool::new(false),
            waker: ShortLock::default(),
        })
    }

    /// Sets the number of received bytes.
    pub(super) fn set_bytes(&self, bytes: usize) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    fn give_up(&self) {
        // It is not chosen again while it ends.
        self.bytes.store(0, Ordering::Relaxed);
        self.given_up.store(true, Ordering::Release);
        let waker = self.waker.with(Option::take);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready when the body is given up for the sake of others.
    pub(super) fn poll_given_up(&self, context: &Context<'_>) -> Poll<()> {
        self.waker.with(|waker| *waker = Some(context.waker().clone()));
        if self.given_up.load(Ordering::Acquire) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// Entry of a slow body in the receiver's list, until it is dropped.
#[derive(Debug)]
pub(super) struct SlowEntry {
    receiver: Arc<BodyReceiver>,
    number: u64,
    pub(super) body: Arc<SlowBody>,
}

impl Drop for SlowEntry {
    fn drop(&mut self) {
        self.receiver.slow.with(|slow| slow.remove(&self.number));
    }
}

/// Bytes of the blocks of a large body. A single buffer that grows would leave as many bytes behind as it has, each time
/// that it moves.
const BLOCK_BYTES: usize = 1 << 20;

/// Body as far as it has been received.
struct PartialBody {
    /// True if the body begins with the prefix of a message.
    has_prefix: bool,
    /// Bytes of the first frame, as they came.
    first: Bytes,
    /// Bytes of several frames, in blocks.
    blocks: Vec<BytesMut>,
    bytes: usize,
    /// Frame that there was no room for yet.
    refused: Option<Bytes>,
    share: HeldShare,
}

impl PartialBody {
    fn new(share: HeldShare, has_prefix: bool) -> Self {
        Self {
            has_prefix,
            first: Bytes::new(),
            blocks: Vec::new(),
            bytes: 0,
            refused: None,
            share,
        }
    }

    fn push(&mut self, data: Bytes) {
        let before = self.bytes;
        self.bytes += data.len();
        if before == 0 {
            self.first = data;
            return;
        }
        if self.blocks.is_empty() {
            let first = std::mem::take(&mut self.first);
            self.append(&first);
        }
        self.append(&data);
    }

    fn append(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.blocks.last().is_none_or(|block| block.len() >= BLOCK_BYTES) {
                // The first block grows with a small body.
                let is_large = !self.blocks.is_empty();
                self.blocks
                    .push(BytesMut::with_capacity(if is_large { BLOCK_BYTES } else { 0 }));
            }
            let Some(block) = self.blocks.last_mut() else { return };
            let (fits, rest) = data.split_at(data.len().min(BLOCK_BYTES - block.len()));
            block.extend_from_slice(fits);
            data = rest;
        }
    }

    /// Length of the message, if that much is there.
    fn message_bytes(&self) -> Option<usize> {
        let start = self.blocks.first().map_or(&*self.first, |block| &**block);
        message_bytes(start).filter(|_| self.has_prefix)
    }

    fn into_message(mut self) -> ReceivedMessage {
        let bytes = match self.blocks.len() {
            0 => self.first,
            1 => self.blocks.swap_remove(0).freeze(),
            _ => {
                let mut whole = BytesMut::with_capacity(self.bytes);
                for block in self.blocks {
                    whole.extend_from_slice(&block);
                }
                whole.freeze()
            }
        };
        ReceivedMessage {
            bytes,
            share: self.share,
        }
    }
}

/// Request that has arrived whole.
#[derive(Debug)]
pub(super) struct ReceivedMessage {
    /// Message with its prefix.
    pub(super) bytes: Bytes,
    /// Share of the budget that the request holds until its call is decided: decoded, it waits for a worker.
    pub(super) share: HeldShare,
}

impl ReceivedMessage {
    /// Length that the message has once it is inflated, as its gzip says at its end. `None`: it is plain.
    pub(super) fn gzip_length(&self) -> Option<u32> {
        let said = self.bytes.last_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        said.filter(|_| self.bytes.first() == Some(&1))
    }
}

/// Length that the prefix of a message gives.
pub(super) fn message_bytes(bytes: &[u8]) -> Option<usize> {
    let length: [u8; 4] = bytes.get(1..PREFIX_BYTES)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(length)).ok()
}

impl BodyReceiver {
    /// Receiver with these limits.
    pub(super) fn new(limits: &EdgeLimits) -> Arc<Self> {
        let share = ("connection_receiving_bytes", limits.connection_receiving_bytes);
        let total = ("receiving_bytes", limits.receiving_bytes);
        let bytes = SharedLimit::new(total, share, LITTLE_BYTES, |held| &held.receiving);
        Self::within(bytes, limits.request_bytes, limits.request_body)
    }

    /// Receiver of the bodies of extender protocols, of which each connection has one.
    pub(super) fn of_extenders(limits: &EdgeLimits) -> Arc<Self> {
        let total = ("extender_receiving_bytes", limits.extender_receiving_bytes);
        let bytes = SharedLimit::new(total, total, SMALL_BODY_BYTES, |held| &held.receiving);
        Self::within(bytes, limits.extender_body_bytes, limits.request_body)
    }

    fn within(bytes: Arc<SharedLimit>, request_bytes: usize, time: Duration) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            request_bytes,
            time,
            next: AtomicU64::new(0),
            slow: ShortLock::default(),
        })
    }

    /// Lists a body that may be given up for the sake of others.
    pub(super) fn list(self: &Arc<Self>, body: Arc<SlowBody>) -> SlowEntry {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.slow.with(|slow| slow.insert(number, Arc::clone(&body)));
        SlowEntry {
            receiver: Arc::clone(self),
            number,
            body,
        }
    }

    /// Receives the body of a call with one message. `plain`: the message is not compressed.
    ///
    /// # Errors
    /// The body is not one message, is too large or too slow; its caller is gone; or too many bytes are being received.
    pub(super) async fn receive(
        self: &Arc<Self>,
        body: Body,
        connection: &Arc<CallerConnection>,
        plain: bool,
    ) -> RpcResult<ReceivedMessage> {
        let message = self.receive_whole(body, connection, true).await?;
        check_frame(&message.bytes, plain)?;
        Ok(message)
    }

    /// Receives a whole body. `has_prefix`: it begins with the prefix of a message, which gives its length.
    ///
    /// # Errors
    /// The body is too large or too slow; its caller is gone; or too many bytes are being received.
    pub(super) async fn receive_whole<B: HttpBody<Data = Bytes> + Unpin>(
        self: &Arc<Self>,
        mut body: B,
        connection: &Arc<CallerConnection>,
        has_prefix: bool,
    ) -> RpcResult<ReceivedMessage> {
        let mut partial = PartialBody::new(HeldShare::none(&self.bytes, connection), has_prefix);
        // Most bodies are there with their headers, and are not worth a timer and a place in the list.
        let at_once = poll_fn(|context| Poll::Ready(self.poll_fill(&mut partial, &mut body, None, context)));
        match at_once.await {
            Poll::Ready(filled) if partial.refused.is_none() => filled?,
            Poll::Ready(_) | Poll::Pending => Box::pin(self.wait_for(&mut partial, body, connection)).await?,
        }
        Ok(partial.into_message())
    }

    /// Waits for a body that was not there at once.
    async fn wait_for<B: HttpBody<Data = Bytes> + Unpin>(
        self: &Arc<Self>,
        partial: &mut PartialBody,
        mut body: B,
        connection: &Arc<CallerConnection>,
    ) -> RpcResult<()> {
        let progress = SlowBody::begin();
        let _entry = self.list(Arc::clone(&progress));
        let mut waiting = HeldShare::none(&self.bytes, connection);
        self.take(&mut waiting, CALL_BYTES, &progress).await?;
        progress.set_bytes(CALL_BYTES + partial.share.amount());
        let filling = async {
            loop {
                if let Some(data) = partial.refused.take() {
                    self.take(&mut partial.share, data.len(), &progress).await?;
                    self.push(partial, data)?;
                }
                poll_fn(|context| self.poll_fill(partial, &mut body, Some(&progress), context)).await?;
                if partial.refused.is_none() {
                    return Ok(());
                }
            }
        };
        tokio::select! {
            filled = filling => filled,
            () = poll_fn(|context| progress.poll_given_up(context)) => Err(rejected(ShareError::Full, &waiting)),
            () = sleep(self.time) => Err(self.too_slow()),
        }
    }

    /// Receives frames until the body ends, or until there is no room for one.
    fn poll_fill<B: HttpBody<Data = Bytes> + Unpin>(
        &self,
        partial: &mut PartialBody,
        body: &mut B,
        progress: Option<&SlowBody>,
        context: &mut Context<'_>,
    ) -> Poll<RpcResult<()>> {
        while let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(context)) {
            let Ok(frame) = frame else {
                return Poll::Ready(Err(abandoned()));
            };
            let Ok(data) = frame.into_data() else { continue };
            if partial.bytes + data.len() > FREE_BYTES && partial.share.grow(data.len()).is_err() {
                partial.refused = Some(data);
                return Poll::Ready(Ok(()));
            }
            self.push(partial, data)?;
            if let Some(progress) = progress {
                progress.set_bytes(CALL_BYTES + partial.share.amount());
            }
        }
        Poll::Ready(Ok(()))
    }

    fn push(&self, partial: &mut PartialBody, data: Bytes) -> RpcResult<()> {
        partial.push(data);
        let prefix = if partial.has_prefix { PREFIX_BYTES } else { 0 };
        let there = partial.bytes.saturating_sub(prefix);
        self.check_length(partial.message_bytes().unwrap_or_default().max(there))
    }

    /// Takes bytes of the budget. If it is exhausted, the body that has held most for longest is given up.
    async fn take(&self, share: &mut HeldShare, bytes: usize, progress: &Arc<SlowBody>) -> RpcResult<()> {
        share
            .grow_shedding(bytes, TOO_MANY_BYTES, || self.give_up_one(progress))
            .await
    }

    /// Gives up the body of the largest product of bytes and age. Returns false if none is old enough.
    fn give_up_one(&self, asking: &Arc<SlowBody>) -> bool {
        let slow: Vec<_> = self.slow.with(|slow| slow.values().map(Arc::clone).collect());
        let old = slow.iter().filter_map(|body| {
            let (age, bytes) = (body.since.elapsed(), body.bytes.load(Ordering::Relaxed));
            let weight = u128::try_from(bytes).unwrap_or_default() * age.as_millis();
            (!Arc::ptr_eq(body, asking) && age >= GIVE_UP_AGE && bytes > 0).then_some((weight, body))
        });
        let Some((_, heaviest)) = old.max_by_key(|(weight, _)| *weight) else {
            return false;
        };
        heaviest.give_up();
        true
    }

    pub(super) fn too_slow(&self) -> CallError {
        let milliseconds = usize::try_from(self.time.as_millis()).unwrap_or(usize::MAX);
        let message = "the request did not arrive in time";
        CallError::limit_as(ErrorCode::RequestTooSlow, "request_body_ms", milliseconds, message)
    }

    /// Time that a request has to arrive.
    pub(super) fn time(&self) -> Duration {
        self.time
    }

    /// Checks the length of a message.
    pub(super) fn check_length(&self, bytes: usize) -> RpcResult<()> {
        if bytes <= self.request_bytes {
            return Ok(());
        }
        Err(too_large(self.request_bytes))
    }
}

fn too_large(request_bytes: usize) -> CallError {
    let message = "the request is larger than this server accepts";
    CallError::limit_as(ErrorCode::RequestTooLarge, "request_bytes", request_bytes, message)
}

/// Failure of a request that tonic could not read or inflate, in the words of this service, whose own failures have details.
pub(super) fn failure_of_transport(status: &Status, request_bytes: usize) -> Option<CallError> {
    if !status.details().is_empty() {
        return None;
    }
    if status.code() == Code::Internal {
        let message = format!("the request cannot be read: {}", status.message());
        return Some(malformed(&message));
    }
    let is_too_large = matches!(status.code(), Code::ResourceExhausted | Code::OutOfRange);
    is_too_large.then(|| too_large(request_bytes))
}

/// Header that names the compression of requests.
pub(super) static ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Compression of a call's requests, which tonic inflates within the limits of plain ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestEncoding {
    /// None.
    Plain,
    /// gzip, for each message whose prefix has the compressed flag.
    Gzip,
}

impl RequestEncoding {
    /// Encodings that a caller may choose, for the header `grpc-accept-encoding`.
    pub(super) const ACCEPTED: &str = "identity,gzip";

    /// Encoding of a request with these headers.
    ///
    /// # Errors
    /// The encoding is not accepted.
    pub(super) fn of(headers: &HeaderMap) -> RpcResult<Self> {
        match headers.get(&ENCODING).map(HeaderValue::as_bytes) {
            None | Some(b"identity") => Ok(Self::Plain),
            Some(b"gzip") => Ok(Self::Gzip),
            Some(other) => {
                let name = String::from_utf8_lossy(other);
                let message = format!("the requests are compressed with `{name}`; send them plain or with gzip");
                Err(CallError::new(ErrorCode::EncodingUnsupported, message))
            }
        }
    }
}

/// Rejection of a body that exceeds the memory budget.
pub(super) fn rejected(error: ShareError, share: &HeldShare) -> CallError {
    let [greedy, full] = TOO_MANY_BYTES;
    share.rejection(error, if error == ShareError::Greedy { greedy } else { full })
}

/// Checks that the body is one whole message.
fn check_frame(body: &[u8], plain: bool) -> RpcResult<()> {
    let malformed = |message: &str| Err(malformed(message));
    let Some(length) = message_bytes(body) else {
        return malformed("the request has no message");
    };
    if plain && body.first() != Some(&0) {
        return malformed(WRONG_FLAG);
    }
    let there = body.len() - PREFIX_BYTES;
    if there < length {
        return malformed(&format!("the message is cut off: {there} of {length} bytes are there"));
    }
    if there > length {
        return malformed("the call has one request, and its body has more than one message");
    }
    Ok(())
}

/// Message about a flag in front of a message.
pub(super) const WRONG_FLAG: &str = "the message has a flag for compression, and the call names no compression";

/// Error: the bytes of a request are not what the protocol wants.
pub(super) fn malformed(message: &str) -> CallError {
    CallError::new(ErrorCode::RequestMalformed, message)
}

/// Error: the caller is gone.
pub(super) fn abandoned() -> CallError {
    let message = "the caller ended the call while it sent the request";
    CallError::new(ErrorCode::RequestAbandoned, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn large_bodies_of_extenders_leave_room_for_small_ones() {
        const MIB: usize = 1 << 20;
        let limits = EdgeLimits {
            extender_receiving_bytes: 16 * MIB,
            ..EdgeLimits::default()
        };
        let receiver = BodyReceiver::of_extenders(&limits);
        let receive = async |bytes: usize| {
            let body = axum::body::Body::from(vec![b' '; bytes]);
            receiver.receive_whole(body, &CallerConnection::unknown(), false).await
        };
        let large = receive(14 * MIB).await.unwrap();
        let refused = receive(3 * MIB).await.unwrap_err();
        assert_eq!(refused.reached_limit(), Some("extender_receiving_bytes"));
        let small = receive(MIB).await.unwrap();
        assert_eq!((large.bytes.len(), small.bytes.len()), (14 * MIB, MIB));
        assert_eq!(
            receiver.bytes.used(),
            15 * MIB,
            "bodies count until they are worked off"
        );
        drop((large, small));
        assert_eq!(receiver.bytes.used(), 0);
        assert!(receive(limits.extender_body_bytes + 1).await.is_err());
    }

    #[test]
    fn a_body_is_the_same_in_frames_of_any_length() {
        let receiver = BodyReceiver::new(&EdgeLimits::default());
        let connection = CallerConnection::unknown();
        let lengths = [0, 3, 7, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 17];
        for (length, frame) in lengths.into_iter().flat_map(|length| {
            [1_000, 16 << 10, BLOCK_BYTES - 1, BLOCK_BYTES, 5 * BLOCK_BYTES].map(|frame| (length, frame))
        }) {
            let body: Vec<u8> = (0..=250).cycle().take(length).collect();
            let mut partial = PartialBody::new(HeldShare::none(&receiver.bytes, &connection), true);
            for frame in body.chunks(frame) {
                partial.push(Bytes::copy_from_slice(frame));
                assert_eq!(partial.message_bytes().is_some(), partial.bytes >= PREFIX_BYTES);
            }
            assert_eq!(partial.bytes, length);
            assert!(
                partial.into_message().bytes == body,
                "{length} bytes in frames of {frame}"
            );
        }
    }
}
