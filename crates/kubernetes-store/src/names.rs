//! Objects of a log: their names, labels and fields.
//!
//! | Object | Content |
//! |---|---|
//! | ConfigMap `NAME-log` | the root: format, number of slots, head and number of parts of the newest snapshot |
//! | ConfigMap `NAME-log-SLOT` | a slot: the last entry that was put into it; its author, and its bytes or the number of its parts |
//! | ConfigMap `NAME-log-part-NUMBER-AUTHOR-PART` | a part of a long entry |
//! | ConfigMap `NAME-log-snapshot-NUMBER-PART` | a part of a snapshot |
//! | Lease `NAME-log-SERVER` | address of a server, and the last entry that it has applied |
//!
//! The annotation `sequence` is the number of the entry, or of the last entry of the snapshot.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_state::store::{EntryAuthor, EntryValue, LogHead};

/// Annotation with the number of the entry.
const SEQUENCE: &str = "sequence";
/// Key of the bytes of an entry, of a part, and of the head of a snapshot.
const BYTES: &str = "bytes";
/// Format of the objects.
const FORMAT: &str = "1";
/// Manager of all fields, and of all objects.
pub(crate) const MANAGER: &str = "pumice";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogObjectKind {
    Root,
    Slot,
    EntryPart,
    SnapshotPart,
    Server,
}

impl LogObjectKind {
    fn component(self) -> &'static str {
        match self {
            Self::Root => "log",
            Self::Slot => "log-slot",
            Self::EntryPart => "log-part",
            Self::SnapshotPart => "log-snapshot",
            Self::Server => "log-server",
        }
    }
}

/// Names of the objects of one log.
#[derive(Clone, Debug)]
pub(crate) struct LogNames {
    name: String,
}

impl LogNames {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    pub(crate) fn root(&self) -> String {
        format!("{}-log", self.name)
    }

    pub(crate) fn slot(&self, slot: u64) -> String {
        format!("{}-log-{slot:04}", self.name)
    }

    /// Number of the slot with this object name. `None`: another object, whatever its labels are.
    pub(crate) fn slot_number(&self, name: &str) -> Option<u64> {
        let digits = name.strip_prefix(&*self.name)?.strip_prefix("-log-")?;
        let number = digits.parse().ok()?;
        (number < crate::MAX_SLOTS && name == self.slot(number)).then_some(number)
    }

    pub(crate) fn entry_part(&self, sequence: u64, author: &EntryAuthor, part: u64) -> String {
        format!("{}-log-part-{sequence:016x}-{author}-{part:02}", self.name)
    }

    pub(crate) fn snapshot_part(&self, sequence: u64, part: u64) -> String {
        format!("{}-log-snapshot-{sequence:016x}-{part:04}", self.name)
    }

    pub(crate) fn server(&self, server: u64) -> String {
        format!("{}-log-{server:016x}", self.name)
    }

    /// Labels of all objects of a kind.
    pub(crate) fn labels(&self, kind: LogObjectKind) -> [(&'static str, &str); 3] {
        [
            ("app.kubernetes.io/component", kind.component()),
            ("app.kubernetes.io/instance", &self.name),
            ("app.kubernetes.io/managed-by", MANAGER),
        ]
    }

    /// Selector of all objects of a kind.
    pub(crate) fn selector(&self, kind: LogObjectKind) -> String {
        self.labels(kind).map(|(key, value)| format!("{key}={value}")).join(",")
    }

    /// Selector of all objects of the log.
    pub(crate) fn all_selector(&self) -> String {
        let [_, rest @ ..] = self.labels(LogObjectKind::Root);
        rest.map(|(key, value)| format!("{key}={value}")).join(",")
    }

    /// Metadata of a new object.
    pub(crate) fn metadata(&self, kind: LogObjectKind, name: String, sequence: u64) -> ObjectMeta {
        let labels = self.labels(kind);
        ObjectMeta {
            name: Some(name),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            annotations: Some(BTreeMap::from([(SEQUENCE.to_owned(), sequence.to_string())])),
            ..ObjectMeta::default()
        }
    }

    pub(crate) fn bytes_object(
        &self,
        kind: LogObjectKind,
        name: String,
        (sequence, bytes): (u64, Vec<u8>),
    ) -> ConfigMap {
        let binary = (!bytes.is_empty()).then(|| BTreeMap::from([(BYTES.to_owned(), ByteString(bytes))]));
        ConfigMap {
            metadata: self.metadata(kind, name, sequence),
            binary_data: binary,
            ..ConfigMap::default()
        }
    }

    /// Slot with an entry.
    pub(crate) fn slot_object(&self, slot: u64, sequence: u64, value: &EntryValue) -> ConfigMap {
        self.bytes_object(LogObjectKind::Slot, self.slot(slot), (sequence, value.encode()))
    }
}

/// Number of the entry that an object is about; `None`: the object does not say.
pub(crate) fn sequence_of(metadata: &ObjectMeta) -> Option<u64> {
    metadata.annotations.as_ref()?.get(SEQUENCE)?.parse().ok()
}

/// Bytes of an object; empty: it has none.
pub(crate) fn bytes_of(object: &ConfigMap) -> &[u8] {
    let binary = object.binary_data.as_ref().and_then(|binary| binary.get(BYTES));
    binary.map_or(&[], |bytes| &bytes.0)
}

/// Number and head of the newest snapshot, and the shape of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogRoot {
    /// Number of slots.
    pub(crate) slots: u64,
    /// Head of the newest snapshot. The head of an empty log: there is not yet a snapshot.
    pub(crate) snapshot: LogHead,
    /// Number of parts of the snapshot.
    pub(crate) parts: u64,
}

