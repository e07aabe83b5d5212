//! Codec of requests that are encoded.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::{BufMut as _, Bytes};
use tonic::Status;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic_prost::{ProstCodec, ProstDecoder};

/// Codec of tonic that sends requests as they are, and decodes their responses.
#[derive(Debug, Clone, Copy)]
pub struct EncodedCodec<R>(PhantomData<R>);

impl<R> Default for EncodedCodec<R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<R: Message + Default + Send + 'static> Codec for EncodedCodec<R> {
    type Encode = Bytes;
    type Decode = R;
    type Encoder = Self;
    type Decoder = ProstDecoder<R>;

    fn encoder(&mut self) -> Self {
        Self::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<(), R>::default().decoder()
    }
}

impl<R> Encoder for EncodedCodec<R> {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, request: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(request);
        Ok(())
    }
}
