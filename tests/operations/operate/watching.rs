//! Metrics, probes and logs: complete, readable by programs, and free of callers' data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pumice::config::ServerConfig;
use pumice::server::pb;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::program::LoggedProcess;
use super::{TestDirectory, cluster, document, fetch, metric_value, score_request, until};
use crate::support::EmbeddedServer;
use crate::support::records::{full_sync, node, nodes};

/// Reads a page as OpenMetrics 1.0 defines it: families with type and help before their samples, samples named after
/// their type, no series twice, the end marked. Returns the samples.
fn read_open_metrics(page: &str) -> BTreeMap<String, f64> {
    let mut types: BTreeMap<&str, &str> = BTreeMap::new();
    let mut helped = BTreeSet::new();
    let mut current = "";
    let mut closed = BTreeSet::new();
    let mut samples = BTreeMap::new();
    let body = page.strip_suffix("# EOF\n").expect("the end is marked");
    for line in body.lines() {
        if let Some(meta) = line.strip_prefix("# ") {
            let (keyword, rest) = meta.split_once(' ').unwrap();
            let (name, text) = rest.split_once(' ').unwrap();
            if name != current {
                assert!(closed.insert(current) && !closed.contains(name), "{name} is torn apart");
                current = name;
            }
            match keyword {
                "TYPE" => assert!(types.insert(name, text).is_none(), "{line}"),
                "HELP" => assert!(helped.insert(name) && text.ends_with('.'), "{line}"),
                "UNIT" => assert!(name.ends_with(&format!("_{text}")), "{line}"),
                _ => panic!("{line}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        let suffixes: &[&str] = match types[current] {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            "gauge" => &[""],
            other => panic!("{current} is a {other}"),
        };
        assert!(
            suffixes.iter().any(|suffix| name == format!("{current}{suffix}")),
            "{line}"
        );
        if let Some(labels) = series.strip_prefix(name).filter(|labels| !labels.is_empty()) {
            let labels = labels
                .strip_prefix('{')
                .and_then(|labels| labels.strip_suffix('}'))
                .expect(line);
            assert!(labels.split("\",").all(|label| label.contains("=\"")), "{line}");
        }
        let value: f64 = value.parse().unwrap();
        assert!(samples.insert(series.to_owned(), value).is_none(), "twice: {series}");
    }
    assert_eq!(types.keys().copied().collect::<BTreeSet<_>>(), helped);
    samples
}

/// Series of a server that was used a little.
const EXPECTED_METRICS: &[(&str, f64)] = &[
    ("pumice_calls_total{rpc=\"Score\",code=\"OK\"}", 1.0),
    ("pumice_call_duration_seconds_count{rpc=\"Score\"}", 1.0),
    ("pumice_decided_tasks_total{rpc=\"Score\"}", 2.0),
    ("pumice_decision_duration_seconds_count{rpc=\"Filter\"}", 1.0),
    (
        "pumice_plugin_tasks_total{rpc=\"Score\",plugin=\"resource-strategy-fit\"}",
        2.0,
    ),
    (
        "pumice_plugin_decision_duration_seconds_count{rpc=\"Score\",plugin=\"resource-strategy-fit\"}",
        1.0,
    ),
    ("pumice_policy_version{policy=\"default\"}", 2.0),
    ("pumice_policy_rejected{policy=\"default\"}", 0.0),
    (
        "pumice_policy_reloads_total{origin=\"built-in\",outcome=\"accepted\"}",
        1.0,
    ),
    ("pumice_policy_reloads_total{origin=\"rpc\",outcome=\"accepted\"}", 1.0),
    ("pumice_revision", 3.0),
    ("pumice_nodes", 3.0),
    ("pumice_queues", 0.0),
    ("pumice_jobs", 0.0),
    ("pumice_tasks", 0.0),
    ("pumice_reservations", 0.0),
    ("pumice_sessions", 1.0),
    ("pumice_connections", 1.0),
    ("pumice_workers_busy{kind=\"query\"}", 0.0),
    ("pumice_worker_queue{kind=\"records\"}", 0.0),
    ("pumice_writes_waiting", 0.0),
    ("pumice_source_synced{source=\"a \\\"quoted\\\" back\\\\slash\"}", 1.0),
];

#[test]
fn the_metrics_page_is_complete_and_well_formed() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    wire.apply_batch(full_sync("a \"quoted\" back\\slash", 1, cluster(3)))
        .unwrap();
    wire.score(score_request(2)).unwrap();
    wire.filter(pb::FilterRequest {
        tasks: score_request(1).tasks,
        ..pb::FilterRequest::default()
    })
    .unwrap();
    wire.open_session(pb::OpenSessionRequest::default()).unwrap();
    wire.reload_policy(pb::ReloadPolicyRequest {
        document: document("x"),
        ..pb::ReloadPolicyRequest::default()
    })
    .unwrap();
    let policy = wire
        .get_policy(pb::GetPolicyRequest::default())
        .unwrap()
        .policy
        .unwrap();

    let (head, page) = fetch(server.http, "/metrics");
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    let samples = read_open_metrics(&page);
    let info = format!(
        "pumice_policy_info{{policy=\"default\",version=\"2\",hash=\"{}\"}}",
        policy.hash
    );
    assert_eq!(samples.get(&info), Some(&1.0), "{page}");
    for (series, value) in EXPECTED_METRICS {
        assert_eq!(samples.get(*series), Some(value), "{series}\n{page}");
    }
    for series in [
        "process_resident_memory_bytes",
        "process_threads",
        "process_open_fds",
        "process_uptime_seconds",
        "pumice_resources",
    ] {
        assert!(samples[series] > 0.0, "{series}");
    }
    // On the next request the info of an older version is gone.
    assert!(!page.contains("version=\"1\",hash"), "{page}");
}

#[test]
fn probes_name_each_check_with_its_reason() {
    let server = EmbeddedServer::with(ServerConfig {
        expected_sources: vec![Arc::from("volcano")],
        ..ServerConfig::on_free_ports()
    });
    let health = |service: &str| {
        let service = service.to_owned();
        server.wire.wait(async {
            let mut client = HealthClient::new(server.wire.channel());
            client
                .check(HealthCheckRequest { service })
                .await
                .unwrap()
                .into_inner()
                .status
        })
    };
    let (serving, not_serving) = (1, 2);
    assert_eq!(server.page("/livez"), (200, "ok\n".to_owned()));
    assert_eq!(
        server.page("/livez?verbose").1,
        "[+] writer: works, 0 batches wait\nok\n"
    );
    assert_eq!(
        server.page("/readyz"),
        (503, "[-] source/volcano: not heard yet\nnot ready\n".to_owned())
    );
    let (_, verbose) = server.page("/readyz?verbose");
    for check in [
        "[+] serving: yes\n",
        "[+] writer: works",
        "[+] policy/default: version 1 (",
        "[-] source/volcano: ",
    ] {
        assert!(verbose.contains(check), "{verbose}");
    }
    // A source must be able to sync before anything can be decided.
    until("the state is open", || health("pumice.v1.StateService") == serving);
    until("decisions are not", || {
        health("pumice.v1.DecisionService") == not_serving
    });
    assert_eq!((health(""), health("pumice.v1.PolicyService")), (not_serving, serving));
    server.wire.apply_batch(full_sync("volcano", 1, cluster(1))).unwrap();
    until("ready", || {
        health("pumice.v1.DecisionService") == serving && health("") == serving
    });
    assert_eq!(server.page("/readyz"), (200, "ready\n".to_owned()));
}

#[test]
fn log_lines_are_objects_with_fields_and_without_content() {
    let scratch = TestDirectory::new();
    let secret = "do-not-log-me";
    let file = scratch.file("policy.yaml", &document(secret));
    let program = LoggedProcess::serve(&["--log", "pumice=debug", "--policy-file", &file.display().to_string()]);
    let wire = program.connect();
    let mut asked = score_request(1);
    asked.tasks[0].name = secret.to_owned();
    asked.tasks[0]
        .annotations
        .insert("volcano.sh/x".to_owned(), secret.to_owned());
    wire.score(asked).unwrap();
    wire.reload_policy(pb::ReloadPolicyRequest {
        document: document(&format!("{secret} 2")),
        ..pb::ReloadPolicyRequest::default()
    })
    .unwrap();
    let called = |rpc: &str| program.logged(rpc, |line| line["message"] == "call" && line["rpc"] == rpc);
    let (line, _) = (called("Score"), called("ReloadPolicy"));
    assert_eq!((&line["code"], &line["level"]), (&"OK".into(), &"DEBUG".into()));
    assert!(
        line["milliseconds"].as_f64().is_some() && line["timestamp"].is_string(),
        "{line}"
    );
    let in_force = program.logged("the policy has a line", |line| line["message"] == "policy in force");
    assert_eq!((&in_force["version"], in_force["hash"].is_string()), (&1.into(), true));
    assert!(!program.log().iter().any(|line| line.to_string().contains(secret)));
}

#[test]
fn problems_of_refused_records_are_counted() {
    let server = EmbeddedServer::start();
    let sent = nodes(vec![node("n1", &[("cpu", "no number")]), node("n2", &[("cpu", "1")])]);
    let outcome = server.wire.apply_batch(full_sync("a", 1, sent)).unwrap();
    assert_eq!(outcome.refused.len(), 1, "{outcome:?}");
    assert_eq!(metric_value(server.http, "pumice_record_problems_total"), 1.0);
}
