//! Callers who mean harm or are too many: the server goes on serving others.
#![cfg(test)]

mod hostile;

use mimalloc::MiMalloc;
use pumice_test_support as support;

/// Allocator of the program, because the tests measure its memory.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[test]
#[ignore = "a server that other tests start"]
fn limited_server() {
    support::limited_server::limited_server();
}
