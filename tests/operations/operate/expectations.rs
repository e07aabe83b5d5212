//! Policies and sources that a server needs to be ready, the durability of changes, and stale sources.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pumice::config::ServerConfig;
use pumice::server::pb;
use pumice_state::document_hash;
use serde_json::Value;

use super::program::{LoggedProcess, command};
use super::{TestDirectory, cluster, document, metric_value, until};
use crate::support::EmbeddedServer;
use crate::support::process::{out, pumice};
use crate::support::records::{delta, full_sync};

fn reload(text: &str, dry_run: bool) -> pb::ReloadPolicyRequest {
    pb::ReloadPolicyRequest {
        document: document(text),
        dry_run,
        ..pb::ReloadPolicyRequest::default()
    }
}

fn with_data(directory: &Path) -> ServerConfig {
    ServerConfig {
        data_dir: Some(directory.join("data")),
        ..ServerConfig::on_free_ports()
    }
}

#[test]
fn every_write_reports_its_durability() {
    let directory = TestDirectory::new();
    let cases = [
        (
            ServerConfig::on_free_ports(),
            pb::Durability::Memory,
            "durability: MEMORY (a restart of the server loses",
        ),
        (with_data(&directory.0), pb::Durability::Disk, "durability: DISK\n"),
    ];
    for (config, expected, shown) in cases {
        let server = EmbeddedServer::with(config);
        let wire = &server.wire;
        let dry = wire.reload_policy(reload("one", true)).unwrap();
        assert_eq!(dry.durability(), pb::Durability::Unspecified);
        let pushed = wire.reload_policy(reload("one", false)).unwrap();
        assert_eq!(pushed.durability(), expected);
        let unchanged = wire.reload_policy(reload("one", false)).unwrap();
        assert_eq!((unchanged.unchanged, unchanged.durability()), (true, expected));
        let back = wire.rollback_policy(pb::RollbackPolicyRequest::default()).unwrap();
        assert_eq!(back.durability(), expected);
        let release = pb::ReleaseReservationRequest {
            job: "a/job".to_owned(),
            ..pb::ReleaseReservationRequest::default()
        };
        assert_eq!(wire.release_reservation(release).unwrap().durability(), expected);
        let nothing = pb::ReleaseAssumptionsRequest {
            tasks: vec!["a/task".to_owned()],
            ..pb::ReleaseAssumptionsRequest::default()
        };
        let nothing = wire.release_assumptions(nothing).unwrap();
        assert_eq!(
            nothing.durability(),
            pb::Durability::Unspecified,
            "nothing was released"
        );
        let file = directory.file("policy.yaml", &document("two"));
        for arguments in [
            ["policy", "push", file.to_str().unwrap()].as_slice(),
            &["policy", "rollback"],
        ] {
            let printed = out(&pumice(Some(&server), arguments));
            assert!(printed.contains(shown), "{arguments:?}: {printed}");
        }
    }
}

#[test]
fn a_policy_in_memory_is_warned_of_once() {
    let directory = TestDirectory::new();
    let data = directory.0.join("data").display().to_string();
    for (flags, word, warnings) in [(vec![], "MEMORY", 1), (vec!["--data-dir", &*data], "DISK", 0)] {
        let program = LoggedProcess::serve(&flags);
        let wire = program.connect();
        wire.reload_policy(reload("dry", true)).unwrap();
        for text in ["one", "two"] {
            wire.reload_policy(reload(text, false)).unwrap();
        }
        let in_force = |line: &&Value| line["message"] == "policy in force";
        until("each reload is logged", || {
            program.log().iter().filter(in_force).count() == 3
        });
        let log = program.log();
        assert!(
            log.iter().filter(in_force).all(|line| line["durability"] == word),
            "{log:?}"
        );
        let is_warning = |line: &&Value| {
            line["message"]
                .as_str()
                .is_some_and(|text| text.contains("in memory only"))
        };
        assert_eq!(log.iter().filter(is_warning).count(), warnings, "{log:?}");
    }
}

/// Status and failed checks of `/readyz`.
fn readiness(server: &EmbeddedServer) -> (u16, Vec<String>) {
    let (status, page) = server.page("/readyz");
    let failed = page.lines().filter_map(|line| line.strip_prefix("[-] "));
    // The time that is left is not the same each time.
    let without_time = |line: &str| line.split(": awaited for").next().unwrap_or_default().to_owned();
    (status, failed.map(without_time).collect())
}

