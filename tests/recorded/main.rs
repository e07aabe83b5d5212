//! Recorded decisions of the reference schedulers, and the plain models beside clever code.
#![cfg(test)]

mod capacity_card;
mod documents;
mod policies;
mod vectors;
mod volcano_cases;
mod yaml_reader;

use pumice_test_support as support;
