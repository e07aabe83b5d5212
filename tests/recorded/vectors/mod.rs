//! Recorded results of the reference, compared with the service: every family that is present, case by case.
//!
//! `PUMICE_VECTORS=DIR` runs a directory of plain `.json` files instead of `tests/vectors`; each file names its family.
//! Cases that are not supported are listed, and count neither way.
#![expect(clippy::print_stdout, reason = "the lines are the report of `make vectors`")]

mod binpack;
mod capacity_card;
mod cluster;
mod config;
mod cycles;
mod drf;
pub(crate) mod files;
mod fit_family;
mod job_plugins;
mod koordinator;
mod loads;
mod nodegroup;
mod nodeorder;
mod pod_cluster;
mod podaffinity;
mod pods;
mod policy_wire;
mod policy_yaml;
mod predicates;
mod quantities;
pub(crate) mod query;
mod queue_hooks;
mod queue_plugins;
mod releases;
mod statements;
mod stock;
mod tier_reductions;
mod tiers;
mod tiers_order;
mod tiers_stubs;
mod tiers_victims;
mod verbs;
mod verbs_wire;
mod volcano_plugins;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use self::releases::ReleaseCases;
use crate::support::EmbeddedServer;
use crate::support::wire::BlockingClients;

/// Verdict on one case.
#[derive(Debug)]
pub(crate) enum VectorVerdict {
    /// The result equals the recorded one.
    Pass,
    /// The result differs.
    Fail {
        /// Recorded result.
        expected: String,
        /// Result of the service.
        got: String,
    },
    /// The service does not support this kind of case; its name.
    NotServed(String),
}

/// Differences of one case.
#[derive(Debug, Default)]
pub(crate) struct VectorDifferences {
    expected: Vec<String>,
    got: Vec<String>,
}

impl VectorDifferences {
    /// Records a difference, if there is one.
    pub(crate) fn same<T: PartialEq + std::fmt::Debug + ?Sized>(&mut self, what: &str, expected: &T, got: &T) {
        if expected != got {
            self.differ(what, expected, got);
        }
    }

    /// Records a difference of two floats unless they are the same number to the last bit (`-0` is `0`).
    pub(crate) fn same_float(&mut self, what: &str, expected: f64, got: f64) {
        if expected.to_bits() != got.to_bits() && !(expected == 0.0 && got == 0.0) {
            self.differ(what, &expected, &got);
        }
    }

    /// Records a difference.
    pub(crate) fn differ<A: std::fmt::Debug + ?Sized, B: std::fmt::Debug + ?Sized>(
        &mut self,
        what: &str,
        expected: &A,
        got: &B,
    ) {
        self.expected.push(format!("{what} {expected:?}"));
        self.got.push(format!("{what} {got:?}"));
    }

    /// Verdict on the case.
    pub(crate) fn verdict(self) -> VectorVerdict {
        if self.expected.is_empty() {
            return VectorVerdict::Pass;
        }
        VectorVerdict::Fail {
            expected: self.expected.join(", "),
            got: self.got.join(", "),
        }
    }
}

/// Compares with each of the results that the reference gives a case; one of them must be met.
pub(crate) fn any_variant(expect: &Value, compare: impl FnMut(&Value) -> VectorVerdict) -> VectorVerdict {
    match cluster::members(&expect["variants"]) {
        [] => any_outcome(std::slice::from_ref(expect), compare),
        variants => any_outcome(variants, compare),
    }
}

/// Compares with each of these results; one of them must be met.
pub(crate) fn any_outcome(outcomes: &[Value], compare: impl FnMut(&Value) -> VectorVerdict) -> VectorVerdict {
    let mut first = None;
    for verdict in outcomes.iter().map(compare) {
        if matches!(verdict, VectorVerdict::Pass) {
            return verdict;
        }
        first.get_or_insert(verdict);
    }
    first.unwrap_or(VectorVerdict::Pass)
}

/// Check of one case of a family.
type VectorCheck = fn(&mut VectorHarness, &Value) -> VectorVerdict;

