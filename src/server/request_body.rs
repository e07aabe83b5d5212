//! Bodies of requests: received whole before a call takes its place, within a time and within budgets of bytes.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http_body::{Body as HttpBody, Frame, SizeHint};
use prost::bytes::{Bytes, BytesMut};
use tokio::time::{Instant, sleep};
use tonic::{Code, Status};

use pumice_engine::short_lock::ShortLock;

use super::connection::CallerConnection;
use super::shares::{HeldShare, ShareError, SharedLimit};
use super::status::CallError;
use crate::limits::EdgeLimits;

/// Bytes that the transport holds for a call whose body is not there yet, beside the body.
const CALL_BYTES: usize = 4 << 10;
/// Bytes that a connection may always receive while others leave them: small requests come through.
pub(super) const LITTLE_BYTES: usize = 64 << 10;
/// Bytes of a body that are not charged: probes and the smallest requests are always accepted.
pub(super) const FREE_BYTES: usize = 1 << 10;
/// Bytes before a message: a flag and its length.
pub(super) const PREFIX_BYTES: usize = 5;
/// Age of a body at which it may be given up for the sake of others.
const GIVE_UP_AGE: Duration = Duration::from_secs(1);
/// Number of bodies that are given up for the sake of one.
const GIVE_UP_ATTEMPTS: usize = 20;
/// Delay after which the memory of a body that was given up is free.
const GIVE_UP_DELAY: Duration = Duration::from_millis(10);

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

/// Whole body of a request.
#[derive(Debug)]
pub(super) struct ReceivedBody {
    /// Message with its prefix, until the service takes it.
    pub(super) message: Option<Bytes>,
    /// Share of the budget that the request holds.
    pub(super) share: Arc<HeldShare>,
}

impl ReceivedBody {
    /// Share of the budget that the request holds until its call is decided: decoded, it waits for a worker.
    pub(super) fn share(&self) -> Arc<HeldShare> {
        Arc::clone(&self.share)
    }
}

/// Bytes of the blocks of a large body. A single buffer that grows would leave as many bytes behind as it has, each time
/// that it moves.
const BLOCK_BYTES: usize = 1 << 20;

/// Body as far as it has been received.
struct PartialBody {
    /// Bytes of the first frame, as they came.
    first: Bytes,
    /// Bytes of several frames, in blocks.
    blocks: Vec<BytesMut>,
    bytes: usize,
    share: HeldShare,
}

