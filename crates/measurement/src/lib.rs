//! Measurements of a running server: the load of `bench` with its latencies, and the metrics that `top` shows.
#![expect(
    clippy::missing_errors_doc,
    reason = "every error is a `CommandError`, which ends the command"
)]

pub mod bench;
pub mod placement_history;
pub mod top;
