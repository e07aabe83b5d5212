//! Every answer names the constraints that it did not evaluate: on the wire, for people and as JSON.

use pumice::server::pb;
use serde_json::Value;

use super::explain::{gang, server};
use super::{ends, json};
use crate::support::EmbeddedServer;
use crate::support::TestDirectory;
use crate::support::process::{out, pumice};
use crate::support::records::{node, queue, task, task_on_node};

/// A policy of which three of seven plugins are served.
const MIXED: &str = "actions: \"enqueue, allocate\"\ntiers:\n- plugins:\n  - name: DefaultPreemption\n- plugins:\n  - name: drf\n  - name: numa-aware\n  - name: GangScheduling\n  - name: Coscheduling\n  - name: binpack\n";
const SERVED: &str = "actions: \"allocate\"\ntiers:\n- plugins:\n  - name: drf\n  - name: binpack\n";

fn fields(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn cluster(job_fields: &[&str], node_fields: &[&str]) -> pb::Cluster {
    let amounts = [("cpu", "8"), ("memory", "32Gi")];
    let pod = |name: &str, names: &[&str]| pb::Task {
        unevaluated_fields: fields(names),
        ..task(name, "a/web", &[("cpu", "4")])
    };
    pb::Cluster {
        namespaces: Vec::new(),
        nodes: vec![
            pb::Node {
                unevaluated_fields: fields(node_fields),
                ..node("n-1", &amounts)
            },
            node("n-2", &amounts),
        ],
        queues: vec![queue("q")],
        jobs: vec![gang("a/web", "q", pb::JobPhase::Inqueue, 3)],
        tasks: vec![
            pod("a/web-0", job_fields),
            pod("a/web-1", job_fields),
            pod("a/web-2", &[]),
            task_on_node(task("a/old", "", &[("cpu", "1")]), pb::TaskStatus::Running, "n-1"),
        ],
        ..pb::Cluster::default()
    }
}

fn mixed() -> EmbeddedServer {
    server(MIXED, cluster(&["volumes", "nodeSelector", "volumes"], &["taints"]))
}

/// Subject, name and number of each constraint.
fn listed(constraints: &[pb::NotEvaluated]) -> Vec<(&str, &str, u32)> {
    let each = constraints.iter();
    assert!(each.clone().all(|one| one.effect.ends_with('.')), "{constraints:?}");
    each.map(|one| (one.subject.as_str(), one.name.as_str(), one.count))
        .collect()
}

fn plugins(metadata: Option<&pb::ResponseMetadata>) -> Vec<&str> {
    let named = listed(&metadata.unwrap().not_evaluated);
    named
        .into_iter()
        .map(|(subject, name, count)| {
            assert_eq!((subject, count), ("policy", 0));
            name
        })
        .collect()
}

fn stored(name: &str) -> pb::Task {
    pb::Task {
        name: name.to_owned(),
        ..pb::Task::default()
    }
}

const TASK_FIELDS: [(&str, &str, u32); 2] = [("task", "nodeSelector", 1), ("task", "volumes", 1)];
const TAINTED_NODE: (&str, &str, u32) = ("nodes", "taints", 1);

#[test]
fn filter_and_score_name_plugins_fields_and_tainted_nodes() {
    let server = mixed();
    let request = pb::FilterRequest {
        tasks: vec![stored("a/web-0"), stored("a/web-2"), stored("a/web-1")],
        ..pb::FilterRequest::default()
    };
    let reply = server.wire.filter(request.clone()).unwrap();
    assert_eq!(plugins(reply.metadata.as_ref()), ["numa-aware"]);
    let items = reply.result.unwrap().items;
    let own = [TASK_FIELDS[0], TASK_FIELDS[1], TAINTED_NODE];
    assert_eq!(listed(&items[0].not_evaluated), own);
    assert_eq!(listed(&items[1].not_evaluated), [TAINTED_NODE]);
    assert_eq!(listed(&items[2].not_evaluated), own);
    let untainted = pb::FilterRequest {
        candidates: Some(pb::NodeSet {
            names: fields(&["n-2"]),
            ..pb::NodeSet::default()
        }),
        ..request
    };
    let items = server.wire.filter(untainted).unwrap().result.unwrap().items;
    assert_eq!(listed(&items[0].not_evaluated), TASK_FIELDS);

    let request = pb::ScoreRequest {
        tasks: vec![stored("a/web-0")],
        ..pb::ScoreRequest::default()
    };
    let reply = server.wire.score(request.clone()).unwrap();
    assert_eq!(plugins(reply.metadata.as_ref()), ["numa-aware"]);
    assert_eq!(listed(&reply.result.unwrap().items[0].not_evaluated), own);
    let filtered = pb::ScoreRequest {
        with_filter: true,
        ..request.clone()
    };
    let reply = server.wire.score(filtered).unwrap();
    assert_eq!(plugins(reply.metadata.as_ref()), ["numa-aware"]);
    let of_binpack = pb::ScoreRequest {
        plugins: fields(&["binpack"]),
        ..request
    };
    let reply = server.wire.score(of_binpack).unwrap();
    assert!(plugins(reply.metadata.as_ref()).is_empty());
}

#[test]
fn place_names_the_fields_of_its_tasks_and_chosen_nodes() {
    let server = mixed();
    let request = pb::PlaceRequest {
        groups: vec![pb::TaskGroup {
            names: fields(&["a/web-0", "a/web-1", "a/web-2"]),
            ..pb::TaskGroup::default()
        }],
        ..pb::PlaceRequest::default()
    };
    let reply = server.wire.place(request.clone()).unwrap();
    assert_eq!(
        plugins(reply.metadata.as_ref()),
        ["Coscheduling", "GangScheduling", "numa-aware"]
    );
    let result = reply.result.unwrap();
    assert!(result.placed);
    // Three tasks of 4 cores take both nodes.
    assert_eq!(
        listed(&result.groups[0].not_evaluated),
        [("task", "nodeSelector", 2), ("task", "volumes", 2), TAINTED_NODE]
    );
    let elsewhere = pb::PlaceRequest {
        min_available: Some(0),
        exclusions: Some(pb::NodeSet {
            names: fields(&["n-1"]),
            ..pb::NodeSet::default()
        }),
        ..request
    };
    let result = server.wire.place(elsewhere).unwrap().result.unwrap();
    assert_eq!(
        listed(&result.groups[0].not_evaluated),
        [("task", "nodeSelector", 2), ("task", "volumes", 2)]
    );
}

#[test]
fn admit_order_and_victims_name_what_they_leave_out() {
    let server = mixed();
    let subject = |subject| pb::AdmitSubject {
        subject: Some(subject),
        ..pb::AdmitSubject::default()
    };
    let request = pb::AdmitRequest {
        items: vec![
            subject(pb::admit_subject::Subject::Job(pb::Job {
                name: "a/web".to_owned(),
                ..pb::Job::default()
            })),
            subject(pb::admit_subject::Subject::Task(stored("a/web-0"))),
        ],
        ..pb::AdmitRequest::default()
    };
    let reply = server.wire.admit(request.clone()).unwrap();
    assert_eq!(plugins(reply.metadata.as_ref()), ["Coscheduling", "GangScheduling"]);
    let items = reply.result.unwrap().items;
    assert!(listed(&items[0].not_evaluated).is_empty());
    assert_eq!(listed(&items[1].not_evaluated), TASK_FIELDS);
    let confirm = pb::AdmitRequest {
        mode: pb::AdmitMode::Confirm.into(),
        items: request.items[..1].to_vec(),
        ..pb::AdmitRequest::default()
    };
    let reply = server.wire.admit(confirm).unwrap();
    assert_eq!(plugins(reply.metadata.as_ref()), ["Coscheduling", "GangScheduling"]);

    let reply = server.wire.order(pb::OrderRequest::default()).unwrap();
    assert_eq!(plugins(reply.metadata.as_ref()), ["Coscheduling"]);

    let reply = server.wire.select_victims(pb::SelectVictimsRequest {
        kind: pb::VictimKind::Preempt.into(),
        groups: vec![pb::VictimGroup {
            preemptor: Some(stored("a/web-0")),
            node: "n-1".to_owned(),
            candidates: vec![stored("a/old")],
            ..pb::VictimGroup::default()
        }],
        ..pb::SelectVictimsRequest::default()
    });
    let reply = reply.unwrap();
    assert_eq!(plugins(reply.metadata.as_ref()), ["DefaultPreemption", "numa-aware"]);
    assert_eq!(
        listed(&reply.result.unwrap().items[0].not_evaluated),
        [TASK_FIELDS[0], TASK_FIELDS[1], TAINTED_NODE]
    );

    let reply = server.wire.open_session(pb::OpenSessionRequest::default()).unwrap();
    assert_eq!(
        plugins(reply.metadata.as_ref()),
        ["Coscheduling", "DefaultPreemption", "GangScheduling", "numa-aware"]
    );
}

#[test]
fn nothing_is_named_where_everything_was_evaluated() {
    let server = server(SERVED, cluster(&[], &[]));
    let reply = server.wire.filter(pb::FilterRequest {
        tasks: vec![stored("a/web-0")],
        ..pb::FilterRequest::default()
    });
    let reply = reply.unwrap();
    assert!(plugins(reply.metadata.as_ref()).is_empty());
    assert!(reply.result.unwrap().items[0].not_evaluated.is_empty());
    let said = ends(Some(&server), &["explain", "job", "a/web"], 0);
    assert!(
        said.starts_with("Pumice finds no reason that keeps job a/web: "),
        "{said}"
    );
    assert!(!said.contains("Not evaluated"), "{said}");
    assert_eq!(
        json(&server, &["explain", "job", "a/web"])["notEvaluated"],
        Value::Array(Vec::new())
    );
}

#[test]
fn a_request_that_names_plugins_names_what_these_do_not_evaluate() {
    const OFF: &str = "{name: predicates, enablePredicate: false, enableNodeOrder: false}";
    let selecting = pb::Task {
        constraints: Some(Box::new(pb::PodConstraints {
            node_selector: [("pool".to_owned(), "gpu".to_owned())].into(),
            ..pb::PodConstraints::default()
        })),
        ..task("a/new", "", &[("cpu", "1")])
    };
    let selector = [("task", "nodeSelector", 1)];
    for (predicates, asked, left_out) in [
        ("{name: predicates}", &[][..], &[][..]),
        ("{name: predicates}", &["predicates"][..], &[][..]),
        ("{name: predicates}", &["binpack"], &selector),
        (OFF, &[][..], &selector),
        (OFF, &["predicates", "binpack"], &[]),
        (OFF, &["binpack"], &selector),
    ] {
        let policy = format!("{{actions: allocate, tiers: [{{plugins: [{predicates}, {{name: binpack}}]}}]}}");
        let server = server(&policy, cluster(&[], &[]));
        let filter = pb::FilterRequest {
            tasks: vec![selecting.clone()],
            plugins: fields(asked),
            ..pb::FilterRequest::default()
        };
        let items = server.wire.filter(filter).unwrap().result.unwrap().items;
        assert_eq!(
            listed(&items[0].not_evaluated),
            left_out,
            "Filter of {asked:?}, {policy}"
        );
        let score = pb::ScoreRequest {
            tasks: vec![selecting.clone()],
            plugins: fields(asked),
            ..pb::ScoreRequest::default()
        };
        let items = server.wire.score(score).unwrap().result.unwrap().items;
        assert_eq!(
            listed(&items[0].not_evaluated),
            left_out,
            "Score of {asked:?}, {policy}"
        );
    }
}

#[test]
fn records_show_their_unevaluated_fields() {
    let server = mixed();
    let nodes = server.wire.list_nodes(pb::ListNodesRequest::default()).unwrap().nodes;
    assert_eq!(nodes[0].node.as_ref().unwrap().unevaluated_fields, ["taints"]);
    let tasks = server.wire.list_tasks(pb::ListTasksRequest::default()).unwrap().tasks;
    let of = |name: &str| {
        let tasks = tasks.iter().filter_map(|stored| stored.task.as_ref());
        tasks
            .filter(|task| task.name == name)
            .map(|task| task.unevaluated_fields.clone())
            .next()
            .unwrap()
    };
    assert_eq!(of("a/web-0"), ["nodeSelector", "volumes"]);
    assert!(of("a/web-2").is_empty());
}

#[test]
fn too_many_fields_are_refused() {
    let server = mixed();
    let reply = server.wire.filter(pb::FilterRequest {
        tasks: vec![pb::Task {
            unevaluated_fields: (0..33).map(|i| format!("f{i}")).collect(),
            ..task("", "", &[("cpu", "1")])
        }],
        ..pb::FilterRequest::default()
    });
    let items = reply.unwrap().result.unwrap().items;
    let problem = items[0].problem.as_ref().unwrap();
    assert_eq!(
        (problem.reason.as_str(), problem.field.as_str()),
        ("LIMIT_EXCEEDED", "tasks[0].unevaluated_fields")
    );
}

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: new\n  namespace: a\n  annotations: {scheduling.k8s.io/group-name: new}\nspec:\n  schedulerName: volcano\n  nodeSelector: {zone: a}\n  containers:\n  - name: main\n    resources: {requests: {cpu: \"1\"}}\n";

const GROUP: &str = "---\napiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {name: new, namespace: a}\nspec: {minMember: 1, queue: q}\nstatus: {phase: Inqueue}\n";

const QUEUE: &str =
    "---\napiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\nspec: {weight: 1}\n";

/// Commands that ask about the pod of a file; the second file has its PodGroup, too.
fn commands<'a>(pod: &'a str, job: &'a str) -> [Vec<&'a str>; 5] {
    [
        vec!["filter", "--file", pod],
        vec!["score", "--file", pod],
        vec!["place", "--file", job, "--nodes", "n-1"],
        vec!["capacity", "--file", pod],
        vec!["explain", "--file", job],
    ]
}

fn pod_and_job(folder: &TestDirectory) -> [String; 2] {
    [("pod.yaml", POD.to_owned()), ("job.yaml", format!("{POD}{GROUP}"))].map(|(name, text)| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    })
}

const PARAGRAPH_TITLES: [&str; 3] = [
    "  numa-aware (policy): ",
    "  nodeSelector (1 task): ",
    "  taints (1 node): ",
];

fn paragraph(said: &str) -> &str {
    said.split_once("\nNot evaluated:\n")
        .unwrap_or_else(|| panic!("{said}"))
        .1
}

#[test]
fn each_command_prints_the_paragraph() {
    let server = mixed();
    let folder = TestDirectory::named("not-evaluated");
    let [pod, job] = pod_and_job(&folder);
    for arguments in commands(&pod, &job) {
        let said = ends(Some(&server), &arguments, 0);
        let paragraph = paragraph(&said);
        for title in PARAGRAPH_TITLES {
            assert!(paragraph.contains(title), "{arguments:?}: {title}: {said}");
        }
    }
}

/// All entries under keys of this name, wherever they stand.
fn entries<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value.as_array().filter(|_| key == "notEvaluated") {
                    Some(list) => found.extend(list),
                    None => entries(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| entries(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn each_command_prints_the_constraints_as_json() {
    let server = mixed();
    let folder = TestDirectory::named("not-evaluated-json");
    let [pod, job] = pod_and_job(&folder);
    for arguments in commands(&pod, &job) {
        let report = json(&server, &arguments);
        let mut found = Vec::new();
        entries(&report, &mut found);
        for (subject, name, count) in [
            ("policy", "numa-aware", 0),
            ("task", "nodeSelector", 1),
            ("nodes", "taints", 1),
        ] {
            let same = |entry: &&&Value| {
                let number = entry.get("count").and_then(Value::as_u64).unwrap_or_default();
                (entry["subject"].as_str(), entry["name"].as_str(), number) == (Some(subject), Some(name), count)
            };
            let entry = found.iter().find(same);
            assert!(
                entry.is_some_and(|entry| entry["effect"].is_string()),
                "{arguments:?}: {name}: {report:#}"
            );
        }
    }
}

#[test]
fn explain_qualifies_its_sentence() {
    let server = mixed();
    let said = ends(Some(&server), &["explain", "job", "a/web"], 0);
    let first = said.lines().next().unwrap();
    assert!(
        first.starts_with("Pumice finds no reason that keeps job a/web: nodes take 3 of 3 waiting tasks now"),
        "{first}"
    );
    assert!(
        first.ends_with(
            ". Not evaluated: Coscheduling (policy), GangScheduling (policy), numa-aware (policy), \
             nodeSelector (2 tasks), volumes (2 tasks), taints (1 node)."
        ),
        "{first}"
    );
}

#[test]
fn simulate_names_unserved_plugins_and_fields() {
    let folder = TestDirectory::named("not-evaluated-simulate");
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: n-1}\nspec: {taints: [{key: gpu, effect: NoSchedule}]}\nstatus: {allocatable: {cpu: \"8\", memory: 8Gi, pods: \"10\"}}\n";
    let files = (
        write("cluster.yaml", &format!("{POD}{GROUP}{QUEUE}{node}")),
        write("mixed.yaml", MIXED),
    );
    let arguments = ["simulate", &files.0, "--policy", &files.1];
    let said = ends(None, &arguments, 0);
    let text = paragraph(&said);
    for title in [
        "  numa-aware (policy mixed): ",
        "  nodeSelector (1 task): ",
        "  taints (1 node): ",
    ] {
        assert!(text.contains(title), "{said}");
    }
    let output = pumice(None, &[&arguments[..], &["-o", "json"]].concat());
    let report: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(report["notEvaluated"][0]["name"], "nodeSelector");
    assert_eq!(report["policies"][0]["notEvaluated"][2]["name"], "numa-aware");
}

#[test]
fn policy_check_says_what_an_unserved_plugin_would_do() {
    let folder = TestDirectory::named("not-evaluated-check");
    let file = folder.path().join("policy.yaml");
    std::fs::write(&file, MIXED).unwrap();
    let said = ends(None, &["policy", "check", file.to_str().unwrap()], 0);
    assert!(
        said.contains("note: Pumice does not serve `numa-aware`. Not evaluated: The NUMA topology"),
        "{said}"
    );
}

/// Node with room, and a pod with a claim of a volume and one of a device.
const CLAIMS: &str = r#"{"kind": "List", "apiVersion": "v1", "items": [
  {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n-1"},
   "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "10"}}},
  {"kind": "PodGroup", "apiVersion": "scheduling.volcano.sh/v1beta1", "metadata": {"name": "new", "namespace": "a"},
   "spec": {"minMember": 1, "queue": "q"}, "status": {"phase": "Inqueue"}},
  {"kind": "Queue", "apiVersion": "scheduling.volcano.sh/v1beta1", "metadata": {"name": "q"}, "spec": {"weight": 1}},
  {"kind": "Pod", "apiVersion": "v1",
   "metadata": {"name": "new", "namespace": "a", "annotations": {"scheduling.k8s.io/group-name": "new"}},
   "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}}]}"#;

#[test]
fn no_command_calls_a_pod_with_claims_placeable_without_that_word() {
    let folder = TestDirectory::named("claims");
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let cluster = write("cluster.json", CLAIMS);
    let server = EmbeddedServer::start();
    ends(Some(&server), &["state", "load", &cluster], 0);
    let tests = write(
        "cases.yaml",
        &format!(
            "clusterFile: {cluster}\ncases:\n- name: fits\n  filter: {{task: {{name: a/new}}}}\n  expect: {{fit: [n-1]}}\n"
        ),
    );
    for (server, arguments) in [
        (Some(&server), vec!["filter", "--task", "a/new"]),
        (Some(&server), vec!["score", "--task", "a/new"]),
        (Some(&server), vec!["place", "--file", &cluster]),
        (Some(&server), vec!["capacity", "--file", &cluster]),
        (Some(&server), vec!["explain", "task", "a/new"]),
        (None, vec!["simulate", &cluster]),
        (None, vec!["simulate", &cluster, "--cycles"]),
        (None, vec!["policy", "test", &tests]),
    ] {
        let said = ends(server, &arguments, 0);
        for name in ["resourceClaims (1 task)", "volumes (1 task)"] {
            assert!(said.contains(name), "{arguments:?}: {name}: {said}");
        }
    }
}
