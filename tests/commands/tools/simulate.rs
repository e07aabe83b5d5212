//! Simulations: outcomes computed by hand, and the same outcome twice.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use super::{TestDirectory, err, out, pumice};

/// Node with eight GPUs, and a smaller one without.
const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\ngpu-1,72000,262144,8,A10\ncpu-1,32000,131072,0,\n";
const HEAD: &str =
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time";

fn write(folder: &TestDirectory, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn tasks(lines: &[&str]) -> String {
    format!("{HEAD}\n{}\n", lines.join("\n"))
}

fn simulate(arguments: &[&str]) -> Output {
    pumice(&[&["simulate"], arguments].concat()).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = simulate(&[arguments, &["-o", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    serde_json::from_str(&out(&output)).unwrap()
}

#[test]
fn policies_differ_in_where_cpu_tasks_go_and_what_that_strands() {
    let folder = TestDirectory::named("simulate");
    let nodes = write(&folder, "nodes.csv", NODES);
    let arrivals = tasks(&[
        "cpu-a,16000,8192,0,0,,LS,Running,0,100,0",
        "cpu-b,16000,8192,0,0,,LS,Running,1,100,1",
        "gpu-a,8000,8192,1,1000,,LS,Running,2,100,2",
        "gpu-b,4000,8192,1,500,,LS,Running,3,100,3",
        "huge,1000,1024,9,1000,,LS,Running,4,100,4",
    ]);
    let workload = write(&folder, "tasks.csv", &arrivals);
    let svg = folder.path().join("chart.svg");
    let arguments = [
        nodes.as_str(),
        &workload,
        "--policy",
        "spread",
        "--policy",
        "built-in",
        "--svg",
        svg.to_str().unwrap(),
    ];
    let report = json(&arguments);
    assert_eq!(
        (&report["nodes"], &report["gpus"], &report["cores"]),
        (&2.into(), &8.0.into(), &104.0.into())
    );
    let [spread, built_in] = [&report["policies"][0], &report["policies"][1]];
    // Spread by cpu and memory: both CPU tasks go to the GPU node, which is twice as large and emptier.
    assert_eq!(spread["cpuOnly"], serde_json::json!({"placed": 2, "onGpuNodes": 2}));
    assert_eq!(built_in["cpuOnly"], serde_json::json!({"placed": 2, "onGpuNodes": 0}));
    for outcome in [spread, built_in] {
        assert_eq!(outcome["tasks"]["placed"], 4);
        assert_eq!(outcome["tasks"]["waiting"], 1);
        assert_eq!(outcome["rejected"][0]["tasks"], 1, "the task with nine GPUs");
        assert_eq!(outcome["cards"]["A10"]["allocated"], 1.5);
        assert_eq!(outcome["afterLastArrival"]["gpuAllocatedPercent"], 18.75);
    }
    // 6.5 GPUs are free. The usual GPU task takes 8 cores a GPU: 28 cores serve 3.5 of them, 60 serve all.
    assert_eq!(spread["afterLastArrival"]["gpusStranded"], 3.0);
    assert_eq!(built_in["afterLastArrival"]["gpusStranded"], 0.0);
    let chart = std::fs::read_to_string(&svg).unwrap();
    assert_eq!(chart.matches("<polyline").count(), 10, "five panels of two lines");
    let mut again = json(&arguments);
    let mut report = report;
    for one in [&mut again, &mut report] {
        for outcome in one["policies"].as_array_mut().unwrap() {
            outcome["decisionSpeed"] = Value::Null;
        }
    }
    assert_eq!(again, report, "the same but for how fast it was");
}

#[test]
fn tasks_leave_when_their_time_is_over_and_what_waits_is_tried_again() {
    let folder = TestDirectory::named("simulate-ends");
    let nodes = write(&folder, "nodes.csv", NODES);
    let arrivals = tasks(&[
        "first,1000,1024,8,1000,,LS,Running,0,100,0",
        "second,1000,1024,8,1000,,LS,Running,50,250,50",
        "third,1000,1024,8,1000,,LS,Running,400,500,400",
        "last,1000,1024,0,0,,LS,Running,1000,1001,1000",
    ]);
    let workload = write(&folder, "tasks.csv", &arrivals);
    let run = |more: &[&str]| {
        let report = json(&[&[nodes.as_str(), &workload, "--policy", "built-in"], more].concat());
        report["policies"][0].clone()
    };
    let stays = run(&[]);
    assert_eq!(
        (&stays["tasks"]["placed"], &stays["tasks"]["waiting"]),
        (&2.into(), &2.into())
    );
    // The first runs from 0 to 100, the second, which waited, from 100 to 300, the third from 400 to 500.
    let leaves = run(&["--departures"]);
    let reported = ["placed", "delayed", "waiting", "finished"].map(|name| leaves["tasks"][name].as_u64().unwrap());
    assert_eq!(reported, [4, 1, 0, 3]);
    // So all GPUs were taken for 400 of 1,000 seconds.
    assert_eq!(leaves["mean"]["gpuAllocatedPercent"], 40.0);
    // Ten times as fast, the second and the third come while the first still runs.
    let crowded = run(&["--departures", "--arrival-speedup", "10"]);
    assert_eq!(crowded["tasks"]["delayed"], 2);
    assert_eq!(
        crowded["tasks"]["placed"], 3,
        "the third still waits when the last arrives"
    );
}

#[test]
fn gangs_of_a_dump_are_placed_all_or_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dump = root.join("tests/data/dump.yaml");
    let report = json(&[dump.to_str().unwrap(), "--policy", "built-in", "--policy", "pack"]);
    for outcome in report["policies"].as_array().unwrap() {
        let count = |name: &str| outcome["tasks"][name].as_u64().unwrap();
        assert!(count("arrived") > 0);
        assert_eq!(count("arrived"), count("placed") + count("waiting"));
    }
}

/// Node of 12 cores, and the rest of a file.
fn twelve_cores(more: &str) -> String {
    let mut text = "{apiVersion: v1, kind: Node, metadata: {name: n0}, status: {allocatable: {cpu: 12, memory: 64Gi, pods: 110}}}\n".to_owned();
    text.push_str("---\n{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: default}, ");
    text.push_str("spec: {capability: {cpu: 100, memory: 100Gi}}}\n");
    text.push_str(
        "---\n{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: g, namespace: d}, ",
    );
    text.push_str("spec: {minMember: 2, queue: default}, status: {phase: Inqueue}}\n");
    text.push_str(more);
    text
}

/// Pod of four cores with a name, annotations, and the rest of its spec and status.
fn pod(name: &str, group: &str, spec: &str, phase: &str) -> String {
    let annotations = if group.is_empty() {
        String::new()
    } else {
        format!("annotations: {{scheduling.k8s.io/group-name: {group}}}")
    };
    format!(
        "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: d, {annotations}}}, \
         spec: {{schedulerName: volcano, {spec} containers: [{{name: c, resources: {{requests: {{cpu: 4}}}}}}]}}, \
         status: {{phase: {phase}}}}}\n"
    )
}

/// Numbers of tasks that arrived, were placed, had to wait at first, and wait in the end.
fn counts(outcome: &Value) -> [u64; 4] {
    ["arrived", "placed", "delayed", "waiting"].map(|name| outcome["tasks"][name].as_u64().unwrap())
}

#[test]
fn tasks_beyond_a_gangs_minimum_wait_without_free_capacity() {
    let folder = TestDirectory::named("simulate-rest");
    let wait = |name: &str| pod(name, "g", "", "Pending");
    let run = |name: &str| pod(name, "g", "nodeName: n0,", "Running");
    let whole = ["a", "b", "c", "d"].map(wait).concat();
    let one = [run("a"), run("b"), wait("c"), wait("d")].concat();
    let none = [run("a"), run("b"), run("c"), wait("d")].concat();
    for (pods, expected) in [(whole, [4, 3, 1, 1]), (one, [2, 1, 1, 1]), (none, [1, 0, 1, 1])] {
        let file = write(&folder, "dump.yaml", &twelve_cores(&pods));
        for policy in ["built-in", "examples/capacity-card.yaml"] {
            let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join(policy);
            let policy = if policy.exists() {
                policy.to_str().unwrap()
            } else {
                "built-in"
            };
            let report = json(&[file.as_str(), "--policy", policy]);
            let outcome = &report["policies"][0];
            assert_eq!(counts(outcome), expected, "{policy}: {outcome}");
            assert_eq!(
                outcome["rejected"],
                serde_json::json!([{"reason": "resource-fit InsufficientResource cpu", "tasks": 1}])
            );
        }
    }
}

#[test]
fn an_unusable_record_is_rejected_alone() {
    let folder = TestDirectory::named("simulate-odd");
    let pods = [
        pod("orphan", "nobody", "", "Pending"),
        pod("gated", "", "schedulingGates: [{name: g}],", "Pending"),
        pod("alone", "", "", "Pending"),
    ];
    let file = write(&folder, "dump.yaml", &twelve_cores(&pods.concat()));
    let cards = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/capacity-card.yaml");
    for policy in ["built-in", cards.to_str().unwrap()] {
        let output = simulate(&[&file, "--policy", policy, "-o", "json"]);
        let report: Value = serde_json::from_str(&out(&output)).unwrap();
        let outcome = &report["policies"][0];
        assert_eq!(counts(outcome), [3, 2, 1, 1], "{policy}: {outcome}");
        assert_eq!(
            outcome["rejected"],
            serde_json::json!([{"reason": "JOB_UNKNOWN", "tasks": 1}])
        );
        let said = err(&output);
        assert!(said.contains("there is no job `d/nobody`"), "{said}");
        assert!(said.contains("1 task with a scheduling gate: taken as if"), "{said}");
    }
    let said = err(&simulate(&[&file, "--cycles"]));
    assert!(
        said.contains("1 task with a scheduling gate: waits to the end"),
        "{said}"
    );
}

#[test]
fn a_mean_is_one_over_arrivals_and_of_one_arrival_what_it_left() {
    let folder = TestDirectory::named("simulate-mean");
    let nodes = write(&folder, "nodes.csv", NODES);
    let line = |name: &str| format!("{name},1000,1024,4,1000,,LS,Running,0,100,0");
    for (lines, mean) in [(vec![line("a")], 50.0), (vec![line("a"), line("b")], 75.0)] {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let workload = write(&folder, "tasks.csv", &tasks(&lines));
        let report = json(&[&nodes, &workload, "--policy", "built-in"]);
        assert_eq!(report["policies"][0]["mean"]["gpuAllocatedPercent"], mean);
        // All tasks arrive at one moment, which has no duration.
        let report = json(&[&nodes, &workload, "--policy", "built-in", "--departures"]);
        let outcome = &report["policies"][0];
        assert_eq!(outcome["mean"], outcome["afterLastArrival"]);
    }
}

#[test]
fn policies_are_distinguished_by_their_files() {
    let folder = TestDirectory::named("simulate-files");
    let nodes = write(&folder, "nodes.csv", NODES);
    let workload = write(
        &folder,
        "tasks.csv",
        &tasks(&["a,1000,1024,4,1000,,LS,Running,0,100,0"]),
    );
    let document = "actions: allocate\ntiers:\n- plugins: [{name: binpack, arguments: {binpack.wait: 1}}]\n";
    let policies = ["a", "b"].map(|name| {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
        write(&folder, &format!("{name}/policy.yaml"), document)
    });
    let nowhere = folder.path().join("nowhere/chart.svg");
    let mut arguments = vec![
        nodes.as_str(),
        &workload,
        "-o",
        "json",
        "--svg",
        nowhere.to_str().unwrap(),
    ];
    for policy in [&policies[0], &policies[1], &policies[1]] {
        arguments.extend(["--policy", policy]);
    }
    let output = simulate(&arguments);
    let said = err(&output);
    assert!(
        said.contains(&format!("{}:3:", policies[0])),
        "warnings are shown: {said}"
    );
    assert_eq!(output.status.code(), Some(1), "the chart cannot be written: {said}");
    let report: Value = serde_json::from_str(&out(&output)).unwrap();
    let names: Vec<&str> = report["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["policy"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["policy", &policies[1], &format!("{} (2)", policies[1])]);
}

#[test]
fn policies_are_judged_before_anything_is_placed() {
    let folder = TestDirectory::named("simulate-profiles");
    let nodes = write(&folder, "nodes.csv", NODES);
    let workload = tasks(&["a,1000,1024,4,1000,,LS,Running,0,100,0"]);
    let workload = write(&folder, "tasks.csv", &workload);
    let profile = |name: &str| {
        let plugins = "plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: ScarceResourceAvoidance}]}}";
        let arguments = "pluginConfig: [{name: ScarceResourceAvoidance, args: {resources: [nvidia.com/gpu]}}]";
        format!("{{schedulerName: {name}, {plugins}, {arguments}}}")
    };
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    let two = format!("{head}profiles: [{}, {}]\n", profile("one"), profile("two"));
    let two = write(&folder, "two.yaml", &two);
    let compared = [
        &nodes,
        &workload,
        "--policy",
        "spread",
        "--policy",
        &two,
        "--policy-profile",
    ];
    // A policy without profiles can be compared with one of several.
    let report = json(&[&compared[..], &["two"]].concat());
    assert_eq!(report["policies"].as_array().unwrap().len(), 2);
    let output = simulate(&[&compared[..], &["three"]].concat());
    assert!(
        err(&output).contains("two.yaml: the policy has no profile `three`; it has: one, two"),
        "{}",
        err(&output)
    );

    let wrong = write(&folder, "wrong.yaml", "tiers: []\n");
    let output = simulate(&[&nodes, &workload, "--policy", "spread", "--policy", &wrong]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(1), ""));
    assert!(
        err(&output).contains("wrong.yaml: 1 error: no policy"),
        "{}",
        err(&output)
    );
}

#[test]
fn missing_inputs_are_reported() {
    let folder = TestDirectory::named("simulate-wrong");
    let nodes = write(&folder, "nodes.csv", NODES);
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c}]}\n";
    let pod = write(&folder, "pod.yaml", pod);
    for (arguments, code, said) in [
        (&[nodes.as_str()][..], 1, "no task that waits"),
        (&[&pod], 1, "no node"),
        (&[&nodes, &pod, "--departures"], 2, "do not tell how long tasks run"),
        (&[&nodes, &pod, "--policy", "nowhere"], 2, "none of spread, pack"),
        (&[&nodes, &pod, "--policy", &nodes], 1, "error"),
        (&[&nodes, &pod, "--arrival-speedup", "0"], 2, "above 0"),
    ] {
        let output = simulate(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", err(&output));
        assert!(err(&output).contains(said), "{arguments:?}: {}", err(&output));
    }
}

#[test]
fn amounts_of_pods_follow_the_release_of_each_policy() {
    let folder = TestDirectory::named("simulate-releases");
    // Overhead is part of the larger init container's 2 cores before 1.15, and comes on top of them since.
    let cluster = "apiVersion: v1\nkind: Node\nmetadata: {name: node}\nstatus: {allocatable: {cpu: 2, memory: 1Gi, pods: 9}}\n---\n\
        apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: x}\nspec:\n  schedulerName: volcano\n  overhead: {cpu: 1}\n  \
        initContainers: [{name: i, resources: {requests: {cpu: 2}}}]\n  containers: [{name: c, resources: {requests: {cpu: 1}}}]\n";
    let cluster = write(&folder, "cluster.yaml", cluster);
    let policy = |release: &str| {
        let document = format!(
            "actions: enqueue, allocate\ntiers: [{{plugins: [{{name: gang}}]}}]\npumice: {{compatibility: {release}}}\n"
        );
        write(&folder, &format!("{release}.yaml"), &document)
    };
    let [old, new, newest] = ["volcano-1.14.4", "volcano-1.15.1", "upstream"].map(policy);
    let report = json(&[
        &cluster, "--cycles", "--policy", &old, "--policy", &new, "--policy", &newest,
    ]);
    let placed = report["policies"].as_array().unwrap().iter();
    let placed: Vec<&Value> = placed.map(|policy| &policy["tasks"]["placed"]).collect();
    assert_eq!(placed, [1, 0, 0], "{report}");
}
