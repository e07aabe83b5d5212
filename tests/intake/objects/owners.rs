//! Other objects that say something about pods and their nodes: owners, namespaces, devices, and groups whose labels no policy reads.

use pumice::server::pb;
use serde_json::{Value, json};

use super::{cpu, objects, pod, task};
use crate::support::EmbeddedServer;
use crate::support::records::{delta, full_sync};

/// Pod with a label and a replica set.
fn owned(name: &str, controller: Option<&str>) -> Value {
    let mut pod = pod(name, &cpu("1"));
    pod["metadata"]["labels"] = json!({"app": "front"});
    if let Some(controller) = controller {
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": controller, "controller": true}]);
    }
    pod
}

fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "team"},
           "spec": {"selector": {"app": "front"}}})
}

fn replica_set(selector: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r", "namespace": "team"},
           "spec": {"selector": selector}})
}

/// Labels that the owners of a stored pod select, and the fields that it names as not evaluated.
fn selected(server: &EmbeddedServer, name: &str) -> (Vec<(String, String)>, Vec<String>) {
    let task = task(&server.wire, name).task.unwrap();
    let selector = task.constraints.and_then(|own| own.owner_selector).unwrap_or_default();
    (selector.match_labels.into_iter().collect(), task.unevaluated_fields)
}

#[test]
fn pods_get_the_selectors_of_the_owners_that_come_with_them() {
    let server = EmbeddedServer::start();
    // The owners come after, and in the middle of, their pods.
    let list = objects(&[
        owned("alone", None),
        replica_set(&json!({"matchLabels": {"tier": "a"}})),
        owned("controlled", Some("r")),
        owned("orphan", Some("gone")),
        service(),
    ]);
    let outcome = server.wire.apply_batch(full_sync("s", 1, list)).unwrap();
    assert_eq!((outcome.refused, outcome.warnings), (vec![], vec![]));
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let named = || vec!["ownerSelector".to_owned()];
    assert_eq!(selected(&server, "team/alone"), (vec![pair("app", "front")], vec![]));
    assert_eq!(
        selected(&server, "team/controlled"),
        (vec![pair("app", "front"), pair("tier", "a")], vec![])
    );
    assert_eq!(selected(&server, "team/orphan"), (vec![pair("app", "front")], named()));
    // Without owners beside it, nobody knows those of a pod.
    let put = objects(&[owned("alone", None)]);
    server.wire.apply_batch(delta("s", 2, put)).unwrap();
    assert_eq!(selected(&server, "team/alone"), (vec![], named()));
    let record = pb::Cluster {
        tasks: vec![pb::Task {
            object: owned("controlled", Some("r")).to_string().into(),
            ..pb::Task::default()
        }],
        ..pb::Cluster::default()
    };
    server.wire.apply_batch(delta("s", 3, record)).unwrap();
    assert_eq!(selected(&server, "team/controlled"), (vec![], named()));
    // A pod without labels belongs to no Service, and one with constraints of its own needs no owner.
    let mut own = owned("own", Some("gone"));
    own["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]);
    let put = objects(&[pod("plain", &cpu("1")), own]);
    server.wire.apply_batch(delta("s", 4, put)).unwrap();
    assert_eq!(selected(&server, "team/plain"), (vec![], vec![]));
    assert_eq!(selected(&server, "team/own"), (vec![], vec![]));
}

#[test]
fn an_owner_that_cannot_be_read_is_refused_and_its_pods_name_it() {
    let server = EmbeddedServer::start();
    let list = objects(&[replica_set(&json!({"matchLabels": {"tier": 1}})), owned("a", Some("r"))]);
    let outcome = server.wire.apply_batch(full_sync("s", 1, list)).unwrap();
    let [problem] = &outcome.refused[..] else {
        panic!("{outcome:?}")
    };
    assert_eq!(problem.field, "batch.put.objects[0].spec.selector.matchLabels[tier]");
    assert!(problem.message.starts_with("ReplicaSet team/r: "), "{problem:?}");
    assert_eq!(selected(&server, "team/a").1, ["ownerSelector"]);
    let remove = pb::Batch {
        remove: Some(pb::Removals {
            objects: vec![pb::ObjectReference {
                kind: "ReplicaSet".to_owned(),
                name: "r".to_owned(),
                ..pb::ObjectReference::default()
            }],
            ..pb::Removals::default()
        }),
        ..delta("s", 2, pb::Cluster::default())
    };
    let error = server.wire.apply_batch(remove).unwrap_err();
    assert!(
        error.message().contains("no records are made of `ReplicaSet`"),
        "{error:?}"
    );
}

#[test]
fn namespaces_are_records_and_are_removed_by_name() {
    let server = EmbeddedServer::start();
    let namespaces = || {
        let listed = server
            .wire
            .list_namespaces(pb::ListNamespacesRequest::default())
            .unwrap();
        format!("{:?}", listed.namespaces)
    };
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {"env": "prod"}}});
    let outcome = server
        .wire
        .apply_batch(full_sync("s", 1, objects(&[namespace])))
        .unwrap();
    assert_eq!((outcome.refused, outcome.warnings), (vec![], vec![]));
    assert!(namespaces().contains("\"env\": \"prod\""), "{}", namespaces());
    let remove = pb::Batch {
        remove: Some(pb::Removals {
            objects: vec![pb::ObjectReference {
                kind: "Namespace".to_owned(),
                name: "team".to_owned(),
                ..pb::ObjectReference::default()
            }],
            ..pb::Removals::default()
        }),
        ..delta("s", 2, pb::Cluster::default())
    };
    server.wire.apply_batch(remove).unwrap();
    assert_eq!(namespaces(), "[]");
}

