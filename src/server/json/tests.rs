use prost::Message as _;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, SerializeOptions, Value};

use super::*;

/// Deepest messages within messages that are filled.
const DEPTH: usize = 5;

/// Value of a kind; `turn` chooses among the values that are worth a look.
fn value(kind: &Kind, turn: usize, depth: usize) -> Value {
    let texts = ["ü \"quoted\"\n\u{1}", "a", "1e3"];
    match kind {
        Kind::Double => Value::F64([f64::NAN, f64::NEG_INFINITY, -0.25, 1e300, 1e21][turn % 5]),
        Kind::Int32 | Kind::Sint32 => Value::I32([i32::MIN, -1, i32::MAX][turn % 3]),
        Kind::Int64 => Value::I64([i64::MIN, -1, i64::MAX][turn % 3]),
        Kind::Uint32 => Value::U32([1, u32::MAX][turn % 2]),
        Kind::Uint64 | Kind::Fixed64 => Value::U64([1, u64::MAX][turn % 2]),
        Kind::Bool => Value::Bool(true),
        Kind::String => Value::String(texts[turn % 3].to_owned()),
        Kind::Bytes => Value::Bytes(vec![0xfb; 1 + turn % 4].into()),
        Kind::Enum(names) => Value::EnumNumber(names.values().last().unwrap().number()),
        Kind::Message(message) if message.full_name() == DURATION => {
            let duration = prost_types::Duration {
                seconds: 7,
                nanos: [0, 1_500_000, 30][turn % 3],
            };
            Value::Message(transcoded(message, &duration))
        }
        Kind::Message(message) if message.full_name() == TIMESTAMP => {
            let timestamp = prost_types::Timestamp {
                seconds: 1_796_000_000,
                nanos: [0, 120_000_000][turn % 2],
            };
            Value::Message(transcoded(message, &timestamp))
        }
        Kind::Message(message) => Value::Message(filled(message, turn, depth + 1)),
        Kind::Float | Kind::Sint64 | Kind::Fixed32 | Kind::Sfixed32 | Kind::Sfixed64 => {
            panic!("{kind:?} is not read or written")
        }
    }
}

fn transcoded(kind: &MessageDescriptor, message: &impl prost::Message) -> DynamicMessage {
    DynamicMessage::decode(kind.clone(), message.encode_to_vec().as_slice()).unwrap()
}

/// Message with a value in each field, and in one of each choice.
fn filled(kind: &MessageDescriptor, turn: usize, depth: usize) -> DynamicMessage {
    let mut message = DynamicMessage::new(kind.clone());
    if depth > DEPTH {
        return message;
    }
    for field in kind.fields() {
        let choice = field.containing_oneof().map_or(0, |choice| choice.fields().len());
        let number = field.number() as usize;
        if choice > 1 && number % choice != turn % choice {
            continue;
        }
        message.set_field(&field, field_value(&field, turn + number, depth));
    }
    message
}

fn field_value(field: &FieldDescriptor, turn: usize, depth: usize) -> Value {
    let kind = field.kind();
    if field.is_map() {
        let entry = kind.as_message().unwrap();
        let of = |turn| value(&entry.map_entry_value_field().kind(), turn, depth);
        let keys = ["a.b/c", "", "\u{7f}é"].map(|key| MapKey::String(key.to_owned()));
        return Value::Map(keys.into_iter().zip((turn..).map(of)).collect());
    }
    if field.is_list() {
        return Value::List((turn..turn + 3).map(|turn| value(&kind, turn, depth)).collect());
    }
    value(&kind, turn, depth)
}

/// JSON of a message by another implementation.
fn expected_json(message: &DynamicMessage) -> serde_json::Value {
    let mut serializer = serde_json::Serializer::new(Vec::new());
    message
        .serialize_with_options(&mut serializer, &SerializeOptions::new())
        .unwrap();
    serde_json::from_slice(&serializer.into_inner()).unwrap()
}

fn written(message: &MessageDescriptor, wire: &[u8]) -> Vec<u8> {
    let mut json = Vec::new();
    write_json(&mut json, message, wire).unwrap();
    json
}

#[test]
fn every_message_has_the_json_of_another_implementation_and_is_read_back() {
    let pools = [&DESCRIPTORS, &DETAIL_DESCRIPTORS];
    let messages = pools.into_iter().flat_map(|pool| pool.all_messages());
    let mut count = 0;
    for kind in messages.filter(|kind| !kind.is_map_entry() && !kind.full_name().starts_with("google.protobuf.")) {
        if kind.full_name() == "google.rpc.Status" {
            // Its details are a type of their own in JSON; a response never has one.
            continue;
        }
        for turn in 0..6 {
            let message = filled(&kind, turn, 0);
            let wire = message.encode_to_vec();
            let json = written(&kind, &wire);
            let parsed: serde_json::Value = serde_json::from_slice(&json).unwrap();
            assert_eq!(parsed, expected_json(&message), "{}", kind.full_name());
            let encoded = encode_json(&json, &kind, usize::MAX).unwrap();
            let read = DynamicMessage::decode(kind.clone(), encoded.as_slice()).unwrap();
            // A number that is not one differs from itself, so the JSON is compared.
            assert_eq!(expected_json(&read), parsed, "{}", kind.full_name());
            count += 1;
        }
    }
    assert!(count > 500, "{count}");
}

