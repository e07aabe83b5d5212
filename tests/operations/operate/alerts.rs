//! Every alert rule, seen to fire: a real server is brought into the state that the alert is about, and the rule's own
//! expression is evaluated over the metrics before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use pumice::config::ServerConfig;
use pumice::server::pb;
use pumice_state::store::{FailingStore, StoreErrorMode};
use pumice_state::{ConfirmItems, LedgerConfirm};
use serde_json::Value;

use super::prometheus::{InstantVector, Scrape, evaluate};
use super::{cluster, document, fetch, repository, score_request, until};
use crate::support::EmbeddedServer;
use crate::support::ledger::{ask, confirm, limited, put_policy, wants};
use crate::support::records::{full_sync, latest_ref};
use pumice::server::pb::DecisionServiceClient;

/// Expressions of the rules by name of the alert.
fn alerts() -> BTreeMap<String, String> {
    let rules = std::fs::read_to_string(repository().join("deploy/helm/pumice/monitoring/alerts.yaml")).unwrap();
    let mut alerts = BTreeMap::new();
    let mut name = "";
    for line in rules.lines().map(str::trim) {
        name = line.strip_prefix("- alert: ").unwrap_or(name);
        if let Some(expression) = line.strip_prefix("expr: ") {
            let known = alerts.insert(name.to_owned(), expression.to_owned());
            assert!(!name.is_empty() && known.is_none(), "{line}");
        }
    }
    alerts
}

/// Servers that Prometheus scrapes, and how they looked first.
struct Watched {
    instances: Vec<SocketAddr>,
    before: Scrape,
}

fn scrape(instances: &[SocketAddr]) -> Scrape {
    let mut scrape = Scrape::default();
    for address in instances {
        scrape.add(&address.to_string(), &fetch(*address, "/metrics").1);
    }
    scrape
}

impl Watched {
    fn new(instances: &[SocketAddr]) -> Self {
        Self {
            instances: instances.to_vec(),
            before: scrape(instances),
        }
    }

    /// Series for which the alert fires now.
    fn firing(&self, alert: &str) -> InstantVector {
        let expression = &alerts()[alert];
        evaluate(expression, &self.before, &scrape(&self.instances), 60.0)
    }

    /// The alert is silent now, and fires once something has been done.
    fn fires_after(&self, alert: &str, cause: impl FnOnce()) {
        assert_eq!(self.firing(alert), [], "{alert} fires without its cause");
        cause();
        until(alert, || !self.firing(alert).is_empty());
    }
}

/// Alerts with a test below, which each name one.
const TESTED: [&str; 11] = [
    "PumiceFault",
    "PumiceFilesRunOut",
    "PumiceOverloaded",
    "PumicePanicked",
    "PumicePolicyRefused",
    "PumiceRefusing",
    "PumiceReplicasDiffer",
    "PumiceSlow",
    "PumiceSourceStale",
    "PumiceStoreFailing",
    "PumiceWriterBehind",
];

/// Alerts whose cause no server of this test has, with a file that writes each metric: Prometheus evaluates them in
/// `deploy/check`, and sees the first one fire.
const OF_OTHERS: [(&str, &[(&str, &str)]); 4] = [
    ("PumiceDown", &[]),
    (
        "PumiceUnavailable",
        &[
            ("unavailable_cycles_total", "clients/go/volcano/metrics.go"),
            ("decisions_without_service_total", "clients/go/kubescheduler/metrics.go"),
        ],
    ),
    (
        "PumiceClusterBehind",
        &[("cluster_behind_seconds", "src/telemetry/cluster_gauges.rs")],
    ),
    (
        "PumiceCertificateEnds",
        &[("tls_certificate_end_time", "src/telemetry/security_metrics.rs")],
    ),
];

#[test]
fn every_alert_has_a_test_and_a_runbook() {
    let mut rules: BTreeSet<String> = alerts().into_keys().collect();
    let runbook = std::fs::read_to_string(repository().join("docs/alerts.md")).unwrap();
    let entries = runbook.lines().filter_map(|line| line.strip_prefix("## "));
    assert_eq!(entries.map(str::to_owned).collect::<BTreeSet<_>>(), rules);
    for (alert, metrics) in OF_OTHERS {
        assert!(rules.remove(alert), "{alert}");
        for (metric, file) in metrics {
            let source = std::fs::read_to_string(repository().join(file)).unwrap();
            assert!(source.contains(metric), "{file} writes no {metric}");
            assert!(alerts()[alert].contains(metric), "{alert} does not read {metric}");
        }
    }
    assert_eq!(rules, TESTED.map(str::to_owned).into());
    let source = include_str!("alerts.rs");
    for alert in TESTED {
        let uses = source.matches(&format!("\"{alert}\"")).count();
        assert!(uses > 1, "{alert} is in the list only");
    }
}

