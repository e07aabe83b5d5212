//! Cost of a gang in the engine, on one thread: 1,000 equal tasks on 10,000 nodes, without and with a check of the
//! queue, as previews and in a session that counts its placements.
#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

mod fixtures {
    pub(crate) mod gang;
}

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use fixtures::gang;
use pumice_engine::cycle::SchedulingCycle;
use pumice_engine::decide::{self, Parallelism};

const NODES: u32 = 10_000;

fn place(criterion: &mut Criterion) {
    let mut cluster_state = gang::cluster(NODES);
    gang::store(&mut cluster_state);
    let [asked, by_name] = [false, true].map(|stored| gang::place_query(&cluster_state, stored));
    let mut group = criterion.benchmark_group("place_1000x10000");
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    for (name, kind, queue) in [
        ("spread", "LeastAllocated", false),
        ("pack", "MostAllocated", false),
        ("spread, queue", "LeastAllocated", true),
        ("pack, queue", "MostAllocated", true),
    ] {
        let policy = gang::policy(kind, queue);
        let derived = policy.compute_plugin_states(&cluster_state);
        let placing = decide::place(&cluster_state, &policy, &derived, &asked).expect("an answer");
        assert!(placing.placed, "{:?}", placing.blockers);
        group.bench_function(format!("preview, {name}"), |bench| {
            bench.iter(|| decide::place(&cluster_state, &policy, &derived, &asked));
        });
        let cycle = SchedulingCycle::new(cluster_state.clone(), policy.node_change_rules(), derived);
        group.bench_function(format!("session, {name}"), |bench| {
            bench.iter(|| {
                let mut cycle = cycle.clone();
                decide::place_in_cycle(&mut cycle, &policy, &by_name, Parallelism::SEQUENTIAL)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, place);
criterion_main!(benches);
