//! What admission costs in the engine: jobs with cards in a hundred queues, and what a changed record costs the accounts.
//!
//! Throughput of `admit` counts jobs, so that the time of one job can be read off: 1 Melem/s is 1 µs per job.
#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

mod ground {
    pub(crate) mod jobs;
}

use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pumice::engine::decide;
use pumice::engine::model::{JobPhase, JobRecord};

use ground::jobs::{ASKED, cluster, node, policy, question};

fn admission(criterion: &mut Criterion) {
    let policy = policy();
    let mut group = criterion.benchmark_group("admit");
    group.warm_up_time(Duration::from_millis(500));
    group.measurement_time(Duration::from_secs(3));
    for admitted in [0, 100_000] {
        let (view, jobs, _) = cluster(admitted);
        let derived = policy.derive(&view);
        let question = question(&jobs);
        let answers = decide::admit(&view, &policy, &mut derived.clone(), &question).expect("an answer");
        let permits = answers.iter().flatten().filter(|answer| answer.permitted).count();
        assert_eq!(permits, ASKED as usize);
        group.throughput(Throughput::Elements(ASKED.into()));
        group.bench_function(BenchmarkId::new("beside", admitted), |bench| {
            bench.iter_batched(
                || derived.clone(),
                |mut derived| {
                    drop(decide::admit(&view, &policy, &mut derived, &question));
                    derived
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

fn upkeep(criterion: &mut Criterion) {
    let policy = policy();
    let mut group = criterion.benchmark_group("accounts");
    group.warm_up_time(Duration::from_millis(500));
    group.measurement_time(Duration::from_secs(3));
    let (view, jobs, gpu) = cluster(100_000);
    let derived = policy.derive(&view);
    let source = Arc::from("bench");
    let mut with_node = view.clone();
    with_node.put_node(Arc::new(node(7, 4, gpu)), &source);
    let mut with_job = view.clone();
    let enqueued = JobRecord {
        phase: JobPhase::Inqueue,
        ..JobRecord::clone(jobs.first().expect("a job"))
    };
    with_job.put_job(enqueued, &source);
    group.sample_size(10);
    group.bench_function("anew", |bench| bench.iter(|| policy.derive(&view)));
    group.sample_size(100);
    for (what, newer) in [("one_node", &with_node), ("one_job", &with_job)] {
        group.bench_function(what, |bench| {
            bench.iter(|| policy.derive_after(newer, Some((&view, &derived))));
        });
    }
    group.finish();
}

criterion_group!(benches, admission, upkeep);
criterion_main!(benches);
