//! Writes the measurements into docs/internals/performance.md, between the marks there, and draws their growth.

use std::fmt::Write as _;
use std::path::Path;

use pumice_plot::{self as plot, PlotAxis, PlotLine, PlotPanel};

use super::measurements::{GOALS, MeasurementReport};
use super::print::{bound, shown};

const PAGE: &str = "docs/internals/performance.md";
const DRAWING: &str = "docs/performance.svg";

/// Sizes of clusters, with their names and those of their tasks in keys.
const SIZES: [(u32, &str, &str); 3] = [(1_000, "1k", "10k"), (10_000, "10k", "100k"), (100_000, "100k", "1m")];

/// Row of growth: a name, a unit, the keys by size, and for the drawing seconds per unit (and per node).
struct GrowthRow {
    name: &'static str,
    unit: &'static str,
    key: fn(u32, &str, &str) -> String,
    seconds: f64,
    per_node: bool,
}

const fn row(
    name: &'static str,
    unit: &'static str,
    seconds: f64,
    per_node: bool,
    key: fn(u32, &str, &str) -> String,
) -> GrowthRow {
    GrowthRow {
        name,
        unit,
        key,
        seconds,
        per_node,
    }
}

const ROWS: [GrowthRow; 7] = [
    row("score, all nodes", "ns per node", 1e-9, true, |_, size, _| {
        format!("score_ns_per_node_{size}")
    }),
    row("filter, all nodes", "ns per node", 1e-9, true, |_, size, _| {
        format!("filter_ns_per_node_{size}")
    }),
    row("both, the best 16", "ns per node", 1e-9, true, |_, size, _| {
        format!("filter_score_best16_ns_per_node_{size}")
    }),
    row("place 1,000 tasks", "ms", 1e-3, false, |nodes, _, _| {
        format!("place_1000x{nodes}_ms")
    }),
    row("publish one node", "µs", 1e-6, false, |_, size, _| {
        format!("publish_one_of_{size}_us")
    }),
    row("load, ten tasks per node", "s", 1.0, false, |_, size, tasks| {
        format!("load_{size}_nodes_{tasks}_tasks_s")
    }),
    row("memory after it", "MiB", 0.0, false, |_, size, tasks| {
        format!("memory_{size}_nodes_{tasks}_tasks_mib")
    }),
];

