//! A disk that does not respond delays only callers that wait for the write.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::limits::EdgeLimits;
use crate::server::WorkerPool;
use crate::server::probe::HealthProbe;
use crate::telemetry::Metrics;
use pumice_engine::policy::Compatibility;
use pumice_state::store::FailingStore;
use pumice_state::{PolicyOrigin, PolicyReload, SharedState, StateOptions, SystemClock};

/// Time within which everything that does not wait for the disk has happened, on a busy machine, too.
const SOON: Duration = Duration::from_secs(20);

fn reload(document: &str) -> PolicyReload {
    PolicyReload {
        name: "default".into(),
        document: document.into(),
        expected_version: None,
        dry_run: false,
        strict: false,
        compatibility: Compatibility::Corrected,
        origin: PolicyOrigin::Rpc(String::new()),
    }
}

fn probe(state: &Arc<SharedState>) -> HealthProbe {
    HealthProbe {
        tls: None,
        identities: crate::access::AccessKeeper::unrestricted(Arc::new(Metrics::new())),
        state: Arc::clone(state),
        metrics: Arc::new(Metrics::new()),
        workers: Arc::new(WorkerPool::new(&EdgeLimits::default())),
        policy_file: None,
        expected_sources: Vec::new(),
        cluster: None,
        expected_policies: Vec::new(),
        expected_documents: Vec::new(),
        draining: watch::channel(false).1,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_but_the_caller_waits_for_the_write_of_a_policy() {
    let store = FailingStore::default();
    let clock = Arc::new(SystemClock::default());
    let state = SharedState::start_on(StateOptions::default(), clock, Box::new(store.clone())).unwrap();
    let document = "actions: allocate\ntiers:\n- plugins:\n  - name: resource-strategy-fit\n";
    state.reload_policy(reload(document)).await.unwrap();

    let flush = store.block_flush();
    let second = tokio::spawn({
        let state = Arc::clone(&state);
        async move {
            state
                .reload_policy(reload(&format!("{document}  - name: priority\n")))
                .await
        }
    });
    let flush = tokio::task::spawn_blocking(move || {
        flush.wait_for_write();
        flush
    });
    let flush = flush.await.unwrap();
    // The probe, all reads and a refused document get by while the disk does not answer.
    let probe = probe(&state);
    let health = tokio::spawn(async move {
        (
            probe.is_ready(),
            probe.metrics.encode(&probe.state, &probe.workers.loads()),
        )
    });
    let reads = tokio::spawn({
        let state = Arc::clone(&state);
        async move {
            let refused = state.reload_policy(reload("tiers: 7\n")).await;
            assert!(refused.is_err() && state.sources().is_empty());
            let name = "default".into();
            (
                state.policy_version(&name, 0).unwrap().in_force.version,
                state.active_policies().len(),
                state.policy_versions(&name).unwrap().len(),
                state.rejected_documents().len(),
            )
        }
    });
    let health = tokio::time::timeout(SOON, health).await;
    let reads = tokio::time::timeout(SOON, reads).await;
    let slow = second.is_finished();
    // Before anything fails: a server that hangs must not hang the test.
    drop(flush);
    let (is_ready, page) = health.expect("the probe waits for the disk").unwrap();
    assert!(is_ready && page.unwrap().contains("pumice_policy_rejected"));
    assert_eq!(reads.expect("a read waits for the disk").unwrap(), (1, 1, 1, 1));
    assert!(!slow, "the reload did not wait for the disk");
    assert_eq!(second.await.unwrap().unwrap().version.in_force.version, 2);
    // The accepted document clears the refusal.
    assert!(state.rejected_documents().is_empty() && state.policy_versions(&"default".into()).unwrap().len() == 2);
}
