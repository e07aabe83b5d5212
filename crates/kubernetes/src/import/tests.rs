//! Small dumps, as `kubectl` and openb write them, read whole.

use super::*;

const JSON: &str = include_str!("../../../../tests/data/dump.json");
const YAML: &str = include_str!("../../../../tests/data/dump.yaml");
const NODES: &str = include_str!("../../../../tests/data/openb-nodes.csv");
const TASKS: &str = include_str!("../../../../tests/data/openb-tasks.csv");

pub(super) fn read(texts: &[&str]) -> ClusterImport {
    let mut import = ClusterImport::default();
    for text in texts {
        import.read("file", text).unwrap();
    }
    import
}

pub(super) fn item<'l>(list: Option<&'l pb::ResourceList>, name: &str) -> Option<&'l str> {
    list.and_then(|list| list.items.get(name)).map(String::as_str)
}

#[test]
fn nodes_have_labels_capacity_and_state() {
    let nodes = read(&[JSON]).nodes;
    assert_eq!(nodes.keys().collect::<Vec<_>>(), ["cpu-1", "cpu-2", "cpu-3", "gpu-1"]);
    let gpu = &nodes["gpu-1"];
    assert_eq!(item(gpu.allocatable.as_ref(), "nvidia.com/gpu"), Some("8"));
    assert_eq!(gpu.labels["nvidia.com/gpu.product"], "NVIDIA-A100-SXM4-80GB");
    assert_eq!(
        (gpu.ready, gpu.unschedulable, gpu.oversubscription.is_none()),
        (Some(true), false, true)
    );
    assert_eq!(
        (nodes["cpu-3"].ready, nodes["cpu-3"].unschedulable),
        (Some(false), true)
    );
    assert_eq!(item(nodes["cpu-2"].oversubscription.as_ref(), "cpu"), Some("2000m"));
    assert_eq!(
        item(nodes["cpu-2"].oversubscription.as_ref(), "memory"),
        Some("1073741824")
    );
}

#[test]
fn pods_are_counted_as_their_scheduler_counts() {
    let tasks = read(&[JSON]).tasks;
    let front = &tasks["web/front-0"];
    assert_eq!(item(front.requests.as_ref(), "cpu"), Some("600m"));
    // The proxy has no memory request: only the non-zero form gives it 200Mi.
    let memory = |list: &Option<pb::ResourceList>| {
        pumice_engine::model::quantity::Quantity::parse(item(list.as_ref(), "memory").unwrap())
            .unwrap()
            .value()
            .unwrap()
    };
    assert_eq!(memory(&front.requests), 1 << 30);
    assert_eq!(memory(&front.nonzero_requests), (1 << 30) + 200 * (1 << 20));
    assert_eq!((front.job.as_str(), front.node.as_str()), ("", "cpu-1"));
    assert_eq!(front.status(), pb::TaskStatus::Running);

    let worker = &tasks["train/bert-worker-0"];
    assert_eq!(item(worker.requests.as_ref(), "nvidia.com/gpu"), Some("1"));
    assert_eq!((worker.job.as_str(), worker.priority), ("train/bert", 100));
    assert_eq!(worker.annotations["volcano.sh/task-spec"], "worker");
    assert!(tasks["train/bert-worker-1"].gated);
    assert_eq!(tasks["train/bert-worker-1"].status(), pb::TaskStatus::Pending);
    assert_eq!(tasks["web/old-0"].status(), pb::TaskStatus::Releasing);
}

#[test]
fn a_container_asks_for_what_it_is_limited_to() {
    let pod = |resources: &str, init: &str| {
        format!(
            "{{kind: Pod, apiVersion: v1, metadata: {{name: p}}, spec: {{containers: [{{name: a, resources: {resources}}}], \
             initContainers: [{{name: i, resources: {init}}}]}}}}"
        )
    };
    let requests = |resources: &str, init: &str| {
        let mut import = read(&[&pod(resources, init)]);
        let requests = import.tasks.remove("default/p").unwrap().requests;
        ["cpu", "nvidia.com/gpu"].map(|name| item(requests.as_ref(), name).map(str::to_owned))
    };
    let both = |cpu: &str, gpu: &str| [Some(cpu.to_owned()), Some(gpu.to_owned())];
    assert_eq!(requests("{limits: {cpu: 2, nvidia.com/gpu: 1}}", "{}"), both("2", "1"));
    let own = "{limits: {cpu: 2, nvidia.com/gpu: 1}, requests: {cpu: 500m}}";
    assert_eq!(requests(own, "{}"), both("500m", "1"));
    assert_eq!(requests(own, "{limits: {cpu: 3}, requests: null}"), both("3", "1"));
    let import = read(&[&pod("{limits: {cpu: many}}", "{}")]);
    assert_eq!(
        import.rejected[0].error.field,
        r#"spec.containers[0].resources.limits["cpu"]"#
    );
}

