//! Tests of limits, votes, orders and victims.

mod corrected;
mod histories;
mod order;
mod quota_rules;
