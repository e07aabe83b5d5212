//! Several servers on one store that they share: `make replicas` builds an etcd, and an API server with STORE=kubernetes, and names them
//! by `PUMICE_ETCD` and `PUMICE_KUBE_APISERVER`.

mod commands;
mod damage;
mod disks_and_clocks;
mod history;
mod jumping_clock;
mod replica;
mod shared_store;
mod torture;
mod wire;

#[path = "../../../crates/kubernetes-store/tests/control_plane/mod.rs"]
#[expect(dead_code, reason = "the store's own tests use more of it")]
mod control_plane;
#[path = "../../../crates/etcd/tests/support/mod.rs"]
#[expect(dead_code, reason = "the store's own tests use more of it")]
mod etcd;