#[test]
fn a_server_that_lost_its_policy_or_its_sources_is_not_ready() {
    let directory = TestDirectory::new();
    let hash = document_hash(&document("quota"));
    let expecting = |config: ServerConfig| ServerConfig {
        expected_sources: vec!["kube".into()],
        expected_policies: vec!["default".into(), "gpu".into()],
        expected_documents: vec![Arc::clone(&hash)],
        ..config
    };
    let named = |name: &str| pb::ReloadPolicyRequest {
        name: name.to_owned(),
        ..reload("quota", false)
    };
    let missing_source = "source/kube: not heard yet";
    let missing_policy = "policy/gpu: expected, and not in force";
    for (config, durable) in [
        (expecting(ServerConfig::on_free_ports()), false),
        (expecting(with_data(&directory.0)), true),
    ] {
        let server = EmbeddedServer::with(config.clone());
        let missing = [
            missing_policy.to_owned(),
            format!("policy-document/{hash}: expected, and not in force"),
            missing_source.to_owned(),
        ];
        assert_eq!(readiness(&server), (503, missing.to_vec()));
        server.wire.reload_policy(named("other")).unwrap();
        assert_eq!(readiness(&server), (503, missing.to_vec()), "under another name");
        server.wire.reload_policy(named("default")).unwrap();
        server.wire.reload_policy(named("gpu")).unwrap();
        server.wire.apply_batch(full_sync("kube", 1, cluster(1))).unwrap();
        assert_eq!(readiness(&server), (200, vec![]));
        drop(server);

        let server = EmbeddedServer::with(config);
        let lost = if durable {
            vec!["source/kube: had synced before the start, and has not since".to_owned()]
        } else {
            missing.to_vec()
        };
        assert_eq!(readiness(&server), (503, lost), "after a restart");
    }
}

#[test]
fn an_expected_policy_that_is_none_is_refused_at_the_start() {
    let refused = |flag: &str, value: &str| {
        let output = command()
            .args(["serve", "--print-config", flag, value])
            .output()
            .unwrap();
        assert!(!output.status.success(), "{value}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let refused_policy = |value: &str| refused("--expect-policy", value);
    assert!(refused_policy("Gpu").contains("`Gpu` is not the name of a policy"));
    assert!(refused_policy("gpu=12ab").contains("`gpu=12ab` is not the name of a policy"));
    for wrong in [
        "12ab",
        "",
        &"g".repeat(64),
        &"a".repeat(63),
        &format!("default={}", "a".repeat(64)),
    ] {
        assert!(
            refused("--expect-policy-sha256", wrong).contains("64 hexadecimal digits"),
            "{wrong}"
        );
    }
    let hash = document_hash("x");
    let shown = command()
        .args(["serve", "--print-config", "--expect-policy", "a,b"])
        .args(["--expect-policy-sha256", &hash.to_uppercase()])
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("expect_policy: [\"a\", \"b\"]")
            && shown.contains(&format!("expect_policy_sha256: [\"{hash}\"]")),
        "{shown}"
    );
}

#[test]
fn a_silent_live_source_makes_the_server_unready_and_a_file_does_not() {
    let mut config = ServerConfig {
        expected_sources: vec![Arc::from("kube"), Arc::from("dump")],
        ..ServerConfig::on_free_ports()
    };
    config.limits.state.source_stale = Duration::from_secs(3);
    let server = EmbeddedServer::with(config);
    let wire = &server.wire;
    wire.apply_batch(pb::Batch {
        source_kind: pb::SourceKind::File.into(),
        ..full_sync("dump", 1, cluster(1))
    })
    .unwrap();
    // The source that nobody expects is silent first.
    wire.apply_batch(full_sync("other", 1, pb::Cluster::default())).unwrap();
    wire.apply_batch(full_sync("kube", 1, pb::Cluster::default())).unwrap();
    assert_eq!(readiness(&server), (200, vec![]));
    until("the live source is stale", || readiness(&server).0 == 503);
    let (_, failed) = readiness(&server);
    let [failed] = failed.as_slice() else {
        panic!("{failed:?}")
    };
    assert!(failed.starts_with("source/kube: stale: silent for "), "{failed}");
    let (_, verbose) = server.page("/readyz?verbose");
    assert!(verbose.contains("[+] source/other: stale: silent for "), "{verbose}");
    assert!(verbose.contains("[+] source/dump: synced, a file loaded "), "{verbose}");
    let synced = |source: &str| metric_value(server.http, &format!("pumice_source_synced{{source=\"{source}\"}}"));
    assert_eq!((synced("kube"), synced("dump")), (0.0, 1.0));
    let info = wire.get_server_info(pb::GetServerInfoRequest {}).unwrap();
    let statuses: Vec<_> = info
        .sources
        .iter()
        .map(|one| {
            (
                one.position.as_ref().unwrap().source.as_str(),
                one.kind(),
                one.synced,
                one.stale,
            )
        })
        .collect();
    assert_eq!(
        statuses,
        [
            ("dump", pb::SourceKind::File, true, false),
            ("kube", pb::SourceKind::Live, false, true),
            ("other", pb::SourceKind::Live, false, true),
        ]
    );
    assert!(out(&pumice(Some(&server), &["state", "show"])).contains("kube    stale   live"));
    wire.apply_batch(delta("kube", 2, pb::Cluster::default())).unwrap();
    assert_eq!(readiness(&server), (200, vec![]), "an empty delta is a heartbeat");
}
