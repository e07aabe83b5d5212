//! Diagnosis of a cluster with the results of its server: why a job waits, and how many more jobs of a shape fit.
#![expect(
    clippy::missing_errors_doc,
    reason = "every error is a `CommandError`, which ends the command"
)]

pub mod capacity;
pub mod explain;

/// Whole number of cards or tasks.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not below 0, and far below 2^53"
)]
fn to_count(number: f64) -> u64 {
    number.max(0.0) as u64
}
