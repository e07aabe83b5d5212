//! Messages and clients of `pumice.v1`.
//!
//! The generated code is checked in: the crate builds without the protocol files. The test `generated` compares the
//! code with `proto/`. To regenerate it, run `PUMICE_BLESS=1 cargo test --package pumice-protocol`.
//!
//! ```no_run
//! use pumice_protocol::{ClientConnection, v1};
//!
//! # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
//! let mut server = ClientConnection::open("127.0.0.1:7461").await?;
//! let info = server.state.get_server_info(v1::GetServerInfoRequest::default()).await?.into_inner();
//! println!("{}", info.version);
//! # Ok(())
//! # }
//! ```

mod client;
mod client_tls;
mod encoded_apply;
mod rpc;
mod visible_text;

/// The messages and clients of `pumice.v1`, as the protocol files describe them.
#[expect(
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::pedantic,
    reason = "generated"
)]
#[rustfmt::skip]
#[path = "generated/pumice.v1.rs"]
pub mod v1;

pub use client::{
    CONNECTION_WINDOW, CallTransport, ClientConnection, ConnectError, DEFAULT_METRICS_ADDRESS, DEFAULT_SERVER,
    REPLY_BYTES, STREAM_WINDOW,
};
pub use client_tls::{ClientTls, ConnectOptions};
pub use encoded_apply::EncodedApply;
pub use rpc::{BytesCodec, CallService, ServiceClient};
pub use visible_text::{is_disguise, visible_text};

/// The compiled files of `proto/pumice/v1`, as an encoded `FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptor.bin");
