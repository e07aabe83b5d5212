//! Rate of confirmations through a real etcd, by one server, and by three that append to one log: `make replicas` prints it.

#![cfg(test)]
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "times are measured and printed"
)]

#[expect(dead_code, reason = "the tests of the store use more of it")]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use pumice_engine::model::{JobRecord, QueueRecord, ResourceAmounts, ResourceId};
use pumice_engine::policy::Compatibility;
use pumice_etcd::{EtcdOptions, EtcdStore};
use pumice_state::store::{MemoryStore, Store};
use pumice_state::{
    Batch, BatchKind, BatchRecord, ConfirmItem, ConfirmItems, LedgerConfirm, PolicyOrigin, PolicyReload,
    RecordLocation, SharedState, StateOptions, SystemClock,
};

use support::EtcdCluster;

const POLICY: &str = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: capacity-card\n";
/// Calls under way at once, at all servers together.
const CALLS: usize = 192;
/// Jobs of one call.
const JOBS_PER_CALL: usize = 4;

fn cpu(cores: i64) -> ResourceAmounts {
    ResourceAmounts::from_iter([(ResourceId::CPU, cores * 1_000)])
}

async fn start(store: Box<dyn Store>, epoch: u64) -> Arc<SharedState> {
    let options = StateOptions {
        epoch: epoch << 32,
        ..StateOptions::default()
    };
    let start = move || SharedState::start_on(options, Arc::new(SystemClock::default()), store);
    let state = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
    let reload = PolicyReload {
        name: "default".into(),
        document: POLICY.into(),
        expected_version: None,
        dry_run: false,
        strict: false,
        compatibility: Compatibility::Corrected,
        origin: PolicyOrigin::Rpc("test".to_owned()),
    };
    state.reload_policy(reload).await.unwrap();
    let queue = QueueRecord {
        name: "q".into(),
        capability: Some(cpu(1_000_000)),
        ..QueueRecord::default()
    };
    let whole = Batch {
        source: "kube".into(),
        source_epoch: 1,
        sequence: 1,
        kind: BatchKind::FullSyncLast,
        part: 1,
        put: vec![(BatchRecord::Queue(queue), RecordLocation::at(0))],
        ..Batch::default()
    };
    state.apply_batch(whole).await.unwrap();
    state
}

/// Jobs a second that servers confirm, with as many calls under way as `CALLS` at all of them together.
async fn rate(servers: &[Arc<SharedState>], time: Duration) -> f64 {
    let (began, mut callers) = (Instant::now(), tokio::task::JoinSet::new());
    for number in 0..CALLS {
        let state = Arc::clone(&servers[number % servers.len()]);
        callers.spawn(async move {
            let mut permits = 0;
            while began.elapsed() < time {
                let jobs = (0..JOBS_PER_CALL).map(|job| JobRecord {
                    name: format!("ns/{number}-{}", permits + job).into(),
                    uid: "u".into(),
                    queue: "q".into(),
                    min_member: 1,
                    min_resources: Some(cpu(1)),
                    ..JobRecord::default()
                });
                let items: Vec<_> = jobs
                    .map(|job| {
                        Ok(ConfirmItem {
                            job: Arc::new(job),
                            attempt: 1,
                            names: Arc::default(),
                        })
                    })
                    .collect();
                let confirm = LedgerConfirm {
                    now: None,
                    policy: "default".into(),
                    profile: Arc::default(),
                    plugins: Vec::new(),
                    lease: None,
                    items: ConfirmItems::by(move |_| items),
                };
                let done = state.confirm(confirm).await.unwrap();
                assert!(done.items.iter().flatten().all(|item| item.verdict.permitted));
                permits += JOBS_PER_CALL;
            }
            permits
        });
    }
    let permits: usize = callers.join_all().await.into_iter().sum();
    f64::from(u32::try_from(permits).unwrap()) / began.elapsed().as_secs_f64()
}

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
