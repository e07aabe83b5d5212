//! What a gang costs: 1,000 equal tasks on 10,000 nodes, in the engine on one thread, and through gRPC.
#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use pb::decision_service_client::DecisionServiceClient;
use pb::policy_service_client::PolicyServiceClient;
use pb::state_service_client::StateServiceClient;
use pumice::app;
use pumice::config::Config;
use pumice::engine::cycle::Cycle;
use pumice::engine::decide::{self, PlaceGroup, PlaceQuestion};
use pumice::engine::model::{
    Amounts, JobRecord, NodeRecord, QueueRecord, ResourceId, ResourceTable, Slot, Table, TaskFields, TaskRecord, View,
};
use pumice::engine::policy::{CompileOptions, Policy, compile};
use pumice::server::pb;
use tokio::runtime::Runtime;
use tonic::transport::Channel;

const NODES: u32 = 10_000;
const TASKS: u32 = 1_000;
const GPU: &str = "nvidia.com/gpu";
const GIB: i64 = 1 << 30;

/// Three plugins' worth of scores and filters; `card`: and a check of the queue for each task.
fn document(cpu: &str, card: bool) -> String {
    let card = if card { "\n  - name: capacity-card" } else { "" };
    format!(
        "actions: allocate
tiers:
- plugins:
  - name: resource-strategy-fit
    arguments:
      resourceStrategyFitWeight: 10
      resources:
        cpu: {{type: {cpu}, weight: 1}}
        memory: {{type: {cpu}, weight: 1}}
        nvidia.com/gpu*: {{type: MostAllocated, weight: 2}}
        pods: {{type: {cpu}, weight: 1}}
      sra: {{enable: true, resources: 'nvidia.com/nic', weight: 10}}
      proportional:
        enable: true
        resources: nvidia.com/nic
        resourceProportion: {{nvidia.com/nic.cpu: 2, nvidia.com/nic.memory: 2}}{card}
"
    )
}

fn policy(cpu: &str, card: bool) -> Arc<Policy> {
    compile(&document(cpu, card), &CompileOptions::default())
        .expect("a good policy")
        .policy
}

fn used(slot: u32, of: i64) -> i64 {
    // Every number differs a little from its neighbours.
    i64::from(slot.wrapping_mul(2_654_435_761) >> 20) * of / 8192
}

fn cluster() -> View {
    let mut resources = ResourceTable::default();
    let gpu = resources.intern(GPU, 64).expect("room for a name");
    let (mut index, mut records) = (Table::<Slot>::default(), Vec::new());
    for slot in 0..NODES {
        let name: Arc<str> = format!("node-{slot:06}").into();
        index.insert(Arc::clone(&name), slot);
        let amounts = |part: fn(u32, i64) -> i64| {
            Amounts::from_iter([
                (ResourceId::CPU, part(slot, 64_000)),
                (ResourceId::MEMORY, part(slot, 256 * GIB)),
                (ResourceId::PODS, part(slot, 110)),
                (gpu, part(slot, 8) * 1_000),
            ])
        };
        records.push(NodeRecord {
            name,
            allocatable: amounts(|_, all| all),
            unattributed_used: Some(amounts(used)),
            ..NodeRecord::default()
        });
    }
    let source = Arc::from("bench");
    let mut view = View::new(Arc::new(index), 1);
    view.set_resources(Arc::new(resources));
    for record in records {
        view.put_node(Arc::new(record), &source);
    }
    view.refresh_ranks();
    let queue = QueueRecord {
        name: "team".into(),
        capability: Some(Amounts::from_iter([
            (ResourceId::CPU, 1_000_000_000),
            (ResourceId::MEMORY, i64::MAX / 2),
        ])),
        ..QueueRecord::default()
    };
    view.put_queue(queue, &source);
    let job = JobRecord {
        name: "team/job".into(),
        queue: "team".into(),
        ..JobRecord::default()
    };
    view.put_job(job, &source);
    for number in 0..TASKS {
        let own = task(&view, format!("team/task-{number:04}"));
        view.put_task(own, &source);
    }
    view
}

/// A task of four resources.
fn task(_: &View, name: String) -> TaskRecord {
    TaskRecord::from(TaskFields {
        name: name.into(),
        job: "team/job".into(),
        requests: Amounts::from_iter([
            (ResourceId::CPU, 4_000),
            (ResourceId::MEMORY, 16 * GIB),
            (ResourceId::PODS, 1),
        ]),
        ..TaskFields::default()
    })
}

fn question(view: &View, stored: bool) -> PlaceQuestion {
    let names = (0..TASKS).map(|number| format!("team/task-{number:04}").into());
    let group = PlaceGroup {
        task: Arc::new(task(view, String::new())),
        count: TASKS as usize,
        names: if stored { names.collect() } else { Vec::new() },
        warnings: Vec::new(),
    };
    PlaceQuestion {
        job: None,
        groups: vec![Ok(group)],
        resources: Arc::clone(view.resources()),
        min_available: None,
        candidates: None,
        exclusions: Vec::new(),
        idle_only: false,
        samples: 3,
        pairs: u64::MAX,
    }
}

