//! All records of a server, and the differences between two sets of records.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_reflect::{DynamicMessage, MapKey, MessageDescriptor, ReflectMessage as _, Value};
use serde::Serialize;

use pumice_console::CommandError;
use pumice_console::schema;
use pumice_console::{output, pages};
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Number of attempts to read all listings at one revision.
const ATTEMPTS: usize = 5;
/// Kinds of records, in the order in which they are shown.
pub(super) const KINDS: [&str; 5] = ["node", "queue", "job", "task", "namespace"];

#[derive(Debug, Clone, Default)]
pub(super) struct ClusterRecords {
    pub(super) cluster: pb::Cluster,
    /// The owner of each record, by kind and name.
    pub(super) sources: BTreeMap<(&'static str, String), String>,
    /// Refused records with their first problem, by kind and name.
    pub(super) invalid: BTreeMap<(&'static str, String), String>,
    /// Revision of the first page.
    pub(super) revision: Option<pb::Revision>,
    /// True if the state changed between the pages in every attempt.
    pub(super) inconsistent: bool,
}

/// Reads all pages of one listing, and collects their revisions.
macro_rules! list {
    ($connection:expr, $evaluation_ref:expr, $call:ident, $request:ident, $records:ident, $revisions:expr) => {
        pages::all(async |token| {
            let request = pb::$request {
                against: $evaluation_ref.clone(),
                page: Some(pages::large(token)),
                ..pb::$request::default()
            };
            let page = $connection.state.$call(request).await?.into_inner();
            $revisions.extend(page.metadata.and_then(|metadata| metadata.revision));
            Ok((page.$records, page.next_page_token))
        })
        .await?
    };
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
        let against: Option<pb::EvaluationRef> = None;
        let mut revisions: Vec<pb::Revision> = Vec::new();
        let nodes = list!(connection, against, list_nodes, ListNodesRequest, nodes, revisions);
        let queues = list!(connection, against, list_queues, ListQueuesRequest, queues, revisions);
        let jobs = list!(connection, against, list_jobs, ListJobsRequest, jobs, revisions);
        let tasks = list!(connection, against, list_tasks, ListTasksRequest, tasks, revisions);
        let namespaces = list!(
            connection,
            against,
            list_namespaces,
            ListNamespacesRequest,
            namespaces,
            revisions
        );
        let mut records = ClusterRecords {
            revision: revisions.first().copied(),
            inconsistent: revisions.windows(2).any(|pair| pair.first() != pair.last()),
            ..ClusterRecords::default()
        };
        for status in nodes {
            let name = status.node.as_ref().map(|node| node.name.clone());
            records.insert_status(("node", name.unwrap_or_default()), status.source, &status.invalid);
            records.cluster.nodes.extend(status.node);
        }
        for status in queues {
            let name = status.queue.as_ref().map(|queue| queue.name.clone());
            records.insert_status(("queue", name.unwrap_or_default()), status.source, &status.invalid);
            records.cluster.queues.extend(status.queue);
        }
        for status in jobs {
            let name = status.job.as_ref().map(|job| job.name.clone());
            records.insert_status(("job", name.unwrap_or_default()), status.source, &status.invalid);
            records.cluster.jobs.extend(status.job);
        }
        for stored in tasks {
            let name = stored.task.as_ref().map(|task| task.name.clone());
            records.insert_status(("task", name.unwrap_or_default()), stored.source, &stored.invalid);
            records.cluster.tasks.extend(stored.task);
        }
        for status in namespaces {
            let name = status.namespace.as_ref().map(|namespace| namespace.name.clone());
            records.insert_status(("namespace", name.unwrap_or_default()), status.source, &status.invalid);
            records.cluster.namespaces.extend(status.namespace);
        }
        Ok(records)
    }

    fn insert_status(&mut self, key: (&'static str, String), source: String, invalid: &[pb::Problem]) {
        if let Some(problem) = invalid.first() {
            self.invalid.insert(key.clone(), output::problem(problem));
        }
        self.sources.insert(key, source);
    }

    /// Fields of every record by path, by kind and name of the record.
    pub(super) fn fields(&self) -> Result<BTreeMap<(usize, String), RecordFields>, CommandError> {
        let mut all = BTreeMap::new();
        let cluster = &self.cluster;
        let kinds = ["Node", "Queue", "Job", "Task", "Namespace"];
        let [node, queue, job, task, namespace] = kinds.map(schema::message);
        let (node, queue, job, task, namespace) = (node?, queue?, job?, task?, namespace?);
        for one in &cluster.nodes {
            all.insert((0, one.name.clone()), fields(&node, &one.encode_to_vec())?);
        }
        for one in &cluster.queues {
            all.insert((1, one.name.clone()), fields(&queue, &one.encode_to_vec())?);
        }
        for one in &cluster.jobs {
            all.insert((2, one.name.clone()), fields(&job, &one.encode_to_vec())?);
        }
        for one in &cluster.tasks {
            all.insert((3, one.name.clone()), fields(&task, &one.encode_to_vec())?);
        }
        for one in &cluster.namespaces {
            all.insert((4, one.name.clone()), fields(&namespace, &one.encode_to_vec())?);
        }
        for ((kind, name), problem) in &self.invalid {
            let place = KINDS.iter().position(|own| own == kind).unwrap_or_default();
            if let Some(fields) = all.get_mut(&(place, name.clone())) {
                fields.insert("invalid".to_owned(), problem.clone());
            }
        }
        Ok(all)
    }
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
    before: &BTreeMap<(usize, String), RecordFields>,
    after: &BTreeMap<(usize, String), RecordFields>,
) -> Vec<RecordDiff> {
    let mut keys: Vec<&(usize, String)> = before.keys().chain(after.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let none = RecordFields::new();
    let change = |key: &(usize, String)| {
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
