//! The same tree, written again as plainly as can be: recomputed whole, from the records, by name.

use std::collections::{BTreeMap, BTreeSet};

use super::super::hierarchy::{self, Path};
use crate::engine::model::{ResourceId, TaskRecord, TaskStatus, Vector, View};
use crate::engine::policy::Compatibility;

type Amounts = BTreeMap<ResourceId, f64>;

#[derive(Default)]
struct Node {
    weight: f64,
    jobs: Vec<String>,
    children: BTreeMap<String, Node>,
}

/// A line of the tree: path, job or nothing, share, saturated, held without zeros.
pub(super) type Line = (String, Option<String>, f64, bool, Vec<(ResourceId, f64)>);

struct Plain<'a> {
    view: &'a View,
    compatibility: Compatibility,
    total: BTreeMap<ResourceId, i128>,
    demanding: BTreeSet<ResourceId>,
}

/// The whole tree: nodes after their children.
pub(super) fn tree(view: &View, compatibility: Compatibility) -> Vec<Line> {
    let mut total: BTreeMap<ResourceId, i128> = BTreeMap::new();
    for (_, node) in view.nodes() {
        for (id, _) in node.record.allocatable.iter() {
            *total.entry(id).or_default() += node.exact(id, Vector::Allocatable).unwrap();
        }
    }
    let mut allocated: BTreeMap<ResourceId, i128> = BTreeMap::new();
    for (_, stored) in view.tasks().iter().filter(|(_, stored)| counts(&stored.record)) {
        for (id, amount) in stored.record.requests.iter() {
            *allocated.entry(id).or_default() += i128::from(amount);
        }
    }
    let demanding = |id: &&ResourceId| total[*id] > 0 && allocated.get(*id).copied().unwrap_or(0) < total[*id];
    let plain = Plain {
        view,
        compatibility,
        demanding: total.keys().filter(demanding).copied().collect(),
        total,
    };
    let mut root = Node {
        weight: 1.0,
        ..Node::default()
    };
    let records = || view.queues().iter().map(|(_, stored)| &stored.record);
    let legal = hierarchy::legal(records());
    for (name, stored) in view.jobs().iter() {
        let path: Path = match compatibility {
            Compatibility::Corrected => legal[&stored.record.queue].clone().unwrap(),
            Compatibility::Upstream => {
                hierarchy::lenient(&view.queues().get(&stored.record.queue).unwrap().record).unwrap()
            }
        };
        let mut at = &mut root;
        for (name, weight) in path.names.iter().zip(&path.weights) {
            at = at.children.entry(name.to_string()).or_insert_with(|| Node {
                weight: *weight,
                ..Node::default()
            });
        }
        at.jobs.push(name.to_string());
    }
    let mut lines = Vec::new();
    plain.node("root", &root, &mut lines);
    lines
}

fn counts(task: &TaskRecord) -> bool {
    task.status.is_allocated() || task.status == TaskStatus::Pipelined
}

impl Plain<'_> {
    fn share(&self, held: &Amounts, of: impl Fn(&ResourceId) -> bool) -> f64 {
        let counted = held
            .iter()
            .filter(|(id, _)| of(id) && self.total.get(id).is_some_and(|total| *total > 0));
        counted
            .map(|(id, amount)| amount / self.total[id] as f64)
            .fold(0.0, f64::max)
    }

    fn node(&self, path: &str, node: &Node, lines: &mut Vec<Line>) -> (f64, bool, Amounts) {
        let mut children = Vec::new();
        for job in &node.jobs {
            let (share, saturated, held) = self.job(job);
            lines.push(line(path, Some(job), share, saturated, &held));
            children.push((1.0, share, saturated, held));
        }
        for (name, child) in &node.children {
            let (share, saturated, held) = self.node(&format!("{path}/{name}"), child, lines);
            children.push((child.weight, share, saturated, held));
        }
        let upstream = self.compatibility == Compatibility::Upstream;
        let per = |weight: f64| if upstream { 1.0 } else { weight };
        let mut measure = if upstream { 1.0 } else { f64::INFINITY };
        for (weight, share, saturated, _) in &children {
            if *share != 0.0 && !saturated {
                measure = f64::min(measure, share / per(*weight));
            }
        }
        let mut sum = Amounts::new();
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
        lines.push(line(path, None, share, saturated, &sum));
        (share, saturated, sum)
    }

    fn job(&self, job: &str) -> (f64, bool, Amounts) {
        let tasks = || {
            self.view
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
            .filter(|task| counts(task))
            .for_each(|task| add(&mut held, task));
        tasks().for_each(|task| add(&mut wanted, task));
        let saturated = match self.compatibility {
            Compatibility::Upstream => held
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
        let held: Amounts = held.into_iter().map(|(id, amount)| (id, amount as f64)).collect();
        (self.share(&held, |_| true), saturated, held)
    }
}

fn line(path: &str, job: Option<&String>, share: f64, saturated: bool, held: &Amounts) -> Line {
    let held = held
        .iter()
        .filter(|(_, amount)| **amount != 0.0)
        .map(|(id, amount)| (*id, *amount))
        .collect();
    (path.to_owned(), job.cloned(), share, saturated, held)
}
