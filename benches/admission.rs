//! What admission costs in the engine, however many jobs are admitted already.
#![expect(clippy::unwrap_used, reason = "a bench that cannot be set up has nothing to measure")]

#[path = "ground/admission.rs"]
mod ground;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pumice::engine::decide::JobJudge;
use pumice::engine::derived::Movement;
use pumice::engine::model::{JobRecord, Reservation, Slot, Table, View};
use pumice::engine::policy::{CompileOptions, Policy, compile};

use ground::{POLICY, QUEUES, job, queue};

const JOBS: usize = 10_000;

fn policy() -> Arc<Policy> {
    compile(POLICY, &CompileOptions::default()).unwrap().policy
}

/// Queues, jobs that ask, and rows of jobs that are admitted.
fn view(admitted: usize) -> View {
    let source: Arc<str> = "bench".into();
    let mut view = View::new(Arc::new(Table::<Slot>::default()), 1);
    for number in 0..QUEUES {
        view.put_queue(queue(number), &source);
    }
    for number in 0..JOBS {
        view.put_job(job("new", number), &source);
    }
    for number in 0..admitted {
        let old = job("old", number);
        view.put_reservation(Arc::new(Reservation {
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
    view
}

fn engine(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("admit 10,000 jobs in 100 queues");
    group.throughput(Throughput::Elements(JOBS as u64)).sample_size(20);
    let policy = policy();
    for admitted in [0, 100_000] {
        let view = view(admitted);
        let derived = policy.derive(&view);
        let jobs: Vec<JobRecord> = (0..JOBS).map(|number| job("new", number)).collect();
        let judge = JobJudge::new(&policy, &[]).unwrap();
        group.bench_function(format!("vote, {admitted} admitted"), |bencher| {
            let mut derived = derived.clone();
            bencher.iter(|| {
                for job in &jobs {
                    assert!(black_box(judge.job(&view, &mut derived, job).unwrap()).permitted);
                }
            });
        });
        group.bench_function(format!("vote and promise, {admitted} admitted"), |bencher| {
            let fresh = || (view.clone(), derived.clone());
            bencher.iter_batched(
                fresh,
                |(mut view, mut derived)| {
                    for job in &jobs {
                        let admission = judge.job(&view, &mut derived, job).unwrap();
                        view.put_reservation(Arc::new(Reservation {
                            job: Arc::clone(&job.name),
                            queue: Arc::clone(&job.queue),
                            amounts: admission.reserve,
                            ..Reservation::default()
                        }));
                        derived.follow(&view, &Movement::Reserve(&job.name)).unwrap();
                    }
                    (view, derived)
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, engine);
criterion_main!(benches);
