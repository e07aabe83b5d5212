//! Schema of files of cases: records by the protocol, queries and expectations by the page about them.

use std::collections::BTreeMap;

use prost_reflect::{DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use pumice_engine::policy::Compatibility;
use serde_json::{Map, Value, json};

use super::{DRAFT, assert_is_current, closed_object};

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/definitions/{name}")})
}

fn texts() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

fn by_name(value: &Value) -> Value {
    json!({"type": "object", "additionalProperties": value})
}

/// Words of an enumeration: its values without what is common to all.
fn words(of: &EnumDescriptor) -> Value {
    let names: Vec<String> = of.values().map(|value| value.name().to_owned()).collect();
    let parts = |name: &str| name.split('_').map(str::to_owned).collect::<Vec<_>>();
    let first = parts(&names[0]);
    let common = (0..first.len())
        .take_while(|at| names.iter().all(|name| parts(name).get(*at) == first.get(*at)))
        .count();
    let short = names.iter().map(|name| parts(name)[common..].join("_").to_lowercase());
    json!({"enum": short.collect::<Vec<_>>()})
}

/// Schema of a field, and the messages that it leads to.
fn field_schema(field: &FieldDescriptor, messages: &mut BTreeMap<String, Value>) -> Value {
    if field.is_map() {
        return by_name(&json!({"type": "string"}));
    }
    let one = match field.kind() {
        Kind::Message(of) if of.full_name() == "pumice.v1.ResourceList" => {
            json!({"type": ["object", "null"], "additionalProperties": {"type": ["string", "number"]}})
        }
        Kind::Message(of) if of.full_name() == "google.protobuf.Timestamp" => json!({"type": "string"}),
        Kind::Message(of) => {
            message_schema(&of, messages);
            reference(of.name())
        }
        Kind::Enum(of) => words(&of),
        Kind::Bool => json!({"type": "boolean"}),
        Kind::Double => json!({"type": "number"}),
        Kind::Int32 => json!({"type": "integer"}),
        Kind::Uint32 => json!({"type": "integer", "minimum": 0}),
        // JSON of a protocol message may have these as text.
        Kind::Int64 => json!({"type": ["integer", "string"]}),
        // JSON has bytes as base64.
        Kind::String | Kind::Bytes => json!({"type": "string"}),
        other @ (Kind::Float
        | Kind::Uint64
        | Kind::Sint32
        | Kind::Sint64
        | Kind::Fixed32
        | Kind::Fixed64
        | Kind::Sfixed32
        | Kind::Sfixed64) => panic!("no record has a field of the kind {other:?}"),
    };
    if field.is_list() {
        json!({"type": "array", "items": one})
    } else {
        one
    }
}

/// Adds the schema of a message. A field has both names, and null is as good as nothing.
fn message_schema(of: &MessageDescriptor, messages: &mut BTreeMap<String, Value>) {
    if messages.contains_key(of.name()) {
        return;
    }
    messages.insert(of.name().to_owned(), Value::Null);
    let mut properties = Map::new();
    for field in of.fields() {
        let schema = json!({"anyOf": [field_schema(&field, messages), {"type": "null"}]});
        for name in [field.name(), field.json_name()] {
            properties.insert(name.to_owned(), schema.clone());
        }
    }
    messages.insert(of.name().to_owned(), closed_object(&properties.into(), &[]));
}

