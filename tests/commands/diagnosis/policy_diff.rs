//! `pumice policy diff`: by meaning, with the exit codes of `diff`.

use super::{ends, json, out, pumice};
use crate::support::EmbeddedServer;
use crate::support::records::{full_sync, node, task};

use pumice::server::pb;
use serde_json::Value;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");

#[test]
fn documents_and_stored_versions_are_compared_as_they_take_effect() {
    let pack = format!("{EXAMPLES}/pack.yaml");
    let spread = format!("{EXAMPLES}/spread.yaml");
    let dump = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/dump.yaml");
    // Comments, order of keys and explicit defaults are no difference.
    let same = std::env::temp_dir().join(format!("pumice-same-{}.yaml", std::process::id()));
    std::fs::write(
        &same,
        "tiers:\n- plugins:\n  - name: binpack\n    enablePredicate: true\n    arguments: {binpack.memory: 1, binpack.cpu: 1, binpack.weight: 10}\nactions: allocate # the same\n",
    )
    .unwrap();
    let said = ends(None, &["policy", "diff", &pack, same.to_str().unwrap()], 0);
    assert!(said.contains("take effect alike"), "{said}");
    std::fs::write(
        &same,
        "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n    enabledNodeOrdr: true\n    arguments: {binpack.memory: 5, binpack.cpu: 1, binpack.weight: 10}\n",
    )
    .unwrap();
    let said = ends(None, &["policy", "diff", &pack, same.to_str().unwrap()], 1);
    assert!(
        said.contains("~ binpack arguments.binpack.memory: 1 → 5   [score]"),
        "{said}"
    );
    assert!(said.contains("diagnostics that come:\n  5:"), "{said}");
    std::fs::remove_file(&same).unwrap();

    let server = EmbeddedServer::start();
    ends(Some(&server), &["policy", "push", &pack], 0);
    assert!(ends(Some(&server), &["policy", "diff", &pack], 0).contains("default@2 and "));
    let said = ends(Some(&server), &["policy", "diff", "default@active", &spread], 1);
    assert!(said.contains("- plugin binpack: tier 1   [score]"), "{said}");
    assert!(
        said.contains("+ plugin resource-strategy-fit: tier 1, arguments {"),
        "{said}"
    );
    ends(Some(&server), &["policy", "diff", "default@1", "default@2"], 1);
    // An error has another exit code than a difference.
    ends(Some(&server), &["policy", "diff", "no-such-file.yaml"], 2);
    ends(None, &["policy", "diff", dump, &pack], 2);
}

#[test]
fn whose_best_nodes_change_is_shown() {
    let server = EmbeddedServer::start();
    let half = pb::Node {
        unattributed_used: Some(crate::support::records::amounts(&[("cpu", "4")])),
        ..node("half", &[("cpu", "8"), ("memory", "16Gi")])
    };
    let cluster = pb::Cluster {
        nodes: vec![node("empty", &[("cpu", "8"), ("memory", "16Gi")]), half],
        tasks: vec![
            task("a/small-0", "", &[("cpu", "2")]),
            task("a/small-1", "", &[("cpu", "2")]),
            task("a/large", "", &[("cpu", "6")]),
        ],
        ..pb::Cluster::default()
    };
    server.wire.apply_batch(full_sync("test", 1, cluster)).unwrap();
    let (pack, spread) = (format!("{EXAMPLES}/pack.yaml"), format!("{EXAMPLES}/spread.yaml"));
    let said = ends(Some(&server), &["policy", "diff", &pack, &spread, "--state"], 1);
    assert!(
        said.contains("decisions: 3 tasks evaluated, 2 decided differently"),
        "{said}"
    );
    let output = pumice(
        Some(&server),
        &["policy", "diff", &pack, &spread, "--state", "-o", "json"],
    );
    assert_eq!(output.status.code(), Some(1));
    let found: Value = serde_json::from_str(&out(&output)).unwrap();
    let changed = &found["impact"]["changedClasses"];
    assert_eq!(changed.as_array().unwrap().len(), 1);
    assert_eq!(
        (&changed[0]["task"], &changed[0]["count"]),
        (&"a/small-0".into(), &2.into())
    );
    assert_eq!(changed[0]["before"]["bestNodes"][0]["node"], "half");
    assert_eq!(changed[0]["after"]["bestNodes"][0]["node"], "empty");
    let same = json(&server, &["policy", "diff", &pack, &pack, "--state"]);
    assert_eq!(same["impact"]["tasksChanged"], 0);
    ends(None, &["policy", "diff", &pack, &spread, "--task", "x.yaml"], 2);
}
