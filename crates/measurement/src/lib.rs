//! Measurements of a running server: the load of `bench` with its latencies.
#![expect(
    clippy::missing_errors_doc,
    reason = "every error is a `CommandError`, which ends the command"
)]

pub mod bench;
pub mod placement_history;
