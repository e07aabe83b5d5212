//! Changes that let a queue admit what it rejects, each with the query that shows whether it helps: another capability or
//! guarantee, more nodes, or a smaller request.

use std::collections::{BTreeMap, BTreeSet};

use super::entitlement::by_name;
use super::hint::{Hint, HintTrial};
use super::phrases::{self, QuotaUsage};
use super::quota::reason_queue;
use super::report::{AdmissionReport, RejectionReason};
use super::units::to_quantity;
use super::verdict_parts::VerdictInput;
use crate::to_count;
use pb::admit_subject::Subject;
use pumice_console::output;
use pumice_engine::model::RejectionCode;
use pumice_protocol::v1 as pb;

/// Annotation of a job with its numbers of cards by name.
const CARD_REQUEST: &str = "volcano.sh/card.request";
/// Name of the node that is added to a copy of the state.
const MORE_NODES: &str = "pumice-more-nodes";

/// Rejection by a quota.
#[derive(Clone, Copy)]
pub(super) struct RejectedByQuota<'a> {
    /// Queue whose quota it is: the job's own, or one above it.
    pub(super) queue: &'a str,
    pub(super) reason: &'a RejectionReason,
    pub(super) quota: &'a QuotaUsage,
    /// Subject of the Admit request; `None`: the request cannot be repeated.
    pub(super) subject: Option<&'a Subject>,
}

/// Upper limits of a queue on one resource, in units for people.
struct BindingLimits {
    /// Capability of the queue; `None`: no limit.
    capability: Option<f64>,
    /// Amount that it may hold.
    bound: f64,
    /// Guarantees of other queues without queues below them, largest first.
    others: Vec<(String, f64)>,
}

impl BindingLimits {
    fn of(input: VerdictInput<'_>, case: &RejectedByQuota<'_>) -> Option<Self> {
        let (queues, resource) = (&input.known.queues, case.reason.resource.as_str());
        let account = |status: &'_ pb::QueueStatus| {
            let mut accounts = status.accounts.iter();
            accounts.find(|account| account.plugin == case.reason.plugin).cloned()
        };
        let of = |amounts: &[pb::Amount]| by_name(amounts).get(resource).copied();
        let own = account(queues.get(case.queue)?)?;
        let records = queues.values().filter_map(|status| status.queue.as_ref());
        let parents: BTreeSet<&str> = records.map(|record| record.parent.as_str()).collect();
        let others = queues
            .iter()
            .filter(|(name, _)| *name != case.queue && !parents.contains(name.as_str()));
        let guarantee = |(name, status): (&String, &pb::QueueStatus)| {
            let amount = of(&account(status)?.guarantee).filter(|amount| *amount > 0.0)?;
            Some((name.clone(), amount))
        };
        let mut others: Vec<(String, f64)> = others.filter_map(guarantee).collect();
        others.sort_by(|one, other| other.1.total_cmp(&one.1));
        Some(Self {
            capability: of(&own.capability),
            bound: of(&own.real_capability).unwrap_or(case.quota.bound),
            others,
        })
    }

    /// True if guarantees of other queues leave less than the capability.
    fn is_of_guarantees(&self) -> bool {
        !self.others.is_empty() && self.capability.is_none_or(|capability| self.bound < capability)
    }
}

/// True if the reason compares with what a queue may hold.
fn is_capability(reason: &RejectionReason) -> bool {
    let codes = [
        RejectionCode::QueueOverCapability,
        RejectionCode::InsufficientCPUQuota,
        RejectionCode::InsufficientMemoryQuota,
    ];
    codes.iter().any(|code| code.name() == reason.code)
}

fn is_deserved(reason: &RejectionReason) -> bool {
    reason.code == RejectionCode::QueueOverDeserved.name()
}

