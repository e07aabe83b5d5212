//! What admission costs: a job in the engine, and jobs confirmed durably in groups, however many are admitted already.
#![expect(clippy::unwrap_used, reason = "a bench that cannot be set up has nothing to measure")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pumice::engine::decide::JobJudge;
use pumice::engine::derived::Movement;
use pumice::engine::model::{Amounts, JobPhase, JobRecord, QueueRecord, Reservation, ResourceId, Slot, Table, View};
use pumice::engine::policy::{CompileOptions, Policy, compile};
use pumice::state::{Batch, BatchKind, Confirm, ConfirmItem, Origin, Put, Reload, State, StateOptions, SystemClock};
use pumice::store::DiskStore;

const JOBS: usize = 10_000;
const QUEUES: usize = 100;
const POLICY: &str = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: capacity-card\n";

fn amounts(cores: i64) -> Amounts {
    Amounts::from_iter([(ResourceId::CPU, cores * 1_000), (ResourceId::MEMORY, cores << 30)])
}

fn queue(number: usize) -> QueueRecord {
    let quota = [(
        Arc::from("volcano.sh/card.quota"),
        Arc::from(r#"{"A100": 1000000, "H100": 1000000}"#),
    )];
    QueueRecord {
        name: format!("q{number:03}").into(),
        capability: Some(amounts(1_000_000)),
        annotations: quota.into_iter().collect(),
        ..QueueRecord::default()
    }
}

fn job(prefix: &str, number: usize) -> JobRecord {
    let request = [(Arc::from("volcano.sh/card.request"), Arc::from(r#"{"A100": 8}"#))];
    JobRecord {
        name: format!("{prefix}/j{number:06}").into(),
        queue: format!("q{:03}", number % QUEUES).into(),
        min_member: 8,
        phase: JobPhase::Pending,
        min_resources: Some(amounts(64)),
        annotations: request.into_iter().collect(),
        ..JobRecord::default()
    }
}

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

/// A whole state over a store on disk.
struct House {
    state: Arc<State>,
    runtime: tokio::runtime::Runtime,
    directory: std::path::PathBuf,
    next: std::cell::Cell<usize>,
}

impl House {
    fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("pumice-bench-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&directory));
        let store = DiskStore::open(&directory).unwrap();
        let clock = Arc::new(SystemClock::default());
        let state = State::start_on(StateOptions::default(), clock, Box::new(store)).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let reload = Reload {
            name: "default".into(),
            document: POLICY.into(),
            expected_version: None,
            dry_run: false,
            strict: false,
            compatibility: pumice::engine::policy::Compatibility::Corrected,
            origin: Origin::BuiltIn,
        };
        runtime.block_on(state.reload_policy(reload)).unwrap();
        let put = (0..QUEUES).map(|number| (Put::Queue(queue(number)), String::new()));
        let batch = Batch {
            source: "bench".into(),
            source_epoch: 1,
            sequence: 1,
            kind: BatchKind::SnapshotLast,
            part: 1,
            put: put.collect(),
            ..Batch::default()
        };
        runtime.block_on(state.apply(batch)).unwrap();
        Self {
            state,
            runtime,
            directory,
            next: std::cell::Cell::new(0),
        }
    }

    /// Confirms so many new jobs, so many in a call, with so many calls under way.
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
                    let confirm = Confirm {
                        policy: "default".into(),
                        profile: Arc::default(),
                        plugins: Vec::new(),
                        lease: None,
                        read: Box::new(move |_| items),
                    };
                    let done = state.confirm(confirm).await.unwrap();
                    assert!(done.items.iter().flatten().all(|item| item.admission.permitted));
                });
            }
            while let Some(done) = all.join_next().await {
                done.unwrap();
            }
        });
        started.elapsed()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.runtime.block_on(self.state.stop());
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

fn durable(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("confirm on disk");
    group.sample_size(10);
    let house = House::new();
    for admitted in [0, 100_000] {
        if house.next.get() < admitted {
            house.confirm(admitted - house.next.get(), 1_000, 4);
        }
        group.throughput(Throughput::Elements(1_000));
        for (each, at_once) in [(1_000, 1), (1, 64)] {
            let name = format!("1,000 jobs, {each} in a call, {at_once} calls under way, {admitted} admitted");
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|times| (0..times).map(|_| house.confirm(1_000, each, at_once)).sum());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, engine, durable);
criterion_main!(benches);
