//! Bodies of responses: split into pieces, which shows the server the client's progress, and limited by a memory
//! budget.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use prost::bytes::Bytes;
use tokio::sync::Semaphore;
use tonic::Status;
use tonic::body::Body;

use super::connection::{CallerConnection, ConnectionCall, ResponseProgress};
use super::memory_budget::{FREE_BYTES, MemoryBudget};
use super::shares::HeldShare;
use super::status::RpcResult;
use super::stream_body::RequestFailure;

/// Bytes of one piece of a response.
const PIECE_BYTES: usize = 64 << 10;

/// Sender of the bodies of all responses.
#[derive(Debug)]
pub(super) struct BodySender {
    memory: Arc<MemoryBudget>,
    /// Large responses that are encoded at once: each is in memory twice meanwhile.
    encoders: Semaphore,
}

/// Memory of one frame of a response, shared by all its pieces. Its bytes are charged until the last piece is dropped.
struct FrameMemory {
    bytes: Bytes,
    _share: HeldShare,
}

impl AsRef<[u8]> for FrameMemory {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Piece of a response, which the transport drops when it is written to the connection.
struct ResponsePiece {
    bytes: Bytes,
    progress: Arc<ResponseProgress>,
}

impl AsRef<[u8]> for ResponsePiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for ResponsePiece {
    fn drop(&mut self) {
        self.progress.take(self.bytes.len());
    }
}

/// Body of a response, in pieces.
pub(super) struct PiecedBody {
    inner: Body,
    memory: Arc<MemoryBudget>,
    progress: Arc<ResponseProgress>,
    /// Bytes of the present frame that are not handed to the transport yet.
    rest: Bytes,
    /// Frame after the present one.
    next: Option<Frame<Bytes>>,
    request_failure: Option<RequestFailure>,
}

impl BodySender {
    /// Sender that encodes this many large responses at once.
    pub(super) fn new(memory: &Arc<MemoryBudget>, encoders: usize) -> Self {
        Self {
            memory: Arc::clone(memory),
            encoders: Semaphore::new(encoders),
        }
    }

    /// Body in pieces. The first frame is generated here, so a response that exceeds the memory budget can still be
    /// rejected. `reserved`: memory that a large response has already reserved.
    ///
    /// # Errors
    /// Too many bytes of responses wait for their callers.
    pub(super) async fn send(
        &self,
        mut inner: Body,
        connection: &Arc<CallerConnection>,
        (call, place): (ConnectionCall, Option<HeldShare>),
        reserved: Option<HeldShare>,
    ) -> RpcResult<PiecedBody> {
        let turn = match &reserved {
            Some(_) => self.encoders.acquire().await.ok(),
            None => None,
        };
        let first = std::future::poll_fn(|context| match Pin::new(&mut inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(frame)),
            // The transport polls again, and sees the error again or the end.
            Poll::Ready(Some(Err(_)) | None) | Poll::Pending => Poll::Ready(None),
        })
        .await;
        drop(turn);
        let mut share = reserved.unwrap_or_else(|| self.memory.share(connection));
        let mut rest = Bytes::new();
        let next = match first.map(Frame::into_data) {
            Some(Ok(data)) => {
                let missing = data.len().saturating_sub(share.amount());
                if missing > FREE_BYTES {
                    Box::pin(self.memory.take(&mut share, missing, None)).await?;
                }
                rest = counted(data, share);
                None
            }
            Some(Err(trailers)) => Some(trailers),
            None => None,
        };
        Ok(PiecedBody {
            inner,
            memory: Arc::clone(&self.memory),
            progress: ResponseProgress::begin(rest.len(), call, place),
            rest,
            next,
            request_failure: None,
        })
    }
}

/// Frame whose bytes are charged until its memory is freed.
fn counted(bytes: Bytes, share: HeldShare) -> Bytes {
    if share.amount() == 0 {
        return bytes;
    }
    Bytes::from_owner(FrameMemory { bytes, _share: share })
}

impl PiecedBody {
    /// Body that ends with the failure of its requests, if there is one by then.
    pub(super) fn ending_with(mut self, request_failure: Option<RequestFailure>) -> Self {
        self.request_failure = request_failure;
        self
    }

    /// Last frame of the response.
    fn end(&self, trailers: Frame<Bytes>) -> Frame<Bytes> {
        let mut ending = HeaderMap::new();
        let failure = self.request_failure.as_ref().and_then(|failure| failure.get());
        let failed = failure.map(|failure| Status::from(failure.clone()).add_header(&mut ending));
        match failed {
            Some(Ok(())) => Frame::trailers(ending),
            Some(Err(_)) | None => trailers,
        }
    }

    /// Next piece of the present frame.
    fn piece(&mut self) -> Bytes {
        let bytes = self.rest.split_to(PIECE_BYTES.min(self.rest.len()));
        Bytes::from_owner(ResponsePiece {
            bytes,
            progress: Arc::clone(&self.progress),
        })
    }
}

impl Drop for PiecedBody {
    fn drop(&mut self) {
        self.progress.take(self.rest.len());
    }
}

impl HttpBody for PiecedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if !self.rest.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(self.piece()))));
            }
            if let Some(next) = self.next.take() {
                return Poll::Ready(Some(Ok(self.end(next))));
            }
            let frame = match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) => {
                    let mut share = self.memory.share(self.progress.connection());
                    if data.len() > FREE_BYTES
                        && let Err(error) = share.grow(data.len())
                    {
                        return Poll::Ready(Some(Err(share.rejection(error).into())));
                    }
                    self.progress.make(data.len());
                    self.rest = counted(data, share);
                    if self.rest.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(Bytes::new()))));
                    }
                }
                Err(trailers) => return Poll::Ready(Some(Ok(self.end(trailers)))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.next.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
