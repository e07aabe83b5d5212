//! Pumice: a scheduling-policy decision service.
//!
//! Arrows point down, and `engine` points at nothing:
//!
//! ```text
//! cli ─► app ─► server ─► state ─► engine
//! ```
//!
//! Life of a decision: `server` decodes a request into a query and resolves its `against` to a state (a published
//! [`engine::Snapshot`], or a session's private copy of one). `engine::decide` evaluates the query as a pure function
//! of the two, and `server` encodes the result. Only `state` changes anything; it publishes snapshots.

#[cfg(feature = "server")]
pub mod app;
#[cfg(feature = "server")]
pub mod cli;
#[cfg(feature = "server")]
pub mod config;
#[cfg(feature = "server")]
pub mod derive;
pub mod engine;
#[cfg(feature = "server")]
pub mod import;
#[cfg(feature = "server")]
pub mod plot;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod state;
#[cfg(feature = "server")]
pub mod store;
#[cfg(feature = "server")]
pub mod telemetry;
