//! Memory that a full sync needed returns to the system when the server comes to rest.

use std::sync::Arc;
use std::time::Duration;

use super::{cluster, metric_value};
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
    // Purges follow what was freed for some seconds. On a machine that other tests keep busy they may be over before every thread has come
    // to rest, and come again with the next memory that is freed.
    for sequence in [1, 3, 5] {
        wire.apply_batch(full_sync("s", sequence, cluster(20_000))).unwrap();
        let held = metric_value(process.http, RESIDENT);
        assert!(held > before + 16e6, "from {before} to {held} bytes");
        wire.apply_batch(full_sync("s", sequence + 1, cluster(0))).unwrap();
        for _ in 0..250 {
            if metric_value(process.http, RESIDENT) < before + (held - before) / 2.0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    panic!("never: memory goes back");
}
