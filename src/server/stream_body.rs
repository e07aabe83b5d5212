//! Body of a call with many requests: each message within a time and within the budget of bytes.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use http_body::{Body as HttpBody, Frame};
use prost::bytes::{Buf as _, Bytes, BytesMut};
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;

use super::connection::CallScope;
use super::memory_budget::{FREE_BYTES, SlowBody, SlowEntry};
use super::request_body::{BodyReceiver, PREFIX_BYTES, WRONG_FLAG, abandoned, malformed, message_bytes};
use super::shares::{HeldShare, ShareError};
use super::status::{CallError, RpcResult};

/// Position in a row of messages.
#[derive(Debug, Default)]
struct MessageCursor {
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the prefix that are there.
    begun: usize,
    /// Bytes of the message that are missing.
    missing: usize,
    /// Last four bytes of the message so far, the last one highest.
    tail: u32,
}

impl MessageCursor {
    /// True between two messages.
    fn is_between(&self) -> bool {
        self.begun == 0
    }

    /// Advances over bytes. Returns the number of bytes of an incomplete message. `ended`: called with the flag and the last four
    /// bytes of each message that is whole.
    fn advance(
        &mut self,
        mut bytes: &[u8],
        check: impl Fn(u8, usize) -> RpcResult<()>,
        mut ended: impl FnMut(u8, u32),
    ) -> RpcResult<usize> {
        let mut open = 0;
        while let Some((first, rest)) = bytes.split_first() {
            if self.begun < PREFIX_BYTES {
                if let Some(place) = self.prefix.get_mut(self.begun) {
                    *place = *first;
                }
                (self.begun, bytes, open) = (self.begun + 1, rest, open + 1);
                if self.begun == PREFIX_BYTES {
                    let [flag, ..] = self.prefix;
                    self.missing = message_bytes(&self.prefix).unwrap_or(usize::MAX);
                    check(flag, self.missing)?;
                }
            } else {
                let step = self.missing.min(bytes.len());
                let (content, after) = bytes.split_at(step);
                for byte in content.get(step.saturating_sub(4)..).unwrap_or_default() {
                    self.tail = (self.tail >> 8) | (u32::from(*byte) << 24);
                }
                bytes = after;
                (self.missing, open) = (self.missing - step, open + step);
            }
            if self.begun == PREFIX_BYTES && self.missing == 0 {
                let [flag, ..] = self.prefix;
                ended(flag, self.tail);
                (self.begun, open) = (0, 0);
            }
        }
        Ok(open)
    }
}

/// Longest message of a stream whose messages are also read here.
const CHECKED_BYTES: usize = 64 << 10;

/// Messages of a stream, each read when it is whole.
struct CheckedMessages {
    bytes: BytesMut,
    can_be_read: fn(&[u8]) -> bool,
}

impl fmt::Debug for CheckedMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

impl CheckedMessages {
    fn read(&mut self, data: &[u8]) -> RpcResult<()> {
        self.bytes.extend_from_slice(data);
        while let Some(length) = message_bytes(&self.bytes) {
            let Some(message) = self.bytes.get(PREFIX_BYTES..PREFIX_BYTES.saturating_add(length)) else {
                return Ok(());
            };
            if !(self.can_be_read)(message) {
                return Err(malformed("the request cannot be read"));
            }
            self.bytes.advance(PREFIX_BYTES + length);
        }
        Ok(())
    }
}

/// First failure of a stream of requests. Some services end their response as if nothing had happened.
pub(super) type RequestFailure = Arc<OnceLock<CallError>>;

/// Body of a stream of requests.
#[derive(Debug)]
pub(super) struct StreamBody {
    inner: Body,
    receiver: Arc<BodyReceiver>,
    call: Arc<CallScope>,
    cursor: MessageCursor,
    /// Bytes of the message that is being received, and of earlier messages that the service still processes.
    share: HeldShare,
    /// Bytes of the message that is being received.
    open_bytes: usize,
    /// Messages that the service behind would not report if they cannot be read.
    checked: Option<CheckedMessages>,
    failure: RequestFailure,
    /// Message that is being received, and the time until which it must be there.
    open: Option<(SlowEntry, Pin<Box<Sleep>>)>,
}

impl StreamBody {
    pub(super) fn new(inner: Body, receiver: &Arc<BodyReceiver>, call: &Arc<CallScope>) -> Self {
        Self {
            inner,
            share: receiver.memory.share(&call.connection),
            receiver: Arc::clone(receiver),
            call: Arc::clone(call),
            cursor: MessageCursor::default(),
            open_bytes: 0,
            checked: None,
            failure: RequestFailure::default(),
            open: None,
        }
    }

