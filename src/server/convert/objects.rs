//! Objects of the Kubernetes API as they arrive: derived to records, which are then read like any others.

use std::sync::Arc;

use pumice_engine::model::{ErrorCode, Problem, RecordKind};
use pumice_kubernetes::claims::PodClaims;
use pumice_kubernetes::object::{
    self, AmountRules, FieldError, ObjectKind, ObjectLimits, ObjectOutcome, ObjectRecord, PodController, PodOwners,
    RecordIdentity, UnreadableObject,
};
use pumice_state::{RecordLocation, RejectedRecord};

use super::batch::{BatchFiller, truncated};
use super::reader::WireReader;
use crate::server::pb;

/// Remedy of every such object.
const REMEDY: &str = "correct the object in the cluster; until then its last good record counts";

/// Rules of a request for the amounts of pods. `None`: the number is not valid.
pub(super) fn pod_rules(rules: i32) -> Option<AmountRules> {
    let name = match pb::PodRules::try_from(rules).ok()? {
        pb::PodRules::Unspecified => "auto",
        pb::PodRules::Kubernetes => "kubernetes",
        pb::PodRules::Volcano => "volcano",
    };
    AmountRules::from_name(name)
}

/// Kind of a record as batches name it.
pub(super) fn record_kind(kind: pb::RecordKind) -> Option<RecordKind> {
    match kind {
        pb::RecordKind::Unspecified => None,
        pb::RecordKind::Node => Some(RecordKind::Node),
        pb::RecordKind::Queue => Some(RecordKind::Queue),
        pb::RecordKind::Job => Some(RecordKind::Job),
        pb::RecordKind::Task => Some(RecordKind::Task),
        pb::RecordKind::Namespace => Some(RecordKind::Namespace),
        pb::RecordKind::PriorityClass => Some(RecordKind::PriorityClass),
    }
}

/// Kinds of objects that become records, for messages.
pub(super) fn kinds_with_records() -> String {
    let kinds = ObjectKind::ALL
        .into_iter()
        .filter(|kind| record_kind(kind.record_kind()).is_some());
    name_kinds(kinds)
}

/// Names of kinds, each once: two kinds of pod groups have one name.
fn name_kinds(kinds: impl Iterator<Item = ObjectKind>) -> String {
    let mut names: Vec<&str> = kinds.map(ObjectKind::name).collect();
    names.dedup();
    names.join(", ")
}

/// Objects of a request that are read when all have come: the owners of pods may come after them.
#[derive(Default)]
struct PendingPods {
    owners: PodOwners,
    pods: Vec<(pb::Task, Option<PodController>, RecordLocation)>,
}

impl BatchFiller<'_, '_> {
    /// Reads objects, at most `most` of them; the number of all that came.
    pub(super) fn read_objects(&mut self, objects: Vec<Vec<u8>>, rules: AmountRules, most: usize) -> usize {
        let mut count: usize = 0;
        let mut pending = PendingPods::default();
        let rules = rules.of_release(self.reader.release);
        for (index, bytes) in objects.into_iter().enumerate() {
            object::read_json(&bytes, rules, ObjectLimits::default(), &mut |item, outcome| {
                count = count.saturating_add(1);
                if count <= most {
                    self.put_outcome(outcome, RecordLocation::of_object(index, item), &mut pending);
                }
                count <= most
            });
        }
        let PendingPods { owners, pods } = pending;
        if !pods.is_empty() {
            self.reader.derived_by = Some(self.reader.release);
        }
        for (mut task, controller, place) in pods {
            owners.complete_if_known(&mut task, controller.as_ref());
            self.put(ObjectRecord::Task(task, None, PodClaims::default()), place);
        }
        count
    }

