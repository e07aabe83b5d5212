//! Simulations by whole cycles: outcomes computed by hand.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{TestDirectory, err, out, pumice};

/// Configuration of Volcano's chart.
const CHART: &str = include_str!("../../../examples/queues/policy.yaml");

/// Configuration of Volcano's chart, with all actions, as the reference has it.
pub(super) fn stock() -> String {
    let all = CHART.replace(
        "enqueue, allocate, backfill",
        "enqueue, allocate, backfill, reclaim, preempt",
    );
    format!("{all}pumice: {{compatibility: upstream}}\n")
}

/// One node with eight cores, and the queues a, weight 1, and b, weight 3.
const CLUSTER: &str = r#"
- {apiVersion: v1, kind: Node, metadata: {name: node-1}, status: {allocatable: {cpu: "8", memory: 64Gi, pods: "110"}, conditions: [{type: Ready, status: "True"}]}}
- {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: a}, spec: {weight: 1}, status: {state: Open}}
- {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: b}, spec: {weight: 3}, status: {state: Open}}
"#;

/// Job of equal tasks of one core each, which arrive together at this minute after ten.
pub(super) fn job(name: &str, queue: &str, tasks: u32, minute: u32) -> String {
    let at = format!("2026-11-20T10:{minute:02}:00Z");
    let mut text = format!(
        "- {{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {{name: {name}, namespace: x, \
         creationTimestamp: \"{at}\"}}, spec: {{minMember: {tasks}, queue: {queue}}}, status: {{phase: Pending}}}}\n"
    );
    for number in 0..tasks {
        writeln!(
            text,
            "- {{apiVersion: v1, kind: Pod, metadata: {{name: {name}-{number}, namespace: x, creationTimestamp: \"{at}\", \
             annotations: {{scheduling.k8s.io/group-name: {name}}}}}, spec: {{schedulerName: volcano, containers: [{{name: c, \
             resources: {{requests: {{cpu: 1, memory: 1Gi}}}}}}]}}, status: {{phase: Pending}}}}"
        )
        .unwrap();
    }
    text
}

pub(super) struct CycleSimulation {
    pub(super) folder: TestDirectory,
}

impl CycleSimulation {
    pub(super) fn new(name: &str, jobs: &[String]) -> Self {
        let folder = TestDirectory::named(name);
        let list = format!("apiVersion: v1\nkind: List\nitems:{CLUSTER}{}", jobs.concat());
        std::fs::write(folder.path().join("cluster.yaml"), list).unwrap();
        std::fs::write(folder.path().join("stock.yaml"), stock()).unwrap();
        Self { folder }
    }

    /// Report, and the outcomes of the tasks.
    pub(super) fn run(&self, arguments: &[&str]) -> (Value, Vec<Value>) {
        let given = [
            "simulate",
            "cluster.yaml",
            "--policy",
            "stock.yaml",
            "--tasks",
            "tasks.jsonl",
        ];
        let output = pumice(&[&given, arguments, &["-o", "json"]].concat())
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let lines = std::fs::read_to_string(self.folder.path().join("tasks.jsonl")).unwrap();
        let tasks = lines.lines().map(|line| serde_json::from_str(line).unwrap());
        (serde_json::from_str(&out(&output)).unwrap(), tasks.collect())
    }
}

/// Fields of a queue's outcome.
fn queue(report: &Value, at: usize, fields: &[&str]) -> Value {
    let queue = &report["policies"][0]["cycles"]["queues"][at];
    fields.iter().map(|field| queue[*field].clone()).collect()
}

#[test]
fn a_queue_gets_its_due_back_by_reclaim() {
    let low: Vec<String> = (0..8).map(|number| job(&format!("low-{number}"), "a", 1, 0)).collect();
    let jobs = [low.concat(), job("high-0", "b", 1, 1), job("high-1", "b", 1, 1)];
    let simulation = CycleSimulation::new("cycles-reclaim", &jobs);
    // From minute 1 on, a holds 8 of 8 cores, and b, of weight 3, asks for 2: these are its due. They are free 30 s later,
    // and the simulation comes to rest with the cycle after.
    let (report, tasks) = simulation.run(&["--cycles"]);
    let outcome = &report["policies"][0];
    let counted = ["arrived", "placed", "evicted", "delayed", "waiting"].map(|name| outcome["tasks"][name].clone());
    assert_eq!(json!(counted), json!([10, 10, 2, 2, 2]));
    let fields = [
        "arrived",
        "placed",
        "waiting",
        "evicted",
        "evictedForOthers",
        "waitMaxSeconds",
    ];
    assert_eq!(queue(&report, 0, &fields), json!([8, 8, 2, 2, 2, 0.0]));
    assert_eq!(queue(&report, 1, &fields), json!([2, 2, 0, 0, 0, 30.0]));
    let cycles = &outcome["cycles"];
    assert_eq!(
        (&cycles["seconds"], &cycles["cameToRest"]),
        (&json!(92.0), &json!(true))
    );
    // In 92 s b was due 2 of 8 cores for 32 s, and held them for 2 s.
    let (due, short) = (100.0 * 0.25 * 32.0 / 92.0, 100.0 * 30.0 / 32.0);
    let near = |value: &Value, wanted: f64| (value.as_f64().unwrap() - wanted).abs() < 1e-9;
    let own = queue(&report, 1, &["duePercent", "shortPercent"]);
    assert!(near(&own[0], due) && near(&own[1], short), "{own}");
    let ends = |status: &str| tasks.iter().filter(|task| task["status"] == status).count();
    assert_eq!((ends("RUNNING"), ends("PENDING")), (8, 2));
    let evicted: Vec<&Value> = tasks.iter().filter(|task| task["evictions"] == 1).collect();
    assert!(
        evicted.len() == 2
            && evicted
                .iter()
                .all(|task| task["queue"] == "a" && task["status"] == "PENDING")
    );
    let (again, _) = simulation.run(&["--cycles"]);
    assert_eq!(again["policies"][0]["cycles"], report["policies"][0]["cycles"]);
}

