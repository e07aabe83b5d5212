//! Messages of all calls, which are protobuf or JSON on the wire, and the codec that hands their bytes to tonic. A request is
//! weighed before it is decoded, because a few bytes on the wire can stand for a record of hundreds of bytes in memory.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::sync::LazyLock;

use prost::bytes::{Buf as _, BufMut as _, Bytes};
use prost::encoding::decode_varint;
use prost::{Message, Name};
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Extensions, Status};

use super::connection::CallScope;
use super::json::{JsonError, encode_json, write_json};
use super::large_messages::{LARGE_MESSAGE, work_beside_tasks};
use super::pb;
use super::request_body::malformed;
use super::status::{CallError, RpcResult};
use crate::limits::{DECODED_BYTES, EdgeLimits};
use pumice_engine::model::{ErrorCode, Problem};
use pumice_state::WeighedResult;

/// Weight of a repeated message: the size of the largest, a task, in memory.
const MESSAGE_WEIGHT: u64 = 560;
/// Weight of an entry of a map.
const ENTRY_WEIGHT: u64 = 96;
/// Weight of a repeated text.
const TEXT_WEIGHT: u64 = 24;

/// Length of a message from which it can be too heavy: its parts have two bytes at least.
const LEAST_WEIGHED: u64 = 2 * DECODED_BYTES / MESSAGE_WEIGHT;

const _: () =
    assert!(size_of::<pb::Task>() as u64 <= MESSAGE_WEIGHT && size_of::<pb::Queue>() as u64 <= MESSAGE_WEIGHT);

/// Length in bytes from which the encoding of a response takes longer than other calls should wait for their thread: at
/// a gigabyte per second, half a millisecond.
const LARGE_BYTES: usize = 512 << 10;

/// Bytes from which JSON takes as long: it is written at an eighth of that rate, about.
const LARGE_JSON_BYTES: usize = LARGE_BYTES / 8;

/// Response that can be encoded.
pub(super) type EncodedResponse = Box<dyn Encodable>;

/// Message whose type tonic does not see.
pub(super) trait Encodable: Send {
    /// Number of its bytes on the wire.
    fn wire_bytes(&self) -> usize;

    /// Writes the message to a buffer that has room for it.
    fn write(&self, into: &mut EncodeBuf<'_>);
}

impl<M: Message> Encodable for M {
    fn wire_bytes(&self) -> usize {
        self.encoded_len()
    }

    fn write(&self, into: &mut EncodeBuf<'_>) {
        self.encode_raw(into);
    }
}

/// Response that is JSON already.
struct JsonResponse(Vec<u8>);

impl Encodable for JsonResponse {
    fn wire_bytes(&self) -> usize {
        self.0.len()
    }

    fn write(&self, into: &mut EncodeBuf<'_>) {
        into.put_slice(&self.0);
    }
}

/// Extension of a call whose messages are JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct JsonCall(pub(super) &'static MethodDescriptor);

/// Format of a call's messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageFormat {
    /// Method whose messages are JSON; `None`: they are protobuf.
    json: Option<JsonCall>,
    /// Most bytes of a request, and of a response.
    most: [usize; 2],
}

impl MessageFormat {
    /// Format of a call with these extensions.
    pub(super) fn of(extensions: &Extensions, limits: &EdgeLimits) -> Self {
        Self {
            json: extensions.get().copied(),
            most: [limits.request_bytes, limits.response_bytes],
        }
    }

    /// Reads a request, unless it is too heavy.
    ///
    /// # Errors
    /// The bytes are no message of this type, or stand for too much memory.
    pub(super) fn read<M: Message + Name + Default>(self, bytes: Bytes) -> RpcResult<M> {
        let bytes = match self.json {
            Some(JsonCall(method)) => self.protobuf_of(method, &bytes)?,
            None => bytes,
        };
        check_weight(&bytes, M::NAME)?;
        // Messages of a stream come one by one, where only their size is known: their thread hands its other tasks on.
        let read = work_beside_tasks(bytes.len() > LARGE_MESSAGE, || M::decode(bytes));
        // The transport would report its own fault, and the bytes are the caller's.
        read.map_err(|error| malformed(&format!("the request cannot be read: {error}")))
    }

    fn protobuf_of(self, method: &MethodDescriptor, json: &[u8]) -> RpcResult<Bytes> {
        let [most, _] = self.most;
        let encode = || encode_json(json, &method.input(), most);
        let encoded = work_beside_tasks(json.len() > LARGE_MESSAGE, encode);
        let unreadable =
            |error: JsonError| CallError::from(Problem::new(ErrorCode::RequestMalformed, error.field, error.message));
        Ok(encoded.map_err(unreadable)?.into())
    }

