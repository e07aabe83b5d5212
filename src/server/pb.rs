//! The messages of `pumice.v1`, and the server side of its services.

#[expect(
    clippy::pedantic,
    unused_qualifications,
    reason = "generated"
)]
#[rustfmt::skip]
#[path = "generated/pumice.v1.rs"]
mod generated;

pub use generated::{
    DecisionService, DecisionServiceMethods, PolicyService, PolicyServiceMethods, StateService, StateServiceMethods,
};
pub use pumice_protocol::FILE_DESCRIPTOR_SET;
pub use pumice_protocol::v1::*;
