//! Report for people: the goals, then all other measurements.

use std::fmt::Write as _;

use super::measurements::{GOALS, GoalBound, MeasurementReport};

/// Table of the goals, and the other measurements by key.
pub(crate) fn for_people(report: &MeasurementReport) -> String {
    let mut out = String::new();
    let line = |cells: [&str; 7]| {
        let [key, measurement, unit, bound, reached, floor, over] = cells;
        format!("{key:<46}{measurement:>10} {unit:<3}{bound:>8}  {reached:<4}{floor:>10}{over:>8}\n")
    };
    out += &line(["key", "figure", "", "goal", "", "floor", "times"]);
    for goal in &GOALS {
        let measurement = report.get(goal.key);
        let floor = report.get(goal.floor);
        let times = measurement
            .zip(floor)
            .map(|(measurement, floor)| format!("{:.1}", measurement / floor));
        let reached = measurement.map_or("", |measurement| {
            if goal.bound.is_reached(measurement) {
                "yes"
            } else {
                "NO"
            }
        });
        out += &line([
            goal.key,
            &shown(measurement),
            goal.unit,
            &bound(goal.bound),
            reached,
            &shown(floor),
            &times.unwrap_or_default(),
        ]);
    }
    out.push('\n');
    for (key, value) in report.iter() {
        if GOALS.iter().all(|goal| goal.key != key) {
            let _: std::fmt::Result = writeln!(out, "{key:<46}{value:>14}");
        }
    }
    out
}

/// Bound of a goal in few characters.
pub(crate) fn bound(bound: GoalBound) -> String {
    match bound {
        GoalBound::AtMost(most) => format!("≤ {}", shown(Some(most))),
        GoalBound::AtLeast(least) => format!("≥ {}", shown(Some(least))),
    }
}

/// Measurements of calls by key, one a line.
pub(crate) fn measured(report: &MeasurementReport) -> String {
    let mut out = String::new();
    for (key, value) in report.iter().filter(|(key, _)| key.starts_with("grpc_")) {
        let _: std::fmt::Result = writeln!(out, "{key:<46}{value:>14}");
    }
    out
}

/// Measurement in few characters; `–` if it is absent.
pub(crate) fn shown(measurement: Option<f64>) -> String {
    let Some(measurement) = measurement else {
        return "–".to_owned();
    };
    let size = measurement.abs();
    if size >= 1_000.0 {
        let whole = format!("{measurement:.0}");
        let mut out = String::new();
        for (at, digit) in whole.chars().enumerate() {
            if at > 0 && (whole.len() - at).is_multiple_of(3) {
                out.push(',');
            }
            out.push(digit);
        }
        out
    } else if size >= 100.0 || measurement.fract() == 0.0 {
        format!("{measurement:.0}")
    } else if size >= 10.0 {
        format!("{measurement:.1}")
    } else if size >= 0.1 {
        format!("{measurement:.2}")
    } else {
        format!("{measurement:.3}")
    }
}