    /// Adds the record of an object, or the reason why there is none.
    fn put_outcome(&mut self, outcome: ObjectOutcome, place: RecordLocation, pending: &mut PendingPods) {
        match outcome {
            ObjectOutcome::Record(ObjectRecord::Task(task, controller, _)) => {
                pending.pods.push((task, controller, place));
            }
            ObjectOutcome::Record(ObjectRecord::Owner(owner)) => {
                pending.owners.add(owner);
            }
            // Slices, claims, quotas and budgets come as an unknown kind.
            ObjectOutcome::Record(record) => self.put(record, place),
            ObjectOutcome::Unreadable(unreadable) => {
                let limit = self.reader.options.limits.name_bytes;
                self.batch.rejected.push(rejected_object(unreadable, place, limit));
            }
            ObjectOutcome::UnknownKind { version, kind } => {
                let known = name_kinds(ObjectKind::ALL.into_iter().filter(|kind| kind.tells_by_itself()));
                let message = format!(
                    "`{}` of `{}` is not read, and has no effect; read are {known}",
                    truncated(&kind),
                    truncated(&version)
                );
                let field = place.field_path(RecordKind::Node);
                self.batch
                    .warnings
                    .push(Problem::new(ErrorCode::KindNotRead, field, message));
            }
        }
    }
}

/// Record of an unusable object. An invalid name is treated as absent.
fn rejected_object(unreadable: UnreadableObject, place: RecordLocation, name_bytes: usize) -> RejectedRecord {
    let UnreadableObject {
        title, error, record, ..
    } = unreadable;
    let field = |kind| below(&place.field_path(kind), &error.field);
    let message = format!("{}: {}; {REMEDY}", truncated(&title), truncated(&error.reason));
    let problem = |kind| Problem::new(ErrorCode::ObjectUnreadable, field(kind), message.clone());
    let fits = |record: &RecordIdentity| record.name.len() <= name_bytes && record.node.len() <= name_bytes;
    let known = record
        .filter(fits)
        .and_then(|record| Some((record_kind(record.kind)?, record)));
    match known {
        Some((kind, RecordIdentity { name, node, kind: _ })) => RejectedRecord {
            node: node.into(),
            ..RejectedRecord::new(kind, name.into(), vec![problem(kind)])
        },
        // Without a name there is no record that could be marked.
        None => RejectedRecord::new(RecordKind::Task, Arc::default(), vec![problem(RecordKind::Task)]),
    }
}

/// Path of a field below a place.
fn below(place: &str, field: &str) -> String {
    match truncated(field) {
        "" => place.to_owned(),
        field => format!("{place}.{field}"),
    }
}

/// Record of a request that may carry its object.
struct CarriedObject<'o> {
    kind: ObjectKind,
    bytes: &'o [u8],
    rules: AmountRules,
    /// Name and uid beside the object; empty: not given.
    name: &'o str,
    uid: &'o str,
    /// True if fields are set that the object gives.
    has_more: bool,
}

/// Declares readers of messages, each with the fields that it may have beside its object.
macro_rules! read_carried {
    ($($function:ident: $message:ident of $kind:ident, beside $($field:ident),*;)*) => {$(
        /// Message of a request, with the record that its object gives if it carries one.
        pub(super) fn $function(&mut self, mut message: pb::$message) -> pb::$message {
            if message.object.is_empty() {
                return message;
            }
            let bytes = std::mem::take(&mut message.object);
            let beside = pb::$message {
                $($field: message.$field.clone(),)*
                ..pb::$message::default()
            };
            let carried = CarriedObject {
                kind: ObjectKind::$kind,
                bytes: &bytes,
                rules: AmountRules::default(),
                name: &beside.name,
                uid: &beside.uid,
                has_more: message != beside,
            };
            match self.derive(&carried) {
                Ok(ObjectRecord::$message(read)) => read,
                Ok(_) => beside,
                Err(record) => pb::$message {
                    name: record.name,
                    ..beside
                },
            }
        }
    )*};
}

