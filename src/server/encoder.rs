//! Encoder of responses: takes its memory once, and leaves the async threads for large ones.

use std::marker::PhantomData;

use prost::Message;
use tokio::runtime::{Handle, RuntimeFlavor};
use tonic::Status;
use tonic::codec::{EncodeBuf, Encoder};

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
        if bytes >= LARGE_BYTES && can_block() {
            // Both the encoding and the freeing of the response take long.
            tokio::task::block_in_place(move || response.encode_raw(into));
        } else {
            response.encode_raw(into);
        }
        Ok(())
    }
}

/// True on a thread whose other work another thread can take over.
fn can_block() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}
