//! Rate of confirmations through a real API server, by one server, and by three that append to one log: `make replicas
//! STORE=kubernetes` prints it.

#![cfg(test)]
#![expect(clippy::print_stdout, reason = "rates are printed")]

#[path = "../../etcd/tests/confirm_rate/mod.rs"]
mod confirm_rate;
#[expect(dead_code, reason = "the tests of the store use more of it")]
mod control_plane;
#[path = "../../etcd/tests/support/mod.rs"]
#[expect(dead_code, reason = "the tests of etcd use more of it")]
mod etcd;

use std::time::Duration;

use pumice_kubernetes_store::{KubernetesStore, KubernetesStoreOptions, WriteRates};

use confirm_rate::{rate, start};
use control_plane::ControlPlane;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd and an API server: make replicas STORE=kubernetes"]
async fn servers_confirm_at_a_good_rate() {
    let time = Duration::from_secs(4);
    let plane = ControlPlane::start(1);
    let unbounded = plane.options().rates;
    for (what, rates, count) in [
        ("at the default pace", WriteRates::default(), 1),
        ("at any pace", unbounded, 1),
        ("at any pace", unbounded, 2),
        ("at any pace", unbounded, 3),
    ] {
        let mut servers = Vec::new();
        for number in 0..count {
            let options = KubernetesStoreOptions {
                name: format!("rate-{}-{count}", if rates == unbounded { "any" } else { "own" }),
                ..plane.options()
            };
            let options = KubernetesStoreOptions { rates, ..options };
            servers.push(start(Box::new(KubernetesStore::new(options).unwrap()), number + 1).await);
        }
        let reached = rate(&servers, time).await;
        println!("{reached:.0} jobs a second by {count} servers through the Kubernetes API, {what}");
        assert!(reached > 50.0, "the servers make way");
    }
}
