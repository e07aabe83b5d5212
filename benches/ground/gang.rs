//! A gang of equal tasks, the nodes for them, and a policy of three scores with a check of the queue.
#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

use std::sync::Arc;

use pumice::engine::decide::{PlaceGroup, PlaceQuestion};
use pumice::engine::model::{
    Amounts, JobRecord, NodeRecord, QueueRecord, ResourceId, ResourceTable, Slot, Table, TaskFields, TaskRecord, View,
};
use pumice::engine::policy::{CompileOptions, Policy, compile};

/// Tasks of the gang.
pub(crate) const TASKS: u32 = 1_000;
/// Its job.
pub(crate) const JOB: &str = "team/job";
/// The job's queue.
pub(crate) const QUEUE: &str = "team";
/// A resource that most nodes have some of left.
pub(crate) const GPU: &str = "nvidia.com/gpu";
const GIB: i64 = 1 << 30;

/// Three scores and their filters; `queue`: and a check of the queue for each task. `kind`: `LeastAllocated` spreads,
/// `MostAllocated` packs.
pub(crate) fn document(kind: &str, queue: bool) -> String {
    let queue = if queue { "\n  - name: capacity-card" } else { "" };
    format!(
        "actions: allocate
tiers:
- plugins:
  - name: resource-strategy-fit
    arguments:
      resourceStrategyFitWeight: 10
      resources:
        cpu: {{type: {kind}, weight: 1}}
        memory: {{type: {kind}, weight: 1}}
        nvidia.com/gpu*: {{type: MostAllocated, weight: 2}}
        pods: {{type: {kind}, weight: 1}}
      sra: {{enable: true, resources: 'nvidia.com/nic', weight: 10}}
      proportional:
        enable: true
        resources: nvidia.com/nic
        resourceProportion: {{nvidia.com/nic.cpu: 2, nvidia.com/nic.memory: 2}}{queue}
"
    )
}

/// The policy, compiled.
pub(crate) fn policy(kind: &str, queue: bool) -> Arc<Policy> {
    compile(&document(kind, queue), &CompileOptions::default())
        .expect("a good policy")
        .policy
}

/// What one node has, and what of it is used: cpu, memory, pods and gpus, in milli-cores, bytes, pods and thousandths.
pub(crate) fn amounts(slot: u32) -> [(i64, i64); 4] {
    // Every number differs a little from its neighbours.
    let used = |of: i64| i64::from(slot.wrapping_mul(2_654_435_761) >> 20) * of / 8192;
    [64_000, 256 * GIB, 110, 8].map(|all| (all, used(all)))
}

/// So many nodes, the queue and the job, whose tasks wait.
pub(crate) fn cluster(nodes: u32) -> View {
    let mut resources = ResourceTable::default();
    let gpu = resources.intern(GPU, 64).expect("room for a name");
    let mut index = Table::<Slot>::default();
    for slot in 0..nodes {
        index.insert(format!("node-{slot:06}").into(), slot);
    }
    let source = Arc::from("bench");
    let mut view = View::new(Arc::new(index), 1);
    view.set_resources(Arc::new(resources));
    for slot in 0..nodes {
        let [cpu, memory, pods, gpus] = amounts(slot);
        let list = |of: fn((i64, i64)) -> i64| {
            Amounts::from_iter([
                (ResourceId::CPU, of(cpu)),
                (ResourceId::MEMORY, of(memory)),
                (ResourceId::PODS, of(pods)),
                (gpu, of(gpus) * 1_000),
            ])
        };
        let record = NodeRecord {
            name: format!("node-{slot:06}").into(),
            allocatable: list(|(all, _)| all),
            unattributed_used: Some(list(|(_, used)| used)),
            ..NodeRecord::default()
        };
        assert!(view.put_node(Arc::new(record), &source));
    }
    view.refresh_ranks();
    let queue = QueueRecord {
        name: QUEUE.into(),
        capability: Some(Amounts::from_iter([
            (ResourceId::CPU, 1_000_000_000),
            (ResourceId::MEMORY, i64::MAX / 2),
        ])),
        ..QueueRecord::default()
    };
    view.put_queue(queue, &source);
    let job = JobRecord {
        name: JOB.into(),
        queue: QUEUE.into(),
        ..JobRecord::default()
    };
    view.put_job(job, &source);
    view
}

/// A task of the gang.
fn task(name: &str) -> TaskRecord {
    TaskRecord::from(TaskFields {
        name: name.into(),
        job: JOB.into(),
        requests: Amounts::from_iter([
            (ResourceId::CPU, 4_000),
            (ResourceId::MEMORY, 16 * GIB),
            (ResourceId::PODS, 1),
        ]),
        ..TaskFields::default()
    })
}

/// Names of the gang's tasks.
pub(crate) fn names() -> impl Iterator<Item = String> {
    (0..TASKS).map(|number| format!("{JOB}-{number:04}"))
}

/// Puts the gang's tasks, which wait.
pub(crate) fn store(view: &mut View) {
    let (source, one) = (Arc::from("bench"), task(""));
    for name in names() {
        let name = name.into();
        view.put_task(TaskRecord { name, ..one.clone() }, &source);
    }
}

/// The gang, to be placed as a preview; `stored`: as the tasks that were put.
pub(crate) fn question(view: &View, stored: bool) -> PlaceQuestion {
    let names = names().map(Arc::from);
    let group = PlaceGroup {
        task: Arc::new(task("")),
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