/// Error of a request of Score.
fn error(json: &str) -> (String, String) {
    let score = method_at("/pumice.v1.DecisionService/Score").unwrap().input();
    let error = encode_json(json.as_bytes(), &score, 1 << 20).unwrap_err();
    (error.field, error.message)
}

#[test]
fn an_error_names_the_field_and_its_place() {
    for (json, field, reason) in [
        ("", "", "EOF while parsing a value at line 1 column 0"),
        ("[]", "", "[] is not an object at line 1 column 1"),
        ("{} x", "", "trailing characters at line 1 column 4"),
        (r#"{"tasks":[{"#, "", "EOF while parsing an object at line 1 column 11"),
        (
            r#"{"taks":[]}"#,
            "taks",
            "ScoreRequest has no such field; did you mean `tasks`? at line 1 column 9",
        ),
        (
            "{\n \"tasks\": [{}, {\"requests\": {\"items\": {\"cpu\": 4}}}]}",
            "tasks[1].requests.items[cpu]",
            "4 is not a text at line 2 column 47",
        ),
        (
            r#"{"tasks":[null]}"#,
            "tasks[0]",
            "null is not an object at line 1 column 11",
        ),
        (r#"{"tasks":{}}"#, "tasks", "{} is not an array at line 1 column 10"),
        (
            r#"{"plugins":["a"],"with_filter":true,"withFilter":true}"#,
            "with_filter",
            "`with_filter` is there already at line 1 column 32",
        ),
        (
            r#"{"against":{"latest":{},"inline":{}}}"#,
            "against.latest",
            "`target` is there already at line 1 column 22",
        ),
        (
            r#"{"withFilter":"true"}"#,
            "withFilter",
            "\"true\" is not true or false at line 1 column 15",
        ),
    ] {
        assert_eq!(error(json), (field.to_owned(), reason.to_owned()), "{json}");
    }
}

#[test]
fn numbers_are_read_as_numbers_and_as_texts_within_their_range() {
    let read = |kind: Kind, json: &str| {
        let mut reader = json_reader::JsonReader {
            wire: Vec::new(),
            most: usize::MAX,
        };
        reader.value(1, &kind, serde_json::from_str(json).unwrap())
    };
    for (kind, good, bad) in [
        (Kind::Int32, "-2147483648", "2147483648"),
        (Kind::Int32, "\"7\"", "\"\""),
        (Kind::Int32, "1e3", "1.5"),
        (Kind::Sint32, "-2147483648", "-2147483649"),
        (Kind::Uint32, "4294967295", "-1"),
        (Kind::Int64, "\"9223372036854775807\"", "9223372036854775808"),
        (Kind::Uint64, "18446744073709551615", "18446744073709551616"),
        (Kind::Double, "\"-Infinity\"", "\"inf\""),
        (Kind::Double, "1e308", "1e309"),
        (Kind::Double, "\"1.5\"", "true"),
        (Kind::Bool, "false", "0"),
        (Kind::Bytes, "\"-_8\"", "\"*\""),
        (Kind::Bytes, "\"+/8=\"", "7"),
        (Kind::String, "\"\\u00e9\"", "null"),
    ] {
        assert!(read(kind.clone(), good).is_ok(), "{kind:?} {good}");
        assert!(read(kind.clone(), bad).is_err(), "{kind:?} {bad}");
    }
}

#[test]
fn absent_fields_may_be_null_and_names_may_be_those_of_the_protocol_files() {
    let score = method_at("/pumice.v1.DecisionService/Score").unwrap().input();
    let read = |json: &str| encode_json(json.as_bytes(), &score, 1 << 20).unwrap();
    assert!(read(r#"{"tasks":null,"withFilter":null}"#).is_empty());
    assert_eq!(read(r#"{"with_filter":true}"#), read(r#"{"withFilter":true}"#));
}

#[test]
fn a_message_is_read_up_to_a_number_of_bytes() {
    let score = method_at("/pumice.v1.DecisionService/Score").unwrap().input();
    let tasks = format!("{{\"tasks\":[{}{{}}]}}", "{},".repeat(600));
    assert!(encode_json(tasks.as_bytes(), &score, 2_000).is_ok());
    let error = encode_json(tasks.as_bytes(), &score, 1_000).unwrap_err();
    assert!(
        error.message.starts_with("the message has more than 1000 bytes"),
        "{error:?}"
    );
    let deep = format!("{{\"tasks\":{}{}}}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    assert!(encode_json(deep.as_bytes(), &score, 1_000).is_err());
}

/// Depth of the messages inside a request; a message inside itself has none.
fn depth(message: &MessageDescriptor, above: &[MessageDescriptor]) -> usize {
    assert!(!above.contains(message), "{} is inside itself", message.full_name());
    let above: Vec<_> = above.iter().cloned().chain([message.clone()]).collect();
    let kinds: Vec<Kind> = message.fields().map(|field| field.kind()).collect();
    let inner = kinds
        .iter()
        .filter_map(Kind::as_message)
        .map(|inner| depth(inner, &above));
    1 + inner.max().unwrap_or_default()
}

#[test]
fn requests_have_a_depth_so_that_reading_one_takes_little_stack() {
    let deepest = METHODS.values().map(|method| depth(&method.input(), &[])).max();
    assert!(deepest.is_some_and(|deepest| deepest < 20), "{deepest:?}");
}
