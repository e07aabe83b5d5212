//! Tests of Filter and Score.

mod cluster;
#[cfg(feature = "server")]
mod tiers;
#[cfg(feature = "server")]
mod vectors;
