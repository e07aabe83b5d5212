//! Tests of Filter and Score.

mod cluster;
mod compatibility;
mod findings;
mod koordinator;
mod plain;
mod questions;
mod seeds;
#[cfg(feature = "server")]
mod tiers;
mod together;
#[cfg(feature = "server")]
mod vectors;
mod victims;
