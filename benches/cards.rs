//! Cost of a changed record for the accounts of cards, with 100,000 jobs in a hundred queues.
#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

mod fixtures {
    pub(crate) mod jobs;
}

use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use pumice_engine::model::{JobPhase, JobRecord};

use fixtures::jobs::{cluster, node, policy};

fn plugin_state_updates(criterion: &mut Criterion) {
    let policy = policy();
    let mut group = criterion.benchmark_group("accounts");
    group.warm_up_time(Duration::from_millis(500));
    group.measurement_time(Duration::from_secs(3));
    let (cluster_state, jobs, gpu) = cluster(100_000);
    let derived = policy.compute_plugin_states(&cluster_state);
    let source = Arc::from("bench");
    let mut with_node = cluster_state.clone();
    with_node.put_node(Arc::new(node(7, 4, gpu)), &source);
    let mut with_job = cluster_state.clone();
    let enqueued = JobRecord {
        phase: JobPhase::Inqueue,
        ..JobRecord::clone(jobs.first().expect("a job"))
    };
    with_job.put_job(enqueued, &source);
    group.sample_size(10);
    group.bench_function("rebuilt", |bench| {
        bench.iter(|| policy.compute_plugin_states(&cluster_state));
    });
    group.sample_size(100);
    for (what, newer) in [("one_node", &with_node), ("one_job", &with_job)] {
        group.bench_function(what, |bench| {
            bench.iter(|| policy.advance_plugin_states(newer, Some((&cluster_state, &derived))));
        });
    }
    group.finish();
}

criterion_group!(benches, plugin_state_updates);
criterion_main!(benches);