fn reload(text: &str) -> pb::ReloadPolicyRequest {
    pb::ReloadPolicyRequest {
        document: text.to_owned(),
        ..pb::ReloadPolicyRequest::default()
    }
}

#[test]
fn a_refused_policy_fires() {
    let server = EmbeddedServer::start();
    let watched = Watched::new(&[server.http]);
    watched.fires_after("PumicePolicyRefused", || {
        server.wire.reload_policy(reload("tiers: 7\n")).unwrap_err();
    });
    server.wire.reload_policy(reload(&document("good"))).unwrap();
    assert_eq!(watched.firing("PumicePolicyRefused"), []);
}

#[test]
fn a_stale_source_fires() {
    let mut config = ServerConfig::on_free_ports();
    config.limits.state.source_stale = Duration::from_secs(3);
    let server = EmbeddedServer::with(config);
    server.wire.apply_batch(full_sync("kube", 1, cluster(1))).unwrap();
    // The cause is that nothing comes any more.
    Watched::new(&[server.http]).fires_after("PumiceSourceStale", || {});
}

#[test]
fn a_limit_that_refuses_fires_with_its_name() {
    let mut config = ServerConfig::on_free_ports();
    config.limits.state.sessions = 1;
    let server = EmbeddedServer::with(config);
    let open = || server.wire.open_session(pb::OpenSessionRequest::default());
    open().unwrap();
    let watched = Watched::new(&[server.http]);
    watched.fires_after("PumiceRefusing", || drop(open().unwrap_err()));
    let firing = watched.firing("PumiceRefusing");
    assert_eq!(
        firing.iter().map(|(labels, _)| &*labels["limit"]).collect::<Vec<_>>(),
        ["sessions"]
    );
}

