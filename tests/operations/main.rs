//! Tests for operators: settings, reloads, metrics, alerts, TLS, roles, schemas and the pages.
#![cfg(test)]

mod docs;
mod json_http;
mod operate;
mod process;
mod schemas;
mod security;
mod server_surface;

use pumice_test_support as support;

#[test]
#[ignore = "a server that other tests start"]
fn limited_server() {
    support::limited_server::limited_server();
}
