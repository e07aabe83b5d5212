//! Layout that events never change: resources, jobs, and the tree of queues over them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::hierarchy::{self, HierarchyPath, WEIGHTS};
use super::share::{ExactAmounts, ShareDimensions, add_amounts, to_floats};
use crate::held_bytes::held_bytes;
use crate::model::{ClusterState, ErrorCode, Problem, QueueRecord, TaskRecord, TaskStatus};
use crate::plugin::EVERY_QUEUE;
use crate::policy::Compatibility;

/// Number of queues up to which an event names each changed queue.
const MAX_NAMED_QUEUES: usize = 256;

/// Job with its position in the hierarchy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TreeJob {
    /// Key of the record, as `namespace/name`.
    pub(super) name: Arc<str>,
    /// Name of its queue.
    pub(super) queue: Arc<str>,
    /// Requests of its running and waiting tasks; under `upstream` also of finished ones.
    pub(super) requested: ExactAmounts,
    /// Position in the tree; none without hierarchy.
    pub(super) leaf: Result<Option<LeafPosition>, Problem>,
}

held_bytes! { TreeJob { requested, leaf; name, queue } }

/// Position of a job below an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeafPosition {
    /// Number of the inner node.
    pub(super) node: usize,
    /// Position among its jobs.
    pub(super) at: usize,
}

held_bytes! { plain LeafPosition }

/// Inner node. The root has number 0, a parent has a lower number than its children, and the children of one parent
/// have consecutive numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct InnerNode {
    /// Path from the root.
    pub(super) path: String,
    /// Number of the parent; the root is its own parent.
    pub(super) parent: usize,
    /// Numbers of its jobs, by name.
    pub(super) jobs: Vec<usize>,
    /// Inner children, by name.
    pub(super) children: BTreeMap<Arc<str>, usize>,
    /// Numbers of the inner children.
    pub(super) inner_children: Range<usize>,
    /// Part among its siblings, above 0; 1 by default.
    pub(super) weight: f64,
    /// Part of the cluster that the node deserves.
    pub(super) deserved: f64,
}

held_bytes! { InnerNode { path, jobs, children; parent, inner_children, weight, deserved } }

/// Position of a queue in the tree.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct QueuePosition {
    /// Nodes of its path below the root, as far as they have jobs.
    pub(super) nodes: Vec<usize>,
    /// Number of levels of its path below the root.
    pub(super) depth: usize,
}

held_bytes! { QueuePosition { nodes; depth } }

/// Positions of queues and jobs in the hierarchy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TreeLayout {
    /// Compatibility whose rules apply.
    pub(super) compatibility: Compatibility,
    /// Resources that count.
    pub(super) dimensions: ShareDimensions,
    /// Jobs by name.
    pub(super) jobs: Vec<TreeJob>,
    /// Inner nodes; none without hierarchy.
    pub(super) nodes: Vec<InnerNode>,
    /// Weights of the inner nodes.
    pub(super) weights: Vec<f64>,
    /// Numbers of the inner nodes that have inner children.
    pub(super) branching_nodes: Vec<usize>,
    /// Queues by name; none without hierarchy.
    pub(super) queues: BTreeMap<Arc<str>, Result<QueuePosition, Problem>>,
    /// Queues by the first node of their path.
    pub(super) queues_by_top_node: BTreeMap<usize, Vec<Arc<str>>>,
}

held_bytes! {
    TreeLayout {
        dimensions, jobs, nodes, weights, branching_nodes, queues, queues_by_top_node; compatibility
    }
}

impl TreeLayout {
    /// Builds the layout of a cluster state; without `hierarchy` it has no tree.
    pub(super) fn build(cluster_state: &ClusterState, compatibility: Compatibility, hierarchy: bool) -> Self {
        let tasks = || cluster_state.tasks().iter().map(|(_, stored)| &stored.record);
        let dims = ShareDimensions::of(cluster_state, compatibility, tasks().map(|task| &task.requests));
        let jobs = cluster_state.jobs().iter().map(|(name, stored)| TreeJob {
            name: Arc::clone(name),
            queue: Arc::clone(&stored.record.queue),
            requested: dims.zero_amounts(),
            leaf: Ok(None),
        });
        let mut shape = Self {
            compatibility,
            jobs: jobs.collect(),
            dimensions: dims,
            ..Self::default()
        };
        for task in tasks() {
            let Some(job) = shape.job_number(&task.job).filter(|_| shape.is_requested(task)) else {
                continue;
            };
            let (requests, _) = shape.dimensions.by_position(&task.requests);
            if let Some(job) = shape.jobs.get_mut(job) {
                add_amounts(&mut job.requested, &requests);
            }
        }
        if hierarchy {
            shape.build_tree(cluster_state);
        }
        shape
    }

