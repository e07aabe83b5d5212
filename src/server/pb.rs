//! The messages of `pumice.v1`, and the server side of its services.

use std::sync::LazyLock;

use prost_reflect::DescriptorPool;

#[rustfmt::skip]
#[path = "generated/pumice.v1.rs"]
mod generated;

pub(super) use generated::{
    DECISION_SERVICE, POLICY_SERVICE, STATE_SERVICE, decision_service, policy_service, state_service,
};
pub use pumice_protocol::FILE_DESCRIPTOR_SET;
pub use pumice_protocol::v1::*;

/// Descriptors of the protocol, decoded once.
pub(super) static DESCRIPTORS: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap_or_default());