    /// Response in this format.
    ///
    /// # Errors
    /// The response as JSON is larger than `response_bytes`.
    pub(super) fn write<M: Message + 'static>(self, response: M) -> RpcResult<EncodedResponse> {
        let Some(JsonCall(method)) = self.json else {
            return Ok(Box::new(response));
        };
        let [_, most] = self.most;
        let mut output = BoundedOutput {
            bytes: Vec::new(),
            most,
        };
        let is_large = response.encoded_len() >= LARGE_JSON_BYTES;
        let written = work_beside_tasks(is_large, || {
            let wire = response.encode_to_vec();
            drop(response);
            write_json(&mut output, &method.output(), &wire)
        });
        match written {
            Ok(()) => Ok(Box::new(JsonResponse(output.bytes))),
            Err(error) if error.kind() == ErrorKind::StorageFull => {
                let message = "as JSON the response is larger than this server sends; use gRPC, or ask for less";
                Err(CallError::limit("response_bytes", most, message))
            }
            Err(_) => Err(CallError::internal("a response that has no JSON")),
        }
    }
}

/// Output that takes a number of bytes.
struct BoundedOutput {
    bytes: Vec<u8>,
    most: usize,
}

impl Write for BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() > self.most - self.bytes.len() {
            return Err(ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Codec of tonic whose requests are bytes, and whose responses are of any type. It has no size: tonic boxes a decoder.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallCodec;

impl Codec for CallCodec {
    type Encode = EncodedResponse;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Decoder for CallCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let bytes = source.copy_to_bytes(source.remaining());
        CallScope::charge_inflated(bytes.len())?;
        Ok(Some(bytes))
    }
}

impl Encoder for CallCodec {
    type Item = EncodedResponse;
    type Error = Status;

