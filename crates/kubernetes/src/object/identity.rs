//! Identity of an unreadable object: kind and name of its record, as far as the text has them.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::fields::{namespaced, required_text, text};
use super::kind::{ObjectKind, object_kind};
use pumice_protocol::v1 as pb;

/// Record that an unreadable object would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordIdentity {
    /// Kind of the record that the object would become.
    pub kind: pb::RecordKind,
    /// Name of the record, such as `train/bert-0`.
    pub name: String,
    /// Of a task that occupies a node: the node; empty: none.
    pub node: String,
}

impl RecordIdentity {
    /// Record that occupies no node.
    pub fn new(kind: pb::RecordKind, name: impl Into<String>) -> Self {
        RecordIdentity {
            kind,
            name: name.into(),
            node: String::new(),
        }
    }
}

/// Record of an object that cannot be read; `None`: not even its name can, or it would be none.
pub(crate) fn identity(kind: ObjectKind, object: &Value) -> Option<RecordIdentity> {
    if kind.record_kind() == pb::RecordKind::Unspecified {
        return None;
    }
    let record = RecordIdentity::new(kind.record_kind(), object_name(kind, object)?);
    if kind != ObjectKind::Pod {
        return Some(record);
    }
    // A phase that cannot be read may be any; without one the pod is a manifest, which occupies no node.
    let phase = text(object, "status.phase").unwrap_or_else(|_| "Unknown".to_owned());
    let occupies = !matches!(phase.as_str(), "" | "Succeeded" | "Failed");
    let node = text(object, "spec.nodeName").ok().filter(|_| occupies);
    Some(RecordIdentity {
        node: node.unwrap_or_default(),
        ..record
    })
}

/// Name of the object's record, such as `train/bert-0` for a pod. `None`: the name is unreadable.
pub(super) fn object_name(kind: ObjectKind, object: &Value) -> Option<String> {
    if kind.is_namespaced() {
        namespaced(object).ok()
    } else {
        required_text(object, "metadata.name").ok()
    }
}

/// Title, name and record of an object whose text is not JSON, from the part before the problem.
pub(super) fn identity_before_error(json: &[u8]) -> (String, String, Option<RecordIdentity>) {
    let mut found = FoundIdentity::default();
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    // The problem ends the reading; what was found before it stays.
    let seed = IdentitySeed::of(&mut found, "");
    let _ = seed.deserialize(&mut deserializer).is_ok();
    let FoundIdentity {
        api_version,
        kind,
        namespace,
        name,
        node,
        phase,
    } = found;
    let title = super::title(&kind, &namespace, &name);
    let Some(kind) = object_kind(&api_version, &kind).filter(|_| !name.is_empty()) else {
        return (title, String::new(), None);
    };
    let name = kind.record_name(&namespace, &name);
    if kind.record_kind() == pb::RecordKind::Unspecified {
        return (title, name, None);
    }
    let record = RecordIdentity {
        // The phase stands behind the node: where it was not reached, the pod may be in any.
        node: node
            .filter(|_| kind == ObjectKind::Pod && !matches!(phase.as_str(), "Succeeded" | "Failed"))
            .unwrap_or_default(),
        ..RecordIdentity::new(kind.record_kind(), name.clone())
    };
    (title, name, Some(record))
}

/// Fields of an object that were found before a problem.
#[derive(Debug, Default)]
struct FoundIdentity {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    node: Option<String>,
    phase: String,
}

/// Seed that fills the identity from an object, or from its part `parent`.
struct IdentitySeed<'f> {
    found: &'f mut FoundIdentity,
    parent: &'static str,
}

impl<'f> IdentitySeed<'f> {
    fn of(found: &'f mut FoundIdentity, parent: &'static str) -> Self {
        Self { found, parent }
    }
}

impl<'de> DeserializeSeed<'de> for IdentitySeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for IdentitySeed<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(key) = fields.next_key::<String>()? {
            let found = &mut *self.found;
            match (self.parent, key.as_str()) {
                ("", "metadata") => fields.next_value_seed(IdentitySeed::of(found, "metadata"))?,
                ("", "spec") => fields.next_value_seed(IdentitySeed::of(found, "spec"))?,
                ("", "status") => fields.next_value_seed(IdentitySeed::of(found, "status"))?,
                ("", "apiVersion") => found.api_version = fields.next_value()?,
                ("", "kind") => found.kind = fields.next_value()?,
                ("metadata", "namespace") => found.namespace = fields.next_value()?,
                ("metadata", "name") => found.name = fields.next_value()?,
                ("spec", "nodeName") => found.node = Some(fields.next_value()?),
                ("status", "phase") => found.phase = fields.next_value()?,
                _ => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}
