//! Tests of shares, trees and victims.

mod advanced;
mod batch;
mod cluster;
mod corrected;
mod guarantees;
mod plain_tree;
mod properties;
mod tree_changes;
