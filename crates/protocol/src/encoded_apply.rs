//! `Apply` with records that were encoded one by one, as they came.

use prost::Message as _;
use prost::bytes::{BufMut as _, Bytes};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use tonic::{Request, Status};

use crate::client::ClientConnection;
use crate::rpc::RpcMethod;
use crate::v1;

/// Method that applies a batch.
const APPLY: RpcMethod = RpcMethod::new("pumice.v1.StateService", "Apply", "/pumice.v1.StateService/Apply");
/// Field `batch` of `ApplyRequest`.
const BATCH_FIELD: u32 = 1;
/// Field `put` of `Batch`.
const PUT_FIELD: u32 = 5;

/// Encoded request of `Apply`. Copies share their bytes, which makes a retry cheap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedApply(Bytes);

impl EncodedApply {
    /// Request with a batch and further records to put. Each text is an encoded [`v1::Cluster`] with one or more
    /// records.
    pub fn new<'r>(batch: &v1::Batch, records: impl Iterator<Item = &'r [u8]> + Clone) -> Self {
        let own_bytes = batch.encoded_len();
        let record_bytes: usize = records.clone().map(<[u8]>::len).sum();
        let put_bytes = key_len(PUT_FIELD) + encoded_len_varint(record_bytes as u64) + record_bytes;
        let batch_bytes = own_bytes + put_bytes;
        let head_bytes = key_len(BATCH_FIELD) + encoded_len_varint(batch_bytes as u64);
        let mut request = Vec::with_capacity(head_bytes + batch_bytes);
        encode_key(BATCH_FIELD, WireType::LengthDelimited, &mut request);
        encode_varint(batch_bytes as u64, &mut request);
        batch.encode_raw(&mut request);
        // A field that stands twice is merged.
        encode_key(PUT_FIELD, WireType::LengthDelimited, &mut request);
        encode_varint(record_bytes as u64, &mut request);
        for record in records {
            request.put_slice(record);
        }
        Self(request.into())
    }

    /// Bytes of the request.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl ClientConnection {
    /// Applies a batch that is encoded.
    ///
    /// # Errors
    /// The server rejected the call or is unreachable.
    pub async fn apply_encoded(&self, apply: &EncodedApply) -> Result<v1::ApplyResponse, Status> {
        let request = Request::new(apply.0.clone());
        let response = self.state.clone().bytes(APPLY, request).await?;
        v1::ApplyResponse::decode(response.into_inner()).map_err(|error| Status::internal(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_stand_in_the_batch_as_if_they_were_its_own() {
        let task = |name: &str| v1::Cluster {
            tasks: vec![v1::Task {
                name: name.to_owned(),
                ..v1::Task::default()
            }],
            ..v1::Cluster::default()
        };
        let mut batch = v1::Batch {
            source: "live".to_owned(),
            source_epoch: 3,
            sequence: 300,
            part: 2,
            ..v1::Batch::default()
        };
        for names in [&[][..], &["a"], &["a", "b", "c"]] {
            let records: Vec<Vec<u8>> = names.iter().map(|name| task(name).encode_to_vec()).collect();
            let encoded = EncodedApply::new(&batch, records.iter().map(Vec::as_slice));
            let mut read = v1::ApplyRequest::decode(encoded.bytes()).unwrap().batch.unwrap();
            let put = read.put.take().unwrap();
            assert_eq!(read, batch);
            assert_eq!(put.tasks.iter().map(|task| &*task.name).collect::<Vec<_>>(), *names);
        }
        batch.put = Some(task("own"));
        let other = task("other").encode_to_vec();
        let encoded = EncodedApply::new(&batch, std::iter::once(&*other));
        let put = v1::ApplyRequest::decode(encoded.bytes())
            .unwrap()
            .batch
            .unwrap()
            .put
            .unwrap();
        assert_eq!(put.tasks.len(), 2);
    }
}