    /// Body whose messages are also read here, by this function.
    pub(super) fn checked(self, can_be_read: fn(&[u8]) -> bool) -> Self {
        let checked = Some(CheckedMessages {
            bytes: BytesMut::new(),
            can_be_read,
        });
        Self { checked, ..self }
    }

    /// Place where the first failure will be.
    pub(super) fn failure(&self) -> RequestFailure {
        Arc::clone(&self.failure)
    }

    fn poll_limits(&mut self, context: &mut Context<'_>) -> Poll<CallError> {
        let Some((entry, timer)) = &mut self.open else {
            return Poll::Pending;
        };
        if entry.body.given_up.poll(context).is_ready() {
            return Poll::Ready(self.share.rejection(ShareError::Full));
        }
        timer.as_mut().poll(context).map(|()| self.receiver.too_slow())
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<RpcResult<Frame<Bytes>>>> {
        // The service asks for more when it is done with what it has.
        self.share.shrink_to(self.open_bytes);
        let frame = match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Pending => return self.poll_limits(context).map(|failure| Some(Err(failure))),
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(_))) => return Poll::Ready(Some(Err(abandoned()))),
            Poll::Ready(None) if self.cursor.is_between() => return Poll::Ready(None),
            Poll::Ready(None) => return Poll::Ready(Some(Err(malformed("the last message is cut off")))),
        };
        if let Some(data) = frame.data_ref() {
            let data = data.clone();
            if let Err(failure) = self.follow(&data) {
                return Poll::Ready(Some(Err(failure)));
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn follow(&mut self, data: &[u8]) -> RpcResult<()> {
        let (receiver, call) = (&self.receiver, &self.call);
        let plain = !call.inflates;
        let was_between = self.cursor.is_between();
        let is_checked = self.checked.is_some();
        let check = |flag: u8, length: usize| {
            if plain && flag != 0 {
                return Err(malformed(WRONG_FLAG));
            }
            if is_checked && length > CHECKED_BYTES {
                return Err(malformed("the message is longer than any of this service"));
            }
            receiver.check_length(length)
        };
        let expect = |flag: u8, tail: u32| {
            if call.inflates {
                call.expect_message((flag == 1).then_some(tail));
            }
        };
        let open = self.cursor.advance(data, check, expect)?;
        if let Some(checked) = self.checked.as_mut().filter(|_| plain) {
            checked.read(data)?;
        }
        // Bytes before those are parts of messages that are whole now. They count until the service asks for more.
        let is_over = self.cursor.is_between() || open < data.len();
        self.open_bytes = if is_over { open } else { self.open_bytes + open };
        if is_over {
            self.call.connection.touch_stream();
            self.open = None;
        }
        if data.len() > FREE_BYTES || !self.cursor.is_between() {
            let grown = self.share.grow(data.len());
            grown.map_err(|refused| self.share.rejection(refused))?;
        }
        if self.cursor.is_between() {
            return Ok(());
        }
        if self.open.is_none() || was_between {
            let entry = self.receiver.memory.list(SlowBody::begin());
            self.open = Some((entry, Box::pin(sleep(self.receiver.time))));
        }
        if let Some((entry, _)) = &self.open {
            entry.body.set_bytes(self.share.amount());
        }
        Ok(())
    }
}

impl HttpBody for StreamBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let next = ready!(self.poll_next(context));
        Poll::Ready(next.map(|next| {
            next.map_err(|failure| {
                // Only the first one counts.
                let _ = self.failure.set(failure.clone());
                failure.into()
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.cursor.is_between() && self.inner.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_finds_the_end_of_each_message_however_they_are_cut() {
        let wire: Vec<u8> = [0, 0, 0, 0, 3, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 9, 9].into();
        for cut in 0..wire.len() {
            let mut cursor = MessageCursor::default();
            let mut advance = |bytes: &[u8]| cursor.advance(bytes, |_, _| Ok(()), |_, _| {}).unwrap();
            let open = advance(&wire[..cut]);
            let end = if cut < 8 {
                0
            } else if cut < 13 {
                8
            } else {
                13
            };
            assert_eq!(open, cut - end, "{cut}");
            advance(&wire[cut..]);
            assert!(cursor.is_between(), "{cut}");
        }
    }
}
