//! Rate of confirmations of servers that append to one log.

#![expect(clippy::disallowed_methods, reason = "times are measured")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use pumice_engine::model::{JobRecord, QueueRecord, ResourceAmounts, ResourceId};
use pumice_engine::policy::Compatibility;
use pumice_state::store::Store;
use pumice_state::{
    Batch, BatchKind, BatchRecord, ConfirmItem, ConfirmItems, LedgerConfirm, PolicyOrigin, PolicyReload,
    RecordLocation, SharedState, StateOptions, SystemClock,
};

const POLICY: &str = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: capacity-card\n";
/// Calls under way at once, at all servers together.
const CALLS: usize = 192;
/// Jobs of one call.
const JOBS_PER_CALL: usize = 4;

fn cpu(cores: i64) -> ResourceAmounts {
    ResourceAmounts::from_iter([(ResourceId::CPU, cores * 1_000)])
}

/// Server on a store, with a policy and a queue.
pub(crate) async fn start(store: Box<dyn Store>, epoch: u64) -> Arc<SharedState> {
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
pub(crate) async fn rate(servers: &[Arc<SharedState>], time: Duration) -> f64 {
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
