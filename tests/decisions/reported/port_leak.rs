//! Host ports: they are free again when their task loses its place, its gang is discarded, or another state is loaded.

use pumice::server::pb;
use serde_json::{Value, json};

use super::{pumice, simulated, texts};
use crate::support::EmbeddedServer;

#[test]
fn a_port_is_given_back_when_its_task_loses_its_place() {
    for policy in ["policy.yaml", "corrected.yaml"] {
        let outcome = simulated("port-leak", "cluster.yaml", policy);
        let ends = ["placed", "waiting"].map(|field| outcome["tasks"][field].clone());
        assert_eq!(json!(ends), json!([1, 0]), "{policy}");
    }
}

#[test]
fn ports_of_a_discarded_gang_are_free_for_later_pods() {
    for policy in ["policy.yaml", "corrected.yaml"] {
        let outcome = simulated("port-leak", "gang-then-singles.yaml", policy);
        // Five pods of the gang wait for a fifth node; four later pods run.
        let ends = ["placed", "waiting"].map(|field| outcome["tasks"][field].clone());
        assert_eq!(json!(ends), json!([4, 5]), "{policy}");
    }
}

/// Explanation of a job by a server that has these files.
fn explained(server: &EmbeddedServer, file: &str, job: &str) -> Value {
    let address = format!("http://{}", server.grpc);
    let loaded = pumice("port-leak", &["state", "load", file, "--server", &address]);
    assert_eq!(loaded.status.code(), Some(0), "{}", texts(&loaded));
    let explained = pumice(
        "port-leak",
        &["explain", "job", job, "--server", &address, "-o", "json"],
    );
    assert_eq!(explained.status.code(), Some(0), "{}", texts(&explained));
    serde_json::from_slice(&explained.stdout).unwrap()
}

#[test]
fn ports_of_an_explained_job_are_free_in_the_next_state() {
    for policy in ["policy.yaml", "corrected.yaml"] {
        let start = || {
            let server = EmbeddedServer::start();
            let folder = format!("{}/tests/data/reports/port-leak", env!("CARGO_MANIFEST_DIR"));
            let document = std::fs::read_to_string(format!("{folder}/{policy}")).unwrap();
            let reload = pb::ReloadPolicyRequest {
                document,
                ..Default::default()
            };
            server.wire.reload_policy(reload).unwrap();
            server
        };
        let old = start();
        let first = explained(&old, "five-of-four.yaml", "x/five");
        assert_eq!(first["verdict"]["code"], "GANG", "{first:#}");
        let later = explained(&old, "three-beside-one.yaml", "x/three");
        let fresh = explained(&start(), "three-beside-one.yaml", "x/three");
        for part in ["verdict", "tasks"] {
            assert_eq!(later[part], fresh[part], "{policy}: {part}");
        }
        assert_eq!(fresh["verdict"]["code"], "PLACEABLE", "{fresh:#}");
    }
}
