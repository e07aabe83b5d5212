//! The service of Pumice: decisions over gRPC, probes and metrics, and the process around them.
//!
//! Dependencies point down. The compiler rejects upward dependencies, because the boxes below `server` are separate
//! crates.
//!
//! ```text
//! command line (cli) ─► app ─► server ─► state ─► engine
//! ```
//!
//! Life of a decision: `server` decodes a request into a query and resolves its `against` to a state (a published
//! [`pumice_engine::Snapshot`], or a session's private copy of one). `pumice_engine::decide` evaluates the query as a pure function
//! of the two, and `server` encodes the result. Only `state` changes anything; it publishes snapshots.

pub mod access;
pub mod app;
pub mod audit;
pub mod build_info;
pub mod cli;
pub mod config;
mod file_looks;
#[doc(hidden)]
#[cfg(feature = "test-doors")]
pub mod fuzz_entries;
pub mod limits;
pub mod server;
pub mod telemetry;
pub mod tls;
mod yaml_file;
