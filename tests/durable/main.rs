//! Durable state: the ledger, its store, replicas, and schedulers that share a server.
#![cfg(test)]

mod fleet;
mod ledger;
mod replicas;
mod shared_log;

use pumice_test_support as support;
