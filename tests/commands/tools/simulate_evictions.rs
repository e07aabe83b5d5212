//! Evictions that serve somebody, through the program: cases of public reports.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{err, out, pumice};
use crate::support::TestDirectory;

/// File of a case.
fn case(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/evictions")
        .join(file)
}

/// Simulation of a case under its policy.
struct CaseRun {
    report: Value,
    tasks: Vec<Value>,
    notes: String,
    text: String,
}

impl CaseRun {
    fn new(name: &str, compatibility: &str, arguments: &[&str]) -> Self {
        let folder = TestDirectory::named(&format!("evictions-{name}-{compatibility}"));
        let own = std::fs::read_to_string(case(&format!("{name}-policy.yaml"))).unwrap();
        let own = own.split("pumice:").next().unwrap();
        let policy = folder.path().join("policy.yaml");
        std::fs::write(&policy, format!("{own}\npumice: {{compatibility: {compatibility}}}\n")).unwrap();
        let run = |format: &str| {
            let mut command = pumice(&["simulate"]);
            command.arg(case(&format!("{name}.yaml"))).arg("--policy").arg(&policy);
            command
                .args(["--cycles", "--tasks", "tasks.jsonl", "-o", format])
                .args(arguments);
            let output = command.current_dir(folder.path()).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}", err(&output));
            output
        };
        let (found, shown) = (run("json"), run("table"));
        let lines = std::fs::read_to_string(folder.path().join("tasks.jsonl")).unwrap();
        Self {
            report: serde_json::from_str(&out(&found)).unwrap(),
            tasks: lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
            notes: err(&found),
            text: out(&shown),
        }
    }

    fn cycles(&self) -> &Value {
        &self.report["policies"][0]["cycles"]
    }

    fn status(&self, task: &str) -> &str {
        let own = self.tasks.iter().find(|own| own["task"] == task);
        own.unwrap_or_else(|| panic!("{task} in {:?}", self.tasks))["status"]
            .as_str()
            .unwrap()
    }

    fn evictions(&self) -> u64 {
        self.tasks.iter().map(|task| task["evictions"].as_u64().unwrap()).sum()
    }

    /// Names of the queues with a row, and a field of each.
    fn queues(&self, field: &str) -> Value {
        let queues = self.cycles()["queues"].as_array().unwrap();
        queues
            .iter()
            .map(|queue| json!([queue["queue"], queue[field]]))
            .collect()
    }

    fn assert_counts(&self) {
        let tasks = &self.report["policies"][0]["tasks"];
        assert!(tasks["placed"].as_u64() <= tasks["arrived"].as_u64(), "{tasks}");
    }
}

#[test]
fn a_claimant_runs_where_its_action_stands_before_allocate() {
    for (name, claimant, action) in [
        ("reclaim", "x/m2-0", "reclaim"),
        ("preempt", "x/high-0", "preempt"),
        ("hierarchy", "x/spark-driver-2-0", "reclaim"),
    ] {
        let run = CaseRun::new(name, "corrected", &["--after", "900"]);
        assert_eq!(run.status(claimant), "RUNNING", "{name}: {:?}", run.tasks);
        assert_eq!(run.cycles()["standstills"], json!([]), "{name}");
        assert!(run.notes.contains("ACTION_ORDER"), "{name}: {}", run.notes);
        run.assert_counts();
        // The reference stands still, and the report says so.
        let run = CaseRun::new(name, "upstream", &["--after", "900"]);
        assert_eq!(run.status(claimant), "PIPELINED", "{name}");
        let standstill = &run.cycles()["standstills"][0];
        let said = json!([standstill["task"], standstill["action"], standstill["node"]]);
        assert_eq!(said, json!([claimant, action, "n1"]), "{name}: {}", run.cycles());
        let cycle = standstill["cycle"].as_u64().unwrap();
        let sentence = format!("task {claimant} waits for ever: from cycle {cycle} ");
        assert!(run.text.contains(&sentence), "{name}: {}", run.text);
        assert!(run.notes.contains("ACTION_ORDER"), "{name}: {}", run.notes);
        // The place of the victim is idle at the end.
        let idle = run.cycles()["atEnd"]["cpuAllocatedPercent"].as_f64().unwrap();
        assert!(idle < 100.0, "{name}: {idle}");
    }
}

#[test]
fn one_eviction_is_enough_for_a_reclaimer() {
    let run = CaseRun::new("circle", "corrected", &["--after", "3600"]);
    assert_eq!(run.status("x/pod3"), "RUNNING");
    assert_eq!(run.evictions(), 1);
    run.assert_counts();
    assert_eq!(run.queues("evicted"), json!([["queue1", 1], ["queue2", 0]]));
    // The reference evicts the same task again and again; the table counts tasks all the same.
    let run = CaseRun::new("circle", "upstream", &["--after", "3600"]);
    run.assert_counts();
}