#[test]
fn derivation_can_be_chosen() {
    let mut import = ClusterImport::new(AmountRules::from_name("volcano").unwrap());
    import.read("file", JSON).unwrap();
    // Volcano's default priority is 1, Kubernetes' is 0.
    assert_eq!(import.tasks["web/front-0"].priority, 1);
    assert_eq!(read(&[JSON]).tasks["web/front-0"].priority, 0);
}

#[test]
fn queues_and_pod_groups_are_read() {
    let import = read(&[JSON]);
    let queue = &import.queues["research"];
    assert_eq!(
        (queue.weight, queue.priority, queue.parent.as_str()),
        (Some(3), 5, "root")
    );
    assert_eq!((queue.reclaimable, queue.state()), (Some(false), pb::QueueState::Open));
    assert_eq!(item(queue.guarantee.as_ref(), "cpu"), Some("8"));
    assert_eq!(queue.annotations["volcano.sh/hierarchy"], "root/research");
    let job = &import.jobs["train/bert"];
    assert_eq!(
        (job.queue.as_str(), job.min_member, job.phase()),
        ("research", 2, pb::JobPhase::Inqueue)
    );
    assert_eq!(item(job.min_resources.as_ref(), "nvidia.com/gpu"), Some("2"));
    assert_eq!(job.creation_time.unwrap().to_string(), "2026-11-20T09:58:00Z");
}

#[test]
fn unused_fields_are_noted() {
    let import = read(&[JSON, "{kind: ConfigMap, apiVersion: v1, metadata: {name: c}}"]);
    assert!(import.rejected.is_empty());
    let notes: Vec<&str> = import.notes.keys().map(String::as_str).collect();
    assert_eq!(notes, ["ConfigMap (v1): this kind is not read"]);
}

#[test]
fn placement_rules_and_taints_are_read() {
    let import = read(&[JSON]);
    let taint = &import.nodes["gpu-1"].taints[0];
    assert_eq!((&*taint.key, &*taint.effect), ("nvidia.com/gpu", "NoSchedule"));
    let constraints = |rules: &str| {
        let text = format!("{{kind: Pod, apiVersion: v1, metadata: {{name: p}}, spec: {{containers: [], {rules}}}}}");
        read(&[&text]).tasks["default/p"].constraints.clone()
    };
    assert_eq!(
        constraints("nodeSelector: {zone: a}").unwrap().node_selector["zone"],
        "a"
    );
    assert!(constraints("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {}}}").is_some());
    assert_eq!(
        constraints("nodeSelector: {}, affinity: null, topologySpreadConstraints: []"),
        None
    );
}

#[test]
fn yaml_and_json_of_one_cluster_are_one_cluster() {
    assert_eq!(read(&[YAML]).finish().cluster, read(&[JSON]).finish().cluster);
}

#[test]
fn documents_single_objects_and_typed_lists_are_read() {
    let text = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus: {allocatable: {cpu: 4, memory: 1.5Gi}}\n---\n\
                # nothing here\n---\nkind: NodeList\napiVersion: v1\nitems:\n- metadata: {name: b}\n";
    let import = read(&[
        text,
        r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"c"}} [{"kind":"Node","apiVersion":"v1","metadata":{"name":"d"}}]"#,
    ]);
    assert_eq!(import.nodes.keys().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    assert_eq!(item(import.nodes["a"].allocatable.as_ref(), "cpu"), Some("4"));
    assert!(import.nodes["b"].allocatable.is_none());
}

