//! Plain tree: a second implementation, computed completely from the records, by name.

use std::collections::{BTreeMap, BTreeSet};

use super::super::hierarchy::{self, HierarchyPath};
use crate::model::{ClusterState, NodeVector, ResourceId, TaskRecord, TaskStatus};
use crate::policy::Compatibility;

type AmountMap = BTreeMap<ResourceId, f64>;

#[derive(Default)]
struct PlainNode {
    weight: f64,
    jobs: Vec<String>,
    children: BTreeMap<String, PlainNode>,
}

/// Line of the tree: path, job or nothing, share, saturation, held amounts without zeros.
pub(super) type TreeLine = (String, Option<String>, f64, bool, Vec<(String, f64)>);

struct PlainTree<'a> {
    cluster_state: &'a ClusterState,
    compatibility: Compatibility,
    total: BTreeMap<ResourceId, i128>,
    demanding: BTreeSet<ResourceId>,
}

/// Lines of the whole tree: nodes after their children.
pub(super) fn plain_tree_lines(cluster_state: &ClusterState, compatibility: Compatibility) -> Vec<TreeLine> {
    let mut total: BTreeMap<ResourceId, i128> = BTreeMap::new();
    for (_, node) in cluster_state.nodes() {
        for (id, _) in node.record.allocatable.iter() {
            *total.entry(id).or_default() += node.exact(id, NodeVector::Allocatable).unwrap();
        }
    }
    let mut allocated: BTreeMap<ResourceId, i128> = BTreeMap::new();
    for (_, stored) in cluster_state
        .tasks()
        .iter()
        .filter(|(_, stored)| holds_resources(&stored.record))
    {
        for (id, amount) in stored.record.requests.iter() {
            *allocated.entry(id).or_default() += i128::from(amount);
        }
    }
    let demanding = |id: &&ResourceId| total[*id] > 0 && allocated.get(*id).copied().unwrap_or(0) < total[*id];
    let plain = PlainTree {
        cluster_state,
        compatibility,
        demanding: total.keys().filter(demanding).copied().collect(),
        total,
    };
    let mut root = PlainNode {
        weight: 1.0,
        ..PlainNode::default()
    };
    let records = || cluster_state.queues().iter().map(|(_, stored)| &stored.record);
    let legal = hierarchy::consistent_paths(records());
    for (name, stored) in cluster_state.jobs().iter() {
        let path: HierarchyPath = match compatibility {
            Compatibility::Corrected => legal[&stored.record.queue].clone().unwrap(),
            Compatibility::Upstream(_) => {
                hierarchy::lenient_path(&cluster_state.queues().get(&stored.record.queue).unwrap().record).unwrap()
            }
        };
        let mut at = &mut root;
        for (name, weight) in path.names.iter().zip(&path.weights) {
            at = at.children.entry(name.to_string()).or_insert_with(|| PlainNode {
                weight: *weight,
                ..PlainNode::default()
            });
        }
        at.jobs.push(name.to_string());
    }
    let mut lines = Vec::new();
    plain.node("root", &root, &mut lines);
    lines
}

fn holds_resources(task: &TaskRecord) -> bool {
    task.status.is_allocated() || task.status == TaskStatus::Pipelined
}

impl PlainTree<'_> {
    fn share(&self, held: &AmountMap, of: impl Fn(&ResourceId) -> bool) -> f64 {
        let counted = held
            .iter()
            .filter(|(id, _)| of(id) && self.total.get(id).is_some_and(|total| *total > 0));
        counted
            .map(|(id, amount)| amount / self.total[id] as f64)
            .fold(0.0, f64::max)
    }

    fn node(&self, path: &str, node: &PlainNode, lines: &mut Vec<TreeLine>) -> (f64, bool, AmountMap) {
        let mut children = Vec::new();
        for job in &node.jobs {
            let (share, saturated, held) = self.job(job);
            lines.push(self.tree_line(path, Some(job), share, saturated, &held));
            children.push((1.0, share, saturated, held));
        }
        for (name, child) in &node.children {
            let (share, saturated, held) = self.node(&format!("{path}/{name}"), child, lines);
            children.push((child.weight, share, saturated, held));
        }
        let upstream = self.compatibility.is_upstream();
        let per = |weight: f64| if upstream { 1.0 } else { weight };
        let mut measure = if upstream { 1.0 } else { f64::INFINITY };
        for (weight, share, saturated, _) in &children {
            if *share != 0.0 && !saturated {
                measure = f64::min(measure, share / per(*weight));
            }
        }
        let mut sum = AmountMap::new();
        for (weight, share, saturated, held) in &children {
            let factor = if *share == 0.0 {
                if upstream { 0.0 } else { 1.0 }
            } else if *saturated {
                1.0
            } else {
                measure * per(*weight) / share
            };
            for (id, amount) in held {
                *sum.entry(*id).or_default() += amount * factor;
            }
        }
        let share = self.share(&sum, |id| upstream || self.demanding.contains(id));
        let saturated = !children.is_empty() && children.iter().all(|(_, _, saturated, _)| *saturated);
        lines.push(self.tree_line(path, None, share, saturated, &sum));
        (share, saturated, sum)
    }

    fn job(&self, job: &str) -> (f64, bool, AmountMap) {
        let tasks = || {
            self.cluster_state
                .tasks()
                .iter()
                .map(|(_, stored)| &stored.record)
                .filter(|task| *task.job == *job)
        };
        let add = |sum: &mut BTreeMap<ResourceId, i128>, task: &TaskRecord| {
            for (id, amount) in task.requests.iter() {
                *sum.entry(id).or_default() += i128::from(amount);
            }
        };
        let (mut held, mut wanted) = (BTreeMap::new(), BTreeMap::new());
        tasks()
            .filter(|task| holds_resources(task))
            .for_each(|task| add(&mut held, task));
        tasks().for_each(|task| add(&mut wanted, task));
        let saturated = match self.compatibility {
            Compatibility::Upstream(_) => held
                .iter()
                .any(|(id, amount)| *amount > 0 && (*amount >= wanted[id] || !self.demanding.contains(id))),
            Compatibility::Corrected => tasks()
                .filter(|task| matches!(task.status, TaskStatus::Pending | TaskStatus::Releasing))
                .all(|task| {
                    task.requests
                        .iter()
                        .any(|(id, amount)| amount > 0 && !self.demanding.contains(&id))
                }),
        };
        let held: AmountMap = held.into_iter().map(|(id, amount)| (id, amount as f64)).collect();
        (self.share(&held, |_| true), saturated, held)
    }

    fn tree_line(&self, path: &str, job: Option<&String>, share: f64, saturated: bool, held: &AmountMap) -> TreeLine {
        let resources = self.cluster_state.resources();
        let held = held.iter().filter(|(_, amount)| **amount != 0.0);
        let mut held: Vec<(String, f64)> = held
            .map(|(id, amount)| (resources.name(*id).to_owned(), *amount))
            .collect();
        held.sort_by(|a, b| a.0.cmp(&b.0));
        (path.to_owned(), job.cloned(), share, saturated, held)
    }
}
