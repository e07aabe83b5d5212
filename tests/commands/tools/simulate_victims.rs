//! Simulations with preempt, reclaim and backfill, through the program: each outcome is worked out by hand beside it. One node
//! has eight cores; tasks ask for one core each and are evicted with 30 seconds of grace; cycles begin every second.

use serde_json::{Value, json};

use super::simulate_cycles::{CycleSimulation, job, stock};
use super::{err, out, pumice};

/// Priority classes, and the priority of tasks without one: 10.
const CLASSES: &str = "\
- {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 1000}
- {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: usual}, value: 10, globalDefault: true}
";

/// Same job with the class `urgent`, its pods as well.
fn urgent(job: &str) -> String {
    job.replace("spec: {", "spec: {priorityClassName: urgent, ")
}

/// Jobs of one task each, which arrive together at this minute.
fn singles(prefix: &str, queue: &str, number: u32, minute: u32) -> String {
    let jobs = (0..number).map(|number| job(&format!("{prefix}-{number}"), queue, 1, minute));
    jobs.collect()
}

/// Same configuration with other actions.
fn with_actions(actions: &str) -> String {
    let mut lines: Vec<String> = stock().lines().map(str::to_owned).collect();
    let own = lines.iter_mut().find(|line| line.starts_with("actions:")).unwrap();
    *own = format!("actions: \"{actions}\"");
    lines.join("\n") + "\n"
}

impl CycleSimulation {
    fn policy(&self, name: &str, document: &str) {
        std::fs::write(self.folder.path().join(format!("{name}.yaml")), document).unwrap();
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Standard output of a simulation of these files.
    fn print(&self, arguments: &[&str]) -> String {
        let output = pumice(&[&["simulate"], arguments].concat())
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.print(&[arguments, &["-o", "json"]].concat())).unwrap()
    }
}

/// Fields of the outcome of a queue under a policy.
fn queue_of(report: &Value, policy: usize, queue: &str, fields: &[&str]) -> Value {
    let queues = report["policies"][policy]["cycles"]["queues"].as_array().unwrap();
    let own = queues.iter().find(|own| own["queue"] == queue).unwrap();
    fields.iter().map(|field| own[*field].clone()).collect()
}

/// Percentages of a queue: held, due, short.
fn assert_percent(report: &Value, policy: usize, queue: &str, wanted: [f64; 3]) {
    let own = queue_of(report, policy, queue, &["heldPercent", "duePercent", "shortPercent"]);
    for (at, wanted) in wanted.into_iter().enumerate() {
        let got = own[at].as_f64().unwrap();
        assert!((got - wanted).abs() < 1e-9, "{queue}: {own} where {wanted}");
    }
}

const COUNTS: [&str; 5] = ["arrived", "placed", "waiting", "evicted", "evictedForOthers"];
const WAITS: [&str; 3] = ["waitMeanSeconds", "waitP95Seconds", "waitMaxSeconds"];