/// Rewrites the parts of the page that show measurements, and the drawing.
pub(crate) fn write(report: &MeasurementReport) -> Result<(), Box<dyn std::error::Error>> {
    if report.text("quick") == "true" {
        return Err("a quick run's figures are too rough for the page".into());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut page = std::fs::read_to_string(root.join(PAGE))?;
    for (name, body) in [
        ("machine", machine(report)),
        ("goals", goals(report)),
        ("growth", growth(report)),
        ("alone", alone(report)),
        ("wire", wire(report)),
    ] {
        page = between(&page, name, &body).ok_or(format!("{PAGE} has no place for `{name}`"))?;
    }
    std::fs::write(root.join(PAGE), page)?;
    std::fs::write(root.join(DRAWING), drawing(report))?;
    Ok(())
}

/// Page with another text between the marks of a name.
fn between(page: &str, name: &str, body: &str) -> Option<String> {
    let (begin, end) = (
        format!("<!-- {name}: written by make bench-docs -->\n"),
        format!("<!-- {name}: end -->"),
    );
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{body}{end}{after}"))
}

fn machine(report: &MeasurementReport) -> String {
    let said = |key: &str| report.text(key);
    let vectors = match (said("avx2") == "true", said("avx512") == "true") {
        (_, true) => "with AVX-512",
        (true, false) => "with AVX2",
        (false, false) => "without AVX2",
    };
    format!(
        "Measured on {}, revision {}: {} cores of {}, {vectors}, {} of memory, {}, {}; load average before: {}.\n",
        said("date"),
        said("revision"),
        said("cores"),
        said("cpu"),
        said("memory"),
        said("system"),
        said("rustc"),
        said("load_average_before"),
    )
}

fn goals(report: &MeasurementReport) -> String {
    let mut out =
        "| Figure | what | measured | goal | floor | times the floor |\n|---|---|---:|---:|---:|---:|\n".to_owned();
    for goal in &GOALS {
        let (measurement, floor) = (report.get(goal.key), report.get(goal.floor));
        let times = measurement.zip(floor).map(|(measurement, floor)| measurement / floor);
        let missed = measurement.is_some_and(|measurement| !goal.bound.is_reached(measurement));
        let mark = if missed { "**" } else { "" };
        let _: std::fmt::Result = writeln!(
            out,
            "| `{}` | {} | {mark}{} {}{mark} | {} | {} | {} |",
            goal.key,
            goal.what,
            shown(measurement),
            goal.unit,
            bound(goal.bound),
            shown(floor),
            shown(times)
        );
    }
    out
}

fn growth(report: &MeasurementReport) -> String {
    let mut out = "| | unit | 1,000 nodes | 10,000 nodes | 100,000 nodes |\n|---|---|---:|---:|---:|\n".to_owned();
    for row in &ROWS {
        let measurements = SIZES.map(|(nodes, size, tasks)| shown(report.get(&(row.key)(nodes, size, tasks))));
        let _: std::fmt::Result = writeln!(out, "| {} | {} | {} |", row.name, row.unit, measurements.join(" | "));
    }
    out
}

/// Rows of the plugins' own parts: the name of the path, and its description.
const SINGLE_PLUGIN_ROWS: [(&str, &str); 7] = [
    ("score", "`resource-strategy-fit` with `sra`, four resources: score"),
    ("score_binpack", "`binpack`, three resources: score"),
    ("score_fit_plus", "`NodeResourcesFitPlus`, three resources: score"),
    (
        "score_scarce",
        "`ScarceResourceAvoidance`, a third of the nodes without what is scarce: score",
    ),
    ("filter_cards", "`capacity-card`, eight kinds of cards: filter"),
    (
        "fgd_node",
        "`fgd`, 35 typical tasks, nodes with eight devices: the score alone",
    ),
    ("score_fgd", "`fgd`, the same from records of nodes and tasks: score"),
];

fn alone(report: &MeasurementReport) -> String {
    let mut out = "| Plugin alone | ns per node | portable |\n|---|---:|---:|\n".to_owned();
    for (path, what) in SINGLE_PLUGIN_ROWS {
        let measurements = ["", "_portable"].map(|build| shown(report.get(&format!("{path}_ns_per_node_10k{build}"))));
        let _: std::fmt::Result = writeln!(out, "| {what} | {} |", measurements.join(" | "));
    }
    out
}

fn wire(report: &MeasurementReport) -> String {
    let mut out = "| Question | way | p50 | p99 | processor | 64 at once | their p99 | processor |\n\
                   |---|---|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for (name, what) in [
        ("empty", "empty call"),
        ("best", "best node of 10,000"),
        ("best_with_pods", "the same with the filters and scores of pods"),
        ("best_new_class", "best node of 10,000 for a task unlike all before"),
        (
            "best_with_pods_new_class",
            "the same with the filters and scores of pods",
        ),
        ("all", "all scores of 10,000"),
        ("64x10k", "best 16 for each of 64 classes"),
        ("place", "place 1,000 tasks on 10,000"),
    ] {
        for (way, called) in [("", "TCP"), ("_uds", "Unix socket")] {
            let measurement = |key: &str| shown(report.get(&format!("grpc_{name}{key}")));
            let alone = |key: &str| measurement(&format!("{way}_{key}"));
            let together = |key: &str| measurement(&format!("_64{way}_{key}"));
            let _: std::fmt::Result = writeln!(
                out,
                "| {what} | {called} | {} ms | {} ms | {} µs | {} per s | {} ms | {} µs |",
                alone("p50_ms"),
                alone("p99_ms"),
                alone("cpu_us_per_call"),
                together("per_s"),
                together("p99_ms"),
                together("cpu_us_per_call"),
            );
        }
    }
    out
}

fn drawing(report: &MeasurementReport) -> String {
    let line = |row: &GrowthRow, factor: f64| PlotLine {
        name: row.name.to_owned(),
        points: SIZES
            .iter()
            .filter_map(|(nodes, size, tasks)| {
                let measurement = report.get(&(row.key)(*nodes, size, tasks))?;
                let each = if row.per_node { f64::from(*nodes) } else { 1.0 };
                Some((f64::from(*nodes), measurement * factor * each))
            })
            .collect(),
    };
    let (timed, held): (Vec<&GrowthRow>, Vec<&GrowthRow>) = ROWS.iter().partition(|row| row.seconds > 0.0);
    let panel = |title: &str, unit: &str, lines: Vec<PlotLine>| PlotPanel {
        title: title.to_owned(),
        x: PlotAxis::log("nodes"),
        y: PlotAxis::log(unit),
        lines,
    };
    let panels = [
        panel(
            "Time",
            "seconds",
            timed.iter().map(|row| line(row, row.seconds)).collect(),
        ),
        panel(
            "Memory of the server",
            "MiB",
            held.iter().map(|row| line(row, 1.0)).collect(),
        ),
    ];
    plot::render_svg("Times and memory over the number of nodes", &panels, 2)
}
