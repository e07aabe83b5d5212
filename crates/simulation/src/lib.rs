//! Policies tried without a cluster: simulations of workloads, tests of policies, and the demo.
#![expect(
    clippy::missing_errors_doc,
    reason = "every error is a `CommandError`, which ends the command"
)]

pub mod cycle_outcome;
pub mod demo;
pub mod policy_test;
pub mod simulate;
