//! Writes the figures into docs/performance.md, between the marks there, and draws how they grow.

use std::fmt::Write as _;
use std::path::Path;

use pumice::plot::{self, Axis, Line, Panel};

use super::figures::{GOALS, Report};
use super::print::shown;

const PAGE: &str = "docs/performance.md";
const DRAWING: &str = "docs/performance.svg";

/// Sizes of clusters, as keys name them, with their tasks.
const SIZES: [(u32, &str, &str); 3] = [(1_000, "1k", "10k"), (10_000, "10k", "100k"), (100_000, "100k", "1m")];

/// What grows: a name, a unit, the keys by size, and for the drawing seconds per unit (and per node).
struct Row {
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
) -> Row {
    Row {
        name,
        unit,
        key,
        seconds,
        per_node,
    }
}

const ROWS: [Row; 7] = [
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

/// Rewrites the parts of the page that hold figures, and the drawing.
pub(crate) fn write(report: &Report) -> Result<(), Box<dyn std::error::Error>> {
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

/// The page with other words between the marks of a name.
fn between(page: &str, name: &str, body: &str) -> Option<String> {
    let (begin, end) = (
        format!("<!-- {name}: written by make bench-docs -->\n"),
        format!("<!-- {name}: end -->"),
    );
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{body}{end}{after}"))
}

fn machine(report: &Report) -> String {
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

fn goals(report: &Report) -> String {
    let mut out =
        "| Figure | what | measured | at most | floor | times the floor |\n|---|---|---:|---:|---:|---:|\n".to_owned();
    for goal in &GOALS {
        let (figure, floor) = (report.get(goal.key), report.get(goal.floor));
        let times = figure.zip(floor).map(|(figure, floor)| figure / floor);
        let missed = figure.is_some_and(|figure| figure > goal.at_most);
        let mark = if missed { "**" } else { "" };
        let _: std::fmt::Result = writeln!(
            out,
            "| `{}` | {} | {mark}{} {}{mark} | {} | {} | {} |",
            goal.key,
            goal.what,
            shown(figure),
            goal.unit,
            shown(Some(goal.at_most)),
            shown(floor),
            shown(times)
        );
    }
    out
}

fn growth(report: &Report) -> String {
    let mut out = "| | unit | 1,000 nodes | 10,000 nodes | 100,000 nodes |\n|---|---|---:|---:|---:|\n".to_owned();
    for row in &ROWS {
        let figures = SIZES.map(|(nodes, size, tasks)| shown(report.get(&(row.key)(nodes, size, tasks))));
        let _: std::fmt::Result = writeln!(out, "| {} | {} | {} |", row.name, row.unit, figures.join(" | "));
    }
    out
}

/// Each plugin's own part: the name of its path, and what it is.
const ALONE: [(&str, &str); 5] = [
    ("score", "`resource-strategy-fit` with `sra`, four resources: score"),
    ("score_binpack", "`binpack`, three resources: score"),
    ("score_fit_plus", "`NodeResourcesFitPlus`, three resources: score"),
    (
        "score_scarce",
        "`ScarceResourceAvoidance`, a third of the nodes without what is scarce: score",
    ),
    ("filter_cards", "`capacity-card`, eight kinds of cards: filter"),
];

fn alone(report: &Report) -> String {
    let mut out = "| Plugin alone | ns per node | portable |\n|---|---:|---:|\n".to_owned();
    for (path, what) in ALONE {
        let figures = ["", "_portable"].map(|build| shown(report.get(&format!("{path}_ns_per_node_10k{build}"))));
        let _: std::fmt::Result = writeln!(out, "| {what} | {} |", figures.join(" | "));
    }
    out
}

fn wire(report: &Report) -> String {
    let mut out = "| Question | way | p50 | p99 | processor | 64 at once | their p99 | processor |\n\
                   |---|---|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for (name, what) in [
        ("empty", "empty call"),
        ("best", "best node of 10,000"),
        ("all", "all scores of 10,000"),
        ("64x10k", "best 16 for each of 64 classes"),
        ("place", "place 1,000 tasks on 10,000"),
    ] {
        for (way, called) in [("", "TCP"), ("_uds", "Unix socket")] {
            let figure = |key: &str| shown(report.get(&format!("grpc_{name}{key}")));
            let alone = |key: &str| figure(&format!("{way}_{key}"));
            let together = |key: &str| figure(&format!("_64{way}_{key}"));
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

fn drawing(report: &Report) -> String {
    let line = |row: &Row, factor: f64| Line {
        name: row.name.to_owned(),
        points: SIZES
            .iter()
            .filter_map(|(nodes, size, tasks)| {
                let figure = report.get(&(row.key)(*nodes, size, tasks))?;
                let each = if row.per_node { f64::from(*nodes) } else { 1.0 };
                Some((f64::from(*nodes), figure * factor * each))
            })
            .collect(),
    };
    let (timed, held): (Vec<&Row>, Vec<&Row>) = ROWS.iter().partition(|row| row.seconds > 0.0);
    let panel = |title: &str, unit: &str, lines: Vec<Line>| Panel {
        title: title.to_owned(),
        x: Axis::log("nodes"),
        y: Axis::log(unit),
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
    plot::svg("Times and memory over the number of nodes", &panels, 2)
}
