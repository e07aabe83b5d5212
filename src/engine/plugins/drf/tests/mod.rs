//! Tests of shares, trees and victims.

mod carried;
mod cluster;
mod corrected;
mod plain;
mod promises;
mod properties;
mod together;