#[test]
fn the_end_of_a_simulation_shows_what_was_promised() {
    let jobs = [
        job("low", "a", 1, 0).replace("cpu: 1,", "cpu: 8,"),
        job("high", "b", 1, 1),
    ];
    let simulation = CycleSimulation::new("cycles-promise", &jobs);
    let (report, tasks) = simulation.run(&["--cycles", "--after", "0"]);
    assert_eq!(report["policies"][0]["cycles"]["cameToRest"], false);
    let ends: Vec<[&Value; 3]> = tasks
        .iter()
        .map(|task| [&task["task"], &task["status"], &task["node"]])
        .collect();
    assert_eq!(
        json!(ends),
        json!([["x/high-0", "PIPELINED", "node-1"], ["x/low-0", "RELEASING", "node-1"]])
    );
}

#[test]
fn a_gang_waits_until_all_of_it_fits_and_tasks_end_after_their_time() {
    let folder = TestDirectory::named("cycles-ends");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("nodes.csv", "sn,cpu_milli,memory_mib,gpu,model\ncpu-1,8000,131072,0,\n");
    write(
        "tasks.csv",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
         first,8000,1024,0,0,,LS,Running,0,100,0\nsecond,8000,1024,0,0,,LS,Running,50,250,50\n",
    );
    write("stock.yaml", &stock());
    let run = |arguments: &[&str]| -> Value {
        let given = [
            "simulate",
            "nodes.csv",
            "tasks.csv",
            "--policy",
            "stock.yaml",
            "-o",
            "json",
        ];
        let output = pumice(&[&given, arguments].concat())
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        serde_json::from_str(&out(&output)).unwrap()
    };
    // The first runs from 0 to 100, the second, which came at 50, from 100 to 300; cycles begin every 7 s, so it starts at 105.
    let report = run(&["--cycles=7", "--departures"]);
    assert_eq!(
        queue(&report, 0, &["queue", "placed", "waiting", "waitMaxSeconds"]),
        json!(["default", 2, 0, 55.0])
    );
    assert_eq!(report["policies"][0]["tasks"]["finished"], 2);
    assert_eq!(
        report["policies"][0]["cycles"]["seconds"], 308.0,
        "the cycle after the end at 305"
    );
    let gang = CycleSimulation::new("cycles-gang", &[job("few", "a", 3, 0), job("gang", "a", 6, 1)]);
    let (report, tasks) = gang.run(&["--cycles"]);
    assert_eq!(queue(&report, 0, &["placed", "waiting", "evicted"]), json!([3, 6, 0]));
    assert!(
        tasks
            .iter()
            .all(|task| (task["job"] == "x/few") == (task["status"] == "RUNNING"))
    );
}

#[test]
fn charts_and_tables_show_the_queues() {
    let simulation = CycleSimulation::new("cycles-report", &[job("few", "a", 3, 0), job("more", "b", 3, 1)]);
    let given = [
        "simulate",
        "cluster.yaml",
        "--policy",
        "stock.yaml",
        "--policy",
        "built-in",
        "--cycles",
        "--svg",
        "c.svg",
    ];
    let output = pumice(&given).current_dir(simulation.folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    let lines_of = |policy: &str| text.lines().filter(|line| line.trim().starts_with(policy)).count();
    assert_eq!((lines_of("stock"), lines_of("built-in")), (3, 3), "{text}");
    assert!(text.contains("CYCLES/S") && text.contains("EVICTED"), "{text}");
    let chart = std::fs::read_to_string(simulation.folder.path().join("c.svg")).unwrap();
    assert_eq!(
        chart.matches("<polyline").count(),
        20,
        "six panels and two per queue, of two lines"
    );
    for (arguments, said) in [
        (&["--grace", "1"][..], "--cycles"),
        (&["--cycles=0"], "0.001 or more"),
        (&["--cycles", "--after=-1"], "0 or more"),
    ] {
        let refused = pumice(&[&given[..4], arguments].concat())
            .current_dir(simulation.folder.path())
            .output()
            .unwrap();
        assert_eq!(refused.status.code(), Some(2));
        assert!(err(&refused).contains(said), "{}", err(&refused));
    }
}
