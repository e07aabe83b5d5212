//! All records of a server, and the differences between two sets of records.

use std::collections::BTreeMap;

use prost_reflect::{DynamicMessage, MapKey, MessageDescriptor, ReflectMessage as _, Value};
use serde::Serialize;

use pumice_console::cluster_record::ClusterRecord;
use pumice_console::listings::RecordListing;
use pumice_console::{CommandError, listings, output, schema};
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Number of attempts to read all listings at one revision.
const ATTEMPTS: usize = 5;
/// Kinds of records, in the order in which they are shown.
pub(super) const KINDS: [&str; 5] = ["node", "queue", "job", "task", "namespace"];

/// Position of a record's kind in [`KINDS`], and its name.
pub(super) type RecordKey = (usize, String);

#[derive(Debug, Clone, Default)]
pub(super) struct ClusterRecords {
    pub(super) cluster: pb::Cluster,
    /// The owner of each record.
    pub(super) sources: BTreeMap<RecordKey, String>,
    /// Refused records with their first problem.
    invalid: BTreeMap<RecordKey, String>,
    /// Revision of the first page.
    pub(super) revision: Option<pb::Revision>,
    /// True if the state changed between the pages in every attempt.
    inconsistent: bool,
}

impl ClusterRecords {
    /// Reads all records, at one revision if the state does not change meanwhile.
    pub(super) async fn read(connection: &mut ClientConnection) -> Result<Self, CommandError> {
        let mut attempt = 1;
        loop {
            let records = Self::read_once(connection).await?;
            if !records.inconsistent || attempt == ATTEMPTS {
                return Ok(records);
            }
            attempt += 1;
        }
    }

    async fn read_once(connection: &mut ClientConnection) -> Result<Self, CommandError> {
        let mut records = ClusterRecords::default();
        records.add::<pb::ListNodesRequest>(connection).await?;
        records.add::<pb::ListQueuesRequest>(connection).await?;
        records.add::<pb::ListJobsRequest>(connection).await?;
        records.add::<pb::ListTasksRequest>(connection).await?;
        records.add::<pb::ListNamespacesRequest>(connection).await?;
        Ok(records)
    }

    /// Adds all pages of one listing.
    async fn add<L: RecordListing>(&mut self, connection: &mut ClientConnection) -> Result<(), CommandError> {
        for mut page in listings::pages(connection, L::new(None, Vec::new())).await? {
            if let Some(revision) = L::metadata(&page).and_then(|metadata| metadata.revision) {
                self.inconsistent |= *self.revision.get_or_insert(revision) != revision;
            }
            for row in std::mem::take(L::rows(&mut page)) {
                let (Some(record), source, invalid) = L::parts(row) else {
                    continue;
                };
                let key = (kind_of::<L::Record>(), record.name().to_owned());
                if let Some(problem) = invalid.first() {
                    self.invalid.insert(key.clone(), output::problem(problem));
                }
                self.sources.insert(key, source);
                L::Record::list_mut(&mut self.cluster).push(record);
            }
        }
        Ok(())
    }

    /// Fields of every record by path.
    pub(super) fn fields(&self) -> Result<BTreeMap<RecordKey, RecordFields>, CommandError> {
        let mut all = BTreeMap::new();
        add_fields::<pb::Node>(&self.cluster, &mut all)?;
        add_fields::<pb::Queue>(&self.cluster, &mut all)?;
        add_fields::<pb::Job>(&self.cluster, &mut all)?;
        add_fields::<pb::Task>(&self.cluster, &mut all)?;
        add_fields::<pb::Namespace>(&self.cluster, &mut all)?;
        for (key, problem) in &self.invalid {
            if let Some(fields) = all.get_mut(key) {
                fields.insert("invalid".to_owned(), problem.clone());
            }
        }
        Ok(all)
    }
}

/// Position of a kind in [`KINDS`].
fn kind_of<R: ClusterRecord>() -> usize {
    KINDS.iter().position(|kind| *kind == R::KIND).unwrap_or_default()
}

