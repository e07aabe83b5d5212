//! Allocation of tasks to nodes and devices, one after another, by the scores of a policy's plugins. Scores of a class of
//! tasks are kept per node until the node changes.

use std::collections::BTreeMap;

use pumice_engine::devices::fragmentation::Fragmentation;
use pumice_engine::devices::{
    DeviceKinds, DeviceMask, DeviceNode, DevicePick, DeviceScorer, DeviceTask, FreeDevices, WHOLE_DEVICE, pick_devices,
    scale, take_devices,
};

use crate::policies::LabPolicy;
use crate::trace::{LabNode, LabTask};

/// Node with what is left of it.
#[derive(Clone, Debug)]
pub struct NodeState<'t> {
    /// Model of the devices.
    model: &'t str,
    /// Free cpu in thousandths.
    free_cpu: i64,
    /// Free memory in MiB.
    free_memory: i64,
    /// Free thousandths of each device.
    free: FreeDevices,
    kinds: DeviceKinds,
    /// Fragmentation.
    fragments: f64,
    /// Number of changes of nodes after the last one of this node.
    changed: usize,
}

impl<'t> NodeState<'t> {
    fn new(node: &'t LabNode) -> Self {
        Self {
            model: &node.model,
            free_cpu: node.cpu,
            free_memory: node.memory,
            free: FreeDevices::from_elem(WHOLE_DEVICE, node.devices),
            kinds: DeviceKinds::NONE,
            fragments: 0.0,
            changed: 0,
        }
    }

    fn view(&self, identity: u64) -> DeviceNode<'_> {
        DeviceNode {
            free_cpu: self.free_cpu,
            free: &self.free,
            model: self.model,
            kinds: self.kinds,
            identity,
        }
    }

    /// Free cpu in thousandths.
    pub fn free_cpu(&self) -> i64 {
        self.free_cpu
    }

    /// Free thousandths of each device.
    pub fn free_devices(&self) -> &[i32] {
        &self.free
    }
}

/// Placement of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabPlacement {
    /// Position of the node.
    pub node: usize,
    /// Score of the node.
    pub score: i64,
    /// Devices that the task uses on the node. Empty: a task without devices.
    pub devices: DeviceMask,
}

/// Score of a node without enough resources.
const UNFIT: i64 = i64::MIN;
/// Number of nodes whose greatest score, and whose sum of fragmentation, is kept.
const BLOCK: usize = 32;

/// Scores of one class of tasks.
#[derive(Debug)]
struct ClassScores {
    task: DeviceTask,
    /// Scores by scorer and node.
    values: Vec<Vec<i64>>,
    /// Greatest of the first scorer's values in each [`BLOCK`].
    greatest: Vec<i64>,
    /// Number of changes of nodes that the scores show.
    synced: usize,
}

