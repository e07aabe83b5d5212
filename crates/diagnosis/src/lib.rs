//! Diagnosis of a cluster with the results of its server: why a job waits, and how many more jobs of a shape fit.
#![expect(
    clippy::missing_errors_doc,
    reason = "every error is a `CommandError`, which ends the command"
)]

pub mod capacity;
pub mod explain;
