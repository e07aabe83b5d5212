//! Protobuf JSON of messages, by the descriptors of the protocol. Both directions go field by field from text to bytes and
//! back: a message takes little memory beyond its text and its bytes.

mod json_reader;
mod json_writer;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, MessageDescriptor, MethodDescriptor};

use super::pb::DESCRIPTORS;

pub(super) use json_reader::{JsonError, encode_json};
pub(super) use json_writer::write_json;

/// Well-known types that JSON writes as a text: the duration `1.5s`, the time `2026-11-30T12:00:00Z`.
const DURATION: &str = "google.protobuf.Duration";
const TIMESTAMP: &str = "google.protobuf.Timestamp";

static DETAIL_DESCRIPTORS: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(tonic_types::pb::FILE_DESCRIPTOR_SET).unwrap_or_default());

/// Methods of `pumice.v1` by path.
static METHODS: LazyLock<BTreeMap<String, MethodDescriptor>> = LazyLock::new(|| {
    let mut methods = BTreeMap::new();
    for service in DESCRIPTORS.services() {
        for method in service.methods() {
            methods.insert(format!("/{}/{}", service.full_name(), method.name()), method);
        }
    }
    methods
});

/// Method at a path such as `/pumice.v1.DecisionService/Score`.
pub(super) fn method_at(path: &str) -> Option<&'static MethodDescriptor> {
    METHODS.get(path)
}

/// Type of an error's detail, such as `google.rpc.ErrorInfo`.
pub(super) fn detail_type(name: &str) -> Option<MessageDescriptor> {
    let own = DESCRIPTORS.get_message_by_name(name);
    own.or_else(|| DETAIL_DESCRIPTORS.get_message_by_name(name))
}

#[cfg(test)]
mod tests;