/// Guarantees of other queues that keep the queue of a rejection below what it asks for.
pub(super) fn other_guarantees(input: VerdictInput<'_>, case: &RejectedByQuota<'_>) -> Option<Hint> {
    let limits = BindingLimits::of(input, case).filter(BindingLimits::is_of_guarantees)?;
    let binds = is_capability(case.reason) || (is_deserved(case.reason) && case.quota.never_fits());
    let (holder, amount) = limits.others.first().filter(|_| binds)?;
    let shown = |value: f64| output::with_unit(value, &case.quota.unit);
    let (resource, queue) = (&case.reason.resource, case.queue);
    let more = match limits.others.len() {
        1 => String::new(),
        several => format!(", and {} more queues are guaranteed some", several.saturating_sub(1)),
    };
    let text = format!(
        "queue {holder} is guaranteed {} of the {} of {resource} that the nodes have{more}: queue {queue} may hold {}",
        shown(*amount),
        shown(input.rooms.total(resource)),
        shown(limits.bound)
    );
    Some(text.into())
}

/// Changes of quotas and nodes, each with its query; `None`: such a reason has another remedy.
pub(super) fn changes(
    input: VerdictInput<'_>,
    admission: &AdmissionReport,
    case: &RejectedByQuota<'_>,
) -> Option<Vec<Hint>> {
    let (limits, subject) = BindingLimits::of(input, case).zip(case.subject)?;
    let (reason, quota) = (case.reason, case.quota);
    let tried =
        |text: String, changed: pb::Cluster| Hint::tried(text, HintTrial::Permits(Box::new(subject.clone()), changed));
    if is_deserved(reason) && !quota.never_fits() && quota.total <= quota.bound {
        let total = output::with_unit(quota.total, &quota.unit);
        let text = format!(
            "a `spec.guarantee` of {total} of {} for queue {} would admit it",
            reason.resource, case.queue
        );
        let amounts = BTreeMap::from([(reason.resource.clone(), quota.total)]);
        let changed = changed_queue(input, case.queue, |queue| set(&mut queue.guarantee, &amounts));
        return Some(changed.map(|changed| tried(text, changed)).into_iter().collect());
    }
    if !is_capability(reason) && !is_deserved(reason) {
        return None;
    }
    let changed = if limits.is_of_guarantees() {
        smaller_guarantee(input, case, &limits)
    } else if limits.capability.is_some() {
        larger_capability(input, admission, case)
    } else {
        more_nodes(case)
    };
    Some(
        changed
            .map(|(text, changed)| tried(text, changed))
            .into_iter()
            .collect(),
    )
}

/// Largest guarantee of another queue, as far as it may stay.
fn smaller_guarantee(
    input: VerdictInput<'_>,
    case: &RejectedByQuota<'_>,
    limits: &BindingLimits,
) -> Option<(String, pb::Cluster)> {
    let (holder, amount) = limits.others.first()?;
    let resource = &case.reason.resource;
    let guaranteed: f64 = limits.others.iter().map(|(_, amount)| amount).sum();
    let excess = guaranteed + case.quota.total - input.rooms.total(resource);
    let left = (amount - excess).max(0.0);
    let shown = output::with_unit(left, &case.quota.unit);
    let text = format!("a `spec.guarantee` of at most {shown} of {resource} for queue {holder} would leave it enough");
    let amounts = BTreeMap::from([(resource.clone(), left)]);
    let changed = changed_queue(input, holder, |queue| set(&mut queue.guarantee, &amounts))?;
    Some((text, changed))
}

