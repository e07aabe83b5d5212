//! Tests of deserved amounts, votes and victims.

mod corrected;
mod histories;
