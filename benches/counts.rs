//! Runs one hot path once and then a given number of times, for counters of instructions and allocations: `counts PATH TIMES`.
//! `counts list` prints the names of the paths; `counts time` prints the time of each over 10,000 nodes, one line `PATH
//! SHORTEST MEDIAN` each, in nanoseconds; `counts time MILLISECONDS PATH ...` prints that of some.

mod fixtures {
    pub(crate) mod bare_service;
    pub(crate) mod clock;
    pub(crate) mod cycle;
    pub(crate) mod fair_share;
    pub(crate) mod gang;
    pub(crate) mod jobs;
    pub(crate) mod paths;
    pub(crate) mod pods;
    pub(crate) mod queue_quota;
    pub(crate) mod records;
    pub(crate) mod shared_devices;
    pub(crate) mod single_plugin;
    pub(crate) mod stored_verdicts;
    pub(crate) mod task_class;
    pub(crate) mod whole_call;
}

use std::io::Write as _;
use std::time::Duration;

use fixtures::clock::{self, RunTimes};
use fixtures::{paths, whole_call};

const NODES: u32 = 10_000;
/// Paths whose instructions are counted.
const PATHS: [&str; 48] = [
    "score",
    "score_best16",
    "filter",
    "filter_score_best16",
    "best_after_change",
    "place",
    "place_session",
    "admit",
    "hdrf_event",
    "order",
    "publish",
    "score_binpack",
    "score_fit_plus",
    "score_scarce",
    "filter_cards",
    "score_usage",
    "filter_usage",
    "filter_tdm",
    "filter_group_limits",
    "proportion_task",
    "proportion_weight",
    "proportion_total",
    "proportion_order",
    "proportion_admit",
    "capacity_task",
    "capacity_total",
    "capacity_order",
    "capacity_admit",
    "filter_predicates",
    "filter_pod_affinity",
    "score_pod_affinity",
    "score_pod_spread",
    "best_with_pods",
    "best_with_pods_after_change",
    "place_with_pods",
    "place_required_terms",
    "place_preferred_terms",
    "place_soft_spread",
    "place_required_affinity",
    "place_hard_spread",
    "place_stock",
    "cycle_gangs",
    "cycle_single_tasks",
    "fgd_node",
    "score_fgd",
    "call_bare",
    "call_best",
    "call_empty",
];

const ROUNDS: usize = 5;

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let mut out = std::io::stdout().lock();
    let asked = arguments.first().map_or("time", String::as_str);
    let times = arguments.get(1).and_then(|times| times.parse::<usize>().ok());
    match (asked, times) {
        ("list", _) => writeln!(out, "{}", PATHS.join(" ")),
        (path, Some(times)) if PATHS.contains(&path) => {
            let (mut run, _) = prepare(path).ok_or_else(unknown)?;
            // What only a first run does is not counted.
            run();
            measured(&mut run, times);
            Ok(())
        }
        ("time", milliseconds) => {
            let budget = Duration::from_millis(milliseconds.unwrap_or(200) as u64);
            let some = arguments.get(2..).unwrap_or_default();
            for path in PATHS
                .into_iter()
                .filter(|path| some.is_empty() || some.iter().any(|own| own == path))
            {
                let (mut run, parts) = prepare(path).ok_or_else(unknown)?;
                let rounds: Vec<RunTimes> = (0..ROUNDS).map(|_| clock::round(&mut run, budget)).collect();
                let [shortest, median] = clock::middle(&rounds).map(|time| time / f64::from(parts));
                writeln!(out, "{path} {shortest:.3} {median:.3}")?;
            }
            Ok(())
        }
        _ => Err(unknown()),
    }
}

/// Runs a path. Counters of instructions count in this function alone, and find it by its name.
#[inline(never)]
fn measured(run: &mut paths::BenchRun, times: usize) {
    (0..times).for_each(|_| run());
}

/// Path, and the number of parts that a run divides into.
fn prepare(path: &str) -> Option<(paths::BenchRun, u32)> {
    match whole_call::prepare(path) {
        Some(run) => Some((run, 1)),
        None => paths::prepare(path, NODES),
    }
}

fn unknown() -> std::io::Error {
    std::io::Error::other("usage: counts PATH TIMES | list | time [MILLISECONDS [PATH ...]]")
}
