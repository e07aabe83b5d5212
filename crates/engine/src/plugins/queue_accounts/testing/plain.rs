//! Plain model of the plugins: everything added up again, in floats and maps, by the written rules.

use std::collections::{BTreeMap, BTreeSet};

use super::cluster::DISK;
use crate::model::{ClusterState, JobPhase, JobRecord, ResourceAmounts, ResourceId, TaskRecord, TaskStatus};
use crate::policy::Compatibility;

/// Amounts by resource; cpu and memory are always there.
pub(crate) type Plain = BTreeMap<ResourceId, f64>;

/// Queue of the model.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlainQueue {
    pub(crate) jobs: usize,
    weight: i32,
    /// True if its record writes a negative amount.
    is_negative: bool,
    pub(crate) allocated: Plain,
    pub(crate) request: Plain,
    pub(crate) elastic: Plain,
    pub(crate) inqueue: Plain,
    pub(crate) guarantee: Plain,
    pub(crate) real_capability: Plain,
    pub(crate) deserved: Plain,
    pub(crate) share: f64,
}

pub(crate) fn empty() -> Plain {
    Plain::from([(ResourceId::CPU, 0.0), (ResourceId::MEMORY, 0.0)])
}

pub(crate) fn plain(amounts: Option<&ResourceAmounts>) -> Plain {
    let mut all = empty();
    for (id, amount) in amounts.into_iter().flat_map(ResourceAmounts::iter) {
        all.insert(id, amount as f64);
    }
    all
}

/// Amount of a resource, 0 if it is missing.
pub(crate) fn of(amounts: &Plain, id: ResourceId) -> f64 {
    amounts.get(&id).copied().unwrap_or(0.0)
}

pub(crate) fn add(to: &mut Plain, amounts: &Plain) {
    for (id, amount) in amounts {
        *to.entry(*id).or_default() += amount;
    }
}

/// Amounts that a record of a queue or a job writes: under `corrected` without negative ones.
pub(crate) fn written(amounts: Option<&ResourceAmounts>, compatibility: Compatibility) -> Plain {
    let mut all = plain(amounts);
    for (id, amount) in amounts.into_iter().flat_map(ResourceAmounts::iter) {
        if amount < 0 && compatibility == Compatibility::Corrected {
            all.remove(&id);
        }
    }
    add(&mut all, &empty());
    all
}

/// True if a record writes a negative amount.
fn is_negative(amounts: Option<&ResourceAmounts>) -> bool {
    amounts
        .into_iter()
        .flat_map(ResourceAmounts::iter)
        .any(|(_, amount)| amount < 0)
}

/// Amounts of `a` above those of `b`. A scalar of -1 is taken for unlimited.
pub(crate) fn excess(a: &Plain, b: &Plain) -> Plain {
    let mut all = empty();
    for id in a.keys().chain(b.keys()) {
        let (own, other, scalar) = (of(a, *id), of(b, *id), *id > ResourceId::MEMORY);
        if scalar && own == -1.0 {
            all.insert(*id, own);
        } else if own > other && !(scalar && other == -1.0) {
            all.insert(*id, own - other);
        }
    }
    all
}

/// Larger amount of each resource; negative scalars are left out.
pub(crate) fn larger(a: &Plain, b: &Plain) -> Plain {
    let mut all = Plain::new();
    for id in a.keys().chain(b.keys()) {
        let amounts = [a.get(id), b.get(id)].into_iter().flatten();
        let largest = amounts.copied().fold(f64::NEG_INFINITY, f64::max);
        if *id <= ResourceId::MEMORY || largest >= 0.0 {
            all.insert(*id, largest);
        }
    }
    all
}

fn at_most(a: &Plain, b: &Plain) -> bool {
    let fits = |(id, amount): (&ResourceId, &f64)| *amount < of(b, *id) || (amount - of(b, *id)).abs() < 0.1;
    a.iter().all(fits)
}

fn counts(task: &TaskRecord, compatibility: Compatibility) -> bool {
    let pipelined = compatibility == Compatibility::Corrected && task.status == TaskStatus::Pipelined;
    pipelined || task.status.is_allocated()
}

/// All queues of a cluster state by the model.
pub(crate) fn queues(state: &ClusterState, compatibility: Compatibility) -> BTreeMap<String, PlainQueue> {
    let mut total = empty();
    for (_, entry) in state.nodes().filter(|(_, entry)| entry.record.is_ready(compatibility)) {
        add(&mut total, &plain(Some(&entry.record.allocatable)));
    }
    let mut guaranteed = empty();
    for (_, stored) in state.queues().iter() {
        add(
            &mut guaranteed,
            &written(stored.record.guarantee.as_ref(), compatibility),
        );
    }
    let mut queues = BTreeMap::new();
    for (name, stored) in state.queues().iter() {
        let record = &stored.record;
        let mut real = excess(&total, &guaranteed);
        if compatibility == Compatibility::Corrected {
            // A resource of which all is guaranteed still limits what queues deserve.
            for id in total.keys() {
                real.entry(*id).or_insert(0.0);
            }
        }
        let guarantee = written(record.guarantee.as_ref(), compatibility);
        add(&mut real, &guarantee);
        if let Some(own) = record.capability.as_ref().filter(|capability| !capability.is_empty()) {
            let capability = written(Some(own), compatibility);
            let is_nothing = |id: ResourceId| own.get(id) == Some(0);
            for (id, amount) in &mut real {
                let plain = *id <= ResourceId::MEMORY;
                match capability.get(id) {
                    Some(limit) if *limit > 0.0 || !plain => *amount = amount.min(*limit),
                    Some(_) if compatibility == Compatibility::Corrected && is_nothing(*id) => *amount = 0.0,
                    _ => {}
                }
            }
        }
        let queue = PlainQueue {
            weight: record.weight.unwrap_or(1),
            is_negative: [&record.capability, &record.deserved, &record.guarantee]
                .iter()
                .any(|own| is_negative(own.as_ref())),
            guarantee,
            real_capability: real,
            ..PlainQueue::default()
        };
        queues.insert(name.to_string(), queue);
    }
    for (name, stored) in state.jobs().iter() {
        if let Some(queue) = queues.get_mut(&*stored.record.queue) {
            add_job(queue, state, name, &stored.record, compatibility);
        }
    }
    for (name, row) in state.reservations().iter() {
        let own = state.jobs().get(name).is_some_and(|job| job.record.queue == row.queue);
        if let Some(queue) = queues.get_mut(&*row.queue).filter(|_| !own) {
            *queue.inqueue.entry(ResourceId::CPU).or_default() += row.amounts[0].1 as f64;
        }
    }
    divide(&total, &mut queues, compatibility);
    queues
}