#[test]
fn an_urgent_gang_preempts_in_its_own_queue() {
    // At 0 s eight tasks of a take the node. At 60 s an urgent gang of two comes: two of the eight are evicted, in the same
    // cycle, and gone at 90 s, when the gang starts: it has waited 30 s. The two that come back wait to the end, for they may
    // not evict anybody.
    let jobs = [
        singles("low", "a", 8, 0),
        urgent(&job("high", "a", 2, 1)),
        CLASSES.to_owned(),
    ];
    let simulation = CycleSimulation::new("victims-preempt", &jobs);
    simulation.policy("stock", &with_actions("enqueue, allocate, preempt, backfill"));
    simulation.policy("patient", &with_actions("enqueue, allocate, backfill"));
    let given = [
        "cluster.yaml",
        "--policy",
        "stock.yaml",
        "--policy",
        "patient.yaml",
        "--cycles",
        "--tasks",
        "t.jsonl",
    ];
    let report = simulation.json(&given);
    assert_eq!(queue_of(&report, 0, "a", &COUNTS), json!([10, 10, 2, 2, 0]));
    // Eight waited 0 s and two 30 s: on average 6 s, and the tenth of ten is the 95th percentile.
    assert_eq!(queue_of(&report, 0, "a", &WAITS), json!([6.0, 30.0, 30.0]));
    assert_eq!(
        report["policies"][0]["cycles"]["seconds"], 92.0,
        "the start at 90 s, the cycle that finds the gang running, and one that changes nothing"
    );
    // The tasks hold the node until they are gone: it is full all the time, and a the only queue.
    assert_percent(&report, 0, "a", [100.0, 100.0, 0.0]);
    // Without preempt the gang waits for ever.
    assert_eq!(queue_of(&report, 1, "a", &COUNTS), json!([10, 8, 2, 0, 0]));
    let lines = std::fs::read_to_string(simulation.folder.path().join("t.jsonl")).unwrap();
    let tasks: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |task: &str| {
        let own = tasks.iter().find(|own| own["policy"] == "stock" && own["task"] == task);
        own.unwrap().clone()
    };
    for task in ["x/high-0", "x/high-1"] {
        let own = of(task);
        assert_eq!(
            json!([
                own["status"],
                own["arrivedSeconds"],
                own["placedSeconds"],
                own["evictions"]
            ]),
            json!(["RUNNING", 60.0, 90.0, 0])
        );
    }
    let evicted = tasks.iter().filter(|own| own["evictions"] == 1);
    let evicted: Vec<&Value> = evicted.map(|own| &own["status"]).collect();
    assert_eq!(evicted, ["PENDING", "PENDING"]);
}

#[test]
fn priority_does_not_preempt_in_another_queue() {
    // The same gang in queue b: preempt looks at its own queue, where nothing runs, and reclaim is no action of the policy.
    let jobs = [
        singles("low", "a", 8, 0),
        urgent(&job("high", "b", 2, 1)),
        CLASSES.to_owned(),
    ];
    let simulation = CycleSimulation::new("victims-other-queue", &jobs);
    simulation.policy("stock", &with_actions("enqueue, allocate, preempt, backfill"));
    let report = simulation.json(&["cluster.yaml", "--policy", "stock.yaml", "--cycles"]);
    assert_eq!(queue_of(&report, 0, "b", &COUNTS), json!([2, 0, 2, 0, 0]));
    assert_eq!(queue_of(&report, 0, "a", &COUNTS), json!([8, 8, 0, 0, 0]));
}

#[test]
fn backfill_places_tasks_that_ask_for_nothing() {
    // The node is full when a task without requests comes at 60 s. Allocate leaves it to backfill, which binds it at once; under
    // the policy without backfill it waits for ever. It holds nothing, and nothing is its due.
    let nothing = job("free", "b", 1, 1).replace("requests: {cpu: 1, memory: 1Gi}", "requests: {}");
    let simulation = CycleSimulation::new("victims-backfill", &[singles("full", "a", 8, 0), nothing]);
    simulation.policy("with", &with_actions("enqueue, allocate, backfill"));
    simulation.policy("without", &with_actions("enqueue, allocate"));
    let report = simulation.json(&[
        "cluster.yaml",
        "--policy",
        "with.yaml",
        "--policy",
        "without.yaml",
        "--cycles",
    ]);
    assert_eq!(queue_of(&report, 0, "b", &COUNTS), json!([1, 1, 0, 0, 0]));
    assert_eq!(queue_of(&report, 0, "b", &WAITS), json!([0.0, 0.0, 0.0]));
    assert_eq!(queue_of(&report, 1, "b", &COUNTS), json!([1, 0, 1, 0, 0]));
    for policy in [0, 1] {
        assert_percent(&report, policy, "b", [0.0, 0.0, 0.0]);
        assert_percent(&report, policy, "a", [100.0, 100.0, 0.0]);
    }
}

