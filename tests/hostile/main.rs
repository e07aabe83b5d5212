//! Callers who mean harm or are too many: the server goes on serving others.
#![cfg(test)]

mod hostile;

use pumice_test_support as support;
