//! Encoder of responses: takes its memory once, and leaves the async threads for large ones.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{EncodeBuf, Encoder};

use super::large_messages::work_beside_tasks;

/// Length in bytes from which the encoding of a response takes longer than other calls should wait for their thread: at
/// a gigabyte per second, half a millisecond.
const LARGE_BYTES: usize = 512 << 10;

/// Encoder of tonic for responses of any size.
#[derive(Clone, Debug)]
pub struct ResponseEncoder<T>(PhantomData<T>);

impl<T> Default for ResponseEncoder<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message> Encoder for ResponseEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, response: T, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let bytes = response.encoded_len();
        // A buffer that grows by doubling is copied each time, and holds up to three times the bytes meanwhile.
        into.reserve(bytes);
        // Both the encoding and the freeing of the response take long.
        work_beside_tasks(bytes >= LARGE_BYTES, move || response.encode_raw(into));
        Ok(())
    }
}
