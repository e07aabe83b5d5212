//! Accounts of jobs and queues, and the whole tree.

use std::sync::Arc;

use super::DrfState;
use super::columns::ChildShare;
use super::share::{FloatAmounts, to_floats};
use crate::model::{ClusterState, JobRecord, Problem};
use crate::plugin::{AccountAmounts, PluginAccount, PluginAccounts, QueueTreeNode};

/// Child of an inner node, by its number.
enum TreeChild {
    Node(usize),
    Job(usize),
}

impl DrfState {
    /// Amounts that all jobs hold, without zeros.
    pub fn total_allocated(&self) -> AccountAmounts {
        self.named(&to_floats(&self.allocated))
    }

    /// Node of a queue; `None`: it is not in the tree, or no queue below it has a job.
    fn queue_node(&self, queue: &str) -> Option<QueueTreeNode> {
        let place = self.queue_position(queue).ok()?;
        if place.depth != place.nodes.len() {
            return None;
        }
        self.inner_node(place.nodes.last().copied().unwrap_or(0))
    }

    /// Inner node of a number.
    fn inner_node(&self, number: usize) -> Option<QueueTreeNode> {
        let (tree, node) = (self.tree.as_ref()?, self.layout.nodes.get(number)?);
        let share = tree.node_share(&self.layout, number)?;
        Some(QueueTreeNode {
            weight: node.weight,
            ..self.tree_node(&node.path, None, &share, &tree.rules.divisors)
        })
    }

    /// Appends a node and pushes its children, the first one on top.
    fn list_node(&self, number: usize, nodes: &mut Vec<QueueTreeNode>, open: &mut Vec<TreeChild>) {
        let Some(node) = self.layout.nodes.get(number) else {
            return;
        };
        nodes.extend(self.inner_node(number));
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

    fn list_job(&self, number: usize) -> Option<QueueTreeNode> {
        let (tree, place) = (self.tree.as_ref()?, self.leaf_position(number)?);
        let path = &self.layout.nodes.get(place.node)?.path;
        let name = &self.layout.jobs.get(number)?.name;
        let measurement = tree.job_share(place)?;
        Some(self.tree_node(path, Some(name), &measurement, &self.layout.dimensions.divisors))
    }

    fn tree_node(
        &self,
        path: &str,
        job: Option<&Arc<str>>,
        measurement: &ChildShare,
        divisors: &FloatAmounts,
    ) -> QueueTreeNode {
        let dominant = self.layout.dimensions.dominant(&measurement.held, divisors);
        QueueTreeNode {
            path: path.into(),
            job: job.cloned(),
            weight: 0.0,
            share: measurement.share,
            dominant: dominant.cloned(),
            saturated: measurement.saturated,
            held: self.named(&measurement.held),
        }
    }

    /// Amounts by name, without zeros.
    fn named(&self, amounts: &[f64]) -> AccountAmounts {
        let held = amounts.iter().enumerate().filter(|(_, amount)| **amount != 0.0);
        let named = |(at, amount): (usize, &f64)| {
            let (_, name) = self.layout.dimensions.resource(at)?;
            Some((Arc::clone(name), *amount))
        };
        held.filter_map(named).collect()
    }
}

impl PluginAccounts for DrfState {
    fn job_account(&self, _: &ClusterState, job: &JobRecord) -> Option<PluginAccount> {
        let number = self.layout.job_number(&job.name)?;
        let held = to_floats(&self.accounts.get(number)?.held);
        let dims = &self.layout.dimensions;
        Some(PluginAccount {
            allocated: self.named(&held),
            request: self.named(&to_floats(&self.layout.jobs.get(number)?.requested)),
            share: dims.share(&held),
            dominant_resource: dims.dominant(&held, &dims.divisors).cloned().unwrap_or_default(),
            ..PluginAccount::default()
        })
    }

    fn queue_account(&self, queue: &str) -> Option<PluginAccount> {
        let node = self.queue_node(queue)?;
        Some(PluginAccount {
            allocated: node.held,
            share: node.share,
            dominant_resource: node.dominant.unwrap_or_default(),
            ..PluginAccount::default()
        })
    }

    fn queue_problem(&self, queue: &str) -> Option<&Problem> {
        self.layout.queues.get(queue)?.as_ref().err()
    }

    fn queue_tree(&self) -> Vec<QueueTreeNode> {
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
}
