//! `pumice policy diff`: by meaning, with the exit codes of `diff`.

use super::load_warnings::file;
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

/// A cluster in which `x/big` is permitted by proportion and refused by overcommit, which stands behind it.
const TWO_VOTES: &str = r#"
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
   "status": {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}},
  {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}, "spec": {"weight": 1}, "status": {"state": "Open"}},
  {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "r"}, "spec": {"weight": 1}, "status": {"state": "Open"}},
  GROUPS
]}"#;

/// Group with one pod.
fn group(name: &str, queue: &str, cpu: u32, phase: &str) -> String {
    format!(
        r#"{{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
          "metadata": {{"name": "{name}", "namespace": "x", "creationTimestamp": "2026-01-01T00:00:0{}Z"}},
          "spec": {{"queue": "{queue}", "minMember": 1, "minResources": {{"cpu": "{cpu}"}}}}, "status": {{"phase": "{phase}"}}}},
         {{"apiVersion": "v1", "kind": "Pod",
          "metadata": {{"name": "{name}-0", "namespace": "x", "annotations": {{"scheduling.k8s.io/group-name": "{name}"}}}},
          "spec": {{"schedulerName": "volcano", "containers": [{{"name": "c", "resources": {{"requests": {{"cpu": "{cpu}"}}}}}}]}},
          "status": {{"phase": "Pending"}}}}"#,
        8 - cpu
    )
}

#[test]
fn an_upgrade_is_shown_by_the_jobs_that_a_cycle_treats_differently() {
    let groups = [
        group("other", "r", 2, "Inqueue"),
        group("big", "q", 4, "Pending"),
        group("small", "q", 1, "Pending"),
    ];
    let cluster = file("two-votes.json", &TWO_VOTES.replace("GROUPS", &groups.join(", ")));
    let policy = file(
        "two-votes.yaml",
        "actions: enqueue, allocate\ntiers: [{plugins: [{name: proportion}, {name: overcommit}, {name: predicates}]}]\n",
    );
    let (cluster, policy) = (cluster.to_str().unwrap(), policy.to_str().unwrap());
    let diff = |releases: &str, code| {
        let releases = format!("--release={releases}");
        ends(None, &["policy", "diff", policy, &releases, "--cluster", cluster], code)
    };
    let said = diff("volcano-1.15.1..volcano-ed72c7c81", 1);
    assert!(
        said.contains("#5339: a job's minimum is reserved after all plugins voted for it"),
        "{said}"
    );
    assert!(
        said.contains("a whole cycle ends differently for these jobs:"),
        "{said}"
    );
    let row = said.lines().find(|line| line.contains("bound")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells.join(" "), "x/small - enqueued, bound 1 (n) #5339");
    let folder = file("witnesses.txt", "").with_extension("cases");
    let folder = folder.to_str().unwrap();
    let args = [
        "policy",
        "diff",
        policy,
        "--release=volcano-1.14.4..volcano-ed72c7c81",
        "--cluster",
        cluster,
    ];
    let said = ends(None, &[&args[..], &["--witnesses", folder]].concat(), 1);
    assert!(said.contains("reserves-after-votes.yaml: #5339"), "{said}");
    let passed = ends(None, &["policy", "test", folder], 0);
    assert!(passed.contains("2 passed, 0 failed"), "{passed}");
    // The case has no task: the difference needs none.
    let written = std::fs::read_to_string(format!("{folder}/reserves-after-votes.yaml")).unwrap();
    assert!(
        !written.contains("tasks:") && written.contains("name: x/small"),
        "{written}"
    );
    let said = diff("upstream..volcano-ed72c7c81", 0);
    assert!(
        said.contains("a whole cycle ends alike for every job") && !said.contains("#5339"),
        "{said}"
    );
    let said = diff("volcano-1.15..upstream", 2);
    assert!(
        said.contains("`volcano-1.15` is not one of upstream, volcano-1.14.4"),
        "{said}"
    );
}

#[test]
fn a_case_has_the_images_by_which_a_node_is_chosen() {
    let node = |name: &str, images: &str| {
        format!(
            r#"{{"apiVersion": "v1", "kind": "Node", "metadata": {{"name": "{name}"}}, "status": {{"images": [{images}],
              "allocatable": {{"cpu": "4", "memory": "16Gi", "pods": "110"}}, "conditions": [{{"type": "Ready", "status": "True"}}]}}}}"#
        )
    };
    let nodes = [
        node("bare", ""),
        node("full", r#"{"names": ["reg/data:v1"], "sizeBytes": 1048576000}"#),
    ];
    let pod = group("new", "q", 1, "Inqueue").replace(
        r#""containers""#,
        r#""volumes": [{"name": "v", "image": {"reference": "reg/data:v1"}}], "containers""#,
    );
    let objects = [nodes.join(", "), pod].join(", ");
    let cluster = file("images.json", &TWO_VOTES.replace("GROUPS", &objects));
    let policy = file(
        "images.yaml",
        "actions: allocate\ntiers: [{plugins: [{name: nodeorder, arguments: {leastrequested.weight: 0, balancedresource.weight: 0}}]}]\n",
    );
    let folder = file("images.txt", "").with_extension("cases");
    let folder = folder.to_str().unwrap();
    let args = [
        "policy",
        "diff",
        policy.to_str().unwrap(),
        "--release=volcano-1.15.1..volcano-ed72c7c81",
        "--cluster",
        cluster.to_str().unwrap(),
        "--witnesses",
        folder,
    ];
    let said = ends(None, &args, 1);
    assert!(said.contains("counts-volume-images.yaml: Kubernetes 1.36"), "{said}");
    let passed = ends(None, &["policy", "test", folder], 0);
    assert!(passed.contains("2 passed, 0 failed"), "{passed}");
    let written = std::fs::read_to_string(format!("{folder}/counts-volume-images.yaml")).unwrap();
    assert!(written.contains("size_bytes: 1048576000"), "{written}");
}
