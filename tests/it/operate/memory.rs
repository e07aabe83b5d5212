//! Memory that a full sync needed returns to the system when the server comes to rest.

use std::sync::Arc;

use super::{cluster, metric_value, until};
use crate::support::process::ServeProcess;
use crate::support::records::full_sync;
use crate::support::wire::BlockingClients;

const RESIDENT: &str = "process_resident_memory_bytes";

#[test]
fn freed_memory_returns_to_the_system_while_idle() {
    let process = ServeProcess::start(&[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let wire = BlockingClients::connect(Arc::new(runtime), process.grpc);
    let before = metric_value(process.http, RESIDENT);
    wire.apply_batch(full_sync("s", 1, cluster(20_000))).unwrap();
    let held = metric_value(process.http, RESIDENT);
    assert!(held > before + 16e6, "from {before} to {held} bytes");
    wire.apply_batch(full_sync("s", 2, cluster(0))).unwrap();
    until("memory goes back", || {
        metric_value(process.http, RESIDENT) < before + (held - before) / 2.0
    });
}
