//! Pods of files under a policy of a release that derives their amounts otherwise than the newest.

use super::load_warnings::file;
use super::{ends, json};
use crate::support::EmbeddedServer;

/// Node with two CPUs.
const NODE: &str = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
   "status": {"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}}"#;
const QUEUE: &str = r#"{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"},
   "spec": {"weight": 1}, "status": {"state": "Open"}}"#;
const GROUP: &str = r#"{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "x"},
   "spec": {"queue": "default", "minMember": 1}, "status": {"phase": "Inqueue"}}"#;
/// Pod whose containers ask for one CPU, and which asks for three as a whole.
const POD: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "x",
            "annotations": {"scheduling.k8s.io/group-name": "g"}},
   "spec": {"schedulerName": "volcano", "resources": {"requests": {"cpu": "3"}},
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
   "status": {"phase": "Pending"}}"#;

fn list(name: &str, objects: &[&str]) -> String {
    let items = objects.join(", ");
    let list = file(
        name,
        &format!(r#"{{"apiVersion": "v1", "kind": "List", "items": [{items}]}}"#),
    );
    list.to_str().unwrap().to_owned()
}

#[test]
fn commands_derive_pods_of_files_by_the_release_of_the_server() {
    let cluster = &list("release-cluster.json", &[NODE, QUEUE, GROUP, POD]);
    let (gang, pod) = (
        &list("release-gang.json", &[GROUP, POD]),
        &list("release-pod.json", &[POD]),
    );
    for (release, cpu, fits) in [("volcano-1.14.4", "1", true), ("volcano-1.15.1", "3", false)] {
        let server = EmbeddedServer::start();
        let policy = file(
            "release-policy.yaml",
            &format!(
                "actions: allocate\ntiers: [{{plugins: [{{name: gang}}, {{name: predicates}}]}}]\npumice: {{compatibility: {release}}}\n"
            ),
        );
        ends(Some(&server), &["policy", "push", policy.to_str().unwrap()], 0);
        ends(Some(&server), &["state", "load", cluster], 0);
        let tasks = json(&server, &["state", "show", "tasks"]);
        assert!(
            tasks.to_string().contains(&format!(r#""cpu":"{cpu}""#)),
            "{release}: {tasks}"
        );
        ends(Some(&server), &["state", "diff", cluster], 0);
        let code = i32::from(!fits);
        ends(Some(&server), &["filter", "--file", pod], code);
        ends(Some(&server), &["score", "--file", pod], code);
        ends(Some(&server), &["place", "--file", gang], code);
        ends(Some(&server), &["capacity", "--file", pod], code);
        for asked in [
            ["explain", "task", "x/a", "--with", gang].as_slice(),
            &["explain", "--file", gang],
        ] {
            let explained = json(&server, asked);
            assert_eq!(
                explained["taskClasses"][0]["requests"]["cpu"], cpu,
                "{release}: {explained}"
            );
            assert_eq!(
                explained["verdict"]["code"] == "PLACEABLE",
                fits,
                "{release}: {explained}"
            );
        }
    }
}
