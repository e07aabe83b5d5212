//! What decisions cost in the engine: one task class over all nodes, on one thread.
//!
//! Throughput counts nodes, so that the time of one node can be read off: 100 Melem/s are 10 ns per node.

mod ground;

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pumice::engine::decide::{self, ScoreQuestion};

use ground::{cluster, policy, question};

const SIZES: [u32; 3] = [1_000, 10_000, 100_000];

fn one_class(criterion: &mut Criterion) {
    let policy = policy();
    let mut group = criterion.benchmark_group("one class");
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    for nodes in SIZES {
        let view = cluster(nodes);
        group.throughput(Throughput::Elements(nodes.into()));
        let all = question(&view);
        let best = ScoreQuestion {
            with_filter: true,
            limit: Some(16),
            ..all.clone()
        };
        let size = |name: &str| BenchmarkId::new(name, nodes);
        group.bench_function(size("score all"), |bench| {
            bench.iter(|| decide::score(&view, &policy, &all));
        });
        group.bench_function(size("score, best 16"), |bench| {
            let best = ScoreQuestion {
                with_filter: false,
                ..best.clone()
            };
            bench.iter(|| decide::score(&view, &policy, &best));
        });
        group.bench_function(size("filter"), |bench| {
            bench.iter(|| decide::filter(&view, &policy, &all.question));
        });
        group.bench_function(size("filter and score, best 16"), |bench| {
            bench.iter(|| decide::score(&view, &policy, &best));
        });
    }
    group.finish();
}

criterion_group!(benches, one_class);
criterion_main!(benches);
