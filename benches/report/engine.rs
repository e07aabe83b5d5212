//! Measurements of the engine, in this process and on one thread: the median of the rounds' shortest times.

use std::time::Duration;

use super::fixtures::clock::{self, RunTimes};
use super::fixtures::gang;
use super::fixtures::paths::{self, BenchRun};
use super::floor;
use super::measurements::MeasurementReport;

/// Sizes of clusters, and their names in keys.
const SIZES: [(u32, &str); 3] = [(1_000, "1k"), (10_000, "10k"), (100_000, "100k")];

/// Paths of one plugin each.
const SINGLE_PLUGIN_PATHS: [&str; 6] = [
    "score_binpack",
    "score_fit_plus",
    "score_scarce",
    "filter_cards",
    "fgd_node",
    "score_fgd",
];

/// Paths about pods and what they ask of nodes, with the start of their keys.
const POD_PATHS: [(&str, &str); 12] = [
    ("filter_predicates", "filter_predicates_ns_per_node_10k"),
    ("filter_pod_affinity", "filter_pod_affinity_ns_per_node_10k"),
    ("score_pod_affinity", "score_pod_affinity_ns_per_node_10k"),
    ("score_pod_spread", "score_pod_spread_ns_per_node_10k"),
    ("best_with_pods", "best_with_pods_ns_per_node_10k"),
    ("place_with_pods", "place_with_pods_1000x10000_ms"),
    ("place_required_terms", "place_required_terms_1000x10000_ms"),
    ("place_preferred_terms", "place_preferred_terms_1000x10000_ms"),
    ("place_soft_spread", "place_soft_spread_1000x10000_ms"),
    ("place_required_affinity", "place_required_affinity_1000x10000_ms"),
    ("place_hard_spread", "place_hard_spread_1000x10000_ms"),
    ("place_stock", "place_stock_1000x10000_ms"),
];

/// Case of a path, and the key of its measurement.
struct EngineBenchCase {
    key: String,
    run: BenchRun,
    /// Factor from nanoseconds to the measurement.
    scale: f64,
    rounds: Vec<RunTimes>,
}

/// Units of keys, in nanoseconds.
const UNITS: [(&str, f64); 3] = [("_ms", 1e6), ("_us", 1e3), ("_ns", 1.0)];

impl EngineBenchCase {
    fn new(key: impl Into<String>, (run, parts): (BenchRun, u32)) -> Self {
        let key = key.into();
        let unit = UNITS
            .iter()
            .find(|(unit, _)| key.contains(unit))
            .map_or(1.0, |(_, unit)| *unit);
        Self {
            key,
            run,
            scale: 1.0 / (unit * f64::from(parts)),
            rounds: Vec::new(),
        }
    }
}

/// Hot path over `nodes` nodes.
fn path(name: &str, nodes: u32) -> (BenchRun, u32) {
    paths::prepare(name, nodes).expect("a path of that name")
}

/// Runs cases in rounds: each case runs in every round, so that a disturbance of the machine does not hit one alone.
fn in_rounds(report: &mut MeasurementReport, quick: bool, mut cases: Vec<EngineBenchCase>) {
    let (rounds, budget) = if quick {
        (2, Duration::from_millis(5))
    } else {
        (5, Duration::from_millis(150))
    };
    for _ in 0..rounds {
        for case in &mut cases {
            case.rounds.push(clock::round(&mut case.run, budget));
        }
    }
    for case in cases {
        let [shortest, median] = clock::middle(&case.rounds).map(|time| time * case.scale);
        report.put(case.key.clone(), shortest);
        report.put(case.key + "_median", median);
    }
}

