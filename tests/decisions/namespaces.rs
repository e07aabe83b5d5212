//! Namespaces as records: pod affinity terms that select namespaces by their labels, from a dump to decisions.

use pumice::server::pb;

use crate::support::EmbeddedServer;
use crate::support::TestDirectory;
use crate::support::process::ends;
use crate::support::records::{delta, full_sync};

/// Two nodes, and a pod that keeps all pods of team `red` off its node.
const CLUSTER: &str = r#"{"kind": "List", "apiVersion": "v1", "items": [
  {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n-1", "labels": {"host": "1"}},
   "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "10"}}},
  {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n-2", "labels": {"host": "2"}},
   "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "10"}}},
  {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "guard", "namespace": "blue"},
   "spec": {"nodeName": "n-1", "containers": [{"name": "c"}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
              {"topologyKey": "host", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "red"}}}]}}},
   "status": {"phase": "Running"}}]}"#;

const NAMESPACES: &str = r#"{"kind": "List", "apiVersion": "v1", "items": [
  {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "blue", "labels": {"team": "blue"}}},
  {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "red", "labels": {"team": "red"}}}]}"#;

/// Pod that runs only beside pods of namespaces with this label.
fn pod(namespace: &str, team: Option<&str>) -> String {
    let affinity = team.map_or_else(String::new, |team| {
        format!(
            r#", "affinity": {{"podAffinity": {{"requiredDuringSchedulingIgnoredDuringExecution": [
               {{"topologyKey": "host", "labelSelector": {{}}, "namespaceSelector": {{"matchLabels": {{"team": "{team}"}}}}}}]}}}}"#
        )
    });
    format!(
        r#"{{"kind": "Pod", "apiVersion": "v1", "metadata": {{"name": "new", "namespace": "{namespace}"}},
            "spec": {{"containers": [{{"name": "c"}}]{affinity}}}}}"#
    )
}

struct Dumps {
    folder: TestDirectory,
}

impl Dumps {
    fn write(&self, name: &str, text: &str) -> String {
        let file = self.folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    }
}

#[test]
fn terms_read_the_labels_of_namespaces_that_a_dump_has() {
    let server = EmbeddedServer::start();
    let dumps = Dumps {
        folder: TestDirectory::named("namespaces"),
    };
    let (cluster, namespaces) = (
        dumps.write("cluster.json", CLUSTER),
        dumps.write("namespaces.json", NAMESPACES),
    );
    let red = dumps.write("red.json", &pod("red", None));
    let blue = dumps.write("blue.json", &pod("blue", None));
    let beside_blue = dumps.write("beside-blue.json", &pod("red", Some("blue")));
    let beside_green = dumps.write("beside-green.json", &pod("blue", Some("green")));

    ends(Some(&server), &["state", "load", &cluster], 0);
    let said = ends(Some(&server), &["filter", "--file", &red], 1);
    assert!(
        said.contains("NAMESPACE_LABELS_UNKNOWN") || said.contains("no record of namespace `red` tells them"),
        "{said}"
    );
    // A term of the pod itself is named as not evaluated.
    let unguarded = dumps.write(
        "unguarded.json",
        &CLUSTER.replace("\"podAntiAffinity\"", "\"podAffinity\""),
    );
    ends(Some(&server), &["state", "load", &unguarded], 0);
    let said = ends(Some(&server), &["explain", "--file", &beside_green], 0);
    assert!(said.contains("podAffinity (1 task)"), "{said}");

    let said = ends(Some(&server), &["state", "load", &cluster, &namespaces], 0);
    assert!(
        said.contains("2 nodes, 0 queues, 0 jobs, 1 task, 2 namespaces"),
        "{said}"
    );
    let said = ends(Some(&server), &["state", "show", "namespaces"], 0);
    assert!(said.contains("team=red") && said.contains("2 namespaces"), "{said}");
    for (file, fits) in [(&red, "passed: n-2"), (&blue, "passed: n-1, n-2")] {
        let said = ends(Some(&server), &["filter", "--file", file], 0);
        assert!(said.contains(fits) && !said.contains("Not evaluated"), "{file}: {said}");
    }
    // Beside the guard of team blue is only n-1, from which the guard keeps team red away.
    for file in [&beside_blue, &beside_green] {
        let said = ends(Some(&server), &["filter", "--file", file], 1);
        assert!(!said.contains("Not evaluated"), "{said}");
    }
    let said = ends(Some(&server), &["state", "diff", &cluster, &namespaces], 0);
    assert!(said.contains("the same"), "{said}");
}

