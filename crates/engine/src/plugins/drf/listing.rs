//! Listing of shares for people: accounts of jobs, and the whole tree.

use std::sync::Arc;

use super::DrfState;
use super::share::{ExactAmounts, FloatAmounts, to_floats};
use super::tree::ChildShare;
use crate::model::{Problem, ResourceId};

/// Account of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobShare {
    /// Dominant share; above 1 if the cluster is over-committed.
    pub share: f64,
    /// Resource that sets the dominant share; `None`: the share is 0.
    pub dominant: Option<Arc<str>>,
    /// Held amounts, without zeros.
    pub held: Vec<(ResourceId, i128)>,
    /// Requests of its running and waiting tasks; under `upstream` also of finished ones.
    pub requested: Vec<(ResourceId, i128)>,
}

/// Node of the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct ShareTreeNode {
    /// Path from the root; for a leaf the path of its parent.
    pub path: Arc<str>,
    /// Name of the job if the node is a leaf.
    pub job: Option<Arc<str>>,
    /// Weight; 0 for a leaf.
    pub weight: f64,
    /// Dominant share.
    pub share: f64,
    /// Resource that sets the dominant share; `None`: the share is 0.
    pub dominant: Option<Arc<str>>,
    /// True if the node wants nothing more, or nothing that is left.
    pub saturated: bool,
    /// Held amounts, without zeros; rescaled for an inner node.
    pub held: Vec<(ResourceId, f64)>,
}

/// Child of an inner node, by its number.
enum TreeChild {
    Node(usize),
    Job(usize),
}

impl DrfState {
    /// Account of a job; `None`: there is no such job.
    pub fn job_summary(&self, job: &str) -> Option<JobShare> {
        let number = self.layout.job_number(job)?;
        let held = &self.accounts.get(number)?.held;
        let dims = &self.layout.dimensions;
        Some(JobShare {
            share: dims.exact_share(held),
            dominant: dims.dominant(&to_floats(held), dims.divisors()).cloned(),
            held: self.nonzero_amounts(held),
            requested: self.nonzero_amounts(&self.layout.jobs.get(number)?.requested),
        })
    }

    /// Amounts that all jobs hold, without zeros.
    pub fn total_allocated(&self) -> Vec<(ResourceId, i128)> {
        self.nonzero_amounts(&self.allocated)
    }

    /// Amounts of all ready nodes, without zeros.
    pub fn cluster_total(&self) -> Vec<(ResourceId, i128)> {
        self.nonzero_amounts(self.layout.dimensions.total())
    }

    /// Dominant share of the root; `None` without hierarchy.
    pub fn root_share(&self) -> Option<f64> {
        self.tree
            .as_ref()?
            .node_share(&self.layout, 0)
            .map(|measurement| measurement.share)
    }

    /// Problem that keeps a queue out of the tree; `None`: it is in the tree, or there is no such queue or no tree.
    pub fn queue_problem(&self, queue: &str) -> Option<&Problem> {
        self.layout.queues.get(queue)?.as_ref().err()
    }

    /// Nodes of the tree, depth first, children by name; empty without hierarchy.
    pub fn tree_nodes(&self) -> Vec<ShareTreeNode> {
        let mut nodes = Vec::new();
        let mut open = vec![TreeChild::Node(0)];
        while let Some(child) = open.pop() {
            match child {
                TreeChild::Node(number) => self.list_node(number, &mut nodes, &mut open),
                TreeChild::Job(number) => nodes.extend(self.list_job(number)),
            }
        }
        nodes
    }

    /// Node of a queue; `None`: it is not in the tree, or no queue below it has a job.
    pub fn queue_node(&self, queue: &str) -> Option<ShareTreeNode> {
        let (tree, place) = (self.tree.as_ref()?, self.queue_position(queue).ok()?);
        let at = if place.depth == place.nodes.len() {
            place.nodes.last().copied().unwrap_or(0)
        } else {
            return None;
        };
        let node = self.layout.nodes.get(at)?;
        Some(ShareTreeNode {
            weight: node.weight,
            ..self.tree_node(
                &node.path,
                None,
                &tree.node_share(&self.layout, at)?,
                tree.rules().divisors(),
            )
        })
    }

    /// Appends a node and pushes its children, the first one on top.
    fn list_node(&self, number: usize, nodes: &mut Vec<ShareTreeNode>, open: &mut Vec<TreeChild>) {
        let (Some(tree), Some(node)) = (&self.tree, self.layout.nodes.get(number)) else {
            return;
        };
        if let Some(measurement) = tree.node_share(&self.layout, number) {
            nodes.push(ShareTreeNode {
                weight: node.weight,
                ..self.tree_node(&node.path, None, &measurement, tree.rules().divisors())
            });
        }
        let jobs = node
            .jobs
            .iter()
            .filter_map(|job| Some((&self.layout.jobs.get(*job)?.name, TreeChild::Job(*job))));
        let inner = node
            .children
            .iter()
            .map(|(name, child)| (name, TreeChild::Node(*child)));
        let mut children: Vec<(&Arc<str>, TreeChild)> = jobs.chain(inner).collect();
        children.sort_by(|a, b| b.0.cmp(a.0));
        open.extend(children.into_iter().map(|(_, child)| child));
    }

    fn list_job(&self, number: usize) -> Option<ShareTreeNode> {
        let (tree, place) = (self.tree.as_ref()?, self.leaf_position(number)?);
        let path = &self.layout.nodes.get(place.node)?.path;
        let name = &self.layout.jobs.get(number)?.name;
        let measurement = tree.job_share(place)?;
        Some(self.tree_node(path, Some(name), &measurement, self.layout.dimensions.divisors()))
    }

    fn tree_node(
        &self,
        path: &str,
        job: Option<&Arc<str>>,
        measurement: &ChildShare,
        divisors: &FloatAmounts,
    ) -> ShareTreeNode {
        let dims = &self.layout.dimensions;
        let held = measurement
            .held
            .iter()
            .enumerate()
            .filter(|(_, amount)| **amount != 0.0);
        ShareTreeNode {
            path: path.into(),
            job: job.cloned(),
            weight: 0.0,
            share: measurement.share,
            dominant: dims.dominant(&measurement.held, divisors).cloned(),
            saturated: measurement.saturated,
            held: held
                .filter_map(|(at, amount)| Some((dims.resource(at)?.0, *amount)))
                .collect(),
        }
    }

    fn nonzero_amounts(&self, amounts: &ExactAmounts) -> Vec<(ResourceId, i128)> {
        let held = amounts.iter().enumerate().filter(|(_, amount)| **amount != 0);
        held.filter_map(|(at, amount)| Some((self.layout.dimensions.resource(at)?.0, *amount)))
            .collect()
    }
}
