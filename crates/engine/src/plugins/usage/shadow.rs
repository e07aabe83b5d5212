//! Load of tasks that the last measurement of their node does not include yet, estimated by their requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::arguments::UsageArguments;
use crate::held_bytes::held_bytes;
use crate::model::{
    ClusterState, NodeLoad, NodeRecord, Problem, ResourceAmounts, ResourceId, SortedTable, StateDiff, TaskRecord,
    TaskStatus,
};
use crate::plugin::DecisionTime;
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange, TaskTransition};
use crate::policy::Compatibility;

/// CPU in thousandths of a core, and memory in bytes.
pub(super) type LoadPair = [f64; 2];

/// Amounts of a task by which its load is estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct TaskDemand {
    requests: LoadPair,
    limits: LoadPair,
    /// True if the task requests nothing but a pod.
    requests_nothing: bool,
}

held_bytes! { plain TaskDemand }

impl TaskDemand {
    fn of(task: &TaskRecord) -> Self {
        let pair = |amounts: Option<&ResourceAmounts>| {
            [ResourceId::CPU, ResourceId::MEMORY].map(|id| amounts.and_then(|own| own.get(id)).unwrap_or(0) as f64)
        };
        Self {
            requests: pair(Some(&task.requests)),
            limits: pair(task.limits.as_deref()),
            requests_nothing: task.requests.is_only_pods(),
        }
    }

    /// Estimated load, multiplied by a factor.
    fn load(&self, arguments: &UsageArguments, risk: f64) -> LoadPair {
        if self.requests_nothing {
            return [arguments.unrequested_cpu * risk, arguments.unrequested_memory * risk];
        }
        let one = |request: f64, limit: f64| {
            let request = request.max(0.0);
            let most = limit.max(request);
            let load = (request * arguments.request_ratio + (most - request) * arguments.burst_ratio) * risk;
            load.clamp(0.0, most)
        };
        let ([cpu, memory], [cpu_limit, memory_limit]) = (self.requests, self.limits);
        [one(cpu, cpu_limit), one(memory, memory_limit)]
    }
}

/// Placement or withdrawal of a task in a session.
#[derive(Clone, Debug, PartialEq)]
struct ShadowEvent {
    task: Arc<str>,
    /// Amounts of a placed task; `None`: it was withdrawn.
    placed: Option<TaskDemand>,
    /// True if the event undoes an eviction.
    returns: bool,
}

held_bytes! { ShadowEvent { task; placed, returns } }

/// Time until which no measurement includes a task.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ShadowStart {
    /// No measurement includes it: it does not run yet.
    NotStarted,
    /// Start of the task, in seconds since 1970.
    At(i64),
}

held_bytes! { plain ShadowStart }

/// Tasks of a node that a measurement may not include.
#[derive(Clone, Debug, Default, PartialEq)]
struct NodeShadow {
    /// Tasks on the node when the state was computed.
    tasks: BTreeMap<Arc<str>, ShadowStart>,
    /// Events of the session, in order.
    events: Vec<ShadowEvent>,
}

held_bytes! { NodeShadow { tasks, events } }

/// State of the plugin: tasks by node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ShadowTasks {
    compatibility: Compatibility,
    nodes: SortedTable<Arc<NodeShadow>>,
    has_events: bool,
}

held_bytes! { ShadowTasks { nodes; compatibility, has_events } }

/// Load of one resource from 0 to 1: the measured percentage and the estimate, of a capacity.
fn utilization(percent: f64, estimate: f64, capacity: f64) -> f64 {
    if capacity <= 0.0 {
        return 0.0;
    }
    let measured = percent / 100.0 * capacity;
    ((measured + estimate) / capacity).clamp(0.0, 1.0)
}

/// Node whose load is evaluated.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadedNode<'a> {
    pub(super) record: &'a NodeRecord,
    pub(super) load: &'a NodeLoad,
}

