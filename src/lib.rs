//! Pumice: a scheduling-policy decision service.
//!
//! Arrows point down, and `engine`, a crate of its own, points at nothing:
//!
//! ```text
//! cli ─► app ─► server ─► state ─► engine
//! ```
//!
//! Life of a decision: `server` decodes a request into a query and resolves its `against` to a state (a published
//! [`engine::Snapshot`], or a session's private copy of one). `engine::decide` evaluates the query as a pure function
//! of the two, and `server` encodes the result. Only `state` changes anything; it publishes snapshots.

pub mod app;
pub mod cli;
pub mod config;
pub mod derive;
pub mod import;
pub mod plot;
pub mod server;
pub mod telemetry;

pub use pumice_engine as engine;
pub use pumice_state as state;
pub use pumice_state::store;