#[test]
fn bare_numbers_keep_their_text() {
    let text = "{kind: Node, apiVersion: v1, metadata: {name: a}, status: {allocatable: {cpu: 1.50, memory: 1e9, pods: null, x/y: 010}}}";
    let node = &read(&[text]).nodes["a"];
    let json = r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"a"},"status":{"allocatable":{"cpu":1.50,"memory":1e9,"pods":null,"x/y":8}}}"#;
    assert_eq!(*node, read(&[json]).nodes["a"]);
    assert_eq!(item(node.allocatable.as_ref(), "cpu"), Some("1.50"));
    assert_eq!(item(node.allocatable.as_ref(), "pods"), Some("0"));
}

#[test]
fn a_manifest_is_a_pending_task() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: app\n    resources: {requests: {cpu: 2}}\n";
    let task = &read(&[text]).tasks["default/web"];
    assert_eq!(task.status(), pb::TaskStatus::Unspecified);
    assert_eq!(item(task.requests.as_ref(), "cpu"), Some("2"));
}

#[test]
fn unusable_objects_are_rejected_alone() {
    let import = read(&[r#"{"kind":"List","apiVersion":"v1","items":[
        {"kind":"Node","apiVersion":"v1","metadata":{"name":"a"},"status":{"allocatable":{"cpu":true}}},
        {"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"n"},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"-1"}}}]}},
        {"kind":"Node","apiVersion":"v1","metadata":{}},
        {"kind":"Node","apiVersion":"v1","metadata":{"name":"b"}}]}"#]);
    assert_eq!(import.nodes.keys().collect::<Vec<_>>(), ["b"]);
    let refused: Vec<String> = import
        .rejected
        .iter()
        .map(|one| format!("{} {}", one.object, one.error.field))
        .collect();
    assert_eq!(
        refused,
        [
            "Node a status.allocatable[cpu]",
            "Pod n/p spec.containers[0].resources.requests[\"cpu\"]",
            "Node  metadata.name",
        ]
    );
}

#[test]
fn files_of_unknown_format_are_rejected_with_their_location() {
    let error = |text: &str| ClusterImport::default().read("f", text).unwrap_err().to_string();
    assert!(
        error("{\"kind\": ").starts_with("f: EOF while parsing"),
        "{}",
        error("{\"kind\": ")
    );
    assert!(
        error("kind: Service\n---\nx: [\n").starts_with("f: line 4"),
        "{}",
        error("kind: Service\n---\nx: [\n")
    );
    assert!(error("just words").contains("a document is a text"));
    assert!(error("{\"a\": 1}").contains("no `kind`"));
}

#[test]
fn openb_files_are_read() {
    let import = read(&[NODES, TASKS]);
    let gpu = &import.nodes["openb-node-0227"];
    assert_eq!(item(gpu.allocatable.as_ref(), "cpu"), Some("96000m"));
    assert_eq!(item(gpu.allocatable.as_ref(), GPU_RESOURCE), Some("8"));
    assert_eq!(item(gpu.allocatable.as_ref(), GPU_MILLI_RESOURCE), Some("8000"));
    assert_eq!(
        item(import.nodes["openb-node-0000"].allocatable.as_ref(), GPU_RESOURCE),
        None
    );
    let whole = &import.tasks["openb/openb-pod-0000"];
    assert_eq!(item(whole.requests.as_ref(), GPU_RESOURCE), Some("1"));
    let share = &import.tasks["openb/openb-pod-0001"];
    assert_eq!(
        (
            item(share.requests.as_ref(), GPU_RESOURCE),
            item(share.requests.as_ref(), GPU_MILLI_RESOURCE)
        ),
        (None, Some("460"))
    );
    assert_eq!(share.annotations["volcano.sh/card.name"], "V100M16|V100M32");
    assert_eq!(share.creation_time.unwrap().seconds, 427_061);
    assert_eq!(import.rejected[0].object, "line 5");
    assert_eq!(import.rejected[0].error.field, "cpu_milli");
    assert_eq!(import.notes.len(), 2);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one file, read and looked at as a whole")]
fn priority_classes_give_the_priorities_of_pods_and_pod_groups() {
    let class = |name: &str, value: i32, more: &str| {
        format!(
            "{{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: {name}}}, value: {value}{more}}}\n---\n"
        )
    };
    let pod = |name: &str, spec: &str| {
        format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: []{spec}}}}}\n---\n")
    };
    let group = |name: &str, spec: &str| {
        format!(
            "{{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {{name: {name}}}, spec: {{minMember: \
             1{spec}}}}}\n---\n"
        )
    };
    let records = [
        pod("named", ", priorityClassName: high"),
        pod("numbered", ", priorityClassName: high, priority: 3"),
        pod("none", ""),
        pod("unknown", ", priorityClassName: hihg"),
        pod("system", ", priorityClassName: system-node-critical"),
        group("named", ", priorityClassName: high"),
        group("none", ""),
        group("unknown", ", priorityClassName: hihg"),
        class("high", 1000, ""),
    ]
    .concat();
    let priorities = |text: &str| {
        let imported = read(&[text]).finish();
        let warned: Vec<String> = imported
            .warnings
            .into_iter()
            .map(|warning| format!("{} {}", warning.code, warning.subject))
            .collect();
        assert_eq!(
            warned,
            [
                "PRIORITY_CLASS_UNKNOWN job default/unknown",
                "PRIORITY_CLASS_UNKNOWN task default/unknown"
            ]
        );
        let cluster = imported.cluster;
        let tasks = cluster.tasks.iter().map(|task| (task.name.clone(), task.priority));
        let jobs = cluster.jobs.iter().map(|job| (job.name.clone(), job.priority));
        let by_name = |all: Vec<(String, i32)>| -> Vec<String> {
            all.iter()
                .map(|(name, priority)| format!("{} {priority}", name.trim_start_matches("default/")))
                .collect()
        };
        (by_name(tasks.collect()), by_name(jobs.collect()))
    };
    let (tasks, jobs) = priorities(&records);
    assert_eq!(
        tasks,
        ["named 1000", "none 0", "numbered 3", "system 2000001000", "unknown 0"]
    );
    assert_eq!(jobs, ["named 1000", "none 0", "unknown 0"]);
    let with_default = records + &class("normal", 50, ", globalDefault: true");
    let (tasks, jobs) = priorities(&with_default);
    assert_eq!(
        tasks,
        ["named 1000", "none 50", "numbered 3", "system 2000001000", "unknown 50"]
    );
    assert_eq!(jobs, ["named 1000", "none 50", "unknown 50"]);
}

