//! Several servers on one real etcd: `make replicas` builds one and names it by `PUMICE_ETCD`.

mod commands;
mod history;
mod replica;
mod torture;
mod wire;

#[path = "../../../crates/etcd/tests/support/mod.rs"]
#[expect(dead_code, reason = "the store's own tests use more of it")]
mod etcd;
