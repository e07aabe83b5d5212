//! Settings: precedence, reports, and rejections.

use std::collections::BTreeMap;

use pumice::config::ServerConfig;
use pumice::limits::limits;
use pumice::server::pb;
use tonic::{Code, Status};

use super::program::command;
use super::{TestDirectory, cluster, limit_of, reported_limits, score_request};
use crate::support::EmbeddedServer;
use crate::support::records::{full_sync, latest_ref};

fn print(file: &std::path::Path, variables: &[(&str, &str)], flags: &[&str]) -> (bool, String, String) {
    let mut serve = command();
    serve
        .args(["serve", "--print-config", "--config"])
        .arg(file)
        .args(flags);
    let output = serve.envs(variables.iter().copied()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

fn lines(text: &str) -> BTreeMap<String, (String, String)> {
    let line = |line: &str| {
        let (name, rest) = line.split_once(": ")?;
        let (value, place) = rest.split_once(" # ")?;
        Some((name.to_owned(), (value.trim().to_owned(), place.to_owned())))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn a_flag_goes_before_the_environment_and_that_before_the_file() {
    let scratch = TestDirectory::new();
    let file = scratch.file(
        "settings.yaml",
        "sessions: 5\ncalls: 6\nreservation_lease_ms: 7\nexpect_source: [a, b]\nrequest_bytes: 1Mi\n",
    );
    let variables = [
        ("PUMICE_CALLS", "60"),
        ("PUMICE_RESERVATION_LEASE_MS", "70"),
        ("PUMICE_CONNECTIONS", ""),
    ];
    let (good, printed, errors) = print(&file, &variables, &["--reservation-lease-ms", "700"]);
    assert!(good, "{errors}");
    let shown = lines(&printed);
    let path = file.display();
    for (name, value, place) in [
        ("sessions", "5", format!("{path}:1:11")),
        ("calls", "60", "PUMICE_CALLS".to_owned()),
        ("reservation_lease_ms", "700", "--reservation-lease-ms".to_owned()),
        ("expect_source", "[\"a\", \"b\"]", format!("{path}:4:16")),
        ("request_bytes", "1048576", format!("{path}:5:16")),
        ("connections", "1024", "default".to_owned()),
    ] {
        assert_eq!(shown[name], (value.to_owned(), place), "{name}");
    }

    let again = scratch.file("again.yaml", &printed);
    let (good, reprinted, errors) = print(&again, &[], &[]);
    assert!(good, "{errors}");
    let values = |text: &str| -> Vec<String> { lines(text).into_values().map(|(value, _)| value).collect() };
    assert_eq!(values(&reprinted), values(&printed));
}

#[test]
fn all_settings_errors_are_reported_at_once_with_their_positions() {
    let scratch = TestDirectory::new();
    let file = scratch.file(
        "settings.yaml",
        "sesions: 3\ncalls: many\nlog_format: {}\nconnections: 0\n",
    );
    let (good, _, errors) = print(&file, &[("PUMICE_TRACE_RATIO", "7")], &["--grpc-address", "here"]);
    assert!(!good);
    let path = file.display();
    for problem in [
        "6 errors in the settings".to_owned(),
        format!("{path}:1:1: `sesions`: no such setting; did you mean `sessions`?"),
        format!("{path}:2:8: `calls`: `many` is not a whole number"),
        format!("{path}:3:13: `log_format`: a map is not a value"),
        format!("{path}:4:14: `connections`: `0` is not within 1"),
        "PUMICE_TRACE_RATIO: `7` is not a number from 0 to 1".to_owned(),
        "--grpc-address: `here` is not an IP address".to_owned(),
    ] {
        assert!(errors.contains(&problem), "{problem}\n{errors}");
    }
}

/// Settings of the store that cannot be together, and what is said of them.
const STORE_CONTRADICTIONS: [(&str, &str); 14] = [
    (
        "--store redis",
        "`redis` is not one of `disk`, `etcd`, `kubernetes`, `memory`",
    ),
    ("--store disk", "`disk` needs a `data_dir`"),
    ("--store etcd", "`etcd` needs an `etcd_member`"),
    ("--store memory --data-dir /x", "has an effect with `store: disk` only"),
    ("--etcd-member http://h:2379", "has an effect with `store: etcd` only"),
    (
        "--store etcd --etcd-member h:2379",
        "`h:2379` is not an address as https://host:2379",
    ),
    (
        "--store etcd --etcd-member https://h:2379",
        "name the authority that vouches for members with https://",
    ),
    (
        "--store etcd --etcd-member http://h:2379 --etcd-user me",
        "`etcd_user` and `etcd_password_file` belong together",
    ),
    (
        "--store-lease-ms 1500",
        "`1500` is not a lease of whole seconds, from 1 to 600",
    ),
    (
        "--kubernetes-store-name other",
        "has an effect with `store: kubernetes` only",
    ),
    (
        "--store kubernetes --kubernetes-store-name Mine",
        "`Mine` is not the name of a log",
    ),
    (
        "--store kubernetes --kubernetes-store-namespace a.b",
        "`a.b` is not the name of a namespace",
    ),
    (
        "--store kubernetes --kubernetes-store-writes-per-second 0",
        "`0` is not within 1 and 1000",
    ),
    (
        "--advertised-address a:1",
        "has an effect with `store: etcd` and `store: kubernetes` only",
    ),
];

#[test]
fn settings_of_the_store_that_contradict_each_other_are_reported() {
    let scratch = TestDirectory::new();
    let file = scratch.file("settings.yaml", "");
    for (flags, problem) in STORE_CONTRADICTIONS {
        let words: Vec<&str> = flags.split(' ').collect();
        let (good, _, errors) = print(&file, &[], &words);
        assert!(!good && errors.contains(problem), "{flags}: {errors}");
    }
}

#[test]
fn settings_of_a_shared_store_are_taken() {
    let scratch = TestDirectory::new();
    let file = scratch.file("settings.yaml", "");
    for (flags, name, value) in [
        (
            "--store etcd --etcd-member http://a:1 --etcd-member http://b:2",
            "etcd_member",
            "[\"http://a:1\", \"http://b:2\"]",
        ),
        (
            "--store kubernetes --kubeconfig /x --advertised-address a:1",
            "store",
            "kubernetes",
        ),
    ] {
        let words: Vec<&str> = flags.split(' ').collect();
        let (is_good, printed, errors) = print(&file, &[], &words);
        assert!(is_good, "{errors}");
        assert_eq!(lines(&printed)[name].0, value);
    }
}

#[test]
fn addresses_are_taken_as_people_write_them() {
    let scratch = TestDirectory::new();
    let file = scratch.file("settings.yaml", "http_address: localhost:7000\n");
    let (good, printed, errors) = print(&file, &[("PUMICE_GRPC_ADDRESS", ":7461")], &["--insecure"]);
    assert!(good, "{errors}");
    let shown = lines(&printed);
    assert_eq!(shown["grpc_address"].0, "\"0.0.0.0:7461\"");
    assert_eq!(shown["http_address"].0, "\"127.0.0.1:7000\"");
    for wrong in ["localhost", "7461", ":", ":+1", "localhost:70000", "elsewhere:1"] {
        let (good, _, errors) = print(&file, &[], &["--grpc-address", wrong]);
        assert!(
            !good && errors.contains(&format!("`{wrong}` is not an IP address")),
            "{wrong}: {errors}"
        );
    }
}

#[test]
fn standard_variables_come_after_all_settings_of_this_program() {
    let scratch = TestDirectory::new();
    let empty = scratch.file("empty.yaml", "");
    let file = scratch.file("settings.yaml", "otlp_endpoint: http://file:1\n");
    let standard = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://standard:1");
    let own = ("PUMICE_OTLP_ENDPOINT", "http://own:1");
    let flag = ["--otlp-endpoint", "http://flag:1"];
    for (file, variables, flags, value, place) in [
        (
            &empty,
            vec![standard],
            vec![],
            "http://standard:1",
            standard.0.to_owned(),
        ),
        (
            &file,
            vec![standard],
            vec![],
            "http://file:1",
            format!("{}:1:16", file.display()),
        ),
        (&file, vec![standard, own], vec![], "http://own:1", own.0.to_owned()),
        (
            &file,
            vec![standard, own],
            flag.to_vec(),
            "http://flag:1",
            flag[0].to_owned(),
        ),
    ] {
        let (good, printed, errors) = print(file, &variables, &flags);
        assert!(good, "{errors}");
        assert_eq!(lines(&printed)["otlp_endpoint"], (format!("\"{value}\""), place));
    }
    let protocol = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
    let (good, _, errors) = print(&empty, &[standard, protocol], &[]);
    assert!(
        !good && errors.contains("OTEL_EXPORTER_OTLP_PROTOCOL: `http/protobuf` is not `grpc`"),
        "{errors}"
    );
    assert!(print(&file, &[standard, protocol], &[]).0);
}

#[test]
fn every_limit_can_be_set_and_is_reported() {
    let mut config = ServerConfig::on_free_ports();
    for limit in limits() {
        let value = limit.get(&config.limits);
        limit.set(&mut config.limits, value.checked_sub(1).unwrap_or(1));
    }
    let wanted = config.limits.clone();
    let server = EmbeddedServer::with(config);
    let info = server.wire.get_server_info(pb::GetServerInfoRequest {}).unwrap();
    let reported = reported_limits(&info);
    for limit in limits() {
        assert_eq!(reported[limit.name()], limit.get(&wanted), "{}", limit.name());
    }
}

fn of_plugins() -> pb::ScoreRequest {
    pb::ScoreRequest {
        plugins: vec!["binpack".to_owned(), "drf".to_owned()],
        ..score_request(1)
    }
}

fn on_positions() -> pb::ScoreRequest {
    let mut evaluation_ref = latest_ref(pb::Revision::default(), 0);
    if let Some(pb::evaluation_ref::Target::Latest(snapshot)) = &mut evaluation_ref.target {
        snapshot.positions.push(pb::SourcePosition::default());
    }
    pb::ScoreRequest {
        against: Some(evaluation_ref),
        ..score_request(1)
    }
}

fn on_inline() -> pb::ScoreRequest {
    let inline = pb::InlineSnapshot {
        cluster: Some(cluster(2)),
        ..pb::InlineSnapshot::default()
    };
    pb::ScoreRequest {
        against: Some(pb::EvaluationRef {
            target: Some(pb::evaluation_ref::Target::Inline(Box::new(inline))),
            ..pb::EvaluationRef::default()
        }),
        ..score_request(1)
    }
}

#[test]
fn a_rejection_names_its_limit() {
    let mut config = ServerConfig::on_free_ports();
    let edge = &mut config.limits.edge;
    (edge.tasks, edge.plugins, edge.positions, edge.pairs) = (2, 1, 0, 3);
    (edge.inline_records, edge.batch_records, edge.request_bytes) = (1, 2, 4_096);
    (config.limits.state.sessions, config.limits.state.sources) = (0, 1);
    let server = EmbeddedServer::with(config);
    let wire = &server.wire;
    wire.apply_batch(full_sync("a", 1, cluster(2))).unwrap();

    let refused: [(&str, Status); 9] = [
        ("tasks", wire.score(score_request(3)).unwrap_err()),
        ("pairs", wire.score(score_request(2)).unwrap_err()),
        ("plugins", wire.score(of_plugins()).unwrap_err()),
        ("positions", wire.score(on_positions()).unwrap_err()),
        ("inline_records", wire.score(on_inline()).unwrap_err()),
        (
            "batch_records",
            wire.apply_batch(full_sync("a", 2, cluster(3))).unwrap_err(),
        ),
        (
            "request_bytes",
            wire.apply_batch(full_sync("a", 2, cluster(100))).unwrap_err(),
        ),
        (
            "sessions",
            wire.open_session(pb::OpenSessionRequest::default()).unwrap_err(),
        ),
        ("sources", wire.apply_batch(full_sync("b", 1, cluster(1))).unwrap_err()),
    ];
    for (limit, status) in refused {
        assert_eq!(
            (status.code(), limit_of(&status)),
            (Code::ResourceExhausted, limit.to_owned()),
            "{status:?}"
        );
        assert!(status.message().contains(limit), "{}", status.message());
        assert_eq!(
            super::metric_value(
                server.http,
                &format!("pumice_limit_rejections_total{{limit=\"{limit}\"}}")
            ),
            1.0,
            "{limit}"
        );
    }
}
