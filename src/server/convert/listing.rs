//! Records as they are shown, page by page, with what is derived for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::derived::DerivedSet;
use crate::engine::model::{
    Amounts, Faults, JobPhase, JobRecord, NodeEntry, NodeRecord, QueueRecord, QueueState, ResourceId, ResourceTable,
    Slot, Stored, Table, TaskRecord, TaskShape, TaskStatus, Texts, Vector, View,
};
use crate::engine::plugins::drf::{self, Drf};
use crate::server::pb;

use super::accounts;
use super::amounts::{answer_amounts, answer_totals, resource_list};
use super::batch::{problem, problems};

/// Records on a page when nothing is said.
pub const PAGE: u32 = 500;

/// Which records are wanted, and where to go on.
#[derive(Clone, Debug)]
pub struct Wanted {
    names: BTreeSet<String>,
    after: String,
    size: usize,
}

impl Wanted {
    /// Reads the names and the page of a listing.
    pub fn read(names: Vec<String>, page: Option<pb::Page>, most: usize) -> Self {
        let pb::Page { size, token } = page.unwrap_or_default();
        Self {
            names: names.into_iter().collect(),
            after: token,
            size: page_size(size, most),
        }
    }

    /// The name after which it goes on.
    pub fn after(&self) -> &str {
        &self.after
    }

    /// Cuts a page out of what comes by name, and says where the next one starts.
    pub fn page<'a, T>(&self, sorted: impl Iterator<Item = (&'a str, T)>) -> (Vec<T>, String) {
        let mut token = String::new();
        let mut page = Vec::new();
        let mut last = "";
        for (name, record) in sorted {
            if page.len() == self.size {
                last.clone_into(&mut token);
                break;
            }
            last = name;
            page.push(record);
        }
        (page, token)
    }

    /// A page of a table.
    fn rows<'a, R>(&'a self, table: &'a Table<Arc<Stored<R>>>) -> (Vec<&'a Arc<Stored<R>>>, String) {
        if self.names.is_empty() {
            return self.page(table.after(&self.after).map(|(name, row)| (&**name, row)));
        }
        let named = self.names.iter().filter(|name| **name > self.after);
        self.page(named.filter_map(|name| Some((name.as_str(), table.get(name)?))))
    }
}

/// The size of a page, which has at most so many records.
pub fn page_size(size: u32, most: usize) -> usize {
    let size = if size == 0 { PAGE } else { size };
    (size as usize).min(most)
}

/// A page of nodes.
pub fn nodes(view: &View, derived: &DerivedSet, wanted: &Wanted) -> (Vec<pb::NodeStatus>, String) {
    let status = |(slot, entry): (Slot, &Arc<NodeEntry>)| node_status(slot, entry, view.resources(), derived);
    if wanted.names.is_empty() {
        let by_name: BTreeMap<&str, (Slot, &Arc<NodeEntry>)> = view
            .nodes()
            .map(|(slot, entry)| (&*entry.record.name, (slot, entry)))
            .filter(|(name, _)| **name > *wanted.after || wanted.after.is_empty())
            .collect();
        let (page, token) = wanted.page(by_name.into_iter());
        return (page.into_iter().map(status).collect(), token);
    }
    let named = wanted.names.iter().filter(|name| **name > wanted.after);
    let (page, token) = wanted.page(named.filter_map(|name| {
        let slot = view.slot_of(name)?;
        Some((name.as_str(), (slot, view.node(slot)?)))
    }));
    (page.into_iter().map(status).collect(), token)
}

/// A page of queues.
pub fn queues(view: &View, derived: &DerivedSet, wanted: &Wanted) -> (Vec<pb::QueueStatus>, String) {
    let (page, token) = wanted.rows(view.queues());
    let status = |stored: &Arc<Stored<QueueRecord>>| pb::QueueStatus {
        queue: Some(queue(&stored.record, view.resources())),
        source: stored.source.to_string(),
        accounts: accounts::of_queue(&stored.record.name, derived, view.resources()),
        invalid: queue_faults(stored, derived),
    };
    (page.into_iter().map(status).collect(), token)
}

