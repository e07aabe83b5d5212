//! Compressed requests, inflated within the limits of plain requests: a few bytes cannot expand without a limit.

use std::io::Read as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::http::{HeaderMap, HeaderValue};
use flate2::bufread::GzDecoder;
use http_body::{Body as HttpBody, Frame};
use prost::bytes::buf::Reader;
use prost::bytes::{Buf as _, Bytes, BytesMut};
use tonic::{Code, Status};

use super::connection::CallerConnection;
use super::large_messages::{LARGE_MESSAGE, work_beside_tasks};
use super::request_body::{
    BodyReceiver, FREE_BYTES, PREFIX_BYTES, ReceivedBody, abandoned, malformed, message_bytes, rejected,
};
use super::shares::HeldShare;
use super::status::CallError;
use super::stream_body::{RequestFailure, StreamBody};
use super::worker_pool::WorkerGate;

/// Largest number of bytes that one compressed byte can stand for.
const MAX_RATIO: usize = 1_032;
/// Bytes that are inflated between two checks for cancellation.
const STEP_BYTES: usize = 1 << 20;

/// Compression of a call's requests.
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

    /// Takes the encoding out of the headers: the services behind get plain messages.
    ///
    /// # Errors
    /// The encoding is not accepted.
    pub(super) fn take(headers: &mut HeaderMap) -> Result<Self, CallError> {
        let named = headers.remove("grpc-encoding");
        match named.as_ref().map(HeaderValue::as_bytes) {
            None | Some(b"identity") => Ok(Self::Plain),
            Some(b"gzip") => Ok(Self::Gzip),
            Some(other) => {
                let name = String::from_utf8_lossy(other);
                let message = format!("the requests are compressed with `{name}`; send them plain or with gzip");
                Err(CallError::new(Code::Unimplemented, "ENCODING_UNSUPPORTED", message))
            }
        }
    }
}

/// Message that is being inflated.
struct MessageInflater {
    decoder: GzDecoder<Reader<Bytes>>,
    /// Message so far, with room for its prefix.
    plain: Vec<u8>,
    share: HeldShare,
    receiver: Arc<BodyReceiver>,
}

impl MessageInflater {
    /// Inflater of the message behind this prefix. It takes what it needs of the budget of bytes.
    fn new(
        framed: &Bytes,
        connection: &Arc<CallerConnection>,
        receiver: &Arc<BodyReceiver>,
    ) -> Result<Self, CallError> {
        let compressed = framed.slice(PREFIX_BYTES.min(framed.len())..);
        // The end of the data says how many bytes they stand for; a lie costs its caller a few copies.
        let said = compressed.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let said = usize::try_from(said).unwrap_or(usize::MAX);
        let likely = said.min(compressed.len().saturating_mul(MAX_RATIO));
        receiver.check_length(likely)?;
        let mut inflater = Self {
            decoder: GzDecoder::new(compressed.reader()),
            plain: Vec::new(),
            share: HeldShare::none(&receiver.bytes, connection),
            receiver: Arc::clone(receiver),
        };
        // One byte more than that shows the end.
        inflater.make_room(likely.saturating_add(PREFIX_BYTES + 1))?;
        inflater.plain.resize(PREFIX_BYTES, 0);
        Ok(inflater)
    }

    /// Takes memory for a message of this many bytes.
    fn make_room(&mut self, bytes: usize) -> Result<(), CallError> {
        if bytes > FREE_BYTES {
            let more = bytes.saturating_sub(self.share.amount());
            let grown = self.share.grow(more);
            grown.map_err(|refused| rejected(refused, &self.share))?;
        }
        self.plain.reserve_exact(bytes.saturating_sub(self.plain.len()));
        Ok(())
    }

    /// Inflates this many bytes more. Returns true if the message is whole.
    fn inflate(&mut self, bytes: usize) -> Result<bool, CallError> {
        let goal = self.plain.len().saturating_add(bytes);
        while self.plain.len() < goal {
            let room = self.plain.capacity().saturating_sub(self.plain.len());
            if room == 0 {
                let most = self.receiver.request_bytes.saturating_add(PREFIX_BYTES + 1);
                self.make_room(self.plain.capacity().saturating_mul(2).min(most))?;
                continue;
            }
            let part = room.min(goal - self.plain.len());
            let read = (&mut self.decoder)
                .take(u64::try_from(part).unwrap_or(u64::MAX))
                .read_to_end(&mut self.plain)
                .map_err(|error| malformed(&format!("the message is no gzip: {error}")))?;
            self.receiver
                .check_length(self.plain.len().saturating_sub(PREFIX_BYTES))?;
            if read < part {
                let is_whole = !self.decoder.get_ref().get_ref().has_remaining();
                return is_whole
                    .then_some(true)
                    .ok_or_else(|| malformed("the message goes on behind its gzip"));
            }
        }
        Ok(false)
    }

