//! Task classes: the part of a task that plugins read. Tasks that differ only in name are one class.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use super::amounts::{ResourceAmounts, ResourceId};
use super::constraints::PodConstraints;
use super::pod_identity::PodIdentity;
use super::records::TaskRecord;
use super::resource_name::ResourceKind;
use super::resource_table::ResourceTable;
use super::text_map::{TextMap, find_text};

/// Tolerance in Volcano's units: a request below it is ignored, and amounts that differ by less are equal. For example,
/// 0.05 milli-cores are not a request.
pub const MIN_AMOUNT: f64 = 0.1;

/// One resource that a task requests.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedAmount {
    /// Id of the resource. For a name that the cluster state does not have: an id that nodes never have.
    pub id: ResourceId,
    /// Name of the resource.
    pub name: Arc<str>,
    /// Amount in the resource's unit; at least [`MIN_AMOUNT`].
    pub amount: f64,
    /// Amount in thousandths of cpu, and in whole units of anything else, rounded up.
    pub whole: i64,
    /// Amount that `NodeResourcesFitPlus` adds to a node for it: thousandths of cpu, whole units of anything else.
    pub counted: i64,
}

/// Amounts at or above [`MIN_AMOUNT`] are equal if their bits are.
impl Hash for RequestedAmount {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            id,
            name,
            amount,
            whole,
            counted,
        } = self;
        (id, name, amount.to_bits(), whole, counted).hash(state);
    }
}

impl RequestedAmount {
    /// Amount of a task's request; `None`: it is too small, or the resource has no name here.
    fn of(task: &TaskRecord, (id, amount): (ResourceId, i64), resources: &ResourceTable) -> Option<Self> {
        let amount = Some(amount as f64).filter(|amount| *amount >= MIN_AMOUNT)?;
        Some(Self {
            id,
            name: Arc::clone(resources.shared_name(id)?),
            amount,
            whole: task
                .requests
                .whole_units(id)
                .unwrap_or_else(|| task.kubernetes_request(id)),
            counted: task.counted_request(id),
        })
    }
}

/// Part of a task that plugins read.
#[derive(Clone, Debug, Hash, PartialEq)]
pub struct TaskClass {
    /// Requested amounts, the pod itself included, in the order of all sums: cpu, memory, then by name. Among them are
    /// object quotas (`count/pods`) of the requests by the rules of kube-scheduler.
    pub requested: Vec<RequestedAmount>,
    /// Scalars with a request of 0.
    pub written_zeros: Vec<(ResourceId, Arc<str>)>,
    /// Declared annotations; plugins declare which they read.
    pub annotations: TextMap,
    /// Non-zero requests of the containers, cpu in thousandths and memory in bytes.
    pub container_nonzero: [i64; 2],
    /// Requests of cpu and memory of the containers by the rules of kube-scheduler. `None`: equal to the pod's.
    pub container_requests: Option<[i64; 2]>,
    /// Requests by the rules of kube-scheduler, if they differ from `requested`.
    pub kubernetes_requests: Option<Box<ResourceAmounts>>,
    /// Constraints on nodes and on other pods; `None`: the task has none.
    pub constraints: Option<Arc<PodConstraints>>,
    /// Constraints of the first task of the same template in the query. Set only if a plugin of the query evaluates
    /// only the first task of a template.
    pub template_constraints: Option<Arc<PodConstraints>>,
    /// Namespace and labels; set only if a plugin of the query evaluates terms about pods.
    pub pod: Option<PodIdentity>,
    /// Account that the task is charged to; set only if a plugin of the query declares that it reads it.
    pub charge: Option<ChargedAccount>,
}

/// Account that a task is charged to, and the amounts charged.
#[derive(Clone, Debug, Hash, PartialEq)]
pub struct ChargedAccount {
    /// Queue of the task's job; empty: the job or its queue does not exist.
    pub queue: Arc<str>,
    /// Job of the task if a plugin of the query reads what the job holds; else empty.
    pub job: Arc<str>,
    /// Card of the evaluated placement. Empty: the placement has no card, or no plugin reads the job.
    pub card: Arc<str>,
    /// Name of the task if a plugin of the query tells the tasks of its job apart; else empty.
    pub task: Arc<str>,
    /// All requests of the task.
    pub requests: ResourceAmounts,
    /// Limits of the task.
    pub limits: Option<Box<ResourceAmounts>>,
}