/// Eight jobs of a at 0 s, eight of b at 60 s.
fn both_want_all(name: &str) -> CycleSimulation {
    CycleSimulation::new(name, &[singles("a", "a", 8, 0), singles("b", "b", 8, 1)])
}

#[test]
fn a_queue_takes_back_no_more_than_it_deserves() {
    // From 60 s on both queues ask for all eight cores: a, of weight 1, deserves two, and b, of weight 3, six. The cycle at 60 s
    // evicts six tasks of a, which are gone at 90 s; then six of b start. Two of b and six of a wait to the end, at 92 s: the cycle at
    // 91 s finds b's jobs running.
    let simulation = both_want_all("victims-reclaim");
    let report = simulation.json(&["cluster.yaml", "--policy", "stock.yaml", "--cycles"]);
    assert_eq!(queue_of(&report, 0, "a", &COUNTS), json!([8, 8, 6, 6, 6]));
    assert_eq!(queue_of(&report, 0, "b", &COUNTS), json!([8, 6, 2, 0, 0]));
    assert_eq!(queue_of(&report, 0, "b", &WAITS), json!([30.0, 30.0, 30.0]));
    assert_eq!(report["policies"][0]["cycles"]["seconds"], 92.0);
    // a holds everything for 90 s and a quarter for 2 s; its due is everything for 60 s and a quarter for 32 s.
    let (a_held, a_due) = ((90.0 + 0.5) / 92.0, (60.0 + 0.25 * 32.0) / 92.0);
    assert_percent(&report, 0, "a", [100.0 * a_held, 100.0 * a_due, 0.0]);
    // b is due three quarters for 32 s, and holds them for 2 s.
    assert_percent(&report, 0, "b", [150.0 / 92.0, 75.0 * 32.0 / 92.0, 100.0 * 30.0 / 32.0]);
}

#[test]
fn tables_and_charts_say_what_the_report_says() {
    let simulation = both_want_all("victims-tables");
    let text = simulation.print(&["cluster.yaml", "--policy", "stock.yaml", "--cycles", "--svg", "c.svg"]);
    let row = |queue: &str| -> Vec<String> {
        let rows = text.lines().map(|line| line.split_whitespace().map(str::to_owned));
        let mut rows = rows.map(Iterator::collect::<Vec<String>>);
        rows.find(|row| row.first().is_some_and(|cell| cell == "stock") && row.get(1).is_some_and(|cell| cell == queue))
            .unwrap_or_else(|| panic!("no row of {queue}: {text}"))
    };
    // Tasks, placed, waiting still; waited on average, P95, at most; evicted, for others; held, due, short (percent).
    assert_eq!(
        row("a")[2..].join(" "),
        "8 8 6 0 s 0 s 0 s 6 6 98.4 % 73.9 % 0.0 %",
        "{text}"
    );
    assert_eq!(
        row("b")[2..].join(" "),
        "8 6 2 30.0 s 30.0 s 30.0 s 0 0 1.6 % 26.1 % 93.8 %",
        "{text}"
    );
    let chart = std::fs::read_to_string(simulation.folder.path().join("c.svg")).unwrap();
    for title in ["Queue a: held", "Queue b: tasks that wait"] {
        assert!(chart.contains(title), "{title}");
    }
}