fn add_fields<R: ClusterRecord>(
    cluster: &pb::Cluster,
    all: &mut BTreeMap<RecordKey, RecordFields>,
) -> Result<(), CommandError> {
    let message = schema::message(R::NAME)?;
    for record in R::list(cluster) {
        let key = (kind_of::<R>(), record.name().to_owned());
        all.insert(key, fields(&message, &record.encode_to_vec())?);
    }
    Ok(())
}

/// Set fields of a record, by path.
pub(super) type RecordFields = BTreeMap<String, String>;

/// Difference of one record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordDiff {
    /// `added`, `removed` or `changed`.
    pub(super) action: &'static str,
    pub(super) kind: &'static str,
    pub(super) name: String,
    /// Changed fields; of an added or a removed record all set fields.
    pub(super) fields: Vec<FieldDiff>,
}

/// A field that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct FieldDiff {
    pub(super) field: String,
    /// Value before. Absent: the field was not set.
    pub(super) from: Option<String>,
    /// Value after. Absent: the field is not set.
    pub(super) to: Option<String>,
}

/// Differences between two readings, by kind and name.
pub(super) fn record_diffs(
    before: &BTreeMap<RecordKey, RecordFields>,
    after: &BTreeMap<RecordKey, RecordFields>,
) -> Vec<RecordDiff> {
    let mut keys: Vec<&RecordKey> = before.keys().chain(after.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let none = RecordFields::new();
    let change = |key: &RecordKey| {
        let (old, new) = (before.get(key), after.get(key));
        let what = match (old, new) {
            (None, _) => "added",
            (_, None) => "removed",
            (Some(old), Some(new)) if old == new => return None,
            (Some(_), Some(_)) => "changed",
        };
        Some(RecordDiff {
            action: what,
            kind: KINDS.get(key.0).copied().unwrap_or_default(),
            name: key.1.clone(),
            fields: field_diffs(old.unwrap_or(&none), new.unwrap_or(&none)),
        })
    };
    keys.into_iter().filter_map(change).collect()
}

fn field_diffs(before: &RecordFields, after: &RecordFields) -> Vec<FieldDiff> {
    let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let change = |key: &String| {
        let (from, to) = (before.get(key), after.get(key));
        (from != to).then(|| FieldDiff {
            field: key.clone(),
            from: from.cloned(),
            to: to.cloned(),
        })
    };
    keys.into_iter().filter_map(change).collect()
}

impl RecordDiff {
    /// One line for people.
    pub(super) fn line(&self) -> String {
        let mark = match self.action {
            "added" => '+',
            "removed" => '-',
            _ => '~',
        };
        let reported = self
            .fields
            .iter()
            .filter(|one| self.action == "changed" || one.field != "name");
        let shown = reported.map(|one| match (&one.from, &one.to) {
            (Some(from), Some(to)) => format!("{} {from} → {to}", one.field),
            (None, Some(to)) if self.action == "added" => format!("{} {to}", one.field),
            (None, Some(to)) => format!("{} (none) → {to}", one.field),
            (Some(from), None) if self.action == "removed" => format!("{} {from}", one.field),
            (Some(from), None) => format!("{} {from} → (none)", one.field),
            (None, None) => one.field.clone(),
        });
        let shown: Vec<String> = shown.collect();
        let fields = if shown.is_empty() {
            String::new()
        } else {
            format!(": {}", shown.join(", "))
        };
        format!("{mark} {} {}{fields}", self.kind, self.name)
    }
}

/// The set fields of a message of `pumice.v1`, lists of amounts by resource.
fn fields(of: &MessageDescriptor, bytes: &[u8]) -> Result<RecordFields, CommandError> {
    let message = DynamicMessage::decode(of.clone(), bytes);
    let message = message.map_err(|error| CommandError::message(format!("error: {}: {error}", of.name())))?;
    let mut fields = RecordFields::new();
    flatten("", &message, &mut fields);
    Ok(fields)
}

fn flatten(path: &str, message: &DynamicMessage, into: &mut RecordFields) {
    let mut empty = true;
    for (field, value) in message.fields() {
        empty = false;
        // The path of a list of amounts leaves out its field `items`.
        let path = match (path, field.name()) {
            ("", name) => name.to_owned(),
            (path, "items") => path.to_owned(),
            (path, name) => format!("{path}.{name}"),
        };
        put_value(&path, value, &field.kind(), into);
    }
    if empty && !path.is_empty() {
        into.insert(path.to_owned(), "{}".to_owned());
    }
}

fn put_value(path: &str, value: &Value, kind: &prost_reflect::Kind, into: &mut RecordFields) {
    let text = match value {
        Value::Message(message) if message.descriptor().full_name() == "google.protobuf.Timestamp" => {
            let seconds = message
                .get_field_by_name("seconds")
                .and_then(|seconds| seconds.as_i64());
            let time = prost_types::Timestamp {
                seconds: seconds.unwrap_or_default(),
                nanos: 0,
            };
            time.to_string()
        }
        Value::Message(message) => return flatten(path, message, into),
        Value::Map(map) => {
            let mut entries: Vec<(String, &Value)> = map.iter().map(|(key, value)| (key_text(key), value)).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            for (key, value) in entries {
                into.insert(format!("{path}[{key}]"), plain_text(value));
            }
            return;
        }
        Value::EnumNumber(number) => kind
            .as_enum()
            .and_then(|kind| Some(kind.get_value(*number)?.name().to_owned()))
            .map_or_else(|| number.to_string(), |name| enum_word(&name, kind)),
        Value::Bool(_)
        | Value::I32(_)
        | Value::I64(_)
        | Value::U32(_)
        | Value::U64(_)
        | Value::F32(_)
        | Value::F64(_)
        | Value::String(_)
        | Value::Bytes(_)
        | Value::List(_) => plain_text(value),
    };
    into.insert(path.to_owned(), text);
}

/// `TASK_STATUS_RUNNING` as `running`.
fn enum_word(name: &str, kind: &prost_reflect::Kind) -> String {
    let enumeration = kind.as_enum().map(|own| own.name().len()).unwrap_or_default();
    let words = name.split('_').collect::<Vec<_>>();
    let mut length = 0;
    let rest = words.iter().skip_while(|word| {
        let within = length < enumeration;
        length += word.len();
        within
    });
    rest.copied().collect::<Vec<_>>().join("_").to_lowercase()
}

fn key_text(key: &MapKey) -> String {
    key.as_str().map_or_else(|| format!("{key:?}"), str::to_owned)
}

fn plain_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields_of(tasks: Vec<pb::Task>) -> BTreeMap<(usize, String), RecordFields> {
        let cluster = pb::Cluster {
            tasks,
            ..pb::Cluster::default()
        };
        let records = ClusterRecords {
            cluster,
            ..ClusterRecords::default()
        };
        records.fields().unwrap()
    }

    #[test]
    fn diffs_name_the_fields_by_path() {
        let task = |name: &str, cpu: &str| pb::Task {
            name: name.to_owned(),
            requests: Some(pb::ResourceList {
                items: [("cpu".to_owned(), cpu.to_owned())].into(),
            }),
            ..pb::Task::default()
        };
        let running = pb::Task {
            node: "n-1".to_owned(),
            status: pb::TaskStatus::Running.into(),
            ..task("a", "1")
        };
        let found = record_diffs(
            &fields_of(vec![task("a", "1"), task("b", "1")]),
            &fields_of(vec![running, task("c", "2")]),
        );
        let lines: Vec<String> = found.iter().map(RecordDiff::line).collect();
        assert_eq!(
            lines,
            [
                "~ task a: node (none) → n-1, status (none) → running",
                "- task b: requests[cpu] 1",
                "+ task c: requests[cpu] 2",
            ]
        );
    }
}
