//! The shares as people read them: accounts of jobs, and the whole tree.

use std::sync::Arc;

use super::DrfState;
use super::share::{ExactAmounts, FloatAmounts, to_floats};
use super::tree::ChildShare;
use crate::engine::model::{Problem, ResourceId};

/// A job's account.
#[derive(Clone, Debug, PartialEq)]
pub struct JobShare {
    /// Dominant share; above 1 when the cluster is over-committed.
    pub share: f64,
    /// The resource that sets it; `None`: share 0.
    pub dominant: Option<Arc<str>>,
    /// What it holds; resources of which it holds nothing are left out.
    pub held: Vec<(ResourceId, i128)>,
    /// What its tasks ask for, whether they run or wait; under `upstream` finished ones too.
    pub requested: Vec<(ResourceId, i128)>,
}

/// A node of the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct ShareTreeNode {
    /// Path from the root; of a leaf, that of its parent.
    pub path: Arc<str>,
    /// Set for a leaf.
    pub job: Option<Arc<str>>,
    /// Weight; 0 for a leaf.
    pub weight: f64,
    /// Dominant share.
    pub share: f64,
    /// The resource that sets it; `None`: share 0.
    pub dominant: Option<Arc<str>>,
    /// Wants nothing more, or nothing that is to be had.
    pub saturated: bool,
    /// Held; of an inner node, rescaled. Zeros are left out.
    pub held: Vec<(ResourceId, f64)>,
}

/// A child of an inner node, by its number.
enum TreeChild {
    Node(usize),
    Job(usize),
}

impl DrfState {
    /// A job's account; `None`: there is no such job.
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

    /// What all jobs hold; zeros are left out.
    pub fn total_allocated(&self) -> Vec<(ResourceId, i128)> {
        self.nonzero_amounts(&self.allocated)
    }

    /// The cluster: what all ready nodes have; zeros are left out.
    pub fn cluster_total(&self) -> Vec<(ResourceId, i128)> {
        self.nonzero_amounts(self.layout.dimensions.total())
    }

    /// The dominant share of the root; `None` without hierarchy.
    pub fn root_share(&self) -> Option<f64> {
        self.tree
            .as_ref()?
            .node_share(&self.layout, 0)
            .map(|measurement| measurement.share)
    }

    /// Why a queue has no place in the tree; `None`: it has one, or there is no such queue or no tree.
    pub fn queue_problem(&self, queue: &str) -> Option<&Problem> {
        self.layout.queues.get(queue)?.as_ref().err()
    }

    /// The tree, depth first, children by name; empty without hierarchy.
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

    /// A queue's node; `None`: it has no place in the tree, or no queue below has a job.
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

    /// Lists a node; its children are left open, the first one on top.
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