#[test]
fn more_large_queries_than_workers_fire() {
    let mut config = ServerConfig::on_free_ports();
    (config.limits.edge.workers, config.limits.edge.worker_queue) = (1, 4);
    config.limits.edge.worker_wait = Duration::from_hours(1);
    let server = EmbeddedServer::with(config);
    server.wire.apply_batch(full_sync("a", 1, cluster(10_000))).unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut threads = Vec::new();
    Watched::new(&[server.http]).fires_after("PumiceOverloaded", || {
        for _ in 0..2 {
            let (wire, mut stopped) = (server.wire.clone(), stopped.clone());
            threads.push(std::thread::spawn(move || {
                let mut client = DecisionServiceClient::new(wire.channel());
                wire.wait(async {
                    tokio::select! {
                        _ = client.score(score_request(9_000)) => {}
                        _ = stopped.wait_for(|stop| *stop) => {}
                    }
                });
            }));
        }
    });
    stop.send_replace(true);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_writer_that_falls_behind_fires() {
    let server = EmbeddedServer::start();
    let watched = Watched::new(&[server.http]);
    let (release, held) = mpsc::channel::<()>();
    let (start, started) = mpsc::channel::<()>();
    let mut threads = Vec::new();
    watched.fires_after("PumiceWriterBehind", || {
        // The writer reads the items of a confirmation, and is held up there.
        let confirm = LedgerConfirm {
            now: None,
            policy: "default".into(),
            profile: "".into(),
            plugins: Vec::new(),
            lease: None,
            items: ConfirmItems::by(move |_| {
                start.send(()).unwrap();
                let _: Result<(), _> = held.recv();
                Vec::new()
            }),
        };
        let (state, wire) = (Arc::clone(&server.state), server.wire.clone());
        threads.push(std::thread::spawn(move || drop(wire.wait(state.confirm(confirm)))));
        started.recv().unwrap();
        for number in 0..20 {
            let wire = server.wire.clone();
            let source = format!("s{number}");
            threads.push(std::thread::spawn(move || {
                drop(wire.apply_batch(full_sync(&source, 1, pb::Cluster::default())).unwrap());
            }));
        }
    });
    release.send(()).unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(watched.firing("PumiceWriterBehind"), []);
}

#[test]
fn a_store_that_fails_fires() {
    let store = FailingStore::default();
    let server = EmbeddedServer::on_store(ServerConfig::on_free_ports(), Box::new(store.clone()));
    let watched = Watched::new(&[server.http]);
    let line = |beginning: &str| {
        let (status, page) = server.page("/readyz?verbose");
        assert_eq!(status, 200, "{page}");
        page.lines().any(|line| line.starts_with(beginning))
    };
    watched.fires_after("PumiceStoreFailing", || {
        store.set_error_mode(StoreErrorMode::RejectWrites);
        server.wire.reload_policy(reload(&document("new"))).unwrap_err();
    });
    assert!(line("[+] store: fails: writes have failed for "));
    store.set_error_mode(StoreErrorMode::None);
    until("the store to work", || watched.firing("PumiceStoreFailing").is_empty());
    assert!(line("[+] store: works, DISK"));
}

#[test]
fn a_store_that_hangs_fires() {
    let store = FailingStore::default();
    let server = EmbeddedServer::on_store(ServerConfig::on_free_ports(), Box::new(store.clone()));
    put_policy(&server.wire);
    let cluster = pb::Cluster {
        queues: vec![limited("q", 10)],
        ..pb::Cluster::default()
    };
    server.wire.apply_batch(full_sync("kube", 1, cluster)).unwrap();
    let blocked = store.block_flush();
    let wire = server.connect();
    let mut threads = Vec::new();
    Watched::new(&[server.http]).fires_after("PumiceStoreFailing", || {
        let request = confirm(vec![ask(wants("ns/a", "q", 5), 1)]);
        threads.push(std::thread::spawn(move || wire.admit(request)));
        blocked.wait_for_write();
    });
    drop(blocked);
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
}

/// Fires an alert about a count that no test can make the server raise: by the server's own page, with the count raised.
fn fires_with_count(alert: &str, series: &str) {
    let server = EmbeddedServer::start();
    let page = fetch(server.http, "/metrics").1;
    let raised = page.replace(&format!("{series} 0\n"), &format!("{series} 1\n"));
    assert_ne!(page, raised, "{series}");
    let (mut before, mut after) = (Scrape::default(), Scrape::default());
    before.add("one", &page);
    let expression = &alerts()[alert];
    assert_eq!(evaluate(expression, &before, &before, 60.0), []);
    after.add("one", &raised);
    assert_eq!(evaluate(expression, &before, &after, 60.0).len(), 1, "{alert}");
}

#[test]
fn an_error_of_the_server_fires() {
    fires_with_count("PumiceFault", "pumice_server_errors_total{rpc=\"Filter\"}");
}

#[test]
fn a_panic_fires() {
    fires_with_count("PumicePanicked", "pumice_panics_total");
}

#[test]
fn slow_calls_fire() {
    let server = EmbeddedServer::start();
    let never = pb::Revision {
        number: 1_000,
        epoch: server
            .wire
            .get_server_info(pb::GetServerInfoRequest {})
            .unwrap()
            .revision
            .unwrap()
            .epoch,
    };
    let filter = |against| pb::FilterRequest {
        against,
        tasks: score_request(1).tasks,
        ..pb::FilterRequest::default()
    };
    server.wire.filter(filter(None)).unwrap();
    Watched::new(&[server.http]).fires_after("PumiceSlow", || {
        // The state that it asks for does not come within 250 ms.
        server.wire.filter(filter(Some(latest_ref(never, 250)))).unwrap_err();
    });
}

#[test]
fn replicas_with_different_policies_fire() {
    let (one, other) = (EmbeddedServer::start(), EmbeddedServer::start());
    let watched = Watched::new(&[one.http, other.http]);
    watched.fires_after("PumiceReplicasDiffer", || {
        drop(one.wire.reload_policy(reload(&document("new"))).unwrap());
    });
    other.wire.reload_policy(reload(&document("new"))).unwrap();
    assert_eq!(watched.firing("PumiceReplicasDiffer"), []);
}

/// A child process that ends with the test.
struct KilledChild(std::process::Child);

impl Drop for KilledChild {
    fn drop(&mut self) {
        let _: Result<(), _> = self.0.kill();
        let _: Result<_, _> = self.0.wait();
    }
}

/// Serves in a process that has this many files open from its start. Address of its metrics.
fn serve_with_open_files(count: usize, most: &str) -> (KilledChild, SocketAddr) {
    let script = format!(
        "ulimit -S -n $(ulimit -H -n); ulimit -n {most}; for i in $(seq {count}); do exec {{file}}</dev/null; done; exec \"$0\" serve \
         --grpc-address 127.0.0.1:0 --http-address 127.0.0.1:0 --log-format json"
    );
    let child = Command::new("bash")
        .args(["-c", &script, env!("CARGO_BIN_EXE_pumice")])
        .stderr(Stdio::piped())
        .spawn();
    let mut child = KilledChild(child.unwrap());
    let mut lines = BufReader::new(child.0.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let serving = lines.find_map(|line| {
        let line: Value = serde_json::from_str(&line).expect(&line);
        (line["message"] == "serving").then(|| line["http"].as_str().unwrap().parse().unwrap())
    });
    std::thread::spawn(move || lines.for_each(drop));
    (child, serving.unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_that_runs_out_of_files_fires() {
    // As many files as a healthy server with the default limits may have open, which the hard limit allows.
    let (_healthy, address) = serve_with_open_files(1_300, "$(ulimit -H -n)");
    let mut watched = Watched::new(&[address]);
    let mut many = None;
    let alert = "PumiceFilesRunOut";
    assert_eq!(watched.firing(alert), []);
    let (child, address) = serve_with_open_files(950, "1000");
    watched.instances.push(address);
    many.replace(child);
    until(alert, || watched.firing(alert).len() == 1);
}
