//! Descriptors of the protocol: names and types of the fields of records.

use std::sync::LazyLock;

use prost_reflect::{DescriptorError, DescriptorPool, MessageDescriptor};

use crate::CommandError;

/// Descriptors that the program was built with. A process reads them once: that takes longer than most of what a command does.
static DESCRIPTORS: LazyLock<Result<DescriptorPool, DescriptorError>> =
    LazyLock::new(|| DescriptorPool::decode(pumice_protocol::FILE_DESCRIPTOR_SET));

/// A message by its name in `pumice.v1`.
pub fn message(name: &str) -> Result<MessageDescriptor, CommandError> {
    let broken = |error| CommandError::message(format!("error: the protocol's descriptors: {error}"));
    let found = DESCRIPTORS
        .as_ref()
        .map_err(broken)?
        .get_message_by_name(&format!("pumice.v1.{name}"));
    found.ok_or_else(|| CommandError::message(format!("error: the protocol has no message {name}")))
}