impl PartialBody {
    fn new(share: HeldShare) -> Self {
        Self {
            first: Bytes::new(),
            blocks: Vec::new(),
            bytes: 0,
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
        message_bytes(self.blocks.first().map_or(&*self.first, |block| &**block))
    }

    fn into_message(mut self) -> (Bytes, HeldShare) {
        let message = match self.blocks.len() {
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
        (message, self.share)
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
        Arc::new(Self {
            bytes: SharedLimit::new(total, share, LITTLE_BYTES, |held| &held.receiving),
            request_bytes: limits.request_bytes,
            time: limits.request_body,
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
    pub(super) async fn receive<B>(
        self: &Arc<Self>,
        body: B,
        connection: &Arc<CallerConnection>,
        plain: bool,
    ) -> Result<ReceivedBody, CallError>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let progress = SlowBody::begin();
        let mut filling = std::pin::pin!(self.fill(body, connection, &progress));
        // Most bodies are there with their headers, and are not worth a timer and a place in the list.
        let at_once = poll_fn(|context| match filling.as_mut().poll(context) {
            Poll::Ready(filled) => Poll::Ready(Some(filled)),
            Poll::Pending => Poll::Ready(None),
        });
        let partial = match at_once.await {
            Some(filled) => filled?,
            None => self.wait_for(filling, connection, &progress).await?,
        };
        let (message, share) = partial.into_message();
        check_frame(&message, plain)?;
        Ok(ReceivedBody {
            message: Some(message),
            share: Arc::new(share),
        })
    }

    /// Waits for a body that was not there at once.
    async fn wait_for(
        self: &Arc<Self>,
        filling: Pin<&mut impl Future<Output = Result<PartialBody, CallError>>>,
        connection: &Arc<CallerConnection>,
        progress: &Arc<SlowBody>,
    ) -> Result<PartialBody, CallError> {
        let _entry = self.list(Arc::clone(progress));
        let mut waiting = HeldShare::none(&self.bytes, connection);
        self.take(&mut waiting, CALL_BYTES, progress).await?;
        tokio::select! {
            filled = filling => filled,
            () = poll_fn(|context| progress.poll_given_up(context)) => Err(rejected(ShareError::Full, &waiting)),
            () = sleep(self.time) => Err(self.too_slow()),
        }
    }

    /// Receives frames until the body ends.
    async fn fill<B>(
        &self,
        mut body: B,
        connection: &Arc<CallerConnection>,
        progress: &Arc<SlowBody>,
    ) -> Result<PartialBody, CallError>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let mut partial = PartialBody::new(HeldShare::none(&self.bytes, connection));
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let frame = frame.map_err(|_| abandoned())?;
            let Ok(data) = frame.into_data() else { continue };
            if partial.bytes + data.len() > FREE_BYTES {
                self.take(&mut partial.share, data.len(), progress).await?;
            }
            partial.push(data);
            let there = partial.bytes.saturating_sub(PREFIX_BYTES);
            self.check_length(partial.message_bytes().unwrap_or_default().max(there))?;
        }
        Ok(partial)
    }

    /// Takes bytes of the budget. If it is exhausted, the body that has held most for longest is given up.
    async fn take(&self, share: &mut HeldShare, bytes: usize, progress: &Arc<SlowBody>) -> Result<(), CallError> {
        for _ in 0..GIVE_UP_ATTEMPTS {
            match share.grow(bytes) {
                Ok(()) => {
                    progress.bytes.fetch_add(bytes, Ordering::Relaxed);
                    return Ok(());
                }
                Err(ShareError::Greedy) => return Err(rejected(ShareError::Greedy, share)),
                Err(ShareError::Full) => {}
            }
            if !self.give_up_one(progress) {
                break;
            }
            sleep(GIVE_UP_DELAY).await;
        }
        Err(rejected(ShareError::Full, share))
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
        CallError::limit("REQUEST_TOO_SLOW", "request_body_ms", milliseconds, message)
    }

    /// Time that a request has to arrive.
    pub(super) fn time(&self) -> Duration {
        self.time
    }

    /// Checks the length of a message.
    pub(super) fn check_length(&self, bytes: usize) -> Result<(), CallError> {
        if bytes <= self.request_bytes {
            return Ok(());
        }
        let message = "the request is larger than this server accepts";
        Err(CallError::limit(
            "REQUEST_TOO_LARGE",
            "request_bytes",
            self.request_bytes,
            message,
        ))
    }
}

/// Rejection of a body that exceeds the memory budget.
pub(super) fn rejected(error: ShareError, share: &HeldShare) -> CallError {
    let message = match error {
        ShareError::Full => "too many bytes of requests are being received or worked on",
        ShareError::Greedy => "this connection sends too many bytes of requests at once",
    };
    share.rejection(error, message)
}

/// Checks that the body is one whole message.
fn check_frame(body: &[u8], plain: bool) -> Result<(), CallError> {
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
    CallError::invalid("REQUEST_MALFORMED", message)
}

/// Error: the caller is gone.
pub(super) fn abandoned() -> CallError {
    let message = "the caller ended the call while it sent the request";
    CallError::new(Code::Cancelled, "REQUEST_ABANDONED", message)
}

impl HttpBody for ReceivedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.message.take().map(|message| Ok(Frame::data(message))))
    }

    fn is_end_stream(&self) -> bool {
        self.message.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let bytes = self.message.as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use tonic::transport::server::TcpConnectInfo;

    use super::*;

    #[test]
    fn a_body_is_the_same_in_frames_of_any_length() {
        let peer = TcpConnectInfo {
            local_addr: None,
            remote_addr: None,
        };
        let receiver = BodyReceiver::new(&EdgeLimits::default());
        let connection = CallerConnection::new(0, peer);
        let lengths = [0, 3, 7, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 17];
        for (length, frame) in lengths.into_iter().flat_map(|length| {
            [1_000, 16 << 10, BLOCK_BYTES - 1, BLOCK_BYTES, 5 * BLOCK_BYTES].map(|frame| (length, frame))
        }) {
            let body: Vec<u8> = (0..=250).cycle().take(length).collect();
            let mut partial = PartialBody::new(HeldShare::none(&receiver.bytes, &connection));
            for frame in body.chunks(frame) {
                partial.push(Bytes::copy_from_slice(frame));
                assert_eq!(partial.message_bytes().is_some(), partial.bytes >= PREFIX_BYTES);
            }
            assert_eq!(partial.bytes, length);
            assert!(partial.into_message().0 == body, "{length} bytes in frames of {frame}");
        }
    }
}
