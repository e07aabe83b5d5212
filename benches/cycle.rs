//! Cost of a whole scheduling cycle in the engine, on one thread: enqueue, allocate and backfill under the configuration of
//! Volcano's chart, over 1,000 nodes and 10,000 waiting tasks.

mod fixtures {
    pub(crate) mod cycle;
}

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use fixtures::cycle::{self, TASKS_PER_JOB};

fn cycles(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cycle_1000x10000");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2));
    for (name, least) in [("gangs", TASKS_PER_JOB), ("single tasks", 1)] {
        let mut run = cycle::run(least);
        group.bench_function(name, |bench| bench.iter(&mut run));
    }
    group.finish();
}

criterion_group!(benches, cycles);
criterion_main!(benches);