    fn encode(&mut self, response: EncodedResponse, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let bytes = response.wire_bytes();
        // A buffer that grows by doubling is copied each time, and holds up to three times the bytes meanwhile.
        into.reserve(bytes);
        // Both the encoding and the freeing of the response take long.
        work_beside_tasks(bytes >= LARGE_BYTES, move || response.write(into));
        Ok(())
    }
}

fn check_weight(bytes: &Bytes, message: &str) -> RpcResult<()> {
    let mut left = DECODED_BYTES;
    let is_weighed = bytes.len() as u64 >= LEAST_WEIGHED;
    match WEIGHTS.requests.get(message).filter(|_| is_weighed) {
        Some(shape) if weigh(bytes, *shape, &mut left).is_err() => {
            let message = format!(
                "the request has too many parts: decoded they would take more than {DECODED_BYTES} bytes; send them in \
                 several calls"
            );
            let failure = CallError::new(ErrorCode::RequestTooManyParts, message);
            Err(failure.with_entry("limit", "decoded_bytes"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Weight of a field whose content takes memory beyond its own bytes.
#[derive(Clone, Copy, Debug, Default)]
struct FieldWeight {
    /// Weight of each occurrence.
    weight: u64,
    /// Index of the weights of the message inside.
    inner: Option<usize>,
}

/// Weights of a message's fields, by number.
type MessageWeights = BTreeMap<u64, FieldWeight>;

#[derive(Debug)]
struct WeightTable {
    messages: Vec<MessageWeights>,
    /// Indices of the weights of requests by short name.
    requests: BTreeMap<String, usize>,
}

static WEIGHTS: LazyLock<WeightTable> = LazyLock::new(|| {
    let all: Vec<MessageDescriptor> = pb::DESCRIPTORS.all_messages().collect();
    let index = |message: &MessageDescriptor| all.iter().position(|other| other == message);
    let weighed = |field: FieldDescriptor| {
        let each = |weight| if field.is_list() { weight } else { 0 };
        let kind = field.kind();
        let (weight, inner) = if field.is_map() {
            (ENTRY_WEIGHT, None)
        } else if let Kind::Message(inner) = kind {
            (each(MESSAGE_WEIGHT), index(&inner))
        } else if matches!(kind, Kind::String | Kind::Bytes) {
            (each(TEXT_WEIGHT), None)
        } else {
            // A packed number takes at most four times its bytes.
            (0, None)
        };
        (weight > 0 || inner.is_some()).then(|| (field.number().into(), FieldWeight { weight, inner }))
    };
    let messages = all.iter().map(|message| message.fields().filter_map(weighed).collect());
    let requests = all
        .iter()
        .enumerate()
        .filter(|(_, message)| message.name().ends_with("Request"));
    WeightTable {
        messages: messages.collect(),
        requests: requests.map(|(at, message)| (message.name().to_owned(), at)).collect(),
    }
});

/// Memory for each encoded byte of a response, which is mostly short texts: each is a block, and three words name it.
const BYTES_PER_ENCODED: usize = 3;

/// A response with its memory, about. `parts`: bytes of its larger parts, apart from what they hold.
pub(super) fn weighed<M: Message>(result: M, parts: usize) -> WeighedResult<M> {
    let bytes = size_of::<M>() + parts + result.encoded_len() * BYTES_PER_ENCODED;
    WeighedResult { result, bytes }
}

/// Error: the message is too heavy.
struct TooHeavy;

/// Subtracts the message's weight from what is left. A malformed message is weighed up to its error, which is as far as
/// it will be decoded.
fn weigh(mut bytes: &[u8], shape: usize, left: &mut u64) -> Result<(), TooHeavy> {
    let Some(fields) = WEIGHTS.messages.get(shape) else {
        return Ok(());
    };
    while !bytes.is_empty() {
        let Ok(key) = decode_varint(&mut bytes) else {
            return Ok(());
        };
        let length = match key & 7 {
            0 => {
                if decode_varint(&mut bytes).is_err() {
                    return Ok(());
                }
                continue;
            }
            1 => 8,
            5 => 4,
            2 => match decode_varint(&mut bytes).map(usize::try_from) {
                Ok(Ok(length)) => length,
                Ok(Err(_)) | Err(_) => return Ok(()),
            },
            // Groups, which this protocol does not use, could hide anything.
            3 | 4 => return Err(TooHeavy),
            _ => return Ok(()),
        };
        let Some((content, rest)) = bytes.split_at_checked(length) else {
            return Ok(());
        };
        bytes = rest;
        let Some(field) = fields.get(&(key >> 3)).filter(|_| key & 7 == 2) else {
            continue;
        };
        *left = left.checked_sub(field.weight).ok_or(TooHeavy)?;
        if let Some(inside) = field.inner {
            weigh(content, inside, left)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight<M: Message + Name>(message: &M) -> u64 {
        let mut left = u64::MAX;
        let shape = WEIGHTS.requests[M::NAME];
        assert!(weigh(&message.encode_to_vec(), shape, &mut left).is_ok());
        u64::MAX - left
    }

    #[test]
    fn every_repeated_part_weighs() {
        let requests = pb::ResourceList {
            items: [
                ("cpu".to_owned(), "1".to_owned()),
                ("memory".to_owned(), "1Gi".to_owned()),
            ]
            .into(),
        };
        let task = pb::Task {
            name: "a".to_owned(),
            requests: Some(requests),
            ..pb::Task::default()
        };
        let filter = pb::FilterRequest {
            tasks: vec![task.clone(), task.clone()],
            plugins: vec!["x".to_owned()],
            ..pb::FilterRequest::default()
        };
        assert_eq!(weight(&filter), 2 * (MESSAGE_WEIGHT + 2 * ENTRY_WEIGHT) + TEXT_WEIGHT);
        let cluster = pb::Cluster {
            tasks: vec![task],
            ..pb::Cluster::default()
        };
        let apply = pb::ApplyRequest {
            batch: Some(pb::Batch {
                put: Some(cluster),
                ..pb::Batch::default()
            }),
        };
        assert_eq!(weight(&apply), MESSAGE_WEIGHT + 2 * ENTRY_WEIGHT);
    }

    #[test]
    fn a_message_that_is_not_weighed_is_light_whatever_it_is() {
        let requests = [0x12, 0x00].repeat(usize::try_from(LEAST_WEIGHED / 2).unwrap());
        let mut left = DECODED_BYTES;
        assert!(weigh(&requests, WEIGHTS.requests["FilterRequest"], &mut left).is_ok());
    }

    #[test]
    fn a_request_of_empty_records_is_too_heavy() {
        let requests = [0x12, 0x00].repeat(1 << 20);
        let mut left = DECODED_BYTES;
        assert!(weigh(&requests, WEIGHTS.requests["FilterRequest"], &mut left).is_err());
        assert!(
            weigh(&[0x13, 0x14], WEIGHTS.requests["FilterRequest"], &mut left).is_err(),
            "a group"
        );
        for malformed in [&[0x12][..], &[0x12, 0x05, 0x00], &[0xff; 12], &[0x09, 0x00], &[0x0f; 9]] {
            assert!(weigh(malformed, WEIGHTS.requests["FilterRequest"], &mut 1_000).is_ok());
        }
    }
}
