//! Records from objects of the Kubernetes API, one by one: the only place that reads Node, Pod, Namespace, `PriorityClass`, the
//! owners of pods, the `PodGroup` of `scheduling.k8s.io`, Volcano's Queue and PodGroup, slices and claims of devices, and quotas and
//! budgets of namespaces.
//!
//! [`read_json`] reads the bytes that the API server writes and keeps only what records need; [`read_value`] reads an object
//! that is already a JSON value.

mod cluster;
mod constraints;
mod devices;
pub(crate) mod fields;
mod identity;
mod json;
pub(crate) mod kind;
mod namespace_parts;
mod owners;
mod pod;
mod read_fields;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use cluster::{DEFAULT_QUEUE, ROOT_QUEUE, missing_queues, plain_queue};
pub use fields::FieldError;
pub use identity::RecordIdentity;
pub use json::ObjectLimits;
pub use kind::{ObjectKind, object_kind};
pub use namespace_parts::{NamespacePart, NamespaceParts};
pub use owners::{PodController, PodOwner, PodOwners};
pub use pod::AmountRules;
pub use pod::UNREAD_AMOUNTS;

pub(crate) use cluster::add_preemptable_label;
pub(crate) use identity::identity;
pub(crate) use owners::controller_reference;
pub(crate) use pod::notes as pod_notes;

use crate::claims::{self, DeviceObject, PodClaims};
use fields::text;
use pumice_protocol::v1 as pb;

/// True if a text has the characters of an object's name, and at least one: lower-case letters, digits, `-` and `.`.
pub fn has_name_characters(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !name.is_empty() && name.bytes().all(is_plain)
}

/// Record of an object, or information of an object about its pods or about devices.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "the largest one is the usual one; a box would only cost an allocation"
)]
pub enum ObjectRecord {
    /// Record of a node.
    Node(pb::Node),
    /// Record of a queue.
    Queue(pb::Queue),
    /// Record of a pod group.
    Job(pb::Job),
    /// Record of a pod, without the selector of its owners and the devices that it claims; the workload that controls the pod, and
    /// its claims.
    Task(pb::Task, Option<PodController>, PodClaims),
    /// Record of a priority class.
    PriorityClass(pb::PriorityClass),
    /// Record of a namespace.
    Namespace(pb::Namespace),
    /// Owner of pods, which becomes no record.
    Owner(PodOwner),
    /// Slice or claim of devices, which becomes no record.
    Device(DeviceObject),
    /// Quota or budget, which is a part of the record of its namespace.
    Part(NamespacePart),
}

impl ObjectRecord {
    /// Name and uid of the object. The uid is empty for classes, namespaces, owners, slices and claims, whose records
    /// have no uid.
    pub fn name_and_uid(&self) -> (&str, &str) {
        match self {
            ObjectRecord::Node(record) => (&record.name, &record.uid),
            ObjectRecord::Queue(record) => (&record.name, &record.uid),
            ObjectRecord::Job(record) => (&record.name, &record.uid),
            ObjectRecord::Task(record, ..) => (&record.name, &record.uid),
            ObjectRecord::PriorityClass(record) => (&record.name, ""),
            ObjectRecord::Namespace(record) => (&record.name, ""),
            ObjectRecord::Owner(owner) => (owner.name(), ""),
            ObjectRecord::Device(object) => (object.name(), ""),
            ObjectRecord::Part(part) => (part.name(), ""),
        }
    }
}

