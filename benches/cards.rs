//! What admission costs in the engine: jobs with cards in a hundred queues, and what a changed record costs the accounts.
//!
//! Throughput of `admit` counts jobs, so that the time of one job can be read off: 1 Melem/s is 1 µs per job.
#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pumice::engine::decide::{self, AdmitQuestion, Subject};
use pumice::engine::model::{
    Amounts, JobPhase, JobRecord, NodeRecord, QueueRecord, ResourceId, ResourceTable, Slot, Table, Texts, View,
};
use pumice::engine::policy::{CompileOptions, Policy, compile};

const QUEUES: usize = 100;
const ASKED: usize = 10_000;
const NODES: u32 = 10_000;

const POLICY: &str = "
actions: allocate
tiers:
- plugins:
  - name: capacity-card
";

fn policy() -> Arc<Policy> {
    compile(POLICY, &CompileOptions::default())
        .expect("a good policy")
        .policy
}

fn texts(entries: &[(&str, String)]) -> Texts {
    entries
        .iter()
        .map(|(name, text)| (Arc::from(*name), Arc::from(text.as_str())))
        .collect()
}

fn node(slot: u32, cards: i64, gpu: ResourceId) -> NodeRecord {
    let product = format!("GPU-{}", slot % 8);
    NodeRecord {
        name: format!("node-{slot:06}").into(),
        labels: texts(&[("nvidia.com/gpu.product", product)]),
        allocatable: Amounts::from_iter([
            (ResourceId::CPU, 64_000),
            (ResourceId::MEMORY, 1 << 38),
            (gpu, 1000 * cards),
        ]),
        ..NodeRecord::default()
    }
}

/// Every tenth job may use either of two cards.
fn job(name: String, number: usize, phase: JobPhase) -> JobRecord {
    let (a, b) = (number % 8, (number + 1) % 8);
    let request = if number.is_multiple_of(10) {
        format!("{{\"GPU-{a}|GPU-{b}\": 1}}")
    } else {
        format!("{{\"GPU-{a}\": 1}}")
    };
    JobRecord {
        name: name.into(),
        queue: format!("queue-{:03}", number % QUEUES).into(),
        phase,
        min_member: 1,
        min_resources: Some(Amounts::from_iter([(ResourceId::CPU, 1000)])),
        annotations: texts(&[("volcano.sh/card.request", request)]),
        ..JobRecord::default()
    }
}

/// A cluster with so many jobs that are admitted already, and the jobs that ask.
fn cluster(admitted: usize) -> (View, Vec<Arc<JobRecord>>, ResourceId) {
    let mut resources = ResourceTable::default();
    let gpu = resources.intern("nvidia.com/gpu", 8).expect("room for a name");
    let mut index: Table<Slot> = Table::default();
    for slot in 0..NODES {
        index.insert(node(slot, 8, gpu).name, slot);
    }
    let (mut view, source) = (View::new(Arc::new(index), 1), Arc::from("bench"));
    view.set_resources(Arc::new(resources));
    for slot in 0..NODES {
        view.put_node(Arc::new(node(slot, 8, gpu)), &source);
    }
    let quota: Vec<String> = (0..8).map(|card| format!("\"GPU-{card}\": 1000000")).collect();
    for queue in 0..QUEUES {
        let queue = QueueRecord {
            name: format!("queue-{queue:03}").into(),
            annotations: texts(&[("volcano.sh/card.quota", format!("{{{}}}", quota.join(", ")))]),
            capability: Some(Amounts::from_iter([(ResourceId::CPU, 1 << 50)])),
            ..QueueRecord::default()
        };
        view.put_queue(queue, &source);
    }
    for number in 0..admitted {
        view.put_job(job(format!("old/job-{number:06}"), number, JobPhase::Inqueue), &source);
    }
    let jobs: Vec<JobRecord> = (0..ASKED)
        .map(|number| job(format!("new/job-{number:06}"), number, JobPhase::Pending))
        .collect();
    for job in &jobs {
        view.put_job(job.clone(), &source);
    }
    view.refresh_ranks();
    (view, jobs.into_iter().map(Arc::new).collect(), gpu)
}

fn admission(criterion: &mut Criterion) {
    let policy = policy();
    let mut group = criterion.benchmark_group("admit");
    group.warm_up_time(Duration::from_millis(500));
    group.measurement_time(Duration::from_secs(3));
    for admitted in [0, 100_000] {
        let (view, jobs, _) = cluster(admitted);
        let derived = policy.derive(&view);
        let question = AdmitQuestion {
            items: jobs.iter().map(|job| Ok(Subject::Job(Arc::clone(job)))).collect(),
            plugins: Vec::new(),
        };
        let answers = decide::admit(&view, &policy, &mut derived.clone(), &question).expect("an answer");
        let permits = answers.iter().flatten().filter(|answer| answer.permitted).count();
        assert_eq!(permits, ASKED);
        group.throughput(Throughput::Elements(ASKED as u64));
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
