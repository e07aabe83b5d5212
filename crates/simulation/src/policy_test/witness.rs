//! Writer of files of cases: a cluster and what whole cycles do in it.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage as _, Value as Wire,
};

use super::yaml::short_enum_names;
use crate::cycle_outcome::CycleOutcomes;
use pumice_console::CommandError;
use pumice_console::schema;
use pumice_engine::policy::emit::to_yaml;
use pumice_engine::policy::{YamlNode, YamlValue};
use pumice_protocol::v1 as pb;

/// File of cases that share a document and a cluster.
#[derive(Debug)]
pub struct WitnessFile {
    title: String,
    document: String,
    cluster: pb::Cluster,
    schema: MessageDescriptor,
    cases: Vec<YamlNode>,
}

impl WitnessFile {
    /// File without cases.
    pub fn new(title: &str, document: &str, cluster: &pb::Cluster) -> Result<Self, CommandError> {
        Ok(Self {
            title: title.to_owned(),
            document: document.to_owned(),
            cluster: cluster.clone(),
            schema: schema::message("Cluster")?,
            cases: Vec::new(),
        })
    }

    /// Adds a case: a whole cycle under a compatibility, with its outcomes. The document and the tasks of the case are written
    /// where they differ from those of the file.
    pub fn case(
        &mut self,
        compatibility: &str,
        document: &str,
        cluster: &pb::Cluster,
        outcomes: &CycleOutcomes,
    ) -> Result<(), CommandError> {
        let changed = cluster.tasks.iter().filter(|task| !self.cluster.tasks.contains(task));
        let with = pb::Cluster {
            tasks: changed.cloned().collect(),
            ..pb::Cluster::default()
        };
        let mut case = vec![
            pair("name", text(&format!("under {compatibility}"))),
            pair("compatibility", text(compatibility)),
        ];
        if document != self.document {
            case.push(pair("document", text(document)));
        }
        if !with.tasks.is_empty() {
            case.push(pair("with", self.records(&with)?));
        }
        case.push(pair("cycle", YamlValue::Map(Vec::new())));
        case.push(pair("expect", expectations(outcomes)));
        self.cases.push(YamlNode::new(YamlValue::Map(case)));
        Ok(())
    }

    /// YAML of the document, the cluster and the cases.
    pub fn text(&self) -> Result<String, CommandError> {
        let document = self.document.lines().map(|line| format!("  {line}\n"));
        let rest = YamlValue::Map(vec![
            pair("cluster", self.records(&self.cluster)?),
            pair("cases", YamlValue::List(self.cases.clone())),
        ]);
        let document: String = document.collect();
        Ok(format!("# {}\ndocument: |\n{document}{}", self.title, to_yaml(&rest)))
    }

    fn records(&self, cluster: &pb::Cluster) -> Result<YamlValue, CommandError> {
        message_value(&dynamic(self.schema.clone(), cluster)?)
    }
}

/// Field that a record sets: the list of the record, its name, and the field.
pub type RecordField = [String; 3];

/// Fields that the records of a cluster set, but for their names.
pub fn record_fields(cluster: &pb::Cluster) -> Result<Vec<RecordField>, CommandError> {
    let message = dynamic(schema::message("Cluster")?, cluster)?;
    let mut fields = Vec::new();
    for (list, items) in message.fields() {
        for record in items.as_list().into_iter().flatten().filter_map(Wire::as_message) {
            let of_record = record.fields().map(|(field, _)| field.name().to_owned());
            let of_record = of_record.filter(|field| field != "name");
            fields.extend(of_record.map(|field| [list.name().to_owned(), name_of(record), field]));
        }
    }
    Ok(fields)
}

/// The cluster without a field of a record.
pub fn without_field(cluster: &pb::Cluster, [list, record, field]: &RecordField) -> Result<pb::Cluster, CommandError> {
    let mut message = dynamic(schema::message("Cluster")?, cluster)?;
    let items = message.get_field_by_name_mut(list).and_then(Wire::as_list_mut);
    let records = items.into_iter().flatten().filter_map(Wire::as_message_mut);
    for own in records.filter(|own| name_of(own) == *record) {
        own.clear_field_by_name(field);
    }
    message.transcode_to().map_err(|error| unreadable(&error))
}

fn name_of(record: &DynamicMessage) -> String {
    let name = record.get_field_by_name("name");
    name.and_then(|name| name.as_str().map(str::to_owned))
        .unwrap_or_default()
}