#[test]
fn pods_of_a_volcano_job_inherit_its_priority_class() {
    let text = "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: j}, spec: {priorityClassName: high, \
                tasks: [{name: own, replicas: 1, template: {spec: {priorityClassName: low, containers: []}}}, {name: \
                same, replicas: 1, template: {spec: {containers: []}}}]}}\n---\n{apiVersion: scheduling.k8s.io/v1, kind: \
                PriorityClass, metadata: {name: high}, value: 9}\n---\n{apiVersion: scheduling.k8s.io/v1, kind: \
                PriorityClass, metadata: {name: low}, value: 2}\n";
    let cluster = read(&[text]).finish().cluster;
    assert_eq!(cluster.jobs[0].priority, 9);
    let tasks: Vec<_> = cluster
        .tasks
        .iter()
        .map(|task| (task.name.as_str(), task.priority))
        .collect();
    assert_eq!(tasks, [("default/j-own-0", 2), ("default/j-same-0", 9)]);
}

#[test]
fn fields_that_upstream_has_are_not_taken_for_misspelt_ones() {
    for text in [JSON, YAML, NODES, TASKS] {
        assert_eq!(
            read(&[text])
                .finish()
                .warnings
                .iter()
                .filter(|one| one.code == ErrorCode::FieldNotRead)
                .count(),
            0
        );
    }
    let other = "{apiVersion: rabbitmq.com/v1beta1, kind: Queue, metadata: {name: q}, spec: {capabilities: 1}}";
    assert_eq!(read(&[other]).finish().warnings, []);
}

