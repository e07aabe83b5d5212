//! An API server, or a gateway before it, that lies, falls silent, or fails for one resource.

use std::time::Duration;

use pumice::config::ServerConfig;
use serde_json::{Value, json};

use super::api::ClusterApi;
use super::{WatchingServer, fit_count};
use crate::support::{metric_value, until};

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/pods";
const QUEUES: &str = "/apis/scheduling.volcano.sh/v1beta1/queues";
const GROUPS: &str = "/apis/scheduling.volcano.sh/v1beta1/podgroups";

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": {"cpu": "8", "pods": "110"}}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "web", "uid": name, "annotations": {"scheduling.k8s.io/group-name": "g"}},
        "spec": {"schedulerName": "volcano", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending"}})
}

fn group(name: &str) -> Value {
    json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name, "namespace": "web"},
        "spec": {"minMember": 1, "queue": "q"}})
}

fn queue(name: &str) -> Value {
    json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": {"weight": 1}})
}

fn cluster() -> ClusterApi {
    let api = ClusterApi::start();
    for object in [node("n1"), queue("q"), group("g"), pod("p")] {
        api.put(&object);
    }
    api
}

fn is_behind(watching: &WatchingServer) -> bool {
    watching.condition().contains("changes may be missing")
}

/// Everything of [`cluster`] is there.
fn assert_whole(watching: &WatchingServer, case: &str) {
    assert!(watching.has_node("n1"), "{case}");
    assert_eq!(watching.tasks(), 1, "{case}");
    assert_eq!(watching.jobs(), ["web/g"], "{case}");
}

