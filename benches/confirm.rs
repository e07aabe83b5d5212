//! Cost of confirming jobs durably, in groups, for any number of jobs that are confirmed already.
#![expect(clippy::unwrap_used, reason = "a bench that cannot be set up has nothing to measure")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

#[path = "fixtures/admission.rs"]
mod fixtures;

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pumice_state::store::DiskStore;
use pumice_state::{
    Batch, BatchKind, BatchRecord, ConfirmItem, ConfirmItems, LedgerConfirm, PolicyOrigin, PolicyReload,
    RecordLocation, SharedState, StateOptions, SystemClock,
};

use fixtures::{POLICY, QUEUES, job, queue};

/// Complete state over a store on disk.
struct DurableBenchState {
    state: Arc<SharedState>,
    runtime: tokio::runtime::Runtime,
    directory: std::path::PathBuf,
    next: std::cell::Cell<usize>,
}

impl DurableBenchState {
    fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("pumice-bench-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&directory));
        let store = DiskStore::open(&directory).unwrap();
        let clock = Arc::new(SystemClock::default());
        let state = SharedState::start_on(StateOptions::default(), clock, Box::new(store)).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let reload = PolicyReload {
            name: "default".into(),
            document: POLICY.into(),
            expected_version: None,
            dry_run: false,
            strict: false,
            compatibility: pumice_engine::policy::Compatibility::Corrected,
            origin: PolicyOrigin::BuiltIn,
        };
        runtime.block_on(state.reload_policy(reload)).unwrap();
        let put = (0..QUEUES).map(|number| (BatchRecord::Queue(queue(number)), RecordLocation::at(number)));
        let batch = Batch {
            source: "bench".into(),
            source_epoch: 1,
            sequence: 1,
            kind: BatchKind::FullSyncLast,
            part: 1,
            put: put.collect(),
            ..Batch::default()
        };
        runtime.block_on(state.apply_batch(batch)).unwrap();
        Self {
            state,
            runtime,
            directory,
            next: std::cell::Cell::new(0),
        }
    }

    /// Confirms `jobs` new jobs, `each` in a call, with `at_once` calls under way.
    fn confirm(&self, jobs: usize, each: usize, at_once: usize) -> Duration {
        let first = self.next.replace(self.next.get() + jobs);
        let calls: Vec<Vec<_>> = (first..first + jobs)
            .step_by(each)
            .map(|from| {
                let items = (from..from + each).map(|number| {
                    let job = Arc::new(job("durable", number));
                    Ok(ConfirmItem {
                        job,
                        attempt: 1,
                        names: Arc::default(),
                    })
                });
                items.collect()
            })
            .collect();
        let started = Instant::now();
        self.runtime.block_on(async {
            let gate = Arc::new(tokio::sync::Semaphore::new(at_once));
            let mut all = tokio::task::JoinSet::new();
            for items in calls {
                let (state, gate) = (Arc::clone(&self.state), Arc::clone(&gate));
                all.spawn(async move {
                    let _turn = gate.acquire().await.unwrap();
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
                });
            }
            while let Some(done) = all.join_next().await {
                done.unwrap();
            }
        });
        started.elapsed()
    }
}

impl Drop for DurableBenchState {
    fn drop(&mut self) {
        self.runtime.block_on(self.state.stop());
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

fn durable(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("confirm on disk");
    group.sample_size(10);
    let state = DurableBenchState::new();
    for admitted in [0, 100_000] {
        if state.next.get() < admitted {
            state.confirm(admitted - state.next.get(), 1_000, 4);
        }
        group.throughput(Throughput::Elements(1_000));
        for (each, at_once) in [(1_000, 1), (1, 64)] {
            let name = format!("1,000 jobs, {each} in a call, {at_once} calls under way, {admitted} admitted");
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|times| (0..times).map(|_| state.confirm(1_000, each, at_once)).sum());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, durable);
criterion_main!(benches);