fn engine(criterion: &mut Criterion) {
    let view = cluster();
    let mut group = criterion.benchmark_group("place_1000x10000");
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    for (name, cpu, card) in [
        ("spread", "LeastAllocated", false),
        ("pack", "MostAllocated", false),
        ("spread, queue", "LeastAllocated", true),
        ("pack, queue", "MostAllocated", true),
    ] {
        let policy = policy(cpu, card);
        let derived = policy.derive(&view);
        let asked = question(&view, false);
        let placing = decide::place(&view, &policy, &derived, &asked).expect("an answer");
        assert!(placing.placed, "{:?}", placing.blockers);
        group.bench_function(format!("preview, {name}"), |bench| {
            bench.iter(|| decide::place(&view, &policy, &derived, &asked));
        });
        let asked = question(&view, true);
        let cycle = Cycle::new(view.clone(), policy.compatibility(), derived);
        group.bench_function(format!("session, {name}"), |bench| {
            bench.iter(|| {
                let mut cycle = cycle.clone();
                decide::place_in(&mut cycle, &policy, &asked, &|| false)
            });
        });
    }
    group.finish();
}

fn amounts(items: &[(&str, String)]) -> pb::ResourceList {
    let items = items.iter().map(|(name, amount)| ((*name).to_owned(), amount.clone()));
    pb::ResourceList { items: items.collect() }
}

/// The same cluster as it is sent.
fn sent() -> pb::Cluster {
    let node = |slot: u32| {
        let list = |part: fn(u32, i64) -> i64| {
            amounts(&[
                ("cpu", format!("{}m", part(slot, 64_000))),
                ("memory", part(slot, 256 * GIB).to_string()),
                ("pods", part(slot, 110).to_string()),
                (GPU, part(slot, 8).to_string()),
            ])
        };
        pb::Node {
            name: format!("node-{slot:06}"),
            allocatable: Some(list(|_, all| all)),
            unattributed_used: Some(list(used)),
            ..pb::Node::default()
        }
    };
    let queue = pb::Queue {
        name: "team".to_owned(),
        capability: Some(amounts(&[("cpu", "1M".to_owned()), ("memory", "1Pi".to_owned())])),
        ..pb::Queue::default()
    };
    let job = pb::Job {
        name: "team/job".to_owned(),
        queue: "team".to_owned(),
        ..pb::Job::default()
    };
    pb::Cluster {
        nodes: (0..NODES).map(node).collect(),
        queues: vec![queue],
        jobs: vec![job],
        ..pb::Cluster::default()
    }
}

async fn start() -> Channel {
    let bound = app::bind(Config::on_free_ports()).await.expect("the server starts");
    let address = format!("http://{}", bound.grpc_address());
    tokio::spawn(bound.run(std::future::pending()));
    let endpoint = Channel::from_shared(address).expect("an address");
    let channel = endpoint.connect().await.expect("a connection");
    let batch = pb::Batch {
        source: "bench".to_owned(),
        source_epoch: 1,
        sequence: 1,
        kind: pb::BatchKind::SnapshotLast.into(),
        snapshot_part: 1,
        put: Some(sent()),
        ..pb::Batch::default()
    };
    let applied = StateServiceClient::new(channel.clone())
        .apply(pb::ApplyRequest { batch: Some(batch) })
        .await;
    let outcome = applied.expect("a reply").into_inner().outcome.expect("an outcome");
    assert!(outcome.refused.is_empty(), "everything is taken");
    channel
}

fn grpc(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let channel = runtime.block_on(start());
    let mut policies = PolicyServiceClient::new(channel.clone());
    let mut decisions = DecisionServiceClient::new(channel);
    let mut group = criterion.benchmark_group("grpc_place_1000x10000");
    let empty = pb::FilterRequest::default();
    group.bench_function("empty call", |bencher| {
        bencher.iter(|| runtime.block_on(decisions.filter(empty.clone())).expect("an answer"));
    });
    for (name, cpu, card) in [
        ("spread", "LeastAllocated", false),
        ("spread, queue", "LeastAllocated", true),
        ("pack, queue", "MostAllocated", true),
    ] {
        let reload = pb::ReloadPolicyRequest {
            document: document(cpu, card),
            ..pb::ReloadPolicyRequest::default()
        };
        runtime.block_on(policies.reload_policy(reload)).expect("a good policy");
        let asked = pb::PlaceRequest {
            groups: vec![pb::TaskGroup {
                task: Some(pb::Task {
                    job: "team/job".to_owned(),
                    requests: Some(amounts(&[("cpu", "4".to_owned()), ("memory", "16Gi".to_owned())])),
                    ..pb::Task::default()
                }),
                count: Some(TASKS),
                ..pb::TaskGroup::default()
            }],
            node_encoding: pb::NodeEncoding::Slots.into(),
            ..pb::PlaceRequest::default()
        };
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let reply = runtime.block_on(decisions.place(asked.clone())).expect("an answer");
                assert!(reply.into_inner().answer.expect("an answer").placed);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, engine, grpc);
criterion_main!(benches);
