//! Rate of confirmations through a real etcd, by one server, and by three that append to one log: `make replicas` prints it.

#![cfg(test)]
#![expect(clippy::print_stdout, reason = "rates are printed")]

mod confirm_rate;
#[expect(dead_code, reason = "the tests of the store use more of it")]
mod support;

use std::time::Duration;

use pumice_etcd::{EtcdOptions, EtcdStore};
use pumice_state::store::MemoryStore;

use confirm_rate::{rate, start};
use support::EtcdCluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd: make replicas"]
async fn servers_confirm_at_a_good_rate() {
    let time = Duration::from_secs(3);
    let memory = rate(&[start(Box::new(MemoryStore::default()), 1).await], time).await;
    println!("{memory:.0} jobs a second by one server in memory");
    let cluster = EtcdCluster::start(1);
    for count in [1, 2, 3] {
        let mut servers = Vec::new();
        for number in 0..count {
            let options = EtcdOptions {
                prefix: format!("/rate-{count}"),
                ..cluster.options()
            };
            servers.push(start(Box::new(EtcdStore::new(options).unwrap()), number + 1).await);
        }
        let reached = rate(&servers, time).await;
        println!("{reached:.0} jobs a second by {count} servers through etcd");
        assert!(reached > 100.0, "the servers make way");
    }
}