    /// True if a job's requests include the task's.
    pub(super) fn is_requested(&self, task: &TaskRecord) -> bool {
        self.compatibility.is_upstream() || !matches!(task.status, TaskStatus::Succeeded | TaskStatus::Failed)
    }

    /// True if the task waits to be placed; under `corrected` only.
    pub(super) fn is_waiting(&self, task: &TaskRecord) -> bool {
        self.compatibility == Compatibility::Corrected
            && matches!(task.status, TaskStatus::Pending | TaskStatus::Releasing)
            && !task.gated
    }

    pub(super) fn job_number(&self, name: &str) -> Option<usize> {
        self.jobs.binary_search_by(|job| (*job.name).cmp(name)).ok()
    }

    /// Queues whose keys may change with the holdings of a job: those that share a node with its queue; all queues if
    /// these are many, or with `everywhere`.
    pub(super) fn moved_queues(&self, job: usize, everywhere: bool) -> Vec<Arc<str>> {
        if everywhere {
            return vec![EVERY_QUEUE.into()];
        }
        let queue = self
            .jobs
            .get(job)
            .and_then(|job| self.queues.get(&job.queue)?.as_ref().ok());
        let first = queue.and_then(|queue| queue.nodes.first());
        match first.and_then(|first| self.queues_by_top_node.get(first)) {
            None => Vec::new(),
            // A list of that many names would cost more than the event.
            Some(names) if names.len() > MAX_NAMED_QUEUES && names.len() >= self.queues.len() / 4 => {
                vec![EVERY_QUEUE.into()]
            }
            Some(names) => names.clone(),
        }
    }

    fn build_tree(&mut self, cluster_state: &ClusterState) {
        self.nodes.push(InnerNode {
            path: "root".to_owned(),
            weight: 1.0,
            deserved: 1.0,
            ..InnerNode::default()
        });
        let records: BTreeMap<&str, &QueueRecord> = cluster_state
            .queues()
            .iter()
            .map(|(name, stored)| (&**name, &stored.record))
            .collect();
        let mut paths: BTreeMap<Arc<str>, Result<HierarchyPath, Problem>> = match self.compatibility {
            Compatibility::Upstream(_) => records
                .values()
                .map(|queue| (Arc::clone(&queue.name), hierarchy::lenient_path(queue)))
                .collect(),
            Compatibility::Corrected => hierarchy::consistent_paths(records.values().copied()),
        };
        for number in 0..self.jobs.len() {
            let Some(queue) = self.jobs.get(number).map(|job| Arc::clone(&job.queue)) else {
                continue;
            };
            let node = match paths.get(&queue) {
                Some(Ok(path)) => self.find_or_add_node(path, records.get(&*queue).copied()),
                Some(Err(problem)) => Err(problem.clone()),
                None => Err(unknown_queue_problem(self.jobs.get(number), &queue)),
            };
            if let Ok(node) = &node
                && let Some(node) = self.nodes.get_mut(*node)
            {
                node.jobs.push(number);
            }
            if let (Err(problem), Some(path)) = (&node, paths.get_mut(&queue)) {
                *path = Err(problem.clone());
            }
            if let Some(job) = self.jobs.get_mut(number) {
                job.leaf = node.map(|node| Some(LeafPosition { node, at: 0 }));
            }
        }
        self.number_nodes();
        self.assign_deserved();
        for (name, path) in paths {
            let queue = path.map(|path| self.position_of(&path));
            if let Some(first) = queue.as_ref().ok().and_then(|queue| queue.nodes.first()) {
                self.queues_by_top_node
                    .entry(*first)
                    .or_default()
                    .push(Arc::clone(&name));
            }
            self.queues.insert(name, queue);
        }
    }

    /// Node of a path; it and its missing parents are created.
    fn find_or_add_node(&mut self, path: &HierarchyPath, queue: Option<&QueueRecord>) -> Result<usize, Problem> {
        let known = self.position_of(path).nodes;
        if known.len() < path.names.len() && path.weights.len() < path.names.len() {
            return refuse_missing_weights(path, queue);
        }
        let missing = path.names.iter().zip(&path.weights).skip(known.len());
        let lowest = known.last().copied().unwrap_or(0);
        Ok(missing.fold(lowest, |parent, (name, weight)| self.add_node(parent, name, *weight)))
    }

    fn add_node(&mut self, parent: usize, name: &Arc<str>, weight: f64) -> usize {
        let number = self.nodes.len();
        let Some(above) = self.nodes.get_mut(parent) else {
            return parent;
        };
        above.children.insert(Arc::clone(name), number);
        let path = format!("{}/{name}", above.path);
        self.nodes.push(InnerNode {
            path,
            parent,
            weight,
            ..InnerNode::default()
        });
        number
    }