/// Capability of the queue that is enough for all resources for which it rejects.
fn larger_capability(
    input: VerdictInput<'_>,
    admission: &AdmissionReport,
    case: &RejectedByQuota<'_>,
) -> Option<(String, pb::Cluster)> {
    let is_asked = |reason: &&RejectionReason| is_capability(reason) || is_deserved(reason);
    let reasons = admission.reasons.iter().filter(is_asked);
    let of_queue = reasons.filter(|reason| reason_queue(reason).is_none_or(|queue| queue == case.queue));
    let mut amounts = BTreeMap::new();
    let mut texts = Vec::new();
    for (reason, quota) in of_queue.filter_map(|reason| Some((reason, phrases::quota_usage(reason)?))) {
        if amounts.insert(reason.resource.clone(), quota.total).is_none() {
            let total = output::with_unit(quota.total, &quota.unit);
            texts.push(format!("{total} of {}", reason.resource));
        }
    }
    let (queue, texts) = (case.queue, texts.join(" and "));
    let changed = changed_queue(input, queue, |queue| set(&mut queue.capability, &amounts))?;
    Some((
        format!("raise `spec.capability` of queue {queue} to at least {texts}"),
        changed,
    ))
}

/// Nodes with as much more of a resource as is missing.
fn more_nodes(case: &RejectedByQuota<'_>) -> Option<(String, pb::Cluster)> {
    let (resource, quota) = (&case.reason.resource, case.quota);
    let missing = (quota.total - quota.bound).max(0.0);
    let amounts = BTreeMap::from([(resource.clone(), missing), ("pods".to_owned(), 1.0)]);
    let mut node = pb::Node {
        name: MORE_NODES.to_owned(),
        ready: Some(true),
        ..pb::Node::default()
    };
    set(&mut node.allocatable, &amounts);
    let shown = output::with_unit(missing, &quota.unit);
    let changed = pb::Cluster {
        nodes: vec![node],
        ..pb::Cluster::default()
    };
    (missing > 0.0).then(|| {
        (
            format!("its queue would admit it with {shown} more of {resource} on nodes"),
            changed,
        )
    })
}

/// Changed queue as records of a copy; `None`: no queue has the name.
fn changed_queue(input: VerdictInput<'_>, name: &str, change: impl FnOnce(&mut pb::Queue)) -> Option<pb::Cluster> {
    let mut queue = input.known.queues.get(name)?.queue.clone()?;
    change(&mut queue);
    Some(pb::Cluster {
        queues: vec![queue],
        ..pb::Cluster::default()
    })
}

/// Sets amounts, in units for people, in a list.
fn set(list: &mut Option<pb::ResourceList>, amounts: &BTreeMap<String, f64>) {
    let items = amounts
        .iter()
        .map(|(name, value)| (name.clone(), to_quantity(name, *value)));
    list.get_or_insert_default().items.extend(items);
}

/// Amounts that a subject requests, as its record has them; `None`: it names none.
pub(super) fn requested(subject: &Subject) -> Option<&BTreeMap<String, String>> {
    let list = match subject {
        Subject::Job(job) => job.min_resources.as_ref(),
        Subject::Task(task) => task.requests.as_ref(),
    };
    list.map(|list| &list.items)
}

/// Subject that requests only this much of a resource or of cards, in units for people; `None`: it requests none of it in a way
/// that can be changed.
pub(super) fn smaller(subject: &Subject, resource: &str, amount: f64) -> Option<Subject> {
    let is_requested = requested(subject)?.contains_key(resource);
    // Cards are requested by a name beside the resource that a device plugin reports.
    let mut extended = requested(subject)?.keys().filter(|name| name.contains('/'));
    let name = if is_requested { resource } else { extended.next()? };
    let amount = if name == "cpu" { amount } else { amount.floor() };
    let amounts = BTreeMap::from([(name.to_owned(), amount)]);
    let mut smaller = subject.clone();
    match &mut smaller {
        Subject::Job(job) => {
            set(&mut job.min_resources, &amounts);
            if !is_requested {
                let cards = serde_json::json!({ resource: to_count(amount) }).to_string();
                job.annotations.insert(CARD_REQUEST.to_owned(), cards);
            }
        }
        Subject::Task(task) => {
            set(&mut task.requests, &amounts);
            if let Some(limits) = task.limits.as_mut().filter(|limits| limits.items.contains_key(name)) {
                limits.items.insert(name.to_owned(), to_quantity(name, amount));
            }
        }
    }
    (amount > 0.0).then_some(smaller)
}