fn namespace(name: &str, team: &str) -> pb::Namespace {
    pb::Namespace {
        name: name.to_owned(),
        labels: [("team".to_owned(), team.to_owned())].into(),
        ..pb::Namespace::default()
    }
}

fn with_namespaces(namespaces: Vec<pb::Namespace>) -> pb::Cluster {
    pb::Cluster {
        namespaces,
        ..pb::Cluster::default()
    }
}

fn listed(server: &EmbeddedServer) -> Vec<(String, String, usize)> {
    let reply = server
        .wire
        .list_namespaces(pb::ListNamespacesRequest::default())
        .unwrap();
    let each = reply.namespaces.into_iter().map(|status| {
        let namespace = status.namespace.unwrap();
        let team = namespace.labels.get("team").cloned().unwrap_or_default();
        (namespace.name, team, status.invalid.len())
    });
    each.collect()
}

#[test]
fn namespaces_are_records_like_others() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let row = |name: &str, team: &str, invalid| (name.to_owned(), team.to_owned(), invalid);
    wire.apply_batch(full_sync(
        "s",
        1,
        with_namespaces(vec![namespace("a", "red"), namespace("b", "blue")]),
    ))
    .unwrap();
    wire.apply_batch(delta("s", 2, with_namespaces(vec![namespace("b", "green")])))
        .unwrap();
    assert_eq!(listed(&server), [row("a", "red", 0), row("b", "green", 0)]);
    let foreign = wire
        .apply_batch(full_sync("other", 1, with_namespaces(vec![namespace("a", "x")])))
        .unwrap();
    assert_eq!(foreign.refused[0].reason, "RECORD_NOT_OWNED");
    assert_eq!(foreign.refused[0].field, "batch.put.namespaces[0].name");
    // A record that cannot be read leaves the last good one in force, marked.
    let long = namespace("a", &"x".repeat(300_000));
    let outcome = wire.apply_batch(delta("s", 3, with_namespaces(vec![long]))).unwrap();
    assert_eq!(outcome.refused[0].field, "batch.put.namespaces[0].labels[team]");
    let unreadable = pb::UnreadableRecord {
        kind: pb::RecordKind::Namespace.into(),
        name: "b".to_owned(),
        message: "no labels".to_owned(),
        ..pb::UnreadableRecord::default()
    };
    let marked = pb::Batch {
        unreadable: vec![unreadable],
        ..delta("s", 4, pb::Cluster::default())
    };
    wire.apply_batch(marked).unwrap();
    assert_eq!(listed(&server), [row("a", "red", 1), row("b", "green", 1)]);
    let removal = pb::Removals {
        namespaces: vec!["b".to_owned()],
        ..pb::Removals::default()
    };
    let removed = pb::Batch {
        remove: Some(removal),
        ..delta("s", 5, pb::Cluster::default())
    };
    wire.apply_batch(removed).unwrap();
    assert_eq!(listed(&server), [row("a", "red", 1)]);
    // A full sync removes what it leaves out, and a source that is forgotten takes its namespaces along.
    wire.apply_batch(full_sync("s", 6, with_namespaces(vec![namespace("c", "red")])))
        .unwrap();
    assert_eq!(listed(&server), [row("c", "red", 0)]);
    let forget = pb::ForgetSourceRequest {
        source: "s".to_owned(),
        force: true,
    };
    wire.forget_source(forget).unwrap();
    assert!(listed(&server).is_empty());
}
