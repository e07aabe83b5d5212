//! Nodes with ten running tasks each, and one changed node after the other published as the writer does it.
#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use pumice::engine::model::{
    Amounts, NodeRecord, ResourceId, ResourceTable, Slot, Table, TaskFields, TaskRecord, TaskStatus, View,
};
use pumice::engine::{Derivations, Revision, World};

/// Tasks of a node.
pub(crate) const TASKS_PER_NODE: u32 = 10;

fn node(number: u32, cpu: i64, gpu: ResourceId) -> NodeRecord {
    let amounts = [
        (ResourceId::CPU, cpu),
        (ResourceId::MEMORY, 256 << 30),
        (ResourceId::PODS, 110),
        (gpu, 8_000),
    ];
    NodeRecord {
        name: format!("node-{number:06}").into(),
        allocatable: amounts.into_iter().collect(),
        ..NodeRecord::default()
    }
}

fn task(number: u32, nodes: u32, gpu: ResourceId) -> TaskRecord {
    let requests = [
        (ResourceId::CPU, 500),
        (ResourceId::MEMORY, 1 << 30),
        (ResourceId::PODS, 1),
        (gpu, 1_000),
    ];
    TaskRecord::from(TaskFields {
        name: format!("team/task-{number:07}").into(),
        job: format!("team/job-{:06}", number / 8).into(),
        node: format!("node-{:06}", number % nodes).into(),
        status: TaskStatus::Running,
        requests: requests.into_iter().collect::<Amounts>(),
        ..TaskFields::default()
    })
}

/// So many nodes, with so many tasks each.
fn load(nodes: u32, tasks_per_node: u32) -> (View, ResourceId) {
    let mut index = Table::<Slot>::default();
    for number in 0..nodes {
        index.insert(node(number, 0, ResourceId::CPU).name, number);
    }
    let mut resources = ResourceTable::default();
    let gpu = resources.intern("nvidia.com/gpu", 64).expect("room for a name");
    let mut view = View::new(Arc::new(index), 1);
    view.set_resources(Arc::new(resources));
    let source: Arc<str> = "bench".into();
    for number in 0..nodes {
        assert!(view.put_node(Arc::new(node(number, 64_000, gpu)), &source));
    }
    for number in 0..nodes * tasks_per_node {
        view.put_task(task(number, nodes, gpu), &source);
    }
    view.refresh_ranks();
    (view, gpu)
}

/// A published World, and the one that is made into the next.
pub(crate) struct Published {
    newest: Arc<World>,
    next: World,
    changed: [Arc<NodeRecord>; 2],
    source: Arc<str>,
}

impl Published {
    /// So many nodes, with so many tasks each.
    pub(crate) fn new(nodes: u32, tasks_per_node: u32) -> Self {
        let (view, gpu) = load(nodes, tasks_per_node);
        let next = World {
            revision: Revision::default(),
            view,
            policies: Arc::new(BTreeMap::new()),
            positions: Arc::default(),
            derived: Derivations::default(),
        };
        Self {
            newest: Arc::new(next.clone()),
            next,
            changed: [60_000, 62_000].map(|cpu| Arc::new(node(nodes / 2, cpu, gpu))),
            source: "bench".into(),
        }
    }

    /// Publishes a World with one changed node, and lets go of the one before.
    pub(crate) fn change_one(&mut self) {
        self.changed.reverse();
        let [record, _] = &self.changed;
        assert!(self.next.view.put_node(Arc::clone(record), &self.source));
        self.next.view.refresh_ranks();
        self.next.revision.number += 1;
        let mut world = self.next.clone();
        world.derived.build_on(&self.newest);
        drop(black_box(std::mem::replace(&mut self.newest, Arc::new(world))));
    }
}
