//! Jobs with cards in a hundred queues, and the nodes that have the cards.
#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

use std::sync::Arc;

use pumice::engine::model::{
    Amounts, JobPhase, JobRecord, NodeRecord, QueueRecord, ResourceId, ResourceTable, Slot, Table, Texts, View,
};
use pumice::engine::policy::{CompileOptions, Policy, compile};

const QUEUES: usize = 100;
/// Jobs that ask.
pub(crate) const ASKED: u32 = 10_000;
const NODES: u32 = 10_000;

const POLICY: &str = "
actions: allocate
tiers:
- plugins:
  - name: capacity-card
";

/// The policy, compiled.
pub(crate) fn policy() -> Arc<Policy> {
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

/// A node with so many cards of one kind.
pub(crate) fn node(slot: u32, cards: i64, gpu: ResourceId) -> NodeRecord {
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
pub(crate) fn cluster(admitted: usize) -> (View, Vec<Arc<JobRecord>>, ResourceId) {
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
    let jobs: Vec<JobRecord> = (0..ASKED as usize)
        .map(|number| job(format!("new/job-{number:06}"), number, JobPhase::Pending))
        .collect();
    for job in &jobs {
        view.put_job(job.clone(), &source);
    }
    view.refresh_ranks();
    (view, jobs.into_iter().map(Arc::new).collect(), gpu)
}
