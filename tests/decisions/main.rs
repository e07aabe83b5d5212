//! Decisions through a real server: Filter, Score, Place, Order, Admit, and what they depend on.
#![cfg(test)]

mod hierarchy;
mod history;
mod job_state;
mod named_plugins;
mod namespaces;
mod negative_amounts;
mod node_group_limits;
mod openb;
mod place;
mod rebuild;
mod rebuild_cluster_state;
mod reported;
mod session_model;
mod stored_labels;
mod stored_verdicts;

use pumice_test_support as support;
