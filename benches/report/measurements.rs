//! Measurements by key, their goals, and their file: one flat JSON object, one key per line.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// Bound of a goal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GoalBound {
    AtMost(f64),
    AtLeast(f64),
}

impl GoalBound {
    /// True if a measurement reaches the goal.
    pub(crate) fn is_reached(self, measurement: f64) -> bool {
        match self {
            Self::AtMost(bound) => measurement <= bound,
            Self::AtLeast(bound) => measurement >= bound,
        }
    }
}

/// Goal of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerformanceGoal {
    pub(crate) key: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) what: &'static str,
    pub(crate) bound: GoalBound,
    /// Key of the machine's floor for a similar operation, in the same unit.
    pub(crate) floor: &'static str,
}

const fn goal(
    key: &'static str,
    unit: &'static str,
    at_most: f64,
    floor: &'static str,
    what: &'static str,
) -> PerformanceGoal {
    PerformanceGoal {
        key,
        unit,
        what,
        bound: GoalBound::AtMost(at_most),
        floor,
    }
}

const fn at_least(goal: PerformanceGoal) -> PerformanceGoal {
    match goal.bound {
        GoalBound::AtMost(bound) | GoalBound::AtLeast(bound) => PerformanceGoal {
            bound: GoalBound::AtLeast(bound),
            ..goal
        },
    }
}

