//! Requests that are rejected: other sites, other formats, requests that cannot be read, limits and deadlines.

use std::time::{Duration, Instant};

use prost::Message as _;

use pumice::config::ServerConfig;

use super::{call, call_with, exchange};
use crate::support::EmbeddedServer;

const SCORE: &str = "DecisionService/Score";
const RELOAD: &str = "PolicyService/ReloadPolicy";

#[test]
fn other_sites_may_not_call_even_on_loopback() {
    let server = EmbeddedServer::start();
    let policy = br#"{"document": "actions: allocate\ntiers: [{plugins: [{name: binpack}]}]"}"#;
    let own = format!("127.0.0.1:{}", server.http.port());
    let own_origin = format!("http://{own}");
    let sites: &[&[(&str, &str)]] = &[
        &[("Host", "evil.example")],
        &[("Host", "localhost.evil.example:7462")],
        // A server without identities checks no token.
        &[("Host", "evil.example"), ("Authorization", "Bearer t")],
        &[("Host", "evil.example@127.0.0.1")],
        &[("Host", "")],
        &[("Host", "localhost"), ("Host", "localhost")],
        &[("Host", &own), ("Origin", "https://evil.example")],
        &[("Host", &own), ("Origin", "null")],
        &[("Host", &own), ("Origin", "http://localhost:7462")],
        &[("Host", &own), ("Sec-Fetch-Site", "cross-site")],
        &[("Host", &own), ("Sec-Fetch-Site", "same-site")],
    ];
    for headers in sites {
        let reply = call_with(server.http, RELOAD, headers, policy);
        assert_eq!(reply.status, 403, "{headers:?}: {}", reply.text());
        assert_eq!(reply.code(), "permission_denied", "{headers:?}");
        assert!(!reply.head.contains("access-control-"), "{}", reply.head);
    }
    let policies = call(server.http, "PolicyService/ListPolicies", "{}").json();
    assert_eq!(policies["policies"].as_array().unwrap().len(), 1, "nothing was changed");
    let own_pages: &[&[(&str, &str)]] = &[
        &[
            ("Host", &own),
            ("Origin", &own_origin),
            ("Sec-Fetch-Site", "same-origin"),
        ],
        &[("Host", "[::1]:7462")],
        &[("Host", "LOCALHOST:1")],
    ];
    for headers in own_pages {
        let reply = call_with(server.http, SCORE, headers, b"{}");
        assert_ne!(reply.status, 403, "{headers:?}: {}", reply.text());
    }
}

#[test]
fn forms_and_other_formats_are_rejected() {
    let server = EmbeddedServer::start();
    for format in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/proto",
        "application/jsonp",
        "",
    ] {
        let reply = call_with(server.http, SCORE, &[("Content-Type", format)], b"{}");
        assert_eq!(reply.status, 415, "{format}");
        assert!(reply.text().contains("is application/json"), "{}", reply.text());
    }
    let reply = call_with(server.http, SCORE, &[("Content-Type", "application/connect+json")], b"");
    assert_eq!(reply.status, 415, "the method is not a stream");
    let reply = call_with(server.http, "StateService/Sync", &[], b"{}");
    assert_eq!(reply.status, 415, "the method is a stream");
    for line in ["GET", "OPTIONS", "PUT"].map(|method| format!("{method} /pumice.v1.{SCORE}")) {
        let reply = exchange(server.http, &line, &[("Host", "localhost")], b"");
        assert_eq!(reply.status, 405, "{line}");
        assert!(
            reply.head.contains("allow: post") && !reply.head.contains("access-control"),
            "{}",
            reply.head
        );
    }
    let line = format!("POST /pumice.v1.{SCORE}");
    let headers = [
        ("Host", "localhost"),
        ("Content-Type", "application/json"),
        ("Transfer-Encoding", "chunked"),
    ];
    assert_eq!(
        exchange(server.http, &line, &headers, b"2\r\n{}\r\n0\r\n\r\n").status,
        411
    );
    for headers in [
        ("Connect-Protocol-Version", "2"),
        ("Connect-Timeout-Ms", "-1"),
        ("Connect-Timeout-Ms", "12345678901"),
    ] {
        assert_eq!(
            call_with(server.http, SCORE, &[headers], b"{}").status,
            400,
            "{headers:?}"
        );
    }
    let absent = call(server.http, "DecisionService/Absent", "{}");
    assert_eq!((absent.status, absent.code().as_str()), (501, "unimplemented"));
    assert_eq!(
        exchange(
            server.http,
            "POST /pumice.v1.Absent/Score",
            &[("Host", "localhost")],
            b""
        )
        .status,
        404
    );
}