/// Keys of a query and of its expectations, with required keys of the query.
fn query(name: &str) -> (Value, Value, Vec<&'static str>) {
    let (text, flag, number) = (
        json!({"type": "string"}),
        json!({"type": "boolean"}),
        json!({"type": "number"}),
    );
    let task = json!({"anyOf": [text, reference("Task")]});
    let job = json!({"anyOf": [text, reference("Job")]});
    let count = json!({"type": ["integer", "null"], "minimum": 0});
    let reason = closed_object(
        &json!({"plugin": text, "code": text, "resource": text, "message": text, "count": count}),
        &[],
    );
    let reasons = json!({"type": "array", "items": reason});
    let fit = json!({"enum": ["none", "idle", "futureIdle"]});
    let names = json!({"anyOf": [{"const": "all"}, texts()]});
    let keys = by_name(&by_name(&json!({"type": "array", "items": number})));
    match name {
        "filter" => (
            json!({"task": task, "nodes": texts(), "plugins": texts(), "resourceFit": fit}),
            json!({"fit": texts(), "fitCount": count, "reasons": reasons}),
            vec!["task"],
        ),
        "score" => (
            json!({"task": task, "nodes": texts(), "plugins": texts(), "resourceFit": fit, "unfiltered": flag}),
            json!({"fit": texts(), "fitCount": count, "reasons": reasons, "best": text, "ranking": texts(),
                "scores": by_name(&number), "parts": by_name(&by_name(&number))}),
            vec!["task"],
        ),
        "place" => (
            json!({"task": task, "count": count, "nodes": texts()}),
            json!({"nodes": texts(), "reasons": reasons,
                "devices": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}}),
            vec!["task"],
        ),
        "admit" => (
            json!({"job": job, "task": task, "after": {"type": "array", "items": job}, "plugins": texts()}),
            json!({"permitted": flag, "reasons": reasons, "headroom": count, "cards": texts(),
                "votes": by_name(&json!({"type": "integer"}))}),
            vec![],
        ),
        "order" => (
            json!({"queues": names, "jobs": names, "plugins": texts()}),
            json!({"queues": texts(), "jobs": texts(), "queueKeys": keys, "jobKeys": keys}),
            vec![],
        ),
        "victims" => (
            json!({"kind": {"enum": ["preempt", "reclaim", "gangPreempt", "gangReclaim", "shuffle"]}, "preemptor": task,
                "node": text, "plugins": texts(), "candidates": {"type": "array", "items": task}, "irreducible": flag}),
            json!({"victims": texts(), "fitsAfter": count, "choices": by_name(&texts())}),
            vec!["kind"],
        ),
        "cycle" => (
            json!({}),
            json!({"enqueued": texts(), "bound": by_name(&text), "pipelined": by_name(&text), "evicted": texts(),
                "phases": by_name(&text)}),
            vec![],
        ),
        other => panic!("{other}"),
    }
}

/// Policy and cluster, of a file or of a case.
fn setup() -> Map<String, Value> {
    let text = json!({"type": "string"});
    let keys = json!({
        "policy": {"type": "string", "description": "Path of the policy, from this file"},
        "document": {"type": "string", "description": "The policy itself"},
        "compatibility": {"enum": Compatibility::ALL.map(Compatibility::name)},
        "profile": text,
        "cluster": reference("Cluster"),
        "clusterFile": {"type": "string", "description": "A file as for pumice state load"},
    });
    keys.as_object().unwrap().clone()
}

#[test]
fn the_schema_of_cases_has_every_record_and_query() {
    let queries = ["filter", "score", "place", "admit", "order", "victims", "cycle"];
    let mut case = setup();
    case.insert("name".to_owned(), json!({"type": "string"}));
    case.insert("with".to_owned(), reference("Cluster"));
    let mut alternatives = Vec::new();
    for name in queries {
        let (keys, expected, required) = query(name);
        case.insert(name.to_owned(), closed_object(&keys, &required));
        let mut expected = expected.as_object().unwrap().clone();
        expected.insert("problem".to_owned(), json!({"type": "string"}));
        expected.insert("tolerance".to_owned(), json!({"type": "number"}));
        let mut expect = closed_object(&expected.into(), &[]);
        expect["minProperties"] = 1.into();
        alternatives.push(json!({"required": [name], "properties": {"expect": expect}}));
    }
    case.insert("expect".to_owned(), json!({"type": "object"}));
    let mut case = closed_object(&case.into(), &["name", "expect"]);
    case["oneOf"] = alternatives.into();

    let pool = DescriptorPool::decode(pumice_protocol::FILE_DESCRIPTOR_SET).unwrap();
    let mut definitions = BTreeMap::new();
    for name in ["Cluster", "Task", "Job"] {
        message_schema(
            &pool.get_message_by_name(&format!("pumice.v1.{name}")).unwrap(),
            &mut definitions,
        );
    }
    let mut file = setup();
    file.insert("cases".to_owned(), json!({"type": "array", "items": case}));
    let mut schema = closed_object(&file.into(), &["cases"]);
    schema["$schema"] = DRAFT.into();
    schema["title"] = "File of cases for pumice policy test".into();
    schema["definitions"] = serde_json::to_value(&definitions).unwrap();
    assert_is_current("policy-test", &schema);
}