/// All goals, in the order in which they are shown.
pub(crate) const GOALS: [PerformanceGoal; 42] = [
    goal(
        "score_ns_per_node_10k",
        "ns",
        4.0,
        "floor_score_ns_per_node_10k",
        "score one class, four resources and three plugins, of 10,000 nodes",
    ),
    goal(
        "score_ns_per_node_100k",
        "ns",
        4.0,
        "floor_score_ns_per_node_100k",
        "the same, of 100,000 nodes",
    ),
    goal(
        "score_ns_per_node_10k_portable",
        "ns",
        7.0,
        "floor_score_ns_per_node_10k",
        "the same with the portable kernels, of 10,000 nodes",
    ),
    goal(
        "place_1000x10000_ms",
        "ms",
        0.5,
        "floor_place_1000x10000_ms",
        "place 1,000 equal tasks on 10,000 nodes, with a queue check for each",
    ),
    goal(
        "grpc_place_1000x10000_ms",
        "ms",
        1.0,
        "grpc_empty_p50_ms",
        "the same in a call, p50",
    ),
    goal(
        "grpc_place_session_1000x10000_ms",
        "ms",
        2.0,
        "grpc_empty_p50_ms",
        "the same of stored tasks, as a change of a session that the next question sees, p50",
    ),
    goal(
        "grpc_empty_64_over_bare_cpu",
        "×",
        1.3,
        "",
        "an empty call with 64 under way, over that of a bare tonic server: processor time",
    ),
    at_least(goal(
        "grpc_calls_64_over_bare",
        "×",
        0.75,
        "",
        "such calls a second, over those of the bare server",
    )),
    goal(
        "grpc_best_64_minus_empty_cpu_us",
        "µs",
        20.0,
        "",
        "best node of 10,000, filtered and scored, more than an empty call, with 64 under way: processor time",
    ),
    goal(
        "grpc_best_of_10k_minus_empty_us",
        "µs",
        100.0,
        "",
        "the same of one caller, p50",
    ),
    goal(
        "grpc_best_after_change_minus_empty_cpu_us",
        "µs",
        100.0,
        "",
        "the same after a change of one node, more than an empty call after such a change: processor time",
    ),
    goal(
        "grpc_best_after_change_64_minus_empty_cpu_us",
        "µs",
        40.0,
        "",
        "the same with 64 calls under way after each change",
    ),
    goal(
        "grpc_all_10k_scores_ms",
        "ms",
        0.5,
        "floor_tcp_80k_ms",
        "all scores of 10,000 nodes, p50",
    ),
    goal(
        "grpc_64x10k_best16_ms",
        "ms",
        4.0,
        "grpc_empty_p50_ms",
        "64 classes filtered and scored, the best 16 of 10,000 nodes each, p50",
    ),
    goal(
        "publish_one_of_10k_us",
        "µs",
        10.0,
        "floor_publish_10k_us",
        "publish one changed node of 10,000, with 100,000 tasks",
    ),
    goal(
        "publish_one_of_100k_us",
        "µs",
        20.0,
        "floor_publish_100k_us",
        "publish one changed node of 100,000, with 1,000,000 tasks",
    ),
    goal(
        "load_100k_nodes_1m_tasks_s",
        "s",
        10.0,
        "",
        "100,000 nodes and 1,000,000 tasks through Sync, until they are visible",
    ),
    goal(
        "bytes_per_node",
        "B",
        1536.0,
        "",
        "memory of the server per node: 8 resources, 10 labels kept of 40 sent",
    ),
    goal("bytes_per_task", "B", 256.0, "", "memory of the server per task"),
    goal(
        "hdrf_event_us_1000q",
        "µs",
        20.0,
        "",
        "a task comes or goes in a tree of 1,000 queues of ten jobs",
    ),
    goal("order_1000q_ms", "ms", 1.0, "", "order of these queues"),
    goal(
        "admit_us_per_job",
        "µs",
        2.0,
        "",
        "admit a job with cards, 10,000 jobs in 100 queues in one question",
    ),
    goal(
        "admit_us_per_job_beside_100k",
        "µs",
        2.0,
        "",
        "the same beside 100,000 jobs that are admitted already",
    ),
    goal(
        "filter_predicates_ns_per_node_10k",
        "ns",
        2.0,
        "",
        "filter one class with a selector, a toleration and a port, of 10,000 nodes with two taints and a port each",
    ),
    goal(
        "filter_pod_affinity_ns_per_node_10k",
        "ns",
        100.0,
        "",
        "filter one class with required terms about 30,000 pods, of 10,000 nodes",
    ),
    goal(
        "score_pod_affinity_ns_per_node_10k",
        "ns",
        100.0,
        "",
        "score one class with preferred terms about them",
    ),
    goal(
        "score_pod_spread_ns_per_node_10k",
        "ns",
        100.0,
        "",
        "score one class with two soft spread constraints",
    ),
    goal(
        "grpc_best_with_pods_over_best",
        "×",
        2.0,
        "",
        "best node of 10,000 under predicates, nodeorder, binpack and resource-strategy-fit, over that under the usual \
         policy, each after a change of one node: processor time",
    ),
    goal(
        "place_with_pods_1000x10000_ms",
        "ms",
        1.0,
        "floor_place_1000x10000_ms",
        "place 1,000 equal tasks on 10,000 nodes under these four plugins",
    ),
    goal(
        "place_preferred_terms_1000x10000_ms",
        "ms",
        20.0,
        "floor_place_1000x10000_ms",
        "the same of tasks that prefer to be near each other, and not on one node",
    ),
    goal(
        "place_soft_spread_1000x10000_ms",
        "ms",
        20.0,
        "floor_place_1000x10000_ms",
        "the same of tasks that are rather spread over zones and nodes",
    ),
    goal(
        "place_required_affinity_1000x10000_ms",
        "ms",
        20.0,
        "floor_place_1000x10000_ms",
        "the same of tasks that must be in one zone",
    ),
    goal(
        "place_hard_spread_1000x10000_ms",
        "ms",
        20.0,
        "floor_place_1000x10000_ms",
        "the same of tasks that must be spread over zones and nodes",
    ),
    goal(
        "place_stock_1000x10000_ms",
        "ms",
        3.0,
        "floor_place_1000x10000_ms",
        "place a job of 1,000 tasks on 10,000 nodes under the configuration of Volcano's chart",
    ),
    goal(
        "cycle_gangs_1000x10000_ms",
        "ms",
        50.0,
        "",
        "a cycle over 1,000 nodes and 10,000 waiting tasks of 100 gangs under that configuration",
    ),
    goal(
        "cycle_single_tasks_1000x10000_ms",
        "ms",
        50.0,
        "",
        "the same of 100 jobs that start with one task",
    ),
    goal(
        "proportion_task_us",
        "µs",
        5.0,
        "",
        "accounts of `proportion` after a task moved, with 1,000 queues of ten jobs",
    ),
    goal(
        "capacity_task_us",
        "µs",
        5.0,
        "",
        "accounts of `capacity` after the same",
    ),
    goal(
        "fgd_node_ns_per_node_10k",
        "ns",
        60.0,
        "",
        "score by fragmentation of a node with eight devices, 35 typical tasks, nothing kept",
    ),
    goal(
        "tls_best_slower_percent",
        "%",
        10.0,
        "",
        "fewer calls a second with TLS, each for the best of 10,000 nodes, on connections that are kept",
    ),
    goal(
        "tls_handshake_cpu_ms",
        "ms",
        2.0,
        "",
        "processor time of the server for a handshake in which both sides show certificates (ECDSA P-256)",
    ),
    goal(
        "roles_empty_cpu_us_per_call",
        "µs",
        1.0,
        "",
        "processor time of the server for the roles of a caller, a call",
    ),
];

