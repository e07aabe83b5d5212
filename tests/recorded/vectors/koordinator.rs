//! Families noderesourcesfitplus and scarceresourceavoidance: Koordinator's plugins over gRPC, out of a
//! `KubeSchedulerConfiguration` and out of tiers, on nodes given as sums and as the pods that make them.

use pumice::server::pb;
use pumice_kubernetes::derive::{Pod, PodRules, RequestDerivation, effective_task, fit_plus_amounts};
use serde_json::{Value, json};

use super::cluster::{self, members};
use super::query::{self, NodeScores, QueryError, TaskQuery};
use super::{VectorDifferences, VectorHarness, VectorVerdict};

/// Judges one case.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    let mut differences = VectorDifferences::default();
    let plugin = cluster::text(&case["policy"]["name"]);
    let task = match task(&case["request"]["task"], "") {
        Ok(task) => task,
        Err(problem) => {
            differences.differ("task", "a pod", &problem);
            return differences.verdict();
        }
    };
    compare_plugin_state(&mut differences, case);
    let mut documents = vec![("profile: ", configuration(&plugin, &case["policy"]))];
    let args = &case["policy"]["args"];
    if args.is_object() && case["policy"].get("enabled_at").is_none() {
        let tiers = cluster::plugin_tiers(&plugin, args);
        documents.push(("tiers: ", cluster::document(case, &tiers)));
    }
    for (how, document) in documents {
        let evaluation_ref = cluster::inline_ref(sums(&case["cluster"]), document.clone());
        compare(bench, &mut differences, case, &plugin, how, evaluation_ref, &task);
        let what = format!("{how}pods of their own: ");
        match pods(&case["cluster"]) {
            Ok(cluster) => {
                let evaluation_ref = cluster::inline_ref(cluster, document);
                compare(bench, &mut differences, case, &plugin, &what, evaluation_ref, &task);
            }
            Err(problem) => differences.differ(&what, "pods", &problem),
        }
    }
    differences.verdict()
}

/// Document that the recorder wrote, with our section appended.
fn configuration(plugin: &str, policy: &Value) -> String {
    let enabled = format!("{{enabled: [{{name: {plugin}}}]}}");
    let points: Vec<String> = match policy.get("enabled_at") {
        Some(points) => members(points).iter().map(cluster::text).collect(),
        None => vec!["multiPoint".to_owned()],
    };
    // The recorder had no other plugins.
    let disabled = "{name: '*'}";
    let mut own: Vec<String> = points.iter().map(|point| format!("{point}: {enabled}")).collect();
    own.retain(|point| !point.starts_with("multiPoint"));
    own.push(if points.iter().any(|point| point == "multiPoint") {
        format!("multiPoint: {{disabled: [{disabled}], enabled: [{{name: {plugin}}}]}}")
    } else {
        format!("multiPoint: {{disabled: [{disabled}]}}")
    });
    let points = own;
    let args = match (policy.get("args"), policy.get("args_text")) {
        (_, Some(text)) => Some(cluster::text(text)),
        (Some(args), None) => Some(args.to_string()),
        (None, None) => None,
    };
    let config = args.map_or_else(String::new, |args| {
        format!("  pluginConfig:\n  - name: {plugin}\n    args: {args}\n")
    });
    format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n\
         - schedulerName: vectors\n  plugins: {{{}}}\n{config}---\npumice: {{compatibility: upstream}}\n",
        points.join(", ")
    )
}

/// Recorded pod as Kubernetes writes it.
fn pod(pod: &Value) -> Value {
    let container = |container: &Value| {
        let mut own = json!({ "name": container["name"], "resources": { "requests": container["requests"] } });
        if let Some(policy) = container.get("restart_policy") {
            own["restartPolicy"] = policy.clone();
        }
        own
    };
    let all = |list: &Value| -> Vec<Value> { members(list).iter().map(container).collect() };
    let mut spec = json!({
        "containers": all(&pod["containers"]),
        "initContainers": all(&pod["init_containers"]),
    });
    if let Some(overhead) = pod.get("overhead") {
        spec["overhead"] = overhead.clone();
    }
    if let Some(requests) = pod.get("pod_level_requests") {
        spec["resources"] = json!({ "requests": requests });
    }
    json!({ "metadata": { "name": pod["name"], "namespace": "default" }, "spec": spec })
}

/// Task for the pod, on a node if one is given.
fn task(recorded: &Value, node: &str) -> Result<pb::Task, String> {
    let pod = Pod::read(&pod(recorded)).map_err(|error| error.to_string())?;
    let task =
        effective_task(&pod, RequestDerivation::Kubernetes, PodRules::default()).map_err(|error| error.to_string())?;
    let status = if node.is_empty() {
        pb::TaskStatus::Pending
    } else {
        pb::TaskStatus::Running
    };
    Ok(pb::Task {
        name: format!("default/{}", cluster::text(&recorded["name"])),
        status: status.into(),
        node: node.to_owned(),
        requests: task.requests,
        nonzero_requests: task.nonzero_requests,
        counted_requests: task.counted_requests,
        ..pb::Task::default()
    })
}

