//! Diagnosis of a cluster by the answers of its server: why a job waits, and how many more of a shape fit.
#![expect(
    clippy::missing_errors_doc,
    reason = "every error is a `CommandError`, which ends the command"
)]

pub mod capacity;
pub mod explain;