fn dynamic(schema: MessageDescriptor, cluster: &pb::Cluster) -> Result<DynamicMessage, CommandError> {
    DynamicMessage::decode(schema, cluster.encode_to_vec().as_slice()).map_err(|error| unreadable(&error))
}

fn unreadable(error: &prost::DecodeError) -> CommandError {
    CommandError::message(format!("error: records: {error}"))
}

fn expectations(outcomes: &CycleOutcomes) -> YamlValue {
    let enqueued = outcomes.iter().filter(|(_, own)| own.enqueued).map(|(job, _)| job);
    let of = |places: Vec<&BTreeMap<String, String>>| {
        let all: BTreeMap<&String, &String> = places.into_iter().flatten().collect();
        YamlValue::Map(all.into_iter().map(|(task, node)| pair(task, text(node))).collect())
    };
    let evicted: BTreeSet<&String> = outcomes.values().flat_map(|own| &own.evicted).collect();
    let phases: BTreeMap<String, String> = outcomes
        .iter()
        .filter_map(|(job, own)| Some((job.clone(), own.phase.clone()?)))
        .collect();
    let list = |names: Vec<&String>| YamlValue::List(names.into_iter().map(|name| YamlNode::new(text(name))).collect());
    YamlValue::Map(vec![
        pair("enqueued", list(enqueued.collect())),
        pair("bound", of(outcomes.values().map(|own| &own.bound).collect())),
        pair("pipelined", of(outcomes.values().map(|own| &own.pipelined).collect())),
        pair("evicted", list(evicted.into_iter().collect())),
        pair("phases", of(vec![&phases])),
    ])
}

fn pair(key: &str, value: YamlValue) -> (YamlNode, YamlNode) {
    (YamlNode::new(text(key)), YamlNode::new(value))
}

fn text(text: &str) -> YamlValue {
    YamlValue::String(text.to_owned())
}

/// A message as cases write it: see [`super::yaml::message`].
fn message_value(message: &DynamicMessage) -> Result<YamlValue, CommandError> {
    let name = message.descriptor().full_name().to_owned();
    if name == "google.protobuf.Timestamp" {
        let time: prost_types::Timestamp = message
            .transcode_to()
            .map_err(|error| CommandError::message(format!("error: a time: {error}")))?;
        return Ok(text(&time.to_string()));
    }
    if name == "pumice.v1.ResourceList" {
        let items = message.get_field_by_name("items");
        return Ok(items.map_or_else(|| YamlValue::Map(Vec::new()), |items| map_value(&items)));
    }
    let mut fields = Vec::new();
    for (field, value) in message.fields() {
        fields.push(pair(field.name(), field_value(&field, value)?));
    }
    Ok(YamlValue::Map(fields))
}

fn map_value(value: &Wire) -> YamlValue {
    let Wire::Map(entries) = value else {
        return YamlValue::Null;
    };
    let sorted: BTreeMap<&str, &str> = entries
        .iter()
        .filter_map(|(key, value)| match (key, value) {
            (MapKey::String(key), Wire::String(value)) => Some((key.as_str(), value.as_str())),
            _ => None,
        })
        .collect();
    YamlValue::Map(sorted.into_iter().map(|(key, value)| pair(key, text(value))).collect())
}

fn field_value(field: &FieldDescriptor, value: &Wire) -> Result<YamlValue, CommandError> {
    if field.is_map() {
        return Ok(map_value(value));
    }
    if let Wire::List(items) = value {
        let items: Result<Vec<YamlNode>, CommandError> = items
            .iter()
            .map(|item| single_value(field, item).map(YamlNode::new))
            .collect();
        return Ok(YamlValue::List(items?));
    }
    single_value(field, value)
}

fn single_value(field: &FieldDescriptor, value: &Wire) -> Result<YamlValue, CommandError> {
    Ok(match (value, field.kind()) {
        (Wire::Bool(on), _) => YamlValue::Bool(*on),
        (Wire::I32(number), _) => YamlValue::Int((*number).into()),
        (Wire::I64(number), _) => YamlValue::Int(*number),
        (Wire::U32(number), _) => YamlValue::Int((*number).into()),
        (Wire::F64(number), _) => YamlValue::Float(*number),
        (Wire::String(own), _) => text(own),
        (Wire::Message(message), _) => message_value(message)?,
        (Wire::EnumNumber(number), Kind::Enum(of)) => {
            let name = short_enum_names(&of).into_iter().find(|(_, own)| own == number);
            text(&name.unwrap_or_default().0.to_lowercase())
        }
        _ => {
            let message = format!("error: field `{}` cannot be written in a case", field.full_name());
            return Err(CommandError::message(message));
        }
    })
}