impl TaskClass {
    /// Class of a task whose resources are named by `resources`.
    pub fn of(task: &TaskRecord, resources: &ResourceTable) -> Self {
        let mut requested: Vec<RequestedAmount> = task
            .requests
            .iter()
            .filter_map(|requested| RequestedAmount::of(task, requested, resources))
            .collect();
        if let Some(counted) = &task.kubernetes_requests {
            let others = counted.iter().filter(|(id, _)| task.requests.get(*id).is_none());
            let others = others.filter_map(|requested| RequestedAmount::of(task, requested, resources));
            requested.extend(others.filter(|own| ResourceKind::of(&own.name) == ResourceKind::CountQuota));
        }
        requested.sort_by(|a, b| sum_order(a).cmp(&sum_order(b)));
        let zeros = task
            .requests
            .iter()
            .filter(|(id, amount)| *amount == 0 && *id > ResourceId::PODS);
        Self {
            requested,
            written_zeros: zeros
                .filter_map(|(id, _)| Some((id, Arc::clone(resources.shared_name(id)?))))
                .collect(),
            container_nonzero: [ResourceId::CPU, ResourceId::MEMORY].map(|id| task.container_nonzero_request(id)),
            container_requests: task.container_requests.as_deref().map(|own| {
                let amount = |id| own.whole_units(id).unwrap_or(0);
                [own.get(ResourceId::CPU).unwrap_or(0), amount(ResourceId::MEMORY)]
            }),
            kubernetes_requests: task.kubernetes_requests.clone(),
            annotations: Arc::clone(&task.annotations),
            constraints: task.constraints.clone(),
            template_constraints: None,
            pod: None,
            charge: None,
        }
    }

    /// Class for plugins that read the charged account. `job` is not empty if they also read what the job holds.
    #[must_use]
    pub fn charged(self, task: &TaskRecord, queue: Arc<str>, job: Arc<str>, name: Arc<str>) -> Self {
        let charge = ChargedAccount {
            task: name,
            queue,
            card: Arc::clone(if job.is_empty() { &job } else { &task.card }),
            job,
            requests: task.requests.clone(),
            limits: task.limits.clone(),
        };
        Self {
            charge: Some(charge),
            ..self
        }
    }

    /// Constraints of the class, empty if it has none.
    pub fn constraints(&self) -> &PodConstraints {
        static NONE: LazyLock<PodConstraints> = LazyLock::new(PodConstraints::default);
        self.constraints.as_deref().unwrap_or(&NONE)
    }

    /// Requests that Volcano schedules by. Volcano ignores object quotas, such as `count/pods`.
    pub fn counted_by_volcano(&self) -> impl Iterator<Item = &RequestedAmount> {
        let counts = |requested: &&RequestedAmount| ResourceKind::of(&requested.name).counted_by_volcano();
        self.requested.iter().filter(counts)
    }

    /// Requested amount of a resource; 0 if it is not requested.
    pub fn amount(&self, id: ResourceId) -> f64 {
        self.requested
            .iter()
            .find(|requested| requested.id == id)
            .map_or(0.0, |requested| requested.amount)
    }

    /// Request of a resource by the rules of kube-scheduler: thousandths of cpu, whole units of other resources.
    pub fn kubernetes_request(&self, id: ResourceId) -> i64 {
        if let Some(counted) = &self.kubernetes_requests {
            return counted.whole_units(id).unwrap_or(0);
        }
        let own = self.requested.iter().find(|requested| requested.id == id);
        own.map_or(0, |requested| requested.whole)
    }

    /// Text of an annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        find_text(&self.annotations, name)
    }
}

fn sum_order(requested: &RequestedAmount) -> (u8, &str) {
    match requested.id {
        ResourceId::CPU => (0, ""),
        ResourceId::MEMORY => (1, ""),
        _ => (2, &requested.name),
    }
}
