//! Bodies of requests: received whole before a call takes its place, within a time and within budgets of bytes.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Body as HttpBody;
use prost::bytes::{Bytes, BytesMut};
use tokio::time::sleep;
use tonic::body::Body;
use tonic::{Code, Status};

use pumice_engine::model::ErrorCode;

use super::connection::CallerConnection;
use super::memory_budget::{FREE_BYTES, MemoryBudget, SlowBody};
use super::shares::{HeldShare, ShareError};
use super::status::{CallError, RpcResult};

/// Bytes that the transport holds for a call whose body is not there yet, beside the body.
const CALL_BYTES: usize = 4 << 10;
/// Bytes before a message: a flag and its length.
pub(super) const PREFIX_BYTES: usize = 5;
/// Receiver of the bodies of all calls.
#[derive(Debug)]
pub(super) struct BodyReceiver {
    pub(super) memory: Arc<MemoryBudget>,
    pub(super) request_bytes: usize,
    /// Time that a request has to arrive.
    pub(super) time: Duration,
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
    /// Receiver of bodies with at most this many bytes, each within this time.
    pub(super) fn new(memory: &Arc<MemoryBudget>, request_bytes: usize, time: Duration) -> Arc<Self> {
        Arc::new(Self {
            memory: Arc::clone(memory),
            request_bytes,
            time,
        })
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
        let mut partial = PartialBody::new(self.memory.share(connection), has_prefix);
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
        let _entry = self.memory.list(Arc::clone(&progress));
        let mut waiting = self.memory.share(connection);
        self.memory.take(&mut waiting, CALL_BYTES, Some(&progress)).await?;
        progress.set_bytes(CALL_BYTES + partial.share.amount());
        let filling = async {
            loop {
                if let Some(data) = partial.refused.take() {
                    self.memory
                        .take(&mut partial.share, data.len(), Some(&progress))
                        .await?;
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
            () = poll_fn(|context| progress.given_up.poll(context)) => Err(waiting.rejection(ShareError::Full)),
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

    pub(super) fn too_slow(&self) -> CallError {
        let milliseconds = usize::try_from(self.time.as_millis()).unwrap_or(usize::MAX);
        let message = "the request did not arrive in time";
        CallError::limit_as(ErrorCode::RequestTooSlow, "request_body_ms", milliseconds, message)
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

/// Encodings that a caller may choose, for the header `grpc-accept-encoding`.
pub(super) const ACCEPTED_ENCODINGS: &str = "identity,gzip";

/// True if requests with these headers are compressed: by gzip, each message whose prefix has the flag. tonic inflates them
/// within the limits of plain ones.
///
/// # Errors
/// The encoding is not accepted.
pub(super) fn may_be_compressed(headers: &HeaderMap) -> RpcResult<bool> {
    match headers.get(&ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(false),
        Some(b"gzip") => Ok(true),
        Some(other) => {
            let name = String::from_utf8_lossy(other);
            let message = format!("the requests are compressed with `{name}`; send them plain or with gzip");
            Err(CallError::new(ErrorCode::EncodingUnsupported, message))
        }
    }
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
    use crate::limits::EdgeLimits;
    use crate::server::ConnectionTable;
    use crate::telemetry::Metrics;

    /// Receiver of bodies of 14 MiB at most, within a budget of this many bytes.
    fn receiver(message_bytes: usize) -> Arc<BodyReceiver> {
        let limits = EdgeLimits {
            message_bytes,
            ..EdgeLimits::default()
        };
        let connections = ConnectionTable::new(1, Arc::new(Metrics::new()));
        let memory = MemoryBudget::new(&limits, &connections);
        BodyReceiver::new(&memory, 14 << 20, limits.request_body)
    }

    #[tokio::test]
    async fn large_bodies_of_extenders_leave_room_for_small_ones() {
        const MIB: usize = 1 << 20;
        let receiver = receiver(16 * MIB);
        let receive = async |bytes: usize| {
            let body = axum::body::Body::from(vec![b' '; bytes]);
            receiver.receive_whole(body, &CallerConnection::unknown(), false).await
        };
        let large = receive(14 * MIB).await.unwrap();
        let refused = receive(3 * MIB).await.unwrap_err();
        assert_eq!(refused.reached_limit(), Some("message_bytes"));
        let small = receive(MIB).await.unwrap();
        assert_eq!((large.bytes.len(), small.bytes.len()), (14 * MIB, MIB));
        drop((large, small));
        assert_eq!(
            receiver.memory.fallen(),
            15 * MIB,
            "bodies count until they are worked off"
        );
        assert!(receive(14 * MIB + 1).await.is_err());
    }

    #[test]
    fn a_body_is_the_same_in_frames_of_any_length() {
        let receiver = receiver(1 << 30);
        let connection = CallerConnection::unknown();
        let lengths = [0, 3, 7, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 17];
        for (length, frame) in lengths.into_iter().flat_map(|length| {
            [1_000, 16 << 10, BLOCK_BYTES - 1, BLOCK_BYTES, 5 * BLOCK_BYTES].map(|frame| (length, frame))
        }) {
            let body: Vec<u8> = (0..=250).cycle().take(length).collect();
            let mut partial = PartialBody::new(receiver.memory.share(&connection), true);
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