impl LogRoot {
    /// Root of a log that was not made.
    pub(crate) fn empty() -> Self {
        Self {
            slots: 0,
            snapshot: LogHead::default(),
            parts: 0,
        }
    }

    pub(crate) fn to_object(&self, names: &LogNames) -> ConfigMap {
        let data = [
            ("format", FORMAT.to_owned()),
            ("slots", self.slots.to_string()),
            ("snapshot-parts", self.parts.to_string()),
        ];
        let bytes = (self.snapshot.sequence, self.snapshot.encode());
        ConfigMap {
            data: Some(data.map(|(key, value)| (key.to_owned(), value)).into()),
            ..names.bytes_object(LogObjectKind::Root, names.root(), bytes)
        }
    }

    /// Root of an object.
    ///
    /// # Errors
    /// The object is not a root that this program can read. The message has the reason.
    pub(crate) fn read(object: &ConfigMap) -> Result<Self, String> {
        let field = |key: &str| {
            let value = object.data.as_ref().and_then(|data| data.get(key));
            value.ok_or_else(|| format!("its root has no `{key}`"))
        };
        let number = |key: &str| {
            let value = field(key)?;
            value
                .parse::<u64>()
                .map_err(|_| format!("its root has `{key}: {value}`"))
        };
        let format = field("format")?;
        if format != FORMAT {
            return Err(format!(
                "it has format {format}, and this program reads format {FORMAT}"
            ));
        }
        let slots = number("slots")?;
        if slots == 0 || slots > crate::MAX_SLOTS {
            return Err(format!("its root has `slots: {slots}`"));
        }
        Ok(Self {
            slots,
            snapshot: LogHead::decode(bytes_of(object)).map_err(|what| format!("its root: {what}"))?,
            parts: number("snapshot-parts")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_read_as_it_was_written_and_others_are_refused() {
        let (names, root) = (
            LogNames::new("pumice"),
            LogRoot {
                slots: 512,
                snapshot: LogHead {
                    sequence: 256,
                    rows: 3,
                    checksum: 77,
                },
                parts: 2,
            },
        );
        let object = root.to_object(&names);
        assert_eq!(LogRoot::read(&object), Ok(root));
        assert_eq!(sequence_of(&object.metadata), Some(256));
        for (key, value, part) in [
            ("format", "2", "format 2"),
            ("slots", "0", "slots: 0"),
            ("slots", "10001", "slots: 10001"),
            ("snapshot-parts", "x", "snapshot-parts: x"),
        ] {
            let mut other = object.clone();
            let data = other.data.as_mut().unwrap();
            data.insert(key.to_owned(), value.to_owned());
            let problem = LogRoot::read(&other).unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
        let empty = ConfigMap::default();
        assert!(LogRoot::read(&empty).unwrap_err().contains("no `format`"));
    }

    #[test]
    fn selectors_name_one_log_and_one_kind() {
        let names = LogNames::new("a");
        let all = names.all_selector();
        assert_eq!(all, "app.kubernetes.io/instance=a,app.kubernetes.io/managed-by=pumice");
        assert_eq!(names.slot_number(&names.slot(77)), Some(77));
        for other in [
            "a-log",
            "a-log-7",
            "a-log-+007",
            "a-log-00077",
            "a-log-10000",
            "b-log-0007",
        ] {
            assert_eq!(names.slot_number(other), None);
        }
        let slots = names.selector(LogObjectKind::Slot);
        assert_eq!(slots, format!("app.kubernetes.io/component=log-slot,{all}"));
    }
}