/// Measurements by key: numbers, texts and truth values.
#[derive(Debug, Default)]
pub(crate) struct MeasurementReport(BTreeMap<String, Value>);

impl MeasurementReport {
    /// Adds a measurement, to four digits.
    pub(crate) fn put(&mut self, key: impl Into<String>, measurement: f64) {
        let digits = if measurement == 0.0 {
            0.0
        } else {
            3.0 - measurement.abs().log10().floor()
        };
        let scale = 10_f64.powf(digits.max(0.0));
        self.0
            .insert(key.into(), ((measurement * scale).round() / scale).into());
    }

    /// Adds a text or another value.
    pub(crate) fn put_value(&mut self, key: &str, value: impl Into<Value>) {
        self.0.insert(key.to_owned(), value.into());
    }

    /// Measurement by key.
    pub(crate) fn get(&self, key: &str) -> Option<f64> {
        self.0.get(key)?.as_f64()
    }

    /// Text of a value by key.
    pub(crate) fn text(&self, key: &str) -> String {
        match self.0.get(key) {
            None => "?".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }

    /// All values, by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Keys that a report of this size must have and lacks.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let quick = self.0.get("quick") == Some(&Value::Bool(true));
        GOALS
            .iter()
            .map(|goal| goal.key)
            .filter(|key| !self.0.contains_key(*key))
            // A quick run leaves out slow measurements; the portable kernels come from another build.
            .filter(|key| !(quick && (key.contains("100k") || key.ends_with("_portable"))))
            .collect()
    }

    /// Adds measurements that follow from others.
    pub(crate) fn derive(&mut self) {
        let copies = [
            ("grpc_place_1000x10000_ms", "grpc_place_p50_ms"),
            ("grpc_all_10k_scores_ms", "grpc_all_p50_ms"),
            ("grpc_64x10k_best16_ms", "grpc_64x10k_p50_ms"),
        ];
        let ratios = [
            (
                "grpc_best_with_pods_over_best",
                "grpc_best_with_pods_after_change_cpu_us_per_call",
                "grpc_best_after_change_cpu_us_per_call",
            ),
            // Classes that are asked about once: every node is judged.
            (
                "grpc_best_with_pods_over_best_new_class",
                "grpc_best_with_pods_new_class_64_cpu_us_per_call",
                "grpc_best_new_class_64_cpu_us_per_call",
            ),
        ];
        let differences = [
            (
                "grpc_best_after_change_minus_empty_cpu_us",
                "grpc_best_after_change_cpu_us_per_call",
                "grpc_empty_after_change_cpu_us_per_call",
            ),
            (
                "grpc_best_after_change_64_minus_empty_cpu_us",
                "grpc_best_after_change_with_64_under_way_cpu_us_per_call",
                "grpc_empty_after_change_with_64_under_way_cpu_us_per_call",
            ),
        ];
        for (key, of, over) in ratios {
            if let Some((of, over)) = self.get(of).zip(self.get(over)) {
                self.put(key, of / over);
            }
        }
        for (key, of, less) in differences {
            if let Some((of, less)) = self.get(of).zip(self.get(less)) {
                self.put(key, of - less);
            }
        }
        for (key, from) in copies {
            if let Some(measurement) = self.get(from) {
                self.put(key, measurement);
            }
        }
    }

    /// Reads a file that [`Self::write`] wrote.
    pub(crate) fn read(file: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        Ok(Self(serde_json::from_str(&std::fs::read_to_string(file)?)?))
    }

    /// Writes the report.
    pub(crate) fn write(&self, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        Ok(std::fs::write(file, serde_json::to_string_pretty(&self.0)? + "\n")?)
    }
}
