//! What survives: the ledger, its store, replicas, and schedulers that share a server.
#![cfg(test)]

mod fleet;
mod ledger;
mod replicas;

use pumice_test_support as support;