impl LoadedNode<'_> {
    /// Loads of CPU and memory from 0 to 1, with these estimates.
    pub(super) fn utilizations(self, estimates: LoadPair) -> LoadPair {
        let capacity = |own: Option<i64>, id| own.or_else(|| self.record.allocatable.get(id)).unwrap_or(0) as f64;
        let cpu = capacity(self.load.cpu_capacity, ResourceId::CPU);
        let memory = capacity(self.load.memory_capacity, ResourceId::MEMORY);
        let [of_cpu, of_memory] = estimates;
        [
            utilization(self.load.cpu_percent, of_cpu, cpu),
            utilization(self.load.memory_percent, of_memory, memory),
        ]
    }
}

/// Mean of two values by the weights; 0 if both weights are 0.
pub(super) fn weighted_mean(arguments: &UsageArguments, [cpu, memory]: LoadPair) -> f64 {
    let (cpu_weight, memory_weight) = (arguments.cpu_weight as f64, arguments.memory_weight as f64);
    let sum = cpu_weight + memory_weight;
    if sum == 0.0 {
        return 0.0;
    }
    (cpu * cpu_weight + memory * memory_weight) / sum
}

/// Sum of estimates on one node.
struct EstimateSum<'a> {
    arguments: &'a UsageArguments,
    node: LoadedNode<'a>,
    sum: LoadPair,
    /// Estimates by task; `None`: one was there, and its task was withdrawn.
    of_tasks: BTreeMap<&'a str, Option<LoadPair>>,
}

impl<'a> EstimateSum<'a> {
    /// Adds a task. The load of the node before decides the factor of its estimate.
    fn add(&mut self, task: &'a str, demand: &TaskDemand) {
        let before = weighted_mean(self.arguments, self.node.utilizations(self.sum));
        let is_risky = before >= self.arguments.risk_threshold;
        let load = demand.load(self.arguments, if is_risky { self.arguments.risk_factor } else { 1.0 });
        self.withdraw(task);
        self.of_tasks.insert(task, Some(load));
        let ([own_cpu, own_memory], [cpu, memory]) = (self.sum, load);
        self.sum = [own_cpu + cpu, own_memory + memory];
    }

    fn withdraw(&mut self, task: &'a str) {
        if let Some([cpu, memory]) = self.of_tasks.get_mut(task).and_then(Option::take) {
            let [own_cpu, own_memory] = self.sum;
            self.sum = [(own_cpu - cpu).max(0.0), (own_memory - memory).max(0.0)];
        }
    }
}

impl ShadowTasks {
    /// State of a cluster state.
    pub(super) fn of(cluster_state: &ClusterState, compatibility: Compatibility) -> Self {
        let mut by_node: BTreeMap<&Arc<str>, NodeShadow> = BTreeMap::new();
        let mut state = Self {
            compatibility,
            ..Self::default()
        };
        for (name, stored) in cluster_state.tasks().iter() {
            if let Some(start) = state.start_of(&stored.record) {
                let node = by_node.entry(&stored.record.node).or_default();
                node.tasks.insert(Arc::clone(name), start);
            }
        }
        for (node, own) in by_node {
            state.nodes.insert(Arc::clone(node), Arc::new(own));
        }
        state
    }

    /// Start of a task whose load may not be measured; `None`: it is measured.
    fn start_of(&self, task: &TaskRecord) -> Option<ShadowStart> {
        let is_corrected = self.compatibility == Compatibility::Corrected;
        match task.status {
            _ if task.node.is_empty() => None,
            TaskStatus::Allocated | TaskStatus::Binding | TaskStatus::Bound => Some(ShadowStart::NotStarted),
            TaskStatus::Pipelined if is_corrected => Some(ShadowStart::NotStarted),
            // Of a running task whose start no source sent, the measurement is taken to include the load.
            TaskStatus::Running if is_corrected => task.start_time().map(ShadowStart::At),
            TaskStatus::Running => Some(task.start_time().map_or(ShadowStart::NotStarted, ShadowStart::At)),
            TaskStatus::Pending
            | TaskStatus::Pipelined
            | TaskStatus::Releasing
            | TaskStatus::Succeeded
            | TaskStatus::Failed
            | TaskStatus::Unknown => None,
        }
    }

