//! The published experiments: those of the packed workloads, and with `FGD=DIR` all of a directory with the traces.

#![cfg(test)]

use std::io::Read as _;
use std::path::Path;
use std::time::Instant;

use pumice_engine::devices::device_indices;
use pumice_lab::allocation::LabCluster;
use pumice_lab::comparison::{PublishedTable, TableComparison, parse_csv};
use pumice_lab::experiment::{Experiment, LabWorkload, run_all};
use pumice_lab::policies::{LabPolicy, PublishedPolicy};
use pumice_lab::reproduction::{Reproduction, Selection};
use pumice_lab::trace::{parse_nodes, parse_tasks};
use pumice_lab::workload::WorkloadTrace;
use pumice_lab::workload_bounds::{WorkloadBound, bounds_text};

/// Text of a packed file; tests/data/README.md says where it is from.
fn packed(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(format!("{name}.csv.gz"));
    let mut text = String::new();
    let bytes = std::fs::read(file).unwrap();
    flate2::read::GzDecoder::new(&*bytes).read_to_string(&mut text).unwrap();
    text
}

fn workload(name: &str) -> LabWorkload {
    let nodes = parse_nodes(&packed("nodes")).unwrap();
    let tasks = parse_tasks(&packed(name)).unwrap();
    LabWorkload::new(&format!("openb_pod_list_{name}"), WorkloadTrace::new(nodes, tasks))
}

fn compare(workloads: &[LabWorkload], table: &PublishedTable) -> TableComparison {
    let experiments = table.keys().filter_map(|(name, policy, seed)| {
        Some(Experiment {
            workload: workloads.iter().position(|own| own.name == *name)?,
            policy: PublishedPolicy::ALL.into_iter().find(|own| own.name() == policy)?,
            seed: *seed,
        })
    });
    let experiments: Vec<Experiment> = experiments.collect();
    let results = run_all(workloads, &experiments, 2, &|_| {}).unwrap();
    let rows = experiments.iter().zip(&results);
    let rows = rows.map(|(own, result)| (workloads[own.workload].name.as_str(), own.policy, own.seed, result));
    TableComparison::of(rows, table)
}

#[test]
fn packed_experiments_equal_the_published_rows() {
    let table = parse_csv(&packed("published")).unwrap();
    let workloads = if cfg!(debug_assertions) {
        vec![workload("default")]
    } else {
        vec![workload("default"), workload("gpuspec33")]
    };
    let comparison = compare(&workloads, &table);
    assert_eq!(comparison.first_difference, None);
    assert_eq!(
        (comparison.experiments, comparison.equal),
        (5 * workloads.len(), 5 * 393 * workloads.len())
    );
    // One seed says little of a random policy; ten are compared with the whole directory.
    assert!(
        comparison.largest_random_distance().unwrap() < 1.5,
        "{:?}",
        comparison.random
    );
}

#[test]
fn first_decisions_are_those_of_the_model() {
    let workload = workload("default");
    let seeded = workload.trace.seeded(42);
    let names: Vec<_> = seeded.node_names().collect();
    let decisions = packed("decisions");
    let mut compared = 0;
    for policy in PublishedPolicy::ALL
        .into_iter()
        .filter(|own| *own != PublishedPolicy::Random)
    {
        let compiled = LabPolicy::compile(&policy.document(&workload.typical, 42)).unwrap();
        let mut cluster = LabCluster::new(&seeded.nodes, &compiled, workload.measure());
        let lines = decisions
            .lines()
            .filter(|line| line.split(',').next() == Some(policy.name()));
        for (arrival, line) in seeded.arrivals.iter().zip(lines) {
            let fields: Vec<&str> = line.split(',').collect();
            let class = cluster.class_of(&arrival.task.task);
            let placed = cluster.place(arrival.task, class).unwrap();
            let devices: Vec<String> = device_indices(placed.devices)
                .map(|device| device.to_string())
                .collect();
            let node = &cluster.nodes()[placed.node];
            let free: Vec<String> = node.free_devices().iter().map(ToString::to_string).collect();
            let own = [
                policy.name().to_owned(),
                fields[1].to_owned(),
                arrival.name(),
                placed.score.to_string(),
                names[placed.node].to_string(),
                devices.join("-"),
                node.free_cpu().to_string(),
                free.join("-"),
            ];
            assert_eq!(own.join(","), line);
            compared += 1;
        }
    }
    assert_eq!(compared, 500);
}

#[test]
fn workloads_are_those_of_the_reference() {
    let workload = workload("default");
    assert_eq!(workload.typical.classes.len(), 35);
    for (seed, tasks, asked, next) in [
        (42, 10866, 8_075_080, 7_427_497_515_176_534_052),
        (43, 10793, 8_074_900, 7_678_829_683_525_425_303),
    ] {
        let mut seeded = workload.trace.seeded(seed);
        let sum: i64 = seeded.arrivals.iter().map(|arrival| arrival.task.task.total()).sum();
        assert_eq!(
            (seeded.arrivals.len(), sum, seeded.random.int63()),
            (tasks, asked, next)
        );
    }
    let seeded = workload.trace.seeded(42);
    let first: Vec<String> = seeded
        .arrivals
        .iter()
        .take(4)
        .map(pumice_lab::workload::Arrival::name)
        .collect();
    assert_eq!(
        first,
        ["0255", "1685", "6784", "4463"].map(|number| format!("openb-pod-{number}"))
    );
    assert_eq!(seeded.arrivals.last().unwrap().name(), "openb-pod-5877-tuned-2713");
    let nodes: Vec<_> = seeded.node_names().take(2).collect();
    assert_eq!(
        nodes.iter().map(|node| &**node).collect::<Vec<_>>(),
        ["0000-openb-node-0260", "0001-openb-node-0858"]
    );
}

#[test]
#[ignore = "needs the published traces: FGD=DIR"]
#[expect(clippy::print_stderr, reason = "the comparison is what readers ask for")]
#[expect(clippy::disallowed_methods, reason = "times are printed, and decide nothing")]
fn a_directory_of_traces_equals_its_published_rows() {
    let directory = std::env::var_os("FGD").expect("FGD names the directory of the traces");
    let begin = Instant::now();
    let reproduction = Reproduction::run(Path::new(&directory), &Selection::default(), 2, &|_, _| {}).unwrap();
    let (count, text) = (reproduction.rows().count(), reproduction.text());
    eprintln!(
        "{count} experiments in {:.1} s on two threads\n{text}",
        begin.elapsed().as_secs_f64()
    );
    let comparison = reproduction.comparison();
    assert_eq!(
        (&comparison.first_difference, comparison.values),
        (&None, comparison.equal)
    );
    let distance = comparison.largest_random_distance().unwrap();
    let complete = comparison.random.iter().filter(|mean| mean.seeds == 10);
    for mean in complete {
        assert!((mean.own - mean.published).abs() <= 0.3, "{mean:?}, largest {distance}");
    }
    for mean in &comparison.random {
        let off = mean.own - mean.published;
        let (metric, column, seeds) = (mean.metric, mean.column, mean.seeds);
        eprintln!("{} {metric} at {column}: {off:+.3} over {seeds} seeds", mean.workload);
    }
    let begin = Instant::now();
    let bounds = WorkloadBound::of(&reproduction, 2).unwrap();
    let seconds = begin.elapsed().as_secs_f64();
    eprintln!(
        "{} bounds in {seconds:.1} s on two threads\n{}",
        bounds.len(),
        bounds_text(&bounds)
    );
    for own in &bounds {
        assert!(own.room() >= 0, "{own:?}");
    }
}
