//! Memory: what a snapshot needed goes back to the system when the server comes to rest.

use std::sync::Arc;

use super::{cluster, figure, until};
use crate::support::process::Process;
use crate::support::records::snapshot;
use crate::support::wire::Wire;

const RESIDENT: &str = "process_resident_memory_bytes";

#[test]
fn what_was_freed_goes_back_though_nothing_else_happens() {
    let process = Process::start(&[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let wire = Wire::connect(Arc::new(runtime), process.grpc);
    let before = figure(process.http, RESIDENT);
    wire.apply_batch(snapshot("s", 1, cluster(20_000))).unwrap();
    let held = figure(process.http, RESIDENT);
    assert!(held > before + 16e6, "from {before} to {held} bytes");
    wire.apply_batch(snapshot("s", 2, cluster(0))).unwrap();
    until("memory goes back", || {
        figure(process.http, RESIDENT) < before + (held - before) / 2.0
    });
}
