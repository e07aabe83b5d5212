//! Labels of records follow the policies: those that no policy in force reads are left out, and a policy that reads them asks the
//! sources for a full sync.

use pumice::server::pb;

use crate::support::EmbeddedServer;
use crate::support::records::{amounts, delta, full_sync, node};

/// Policy that reads no labels but those that plugins name.
const PACKING: &str = "actions: allocate\ntiers: [{plugins: [{name: binpack}]}]\n";
/// Policy that reads any label of nodes and pods.
const SELECTING: &str = "actions: allocate\ntiers: [{plugins: [{name: predicates}, {name: nodeorder}]}]\n";

fn reload(server: &EmbeddedServer, document: &str) -> pb::ReloadPolicyResponse {
    let request = pb::ReloadPolicyRequest {
        document: document.to_owned(),
        ..pb::ReloadPolicyRequest::default()
    };
    server.wire.reload_policy(request).unwrap()
}

fn labelled(name: &str, zone: &str) -> pb::Node {
    pb::Node {
        labels: [("zone", zone), ("volcano.sh/nodegroup-name", "g")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ..node(name, &[("cpu", "8"), ("memory", "32Gi")])
    }
}

fn cluster() -> pb::Cluster {
    pb::Cluster {
        nodes: vec![labelled("n-1", "a"), labelled("n-2", "b")],
        ..pb::Cluster::default()
    }
}

fn filter(server: &EmbeddedServer) -> (Vec<String>, pb::FilterItem) {
    let constraints = pb::PodConstraints {
        node_selector: [("zone".to_owned(), "a".to_owned())].into(),
        ..pb::PodConstraints::default()
    };
    let request = pb::FilterRequest {
        tasks: vec![pb::Task {
            requests: Some(amounts(&[("cpu", "1")])),
            constraints: Some(Box::new(constraints)),
            ..pb::Task::default()
        }],
        ..pb::FilterRequest::default()
    };
    let reply = server.wire.filter(request).unwrap();
    let named = reply.metadata.unwrap().not_evaluated.into_iter();
    (
        named.map(|own| own.name).collect(),
        reply.result.unwrap().items.remove(0),
    )
}

fn fit(item: &pb::FilterItem) -> Vec<String> {
    assert_eq!(item.problem, None);
    item.fit.as_ref().map(|fit| fit.names.clone()).unwrap_or_default()
}

fn node_labels(server: &EmbeddedServer) -> Vec<usize> {
    let listed = server.wire.list_nodes(pb::ListNodesRequest::default()).unwrap().nodes;
    listed
        .iter()
        .map(|status| status.node.as_ref().unwrap().labels.len())
        .collect()
}

fn status(server: &EmbeddedServer) -> pb::SourceStatus {
    let info = server
        .wire
        .get_server_info(pb::GetServerInfoRequest::default())
        .unwrap();
    info.sources.into_iter().next().unwrap()
}

fn metric(server: &EmbeddedServer) -> String {
    let (_, page) = server.page("/metrics");
    let line = page
        .lines()
        .find(|line| line.starts_with("pumice_source_awaited{source=\"live\"}"));
    line.map(str::to_owned).unwrap_or_default()
}

#[test]
fn a_policy_that_reads_labels_asks_for_those_that_were_left_out() {
    let server = EmbeddedServer::start();
    assert_eq!(reload(&server, PACKING).awaited_sources, [""; 0]);
    server.wire.apply_batch(full_sync("live", 1, cluster())).unwrap();
    assert_eq!(node_labels(&server), [1, 1], "the label of node groups is kept always");
    assert!(status(&server).without_node_labels && !status(&server).without_task_labels);
    assert!(metric(&server).ends_with(" 0"), "{}", metric(&server));
    let outcome = server
        .wire
        .apply_batch(delta("live", 2, pb::Cluster::default()))
        .unwrap();
    assert_eq!(outcome.resync, None, "nobody reads the labels yet");

    let reloaded = reload(&server, SELECTING);
    assert_eq!(reloaded.awaited_sources, ["live"]);
    let (named, item) = filter(&server);
    assert_eq!(named, ["nodeorder", "predicates"]);
    let problem = item.problem.unwrap();
    assert_eq!((problem.code, problem.reason.as_str()), (9, "LABELS_MISSING"));
    assert!(
        problem.message.contains("`predicates`") && problem.message.contains("live"),
        "{}",
        problem.message
    );
    assert!(metric(&server).ends_with(" 1"), "{}", metric(&server));
    let (ready, page) = server.page("/readyz?verbose");
    assert_eq!(ready, 200, "{page}");
    let line = page
        .lines()
        .find(|line| line.contains("source/live"))
        .unwrap_or_default();
    assert!(line.contains("lacks labels that a policy reads"), "{page}");

    // The next batch of the source, even an empty one, gets the request.
    let outcome = server
        .wire
        .apply_batch(delta("live", 3, pb::Cluster::default()))
        .unwrap();
    assert_eq!(outcome.resync.unwrap().reason, "LABELS_NEEDED");
    let outcome = server.wire.apply_batch(full_sync("live", 3, cluster())).unwrap();
    assert_eq!(outcome.resync, None);
    let (named, item) = filter(&server);
    assert_eq!((named, fit(&item)), (Vec::new(), vec!["n-1".to_owned()]));
    assert_eq!(node_labels(&server), [2, 2]);
    assert!(!status(&server).without_node_labels && metric(&server).ends_with(" 0"));
    let (_, page) = server.page("/readyz?verbose");
    assert!(!page.contains("source/live"), "{page}");
}

#[test]
fn records_that_lose_no_label_are_complete_under_every_policy() {
    let server = EmbeddedServer::start();
    reload(&server, PACKING);
    let unlabelled = pb::Cluster {
        nodes: vec![node("n-1", &[("cpu", "8"), ("memory", "32Gi")])],
        ..pb::Cluster::default()
    };
    server.wire.apply_batch(full_sync("live", 1, unlabelled)).unwrap();
    assert_eq!(reload(&server, SELECTING).awaited_sources, [""; 0]);
    let (named, item) = filter(&server);
    assert_eq!((named, fit(&item)), (Vec::new(), Vec::new()));
    let outcome = server.wire.apply_batch(delta("live", 2, cluster())).unwrap();
    assert_eq!(outcome.resync, None);
    assert_eq!(fit(&filter(&server).1), ["n-1"], "labels that come later are kept");
}

#[test]
fn a_session_of_a_state_without_labels_refuses_to_its_end() {
    let server = EmbeddedServer::start();
    reload(&server, PACKING);
    server.wire.apply_batch(full_sync("live", 1, cluster())).unwrap();
    reload(&server, SELECTING);
    let opened = server.wire.open_session(pb::OpenSessionRequest::default()).unwrap();
    server.wire.apply_batch(full_sync("live", 2, cluster())).unwrap();
    let request = pb::FilterRequest {
        against: Some(crate::support::records::session_ref(&opened.session, 0, Vec::new())),
        tasks: vec![pb::Task {
            requests: Some(amounts(&[("cpu", "1")])),
            ..pb::Task::default()
        }],
        ..pb::FilterRequest::default()
    };
    let item = server.wire.filter(request).unwrap().result.unwrap().items.remove(0);
    assert_eq!(item.problem.unwrap().reason, "LABELS_MISSING");
    assert_eq!(fit(&filter(&server).1), ["n-1"]);
}

#[test]
fn an_inline_cluster_keeps_all_labels() {
    let server = EmbeddedServer::start();
    reload(&server, PACKING);
    let inline = pb::InlineSnapshot {
        cluster: Some(cluster()),
        policy_document: SELECTING.to_owned(),
        ..pb::InlineSnapshot::default()
    };
    let constraints = pb::PodConstraints {
        node_selector: [("zone".to_owned(), "b".to_owned())].into(),
        ..pb::PodConstraints::default()
    };
    let request = pb::FilterRequest {
        against: Some(pb::EvaluationRef {
            target: Some(pb::evaluation_ref::Target::Inline(Box::new(inline))),
            ..pb::EvaluationRef::default()
        }),
        tasks: vec![pb::Task {
            requests: Some(amounts(&[("cpu", "1")])),
            constraints: Some(Box::new(constraints)),
            ..pb::Task::default()
        }],
        ..pb::FilterRequest::default()
    };
    let item = server.wire.filter(request).unwrap().result.unwrap().items.remove(0);
    assert_eq!(fit(&item), ["n-2"]);
}