/// Reads an object of a kind.
///
/// # Errors
/// A field cannot be used; the error names it.
pub fn read_value(kind: ObjectKind, object: &Value, rules: AmountRules) -> Result<ObjectRecord, FieldError> {
    Ok(match kind {
        ObjectKind::Node => ObjectRecord::Node(cluster::node(object)?),
        ObjectKind::Pod => ObjectRecord::Task(
            pod::task(object, rules)?,
            owners::controller(object)?,
            claims::pod_claims(object)?,
        ),
        ObjectKind::Queue => ObjectRecord::Queue(cluster::queue(object)?),
        ObjectKind::PodGroup => ObjectRecord::Job(cluster::job(object)?),
        ObjectKind::WorkloadPodGroup => ObjectRecord::Job(cluster::workload_job(object)?),
        ObjectKind::PriorityClass => ObjectRecord::PriorityClass(cluster::priority_class(object)?),
        ObjectKind::Namespace => ObjectRecord::Namespace(cluster::namespace(object)?),
        ObjectKind::Service | ObjectKind::ReplicationController | ObjectKind::ReplicaSet | ObjectKind::StatefulSet => {
            ObjectRecord::Owner(owners::owner(kind, object)?)
        }
        ObjectKind::ResourceSlice | ObjectKind::ResourceClaim | ObjectKind::ResourceClaimTemplate => {
            ObjectRecord::Device(claims::device_object(kind, object)?)
        }
        ObjectKind::ResourceQuota | ObjectKind::PodDisruptionBudget => {
            ObjectRecord::Part(NamespacePart::read(kind, object)?)
        }
    })
}

/// Outcome of one object.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "the largest one is the usual one; a box would only cost an allocation"
)]
pub enum ObjectOutcome {
    /// The object is a record.
    Record(ObjectRecord),
    /// The object cannot be used.
    Unreadable(UnreadableObject),
    /// No record is made of the kind.
    UnknownKind {
        /// `apiVersion` of the object.
        version: String,
        /// `kind` of the object; empty: it has none.
        kind: String,
    },
}

/// Object that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableObject {
    /// Kind and name of the object, such as `Pod default/web-0`, as far as they are known.
    pub title: String,
    /// Name of the object's record. Empty: the name is unreadable.
    pub name: String,
    /// Field and its problem.
    pub error: FieldError,
    /// Record that the object would be; `None`: not even its name can be read.
    pub record: Option<RecordIdentity>,
}

/// Reads the bytes of one object, or of one list of objects, as the API server and `kubectl get -o json` write them. Slices and
/// claims of devices, quotas and budgets are of an unknown kind here: the records beside them do not tell all that they change. `each`
/// gets each object with its number in the list (`None`: the bytes are one object), and ends the reading by returning
/// false.
pub fn read_json(
    bytes: &[u8],
    rules: AmountRules,
    limits: ObjectLimits,
    each: &mut dyn FnMut(Option<usize>, ObjectOutcome) -> bool,
) {
    let (object, has_items) = match json::read_one(bytes, limits) {
        Ok(read) => read,
        Err(error) => {
            each(None, ObjectOutcome::Unreadable(not_json(bytes, &error)));
            return;
        }
    };
    let header = &object.value;
    let (version, kind) = (word(header, "apiVersion"), word(header, "kind"));
    let Some(item_kind) = kind.strip_suffix("List").filter(|_| has_items || kind == "List") else {
        each(None, outcome(object, &version, &kind, rules));
        return;
    };
    // Items of a typed list, such as a NodeList, leave out their own kind.
    let items = json::read_items(bytes, limits, &mut |number, item| {
        let own = |field: &str, of_list: &str| match word(&item.value, field) {
            own if own.is_empty() => of_list.to_owned(),
            own => own,
        };
        let (version, kind) = (own("apiVersion", &version), own("kind", item_kind));
        each(Some(number), outcome(item, &version, &kind, rules))
    });
    if let Err(error) = items {
        each(None, ObjectOutcome::Unreadable(not_json(bytes, &error)));
    }
}

