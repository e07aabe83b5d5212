//! What a gang costs in the engine, on one thread: 1,000 equal tasks on 10,000 nodes, without and with a check of the queue, as
//! previews and in a session that keeps what it places.
#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

mod ground {
    pub(crate) mod gang;
}

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use ground::gang;
use pumice::engine::cycle::Cycle;
use pumice::engine::decide;

const NODES: u32 = 10_000;

fn place(criterion: &mut Criterion) {
    let mut view = gang::cluster(NODES);
    gang::store(&mut view);
    let [asked, by_name] = [false, true].map(|stored| gang::question(&view, stored));
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
        let derived = policy.derive(&view);
        let placing = decide::place(&view, &policy, &derived, &asked).expect("an answer");
        assert!(placing.placed, "{:?}", placing.blockers);
        group.bench_function(format!("preview, {name}"), |bench| {
            bench.iter(|| decide::place(&view, &policy, &derived, &asked));
        });
        let cycle = Cycle::new(view.clone(), policy.compatibility(), derived);
        group.bench_function(format!("session, {name}"), |bench| {
            bench.iter(|| {
                let mut cycle = cycle.clone();
                decide::place_in(&mut cycle, &policy, &by_name, &|| false)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, place);
criterion_main!(benches);
