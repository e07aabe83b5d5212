//! Tests of a store, whatever its kind: the suite that each passes, random scripts of problems, and a store that fails when it is
//! told to. Release builds have none of it.

pub mod conformance;
mod failing;
pub mod problem_scripts;
pub mod steps;

pub use failing::{BlockedFlush, FailingStore, StoreErrorMode};
