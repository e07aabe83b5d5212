//! The generated code of `pumice.v1`, and the descriptors that server reflection shows.

#[expect(
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::clone_on_ref_ptr,
    clippy::pedantic,
    unused_qualifications,
    reason = "generated"
)]
mod generated {
    tonic::include_proto!("pumice.v1");
}

pub use generated::*;

/// The compiled files of `proto/pumice/v1`, as an encoded `FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pumice_descriptor.bin"));