fn node(node: &Value) -> pb::Node {
    pb::Node {
        name: cluster::text(&node["name"]),
        allocatable: cluster::resources(&node["allocatable"]),
        ..pb::Node::default()
    }
}

/// Nodes with the recorded sums.
fn sums(recorded: &Value) -> pb::Cluster {
    let nodes = members(&recorded["nodes"]).iter();
    pb::Cluster {
        nodes: nodes
            .map(|own| pb::Node {
                unattributed_used: cluster::resources(&own["requested"]),
                unattributed_nonzero_used: cluster::resources(&own["nonzero_requested"]),
                ..node(own)
            })
            .collect(),
        ..pb::Cluster::default()
    }
}

/// Nodes with their pods.
fn pods(recorded: &Value) -> Result<pb::Cluster, String> {
    let mut cluster = pb::Cluster::default();
    for own in members(&recorded["nodes"]) {
        cluster.nodes.push(node(own));
        for pod in members(&own["pods"]) {
            cluster.tasks.push(task(pod, &cluster::text(&own["name"]))?);
        }
    }
    Ok(cluster)
}

/// Compares the names that the task requests, and their counted amounts.
fn compare_plugin_state(differences: &mut VectorDifferences, case: &Value) {
    let expected = &case["expect"]["derived"];
    if expected.is_null() {
        return;
    }
    let counted = Pod::read(&pod(&case["request"]["task"])).and_then(|pod| fit_plus_amounts(&pod));
    match counted {
        Ok(counted) => {
            let names: Vec<&String> = counted.keys().collect();
            differences.same("requested names", &expected["requested_names"], &json!(names));
            if let Some(amounts) = expected.get("counted") {
                differences.same("counted", amounts, &json!(counted));
            }
        }
        Err(error) => differences.differ("derived", expected, &error.to_string()),
    }
}

fn compare(
    bench: &mut VectorHarness,
    differences: &mut VectorDifferences,
    case: &Value,
    plugin: &str,
    how: &str,
    evaluation_ref: pb::EvaluationRef,
    task: &pb::Task,
) {
    let asked = TaskQuery {
        evaluation_ref,
        task: task.clone(),
        plugins: Vec::new(),
    };
    let named = TaskQuery {
        plugins: vec![plugin.to_owned()],
        ..asked.clone()
    };
    // Where the reference ends its process, the recording has its result without that.
    let recorded = &case["expect"];
    let expect = recorded.get("with_pod_overhead_gate_registered").unwrap_or(recorded);
    for (what, asked) in [(how.to_owned(), &asked), (format!("{how}plugin named: "), &named)] {
        let got = query::score(bench.wire(), asked);
        match expect.get("error") {
            Some(error) => compare_rejection(differences, &what, error, &case["cluster"], got),
            None => scores(differences, &what, plugin, &expect["scores"], got),
        }
    }
}

fn scores(
    differences: &mut VectorDifferences,
    how: &str,
    plugin: &str,
    expected: &Value,
    got: Result<NodeScores, QueryError>,
) {
    let got = match got {
        Ok(got) => got,
        Err(problem) => return differences.differ(how, expected, &problem),
    };
    differences.same(
        how,
        &expected.as_object().map_or(0, serde_json::Map::len),
        &got.totals.len(),
    );
    for (node, score) in expected.as_object().into_iter().flatten() {
        let score = score.as_i64().map(|score| score as f64);
        let what = format!("{how}{node}");
        differences.same(&what, &score, &got.totals.get(node).copied());
        differences.same(&what, &score, &got.part(plugin, "", node));
    }
}

fn compare_rejection(
    differences: &mut VectorDifferences,
    how: &str,
    error: &Value,
    recorded: &Value,
    got: Result<NodeScores, QueryError>,
) {
    match (error["stage"].as_str().unwrap_or_default(), got) {
        ("config_decode" | "config_validate" | "framework_init", Err(QueryError::PolicyRejected(_))) => {}
        ("score" | "prescore", Err(QueryError::Other(text))) if text.contains("PRE_SCORE_MISSING") => {}
        ("score_range", Err(QueryError::Other(text))) if text.contains("SCORE_OUT_OF_RANGE") => {
            let nodes = members(&recorded["nodes"])
                .iter()
                .map(|node| cluster::text(&node["name"]));
            let named: Vec<String> = nodes.filter(|node| text.contains(&format!("on `{node}`"))).collect();
            let expected: Vec<String> = members(&error["nodes"]).iter().map(cluster::text).collect();
            differences.same(&format!("{how}nodes out of range"), &expected, &named);
        }
        (stage, got) => differences.differ(how, &format!("refused at {stage}"), &got),
    }
}
