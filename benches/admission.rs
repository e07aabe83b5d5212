//! Cost of admission in the engine, for any number of jobs that are admitted already.
#![expect(clippy::unwrap_used, reason = "a bench that cannot be set up has nothing to measure")]

#[path = "fixtures/admission.rs"]
mod fixtures;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pumice_engine::decide::JobAdmitter;
use pumice_engine::model::{ClusterState, JobRecord, NodeSlot, Reservation, SortedTable};
use pumice_engine::plugin_state::PlacementEvent;
use pumice_engine::policy::{CompileOptions, Policy, compile};

use fixtures::{POLICY, QUEUES, job, queue};

const JOBS: usize = 10_000;

fn policy() -> Arc<Policy> {
    compile(POLICY, &CompileOptions::default()).unwrap().policy
}

/// Queues, jobs that ask, and rows of jobs that are admitted.
fn cluster_state(admitted: usize) -> ClusterState {
    let source: Arc<str> = "bench".into();
    let mut cluster_state = ClusterState::new(Arc::new(SortedTable::<NodeSlot>::default()), 1);
    for number in 0..QUEUES {
        cluster_state.put_queue(queue(number), &source);
    }
    for number in 0..JOBS {
        cluster_state.put_job(job("new", number), &source);
    }
    for number in 0..admitted {
        let old = job("old", number);
        cluster_state.put_reservation(Arc::new(Reservation {
            job: old.name,
            queue: old.queue,
            amounts: vec![
                ("cpu".into(), 64_000),
                ("memory".into(), 64 << 30),
                ("A100".into(), 8_000),
            ],
            ..Reservation::default()
        }));
    }
    cluster_state
}

fn engine(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("admit 10,000 jobs in 100 queues");
    group.throughput(Throughput::Elements(JOBS as u64)).sample_size(20);
    let policy = policy();
    for admitted in [0, 100_000] {
        let cluster_state = cluster_state(admitted);
        let derived = policy.compute_plugin_states(&cluster_state);
        let jobs: Vec<JobRecord> = (0..JOBS).map(|number| job("new", number)).collect();
        let judge = JobAdmitter::new(&policy, &[]).unwrap();
        group.bench_function(format!("vote, {admitted} admitted"), |bencher| {
            let mut derived = derived.clone();
            bencher.iter(|| {
                for job in &jobs {
                    assert!(black_box(judge.judge(&cluster_state, &mut derived, None, job).unwrap()).permitted);
                }
            });
        });
        group.bench_function(format!("vote and promise, {admitted} admitted"), |bencher| {
            let fresh = || (cluster_state.clone(), derived.clone());
            bencher.iter_batched(
                fresh,
                |(mut cluster_state, mut derived)| {
                    for job in &jobs {
                        let admission = judge.judge(&cluster_state, &mut derived, None, job).unwrap();
                        cluster_state.put_reservation(Arc::new(Reservation {
                            job: Arc::clone(&job.name),
                            queue: Arc::clone(&job.queue),
                            amounts: admission.reserve,
                            ..Reservation::default()
                        }));
                        derived
                            .apply(&cluster_state, &[PlacementEvent::Reserve(&job.name)])
                            .unwrap();
                    }
                    (cluster_state, derived)
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, engine);
criterion_main!(benches);