/// A page of jobs.
pub fn jobs(view: &View, derived: &DerivedSet, wanted: &Wanted) -> (Vec<pb::JobStatus>, String) {
    let (page, token) = wanted.rows(view.jobs());
    let allocated = |name: &str| {
        let totals = view.job_allocated(name);
        totals.map(|totals| answer_totals(totals, view.resources()))
    };
    let status = |stored: &Arc<Stored<JobRecord>>| pb::JobStatus {
        job: Some(job(&stored.record, view.resources())),
        source: stored.source.to_string(),
        accounts: accounts::of_job(view, &stored.record, derived),
        invalid: faults(stored.invalid()),
        allocated: allocated(&stored.record.name).unwrap_or_default(),
    };
    (page.into_iter().map(status).collect(), token)
}

/// A page of tasks.
pub fn tasks(view: &View, wanted: &Wanted) -> (Vec<pb::StoredTask>, String) {
    let (page, token) = wanted.rows(view.tasks());
    let status = |stored: &Arc<Stored<TaskRecord>>| pb::StoredTask {
        task: Some(task(&stored.record, view.resources())),
        source: stored.source.to_string(),
        assumed: view.is_assumed(&stored.record.name),
        card: stored.record.card.to_string(),
        invalid: faults(stored.invalid()),
    };
    (page.into_iter().map(status).collect(), token)
}

/// Faults of a newer record, and why the queue has no place in the hierarchy.
fn queue_faults(stored: &Stored<QueueRecord>, derived: &DerivedSet) -> Vec<pb::Problem> {
    let drf = derived.get::<Drf>(drf::NAME);
    let place = drf.and_then(|drf| drf.queue_problem(&stored.record.name));
    let mut all = faults(stored.invalid());
    all.extend(place.map(problem));
    all
}

fn faults(invalid: Option<&Faults>) -> Vec<pb::Problem> {
    invalid.map(|found| problems(found)).unwrap_or_default()
}

fn node_status(slot: Slot, entry: &NodeEntry, resources: &ResourceTable, derived: &DerivedSet) -> pb::NodeStatus {
    let ids: BTreeSet<ResourceId> = entry.resources().collect();
    let vector = |vector: Vector| {
        let amounts = ids.iter().filter_map(|id| Some((*id, entry.exact(*id, vector)?)));
        answer_amounts(amounts, resources)
    };
    pb::NodeStatus {
        node: Some(node(&entry.record, resources)),
        source: entry.source.to_string(),
        used: vector(Vector::Used),
        releasing: vector(Vector::Releasing),
        pipelined: vector(Vector::Pipelined),
        cards: accounts::cards(&entry.record.name, resources, derived),
        invalid: faults(entry.invalid.as_ref()),
        slot,
    }
}

fn texts(texts: &Texts) -> BTreeMap<String, String> {
    texts
        .iter()
        .map(|(name, text)| (name.to_string(), text.to_string()))
        .collect()
}

fn time(seconds: Option<i64>) -> Option<prost_types::Timestamp> {
    seconds.map(|seconds| prost_types::Timestamp { seconds, nanos: 0 })
}

fn node(record: &NodeRecord, resources: &ResourceTable) -> pb::Node {
    let NodeRecord {
        name,
        uid,
        labels,
        allocatable,
        oversubscription,
        ready,
        unschedulable,
        unattributed_used,
        unattributed_nonzero_used,
    } = record;
    let optional = |amounts: &Option<Amounts>| amounts.as_ref().map(|amounts| resource_list(amounts, resources));
    pb::Node {
        name: name.to_string(),
        uid: uid.to_string(),
        labels: texts(labels),
        allocatable: Some(resource_list(allocatable, resources)),
        oversubscription: optional(oversubscription),
        ready: *ready,
        unschedulable: *unschedulable,
        unattributed_used: optional(unattributed_used),
        unattributed_nonzero_used: optional(unattributed_nonzero_used),
    }
}