/// Reads the bytes of one object of a kind.
///
/// # Errors
/// The bytes are not JSON, or are another object, or a field cannot be used.
pub fn read_json_of(
    kind: ObjectKind,
    bytes: &[u8],
    rules: AmountRules,
    limits: ObjectLimits,
) -> Result<ObjectRecord, Box<UnreadableObject>> {
    let (object, _) = json::read_one(bytes, limits).map_err(|error| Box::new(not_json(bytes, &error)))?;
    let header = &object.value;
    let (version, own) = (word(header, "apiVersion"), word(header, "kind"));
    // Objects of typed clients leave out their kind.
    let is_untyped = version.is_empty() && own.is_empty();
    if !is_untyped && object_kind(&version, &own) != Some(kind) {
        return Err(Box::new(UnreadableObject {
            title: object_title(&own, header),
            name: String::new(),
            error: FieldError::new("kind", format!("is `{own}` of `{version}`, not a {}", kind.name())),
            record: None,
        }));
    }
    read(kind, object, rules)
}

/// Reads one page of a list of objects of one kind from the API server. The items of such a list have no kind.
///
/// # Errors
/// The bytes are not JSON, or `items` is not a list: the API server writes one of nothing as `[]`. `each` may already have been
/// called for some objects.
pub fn read_json_list(
    kind: ObjectKind,
    bytes: &[u8],
    rules: AmountRules,
    limits: ObjectLimits,
    each: &mut dyn FnMut(Result<ObjectRecord, Box<UnreadableObject>>),
) -> Result<(), serde_json::Error> {
    let has_items = json::read_items(bytes, limits, &mut |_, item| {
        each(read(kind, item, rules));
        true
    })?;
    if has_items {
        Ok(())
    } else {
        Err(serde::de::Error::custom("the list has no `items`"))
    }
}

fn outcome(object: json::JsonObject, version: &str, kind: &str, rules: AmountRules) -> ObjectOutcome {
    let known = match object_kind(version, kind).filter(|kind| kind.tells_by_itself()) {
        Some(known) => known,
        // What is no object has no kind either.
        None if !object.value.is_object() => ObjectKind::Pod,
        None => {
            return ObjectOutcome::UnknownKind {
                version: version.to_owned(),
                kind: kind.to_owned(),
            };
        }
    };
    match read(known, object, rules) {
        Ok(record) => ObjectOutcome::Record(record),
        Err(unreadable) => ObjectOutcome::Unreadable(*unreadable),
    }
}

fn read(kind: ObjectKind, object: json::JsonObject, rules: AmountRules) -> Result<ObjectRecord, Box<UnreadableObject>> {
    let json::JsonObject { value: object, problem } = object;
    let record = match problem {
        Some(problem) => Err(problem),
        None if object.is_object() => read_value(kind, &object, rules),
        None => {
            let message = format!("is {}, not an object of Kubernetes", fields::kind(&object));
            Err(FieldError::new("", message))
        }
    };
    record.map_err(|error| {
        Box::new(UnreadableObject {
            title: if object.is_object() {
                object_title(kind.name(), &object)
            } else {
                "an object".to_owned()
            },
            name: identity::object_name(kind, &object).unwrap_or_default(),
            error,
            record: identity(kind, &object),
        })
    })
}

fn not_json(bytes: &[u8], error: &serde_json::Error) -> UnreadableObject {
    let (title, name, record) = identity::identity_before_error(bytes);
    UnreadableObject {
        title,
        name,
        error: FieldError::new("", format!("is not JSON: {error}")),
        record,
    }
}

fn word(object: &Value, field: &str) -> String {
    text(object, field).unwrap_or_default()
}

/// Kind and name of an object, as messages name it.
pub(crate) fn object_title(kind: &str, object: &Value) -> String {
    let name = text(object, "metadata.name").unwrap_or_default();
    let namespace = text(object, "metadata.namespace").unwrap_or_default();
    title(kind, &namespace, &name)
}

fn title(kind: &str, namespace: &str, name: &str) -> String {
    if kind.is_empty() && name.is_empty() {
        return "an object".to_owned();
    }
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("{kind} {namespace}{slash}{name}")
}
