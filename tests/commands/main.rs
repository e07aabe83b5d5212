//! The command line as people and scripts use it.
#![cfg(test)]

mod command_line;
mod diagnosis;
mod profiles;
mod tools;

use pumice_test_support as support;