#[test]
fn fields_of_gangs_are_read() {
    let pod = |name: &str, labels: &str, spec: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{{labels}}}, annotations: \
             {{scheduling.k8s.io/group-name: g, volcano.sh/task-spec: ''}}}}, spec: {{containers: []{spec}}}}}\n---\n"
        )
    };
    let text = pod("a", "volcano.sh/task-spec: worker, grp: x, rank: '0'", "")
        + &pod(
            "b",
            "grp: x",
            ", priorityClassName: system-node-critical, schedulingGates: [{name: wait}]",
        )
        + &pod("c", "grp: x, rank: ''", "")
        + &pod("d", "app: other, grp: x, rank: '1'", "")
        + "{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: g}, spec: {minMember: 2, \
           minTaskMember: {worker: 2}, subGroupPolicy: [{name: ranks, subGroupSize: 2, minSubGroups: 1, labelSelector: \
           {matchExpressions: [{key: app, operator: DoesNotExist}]}, matchLabelKeys: [grp, rank]}, {name: rest, \
           labelSelector: {matchLabels: {grp: x}}, matchLabelKeys: [grp]}]}}\n";
    let cluster = read(&[&text]).finish().cluster;
    let groups: Vec<&str> = cluster.tasks.iter().map(|task| task.sub_group.as_str()).collect();
    assert_eq!(groups, ["ranks/x-0", "rest/x", "rest/x", "rest/x"]);
    assert_eq!(cluster.tasks[0].role, "worker", "the empty annotation does not count");
    let (task, job) = (&cluster.tasks[1], &cluster.jobs[0]);
    assert_eq!(
        (
            task.priority_class_name.as_str(),
            task.gated,
            task.scheduling_gates.as_slice()
        ),
        ("system-node-critical", true, &["wait".to_owned()][..])
    );
    assert_eq!(job.min_task_member["worker"], 2);
    let policies = &job.sub_group_policies;
    assert_eq!(
        (policies[0].name.as_str(), policies[0].size, policies[0].min_groups),
        ("ranks", Some(2), Some(1))
    );
    assert_eq!((policies[1].size, policies[1].min_groups), (None, None));
}

#[test]
fn tasks_of_a_volcano_job_are_roles_with_minimums() {
    let text = "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: j}, spec: {tasks: [{name: ps, replicas: \
                2, minAvailable: 1, template: {spec: {containers: []}}}, {name: worker, replicas: 1, template: {spec: \
                {containers: []}}}]}}";
    let cluster = read(&[text]).finish().cluster;
    let least: Vec<(&str, i32)> = cluster.jobs[0]
        .min_task_member
        .iter()
        .map(|(role, least)| (role.as_str(), *least))
        .collect();
    assert_eq!(least, [("ps", 1), ("worker", 1)]);
    let roles: Vec<&str> = cluster.tasks.iter().map(|task| task.role.as_str()).collect();
    assert_eq!(roles, ["ps", "ps", "worker"]);
    assert!(cluster.tasks.iter().all(|task| task.owner_kind == "Job"));
}

#[test]
fn quotas_and_budgets_are_parts_of_their_namespace() {
    let objects = r#"{"kind": "List", "apiVersion": "v1", "items": [
      {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "ns", "labels": {"team": "a"}}},
      {"kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "q", "namespace": "ns"},
       "spec": {"hard": {"cpu": "9"}}, "status": {"hard": {"requests.cpu": "4"}, "used": {"requests.cpu": "500m"}}},
      {"kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "q", "namespace": "elsewhere"}, "status": {}},
      {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": {"name": "b", "namespace": "ns"},
       "spec": {"selector": {"matchLabels": {"app": "web"}}},
       "status": {"disruptionsAllowed": 2, "disruptedPods": {"web-0": "2026-11-22T12:00:00Z"}}},
      {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": {"name": "b"}, "status": {}}
    ]}"#;
    let imported = read(&[objects]).finish();
    let [namespace] = &imported.cluster.namespaces[..] else {
        panic!("{:?}", imported.cluster.namespaces)
    };
    assert_eq!(namespace.labels["team"], "a");
    let quota = &namespace.resource_quotas[0];
    assert_eq!(
        (quota.name.as_str(), item(quota.hard.as_ref(), "requests.cpu")),
        ("q", Some("4"))
    );
    assert_eq!(
        (
            item(quota.used.as_ref(), "requests.cpu"),
            item(quota.hard.as_ref(), "cpu")
        ),
        (Some("500m"), None)
    );
    let budget = &namespace.disruption_budgets[0];
    assert_eq!(
        (budget.disruptions_allowed, &budget.disrupted_pods[..]),
        (2, &["web-0".to_owned()][..])
    );
    assert_eq!(budget.selector.as_ref().unwrap().match_labels["app"], "web");
    let notes: Vec<&str> = imported.notes.keys().map(String::as_str).collect();
    assert_eq!(
        notes,
        ["ResourceQuota: its Namespace is not in the files, so it limits nothing"]
    );
    assert_eq!(imported.rejected.len(), 1);
}