impl WireReader<'_> {
    read_carried! {
        derived_node: Node of Node, beside name, uid;
        derived_queue: Queue of Queue, beside name, uid;
        job_of_object: Job of PodGroup, beside name, uid, priority;
    }

    /// Job of a request, with the record that its object gives if it carries one. The object does not have the priority.
    pub(super) fn derived_job(&mut self, job: pb::Job) -> pb::Job {
        pb::Job {
            priority: job.priority,
            ..self.job_of_object(job)
        }
    }

    /// Task of a request, with the record that its object gives if it carries one.
    pub(super) fn derived_task(&mut self, mut task: pb::Task) -> pb::Task {
        if task.object.is_empty() {
            return task;
        }
        let bytes = std::mem::take(&mut task.object);
        let beside = pb::Task {
            name: task.name.clone(),
            uid: task.uid.clone(),
            node: task.node.clone(),
            status: task.status,
            job: task.job.clone(),
            sub_group: task.sub_group.clone(),
            pod_rules: task.pod_rules,
            ..pb::Task::default()
        };
        let Some(rules) = pod_rules(task.pod_rules) else {
            let message = format!("invalid value: {}", task.pod_rules);
            self.problem(ErrorCode::EnumInvalid, "pod_rules".to_owned(), message);
            return beside;
        };
        self.derived_by = Some(self.release);
        let carried = CarriedObject {
            kind: ObjectKind::Pod,
            bytes: &bytes,
            rules: rules.of_release(self.release),
            name: &beside.name,
            uid: &beside.uid,
            has_more: task != beside,
        };
        let or = |own: String, other: String| if own.is_empty() { other } else { own };
        match self.derive(&carried) {
            Ok(ObjectRecord::Task(mut read, controller, _)) => {
                // The owners cannot stand beside the pod.
                PodOwners::default().complete_if_known(&mut read, controller.as_ref());
                pb::Task {
                    node: or(beside.node, read.node),
                    status: if beside.status == 0 { read.status } else { beside.status },
                    job: or(beside.job, read.job),
                    sub_group: or(beside.sub_group, read.sub_group),
                    ..read
                }
            }
            Ok(_) => beside,
            Err(RecordIdentity { name, node, kind: _ }) => {
                let node = or(beside.node, node);
                // The node is named only if the pod occupies it.
                let status = if node.is_empty() {
                    pb::TaskStatus::Unspecified
                } else {
                    pb::TaskStatus::Running
                };
                pb::Task {
                    name,
                    node,
                    status: status.into(),
                    ..pb::Task::default()
                }
            }
        }
    }

    /// Record of a carried object. What is wrong becomes a problem; then the record that the object would be is returned,
    /// under the name beside it if the object has none.
    fn derive(&mut self, carried: &CarriedObject<'_>) -> Result<ObjectRecord, RecordIdentity> {
        let CarriedObject {
            kind,
            bytes,
            rules,
            name,
            uid,
            has_more,
        } = *carried;
        let read = match object::read_json_of(kind, bytes, rules, ObjectLimits::default()) {
            Ok(read) => read,
            Err(unreadable) => {
                let UnreadableObject {
                    title, error, record, ..
                } = *unreadable;
                let FieldError { field, reason } = error;
                let message = format!("{}: {}; {REMEDY}", truncated(&title), truncated(&reason));
                self.problem(ErrorCode::ObjectUnreadable, below("object", &field), message);
                let found = record.unwrap_or_else(|| RecordIdentity::new(kind.record_kind(), name));
                return Err(RecordIdentity {
                    name: if name.is_empty() { found.name } else { name.to_owned() },
                    ..found
                });
            }
        };
        if has_more {
            let message =
                "only the fields that the protocol names may be set beside the object: it says the others itself";
            self.problem(ErrorCode::ObjectAndFields, "object".to_owned(), message.to_owned());
        }
        let (own_name, own_uid) = read.name_and_uid();
        for (field, beside, own) in [("name", name, own_name), ("uid", uid, own_uid)] {
            if !beside.is_empty() && beside != own {
                let message = format!(
                    "`{}` is not that of the object, `{}`",
                    truncated(beside),
                    truncated(own)
                );
                self.problem(ErrorCode::ObjectAndFields, field.to_owned(), message);
            }
        }
        Ok(read)
    }
}