#[test]
fn a_guarantee_stays_and_deserved_amounts_count_in_place_of_weights() {
    // Under capacity a deserves two cores and is guaranteed four, b deserves six: at 60 s b may have four, because four are
    // guaranteed to a. The cycle evicts four tasks of a; at 90 s four of b start. Both compatibilities agree.
    let simulation = both_want_all("victims-capacity");
    let own = std::fs::read_to_string(simulation.folder.path().join("cluster.yaml")).unwrap();
    let own = own
        .replace(
            "spec: {weight: 1}",
            "spec: {deserved: {cpu: 2, memory: 16Gi}, guarantee: {resource: {cpu: 4}}}",
        )
        .replace("spec: {weight: 3}", "spec: {deserved: {cpu: 6, memory: 48Gi}}");
    simulation.file("cluster.yaml", &own);
    let upstream = stock().replace("name: proportion", "name: capacity");
    simulation.policy("upstream", &upstream);
    simulation.policy(
        "corrected",
        &upstream.replace("compatibility: upstream", "compatibility: corrected"),
    );
    let report = simulation.json(&[
        "cluster.yaml",
        "--policy",
        "upstream.yaml",
        "--policy",
        "corrected.yaml",
        "--cycles",
    ]);
    for policy in [0, 1] {
        assert_eq!(
            queue_of(&report, policy, "a", &COUNTS),
            json!([8, 8, 4, 4, 4]),
            "{policy}"
        );
        assert_eq!(
            queue_of(&report, policy, "b", &COUNTS),
            json!([8, 4, 4, 0, 0]),
            "{policy}"
        );
        assert_eq!(queue_of(&report, policy, "b", &WAITS), json!([30.0, 30.0, 30.0]));
        // By deserved amounts a is due a quarter and b three quarters from 60 s on, to the end at 92 s.
        let (a_held, a_due) = ((90.0 + 1.0) / 92.0, (60.0 + 0.25 * 32.0) / 92.0);
        assert_percent(&report, policy, "a", [100.0 * a_held, 100.0 * a_due, 0.0]);
        let short = (0.75 * 30.0 + 0.5) / (0.75 * 32.0);
        assert_percent(&report, policy, "b", [100.0 / 92.0, 75.0 * 32.0 / 92.0, 100.0 * short]);
    }
}

#[test]
fn what_a_trace_ends_makes_room_for_what_waits() {
    // The trace: first, of eight cores, runs for 100 s in the queue default; second, the same, comes at 110 s. The gang of b,
    // weight 3, comes at 60 s, waits for first to end, and runs from 100 s on, without end: second waits. No action evicts.
    let gang = job("gang", "b", 8, 0).replace("2026-11-20T10:00:00Z", "1970-01-01T00:01:00Z");
    let simulation = CycleSimulation::new("victims-ends", &[gang]);
    simulation.policy("chart", &with_actions("enqueue, allocate, backfill"));
    simulation.file(
        "tasks.csv",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
         first,8000,1024,0,0,,LS,Running,0,100,0\nsecond,8000,1024,0,0,,LS,Running,110,160,110\n",
    );
    let report = simulation.json(&[
        "cluster.yaml",
        "tasks.csv",
        "--policy",
        "chart.yaml",
        "--cycles",
        "--departures",
    ]);
    assert_eq!(queue_of(&report, 0, "b", &COUNTS), json!([8, 8, 0, 0, 0]));
    assert_eq!(queue_of(&report, 0, "b", &WAITS), json!([40.0, 40.0, 40.0]));
    assert_eq!(queue_of(&report, 0, "default", &COUNTS), json!([2, 1, 1, 0, 0]));
    assert_eq!(report["policies"][0]["tasks"]["finished"], 1);
    // The cycle at 110 s enqueues second; the one after it changes nothing.
    assert_eq!(report["policies"][0]["cycles"]["seconds"], 111.0);
    // default holds the node for 100 of 111 s; it is due the node for 60 s and, beside b, a quarter for 40 s and for 1 s, of
    // which it holds nothing in the last.
    let due = 60.0 + 0.25 * 41.0;
    assert_percent(
        &report,
        0,
        "default",
        [10_000.0 / 111.0, 100.0 * due / 111.0, 25.0 / due],
    );
    // b is due three quarters for 41 s and the node for 10 s; it holds nothing for the first 40 s.
    let due = 0.75 * 41.0 + 10.0;
    assert_percent(
        &report,
        0,
        "b",
        [1_100.0 / 111.0, 100.0 * due / 111.0, 100.0 * 30.0 / due],
    );
}
