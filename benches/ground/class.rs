//! Nodes of five resources, a policy and a question about one task class.
#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

use std::sync::Arc;

use pumice::engine::decide::{Detail, Question, QuestionTask, ResourceFit, ScoreQuestion};
use pumice::engine::model::{
    Amounts, NodeRecord, ResourceId, ResourceTable, Slot, Table, TaskFields, TaskRecord, View,
};
use pumice::engine::policy::{CompileOptions, Policy, compile};

/// Both parts of the score, and the filter: cpu spreads, memory too, devices are packed and kept free.
pub(crate) const POLICY: &str = "
actions: allocate
tiers:
- plugins:
  - name: resource-strategy-fit
    arguments:
      resourceStrategyFitWeight: 10
      resources:
        cpu: {type: LeastAllocated, weight: 1}
        memory: {type: LeastAllocated, weight: 1}
        nvidia.com/gpu*: {type: MostAllocated, weight: 2}
        pods: {type: MostAllocated, weight: 1}
      sra: {enable: true, resources: 'nvidia.com/gpu, nvidia.com/nic', weight: 10}
      proportional:
        enable: true
        resources: nvidia.com/nic
        resourceProportion: {nvidia.com/nic.cpu: 2, nvidia.com/nic.memory: 2}
";

/// The policy, compiled.
pub(crate) fn policy() -> Arc<Policy> {
    compile(POLICY, &CompileOptions::default())
        .expect("a good policy")
        .policy
}

const GPU: &str = "nvidia.com/gpu";
/// Packed, kept free and counted in proportion.
pub(crate) const NIC: &str = "nvidia.com/nic";
const GIB: i64 = 1 << 30;

/// So many nodes of five resources, each a little different.
pub(crate) fn cluster(nodes: u32) -> View {
    let mut resources = ResourceTable::default();
    let [gpu, nic] = [GPU, NIC].map(|name| resources.intern(name, 64).expect("room for two names"));
    let (mut index, mut records) = (Table::<Slot>::default(), Vec::new());
    for slot in 0..nodes {
        let name: Arc<str> = format!("node-{slot:06}").into();
        index.insert(Arc::clone(&name), slot);
        // Every number differs a little from its neighbours.
        let some = i64::from(slot.wrapping_mul(2_654_435_761) >> 20);
        let amounts = |part: i64| {
            Amounts::from_iter([
                (ResourceId::CPU, 64_000 * part / 4096),
                (ResourceId::MEMORY, 256 * GIB / 4096 * part),
                (ResourceId::PODS, 110 * part / 4096),
                (gpu, 8_000 * part / 4096),
                (nic, 2_000 * part / 4096),
            ])
        };
        records.push(NodeRecord {
            name,
            allocatable: amounts(4096),
            unattributed_used: Some(amounts(some)),
            ..NodeRecord::default()
        });
    }
    let mut view = View::new(Arc::new(index), 1);
    view.set_resources(Arc::new(resources));
    for record in records {
        view.put_node(Arc::new(record), &Arc::from("bench"));
    }
    view.refresh_ranks();
    view
}

/// One task of four resources.
pub(crate) fn question(view: &View) -> ScoreQuestion {
    let gpu = view.resources().get(GPU).expect("known");
    let requests = Amounts::from_iter([
        (ResourceId::CPU, 4_000),
        (ResourceId::MEMORY, 16 * GIB),
        (ResourceId::PODS, 1),
        (gpu, 1_000),
    ]);
    let task = Arc::new(TaskRecord::from(TaskFields {
        requests,
        ..TaskFields::default()
    }));
    ScoreQuestion {
        question: Question {
            tasks: vec![Ok(QuestionTask {
                task,
                warnings: Vec::new(),
            })],
            resources: Arc::clone(view.resources()),
            candidates: None,
            plugins: Vec::new(),
            resource_fit: ResourceFit::FutureIdle,
            samples: 3,
            detail: Detail::Counts,
        },
        with_filter: false,
        limit: None,
        with_parts: false,
    }
}