fn queue(record: &QueueRecord, resources: &ResourceTable) -> pb::Queue {
    let QueueRecord {
        name,
        uid,
        creation_time,
        annotations,
        weight,
        priority,
        state,
        parent,
        reclaimable,
        capability,
        deserved,
        guarantee,
    } = record;
    let optional = |amounts: &Option<Amounts>| amounts.as_ref().map(|amounts| resource_list(amounts, resources));
    let state = match state {
        QueueState::Unspecified => pb::QueueState::Unspecified,
        QueueState::Open => pb::QueueState::Open,
        QueueState::Closed => pb::QueueState::Closed,
        QueueState::Closing => pb::QueueState::Closing,
        QueueState::Unknown => pb::QueueState::Unknown,
    };
    pb::Queue {
        name: name.to_string(),
        uid: uid.to_string(),
        creation_time: time(*creation_time),
        annotations: texts(annotations),
        weight: *weight,
        priority: *priority,
        state: state.into(),
        parent: parent.to_string(),
        reclaimable: *reclaimable,
        capability: optional(capability),
        deserved: optional(deserved),
        guarantee: optional(guarantee),
    }
}

fn job(record: &JobRecord, resources: &ResourceTable) -> pb::Job {
    let JobRecord {
        name,
        uid,
        queue,
        creation_time,
        priority,
        phase,
        min_member,
        min_resources,
        annotations,
    } = record;
    let phase = match phase {
        JobPhase::Unspecified => pb::JobPhase::Unspecified,
        JobPhase::Pending => pb::JobPhase::Pending,
        JobPhase::Inqueue => pb::JobPhase::Inqueue,
        JobPhase::Running => pb::JobPhase::Running,
        JobPhase::Unknown => pb::JobPhase::Unknown,
        JobPhase::Completed => pb::JobPhase::Completed,
    };
    pb::Job {
        name: name.to_string(),
        uid: uid.to_string(),
        queue: queue.to_string(),
        creation_time: time(*creation_time),
        priority: *priority,
        phase: phase.into(),
        min_member: *min_member,
        min_resources: min_resources.as_ref().map(|amounts| resource_list(amounts, resources)),
        annotations: texts(annotations),
    }
}

fn task(record: &TaskRecord, resources: &ResourceTable) -> pb::Task {
    let TaskRecord {
        name,
        uid,
        job,
        status,
        node,
        creation_time,
        shape,
    } = record;
    let TaskShape {
        priority,
        gated,
        nominated_node,
        annotations,
        requests,
        limits,
        nonzero_requests,
        counted_requests,
        card: _,
    } = &**shape;
    let optional = |amounts: &Option<Box<Amounts>>| amounts.as_ref().map(|amounts| resource_list(amounts, resources));
    pb::Task {
        name: name.to_string(),
        uid: uid.to_string(),
        job: job.to_string(),
        priority: *priority,
        status: task_status(*status).into(),
        node: node.to_string(),
        gated: *gated,
        nominated_node: nominated_node.to_string(),
        annotations: texts(annotations),
        requests: Some(resource_list(&without_pod(requests), resources)),
        limits: optional(limits),
        nonzero_requests: optional(nonzero_requests),
        counted_requests: optional(counted_requests),
        creation_time: time(creation_time.seconds()),
    }
}

/// The requests as they were sent: the engine's own `pods: 1` is taken out again.
fn without_pod(requests: &Amounts) -> Amounts {
    let sent = requests.iter().map(|(id, amount)| {
        let own = i64::from(id == ResourceId::PODS);
        (id, amount - own)
    });
    sent.filter(|(id, amount)| *id != ResourceId::PODS || *amount > 0)
        .collect()
}

fn task_status(status: TaskStatus) -> pb::TaskStatus {
    match status {
        TaskStatus::Pending => pb::TaskStatus::Pending,
        TaskStatus::Allocated => pb::TaskStatus::Allocated,
        TaskStatus::Pipelined => pb::TaskStatus::Pipelined,
        TaskStatus::Binding => pb::TaskStatus::Binding,
        TaskStatus::Bound => pb::TaskStatus::Bound,
        TaskStatus::Running => pb::TaskStatus::Running,
        TaskStatus::Releasing => pb::TaskStatus::Releasing,
        TaskStatus::Succeeded => pb::TaskStatus::Succeeded,
        TaskStatus::Failed => pb::TaskStatus::Failed,
        TaskStatus::Unknown => pb::TaskStatus::Unknown,
    }
}
