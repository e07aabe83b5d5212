//! Body of a call with many requests: each message within a time and within the budget of bytes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body::{Body as HttpBody, Frame};
use prost::bytes::Bytes;
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;

use super::connection::CallerConnection;
use super::request_body::{
    BodyReceiver, PREFIX_BYTES, SlowBody, SlowEntry, WRONG_FLAG, abandoned, malformed, message_bytes,
};
use super::shares::{HeldShare, ShareError};
use super::status::CallError;

/// Position in a row of messages.
#[derive(Debug, Default)]
struct MessageCursor {
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the prefix that are there.
    begun: usize,
    /// Bytes of the message that are missing.
    missing: usize,
}

impl MessageCursor {
    /// True between two messages.
    fn is_between(&self) -> bool {
        self.begun == 0
    }

    /// Moves over bytes. Returns the number of those that belong to a message that is not whole yet.
    fn advance(
        &mut self,
        mut bytes: &[u8],
        check: impl Fn(u8, usize) -> Result<(), CallError>,
    ) -> Result<usize, CallError> {
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
                bytes = bytes.get(step..).unwrap_or_default();
                (self.missing, open) = (self.missing - step, open + step);
            }
            if self.begun == PREFIX_BYTES && self.missing == 0 {
                (self.begun, open) = (0, 0);
            }
        }
        Ok(open)
    }
}

/// Body of a stream of requests.
#[derive(Debug)]
pub(super) struct StreamBody {
    inner: Body,
    receiver: Arc<BodyReceiver>,
    cursor: MessageCursor,
    share: HeldShare,
    plain: bool,
    /// Message that is being received, and the time until which it must be there.
    open: Option<(SlowEntry, Pin<Box<Sleep>>)>,
}

impl StreamBody {
    pub(super) fn new(
        inner: Body,
        receiver: &Arc<BodyReceiver>,
        connection: &Arc<CallerConnection>,
        plain: bool,
    ) -> Self {
        Self {
            inner,
            share: HeldShare::none(&receiver.bytes, connection),
            receiver: Arc::clone(receiver),
            cursor: MessageCursor::default(),
            plain,
            open: None,
        }
    }

    fn poll_limits(&mut self, context: &mut Context<'_>) -> Poll<CallError> {
        let Some((entry, timer)) = &mut self.open else {
            return Poll::Pending;
        };
        if entry.body.poll_given_up(context).is_ready() {
            return Poll::Ready(self.receiver.full());
        }
        timer.as_mut().poll(context).map(|()| self.receiver.too_slow())
    }

    fn follow(&mut self, data: &[u8]) -> Result<(), CallError> {
        let (receiver, plain) = (&self.receiver, self.plain);
        let was_between = self.cursor.is_between();
        let open = self.cursor.advance(data, |flag, length| {
            if plain && flag != 0 {
                return Err(malformed(WRONG_FLAG));
            }
            receiver.check_length(length)
        })?;
        // Bytes before those are parts of messages that are whole now.
        if self.cursor.is_between() || open < data.len() {
            self.share.clear();
            self.open = None;
        }
        if self.cursor.is_between() {
            return Ok(());
        }
        self.share.grow(open).map_err(|refused| match refused {
            ShareError::Full => self.receiver.full(),
            ShareError::Greedy => self.receiver.greedy(),
        })?;
        if self.open.is_none() || was_between {
            let entry = self.receiver.list(SlowBody::begin());
            self.open = Some((entry, Box::pin(sleep(self.receiver.time()))));
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
        let frame = match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Pending => return self.poll_limits(context).map(|failure| Some(Err(failure.into()))),
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(_))) => return Poll::Ready(Some(Err(abandoned().into()))),
            Poll::Ready(None) if self.cursor.is_between() => return Poll::Ready(None),
            Poll::Ready(None) => return Poll::Ready(Some(Err(malformed("the last message is cut off").into()))),
        };
        if let Some(data) = frame.data_ref() {
            let data = data.clone();
            if let Err(failure) = self.follow(&data) {
                return Poll::Ready(Some(Err(failure.into())));
            }
        }
        Poll::Ready(Some(Ok(frame)))
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
            let mut advance = |bytes: &[u8]| cursor.advance(bytes, |_, _| Ok(())).unwrap();
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