#[test]
fn a_response_that_proves_no_list_removes_no_record() {
    let api = cluster();
    let watching = WatchingServer::start(&api, &[]);
    let current = r#""metadata":{"resourceVersion":"4"}"#;
    let lies = [
        "{}".to_owned(),
        r#"{"message":"try again later"}"#.to_owned(),
        r#"{"kind":"Status","code":401,"metadata":{}}"#.to_owned(),
        format!(r#"{{"kind":"SecretList",{current},"items":[]}}"#),
        format!(r#"{{"kind":"List",{current},"items":[]}}"#),
        format!(r#"{{"kind":"KIND",{current},"items":null}}"#),
        format!(r#"{{"kind":"KIND",{current}}}"#),
        r#"{"kind":"KIND","metadata":{},"items":[]}"#.to_owned(),
        r#"{"kind":"KIND","metadata":{"resourceVersion":"0"},"items":[]}"#.to_owned(),
        "<html>maintenance</html>".to_owned(),
        String::from("\u{1b}[31m"),
    ];
    for (collection, kind, name) in [
        (PODS, "PodList", "pods"),
        (NODES, "NodeList", "nodes"),
        (GROUPS, "PodGroupList", "podgroups"),
        (QUEUES, "QueueList", "queues"),
    ] {
        // The reader is the same for all: the others get a part of the lies.
        let used = if collection == PODS { lies.len() } else { 4 };
        for lie in lies.iter().take(used) {
            let lie = lie.replace("KIND", kind);
            api.lie(collection, &lie);
            api.forget_versions(collection);
            until("the lie is told", || {
                let condition = watching.condition();
                condition.contains("changes may be missing") && condition.contains(name)
            });
            assert_whole(&watching, &lie);
            api.lie(collection, "");
            until("the lists are good again", || !is_behind(&watching));
            assert_whole(&watching, &lie);
        }
    }
    api.delete(&pod("p"));
    until("a deletion is one still", || watching.tasks() == 0);
}

#[test]
fn a_moment_of_404_or_403_removes_no_record() {
    let api = cluster();
    let watching = WatchingServer::start(&api, &[]);
    for status in [404, 403, 500] {
        for collection in [GROUPS, PODS] {
            api.refuse(collection, status);
            until("the refusal is told", || is_behind(&watching));
            assert_whole(&watching, &format!("{collection} {status}"));
            api.refuse(collection, 200);
            until("the watch goes on", || !is_behind(&watching));
            assert_whole(&watching, &format!("{collection} {status}"));
        }
    }
    // The list of the group's resources confirms it. Its records stay for a minute.
    api.uninstall(GROUPS);
    until("the absence is told", || {
        watching.condition().contains("its records stay until")
    });
    assert_whole(&watching, "uninstalled");
}

#[test]
fn a_resource_that_fails_alone_keeps_no_other_from_being_watched() {
    for status in [404, 405, 500, 503] {
        let api = cluster();
        api.refuse(QUEUES, status);
        // It becomes ready without queues.
        let watching = WatchingServer::start(&api, &[]);
        assert!(watching.condition().contains("queues"), "{}", watching.condition());
        api.put(&node("n2"));
        until("nodes are watched", || watching.has_node("n2"));
        api.refuse(QUEUES, 200);
        until("queues are watched, too", || {
            watching.queues().contains(&"q".to_owned()) && !is_behind(&watching)
        });
        api.take_lists();
        api.refuse(QUEUES, status);
        until("the failure is told", || {
            watching.condition().contains("queues.scheduling.volcano.sh: ")
        });
        api.put(&node("n3"));
        until("nodes are watched still", || watching.has_node("n3"));
        assert!(watching.queues().contains(&"q".to_owned()), "the last good queue stays");
        let lists = api.take_lists();
        assert!(
            !lists.iter().any(|list| list.starts_with("/api/v1/pods?limit=500")),
            "{lists:?}"
        );
    }
}

#[test]
fn a_resource_whose_watch_is_forbidden_is_polled_alone() {
    let api = cluster();
    api.refuse_watches(QUEUES, 403);
    let watching = WatchingServer::start(&api, &[]);
    until("the poll is told", || {
        watching.condition().contains("listed again every 30 s")
    });
    api.take_lists();
    api.put(&node("n2"));
    until("the others are watched", || watching.has_node("n2"));
    let lists = api.take_lists();
    assert!(!lists.iter().any(|list| list.contains("limit=500")), "{lists:?}");
}

#[test]
fn a_silent_watch_is_reported_and_listed_again() {
    let api = cluster();
    let mut config = ServerConfig::on_free_ports();
    config.limits.edge.watch_silence = Duration::from_secs(3);
    let watching = WatchingServer::start_with(config, &api.kubeconfig());
    until("the watches are open", || !is_behind(&watching));
    api.be_silent(true);
    api.put(&node("n2"));
    until("the silence is told", || {
        watching.condition().contains("neither a change nor a bookmark")
    });
    until("the list shows what the watch did not", || watching.has_node("n2"));
    api.be_silent(false);
    api.put(&node("n3"));
    until("the watch is believed again", || watching.has_node("n3"));
}

#[test]
fn what_a_new_list_does_not_show_is_gone() {
    let api = cluster();
    api.put(&pod("other"));
    let watching = WatchingServer::start(&api, &[]);
    assert_eq!(watching.tasks(), 2);
    // The watch misses the deletion: it is closed meanwhile, and its version is forgotten.
    api.refuse(PODS, 500);
    until("the watch is interrupted", || is_behind(&watching));
    api.delete(&pod("other"));
    api.forget_versions(PODS);
    api.refuse(PODS, 200);
    until("the pod is gone", || watching.tasks() == 1);
    until("the watch goes on", || !is_behind(&watching));
    assert_whole(&watching, "after the list");
}

#[test]
fn a_running_pod_with_amounts_that_no_record_holds_counts_as_any_other() {
    let api = cluster();
    let running = |name: &str| {
        let mut own = pod(name);
        own["spec"]["nodeName"] = json!("n1");
        own["status"]["phase"] = json!("Running");
        own
    };
    let huge = json!({"cpu": "10P", "memory": "100E", "example.com/x": "1e30"});
    let requests = json!({"cpu": "100m"});
    let mut of_container = running("container");
    of_container["spec"]["containers"][0]["resources"] = json!({"requests": requests, "limits": huge});
    let mut of_init = of_container.clone();
    of_init["metadata"]["name"] = json!("init");
    of_init["spec"]["initContainers"] = of_init["spec"]["containers"].clone();
    let long = "x".repeat(600);
    let mut named = running("named");
    named["metadata"]["annotations"] = json!({"volcano.sh/task-spec": long, "scheduling.k8s.io/group-name": long});
    named["spec"]["containers"][0]["resources"]["requests"] = requests;
    for own in [&of_container, &of_init, &named] {
        api.put(own);
    }
    let watching = WatchingServer::start(&api, &[]);
    assert_eq!(watching.tasks(), 4);
    let unevaluated = |name: &str| watching.task(&format!("web/{name}")).unevaluated_fields;
    assert_eq!(
        (unevaluated("container"), unevaluated("init"), unevaluated("p")),
        (vec!["resources".to_owned()], vec!["resources".to_owned()], vec![])
    );
    let fits = |cores: &str| fit_count(&watching.server, &[("cpu", cores)]);
    assert_eq!((fits("7700m"), fits("7701m")), (1, 0));
    // Both are told once.
    let unreadable = || metric_value(watching.server.http, "pumice_cluster_unreadable_objects_total");
    assert_eq!(unreadable(), 2.0);
    of_init["metadata"]["labels"] = json!({"a": "b"});
    api.put(&of_init);
    api.put(&node("n2"));
    until("the change arrives", || watching.has_node("n2"));
    assert_eq!(unreadable(), 2.0);
}

/// Users may write much text: the API server accepts 256 KiB of annotations, and terms up to the size of an object.
#[test]
fn a_running_pod_with_much_text_counts_as_any_other() {
    let api = cluster();
    let texts = |count: usize| -> Value { (0..count).map(|number| (format!("a{number}"), json!(""))).collect() };
    let term =
        json!({"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}});
    let mut large = pod("large");
    large["metadata"]["annotations"] = texts(40_000);
    large["metadata"]["labels"] = texts(2_000);
    large["spec"]["affinity"] =
        json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": vec![term; 5_000]}});
    large["spec"]["nodeName"] = json!("n1");
    large["status"]["phase"] = json!("Running");
    api.put(&large);
    let mut long = large.clone();
    long["metadata"]["name"] = json!("long");
    long["metadata"]["annotations"] = json!({"a": "x".repeat(250 << 10)});
    api.put(&long);
    let watching = WatchingServer::start(&api, &[]);
    assert_eq!(watching.tasks(), 3);
    assert_eq!(
        metric_value(watching.server.http, "pumice_cluster_unreadable_objects_total"),
        0.0
    );
    // The two requests count, and the node takes more tasks.
    let fits = |cores: &str| fit_count(&watching.server, &[("cpu", cores)]);
    assert_eq!((fits("6"), fits("7")), (1, 0));
}