/// Families that are run. Other families are listed.
const FAMILIES: &[(&str, VectorCheck)] = &[
    ("actions", cycles::check),
    ("binpack", binpack::check),
    ("capacity", queue_plugins::check),
    ("capacity-card-allocatable", capacity_card::check),
    ("capacity-card-annotations", capacity_card::check),
    ("capacity-card-check-scalar", capacity_card::check),
    ("capacity-card-config", capacity_card::check),
    ("capacity-card-cycle", capacity_card::check),
    ("capacity-card-discovery", capacity_card::check),
    ("capacity-card-enqueue", capacity_card::check),
    ("capacity-card-events", capacity_card::check),
    ("capacity-card-node-order", capacity_card::check),
    ("capacity-card-queue-attrs", capacity_card::check),
    ("capacity-card-queue-order", capacity_card::check),
    ("capacity-card-task-request", capacity_card::check),
    ("cdp", volcano_plugins::check),
    ("conformance", job_plugins::check),
    ("drf", drf::check),
    ("gang", job_plugins::check),
    ("hdrf", drf::check),
    ("noderesourcesfitplus", koordinator::check),
    ("overcommit", job_plugins::check),
    ("podaffinity", podaffinity::check),
    ("pdb", volcano_plugins::check),
    ("resourcequota", volcano_plugins::check),
    ("rescheduling", volcano_plugins::check),
    ("pods", pods::check),
    ("predicates", predicates::check),
    ("nodegroup", nodegroup::check),
    ("nodegroup-limits", volcano_plugins::check),
    ("nodeorder", nodeorder::check),
    ("policy-yaml", policy_wire::check),
    ("priority", job_plugins::check),
    ("proportional", fit_family::check),
    ("proportion", queue_plugins::check),
    ("quantities", quantities::check),
    ("rsf", fit_family::check),
    ("sla", job_plugins::check),
    ("scarceresourceavoidance", koordinator::check),
    ("sra", fit_family::check),
    ("stock", stock::check),
    ("task-topology", volcano_plugins::check),
    ("tdm", volcano_plugins::check),
    ("usage", volcano_plugins::check),
    ("tiers", tiers::check),
    ("verbs", verbs::check),
];

/// Server that cases run against, and the parts that it does not support.
pub(crate) struct VectorHarness {
    wire: BlockingClients,
    skipped: BTreeMap<String, u32>,
}

impl VectorHarness {
    /// Clients of the server.
    pub(crate) fn wire(&self) -> &BlockingClients {
        &self.wire
    }

    /// Records a part of a case that is not supported; the rest of the case still counts.
    pub(crate) fn skip(&mut self, what: impl Into<String>) {
        *self.skipped.entry(what.into()).or_default() += 1;
    }
}

/// Numbers of passed and failed cases.
#[derive(Clone, Copy, Default)]
struct VerdictCount {
    passed: u32,
    failed: u32,
}

/// Judges one case; a check that panics has failed it.
fn judge(bench: &mut VectorHarness, check: VectorCheck, case: &Value) -> VectorVerdict {
    let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(bench, case)));
    judged.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        VectorVerdict::Fail {
            expected: "an answer that can be read".to_owned(),
            got: format!("a panic: {}", text.unwrap_or_default()),
        }
    })
}

/// Runs one family. The report has its line, after each failure with family, case, expected and actual result.
fn run_family(bench: &mut VectorHarness, own: &ReleaseCases) -> (VerdictCount, String) {
    let (title, mut count, mut report) = (&own.title, VerdictCount::default(), String::new());
    let Some((_, check)) = FAMILIES.iter().find(|(name, _)| *name == own.family) else {
        return (count, format!("{title}: {} cases, family not served", own.cases.len()));
    };
    bench.skipped.clear();
    for case in &own.cases {
        match judge(bench, *check, case) {
            VectorVerdict::Pass => count.passed += 1,
            VectorVerdict::Fail { expected, got } => {
                count.failed += 1;
                let name = case["name"].as_str().unwrap_or("without a name");
                let _ = writeln!(
                    report,
                    "FAILED {title}, case {name:?}\n  expected: {expected}\n  got:      {got}"
                );
            }
            VectorVerdict::NotServed(kind) => bench.skip(kind),
        }
    }
    let _ = write!(report, "{title}: {} passed, {} failed", count.passed, count.failed);
    for (kind, times) in &bench.skipped {
        let _ = write!(report, "; not asked: {times} × {kind}");
    }
    (count, report)
}

/// Runs families against a server of its own until none is left, and prints each report.
fn run_families(families: &[ReleaseCases], next: &AtomicUsize) -> VerdictCount {
    let server = EmbeddedServer::start();
    let mut bench = VectorHarness {
        wire: server.wire.clone(),
        skipped: BTreeMap::new(),
    };
    let mut total = VerdictCount::default();
    while let Some(own) = families.get(next.fetch_add(1, Ordering::Relaxed)) {
        let (count, report) = run_family(&mut bench, own);
        println!("{report}");
        total.passed += count.passed;
        total.failed += count.failed;
    }
    total
}

#[test]
fn run() {
    // The test harness may have left text on the line.
    println!();
    let files = files::list(&files::directory()).unwrap();
    assert!(!files.is_empty(), "{}: no recordings", files::directory().display());
    let mut total = VerdictCount::default();
    let mut families = releases::list(&files::directory()).unwrap();
    for path in files {
        match files::read(&path) {
            Ok(recording) if recording.cases.is_empty() => println!("{}: holds no cases", recording.file),
            Ok(recording) => families.push(ReleaseCases {
                title: recording.family.clone(),
                family: recording.family,
                cases: recording.cases,
            }),
            Err(problem) => {
                total.failed += 1;
                println!("FAILED {problem}");
            }
        }
    }
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().unwrap().get();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| run_families(&families, &next)))
            .collect();
        for run in runs {
            let count = run.join().unwrap();
            total.passed += count.passed;
            total.failed += count.failed;
        }
    });
    println!("{} passed, {} failed", total.passed, total.failed);
    assert_eq!(total.failed, 0, "recorded answers differ");
}
