//! Streams in envelopes, and callers that do not read.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use pumice::config::ServerConfig;
use serde_json::{Value, json};

use super::call_with;
use crate::support::records::full_sync;
use crate::support::{EmbeddedServer, cluster, metric_value, until};

fn envelope(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let length = u32::try_from(text.len()).unwrap().to_be_bytes();
    [&[0], &length[..], text.as_bytes()].concat()
}

/// Flags and messages of envelopes.
fn envelopes(mut body: &[u8]) -> Vec<(u8, Value)> {
    let mut all = Vec::new();
    while let [flag, a, b, c, d, rest @ ..] = body {
        let (message, rest) = rest.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize);
        all.push((*flag, serde_json::from_slice(message).unwrap()));
        body = rest;
    }
    all
}

fn batch(sequence: u32) -> Value {
    json!({ "batch": { "source": "own", "sourceEpoch": "1", "sequence": sequence.to_string(), "part": sequence,
        "kind": if sequence == 1 { "BATCH_KIND_FULL_SYNC_LAST" } else { "BATCH_KIND_DELTA" },
        "put": { "queues": [{ "name": format!("q-{sequence}") }] } } })
}

fn sync(server: &EmbeddedServer, body: &[u8]) -> Vec<(u8, Value)> {
    let format = ("Content-Type", "application/connect+json");
    let reply = call_with(server.http, "StateService/Sync", &[format], body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(
        reply.head.contains("content-type: application/connect+json"),
        "{}",
        reply.head
    );
    envelopes(&reply.body)
}

#[test]
fn a_stream_has_an_envelope_for_each_message_and_its_error_in_the_last_one() {
    let server = EmbeddedServer::start();
    let mut first = batch(1);
    first["batch"]["part"] = 1.into();
    let replies = sync(&server, &envelope(&first));
    let [(0, applied), (2, end)] = replies.as_slice() else {
        panic!("{replies:?}");
    };
    assert_eq!(applied["outcome"]["position"]["sequence"], "1", "{applied}");
    assert_eq!(*end, json!({}));
    let replies = sync(&server, &[envelope(&json!({})), envelope(&batch(2))].concat());
    let [(2, end)] = replies.as_slice() else {
        panic!("{replies:?}");
    };
    assert_eq!(end["error"]["code"], "invalid_argument", "{end}");
    let replies = sync(&server, &envelope(&json!({ "batsch": 1 })));
    let (2, end) = replies.last().unwrap() else {
        panic!("{replies:?}");
    };
    assert!(
        end["error"]["message"]
            .as_str()
            .unwrap()
            .contains("did you mean `batch`?"),
        "{end}"
    );
    assert!(metric_value(server.http, "pumice_calls_total{rpc=\"Sync\",code=\"OK\"}") >= 1.0);
}

#[test]
fn a_viewer_that_reads_nothing_is_dropped() {
    let mut config = ServerConfig::on_free_ports();
    config.limits.edge.stalled = Duration::from_millis(200);
    let server = EmbeddedServer::with(config);
    server.wire.apply_batch(full_sync("own", 1, cluster(4_000))).unwrap();
    let connections = || metric_value(server.http, "pumice_connections");
    let before = connections();
    let mut viewers: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(server.http).unwrap()).collect();
    for viewer in &mut viewers {
        let request = "POST /pumice.v1.StateService/ListNodes HTTP/1.1\r\nHost: localhost\r\nContent-Type: \
                       application/json\r\nContent-Length: 2\r\n\r\n{}";
        viewer.write_all(request.repeat(300).as_bytes()).unwrap();
    }
    until("the viewers are seen", || connections() > before);
    until("the viewers are dropped", || connections() == before);
    for mut viewer in viewers {
        let mut rest = Vec::new();
        // The end of a connection that is closed is an error or nothing.
        let _ = viewer.read_to_end(&mut rest);
        let ends = rest.windows(13).filter(|bytes| *bytes == b"HTTP/1.1 200 ").count();
        assert!(ends < 300, "{ends} of 300 responses");
    }
    assert_eq!(super::call(server.http, "StateService/WhoAmI", "{}").status, 200);
}
