//! Pumice: a scheduling-policy decision service.
//!
//! Arrows point down, and `engine` points at nothing:
//!
//! ```text
//! cli ─► app ─► server ─► state ─► engine
//! ```
//!
//! The life of a decision: `server` turns bytes into a question and a ground (a published [`engine::snapshot`], or a
//! session's private copy of one), `engine::decide` answers it as a pure function of the two, and `server` turns the
//! answer into bytes. `state` is the only place that changes anything; it publishes snapshots.

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
