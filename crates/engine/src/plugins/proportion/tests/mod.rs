//! Tests of deserved amounts, votes and victims.

mod cluster;
mod corrected;
mod histories;
mod plain;
