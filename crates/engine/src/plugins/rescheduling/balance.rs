//! Tasks that leave the nodes of a high load, as long as those of a low load have room.

use std::collections::BTreeMap;

use super::arguments::{LoadPercents, ReschedulingArguments};
use crate::model::{ClusterState, NodeRecord, ResourceId, TaskRecord};
use crate::plugin::DecisionTime;
use crate::policy::Compatibility;

/// Candidates that may leave their nodes.
pub(super) struct LoadBalance<'a> {
    pub(super) arguments: &'a ReschedulingArguments,
    pub(super) compatibility: Compatibility,
    pub(super) cluster_state: &'a ClusterState,
    pub(super) candidates: &'a [&'a TaskRecord],
    pub(super) now: DecisionTime,
}

/// Load of one resource of a node.
struct ResourceLoad {
    percent: f64,
    /// Amount of which `percent` are in use.
    capacity: i64,
    allocatable: i64,
    /// Amount of one unit in which the reference divides.
    unit: f64,
}

impl ResourceLoad {
    /// Part of the allocatable amount, cut to a whole number.
    #[expect(clippy::cast_possible_truncation, reason = "the reference cuts it")]
    fn part(&self, percent: f64) -> i64 {
        (percent * self.allocatable as f64 * 0.01) as i64
    }

    /// Takes a request from the load.
    fn relieve(&mut self, request: i64) {
        let [request, capacity] = [request, self.capacity].map(|amount| amount as f64 * self.unit);
        self.percent -= request * 100.0 / capacity;
    }
}

/// Node with its loads of CPUs and memory.
struct MeasuredNode<'a> {
    record: &'a NodeRecord,
    loads: [ResourceLoad; 2],
}

impl MeasuredNode<'_> {
    fn is_low(&self, thresholds: LoadPercents) -> bool {
        !self.record.unschedulable && !self.reaches(thresholds)
    }

    fn is_above(&self, thresholds: LoadPercents) -> bool {
        let mut loads = self.loads.iter().zip(thresholds);
        loads.any(|(load, threshold)| load.percent > threshold)
    }

    /// True if tasks still leave a node with these targets.
    fn reaches(&self, thresholds: LoadPercents) -> bool {
        let mut loads = self.loads.iter().zip(thresholds);
        loads.any(|(load, threshold)| load.percent >= threshold)
    }

    fn total(&self) -> f64 {
        self.loads.iter().map(|load| load.percent).sum()
    }
}

impl<'a> LoadBalance<'a> {
    /// Positions of the candidates that leave their nodes, in the order in which they go.
    pub(super) fn victims(&self) -> Vec<usize> {
        let nodes = self.cluster_state.nodes().map(|(_, entry)| &*entry.record);
        let ready = nodes.filter(|node| node.is_ready(self.compatibility));
        let thresholds = &self.arguments.thresholds;
        let (low, rest): (Vec<_>, Vec<_>) = ready
            .filter_map(|node| self.measured(node))
            .partition(|node| node.is_low(thresholds.low));
        let mut high: Vec<MeasuredNode<'a>> = rest
            .into_iter()
            .filter(|node| node.is_above(thresholds.target))
            .collect();
        if low.is_empty() || high.is_empty() {
            return Vec::new();
        }
        high.sort_by(|left, right| {
            let by_load = right.total().total_cmp(&left.total());
            by_load.then_with(|| left.record.name.cmp(&right.record.name))
        });
        let mut room = [0_i64; 2];
        for node in &low {
            for ((load, target), room) in node.loads.iter().zip(thresholds.target).zip(&mut room) {
                *room = room
                    .saturating_add(load.part(target))
                    .saturating_sub(load.part(load.percent));
            }
        }
        let mut tasks = self.tasks_on(&high);
        let positions = self.positions();
        let mut victims = Vec::new();
        for node in &mut high {
            let mut leaving = tasks.remove(&*node.record.name).unwrap_or_default();
            leaving.sort_by_key(|task| (!task.is_without_priority(), task.priority, task.qos_class(), &task.name));
            for task in leaving {
                if !node.reaches(thresholds.target) || room.iter().any(|room| self.is_used_up(*room)) {
                    break;
                }
                let Some(position) = positions.get(self.identity(task)) else {
                    continue;
                };
                let victim = self.candidates.get(*position).copied().unwrap_or(task);
                let requests = [ResourceId::CPU, ResourceId::MEMORY].map(|id| victim.requests.get(id).unwrap_or(0));
                let has_room = requests.iter().zip(room).all(|(request, room)| *request <= room);
                if !has_room && !self.compatibility.is_upstream() {
                    continue;
                }
                for ((request, room), load) in requests.into_iter().zip(&mut room).zip(&mut node.loads) {
                    *room = room.saturating_sub(request);
                    load.relieve(request);
                }
                victims.push(*position);
            }
        }
        victims
    }

    /// Node with its loads; `None`: it is not measured. The reference takes it for idle, and a measurement of any age as it is.
    fn measured(&self, record: &'a NodeRecord) -> Option<MeasuredNode<'a>> {
        let period = self.arguments.period.as_deref();
        let load = record.load.as_deref();
        let load = load.filter(|load| period.is_none_or(|period| load.is_of(period)));
        if !self.compatibility.is_upstream() && !load?.is_recent(self.now.seconds) {
            return None;
        }
        let resource = |id, percent: Option<f64>, capacity: Option<i64>, unit| {
            let allocatable = record.allocatable.get(id).unwrap_or(0);
            ResourceLoad {
                percent: percent.unwrap_or(0.0),
                capacity: capacity.unwrap_or(allocatable),
                allocatable,
                unit,
            }
        };
        let cpu_capacity = load.and_then(|load| load.cpu_capacity);
        let memory_capacity = load.and_then(|load| load.memory_capacity);
        let loads = [
            resource(ResourceId::CPU, load.map(|load| load.cpu_percent), cpu_capacity, 0.001),
            resource(
                ResourceId::MEMORY,
                load.map(|load| load.memory_percent),
                memory_capacity,
                1.0,
            ),
        ];
        Some(MeasuredNode { record, loads })
    }

    /// Tasks that are on nodes, by name of the node.
    fn tasks_on(&self, nodes: &[MeasuredNode<'a>]) -> BTreeMap<&'a str, Vec<&'a TaskRecord>> {
        let names = nodes.iter().map(|node| (&*node.record.name, Vec::new()));
        let mut tasks: BTreeMap<&'a str, Vec<&'a TaskRecord>> = names.collect();
        for (_, stored) in self.cluster_state.tasks().iter() {
            let task = &stored.record;
            if task.status.is_on_node()
                && let Some(on_node) = tasks.get_mut(&*task.node)
            {
                on_node.push(task);
            }
        }
        tasks
    }

    /// First positions of the candidates by their identities.
    fn positions(&self) -> BTreeMap<&'a str, usize> {
        let mut positions = BTreeMap::new();
        for (position, task) in self.candidates.iter().enumerate() {
            positions.entry(self.identity(task)).or_insert(position);
        }
        positions
    }

    /// Name by which a task on a node is found among the candidates. The reference leaves the namespace out.
    fn identity<'t>(&self, task: &'t TaskRecord) -> &'t str {
        let name = task.name.split_once('/').map(|(_, name)| name);
        name.filter(|_| self.compatibility.is_upstream()).unwrap_or(&task.name)
    }

    /// True if the nodes of a low load have no room. The reference goes on below 0.
    fn is_used_up(&self, room: i64) -> bool {
        room == 0 || room < 0 && !self.compatibility.is_upstream()
    }
}