#[test]
fn nodes_and_pods_say_their_devices() {
    let server = EmbeddedServer::start();
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "labels": {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "2000"}},
        "status": {"allocatable": {"cpu": "8", "pods": "9", "volcano.sh/vgpu-number": "20"}}});
    let sharing = json!({"containers": [{"name": "c", "resources": {"limits": {
        "volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 500}}}]});
    let put = objects(&[node, pod("a", &sharing)]);
    let outcome = server.wire.apply_batch(full_sync("s", 1, put)).unwrap();
    assert_eq!(outcome.refused, []);
    let nodes = server.wire.list_nodes(pb::ListNodesRequest::default()).unwrap().nodes;
    let devices = nodes[0].node.as_ref().unwrap().devices.clone().unwrap();
    assert_eq!((devices.count, devices.memory_mib), (2, 2_000));
    let asked = task(&server.wire, "team/a")
        .task
        .unwrap()
        .constraints
        .unwrap()
        .devices
        .unwrap();
    assert_eq!((asked.count, asked.memory_mib), (1, 500));
}

/// Policy that reads no labels but those that plugins name.
const PACKING: &str = "actions: allocate\ntiers: [{plugins: [{name: binpack}]}]\n";

#[test]
fn groups_are_found_by_labels_that_no_policy_reads() {
    let server = EmbeddedServer::start();
    let request = pb::ReloadPolicyRequest {
        document: PACKING.to_owned(),
        ..pb::ReloadPolicyRequest::default()
    };
    server.wire.reload_policy(request).unwrap();
    let member = || {
        let mut pod = pod("p", &cpu("1"));
        pod["metadata"]["labels"] = json!({"part": "x"});
        pod["metadata"]["annotations"] = json!({"scheduling.k8s.io/group-name": "g"});
        pod
    };
    let group = || {
        json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "team"},
               "spec": {"subGroupPolicy": [{"name": "s", "matchLabelKeys": ["part"]}]}})
    };
    let found = || task(&server.wire, "team/p").task.unwrap().sub_group;
    server
        .wire
        .apply_batch(full_sync("s", 1, objects(&[member(), group()])))
        .unwrap();
    assert_eq!(found(), "s/x");
    server
        .wire
        .apply_batch(full_sync("s", 2, objects(&[member()])))
        .unwrap();
    assert_eq!(found(), "");
    server
        .wire
        .apply_batch(full_sync("s", 3, objects(&[member()])))
        .unwrap();
    // The label was left out when nothing read it: the source is asked for all of them again.
    server.wire.apply_batch(delta("s", 4, objects(&[group()]))).unwrap();
    let outcome = server.wire.apply_batch(delta("s", 5, objects(&[member()]))).unwrap();
    assert_eq!(outcome.resync.unwrap().reason, "LABELS_NEEDED");
    server
        .wire
        .apply_batch(full_sync("s", 6, objects(&[member(), group()])))
        .unwrap();
    assert_eq!(found(), "s/x");
}