    /// Numbers nodes level by level, children by name, and sets the positions of jobs.
    fn number_nodes(&mut self) {
        let (mut order, mut at) = (vec![0], 0);
        while let Some(node) = order.get(at).and_then(|number| self.nodes.get(*number)) {
            order.extend(node.children.values());
            at += 1;
        }
        let mut old: Vec<InnerNode> = std::mem::take(&mut self.nodes);
        let mut next = 1;
        for (number, from) in order.into_iter().enumerate() {
            let Some(mut node) = old.get_mut(from).map(std::mem::take) else {
                continue;
            };
            let first = next;
            for child in node.children.values_mut() {
                if let Some(child) = old.get_mut(*child) {
                    child.parent = number;
                }
                *child = next;
                next += 1;
            }
            node.inner_children = first..next;
            if !node.inner_children.is_empty() {
                self.branching_nodes.push(number);
            }
            for (at, job) in node.jobs.iter().enumerate() {
                if let Some(job) = self.jobs.get_mut(*job) {
                    job.leaf = Ok(Some(LeafPosition { node: number, at }));
                }
            }
            self.weights.push(node.weight);
            self.nodes.push(node);
        }
    }

    fn position_of(&self, path: &HierarchyPath) -> QueuePosition {
        let (mut at, mut nodes) = (0, Vec::new());
        for name in &path.names {
            let Some(child) = self.nodes.get(at).and_then(|node| node.children.get(name)) else {
                break;
            };
            nodes.push(*child);
            at = *child;
        }
        QueuePosition {
            nodes,
            depth: path.names.len(),
        }
    }

    /// Sums over the jobs below each node.
    pub(super) fn sum_by_node<'a>(&self, of_job: impl Fn(usize) -> Option<&'a ExactAmounts>) -> Vec<ExactAmounts> {
        let mut sums: Vec<ExactAmounts> = self.nodes.iter().map(|_| self.dimensions.zero_amounts()).collect();
        for (number, node) in self.nodes.iter().enumerate().rev() {
            let Some(mut own) = sums.get(number).cloned() else {
                continue;
            };
            node.jobs
                .iter()
                .filter_map(|job| of_job(*job))
                .for_each(|amounts| add_amounts(&mut own, amounts));
            if let Some(above) = sums.get_mut(node.parent).filter(|_| number > 0) {
                add_amounts(above, &own);
            }
            if let Some(entry) = sums.get_mut(number) {
                *entry = own;
            }
        }
        sums
    }

    /// Sets the deserved part of each node: its parent's part, divided by weight, but at most the dominant share of the
    /// node's requests.
    fn assign_deserved(&mut self) {
        let asked = self.sum_by_node(|job| self.jobs.get(job).map(|job| &job.requested));
        let wanted: Vec<f64> = asked
            .iter()
            .map(|asked| self.dimensions.share(&to_floats(asked)))
            .collect();
        for number in 0..self.nodes.len() {
            let Some(node) = self.nodes.get(number) else { continue };
            let claims = node.children.values().filter_map(|child| {
                let weight = self.nodes.get(*child)?.weight;
                Some((*child, weight, wanted.get(*child).copied()?))
            });
            for (child, deserved) in water_fill(node.deserved, claims.collect()) {
                if let Some(child) = self.nodes.get_mut(child) {
                    child.deserved = deserved;
                }
            }
        }
    }
}

/// Divides an amount among claims (claimant, weight, largest part).
fn water_fill(amount: f64, mut claims: Vec<(usize, f64, f64)>) -> Vec<(usize, f64)> {
    claims.sort_by(|a, b| (a.2 / a.1).total_cmp(&(b.2 / b.1)).then(a.0.cmp(&b.0)));
    let sums = claims.iter().rev().scan(0.0, |sum, (_, weight, _)| {
        *sum += weight;
        Some(*sum)
    });
    let sums: Vec<f64> = sums.collect();
    let mut left = amount;
    let share = |((who, weight, most), weights): ((usize, f64, f64), f64)| {
        let own = (left * (weight / weights)).min(most);
        left = (left - own).max(0.0);
        (who, own)
    };
    claims.into_iter().zip(sums.into_iter().rev()).map(share).collect()
}

fn unknown_queue_problem(job: Option<&TreeJob>, queue: &str) -> Problem {
    let job = job.map_or("", |job| &*job.name);
    let message = format!("job `{job}` is in queue `{queue}`, which is not there");
    Problem::new(ErrorCode::QueueUnknown, format!("jobs[{job}].queue"), message)
}

fn refuse_missing_weights<T>(path: &HierarchyPath, queue: Option<&QueueRecord>) -> Result<T, Problem> {
    let (needed, given) = (path.names.len() + 1, path.weights.len() + 1);
    let message = format!("the path has {needed} components and only {given} weights; the reference crashes here");
    match queue {
        Some(queue) => {
            let message = format!("queue `{}`: {message}", queue.name);
            hierarchy::refuse(queue, WEIGHTS, ErrorCode::HierarchyWeightsCount, message)
        }
        None => Err(Problem::new(ErrorCode::HierarchyWeightsCount, "", message)),
    }
}
