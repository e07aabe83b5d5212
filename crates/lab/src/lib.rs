//! The Lab: published experiments on GPU scheduling, repeated with the plugins that a server serves.

pub mod allocation;
pub mod bound;
pub mod comparison;
pub mod experiment;
pub mod go_random;
pub mod measurement;
pub mod policies;
pub mod reproduction;
pub mod trace;
pub mod tuning;
pub mod typical;
pub mod workload;
pub mod workload_bounds;
