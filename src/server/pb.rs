//! The messages of `pumice.v1`, and the server side of its services.

#[rustfmt::skip]
#[path = "generated/pumice.v1.rs"]
mod generated;

pub(super) use generated::{
    DECISION_SERVICE, POLICY_SERVICE, STATE_SERVICE, decision_service, policy_service, state_service,
};
pub use pumice_protocol::FILE_DESCRIPTOR_SET;
pub use pumice_protocol::v1::*;