#[test]
fn a_queue_that_only_loses_tasks_has_a_row_and_holds_what_its_devices_are() {
    let run = CaseRun::new("devices", "corrected", &["--after", "600"]);
    assert_eq!(run.queues("evicted"), json!([["q1", 0], ["ql1", 4]]));
    run.assert_counts();
    // The whole of the four devices changes hands after the grace of 30 s.
    let held = run.queues("heldPercent");
    assert!(
        held[0][1].as_f64().unwrap() > 0.0 && held[1][1].as_f64().unwrap() > 50.0,
        "{held}"
    );
}

#[test]
fn a_pod_without_requests_preempts_another_one() {
    for compatibility in ["corrected", "upstream"] {
        let run = CaseRun::new("best-effort", compatibility, &["--after", "900"]);
        assert_eq!(run.evictions(), 1, "{compatibility}");
        assert_eq!(run.status("x/high-0"), "RUNNING", "{compatibility}: {:?}", run.tasks);
    }
}

#[test]
fn what_is_being_deleted_ends_after_its_grace() {
    for (grace, placed) in [("30", 30.0), ("300", 300.0)] {
        let run = CaseRun::new("terminating", "corrected", &["--after", "3600", "--grace", grace]);
        assert_eq!((run.status("x/r-0"), run.status("x/w-0")), ("GONE", "RUNNING"));
        let own = run.tasks.iter().find(|own| own["task"] == "x/w-0").unwrap();
        assert_eq!(own["placedSeconds"], placed);
    }
}

#[test]
fn arguments_of_actions_that_are_not_evaluated_are_named() {
    let run = CaseRun::new("arguments", "upstream", &["--after", "0"]);
    for part in [
        "`enableTopologyAwarePreemption` is not evaluated",
        "`minCandidateNodesPercentage` is not evaluated",
        "no action is named `nonsense`; these arguments (`enableEverything`)",
    ] {
        assert!(run.notes.contains(part), "{part}: {}", run.notes);
    }
    assert!(
        run.text
            .contains("preempt.enableTopologyAwarePreemption (policy policy)"),
        "{}",
        run.text
    );
}

#[test]
fn a_resource_that_an_extender_manages_is_no_reason_against_a_node() {
    let mut command = pumice(&["simulate", "-o", "json"]);
    command
        .arg(case("ignored.yaml"))
        .arg("--policy")
        .arg(case("ignored-policy.yaml"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let report: Value = serde_json::from_str(&out(&output)).unwrap();
    let tasks = &report["policies"][0]["tasks"];
    assert_eq!(
        json!([tasks["arrived"], tasks["placed"]]),
        json!([1, 1]),
        "{}",
        err(&output)
    );
}

/// A node that is open until two minutes past ten, and a job of two pods that may use it from ten on.
const REVOCABLE: &str = r#"
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1, labels: {volcano.sh/revocable-zone: day}}, status: {allocatable: {cpu: "8", memory: 64Gi, pods: "110"}}}
- {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: q}, spec: {weight: 1}, status: {state: Open}}
- {apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: j, namespace: x, creationTimestamp: "2026-11-20T10:00:00Z"}, spec: {minMember: 2, queue: q}, status: {phase: Pending}}
"#;

#[test]
fn shuffle_evicts_a_pod_of_a_job_in_each_round_after_the_window_of_its_node() {
    let folder = TestDirectory::named("evictions-shuffle");
    let pod = |number: u32| {
        format!(
            "- {{apiVersion: v1, kind: Pod, metadata: {{name: j-{number}, namespace: x, creationTimestamp: \"2026-11-20T10:00:00Z\", \
             annotations: {{scheduling.k8s.io/group-name: j, volcano.sh/preemptable: \"true\"}}}}, spec: {{schedulerName: volcano, \
             containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}, status: {{phase: Pending}}}}\n"
        )
    };
    let cluster = folder.file("cluster.yaml", &format!("{REVOCABLE}{}{}", pod(0), pod(1)));
    for compatibility in ["corrected", "upstream"] {
        let evictions = |actions: &str, after: &str| {
            let policy = format!(
                "actions: \"{actions}\"\ntiers:\n- plugins:\n  - name: gang\n  - name: tdm\n    arguments: {{tdm.revocable-zone.day: \
                 \"10:00-10:02\", tdm.evict.period: 3m}}\npumice: {{compatibility: {compatibility}}}\n"
            );
            let policy = folder.file("policy.yaml", &policy);
            let mut command = pumice(&["simulate", "--cycles", "--after", after, "-o", "json"]);
            command.arg(&cluster).arg("--policy").arg(&policy);
            let output = command.output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}", err(&output));
            assert!(!err(&output).contains("shuffle"), "{}", err(&output));
            let report: Value = serde_json::from_str(&out(&output)).unwrap();
            report["policies"][0]["tasks"]["evicted"].as_u64().unwrap()
        };
        let all = "enqueue, allocate, shuffle";
        assert_eq!(
            ["60", "240", "900"].map(|after| evictions(all, after)),
            [0, 1, 2],
            "{compatibility}"
        );
        assert_eq!(evictions("enqueue, allocate", "900"), 0);
    }
}
