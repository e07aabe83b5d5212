//! The shares as people read them: accounts of jobs, and the whole tree.

use std::sync::Arc;

use super::Drf;
use super::share::{Exact, Floats, floats};
use super::tree::Figure;
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
pub struct TreeNode {
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
enum Child {
    Node(usize),
    Job(usize),
}

impl Drf {
    /// A job's account; `None`: there is no such job.
    pub fn job(&self, job: &str) -> Option<JobShare> {
        let number = self.shape.job_number(job)?;
        let held = &self.accounts.get(number)?.held;
        let dims = &self.shape.dims;
        Some(JobShare {
            share: dims.exact_share(held),
            dominant: dims.dominant(&floats(held), dims.divisors()).cloned(),
            held: self.named(held),
            requested: self.named(&self.shape.jobs.get(number)?.requested),
        })
    }

    /// What all jobs hold; zeros are left out.
    pub fn allocated(&self) -> Vec<(ResourceId, i128)> {
        self.named(&self.allocated)
    }

    /// The cluster: what all ready nodes have; zeros are left out.
    pub fn total(&self) -> Vec<(ResourceId, i128)> {
        self.named(self.shape.dims.total())
    }

    /// The dominant share of the root; `None` without hierarchy.
    pub fn root_share(&self) -> Option<f64> {
        self.tree.as_ref()?.node(&self.shape, 0).map(|figure| figure.share)
    }

    /// Why a queue has no place in the tree; `None`: it has one, or there is no such queue or no tree.
    pub fn queue_problem(&self, queue: &str) -> Option<&Problem> {
        self.shape.queues.get(queue)?.as_ref().err()
    }

    /// The tree, depth first, children by name; empty without hierarchy.
    pub fn tree(&self) -> Vec<TreeNode> {
        let mut nodes = Vec::new();
        let mut open = vec![Child::Node(0)];
        while let Some(child) = open.pop() {
            match child {
                Child::Node(number) => self.list_node(number, &mut nodes, &mut open),
                Child::Job(number) => nodes.extend(self.list_job(number)),
            }
        }
        nodes
    }

    /// A queue's node; `None`: it has no place in the tree, or no queue below has a job.
    pub fn queue_node(&self, queue: &str) -> Option<TreeNode> {
        let (tree, place) = (self.tree.as_ref()?, self.queue(queue).ok()?);
        let at = if place.depth == place.nodes.len() {
            place.nodes.last().copied().unwrap_or(0)
        } else {
            return None;
        };
        let node = self.shape.nodes.get(at)?;
        Some(TreeNode {
            weight: node.weight,
            ..self.tree_node(&node.path, None, &tree.node(&self.shape, at)?, tree.rules().divisors())
        })
    }

    /// Lists a node; its children are left open, the first one on top.
    fn list_node(&self, number: usize, nodes: &mut Vec<TreeNode>, open: &mut Vec<Child>) {
        let (Some(tree), Some(node)) = (&self.tree, self.shape.nodes.get(number)) else {
            return;
        };
        if let Some(figure) = tree.node(&self.shape, number) {
            nodes.push(TreeNode {
                weight: node.weight,
                ..self.tree_node(&node.path, None, &figure, tree.rules().divisors())
            });
        }
        let jobs = node
            .jobs
            .iter()
            .filter_map(|job| Some((&self.shape.jobs.get(*job)?.name, Child::Job(*job))));
        let inner = node.children.iter().map(|(name, child)| (name, Child::Node(*child)));
        let mut children: Vec<(&Arc<str>, Child)> = jobs.chain(inner).collect();
        children.sort_by(|a, b| b.0.cmp(a.0));
        open.extend(children.into_iter().map(|(_, child)| child));
    }

    fn list_job(&self, number: usize) -> Option<TreeNode> {
        let (tree, place) = (self.tree.as_ref()?, self.place(number)?);
        let path = &self.shape.nodes.get(place.node)?.path;
        let name = &self.shape.jobs.get(number)?.name;
        let figure = tree.job(place)?;
        Some(self.tree_node(path, Some(name), &figure, self.shape.dims.divisors()))
    }

    fn tree_node(&self, path: &str, job: Option<&Arc<str>>, figure: &Figure, divisors: &Floats) -> TreeNode {
        let dims = &self.shape.dims;
        let held = figure.held.iter().enumerate().filter(|(_, amount)| **amount != 0.0);
        TreeNode {
            path: path.into(),
            job: job.cloned(),
            weight: 0.0,
            share: figure.share,
            dominant: dims.dominant(&figure.held, divisors).cloned(),
            saturated: figure.saturated,
            held: held
                .filter_map(|(at, amount)| Some((dims.resource(at)?.0, *amount)))
                .collect(),
        }
    }

    fn named(&self, amounts: &Exact) -> Vec<(ResourceId, i128)> {
        let held = amounts.iter().enumerate().filter(|(_, amount)| **amount != 0);
        held.filter_map(|(at, amount)| Some((self.shape.dims.resource(at)?.0, *amount)))
            .collect()
    }
}