/// Measures the engine.
#[expect(clippy::too_many_lines, reason = "one list of paths")]
pub(crate) fn measure(report: &mut MeasurementReport, quick: bool) {
    let sizes = SIZES.iter().filter(|(nodes, _)| !quick || *nodes <= 10_000);
    for &(nodes, size) in sizes {
        let mut cases = vec![
            EngineBenchCase::new(format!("floor_score_ns_per_node_{size}"), (floor::score(nodes), nodes)),
            EngineBenchCase::new(format!("floor_publish_{size}_us"), (floor::publish(nodes), 1)),
            EngineBenchCase::new(
                format!("floor_place_1000x{nodes}_ms"),
                (floor::place(nodes, gang::TASKS), 1),
            ),
        ];
        for name in ["score", "score_best16", "filter", "filter_score_best16"] {
            cases.push(EngineBenchCase::new(
                format!("{name}_ns_per_node_{size}"),
                path(name, nodes),
            ));
        }
        if nodes == 10_000 {
            for name in SINGLE_PLUGIN_PATHS {
                cases.push(EngineBenchCase::new(
                    format!("{name}_ns_per_node_{size}"),
                    path(name, nodes),
                ));
            }
        }
        if nodes == 10_000 {
            for name in ["best_after_change", "best_with_pods_after_change"] {
                cases.push(EngineBenchCase::new(format!("{name}_{size}_us"), path(name, nodes)));
            }
            for (name, key) in POD_PATHS {
                cases.push(EngineBenchCase::new(key, path(name, nodes)));
            }
        }
        cases.push(EngineBenchCase::new(
            format!("place_1000x{nodes}_ms"),
            path("place", nodes),
        ));
        cases.push(EngineBenchCase::new(
            format!("place_pack_1000x{nodes}_ms"),
            path("place_pack", nodes),
        ));
        cases.push(EngineBenchCase::new(
            format!("place_session_1000x{nodes}_ms"),
            path("place_session", nodes),
        ));
        cases.push(EngineBenchCase::new(
            format!("publish_one_of_{size}_us"),
            path("publish_with_tasks", nodes),
        ));
        in_rounds(report, quick, cases);
    }
    let mut cases = vec![
        EngineBenchCase::new("hdrf_event_us_1000q", path("hdrf_event", 0)),
        EngineBenchCase::new("order_1000q_ms", path("order", 0)),
        EngineBenchCase::new("admit_us_per_job", path("admit", 0)),
        EngineBenchCase::new("proportion_task_us", path("proportion_task", 0)),
        EngineBenchCase::new("capacity_task_us", path("capacity_task", 0)),
        EngineBenchCase::new("cycle_gangs_1000x10000_ms", path("cycle_gangs", 0)),
        EngineBenchCase::new("cycle_single_tasks_1000x10000_ms", path("cycle_single_tasks", 0)),
    ];
    if !quick {
        cases.push(EngineBenchCase::new(
            "admit_us_per_job_beside_100k",
            path("admit_beside_100k", 0),
        ));
    }
    for (key, reply) in [("floor_tcp_32b_ms", 32), ("floor_tcp_80k_ms", 80_000)] {
        let run = floor::socket(reply).expect("a socket on loopback");
        cases.push(EngineBenchCase::new(key, (run, 1)));
    }
    in_rounds(report, quick, cases);
    // The shortest time of a socket is a matter of luck; calls are judged by their median, so this floor is, too.
    for key in ["floor_tcp_32b_ms", "floor_tcp_80k_ms"] {
        if let Some(median) = report.get(&format!("{key}_median")) {
            report.put(key, median);
        }
    }
}

/// Adds the output of a `counts time` that was built with the feature `portable`.
pub(crate) fn take_portable(report: &mut MeasurementReport, text: &str) {
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(path), Some(nanoseconds)) = (words.next(), words.next().and_then(|word| word.parse::<f64>().ok()))
        else {
            continue;
        };
        match path {
            _ if SINGLE_PLUGIN_PATHS.contains(&path) => {
                report.put(format!("{path}_ns_per_node_10k_portable"), nanoseconds);
            }
            "score" | "score_best16" | "filter" | "filter_score_best16" => {
                report.put(format!("{path}_ns_per_node_10k_portable"), nanoseconds);
            }
            "place" => report.put("place_1000x10000_ms_portable", nanoseconds / 1e6),
            "publish" => report.put("publish_one_of_10k_us_portable", nanoseconds / 1e3),
            "admit" => report.put("admit_us_per_job_portable", nanoseconds / 1e3),
            "hdrf_event" => report.put("hdrf_event_us_1000q_portable", nanoseconds / 1e3),
            "order" => report.put("order_1000q_ms_portable", nanoseconds / 1e6),
            _ => {}
        }
    }
}