    /// Estimated load of a node's tasks beside what is measured.
    pub(super) fn estimate(
        &self,
        cluster_state: &ClusterState,
        arguments: &UsageArguments,
        node: LoadedNode<'_>,
        now: DecisionTime,
    ) -> LoadPair {
        let Some(own) = self.nodes.get(&node.record.name) else {
            return [0.0, 0.0];
        };
        let mut sum = EstimateSum {
            arguments,
            node,
            sum: [0.0, 0.0],
            of_tasks: BTreeMap::new(),
        };
        let is_young = |start: &ShadowStart| match start {
            ShadowStart::NotStarted => true,
            ShadowStart::At(start) => now.nanos_since(*start) < i128::from(arguments.interval),
        };
        for (name, _) in own.tasks.iter().filter(|(_, start)| is_young(start)) {
            if let Some(stored) = cluster_state.tasks().get(name) {
                sum.add(name, &TaskDemand::of(&stored.record));
            }
        }
        for event in &own.events {
            match &event.placed {
                // The load of an old task stays measured while it is evicted.
                Some(_)
                    if event.returns
                        && self.compatibility == Compatibility::Corrected
                        && !sum.of_tasks.contains_key(&*event.task) => {}
                Some(demand) => sum.add(&event.task, demand),
                None => sum.withdraw(&event.task),
            }
        }
        sum.sum
    }

    /// Changes the tasks of a node; a node without any is not stored.
    fn change(&mut self, node: &Arc<str>, change: impl FnOnce(&mut NodeShadow)) {
        let mut own = self.nodes.get(node).map_or_else(Arc::default, Arc::clone);
        change(Arc::make_mut(&mut own));
        if own.tasks.is_empty() && own.events.is_empty() {
            self.nodes.remove(node);
        } else {
            self.nodes.insert(Arc::clone(node), own);
        }
    }

    fn follow(&mut self, moved: &TaskTransition<'_>, joins: bool) {
        let node = if joins || moved.before.node.is_empty() {
            &moved.after.node
        } else {
            &moved.before.node
        };
        if node.is_empty() {
            return;
        }
        let event = ShadowEvent {
            task: Arc::clone(&moved.after.name),
            placed: joins.then(|| TaskDemand::of(moved.after)),
            returns: moved.before.status == TaskStatus::Releasing,
        };
        self.has_events = true;
        self.change(node, |own| own.events.push(event));
    }

    /// Follows the step to a newer cluster state.
    fn step(&mut self, changes: &StateDiff<'_>) {
        if std::mem::take(&mut self.has_events) {
            let nodes: Vec<Arc<str>> = self.nodes.iter().map(|(node, _)| Arc::clone(node)).collect();
            for node in &nodes {
                self.change(node, |own| own.events.clear());
            }
        }
        for task in changes.tasks() {
            for (record, joins) in [(task.before, false), (task.after, true)] {
                let Some((record, start)) = record.and_then(|record| Some((record, self.start_of(record)?))) else {
                    continue;
                };
                self.change(&record.node, |own| {
                    if joins {
                        own.tasks.insert(Arc::clone(&record.name), start);
                    } else {
                        own.tasks.remove(&record.name);
                    }
                });
            }
        }
    }
}

impl PluginState for ShadowTasks {
    fn apply(&mut self, change: &PluginStateChange<'_>) -> Result<Vec<Arc<str>>, Problem> {
        match change {
            PluginStateChange::Events(_, events) => {
                for (moved, joins) in events.iter().filter_map(PlacementEvent::moved_task) {
                    self.follow(&moved, joins);
                }
            }
            PluginStateChange::Step(changes) => self.step(changes),
        }
        Ok(Vec::new())
    }
}
