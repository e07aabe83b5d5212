//! Long texts with control characters in each text of each request, one after the other.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, MethodDescriptor, Value,
};
use pumice::server::pb;

use super::broken_calls::assert_no_server_error;
use super::transport::{HostileConnection, code, framed, other_caller, runtime};
use crate::support::process::serve;
use crate::support::records::full_sync;
use crate::support::{cluster, fetch, program::LoggedProcess, until};
use tonic::Code;

/// Begin of a line that a text would make, if it could.
const FORGED: &str = "2001-01-01T00:00:00Z ERROR forged";
/// Longest line of the log: a few fields of 1,000 bytes.
const LINE_BYTES: usize = 5_000;
/// Most messages within each other that a text is put into.
const DEPTH: usize = 7;

fn hostile_text() -> String {
    format!("\u{1b}[2J\r\n{FORGED}\n\u{9b}31m\u{202e}\"}} 1\n{}", "n".repeat(20_000))
}

/// One field of each message on the way to a text.
type TextPath = Vec<FieldDescriptor>;

/// Paths of all texts in a message. No message is entered twice on one path.
fn text_paths(message: &MessageDescriptor, above: &TextPath, paths: &mut Vec<TextPath>) {
    for field in message.fields() {
        let path: TextPath = above.iter().cloned().chain([field.clone()]).collect();
        let kind = field.kind();
        if let Some(within) = kind.as_message() {
            let is_open = above.iter().any(|field| field.parent_message() == within);
            if !is_open && path.len() < DEPTH && within.full_name() != message.full_name() {
                text_paths(within, &path, paths);
            }
        } else if kind == Kind::String {
            paths.push(path);
        }
    }
}

fn plausible_text(field: &str) -> &'static str {
    if field == "document" {
        "actions: allocate\n"
    } else {
        "a"
    }
}

/// Value of a field that says as much as its type can, so that a request is read beyond it.
fn plausible(field: &FieldDescriptor) -> Option<Value> {
    if field.is_list() || field.is_map() || field.containing_oneof().is_some() {
        return None;
    }
    let kind = field.kind();
    if kind.as_enum().is_some() {
        return Some(Value::EnumNumber(1));
    }
    let values = [
        (Kind::Uint64, Value::U64(1)),
        (Kind::Uint32, Value::U32(1)),
        (Kind::String, Value::String(plausible_text(field.name()).to_owned())),
    ];
    values.into_iter().find(|(of, _)| *of == kind).map(|(_, value)| value)
}

/// Message of this type with the text at the end of the path. `filled`: other fields have plausible values.
fn message_with(kind: &MessageDescriptor, path: &[FieldDescriptor], text: &str, filled: bool) -> DynamicMessage {
    let mut message = DynamicMessage::new(kind.clone());
    if filled && !kind.is_map_entry() {
        for field in kind.fields() {
            if let Some(value) = plausible(&field) {
                message.set_field(&field, value);
            }
        }
    }
    let [field, rest @ ..] = path else { return message };
    let value = match field.kind().as_message() {
        Some(within) => Value::Message(message_with(within, rest, text, filled)),
        None => Value::String(text.to_owned()),
    };
    let value = if field.is_map() {
        let Value::Message(entry) = value else {
            panic!("an entry of a map")
        };
        let key = entry
            .get_field_by_name("key")
            .and_then(|key| key.as_str().map(str::to_owned));
        let of_key = entry.get_field_by_name("value").map(std::borrow::Cow::into_owned);
        Value::Map([(MapKey::String(key.unwrap()), of_key.unwrap())].into())
    } else if field.is_list() {
        Value::List(vec![value])
    } else {
        value
    };
    message.set_field(field, value);
    message
}

fn own_methods() -> Vec<MethodDescriptor> {
    let pool = DescriptorPool::decode(pb::FILE_DESCRIPTOR_SET).unwrap();
    let own = pool.services().filter(|service| service.package_name() == "pumice.v1");
    own.flat_map(|service| service.methods().collect::<Vec<_>>()).collect()
}

/// Sends all requests; their number.
async fn sweep(connection: &HostileConnection) -> usize {
    let (text, mut count) = (hostile_text(), 0);
    for method in own_methods() {
        let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
        let mut paths = Vec::new();
        text_paths(&method.input(), &Vec::new(), &mut paths);
        for fields in paths {
            for filled in [false, true] {
                let request = message_with(&method.input(), &fields, &text, filled);
                let answered = code(connection.ask(&path, framed(&request.encode_to_vec())).await.unwrap()).await;
                let names: Vec<_> = fields.iter().map(FieldDescriptor::name).collect();
                let is_server_error = matches!(answered, Code::Internal | Code::Unknown | Code::DataLoss);
                assert!(!is_server_error, "{path} {names:?}: {answered:?}");
                count += 1;
            }
        }
    }
    count
}

/// Checks the lines of a log, some of which have the text.
fn assert_sound<'l>(lines: impl Iterator<Item = &'l str>) {
    let (mut count, mut with_text) = (0, 0);
    for line in lines {
        assert_sound_line(line);
        count += 1;
        with_text += usize::from(line.contains("forged"));
    }
    assert!(
        count > 400 && with_text > 0,
        "{with_text} of {count} lines have the text"
    );
}

fn assert_sound_line(line: &str) {
    let begin: String = line.chars().take(300).collect();
    assert!(line.len() <= LINE_BYTES, "{} bytes: {begin:?}", line.len());
    assert!(!line.starts_with(FORGED), "{begin:?}");
    assert!(!line.chars().any(char::is_control), "{begin:?}");
    assert!(!line.contains('\u{202e}'), "{begin:?}");
}

#[test]
fn every_text_of_every_request_is_bounded_where_it_is_logged_and_counted() {
    let program = LoggedProcess::serve(&["--log", "debug"]);
    let wire = program.connect();
    wire.apply_batch(full_sync("sound", 1, cluster(4))).unwrap();
    let count = runtime().block_on(async {
        let connection = HostileConnection::open(program.grpc, 1 << 20).await;
        let count = sweep(&connection).await;
        assert_eq!(other_caller(program.grpc).await, Code::Ok);
        count
    });
    assert!(count > 400, "{count} requests");
    until("each call has its line", || program.log().len() > count);
    let lines: Vec<String> = program.log().iter().map(ToString::to_string).collect();
    assert_sound(lines.iter().map(String::as_str));
    let (_, page) = fetch(program.http, "/metrics");
    for line in page.lines() {
        assert!(line.len() < 1_000 && !line.contains("forged"), "{line:?}");
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
    assert_no_server_error(&program);
}

#[test]
fn no_text_of_a_request_splits_a_line_for_people() {
    let mut child = serve().args(["--log", "debug"]).stderr(Stdio::piped()).spawn().unwrap();
    let errors = BufReader::new(child.stderr.take().unwrap());
    let (sender, lines) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in errors.lines() {
            // Nobody reads on after a failure.
            let _ = sender.send(line.unwrap());
        }
    });
    let address = lines.iter().find_map(|line| {
        let address = line
            .contains("serving")
            .then(|| line.split("grpc=").nth(1).map(str::to_owned));
        address?.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
    });
    runtime().block_on(async {
        let connection = HostileConnection::open(address.unwrap(), 1 << 20).await;
        sweep(&connection).await;
    });
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    let lines: Vec<String> = lines.iter().collect();
    assert_sound(lines.iter().map(String::as_str));
    let is_begun = |line: &String| line.starts_with("20");
    assert!(lines.iter().all(is_begun), "a line begins with its time");
}
