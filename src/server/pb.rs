//! The messages of `pumice.v1`, and the server side of its services.

#[expect(
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::clone_on_ref_ptr,
    clippy::pedantic,
    unused_qualifications,
    reason = "generated"
)]
#[rustfmt::skip]
#[path = "generated/pumice.v1.rs"]
mod generated;

pub use generated::{decision_service_server, policy_service_server, state_service_server};
pub use pumice_protocol::FILE_DESCRIPTOR_SET;
pub use pumice_protocol::v1::*;