/// Cluster in the course of an experiment.
#[derive(Debug)]
pub struct LabCluster<'t, 'p> {
    nodes: Vec<NodeState<'t>>,
    pick: DevicePick,
    scorers: Vec<(i64, &'p dyn DeviceScorer)>,
    measure: &'p Fragmentation,
    /// Fragmentation of the nodes before each [`BLOCK`], summed up from the first one.
    fragments_before: Vec<f64>,
    classes: BTreeMap<DeviceTask, usize>,
    scores: Vec<ClassScores>,
    /// Positions of changed nodes, in order.
    changes: Vec<u32>,
    /// Thousandths of devices that are allocated.
    used: i64,
    arrivals: u64,
}

impl<'t, 'p> LabCluster<'t, 'p> {
    /// Empty cluster. `measure` defines fragmentation.
    pub fn new(nodes: &[&'t LabNode], policy: &'p LabPolicy, measure: &'p Fragmentation) -> Self {
        let mut nodes: Vec<NodeState<'t>> = nodes.iter().map(|node| NodeState::new(node)).collect();
        for node in &mut nodes {
            node.fragments = measure.of(&node.view(0));
        }
        let mut cluster = Self {
            fragments_before: vec![0.0; nodes.len().div_ceil(BLOCK) + 1],
            nodes,
            pick: policy.pick(),
            scorers: policy.scorers(),
            measure,
            classes: BTreeMap::new(),
            scores: Vec::new(),
            changes: Vec::new(),
            used: 0,
            arrivals: 0,
        };
        cluster.sum_fragments(0);
        cluster
    }

    /// Nodes, in their order.
    pub fn nodes(&self) -> &[NodeState<'t>] {
        &self.nodes
    }

    /// Thousandths of devices that are allocated.
    pub fn used(&self) -> i64 {
        self.used
    }

    /// Sum of the fragmentation of all nodes.
    pub fn fragments(&self) -> f64 {
        self.fragments_before.last().copied().unwrap_or(0.0)
    }

    /// Sums the fragmentation from the block of a node on, in the order of nodes: the sum is exact to the last bit.
    fn sum_fragments(&mut self, changed: usize) {
        let first = changed / BLOCK;
        let mut sum = self.fragments_before.get(first).copied().unwrap_or(0.0);
        let blocks = self.nodes.chunks(BLOCK).skip(first);
        for (block, before) in blocks.zip(self.fragments_before.iter_mut().skip(first + 1)) {
            sum = block.iter().fold(sum, |sum, node| sum + node.fragments);
            *before = sum;
        }
    }

    /// Number of a class of tasks.
    pub fn class_of(&mut self, task: &DeviceTask) -> usize {
        if let Some(class) = self.classes.get(task) {
            return *class;
        }
        let class = self.scores.len();
        self.classes.insert(task.clone(), class);
        let unknown = vec![UNFIT; self.nodes.len()];
        let mut scores = ClassScores {
            task: task.clone(),
            values: vec![unknown; self.scorers.len().max(1)],
            greatest: vec![UNFIT; self.nodes.len().div_ceil(BLOCK)],
            synced: self.changes.len(),
        };
        for number in 0..self.nodes.len() {
            scores.update(&self.nodes, &self.scorers, number);
        }
        for block in 0..scores.greatest.len() {
            scores.find_greatest(block);
        }
        self.scores.push(scores);
        class
    }

    /// Places a task of a class; `None`: no node has enough.
    pub fn place(&mut self, task: &LabTask, class: usize) -> Option<LabPlacement> {
        self.arrivals += 1;
        let scores = self.scores.get_mut(class)?;
        scores.sync(&self.nodes, &self.scorers, &self.changes);
        let (node, score) = best_node(scores, &self.nodes, &self.scorers, task.memory, self.arrivals)?;
        let state = self.nodes.get(node)?;
        let asked = &task.task;
        let view = state.view(identity(self.arrivals, node));
        let named = if self.pick == DevicePick::Score && asked.is_share() {
            let mut weighted = self.scorers.iter();
            weighted.find_map(|(_, scorer)| scorer.score(asked, &view).device)
        } else {
            None
        };
        let devices = pick_devices(self.pick, asked, &state.free, named)?;
        self.take(task, node, devices);
        Some(LabPlacement { node, score, devices })
    }

    fn take(&mut self, task: &LabTask, number: usize, devices: DeviceMask) {
        let Some(node) = self.nodes.get_mut(number) else { return };
        node.free_cpu -= task.task.cpu;
        node.free_memory -= task.memory;
        take_devices(&mut node.free, devices, task.task.milli);
        node.kinds = node.kinds.union(task.task.kind());
        node.fragments = self.measure.of(&node.view(0));
        self.used += task.task.total();
        self.changes.push(u32::try_from(number).unwrap_or(u32::MAX));
        node.changed = self.changes.len();
        self.sum_fragments(number);
    }
}

/// Number that is different for each arrival and node.
fn identity(arrival: u64, node: usize) -> u64 {
    arrival << 32 | node as u64
}

impl ClassScores {
    /// Brings the scores of changed nodes up to date.
    fn sync(&mut self, nodes: &[NodeState<'_>], weighted: &[(i64, &dyn DeviceScorer)], changes: &[u32]) {
        let first = self.synced;
        self.synced = changes.len();
        for (at, number) in changes.iter().enumerate().skip(first) {
            let number = *number as usize;
            // Of several changes of a node the last one counts.
            if nodes.get(number).is_some_and(|node| node.changed == at + 1) {
                self.update(nodes, weighted, number);
                self.find_greatest(number / BLOCK);
            }
        }
    }

    /// Finds the greatest value of a block.
    fn find_greatest(&mut self, block: usize) {
        let values = self.values.first().map(Vec::as_slice).unwrap_or_default();
        let own = values.get(block * BLOCK..values.len().min(block * BLOCK + BLOCK));
        if let Some(greatest) = self.greatest.get_mut(block) {
            *greatest = own.unwrap_or_default().iter().copied().max().unwrap_or(UNFIT);
        }
    }

    fn update(&mut self, nodes: &[NodeState<'_>], weighted: &[(i64, &dyn DeviceScorer)], number: usize) {
        let Some(node) = nodes.get(number) else { return };
        let view = node.view(0);
        let fits = node.free_cpu >= self.task.cpu && self.task.fits(&view);
        for (values, scorer) in self.values.iter_mut().zip(weighted.iter().map(Some).chain([None])) {
            let Some(value) = values.get_mut(number) else { continue };
            *value = match scorer {
                _ if !fits => UNFIT,
                Some((_, scorer)) if !scorer.is_random() => scorer.score(&self.task, &view).value,
                // Random scores are drawn for each task.
                Some(_) | None => 0,
            };
        }
    }
}

/// Best node for a task with this memory, and its score. Of equal nodes the first one wins.
fn best_node(
    scores: &ClassScores,
    nodes: &[NodeState<'_>],
    weighted: &[(i64, &dyn DeviceScorer)],
    memory: i64,
    arrival: u64,
) -> Option<(usize, i64)> {
    let mut best: Option<(usize, i64)> = None;
    if let ([values], [] | [_]) = (scores.values.as_slice(), weighted) {
        let random = weighted
            .iter()
            .map(|(_, scorer)| *scorer)
            .find(|scorer| scorer.is_random());
        if random.is_none() {
            return best_in_blocks(scores, values, nodes, memory);
        }
        for (number, (value, node)) in values.iter().zip(nodes).enumerate() {
            if *value == UNFIT || node.free_memory < memory {
                continue;
            }
            let drawn = random.map(|scorer| scorer.score(&scores.task, &node.view(identity(arrival, number))).value);
            let value = drawn.unwrap_or(*value);
            if best.is_none_or(|(_, best)| value > best) {
                best = Some((number, value));
            }
        }
        return best;
    }
    let fits = |number: usize, node: &NodeState<'_>| {
        let first = scores.values.first().and_then(|values| values.get(number));
        node.free_memory >= memory && first.is_some_and(|value| *value != UNFIT)
    };
    let fitting: Vec<usize> = (0..nodes.len())
        .filter(|number| nodes.get(*number).is_some_and(|node| fits(*number, node)))
        .collect();
    let mut totals = vec![0_i64; fitting.len()];
    for ((weight, scorer), values) in weighted.iter().zip(&scores.values) {
        let value = |number: usize| {
            let node = nodes.get(number).filter(|_| scorer.is_random());
            let drawn = node.map(|node| scorer.score(&scores.task, &node.view(identity(arrival, number))).value);
            drawn.or_else(|| values.get(number).copied()).unwrap_or(0)
        };
        let least = fitting.iter().map(|number| value(*number)).min().unwrap_or(0);
        let greatest = fitting.iter().map(|number| value(*number)).max().unwrap_or(0);
        for (total, number) in totals.iter_mut().zip(&fitting) {
            let value = value(*number);
            *total += weight
                * if scorer.is_relative() {
                    scale(value, least, greatest)
                } else {
                    value
                };
        }
    }
    for (number, total) in fitting.into_iter().zip(totals) {
        if best.is_none_or(|(_, best)| total > best) {
            best = Some((number, total));
        }
    }
    best
}

/// First node with the greatest value among those with enough memory.
fn best_in_blocks(scores: &ClassScores, values: &[i64], nodes: &[NodeState<'_>], memory: i64) -> Option<(usize, i64)> {
    let (mut at, mut best) = (None, UNFIT);
    let blocks = values.chunks(BLOCK).zip(nodes.chunks(BLOCK)).zip(&scores.greatest);
    for (block, ((values, nodes), greatest)) in blocks.enumerate() {
        if *greatest <= best {
            continue;
        }
        for (offset, (value, node)) in values.iter().zip(nodes).enumerate() {
            if *value > best && node.free_memory >= memory {
                (at, best) = (Some(block * BLOCK + offset), *value);
            }
        }
    }
    at.map(|node| (node, best))
}