#[test]
fn a_request_that_cannot_be_read_names_the_field_and_its_place() {
    let server = EmbeddedServer::start();
    for (body, field, words) in [
        ("", "", "line 1 column 0"),
        ("{\"tasks\": [{]}", "", "line 1 column 13"),
        ("{\n\"taks\": []}", "taks", "did you mean `tasks`? at line 2 column 9"),
        (
            "{\"limit\": -1}",
            "limit",
            "-1 is not an integer from 0 to 4294967295 at line 1 column 11",
        ),
        (
            "{\"against\": {\"latest\": {\"maxWait\": 5}}}",
            "against.latest.maxWait",
            "5 is not a duration such as \"1.5s\"",
        ),
        (
            "{\"nodeEncoding\": \"NODE_ENCODING_NAME\"}",
            "nodeEncoding",
            "did you mean `NODE_ENCODING_NAMES`?",
        ),
        ("{\"plugins\": [1]}", "plugins[0]", "1 is not a text"),
        (
            "{\"limit\": 1, \"limit\": 2}",
            "",
            "`limit` is there twice at line 1 column 23",
        ),
        (
            "{\"tasks\": [{\"labels\": {\"a\": \"1\", \"a\": \"2\"}}]}",
            "tasks[0].labels",
            "`a` is there twice",
        ),
        ("\u{1b}", "", "expected value"),
    ] {
        let reply = call(server.http, SCORE, body);
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (400, "invalid_argument"),
            "{body}"
        );
        let message = reply.json()["message"].as_str().unwrap().to_owned();
        assert!(
            message.starts_with(field) && message.contains(words),
            "{body}: {message}"
        );
        assert_eq!(
            reply.detail("google.rpc.ErrorInfo")["reason"],
            "REQUEST_MALFORMED",
            "{body}"
        );
        if !field.is_empty() {
            let violations = reply.detail("google.rpc.BadRequest");
            assert_eq!(violations["fieldViolations"][0]["field"], field, "{body}");
        }
    }
}

#[test]
fn integers_of_64_bits_are_exact() {
    let server = EmbeddedServer::start();
    let nodes = call(server.http, "StateService/ListNodes", "{}").json();
    let revision = &nodes["metadata"]["revision"];
    let epoch: u64 = revision["epoch"].as_str().unwrap().parse().unwrap();
    let wait = |epoch: u64, quote: &str| {
        let revision = format!("{{\"epoch\": {quote}{epoch}{quote}, \"number\": 1}}");
        let against = format!("{{\"against\": {{\"latest\": {{\"atLeast\": {revision}}}}}}}");
        call(server.http, "StateService/ListNodes", &against)
    };
    assert_eq!(wait(epoch, "\"").status, 200);
    assert_eq!(wait(epoch, "").status, 200, "as a number");
    let other = wait(epoch ^ 1, "\"");
    assert_eq!(
        other.detail("google.rpc.ErrorInfo")["reason"],
        "EPOCH_CHANGED",
        "{}",
        other.text()
    );
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the call has to end long before it would by itself"
)]
fn limits_and_deadlines_are_those_of_grpc() {
    let mut config = ServerConfig::on_free_ports();
    config.limits.edge.request_bytes = 200_000;
    let server = EmbeddedServer::with(config);
    let tasks = |count: usize| format!("{{\"tasks\": [{}{{}}]}}", "{},".repeat(count - 1));
    let reply = call(server.http, SCORE, &tasks(20_000));
    assert_eq!((reply.status, reply.code().as_str()), (429, "resource_exhausted"));
    assert_eq!(
        reply.detail("google.rpc.ErrorInfo")["metadata"]["limit"],
        "tasks",
        "{}",
        reply.text()
    );
    let reply = call(server.http, SCORE, &tasks(100_000));
    assert_eq!((reply.status, reply.code().as_str()), (429, "resource_exhausted"));
    assert_eq!(
        reply.detail("google.rpc.ErrorInfo")["reason"],
        "REQUEST_TOO_LARGE",
        "{}",
        reply.text()
    );
    let nodes = call(server.http, "StateService/ListNodes", "{}").json();
    let epoch = nodes["metadata"]["revision"]["epoch"].as_str().unwrap().to_owned();
    let body = format!(
        "{{\"against\": {{\"latest\": {{\"atLeast\": {{\"epoch\": \"{epoch}\", \"number\": \"99\"}}, \"maxWait\": \"9s\"}}}}}}"
    );
    let start = Instant::now();
    let reply = call_with(
        server.http,
        "StateService/ListNodes",
        &[("Connect-Timeout-Ms", "50")],
        body.as_bytes(),
    );
    // The call ends with its deadline, long before the nine seconds that it may wait.
    assert_eq!(
        reply.detail("google.rpc.ErrorInfo")["reason"],
        "REVISION_NOT_REACHED",
        "{}",
        reply.text()
    );
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_large_response_is_bounded_by_its_json() {
    let with_nodes = |config| {
        let server = EmbeddedServer::with(config);
        let apply = crate::support::records::full_sync("own", 1, crate::support::cluster(150));
        server.wire.apply_batch(apply).unwrap();
        let nodes = server.wire.list_nodes(pumice::server::pb::ListNodesRequest::default());
        let length = nodes.unwrap().encoded_len();
        (server, length)
    };
    let (server, wire_bytes) = with_nodes(ServerConfig::on_free_ports());
    let json_bytes = call(server.http, "StateService/ListNodes", "{}").text().len();
    assert!(json_bytes > wire_bytes + 1_000, "{json_bytes} {wire_bytes}");
    let mut config = ServerConfig::on_free_ports();
    config.limits.edge.response_bytes = usize::midpoint(wire_bytes, json_bytes);
    let (server, _) = with_nodes(config);
    let reply = call(server.http, "StateService/ListNodes", "{}");
    assert_eq!((reply.status, reply.code().as_str()), (429, "resource_exhausted"));
    let reason = reply.detail("google.rpc.ErrorInfo");
    assert_eq!(reason["metadata"]["limit"], "response_bytes", "{}", reply.text());
}

#[test]
fn a_setting_turns_it_off() {
    let config = ServerConfig {
        http_json: false,
        ..ServerConfig::on_free_ports()
    };
    let server = EmbeddedServer::with(config);
    assert_eq!(call(server.http, SCORE, "{}").status, 404);
    assert_eq!(server.page("/console/").0, 404);
    assert_eq!(server.page("/livez").0, 200);
}