fn add_job(queue: &mut PlainQueue, state: &ClusterState, name: &str, job: &JobRecord, compatibility: Compatibility) {
    let (mut held, mut pending, mut gated, mut holding) = (empty(), empty(), empty(), 0);
    for (_, stored) in state.tasks().iter().filter(|(_, stored)| *stored.record.job == *name) {
        let task = &stored.record;
        let requests = plain(Some(&task.requests));
        if task.is_withheld(true) {
            add(&mut gated, &requests);
        }
        if counts(task, compatibility) {
            add(&mut held, &requests);
            holding += 1;
        } else if task.status == TaskStatus::Pending {
            add(&mut pending, &requests);
        }
    }
    queue.jobs += 1;
    add(&mut queue.allocated, &held);
    add(&mut queue.request, &held);
    add(&mut queue.request, &pending);
    let min = written(job.min_resources.as_ref(), compatibility);
    add(&mut queue.elastic, &excess(&held, &min));
    let mut inqueue = Plain::new();
    let admitted = job.phase == JobPhase::Inqueue || job.phase == JobPhase::Running && holding >= job.min_member;
    if admitted && job.min_resources.is_some() {
        for (id, amount) in &min {
            let left = amount - of(&held, *id);
            if left > 0.0 || *id > ResourceId::PODS && of(&held, *id) == 0.0 {
                inqueue.insert(*id, left);
            }
        }
        if compatibility.is_upstream() {
            inqueue.remove(&DISK);
        }
        if gated
            .iter()
            .any(|(id, amount)| *id != ResourceId::PODS && *amount > 0.0)
        {
            for (id, amount) in &mut inqueue {
                if *id <= ResourceId::MEMORY || of(&gated, *id) != 0.0 {
                    *amount = (*amount - of(&gated, *id)).max(0.0);
                }
            }
        }
    }
    if let Some(row) = state.reservations().get(name).filter(|row| row.queue == job.queue) {
        let promised = (row.amounts[0].1 as f64 - of(&held, ResourceId::CPU)).max(0.0);
        let own = inqueue.entry(ResourceId::CPU).or_default();
        *own = own.max(promised);
    }
    add(&mut queue.inqueue, &inqueue);
}

fn divide(total: &Plain, queues: &mut BTreeMap<String, PlainQueue>, compatibility: Compatibility) {
    let corrected = compatibility == Compatibility::Corrected;
    let takes = |queue: &PlainQueue| queue.jobs > 0 && !(corrected && (queue.weight < 1 || queue.is_negative));
    let mut met = BTreeSet::new();
    for (name, queue) in queues.iter_mut() {
        queue.deserved = empty();
        if !takes(queue) {
            queue.deserved = queue.guarantee.clone();
            met.insert(name.clone());
        }
    }
    let mut rest = total.clone();
    loop {
        let open = || queues.iter().filter(|(name, _)| !met.contains(*name));
        let weights: i64 = open().map(|(_, queue)| i64::from(queue.weight)).sum();
        if weights == 0 {
            break;
        }
        let old = rest.clone();
        let mut given = empty();
        for (name, queue) in queues.iter_mut() {
            if met.contains(name) {
                continue;
            }
            let was = queue.deserved.clone();
            for (id, amount) in &rest {
                *queue.deserved.entry(*id).or_default() += amount * (f64::from(queue.weight) / weights as f64);
            }
            for (id, amount) in &mut queue.deserved {
                let limit = queue.real_capability.get(id).copied().unwrap_or(f64::MAX);
                *amount = amount.min(limit).min(of(&queue.request, *id));
            }
            queue.deserved = larger(&queue.deserved, &queue.guarantee);
            if at_most(&queue.request, &queue.deserved) || queue.deserved == was {
                met.insert(name.clone());
            }
            add(&mut given, &excess(&queue.deserved, &was));
        }
        rest = excess(&rest, &given);
        let is_empty = rest.iter().all(|(id, amount)| *id == ResourceId::PODS || *amount < 0.1);
        if is_empty || rest == old {
            break;
        }
    }
    for queue in queues.values_mut() {
        let parts = queue.deserved.iter().filter(|(_, amount)| **amount >= 0.1);
        queue.share = parts
            .map(|(id, amount)| of(&queue.allocated, *id) / amount)
            .fold(0.0, f64::max);
    }
}
