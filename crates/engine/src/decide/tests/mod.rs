//! Tests of Filter and Score.

mod ahead;
mod class_batches;
mod compatibility;
mod design_examples;
mod diagnostics;
pub(crate) mod fixtures;
mod koordinator;
mod lasting_reasons;
mod naive;
mod queries;
mod vectors;
mod victims;
mod victims_and_filter;
