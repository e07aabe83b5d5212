//! Descriptors of the protocol: names and types of the fields of records.

use prost_reflect::{DescriptorPool, MessageDescriptor};

use crate::CommandError;

/// The messages of `pumice.v1`.
#[derive(Debug, Clone)]
pub struct ProtocolSchema(DescriptorPool);

impl ProtocolSchema {
    /// Reads the descriptors that the program was built with.
    pub fn read() -> Result<Self, CommandError> {
        let pool = DescriptorPool::decode(pumice_protocol::FILE_DESCRIPTOR_SET);
        pool.map(ProtocolSchema)
            .map_err(|error| CommandError::message(format!("error: the protocol's descriptors: {error}")))
    }

    /// A message by its name in `pumice.v1`.
    pub fn message(&self, name: &str) -> Result<MessageDescriptor, CommandError> {
        let found = self.0.get_message_by_name(&format!("pumice.v1.{name}"));
        found.ok_or_else(|| CommandError::message(format!("error: the protocol has no message {name}")))
    }
}