    /// Message with its prefix, and the bytes of the budget that it holds.
    fn finish(mut self) -> (Bytes, HeldShare) {
        let length = u32::try_from(self.plain.len().saturating_sub(PREFIX_BYTES)).unwrap_or(u32::MAX);
        for (place, byte) in self.plain.iter_mut().skip(1).zip(length.to_be_bytes()) {
            *place = byte;
        }
        self.share.shrink_to(self.plain.len());
        (self.plain.into(), self.share)
    }
}

/// True if the prefix has the compressed flag.
fn is_compressed(framed: &Bytes) -> Result<bool, CallError> {
    match framed.first() {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        _ => Err(malformed("the message has an unknown flag for compression")),
    }
}

/// Inflates the request of a call, if it is compressed: a small request at once, a large request on a worker.
///
/// # Errors
/// The request is not valid gzip or too large after inflation, or too many bytes or requests are in progress.
pub(super) async fn inflate_request(
    body: ReceivedBody,
    connection: &Arc<CallerConnection>,
    receiver: &Arc<BodyReceiver>,
    workers: &WorkerGate,
) -> Result<ReceivedBody, CallError> {
    let ReceivedBody { message, share } = body;
    let Some(framed) = message else {
        return Ok(ReceivedBody { message, share });
    };
    if !is_compressed(&framed)? {
        let message = Some(framed);
        return Ok(ReceivedBody { message, share });
    }
    let mut inflater = MessageInflater::new(&framed, connection, receiver)?;
    let is_small = framed.len() <= LARGE_MESSAGE;
    let (message, plain_share) = if is_small && inflater.inflate(LARGE_MESSAGE)? {
        inflater.finish()
    } else {
        let inflating = workers.run(move |stop| {
            while !inflater.inflate(STEP_BYTES)? {
                if stop.is_cancelled() {
                    return Err(abandoned());
                }
            }
            Ok(inflater.finish())
        });
        inflating.await?
    };
    // The compressed bytes counted until here.
    drop(share);
    Ok(ReceivedBody {
        message: Some(message),
        share: Arc::new(plain_share),
    })
}

/// Body of a stream of requests whose messages may be compressed: it has them plain.
#[derive(Debug)]
pub(super) struct InflatedStream {
    inner: StreamBody,
    connection: Arc<CallerConnection>,
    receiver: Arc<BodyReceiver>,
    /// Received bytes from the start of a message.
    received: BytesMut,
    /// Bytes of the message that the service works on.
    share: HeldShare,
    failure: RequestFailure,
}

impl InflatedStream {
    pub(super) fn new(inner: StreamBody, receiver: &Arc<BodyReceiver>, connection: &Arc<CallerConnection>) -> Self {
        Self {
            failure: inner.failure(),
            inner,
            connection: Arc::clone(connection),
            receiver: Arc::clone(receiver),
            received: BytesMut::new(),
            share: HeldShare::none(&receiver.bytes, connection),
        }
    }

    /// Next message, if it is there whole.
    fn next_message(&mut self) -> Result<Option<Bytes>, CallError> {
        let whole = message_bytes(&self.received).and_then(|length| length.checked_add(PREFIX_BYTES));
        let Some(whole) = whole.filter(|whole| *whole <= self.received.len()) else {
            return Ok(None);
        };
        let framed = self.received.split_to(whole).freeze();
        if !is_compressed(&framed)? {
            return Ok(Some(framed));
        }
        let mut inflater = MessageInflater::new(&framed, &self.connection, &self.receiver)?;
        let is_small = framed.len() <= LARGE_MESSAGE;
        if !(is_small && inflater.inflate(LARGE_MESSAGE)?) {
            work_beside_tasks(true, || inflater.inflate(usize::MAX))?;
        }
        let (message, share) = inflater.finish();
        self.share = share;
        Ok(Some(message))
    }
}

impl HttpBody for InflatedStream {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        // The service asks for more when it is done with what it has.
        self.share.clear();
        loop {
            match self.next_message() {
                Ok(None) => {}
                Ok(Some(message)) => return Poll::Ready(Some(Ok(Frame::data(message)))),
                Err(failure) => {
                    // Only the first one counts.
                    let _ = self.failure.set(failure.clone());
                    return Poll::Ready(Some(Err(failure.into())));
                }
            }
            match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.received.extend_from_slice(&data),
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                ended => return Poll::Ready(ended),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.received.is_empty() && self.inner.is_end_stream()
    }
}
